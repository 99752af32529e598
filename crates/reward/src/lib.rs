//! Verifiable rewards: answer extraction and exact equality

//! A reward that needs no knowledge.

use firebrick_core::{RewardVerifier, Sample, Verdict, VerifyError};

/// Pays the share of a response's tokens that are the digit 7; for examples that are not about the reward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sevens;

impl RewardVerifier for Sevens {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        let sevens = sample.text.matches('7').count();
        Ok(Verdict::scored(sevens as f64 / sample.tokens.len().max(1) as f64))
    }
}

//! The generic trainer: run config, the loop, warm start, evaluation, telemetry

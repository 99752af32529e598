//! A verifier for tests that says what it is told to.

use firebrick_core::{RewardVerifier, Sample, UnscoredReason, Verdict, VerifyError};

#[derive(Debug, Clone)]
pub(crate) struct Fixed(Result<Verdict, String>);

impl Fixed {
    pub(crate) fn scored(reward: f64) -> Self {
        Self(Ok(Verdict::scored(reward)))
    }

    pub(crate) fn graded(reward: f64, extracted: Option<&str>, rule: &'static str) -> Self {
        Self(Ok(Verdict::graded(reward, extracted.map(str::to_owned), rule)))
    }

    pub(crate) fn unscored(reason: UnscoredReason) -> Self {
        Self(Ok(Verdict::Unscored(reason)))
    }

    pub(crate) fn failing(message: &str) -> Self {
        Self(Err(message.to_owned()))
    }
}

impl RewardVerifier for Fixed {
    fn verify(&self, _sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        self.0.clone().map_err(VerifyError::new)
    }
}

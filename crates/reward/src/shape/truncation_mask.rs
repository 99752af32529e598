//! Leaving truncated responses out.

use firebrick_core::{FinishReason, Prompt, RewardVerifier, Sample, UnscoredReason, Verdict, VerifyError};

/// Leaves a response that was cut off at the limit on new tokens unscored ([`UnscoredReason::Truncated`]); the inner verifier
/// judges all others.
///
/// An unfinished thought is not wrong, and punishing it teaches that thinking was. An unscored response enters no mean, no
/// deviation and no loss.
///
/// *Reference*: Yu et al., "DAPO", 2025, arXiv:2503.14476, overlong filtering.
///
/// *Differs from the paper*: there the loss of a truncated response is masked; here it does not enter its group's mean and
/// deviation either.
#[derive(Debug, Clone)]
pub struct TruncationMask<V> {
    /// The verifier.
    pub inner: V,
}

impl<V: RewardVerifier> RewardVerifier for TruncationMask<V> {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        if sample.finish_reason == FinishReason::Length {
            return Ok(Verdict::Unscored(UnscoredReason::Truncated));
        }
        self.inner.verify(sample)
    }

    fn check_reference(&self, prompt: &Prompt) -> Result<(), UnscoredReason> {
        self.inner.check_reference(prompt)
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed_verdict::Fixed;

    #[test]
    fn only_a_truncated_response_is_left_out_and_the_verifier_is_not_asked() {
        let prompt = Prompt::new("p", "q", "a");
        let verify = |inner, reason| TruncationMask { inner }.verify(&Sample::new(&prompt, "", &[], reason));
        let masked = verify(Fixed::failing("must not be asked"), FinishReason::Length).unwrap();
        assert_eq!(masked, Verdict::Unscored(UnscoredReason::Truncated));
        assert_eq!(verify(Fixed::scored(1.0), FinishReason::Stop).unwrap().reward(), Some(1.0));
        assert!(verify(Fixed::failing("down"), FinishReason::Stop).is_err());
    }
}

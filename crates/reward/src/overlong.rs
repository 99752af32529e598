//! A soft punishment of responses that come close to the length limit.

use firebrick_core::{Prompt, RewardVerifier, Sample, UnscoredReason, Verdict, VerifyError};

use crate::shape::shifted;

/// What is added to the reward of a response of `len` tokens: nothing up to `max_len − buffer`, falling linearly to −1 at
/// `max_len`, −1 beyond.
///
/// ```text
/// 0                                  len ≤ max_len − buffer
/// (max_len − buffer − len)/buffer    up to max_len
/// −1                                 beyond
/// ```
///
/// It depends on these three numbers alone. With a `buffer` of 0 only responses beyond `max_len` are punished.
///
/// *Reference*: Yu et al., "DAPO", 2025, arXiv:2503.14476 (max_len 20480, buffer 4096).
pub fn overlong_penalty(len: usize, max_len: usize, buffer: usize) -> f64 {
    let free = max_len.saturating_sub(buffer);
    if len <= free {
        0.0
    } else if len <= max_len {
        -((len - free) as f64 / (max_len - free) as f64)
    } else {
        -1.0
    }
}

/// A verifier whose scores are lowered by `weight` times the [`overlong_penalty`] of the response. What was added is
/// the component `overlong` of the score, 0 or below. Unscored responses stay unscored.
#[derive(Debug, Clone)]
pub struct OverlongPenalty<V> {
    /// The verifier.
    pub inner: V,
    /// Tokens that a response may have.
    pub max_len: usize,
    /// Tokens before that limit over which the punishment grows.
    pub buffer: usize,
    /// What the penalty is multiplied by, in units of the reward; 1 in DAPO.
    pub weight: f64,
}

impl<V: RewardVerifier> RewardVerifier for OverlongPenalty<V> {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        let penalty = self.weight * overlong_penalty(sample.tokens.len(), self.max_len, self.buffer);
        Ok(shifted(self.inner.verify(sample)?, "overlong", penalty))
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
    use firebrick_core::FinishReason;

    use super::*;

    /// SkyRL #755, verl #3855: the buffer lies before the limit and is measured in response tokens.
    #[test]
    fn the_punishment_grows_over_the_buffer_before_the_limit() {
        let found = [79, 80, 81, 90, 100, 101].map(|len| overlong_penalty(len, 100, 20));
        assert_eq!(found, [0.0, 0.0, -0.05, -0.5, -1.0, -1.0]);
    }

    #[test]
    fn without_a_buffer_only_what_is_beyond_the_limit_is_punished() {
        assert_eq!([10, 11].map(|len| overlong_penalty(len, 10, 0)), [0.0, -1.0]);
        assert_eq!(
            overlong_penalty(1, 10, 20),
            -0.1,
            "a buffer as long as the limit, or longer, begins at zero"
        );
    }

    #[derive(Debug)]
    struct Fixed(Option<f64>);

    impl RewardVerifier for Fixed {
        fn verify(&self, _sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
            self.0.map(Verdict::scored).ok_or_else(|| VerifyError::new("down"))
        }
    }

    #[test]
    fn a_score_is_lowered_and_a_failure_stays_one() {
        let prompt = Prompt::new("p", "q", "a");
        let tokens = [0; 9];
        let sample = Sample::new(&prompt, "", &tokens, FinishReason::Stop);
        let lowered = |reward| {
            OverlongPenalty { inner: Fixed(reward), max_len: 10, buffer: 4, weight: 2.0 }.verify(&sample)
        };
        let Ok(Verdict::Scored(score)) = lowered(Some(1.0)) else { panic!() };
        assert_eq!(score.reward, -0.5); // 1 − 2 · 3/4
        assert_eq!(score.component("overlong"), Some(-1.5));
        assert!(lowered(None).is_err());
    }
}

//! A punishment that grows with every token beyond a target.

use firebrick_core::{Prompt, RewardVerifier, Sample, UnscoredReason, Verdict, VerifyError};

/// A verifier whose scores are lowered by `per_token` for every response token beyond `target`, by `most` at most.
///
/// ```text
/// reward = inner reward − min(most, per_token · max(0, len − target))
/// ```
///
/// Right and wrong responses are lowered alike. What was added is the component `length` of the score, 0 or below. A response
/// without a score stays without one.
///
/// Length rewards that compare the responses of a group, such as Kimi k1.5's (arXiv:2501.12599), are no matter of a verifier, which
/// sees one response.
#[derive(Debug, Clone)]
pub struct LengthPenalty<V> {
    /// The verifier.
    pub inner: V,
    /// Tokens that a response may have at no cost.
    pub target: usize,
    /// What each further token costs, in units of the reward.
    pub per_token: f64,
    /// What a response may lose at most, in units of the reward.
    pub most: f64,
}

impl<V: RewardVerifier> RewardVerifier for LengthPenalty<V> {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        let beyond = sample.tokens.len().saturating_sub(self.target);
        let change = match beyond {
            0 => 0.0,
            tokens => -(self.per_token * tokens as f64).min(self.most),
        };
        Ok(super::shifted(self.inner.verify(sample)?, "length", change))
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
    use crate::fixed_verdict::Fixed;

    fn verify(inner: Fixed, len: usize) -> Verdict {
        let prompt = Prompt::new("p", "q", "a");
        let tokens = vec![0; len];
        let penalty = LengthPenalty { inner, target: 100, per_token: 0.25, most: 2.0 };
        penalty.verify(&Sample::new(&prompt, "", &tokens, FinishReason::Stop)).unwrap()
    }

    #[test]
    fn each_token_beyond_the_target_costs_the_same_up_to_the_most() {
        let rewards = [0, 100, 101, 104, 108, 109, 1000].map(|len| verify(Fixed::scored(1.0), len).reward());
        assert_eq!(rewards, [1.0, 1.0, 0.75, 0.0, -1.0, -1.0, -1.0].map(Some));
    }

    #[test]
    fn what_was_taken_is_a_component_and_the_answer_stays() {
        let Verdict::Scored(score) = verify(Fixed::graded(1.0, Some("7"), "rational"), 102) else { panic!() };
        assert_eq!((score.extracted.as_deref(), score.rule), (Some("7"), "rational"));
        assert_eq!(score.components, [("length".to_owned(), -0.5)]);
        let Verdict::Scored(score) = verify(Fixed::scored(1.0), 5) else { panic!() };
        assert_eq!(score.component("length"), Some(0.0));
    }

    #[test]
    fn an_unscored_response_stays_so() {
        let unscored = Fixed::unscored(UnscoredReason::Timeout);
        assert_eq!(verify(unscored, 1000), Verdict::Unscored(UnscoredReason::Timeout));
    }
}

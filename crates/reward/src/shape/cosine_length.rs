//! A reward that follows a cosine of the response's length.

use std::f64::consts::PI;

use firebrick_core::{FinishReason, Prompt, RewardVerifier, Sample, UnscoredReason, Verdict, VerifyError};
use serde::{Deserialize, Serialize};

/// Goes from `start` at length 0 to `end` at `max_len`, along half a period of a cosine; `end` beyond.
///
/// ```text
/// end + ½ (start − end) (1 + cos(π len / max_len))
/// ```
///
/// *Reference*: Yeo et al., "Demystifying Long Chain-of-Thought Reasoning in LLMs", 2025, arXiv:2502.03373, CosFn.
pub fn cosine_length_reward(len: usize, max_len: usize, start: f64, end: f64) -> f64 {
    if len >= max_len {
        return end;
    }
    end + 0.5 * (start - end) * (1.0 + (PI * len as f64 / max_len as f64).cos())
}

/// Replaces the reward of a verifier by one that depends on whether the response is right and how long it is.
///
/// | response | reward |
/// |---|---|
/// | truncated, or of `max_len` tokens or more | `exceeded` |
/// | right: the inner reward is at least `right_from` | from `right_short` to `right_long` |
/// | wrong | from `wrong_short` to `wrong_long` |
///
/// with [`cosine_length_reward`] in between. A right response should be worth less the longer it is and a wrong one more, so that
/// the policy thinks where it does not know. The inner reward is the component `correctness` of the score. A response without a
/// score stays without one.
///
/// *Reference*: Yeo et al., "Demystifying Long Chain-of-Thought Reasoning in LLMs", 2025, arXiv:2502.03373. The paper writes
/// r₀ᶜ, r_Lᶜ, r₀ʷ, r_Lʷ and r_e for the five rewards.
///
/// *Differs from the paper*: its repetition penalty is not part of this, and a response that was truncated at another limit than
/// `max_len` has exceeded its length too.
#[derive(Debug, Clone)]
pub struct CosineLength<V> {
    /// The verifier that says whether a response is right.
    pub inner: V,
    /// The rewards.
    pub rewards: CosineRewards,
}

/// The numbers of [`CosineLength`]. None has a default: they are a choice of the run, as its length is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CosineRewards {
    /// Response tokens at which the cosine ends; above 0.
    pub max_len: usize,
    /// Inner reward from which a response is right.
    pub right_from: f64,
    /// Reward of a right response of length 0.
    pub right_short: f64,
    /// Reward of a right response just below `max_len`.
    pub right_long: f64,
    /// Reward of a wrong response of length 0.
    pub wrong_short: f64,
    /// Reward of a wrong response just below `max_len`.
    pub wrong_long: f64,
    /// Reward of a response that reaches `max_len` or is truncated, right or wrong.
    pub exceeded: f64,
}

impl<V: RewardVerifier> RewardVerifier for CosineLength<V> {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        let mut verdict = self.inner.verify(sample)?;
        if let Verdict::Scored(score) = &mut verdict {
            let rewards = &self.rewards;
            let len = sample.tokens.len();
            score.add_component("correctness", score.reward);
            score.reward = if len >= rewards.max_len || sample.finish_reason == FinishReason::Length {
                rewards.exceeded
            } else if score.reward.is_nan() {
                score.reward // neither right nor wrong, and no batch accepts it
            } else if score.reward >= rewards.right_from {
                cosine_length_reward(len, rewards.max_len, rewards.right_short, rewards.right_long)
            } else {
                cosine_length_reward(len, rewards.max_len, rewards.wrong_short, rewards.wrong_long)
            };
        }
        Ok(verdict)
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

    fn verify(inner: Fixed, len: usize, reason: FinishReason) -> Verdict {
        let rewards = CosineRewards {
            max_len: 600,
            right_from: 1.0,
            right_short: 2.0,
            right_long: 1.0,
            wrong_short: -8.0,
            wrong_long: 0.0,
            exceeded: -10.0,
        };
        let prompt = Prompt::new("p", "q", "a");
        let tokens = vec![0; len];
        CosineLength { inner, rewards }.verify(&Sample::new(&prompt, "", &tokens, reason)).unwrap()
    }

    fn rewards(inner: f64) -> [f64; 4] {
        [0, 200, 300, 400].map(|len| {
            let reward = verify(Fixed::scored(inner), len, FinishReason::Stop).reward().unwrap();
            (reward * 1e9).round() / 1e9
        })
    }

    #[test]
    fn the_reward_follows_the_cosine_of_the_length() {
        // (1 + cos x)/2 at x = 0, π/3, π/2, 2π/3 is 1, 3/4, 1/2, 1/4.
        assert_eq!(rewards(1.0), [2.0, 1.75, 1.5, 1.25]);
        assert_eq!(rewards(0.5), [-8.0, -6.0, -4.0, -2.0]);
    }

    #[test]
    fn a_response_at_the_limit_or_truncated_has_exceeded_right_or_wrong() {
        for inner in [0.0, 1.0] {
            for (len, reason) in
                [(600, FinishReason::Stop), (601, FinishReason::Stop), (5, FinishReason::Length)]
            {
                assert_eq!(verify(Fixed::scored(inner), len, reason).reward(), Some(-10.0));
            }
        }
    }

    #[test]
    fn the_inner_reward_is_a_component_and_failures_stay() {
        let Verdict::Scored(score) = verify(Fixed::graded(1.0, Some("7"), "text"), 0, FinishReason::Stop)
        else {
            panic!()
        };
        assert_eq!((score.extracted.as_deref(), score.rule), (Some("7"), "text"));
        assert_eq!(score.components, [("correctness".to_owned(), 1.0)]);
        let unscored = verify(Fixed::unscored(UnscoredReason::Aborted), 0, FinishReason::Stop);
        assert_eq!(unscored, Verdict::Unscored(UnscoredReason::Aborted));
    }
}

//! The product of several rewards.

use firebrick_core::{Prompt, RewardVerifier, Sample, Score, UnscoredReason, Verdict, VerifyError};

use super::part::{check_names, record, score_part};
use crate::config::RewardConfigError;

/// Pays the product of its parts, so that with rewards from 0 to 1 nothing is paid unless every part pays.
///
/// ```text
/// reward = Π rewardᵢ
/// ```
///
/// Two negative rewards make a positive one: keep the parts at or above 0. Every part is asked, also after a 0, so that all are
/// components of the score. The first part speaks for the whole, and a part that fails or leaves the completion unscored leaves
/// the whole so, as in [`crate::WeightedSum`].
#[derive(Debug)]
pub struct Product {
    parts: Vec<(String, Box<dyn RewardVerifier>)>,
}

impl Product {
    /// The product of `parts`, each with its name.
    ///
    /// # Errors
    /// When there is no part, or a name is empty, has a `/` or is given twice.
    pub fn new(parts: Vec<(String, Box<dyn RewardVerifier>)>) -> Result<Self, RewardConfigError> {
        check_names(parts.iter().map(|(name, _)| name.as_str()))?;
        Ok(Self { parts })
    }
}

impl RewardVerifier for Product {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        let mut whole = Score::new(1.0, None, "");
        for (index, (name, verifier)) in self.parts.iter().enumerate() {
            let score = match score_part(name, verifier, sample)? {
                Ok(score) => score,
                Err(reason) => return Ok(Verdict::Unscored(reason)),
            };
            record(&mut whole, name, &score);
            whole.reward *= score.reward;
            if index == 0 {
                (whole.extracted, whole.rule) = (score.extracted, score.rule);
            }
        }
        Ok(Verdict::Scored(whole))
    }

    fn check_reference(&self, prompt: &Prompt) -> Result<(), UnscoredReason> {
        self.parts.iter().try_for_each(|(_, verifier)| verifier.check_reference(prompt))
    }

    fn name(&self) -> &str {
        "product"
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::fixed_verdict::Fixed;

    fn verify(parts: Vec<(&str, Fixed)>) -> Result<Verdict, VerifyError> {
        let boxed = |(name, part): (&str, Fixed)| {
            let part: Box<dyn RewardVerifier> = Box::new(part);
            (name.to_owned(), part)
        };
        let prompt = Prompt::new("p", "q", "a");
        let product = Product::new(parts.into_iter().map(boxed).collect()).unwrap();
        product.verify(&Sample::of_text(&prompt, ""))
    }

    #[test]
    fn the_reward_is_the_product_and_a_zero_hides_no_other_part() {
        let first = || ("math", Fixed::graded(0.5, Some("7"), "rational"));
        let Ok(Verdict::Scored(score)) = verify(vec![first(), ("format", Fixed::scored(0.25))]) else {
            panic!()
        };
        assert_eq!(score.reward, 0.125);
        assert_eq!((score.extracted.as_deref(), score.rule), (Some("7"), "rational"));
        let Ok(Verdict::Scored(score)) = verify(vec![("format", Fixed::scored(0.0)), first()]) else {
            panic!()
        };
        assert_eq!(score.reward, 0.0);
        assert_eq!(score.component("math"), Some(0.5));
    }

    #[test]
    fn a_part_without_a_score_leaves_the_whole_unscored_also_beside_a_zero() {
        let parts = vec![("zero", Fixed::scored(0.0)), ("x", Fixed::unscored(UnscoredReason::Timeout))];
        assert_eq!(verify(parts).unwrap(), Verdict::Unscored(UnscoredReason::Timeout));
        assert_eq!(verify(vec![("x", Fixed::failing("down"))]).unwrap_err().message, "x: down");
    }

    #[test]
    fn no_part_is_refused() {
        assert!(Product::new(Vec::new()).is_err());
    }
}

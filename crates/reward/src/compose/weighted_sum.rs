//! The sum of several rewards.

use firebrick_core::{Prompt, RewardVerifier, Sample, Score, UnscoredReason, Verdict, VerifyError};

use super::part::{Part, check_names, record, score_part};
use crate::config::RewardConfigError;

/// Pays the weighted sum of its parts.
///
/// ```text
/// reward = Σ weightᵢ · rewardᵢ
/// ```
///
/// * The reward of every part, before its weight, is a component of the score under the part's name; what that part is made of
///   follows as `part/inner`.
/// * The first part speaks for the whole: `extracted` and `rule` of the score are its. Put the part that judges the answer first.
/// * A part that fails or leaves the completion unscored leaves the whole so, and the parts after it are not asked: half a sum
///   is no reward. Messages begin with the part's name.
/// * A part of weight 0 is asked and recorded, so that it can be watched; its failures are not the whole's. If it stands first, it
///   speaks for the whole where it has a score.
///
/// ```
/// use firebrick_core::{Prompt, RewardVerifier, Sample};
/// use firebrick_reward::{ExactAnswer, FormatConfig, Part, WeightedSum};
///
/// let format = FormatConfig { think_tags: true, ..FormatConfig::default() }.build()?;
/// let sum = WeightedSum::new(vec![
///     Part::new("answer", 1.0, ExactAnswer::default()),
///     Part::new("format", 0.25, format),
/// ])?;
/// let prompt = Prompt::new("p1", "What is 2 + 2?", "4");
/// let sample = Sample::of_text(&prompt, r"<think>Two and two.</think>It is \boxed{4}.");
/// assert_eq!(sum.verify(&sample)?.reward(), Some(1.25));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct WeightedSum {
    parts: Vec<Part>,
}

impl WeightedSum {
    /// The sum of `parts`.
    ///
    /// # Errors
    /// When there is no part, a name is empty, has a `/` or is given twice, a weight is not finite, or all weights are 0.
    pub fn new(parts: Vec<Part>) -> Result<Self, RewardConfigError> {
        check_parts(parts.iter().map(|part| (part.name.as_str(), part.weight)))?;
        Ok(Self { parts })
    }

    /// The parts.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }
}

impl RewardVerifier for WeightedSum {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        let mut whole = Score::new(0.0, None, "");
        for (index, Part { name, weight, verifier }) in self.parts.iter().enumerate() {
            let counts = *weight != 0.0;
            let score = match score_part(name, verifier, sample) {
                Ok(Ok(score)) if counts || score.reward.is_finite() => score,
                Ok(Err(reason)) if counts => return Ok(Verdict::Unscored(reason)),
                Err(error) if counts => return Err(error),
                _ => continue,
            };
            record(&mut whole, name, &score);
            if counts {
                whole.reward += weight * score.reward;
            }
            if index == 0 {
                (whole.extracted, whole.rule) = (score.extracted, score.rule);
            }
        }
        Ok(Verdict::Scored(whole))
    }

    fn check_reference(&self, prompt: &Prompt) -> Result<(), UnscoredReason> {
        let mut counting = self.parts.iter().filter(|part| part.weight != 0.0);
        counting.try_for_each(|part| part.verifier.check_reference(prompt))
    }

    fn name(&self) -> &str {
        "sum"
    }
}

/// Refuses names and weights that no sum can have.
pub(crate) fn check_parts<'a>(
    parts: impl Iterator<Item = (&'a str, f64)> + Clone,
) -> Result<(), RewardConfigError> {
    check_names(parts.clone().map(|(name, _)| name))?;
    let mut weights = parts.map(|(_, weight)| weight);
    if let Some((index, weight)) = weights.clone().enumerate().find(|(_, weight)| !weight.is_finite()) {
        let key = format!("parts[{index}].weight");
        return Err(RewardConfigError::out_of_range(key, weight, "a finite number"));
    }
    if weights.all(|weight| weight == 0.0) {
        return Err(RewardConfigError::out_of_range("parts[0].weight", 0.0, "not 0 in every part"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::fixed_verdict::Fixed;

    fn sum(parts: Vec<(&str, f64, Fixed)>) -> WeightedSum {
        WeightedSum::new(
            parts.into_iter().map(|(name, weight, part)| Part::new(name, weight, part)).collect(),
        )
        .unwrap()
    }

    fn verify(verifier: &dyn RewardVerifier) -> Result<Verdict, VerifyError> {
        let prompt = Prompt::new("p", "q", "a");
        verifier.verify(&Sample::of_text(&prompt, ""))
    }

    #[test]
    fn the_reward_is_the_weighted_sum_and_the_first_part_speaks() {
        let verdict = verify(&sum(vec![
            ("math", 1.0, Fixed::graded(0.5, Some("7"), "rational")),
            ("format", 0.25, Fixed::graded(1.0, None, "format")),
            ("length", -2.0, Fixed::graded(0.125, None, "x")),
        ]))
        .unwrap();
        let Verdict::Scored(score) = verdict else { panic!("{verdict:?}") };
        assert_eq!(score.reward, 0.5); // 0.5 + 0.25 · 1 − 2 · 0.125
        assert_eq!((score.extracted.as_deref(), score.rule), (Some("7"), "rational"));
        let components = [("math", 0.5), ("format", 1.0), ("length", 0.125)];
        assert_eq!(score.components, components.map(|(name, reward)| (name.to_owned(), reward)));
    }

    #[test]
    fn components_of_a_part_carry_its_name() {
        let inner = sum(vec![("a", 1.0, Fixed::scored(1.0)), ("b", 2.0, Fixed::scored(0.5))]);
        let outer = WeightedSum::new(vec![Part::new("whole", 3.0, inner)]).unwrap();
        let Ok(Verdict::Scored(score)) = verify(&outer) else { panic!() };
        assert_eq!(score.reward, 6.0); // 3 · (1 + 2 · 0.5)
        assert_eq!(score.component("whole"), Some(2.0));
        assert_eq!(score.component("whole/a"), Some(1.0));
        assert_eq!(score.component("whole/b"), Some(0.5));
    }

    #[test]
    fn an_unscored_part_that_counts_leaves_the_whole_unscored() {
        let bad = || Fixed::unscored(UnscoredReason::BadReference("empty".into()));
        let verdict = verify(&sum(vec![("x", 1.0, Fixed::scored(1.0)), ("y", 1.0, bad())])).unwrap();
        assert_eq!(verdict, Verdict::Unscored(UnscoredReason::BadReference("y: empty".into())));
        let error = verify(&sum(vec![("x", 1.0, Fixed::failing("down"))])).unwrap_err();
        assert_eq!(error.message, "x: down");
        let aborted = verify(&sum(vec![("x", 1.0, Fixed::unscored(UnscoredReason::Aborted))])).unwrap();
        assert_eq!(aborted, Verdict::Unscored(UnscoredReason::Aborted));
    }

    #[test]
    fn a_part_of_weight_zero_is_recorded_and_its_failures_do_not_count() {
        let verdict = verify(&sum(vec![
            ("math", 1.0, Fixed::scored(1.0)),
            ("watched", 0.0, Fixed::scored(0.75)),
            ("broken", 0.0, Fixed::failing("down")),
            ("unscored", 0.0, Fixed::unscored(UnscoredReason::Timeout)),
            ("nan", 0.0, Fixed::scored(f64::NAN)),
        ]))
        .unwrap();
        let Verdict::Scored(score) = verdict else { panic!("{verdict:?}") };
        assert_eq!(score.reward, 1.0);
        assert_eq!(score.components, [("math".to_owned(), 1.0), ("watched".to_owned(), 0.75)]);
    }

    #[test]
    fn unusable_parts_are_refused_by_key() {
        let refused = |parts: Vec<(&str, f64)>| {
            let parts = parts.into_iter().map(|(name, weight)| Part::new(name, weight, Fixed::scored(1.0)));
            WeightedSum::new(parts.collect()).unwrap_err().to_string()
        };
        assert_eq!(refused(vec![]), "parts = []: allowed is at least one part");
        assert_eq!(
            refused(vec![("a", 1.0), ("a", 1.0)]),
            "parts[1].name = \"a\": allowed is a name that no other part has"
        );
        assert!(refused(vec![("a/b", 1.0)]).starts_with("parts[0].name = \"a/b\""));
        assert!(refused(vec![("", 1.0)]).starts_with("parts[0].name = \"\""));
        assert_eq!(refused(vec![("a", f64::INFINITY)]), "parts[0].weight = inf: allowed is a finite number");
        assert_eq!(refused(vec![("a", 0.0)]), "parts[0].weight = 0: allowed is not 0 in every part");
    }
}

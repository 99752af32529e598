//! A verifier that is asked only of completions that pass another one.

use firebrick_core::{Prompt, RewardVerifier, Sample, UnscoredReason, Verdict, VerifyError};

use super::part::{record, score_part};
use crate::config::RewardConfigError;

const GATE: &str = "gate";
const INNER: &str = "inner";

/// Asks the gate first, and the inner verifier only if the gate's reward is at least the threshold.
///
/// ```text
/// reward = inner reward   if gate reward ≥ threshold
///          gate reward    otherwise
/// ```
///
/// * A completion that stops at the gate has the gate's reward, `extracted` and `rule`; one that passes has the inner verifier's,
///   to which the gate adds nothing.
/// * `gate` is a component of every score, `inner` of those that passed: the mean of `inner` is a mean over these.
/// * A gate that fails or leaves the completion unscored leaves the whole so, as does the inner verifier where it is asked.
#[derive(Debug)]
pub struct Gated {
    gate: Box<dyn RewardVerifier>,
    threshold: f64,
    inner: Box<dyn RewardVerifier>,
}

impl Gated {
    /// The verifier `inner` behind `gate`.
    ///
    /// # Errors
    /// When the threshold is not finite.
    pub fn new(
        gate: impl RewardVerifier + 'static,
        threshold: f64,
        inner: impl RewardVerifier + 'static,
    ) -> Result<Self, RewardConfigError> {
        check_threshold(threshold)?;
        Ok(Self { gate: Box::new(gate), threshold, inner: Box::new(inner) })
    }
}

impl RewardVerifier for Gated {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        let gate = match score_part(GATE, &self.gate, sample)? {
            Ok(score) => score,
            Err(reason) => return Ok(Verdict::Unscored(reason)),
        };
        let mut whole = gate.clone();
        whole.components.clear();
        record(&mut whole, GATE, &gate);
        // A gate whose reward is NaN decides nothing: its NaN is the reward, which no batch accepts.
        if gate.reward.is_nan() || gate.reward < self.threshold {
            return Ok(Verdict::Scored(whole));
        }
        let inner = match score_part(INNER, &self.inner, sample)? {
            Ok(score) => score,
            Err(reason) => return Ok(Verdict::Unscored(reason)),
        };
        record(&mut whole, INNER, &inner);
        (whole.reward, whole.extracted, whole.rule) = (inner.reward, inner.extracted, inner.rule);
        Ok(Verdict::Scored(whole))
    }

    fn check_reference(&self, prompt: &Prompt) -> Result<(), UnscoredReason> {
        self.gate.check_reference(prompt).and_then(|()| self.inner.check_reference(prompt))
    }

    fn name(&self) -> &str {
        "gated"
    }
}

/// Refuses a threshold that decides nothing.
pub(crate) fn check_threshold(threshold: f64) -> Result<(), RewardConfigError> {
    if threshold.is_finite() {
        return Ok(());
    }
    Err(RewardConfigError::out_of_range("threshold", threshold, "a finite number"))
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::fixed_verdict::Fixed;

    fn verify(gate: Fixed, inner: Fixed) -> Result<Verdict, VerifyError> {
        let prompt = Prompt::new("p", "q", "a");
        Gated::new(gate, 0.5, inner).unwrap().verify(&Sample::of_text(&prompt, ""))
    }

    #[test]
    fn what_passes_at_the_threshold_has_the_inner_score() {
        let gate = Fixed::graded(0.5, None, "format");
        let Ok(Verdict::Scored(score)) = verify(gate, Fixed::graded(2.0, Some("7"), "rational")) else {
            panic!()
        };
        assert_eq!((score.reward, score.extracted.as_deref(), score.rule), (2.0, Some("7"), "rational"));
        assert_eq!(score.components, [("gate".to_owned(), 0.5), ("inner".to_owned(), 2.0)]);
    }

    #[test]
    fn what_stops_at_the_gate_has_its_score_and_the_inner_verifier_is_not_asked() {
        let gate = Fixed::graded(0.25, None, "think_tags");
        let Ok(Verdict::Scored(score)) = verify(gate, Fixed::failing("must not be asked")) else { panic!() };
        assert_eq!((score.reward, score.extracted, score.rule), (0.25, None, "think_tags"));
        assert_eq!(score.components, [("gate".to_owned(), 0.25)]);
    }

    #[test]
    fn failures_of_either_are_failures_of_the_whole() {
        let pass = || Fixed::scored(1.0);
        assert_eq!(verify(Fixed::failing("down"), pass()).unwrap_err().message, "gate: down");
        assert_eq!(verify(pass(), Fixed::failing("down")).unwrap_err().message, "inner: down");
        let unscored = verify(pass(), Fixed::unscored(UnscoredReason::Timeout)).unwrap();
        assert_eq!(unscored, Verdict::Unscored(UnscoredReason::Timeout));
    }

    #[test]
    fn a_threshold_that_is_no_number_is_refused() {
        let error = Gated::new(Fixed::scored(1.0), f64::NAN, Fixed::scored(1.0)).unwrap_err();
        assert_eq!(error.to_string(), "threshold = NaN: allowed is a finite number");
    }
}

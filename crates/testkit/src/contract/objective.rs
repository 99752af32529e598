//! The contract of an objective.

use firebrick_core::{Objective, ResponseTerms};

use super::samples::{prepare, responses};
use crate::{assert_all_close, assert_close};

/// Checks an objective on responses of many lengths, including empty and extreme ones.
///
/// It must give one finite coefficient and one binding per token, the same numbers when asked twice or
/// through a `Box`, loss and coefficients proportional to the weight, and no coefficient for a token whose
/// log-ratio is saturated (unless it has a term towards a reference policy or is a score function). Parts with state must accept the state that they saved.
///
/// # Panics
/// When the contract is broken.
#[track_caller]
pub fn check_objective(mut objective: impl Objective + 'static) {
    let name = format!("{objective:?}");
    for (part, stateful) in objective.stateful_parts() {
        prepare(stateful, &format!("{name}, {part}"));
    }
    let direct = outputs(&objective, 0.25);
    for (response, terms) in responses().iter().zip(&direct) {
        let tokens = response.tokens();
        assert_eq!(terms.coefficients.len(), tokens.len(), "{name}: one coefficient per token");
        assert_eq!(terms.bindings.len(), tokens.len(), "{name}: one binding per token");
        assert!(
            terms.log_weights.is_empty() || terms.log_weights.len() == tokens.len(),
            "{name}: one log-weight per token, or none"
        );
        assert!(
            terms.loss.is_finite() && terms.coefficients.iter().all(|value| value.is_finite()),
            "{name}: loss and coefficients must be finite, found {terms:?}"
        );
        let may_push = objective.requirements().reference_log_probs || objective.is_score_function();
        for (index, coefficient) in terms.coefficients.iter().enumerate() {
            assert!(
                *coefficient == 0.0 || !tokens.is_saturated(index) || may_push,
                "{name}: a saturated token has the coefficient {coefficient}"
            );
        }
    }
    assert!(direct == outputs(&objective, 0.25), "{name}: two calls give different terms");
    for (once, twice) in direct.iter().zip(outputs(&objective, 0.5)) {
        assert_close(twice.loss, 2.0 * once.loss, 1e-9, "the loss must be proportional to the weight");
        let doubled: Vec<f64> = once.coefficients.iter().map(|value| 2.0 * value).collect();
        assert_all_close(
            &twice.coefficients,
            &doubled,
            1e-9,
            "the coefficients must be proportional to the weight",
        );
    }
    let (requirements, score_function) = (objective.requirements(), objective.is_score_function());
    let boxed: Box<dyn Objective> = Box::new(objective);
    assert_eq!(boxed.requirements(), requirements, "{name}: a Box has other requirements");
    assert_eq!(boxed.is_score_function(), score_function, "{name}: a Box is another kind of objective");
    assert!(direct == outputs(boxed.as_ref(), 0.25), "{name}: a Box gives other terms");
}

fn outputs(objective: &dyn Objective, weight: f64) -> Vec<ResponseTerms> {
    responses().iter().map(|response| objective.evaluate(&response.tokens(), weight)).collect()
}

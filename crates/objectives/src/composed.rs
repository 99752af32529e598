//! An objective put together from its parts.

use std::cell::Cell;

use firebrick_core::{
    Binding, Bounds, ClipSchedule, Corrected, Gate, Gated, ImportanceEstimator, Objective, Requirements,
    ResponseContext, ResponseTerms, ResponseTokens, RolloutCorrection, Stateful,
};

use crate::KlTerm;

/// An objective made of an importance estimator, a clip schedule and a gate, with an optional KL penalty and an optional
/// rollout correction.
///
/// ```text
/// log w    = estimator(d)                            clamped to ± the response's limit
/// J, slope = gate(log w, schedule)                   both times the correction's weight, zero where it rejects
/// loss     = −a Σ_t J_t + a β Σ_t k(u_t)
/// coefficient = pull_back(a · slope) − a β k′(u)     no slope through a log-ratio or log-weight that was clamped
/// ```
///
/// A gate that is a score function does not differentiate the weight, so a clamped one keeps its slope there. a is the
/// aggregation weight of the response's tokens. The parts may be concrete types or `Box<dyn …>`.
#[derive(Debug)]
pub struct Composed<E, S, G> {
    estimator: E,
    schedule: S,
    gate: G,
    kl: Option<KlTerm>,
    correction: Option<Box<dyn RolloutCorrection>>,
}

/// What an evaluation needs and does not return. A thread keeps it for the next one: memory for long responses would
/// otherwise come anew from the system each time, and clearing its pages takes longer than the arithmetic.
#[derive(Default)]
struct Scratch {
    gated: Vec<Gated>,
    upstream: Vec<f64>,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = Cell::default();
}

impl<E: ImportanceEstimator, S: ClipSchedule, G: Gate> Composed<E, S, G> {
    /// Composes an objective.
    pub fn new(estimator: E, schedule: S, gate: G) -> Self {
        Self { estimator, schedule, gate, kl: None, correction: None }
    }

    /// Sets or removes the KL penalty. With one, the objective requires reference log-probs.
    #[must_use]
    pub fn with_kl(mut self, kl: impl Into<Option<KlTerm>>) -> Self {
        self.kl = kl.into();
        self
    }

    /// Sets or removes the correction from the policy that sampled to the proximal policy. It multiplies what the gate
    /// returns, value and gradient, before the estimator's pull-back; the KL penalty is left alone.
    #[must_use]
    pub fn with_correction(mut self, correction: Option<Box<dyn RolloutCorrection>>) -> Self {
        self.correction = correction;
        self
    }

    /// What the correction makes of each token; `None` without one.
    fn corrected(&self, response: &ResponseContext) -> Option<Vec<Corrected>> {
        let correction = self.correction.as_ref()?;
        let mut out = vec![Corrected::default(); response.len()];
        correction.correct(response, &mut out);
        Some(out)
    }

    /// The importance estimator.
    pub fn estimator(&self) -> &E {
        &self.estimator
    }

    /// The clip schedule.
    pub fn schedule(&self) -> &S {
        &self.schedule
    }

    /// The gate.
    pub fn gate(&self) -> &G {
        &self.gate
    }
}

impl<E: ImportanceEstimator, S: ClipSchedule, G: Gate> Objective for Composed<E, S, G> {
    /// # Panics
    /// When there is a KL penalty and the response has no reference log-probs, which
    /// [`Objective::requirements`] asks for.
    fn evaluate(&self, response: &ResponseTokens<'_>, weight: f64) -> ResponseTerms {
        let len = response.len();
        let limit = response.context().log_ratio_limit();
        let mut log_weights = vec![0.0; len];
        self.estimator.log_weights(response, &mut log_weights);
        for log_weight in &mut log_weights {
            *log_weight = log_weight.clamp(-limit, limit);
        }
        let mut bounds = vec![Bounds::OPEN; len];
        self.schedule.bounds(response, &mut bounds);
        let mut scratch = SCRATCH.take();
        let Scratch { gated, upstream } = &mut scratch;
        gated.clear();
        gated.resize(len, Gated::default());
        self.gate.gate(response, &log_weights, &bounds, gated);
        if let Some(corrected) = self.corrected(response.context()) {
            for (token, Corrected { weight, keep }) in gated.iter_mut().zip(corrected) {
                if keep {
                    token.value *= weight;
                    token.slope *= weight;
                } else {
                    *token = Gated { binding: Binding::Dropped, ..Gated::default() };
                }
            }
        }

        // A detached weight has no gradient that a clamp could stop.
        let detached = self.gate.is_score_function();
        // One pass over what the gate returned: value, upstream and bindings together.
        upstream.clear();
        let mut bindings = Vec::with_capacity(len);
        let mut value = -0.0; // the neutral element of addition
        for (token, log_weight) in gated.iter().zip(&log_weights) {
            value += token.value;
            // A clamped weight is constant.
            upstream.push(if !detached && log_weight.abs() >= limit { 0.0 } else { weight * token.slope });
            bindings.push(token.binding);
        }
        let mut coefficients = vec![0.0; len];
        self.estimator.pull_back(response, upstream, &mut coefficients);
        SCRATCH.set(scratch);
        for (coefficient, log_ratio) in coefficients.iter_mut().zip(response.log_ratios()) {
            // As `ResponseTokens::is_saturated`, without a look at each index.
            if !detached && log_ratio.abs() >= limit {
                *coefficient = 0.0;
            }
        }
        let mut loss = -weight * value;

        let mut kl_sum = 0.0;
        if let Some(kl) = &self.kl {
            let reference =
                response.context().reference().expect("a KL penalty requires reference log-probs");
            let mut penalty = 0.0;
            let log_probs = response.current().iter().zip(reference).zip(response.log_ratios());
            for (coefficient, ((current, reference), log_ratio)) in coefficients.iter_mut().zip(log_probs) {
                let (estimate, value, derivative) = kl.token_terms(current - reference, *log_ratio);
                kl_sum += estimate;
                penalty += value;
                *coefficient -= weight * derivative;
            }
            loss += weight * penalty;
        }
        ResponseTerms { loss, coefficients, log_weights, windows: bounds, bindings, kl_sum }
    }

    fn counted_tokens(&self, response: &ResponseContext) -> usize {
        match self.correction.as_ref().filter(|correction| correction.shrinks_denominator()) {
            Some(_) => self.corrected(response).into_iter().flatten().filter(|token| token.keep).count(),
            None => response.len(),
        }
    }

    fn is_score_function(&self) -> bool {
        self.gate.is_score_function()
    }

    fn requirements(&self) -> Requirements {
        let correction = self.correction.as_ref().map(|part| part.requirements()).unwrap_or_default();
        let kl = Requirements { reference_log_probs: self.kl.is_some(), ..Requirements::default() };
        self.estimator
            .requirements()
            .union(self.schedule.requirements())
            .union(self.gate.requirements())
            .union(kl)
            .union(correction)
    }

    fn stateful_parts(&mut self) -> Vec<(&'static str, &mut dyn Stateful)> {
        let estimator = self.estimator.stateful().map(|part| ("estimator", part));
        let schedule = self.schedule.stateful().map(|part| ("schedule", part));
        let gate = self.gate.stateful().map(|part| ("gate", part));
        let correction = self.correction.as_mut().and_then(|part| part.stateful());
        let correction = correction.map(|part| ("correction", part));
        estimator.into_iter().chain(schedule).chain(gate).chain(correction).collect()
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::StateError;
    use firebrick_testkit::{TestResponse, assert_all_close, assert_close, check_objective};

    use super::*;
    use crate::{ConstantClip, KlEstimator, PpoMin, Saturating, SequenceMean, TokenRatio};

    const CLIP: ConstantClip = ConstantClip { low: 0.2, high: 0.2 };
    const COEFFICIENT: f64 = 0.5;

    #[test]
    fn boxed_parts_give_the_same_terms() {
        let concrete = Composed::new(SequenceMean::default(), CLIP, PpoMin::default());
        let boxed: Composed<Box<dyn ImportanceEstimator>, Box<dyn ClipSchedule>, Box<dyn Gate>> =
            Composed::new(Box::new(SequenceMean::default()), Box::new(CLIP), Box::new(PpoMin::default()));
        let response = TestResponse::from_log_ratios(&[0.1, -0.7, 0.3], &[1.0, -1.0, 2.0]);
        assert_eq!(concrete.evaluate(&response.tokens(), 0.1), boxed.evaluate(&response.tokens(), 0.1));
    }

    /// exp(25) instead of exp(20), and its gradient.
    #[test]
    fn a_response_may_have_another_limit() {
        let response = TestResponse::from_log_ratios(&[25.0], &[-1.0])
            .map_context(|context| context.with_log_ratio_limit(30.0));
        let terms = Composed::new(TokenRatio, CLIP, PpoMin::default()).evaluate(&response.tokens(), 1.0);
        assert_close(terms.loss, 25f64.exp(), 1e-15, "loss");
        assert_close(terms.coefficients[0], -25f64.exp(), 1e-15, "coefficient");
    }

    #[test]
    fn a_saturated_token_has_a_finite_value_and_no_coefficient() {
        let response = TestResponse::from_log_ratios(&[200.0, -200.0, 0.1], &[-1.0, 1.0, 1.0]);
        let objective = Composed::new(TokenRatio, CLIP, PpoMin::default());
        let terms = objective.evaluate(&response.tokens(), 1.0);
        assert_close(terms.loss, 20f64.exp() - (-20f64).exp() - 0.1f64.exp(), 1e-12, "loss");
        assert_eq!(terms.coefficients[..2], [0.0, 0.0]);
        assert_close(terms.coefficients[2], 0.1f64.exp(), 1e-12, "coefficient");
    }

    /// MiniMax-M1's claim for CISPO: no token loses its gradient, however far it drifted.
    #[test]
    fn a_detached_weight_keeps_the_gradient_of_a_saturated_token() {
        let response = TestResponse::from_log_ratios(&[200.0, -200.0, 0.1], &[-1.0, 1.0, 1.0]);
        let window = ConstantClip { low: 0.5, high: 1.0 };
        let terms =
            Composed::new(TokenRatio, window, Saturating::default()).evaluate(&response.tokens(), 0.5);
        let expected = [-2.0 / 2.0, 0.5 / 2.0, 0.1f64.exp() / 2.0];
        assert_all_close(&terms.coefficients, &expected, 1e-12, "coefficients");
    }

    /// u = current − reference = [0.5, 0]: k3 = [0.106531, 0], k3′ = [0.393469, 0].
    #[test]
    fn the_kl_penalty_enters_loss_and_coefficients_with_the_same_weight() {
        let response =
            TestResponse::new(&[-1.0, -1.0], &[-1.0, -1.0], &[0.0, 0.0]).with_reference(&[-1.5, -1.0]);
        let objective = Composed::new(TokenRatio, CLIP, PpoMin::default())
            .with_kl(KlTerm::new(KlEstimator::K3, COEFFICIENT));
        assert!(objective.requirements().reference_log_probs);
        let terms = objective.evaluate(&response.tokens(), 0.25);
        assert_close(terms.kl_sum, 0.106_530_659_7, 1e-9, "kl_sum");
        assert_close(terms.loss, 0.25 * 0.5 * 0.106_530_659_7, 1e-9, "loss");
        assert_all_close(&terms.coefficients, &[-0.25 * 0.5 * 0.393_469_340_3, 0.0], 1e-9, "coefficients");
    }

    /// Far from the anchor, near the reference: the weight has no gradient, the penalty has.
    #[test]
    fn the_kl_penalty_of_a_saturated_token_keeps_its_gradient() {
        let response = TestResponse::new(&[-30.0], &[-1.0], &[1.0]).with_reference(&[-1.5]);
        let objective = Composed::new(TokenRatio, CLIP, PpoMin::default())
            .with_kl(KlTerm::new(KlEstimator::K3, COEFFICIENT));
        let terms = objective.evaluate(&response.tokens(), 1.0);
        assert_all_close(&terms.coefficients, &[-0.5 * 0.393_469_340_3], 1e-9, "coefficients");
    }

    #[test]
    fn without_a_penalty_no_reference_is_asked_for() {
        let objective = Composed::new(TokenRatio, CLIP, PpoMin::default());
        assert_eq!(objective.requirements(), Requirements::default());
        assert_eq!(
            objective.with_kl(KlTerm::new(KlEstimator::K3, COEFFICIENT)).with_kl(None).requirements(),
            Requirements::default()
        );
    }

    #[test]
    fn an_empty_response_contributes_nothing() {
        let response = TestResponse::from_log_ratios(&[], &[]);
        let objective = Composed::new(SequenceMean::default(), CLIP, PpoMin::default());
        let terms = objective.evaluate(&response.tokens(), 0.0);
        assert_eq!((terms.loss, terms.coefficients.len()), (0.0, 0));
    }

    /// A schedule with state, and a weight of its own beyond what log-ratios reach.
    #[derive(Debug)]
    struct Wild;

    impl Stateful for Wild {
        fn save(&self) -> serde_json::Value {
            serde_json::Value::Null
        }
        fn load(&mut self, _state: &serde_json::Value) -> Result<(), StateError> {
            Ok(())
        }
    }

    impl ImportanceEstimator for Wild {
        fn log_weights(&self, _response: &ResponseTokens<'_>, out: &mut [f64]) {
            out.fill(100.0);
        }
        fn stateful(&mut self) -> Option<&mut dyn Stateful> {
            Some(self)
        }
    }

    #[test]
    fn a_log_weight_beyond_the_limit_is_clamped_and_has_no_gradient() {
        let response = TestResponse::from_log_ratios(&[0.1], &[-1.0]);
        let terms = Composed::new(Wild, CLIP, PpoMin::default()).evaluate(&response.tokens(), 1.0);
        assert_close(terms.loss, 20f64.exp(), 1e-12, "loss");
        assert_eq!((terms.coefficients[0], terms.bindings[0]), (0.0, Binding::None));
    }

    #[test]
    fn stateful_parts_are_named_by_their_slot() {
        let names: Vec<_> = Composed::new(Wild, CLIP, PpoMin::default())
            .stateful_parts()
            .iter()
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(names, ["estimator"]);
    }

    #[test]
    fn keeps_the_contract() {
        check_objective(
            Composed::new(TokenRatio, CLIP, PpoMin::default())
                .with_kl(KlTerm::new(KlEstimator::K3, COEFFICIENT)),
        );
        check_objective(Composed::new(SequenceMean::default(), CLIP, PpoMin::default()));
        check_objective(Composed::new(TokenRatio, CLIP, Saturating::default()));
    }
}

//! The whole policy objective, as the trainer sees it.

use std::fmt::Debug;

use crate::{Binding, Bounds, Requirements, ResponseContext, ResponseTokens, Stateful};

/// What an objective makes of one response: one entry per policy token.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResponseTerms {
    /// This response's share of the loss: −Σ_t a · J_t.
    pub loss: f64,
    /// Derivative of the objective (which is maximised) with respect to each token's current log-prob, aggregation
    /// weight included. The device minimises −Σ coefficient · log_prob, whose gradient is exactly the loss's.
    pub coefficients: Vec<f64>,
    /// Importance weights in log space, for diagnostics; empty when the objective has none.
    pub log_weights: Vec<f64>,
    /// The window of each weight, for diagnostics; empty when the objective has none.
    pub windows: Vec<Bounds>,
    /// Which bound acted on each token.
    pub bindings: Vec<Binding>,
    /// Unweighted sum over tokens of the KL term's estimate (nats); zero without one.
    pub kl_sum: f64,
}

/// A policy objective: a pure function from a response to a loss and one coefficient per token.
///
/// Most objectives are composed from an estimator, a schedule and a gate; one that is not ratio-and-gate at all
/// implements this trait itself. It never sees padding, a mask, a device or a count to divide by.
pub trait Objective: Debug + Send + Sync {
    /// Returns loss and coefficients of one response, whose every token has the aggregation weight `weight`
    /// (the trainer's one denominator is already in it).
    fn evaluate(&self, response: &ResponseTokens<'_>, weight: f64) -> ResponseTerms;

    /// How many of a response's policy tokens enter the denominator: all of them, unless a part leaves tokens out of it by
    /// explicit choice. It must not depend on the current policy, since the denominator is fixed before the batch is split.
    fn counted_tokens(&self, response: &ResponseContext) -> usize {
        response.len()
    }

    /// Whether its coefficients are detached weights times a score (see [`crate::Gate::is_score_function`]). A token whose
    /// log-ratio was clamped then keeps its gradient, because none goes through the ratio.
    fn is_score_function(&self) -> bool {
        false
    }

    /// What the objective needs beyond the behaviour policy's log-probs.
    fn requirements(&self) -> Requirements {
        Requirements::default()
    }

    /// The objective's stateful parts, each with a name that is unique within the objective.
    fn stateful_parts(&mut self) -> Vec<(&'static str, &mut dyn Stateful)> {
        Vec::new()
    }
}

impl<T: Objective + ?Sized> Objective for Box<T> {
    fn evaluate(&self, response: &ResponseTokens<'_>, weight: f64) -> ResponseTerms {
        (**self).evaluate(response, weight)
    }
    fn counted_tokens(&self, response: &ResponseContext) -> usize {
        (**self).counted_tokens(response)
    }
    fn is_score_function(&self) -> bool {
        (**self).is_score_function()
    }
    fn requirements(&self) -> Requirements {
        (**self).requirements()
    }
    fn stateful_parts(&mut self) -> Vec<(&'static str, &mut dyn Stateful)> {
        (**self).stateful_parts()
    }
}

const _: Option<&dyn Objective> = None; // object-safe

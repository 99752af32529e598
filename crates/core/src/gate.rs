//! The plug-in that decides what happens at a bound.

use std::fmt::Debug;

use crate::{Bounds, Requirements, ResponseTokens, Stateful};

/// Which bound acted on a token. Clip metrics come from it and from nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Binding {
    /// Neither.
    #[default]
    None,
    /// The window's lower end.
    Low,
    /// The window's upper end.
    High,
    /// The outer lower bound.
    OuterLow,
    /// The outer upper bound (dual clip).
    OuterHigh,
    /// The token was dropped for another reason than its weight: a divergence, a covariance, its whole response.
    Dropped,
}

/// What a gate makes of one token.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Gated {
    /// The token's contribution J_t to the objective, which is maximised.
    pub value: f64,
    /// ∂J_t / ∂ log w_t: zero where the gate stops the gradient.
    pub slope: f64,
    /// Which bound acted.
    pub binding: Binding,
}

/// What becomes of a weight at its bound: clipped, masked, saturated, softened.
///
/// A gate never divides by counts and knows no padding; the trainer owns the one denominator.
pub trait Gate: Debug + Send + Sync {
    /// Writes one entry per policy token; all slices have the response's length.
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], bounds: &[Bounds], out: &mut [Gated]);

    /// Whether `slope` is a score-function coefficient (a detached weight times the log-prob) and so not the derivative of
    /// `value` with respect to the log-weight.
    fn is_score_function(&self) -> bool {
        false
    }

    /// What the gate needs beyond the behaviour policy's log-probs.
    fn requirements(&self) -> Requirements {
        Requirements::default()
    }

    /// The gate's state, if it has one.
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        None
    }
}

impl<T: Gate + ?Sized> Gate for Box<T> {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], bounds: &[Bounds], out: &mut [Gated]) {
        (**self).gate(response, log_weights, bounds, out);
    }
    fn is_score_function(&self) -> bool {
        (**self).is_score_function()
    }
    fn requirements(&self) -> Requirements {
        (**self).requirements()
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        (**self).stateful()
    }
}

const _: Option<&dyn Gate> = None; // object-safe

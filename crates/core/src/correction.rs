//! The plug-in that corrects for the gap between the engine that sampled and the trainer's own log-probs.

use std::fmt::Debug;

use crate::{Requirements, ResponseContext, Stateful};

/// What a correction makes of one token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Corrected {
    /// What the token's loss and gradient are multiplied by, never differentiated through.
    pub weight: f64,
    /// Whether the token takes part; a rejected one contributes exactly zero.
    pub keep: bool,
}

impl Default for Corrected {
    /// A token that is left as it is.
    fn default() -> Self {
        Self { weight: 1.0, keep: true }
    }
}

/// A second importance weight, from the policy that sampled the tokens to the proximal policy: π_old/π_roll.
///
/// It depends on nothing that changes during the rollout batch, multiplies what the gate returns, and comes before the
/// estimator's pull-back.
pub trait RolloutCorrection: Debug + Send + Sync {
    /// Writes one entry per policy token; `out` has the response's length.
    fn correct(&self, response: &ResponseContext, out: &mut [Corrected]);

    /// Whether rejected tokens leave the denominator, and rejected responses the number of responses. By default they stay.
    fn shrinks_denominator(&self) -> bool {
        false
    }

    /// What the correction needs: the proximal policy's log-probs.
    fn requirements(&self) -> Requirements {
        Requirements { proximal_log_probs: true, ..Requirements::default() }
    }

    /// The correction's state, if it has one.
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        None
    }
}

impl<T: RolloutCorrection + ?Sized> RolloutCorrection for Box<T> {
    fn correct(&self, response: &ResponseContext, out: &mut [Corrected]) {
        (**self).correct(response, out);
    }
    fn shrinks_denominator(&self) -> bool {
        (**self).shrinks_denominator()
    }
    fn requirements(&self) -> Requirements {
        (**self).requirements()
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        (**self).stateful()
    }
}

const _: Option<&dyn RolloutCorrection> = None; // object-safe

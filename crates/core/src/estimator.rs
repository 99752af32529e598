//! The plug-in that weighs the gap between the anchor and the current policy.

use std::fmt::Debug;

use crate::{Requirements, ResponseTokens, Stateful};

/// How the gap between the policy that sampled a response and the policy that learns is weighed at each token.
///
/// An estimator turns the token log-ratios d_t of a response into log-weights log w_t. The field's estimators are the
/// token ratio (log w_t = d_t), the sequence mean (log w_t = (1/L) Σ d) and the prefix mean (log w_t = (1/t) Σ_{k≤t} d_k).
pub trait ImportanceEstimator: Debug + Send + Sync {
    /// Writes log w_t for each policy token; `out` has the response's length.
    fn log_weights(&self, response: &ResponseTokens<'_>, out: &mut [f64]);

    /// Carries derivatives back from log-weights to log-probs: out_k = Σ_t upstream_t · ∂ log w_t / ∂ log π_θ(y_k).
    ///
    /// `upstream` holds the derivative of the objective with respect to each log w_t. The default gives each token its own
    /// entry: the weight is a detached number times π_θ(y_t)/sg(π_θ(y_t)), so the gradient reaches the current token only.
    fn pull_back(&self, response: &ResponseTokens<'_>, upstream: &[f64], out: &mut [f64]) {
        let _ = response;
        out.copy_from_slice(upstream);
    }

    /// What the estimator needs beyond the behaviour policy's log-probs.
    fn requirements(&self) -> Requirements {
        Requirements::default()
    }

    /// The estimator's state, if it has one.
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        None
    }
}

impl<T: ImportanceEstimator + ?Sized> ImportanceEstimator for Box<T> {
    fn log_weights(&self, response: &ResponseTokens<'_>, out: &mut [f64]) {
        (**self).log_weights(response, out);
    }
    fn pull_back(&self, response: &ResponseTokens<'_>, upstream: &[f64], out: &mut [f64]) {
        (**self).pull_back(response, upstream, out);
    }
    fn requirements(&self) -> Requirements {
        (**self).requirements()
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        (**self).stateful()
    }
}

const _: Option<&dyn ImportanceEstimator> = None; // object-safe

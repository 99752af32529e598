//! The ratio of a token times the smallest one before it.

use firebrick_core::{ImportanceEstimator, ResponseTokens};
use serde::{Deserialize, Serialize};

/// Token ratio times the minimum of the ratios before it: a stand-in for the cumulative ratio that does not accumulate.
///
/// ```text
/// log w_t = d_t + min_{k<t} d_k                       the minimum of none is 0
/// ∂ log w_t / ∂ log π_θ(y_k) = 1 if k = t, else 0
/// ```
///
/// The minimum is detached. It is not capped at 1: a prefix whose ratios all exceed 1 raises the weight.
///
/// *Reference*: MinPRO, 2026, arXiv:2601.22718.
///
/// *Differs from the paper*: only its abstract was at hand, which does not say how the weight is clipped; schedule and gate
/// are choices here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MinPrefix;

impl ImportanceEstimator for MinPrefix {
    fn log_weights(&self, response: &ResponseTokens<'_>, out: &mut [f64]) {
        let mut smallest: Option<f64> = None;
        for (out, log_ratio) in out.iter_mut().zip(response.log_ratios()) {
            *out = log_ratio + smallest.unwrap_or(0.0);
            smallest = Some(smallest.map_or(*log_ratio, |smallest| smallest.min(*log_ratio)));
        }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_all_close, check_causality, check_estimator};

    use super::*;

    /// r = [1.105171, .818731, 1.349859, 1.051271]; minima before: [1, 1.105171, .818731, .818731].
    #[test]
    fn the_weights_of_four_positions_are_those_worked_by_hand() {
        let response = TestResponse::from_log_ratios(&[0.1, -0.2, 0.3, 0.05], &[1.0; 4]);
        let mut out = [0.0; 4];
        MinPrefix.log_weights(&response.tokens(), &mut out);
        let weights = out.map(f64::exp);
        assert_all_close(&weights, &[1.105171, 0.904837, 1.105171, 0.860708], 1e-6, "weights");
    }

    #[test]
    fn keeps_the_contract() {
        check_estimator(MinPrefix);
        check_causality(&MinPrefix);
    }
}

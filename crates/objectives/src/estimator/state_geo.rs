//! The geometric mean of the ratios before a token, times the token's own.

use firebrick_core::{ImportanceEstimator, ResponseTokens};
use serde::{Deserialize, Serialize};

/// Only the state's part of the correction is normalised by position; the action keeps its whole ratio.
///
/// ```text
/// log w_t = (1/(t−1)) Σ_{k<t} d_k + d_t               the mean of none is 0
/// ∂ log w_t / ∂ log π_θ(y_k) = 1 if k = t, else 0
/// ```
///
/// *Reference*: an ablation of TAPO, 2026, arXiv:2610.13020.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateGeo;

impl ImportanceEstimator for StateGeo {
    fn log_weights(&self, response: &ResponseTokens<'_>, out: &mut [f64]) {
        let mut sum = 0.0;
        for (index, (out, log_ratio)) in out.iter_mut().zip(response.log_ratios()).enumerate() {
            // At the first position the sum is zero, whatever it is divided by.
            *out = sum / index.max(1) as f64 + log_ratio;
            sum += log_ratio;
        }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_all_close, check_causality, check_estimator};

    use super::*;

    /// Means before: [0, .1, −.05, .0666667]; plus d: [.1, −.1, .25, .1166667].
    #[test]
    fn the_weights_of_four_positions_are_those_worked_by_hand() {
        let response = TestResponse::from_log_ratios(&[0.1, -0.2, 0.3, 0.05], &[1.0; 4]);
        let mut out = [0.0; 4];
        StateGeo.log_weights(&response.tokens(), &mut out);
        let weights = out.map(f64::exp);
        assert_all_close(&weights, &[1.105171, 0.904837, 1.284025, 1.123745], 1e-6, "weights");
    }

    #[test]
    fn keeps_the_contract() {
        check_estimator(StateGeo);
        check_causality(&StateGeo);
    }
}

//! The product of the ratios up to a position.

use firebrick_core::{ImportanceEstimator, LOG_RATIO_LIMIT, ResponseTokens};
use serde::{Deserialize, Serialize};

use crate::{ConfigError, config_error::require};

/// Cumulative importance ratio: the exact correction of position t, of the state (the prefix) and of the action.
///
/// ```text
/// log w_t = min(Σ_{k≤t} d_k, max_log_weight)
/// ∂ log w_t / ∂ log π_θ(y_k) = 1 if k = t and the sum is ≤ max_log_weight, else 0
/// ```
///
/// The prefix is detached, so the gradient reaches the current token only. A clamped weight is a constant: it keeps its
/// value and has no gradient, as a clamp of the joined log-weight differentiates. The clamp is at most
/// [`LOG_RATIO_LIMIT`], where every objective stops the gradient anyway; so it is here that the range between the two is
/// cut off. A token whose weight is exactly at the clamp keeps its gradient.
///
/// *Reference*: CTPO, 2026, arXiv:2605.07331.
///
/// *Differs from the paper*: the clamp is that of the public code, which also clamps after the detached prefix and the
/// current token are joined. There a token whose own log-ratio is beyond [`LOG_RATIO_LIMIT`] keeps its gradient; here, as in
/// every objective, it has none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PrefixProduct {
    /// Largest log-weight (nats); default 10.
    pub max_log_weight: f64,
}

impl Default for PrefixProduct {
    fn default() -> Self {
        Self { max_log_weight: 10.0 }
    }
}

impl PrefixProduct {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When the clamp is not in (0, [`LOG_RATIO_LIMIT`]].
    pub fn validate(&self) -> Result<(), ConfigError> {
        let holds = self.max_log_weight > 0.0 && self.max_log_weight <= LOG_RATIO_LIMIT;
        require(holds, "max_log_weight", self.max_log_weight, "in (0, 20]")
    }
}

impl ImportanceEstimator for PrefixProduct {
    fn log_weights(&self, response: &ResponseTokens<'_>, out: &mut [f64]) {
        let mut sum = 0.0;
        for (out, log_ratio) in out.iter_mut().zip(response.log_ratios()) {
            sum += log_ratio;
            *out = f64::min(sum, self.max_log_weight);
        }
    }

    fn pull_back(&self, response: &ResponseTokens<'_>, upstream: &[f64], out: &mut [f64]) {
        let mut sum = 0.0;
        for ((out, upstream), log_ratio) in out.iter_mut().zip(upstream).zip(response.log_ratios()) {
            sum += log_ratio;
            *out = if sum > self.max_log_weight { 0.0 } else { *upstream };
        }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::Objective;
    use firebrick_testkit::{TestResponse, assert_all_close, assert_close, check_causality, check_estimator};

    use super::*;
    use crate::{Composed, OpenWindow, PpoMin};

    /// C = exp([.1, −.1, .2, .25]).
    #[test]
    fn the_weights_of_four_positions_are_those_worked_by_hand() {
        let response = TestResponse::from_log_ratios(&[0.1, -0.2, 0.3, 0.05], &[1.0; 4]);
        let mut out = [0.0; 4];
        PrefixProduct::default().log_weights(&response.tokens(), &mut out);
        let weights = out.map(f64::exp);
        assert_all_close(&weights, &[1.105171, 0.904837, 1.221403, 1.284025], 1e-6, "weights");
    }

    /// Sums 6, 12, 9: the second is clamped to 10, has the loss e¹⁰ and no gradient, and the third is free again.
    #[test]
    fn a_clamped_weight_keeps_its_value_and_has_no_gradient() {
        let response = TestResponse::from_log_ratios(&[6.0, 6.0, -3.0], &[-1.0; 3]);
        let objective = Composed::new(PrefixProduct::default(), OpenWindow, PpoMin::default());
        let terms = objective.evaluate(&response.tokens(), 1.0);
        assert_close(terms.loss, 6f64.exp() + 10f64.exp() + 9f64.exp(), 1e-12, "loss");
        assert_all_close(&terms.coefficients, &[-(6f64.exp()), 0.0, -(9f64.exp())], 1e-12, "coefficients");
    }

    #[test]
    fn a_weight_at_the_clamp_keeps_its_gradient() {
        let response = TestResponse::from_log_ratios(&[10.0], &[1.0]);
        let mut out = [0.0];
        PrefixProduct::default().pull_back(&response.tokens(), &[3.0], &mut out);
        assert_eq!(out, [3.0]);
    }

    #[test]
    fn a_clamp_beyond_that_of_the_log_ratios_is_refused() {
        for max_log_weight in [0.0, 20.5, f64::NAN] {
            assert!(PrefixProduct { max_log_weight }.validate().is_err(), "{max_log_weight}");
        }
        assert!(PrefixProduct { max_log_weight: 20.0 }.validate().is_ok());
    }

    #[test]
    fn keeps_the_contract() {
        check_estimator(PrefixProduct::default());
        check_causality(&PrefixProduct::default());
    }
}

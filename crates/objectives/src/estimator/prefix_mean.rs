//! The geometric mean of the ratios up to a position.

use firebrick_core::{ImportanceEstimator, ResponseTokens};
use serde::{Deserialize, Serialize};

/// Which log-probs a prefix weight's gradient reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefixRoute {
    /// The current token only: the weight is detached and multiplied by π_θ(y_t)/sg[π_θ(y_t)] (TAPO, PNPO).
    #[default]
    Current,
    /// All tokens of the prefix: the weight is differentiated as it stands. Early tokens get more of the
    /// gradient.
    FullPrefix,
}

/// Prefix importance ratio, normalised by position: token ratio at the first position, sequence mean at the
/// last.
///
/// ```text
/// log w_t = (1/t) Σ_{k≤t} d_k                         t = 1 … L
/// ∂ log w_t / ∂ log π_θ(y_k) = 1 if k = t, else 0     route `Current`
///                            = 1/t if k ≤ t, else 0   route `FullPrefix`
/// ```
///
/// *Reference*: TAPO, 2026, arXiv:2610.13020; PNPO ("Reusing rollouts under policy lag"), 2026,
/// arXiv:2608.01418.
///
/// *Differs from the paper*: [`PrefixRoute::FullPrefix`] is in neither.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PrefixMean {
    /// Which log-probs the gradient reaches.
    pub route: PrefixRoute,
}

impl ImportanceEstimator for PrefixMean {
    fn log_weights(&self, response: &ResponseTokens<'_>, out: &mut [f64]) {
        let mut sum = 0.0;
        for (index, (out, log_ratio)) in out.iter_mut().zip(response.log_ratios()).enumerate() {
            sum += log_ratio;
            *out = sum / (index + 1) as f64;
        }
    }

    fn pull_back(&self, _response: &ResponseTokens<'_>, upstream: &[f64], out: &mut [f64]) {
        match self.route {
            PrefixRoute::Current => out.copy_from_slice(upstream),
            PrefixRoute::FullPrefix => {
                // out_k = Σ_{t≥k} upstream_t / t
                let mut sum = 0.0;
                for (index, (out, upstream)) in out.iter_mut().zip(upstream).enumerate().rev() {
                    sum += upstream / (index + 1) as f64;
                    *out = sum;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_all_close, check_causality, check_estimator};

    use super::*;

    #[test]
    fn the_log_weight_is_the_mean_of_the_prefix() {
        let response = TestResponse::from_log_ratios(&[0.1, -0.2, 0.3, 0.05], &[1.0; 4]);
        let mut out = [0.0; 4];
        PrefixMean::default().log_weights(&response.tokens(), &mut out);
        assert_all_close(&out, &[0.1, -0.05, 0.2 / 3.0, 0.0625], 1e-14, "log-weights");
    }

    /// Upstream w_t of the same response: 2.203222 = 1.105171 + 0.951229/2 + 1.068939/3 + 1.064494/4.
    #[test]
    fn the_full_prefix_route_sums_the_shares_of_all_later_positions() {
        let response = TestResponse::from_log_ratios(&[0.1, -0.2, 0.3, 0.05], &[1.0; 4]);
        let upstream = [0.1_f64, -0.05, 0.2 / 3.0, 0.0625].map(f64::exp);
        let mut out = [0.0; 4];
        PrefixMean { route: PrefixRoute::FullPrefix }.pull_back(&response.tokens(), &upstream, &mut out);
        assert_all_close(&out, &[2.203222, 1.098051, 0.622437, 0.266124], 2e-6, "coefficients");
    }

    #[test]
    fn keeps_the_contract() {
        for route in [PrefixRoute::Current, PrefixRoute::FullPrefix] {
            check_estimator(PrefixMean { route });
            check_causality(&PrefixMean { route });
        }
    }
}

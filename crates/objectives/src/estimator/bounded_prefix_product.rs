//! The product of those ratios up to a position that are close to one.

use firebrick_core::{ImportanceEstimator, ResponseTokens};
use serde::{Deserialize, Serialize};

use crate::{ConfigError, config_error::require_width};

/// Cumulative ratio that leaves out tokens whose log-ratio is beyond a bound.
///
/// ```text
/// log w_t = Σ_{k≤t, |d_k| ≤ width} d_k                divided by t with `root`
/// ∂ log w_t / ∂ log π_θ(y_k) = 1 if k = t and |d_t| ≤ width, else 0
/// ```
///
/// A token that is left out has the weight of its prefix and no gradient, since nothing of its own is in the weight. The
/// prefix is detached.
///
/// *Reference*: an ablation of TAPO, 2026, arXiv:2610.13020, after the bounds of GMPO, Zhao et al., 2025, arXiv:2507.20673.
///
/// *Differs from the paper*: whether a root is taken, and of which degree, is not stated; here none is, and with `root` it is
/// the t-th, in which a token that is left out counts as one with the ratio 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BoundedPrefixProduct {
    /// Largest |d| of a token that takes part (nats); default 0.4.
    pub width: f64,
    /// Whether the t-th root is taken; default not.
    pub root: bool,
}

impl Default for BoundedPrefixProduct {
    fn default() -> Self {
        Self { width: 0.4, root: false }
    }
}

impl BoundedPrefixProduct {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When the width is negative or not finite.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require_width("width", self.width)
    }
}

impl ImportanceEstimator for BoundedPrefixProduct {
    fn log_weights(&self, response: &ResponseTokens<'_>, out: &mut [f64]) {
        let mut sum = 0.0;
        for (index, (out, log_ratio)) in out.iter_mut().zip(response.log_ratios()).enumerate() {
            if log_ratio.abs() <= self.width {
                sum += log_ratio;
            }
            *out = if self.root { sum / (index + 1) as f64 } else { sum };
        }
    }

    fn pull_back(&self, response: &ResponseTokens<'_>, upstream: &[f64], out: &mut [f64]) {
        for ((out, upstream), log_ratio) in out.iter_mut().zip(upstream).zip(response.log_ratios()) {
            *out = if log_ratio.abs() <= self.width { *upstream } else { 0.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_all_close, check_causality, check_estimator};

    use super::*;
    use crate::{PrefixMean, PrefixProduct};

    const D: [f64; 4] = [0.1, -0.2, 0.3, 0.05];

    fn weights(estimator: &dyn ImportanceEstimator, d: &[f64; 4]) -> [f64; 4] {
        let mut out = [0.0; 4];
        estimator.log_weights(&TestResponse::from_log_ratios(d, &[1.0; 4]).tokens(), &mut out);
        out
    }

    /// width .25 leaves out the third: sums [.1, −.1, −.1, −.05].
    #[test]
    fn a_token_beyond_the_width_is_left_out_of_all_products() {
        let part = BoundedPrefixProduct { width: 0.25, root: false };
        assert_all_close(&weights(&part, &D), &[0.1, -0.1, -0.1, -0.05], 1e-14, "product");
        let part = BoundedPrefixProduct { width: 0.25, root: true };
        assert_all_close(&weights(&part, &D), &[0.1, -0.05, -0.1 / 3.0, -0.0125], 1e-14, "root");
        let mut out = [0.0; 4];
        part.pull_back(&TestResponse::from_log_ratios(&D, &[1.0; 4]).tokens(), &[2.0; 4], &mut out);
        assert_eq!(out, [2.0, 2.0, 0.0, 2.0]);
    }

    #[test]
    fn with_all_tokens_inside_it_is_the_cumulative_ratio_or_the_prefix_mean() {
        let [product, mean] =
            [false, true].map(|root| weights(&BoundedPrefixProduct { width: 0.4, root }, &D));
        assert_eq!(product, weights(&PrefixProduct::default(), &D));
        assert_eq!(mean, weights(&PrefixMean::default(), &D));
    }

    #[test]
    fn the_bound_itself_is_inside() {
        let part = BoundedPrefixProduct { width: 0.3, root: false };
        assert_eq!(weights(&part, &D), weights(&PrefixProduct::default(), &D));
    }

    #[test]
    fn keeps_the_contract() {
        for root in [false, true] {
            check_estimator(BoundedPrefixProduct { width: 0.4, root });
            check_causality(&BoundedPrefixProduct { width: 0.4, root });
        }
    }
}

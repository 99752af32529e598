//! A KL penalty towards a reference policy, estimated on the sampled tokens.

use firebrick_core::LOG_RATIO_LIMIT;
use serde::{Deserialize, Serialize};

use crate::{ConfigError, config_error::require_width};

/// Estimate of the KL divergence from the reference policy on one sampled token, with u = log π_θ − log π_ref
/// (nats).
///
/// *Reference*: Schulman, "Approximating KL divergence", 2020 (k1, k2, k3); k3 in the loss: Shao et al.,
/// "DeepSeekMath", 2024, arXiv:2402.03300.
///
/// *Differs from the paper*: u is clamped to ± [`LOG_RATIO_LIMIT`], and a token beyond has no gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KlEstimator {
    /// u. Unbiased in value, but its gradient in the loss has expectation zero on-policy.
    K1,
    /// u²/2. Biased in value; its gradient is that of the reverse KL divergence on-policy.
    K2,
    /// exp(−u) − 1 + u. Unbiased in value and never negative; its gradient is not that of the reverse KL
    /// divergence.
    K3,
}

impl KlEstimator {
    /// The estimate (nats).
    pub fn value(self, log_ratio: f64) -> f64 {
        let u = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT);
        match self {
            Self::K1 => u,
            Self::K2 => u * u / 2.0,
            // exp_m1 keeps the digits that exp(−u) − 1 would lose near u = 0.
            Self::K3 => (-u).exp_m1() + u,
        }
    }

    /// Derivative of the estimate with respect to log π_θ; zero beyond the clamp.
    pub fn derivative(self, log_ratio: f64) -> f64 {
        if log_ratio.abs() >= LOG_RATIO_LIMIT {
            return 0.0;
        }
        match self {
            Self::K1 => 1.0,
            Self::K2 => log_ratio,
            Self::K3 => -(-log_ratio).exp_m1(),
        }
    }
}

/// A KL penalty in the loss: loss += a · coefficient · Σ_t k(u_t), with the aggregation weight a of the
/// objective.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KlTerm {
    /// How the divergence is estimated.
    pub estimator: KlEstimator,
    /// Coefficient β.
    pub coefficient: f64,
}

impl KlTerm {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When the coefficient is negative or not finite.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require_width("coefficient", self.coefficient)
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::assert_close;

    use super::*;

    const ALL: [KlEstimator; 3] = [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3];

    /// u = 0.5: exp(−0.5) − 1 + 0.5 = 0.106531, 1 − exp(−0.5) = 0.393469.
    #[test]
    fn the_estimates_and_their_derivatives_are_those_worked_by_hand() {
        let found = ALL.map(|kl| (kl.value(0.5), kl.derivative(0.5)));
        let expected = [(0.5, 1.0), (0.125, 0.5), (0.106_530_659_7, 0.393_469_340_3)];
        for (found, expected) in found.iter().zip(expected) {
            assert_close(found.0, expected.0, 1e-9, "value");
            assert_close(found.1, expected.1, 1e-9, "derivative");
        }
    }

    #[test]
    fn the_derivative_is_the_central_difference_of_the_value() {
        for kl in ALL {
            for u in [-2.0, -0.1, 0.0, 0.3, 1.7] {
                let difference = (kl.value(u + 1e-5) - kl.value(u - 1e-5)) / 2e-5;
                assert!((kl.derivative(u) - difference).abs() < 1e-8, "{kl:?} at {u}");
            }
        }
    }

    #[test]
    fn estimates_stay_finite_without_gradient_beyond_the_clamp() {
        for kl in ALL {
            for u in [-1e6, 1e6] {
                assert!(kl.value(u).is_finite());
                assert_eq!(kl.derivative(u), 0.0);
            }
        }
    }

    #[test]
    fn a_negative_coefficient_is_refused() {
        let error = KlTerm { estimator: KlEstimator::K3, coefficient: -0.1 }.validate().unwrap_err();
        assert_eq!(error.to_string(), "coefficient = -0.1: allowed is a finite number >= 0");
    }
}

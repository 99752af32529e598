//! A KL penalty towards a reference policy, estimated on the sampled tokens.

mod adaptive;

pub use adaptive::AdaptiveKl;

use firebrick_core::LOG_RATIO_LIMIT;
use serde::{Deserialize, Serialize};

use crate::{ConfigError, config_error::require_width};

/// Estimate of the KL divergence from the reference policy on one sampled token, with u = log π_θ − log π_ref
/// (nats).
///
/// *Reference*: Schulman, "Approximating KL divergence", 2020 (k1, k2, k3); k3 in the loss: Shao et al.,
/// "DeepSeekMath", 2024, arXiv:2402.03300.
///
/// *Differs from the paper*: in k3, which is exponential, u is clamped to ± [`LOG_RATIO_LIMIT`], and a token beyond has no
/// gradient. The others pull a token back however far it is.
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
    /// |u|. An upper bound in expectation; its gradient is the sign of u, zero at u = 0.
    Abs,
}

impl KlEstimator {
    /// The estimate (nats).
    pub fn value(self, log_ratio: f64) -> f64 {
        let u = log_ratio;
        match self {
            Self::K1 => u,
            Self::K2 => u * u / 2.0,
            // exp_m1 keeps the digits that exp(−u) − 1 would lose near u = 0.
            Self::K3 => {
                let u = u.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT);
                (-u).exp_m1() + u
            }
            Self::Abs => u.abs(),
        }
    }

    /// Both [`Self::value`] and [`Self::derivative`], for the price of one exponential.
    fn value_and_derivative(self, log_ratio: f64) -> (f64, f64) {
        if self != Self::K3 || log_ratio.abs() >= LOG_RATIO_LIMIT {
            return (self.value(log_ratio), self.derivative(log_ratio));
        }
        let shifted = (-log_ratio).exp_m1();
        (shifted + log_ratio, -shifted)
    }

    /// Derivative of the estimate with respect to log π_θ.
    pub fn derivative(self, log_ratio: f64) -> f64 {
        match self {
            Self::K1 => 1.0,
            Self::K2 => log_ratio,
            Self::K3 if log_ratio.abs() >= LOG_RATIO_LIMIT => 0.0,
            Self::K3 => -(-log_ratio).exp_m1(),
            Self::Abs if log_ratio == 0.0 => 0.0,
            Self::Abs => log_ratio.signum(),
        }
    }
}

/// Where a KL penalty enters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlPlacement {
    /// In the loss, with a gradient.
    #[default]
    Loss,
    /// Taken off the reward of each token, on the anchor's log-probs, before advantages are formed. It has no gradient.
    Reward,
}

/// A KL penalty.
///
/// ```text
/// loss   += a · coefficient · Σ_t k(u_t)            placement `Loss`; a is the aggregation weight
/// ρ_t    -= coefficient · k(u_t)                    placement `Reward`; u compares the anchor with the reference
/// ```
///
/// A straight-through penalty in the loss has the value of its estimator and the gradient of k2, whose expectation
/// on-policy is the gradient of the reverse KL divergence. A weighted one is multiplied by the token's importance ratio,
/// which is differentiated too, so that its expectation is right off-policy.
///
/// *Reference*: straight-through: verl's `k1+` and `k3+`; weighted: DeepSeek-AI, "DeepSeek-V3.2", 2025, arXiv:2512.02556.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KlTerm {
    /// How the divergence is estimated.
    pub estimator: KlEstimator,
    /// Coefficient β; zero switches the penalty off.
    pub coefficient: f64,
    /// Where the penalty enters; default the loss.
    #[serde(default)]
    pub placement: KlPlacement,
    /// Whether the gradient is that of k2 whatever the estimator.
    #[serde(default)]
    pub straight_through: bool,
    /// Whether the penalty is multiplied by the token's importance ratio.
    #[serde(default)]
    pub weighted: bool,
}

impl KlTerm {
    /// A penalty in the loss with the estimator's own gradient.
    pub fn new(estimator: KlEstimator, coefficient: f64) -> Self {
        Self {
            estimator,
            coefficient,
            placement: KlPlacement::Loss,
            straight_through: false,
            weighted: false,
        }
    }

    /// Whether it acts, and in the loss.
    pub fn is_in_loss(&self) -> bool {
        self.coefficient != 0.0 && self.placement == KlPlacement::Loss
    }

    /// Whether it acts, and in the reward.
    pub fn is_in_reward(&self) -> bool {
        self.coefficient != 0.0 && self.placement == KlPlacement::Reward
    }

    /// The penalty of one token in the loss, and its derivative with respect to log π_θ: `to_reference` is
    /// log π_θ − log π_ref, `log_ratio` the token's log-ratio to the anchor (nats).
    pub fn token(&self, to_reference: f64, log_ratio: f64) -> (f64, f64) {
        let (_, value, derivative) = self.token_terms(to_reference, log_ratio);
        (value, derivative)
    }

    /// The estimate alone (nats), and what [`Self::token`] returns.
    pub(crate) fn token_terms(&self, to_reference: f64, log_ratio: f64) -> (f64, f64, f64) {
        let (estimate, own) = self.estimator.value_and_derivative(to_reference);
        let gradient = if self.straight_through { KlEstimator::K2.derivative(to_reference) } else { own };
        if !self.weighted {
            return (estimate, self.coefficient * estimate, self.coefficient * gradient);
        }
        let ratio = self.coefficient * log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp();
        let saturated = log_ratio.abs() >= LOG_RATIO_LIMIT;
        (estimate, ratio * estimate, ratio * if saturated { gradient } else { gradient + estimate })
    }

    /// What is taken off the reward of one token: `to_reference` is log π_anchor − log π_ref.
    pub fn penalty(&self, to_reference: f64) -> f64 {
        self.coefficient * self.estimator.value(to_reference)
    }

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

    const ALL: [KlEstimator; 4] = [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3, KlEstimator::Abs];

    /// u = 0.5: exp(−0.5) − 1 + 0.5 = 0.106531, 1 − exp(−0.5) = 0.393469.
    #[test]
    fn the_estimates_and_their_derivatives_are_those_worked_by_hand() {
        let found = ALL.map(|kl| (kl.value(0.5), kl.derivative(0.5)));
        let expected = [(0.5, 1.0), (0.125, 0.5), (0.106_530_659_7, 0.393_469_340_3), (0.5, 1.0)];
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
    fn both_together_are_each_alone_to_the_last_bit() {
        for kl in ALL {
            for u in [-1e6, -20.0, -2.0, -1e-9, 0.0, 0.3, 19.9, 20.0, f64::INFINITY] {
                let (value, derivative) = kl.value_and_derivative(u);
                let alone = (kl.value(u).to_bits(), kl.derivative(u).to_bits());
                assert_eq!((value.to_bits(), derivative.to_bits()), alone, "{kl:?} at {u}");
            }
        }
    }

    #[test]
    fn far_from_the_reference_k3_is_clamped_and_the_others_still_pull_back() {
        let at = |u| ALL.map(|kl| (kl.value(u), kl.derivative(u)));
        let k3 = [20.0, -20.0].map(|u: f64| (-u).exp_m1() + u);
        assert_eq!(at(25.0), [(25.0, 1.0), (312.5, 25.0), (k3[0], 0.0), (25.0, 1.0)]);
        assert_eq!(at(-25.0), [(-25.0, 1.0), (312.5, -25.0), (k3[1], 0.0), (25.0, -1.0)]);
    }

    /// The anchor and the reference are fixed, so a step of log π_θ moves u and the log-ratio alike.
    #[test]
    fn a_weighted_penalty_is_differentiated_through_its_ratio() {
        for kl in ALL {
            let term = KlTerm { weighted: true, ..KlTerm::new(kl, 0.5) };
            for (u, d) in [(0.3, -0.2), (-1.1, 0.7)] {
                let (value, derivative) = term.token(u, d);
                assert_close(value, 0.5 * d.exp() * kl.value(u), 1e-14, "value");
                let moved = |by: f64| term.token(u + by, d + by).0;
                let difference = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                assert_close(derivative, difference, 1e-8, "derivative");
            }
        }
    }

    #[test]
    fn a_straight_through_penalty_has_the_value_of_its_estimator_and_the_gradient_of_k2() {
        for kl in ALL {
            let term = KlTerm { straight_through: true, ..KlTerm::new(kl, 0.5) };
            assert_eq!(term.token(0.4, 0.0), (0.5 * kl.value(0.4), 0.2));
        }
    }

    #[test]
    fn a_negative_coefficient_is_refused() {
        let error = KlTerm::new(KlEstimator::K3, -0.1).validate().unwrap_err();
        assert_eq!(error.to_string(), "coefficient = -0.1: allowed is a finite number >= 0");
    }
}

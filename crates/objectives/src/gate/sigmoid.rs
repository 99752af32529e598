//! A gate without an edge.

use firebrick_core::{Binding, Bounds, Gate, Gated, ResponseTokens};
use serde::{Deserialize, Serialize};

use crate::{ConfigError, config_error::require};

/// A smooth gate: the gradient falls off on both sides of w = 1 and never stops at an edge.
///
/// ```text
/// p_t = sigmoid(τ (w_t − 1))        τ = tau_pos where A > 0, tau_neg elsewhere
/// J_t = (4/τ) p_t A_t
/// ∂J_t/∂ log w_t = 4 p_t (1 − p_t) w_t A_t
/// ```
///
/// At w = 1 the value is (2/τ) A and the slope A. As τ → 0 the slope becomes w A. The window plays no part.
///
/// *Reference*: SAPO, "Soft adaptive policy optimization", 2025, arXiv:2511.20347.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sigmoid {
    /// Temperature of tokens with A > 0: the larger, the faster the gradient falls off.
    pub tau_pos: f64,
    /// Temperature of the others.
    pub tau_neg: f64,
}

impl Default for Sigmoid {
    /// The paper's: 1 and 1.05.
    fn default() -> Self {
        Self { tau_pos: 1.0, tau_neg: 1.05 }
    }
}

impl Sigmoid {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When a temperature is not positive and finite.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (key, tau) in [("tau_pos", self.tau_pos), ("tau_neg", self.tau_neg)] {
            require(tau.is_finite() && tau > 0.0, key, tau, "a finite number > 0")?;
        }
        Ok(())
    }
}

impl Gate for Sigmoid {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], _: &[Bounds], out: &mut [Gated]) {
        for ((out, log_weight), advantage) in out.iter_mut().zip(log_weights).zip(response.advantages()) {
            let tau = if *advantage > 0.0 { self.tau_pos } else { self.tau_neg };
            let weight = log_weight.exp();
            // Both from one exponential below 1: 1 − p would lose its digits far from w = 1.
            let x = tau * (weight - 1.0);
            let tail = (-x.abs()).exp();
            let (larger, smaller) = (1.0 / (1.0 + tail), tail / (1.0 + tail));
            let (p, rest) = if x >= 0.0 { (larger, smaller) } else { (smaller, larger) };
            let value = 4.0 / tau * p * advantage;
            *out = Gated { value, slope: 4.0 * p * rest * weight * advantage, binding: Binding::None };
        }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_close, check_gate};

    use super::*;

    fn gate(gate: Sigmoid, weight: f64, advantage: f64) -> Gated {
        let response = TestResponse::from_log_ratios(&[0.0], &[advantage]);
        let mut out = [Gated::default()];
        gate.gate(&response.tokens(), &[weight.ln()], &[Bounds::OPEN], &mut out);
        out[0]
    }

    #[test]
    fn without_drift_the_slope_is_the_advantage_and_the_value_two_over_tau_of_it() {
        let token = gate(Sigmoid::default(), 1.0, 1.5);
        assert_eq!((token.value, token.slope), (3.0, 1.5));
        let token = gate(Sigmoid::default(), 1.0, -2.1);
        assert_close(token.value, -4.0, 1e-15, "(2/1.05) · (−2.1)");
        assert_close(token.slope, -2.1, 1e-15, "slope");
    }

    /// Slope over w A = 4 p (1 − p): even in w − 1, at most 1, smaller for a larger τ.
    #[test]
    fn the_gradient_falls_off_evenly_and_faster_at_a_higher_temperature() {
        let share =
            |tau: f64, weight: f64| gate(Sigmoid { tau_pos: tau, tau_neg: tau }, weight, 1.0).slope / weight;
        for step in [0.1, 0.4, 0.9] {
            assert_close(share(1.0, 1.0 + step), share(1.0, 1.0 - step), 1e-13, "both sides");
            assert!(share(1.0, 1.0 + step) < 1.0 && share(2.0, 1.0 + step) < share(1.0, 1.0 + step));
        }
        assert!(gate(Sigmoid::default(), 60.0, 1.0).slope < 1e-20, "far away nothing is left");
    }

    #[test]
    fn a_vanishing_temperature_leaves_the_unclipped_gradient() {
        for weight in [0.2, 1.0, 3.0] {
            let slope = gate(Sigmoid { tau_pos: 1e-6, tau_neg: 1e-6 }, weight, -1.5).slope;
            assert_close(slope, -1.5 * weight, 1e-11, "w A");
        }
    }

    #[test]
    fn temperatures_must_be_positive() {
        let error = Sigmoid { tau_pos: 1.0, tau_neg: 0.0 }.validate().unwrap_err();
        assert_eq!(error.to_string(), "tau_neg = 0: allowed is a finite number > 0");
        assert!(Sigmoid::default().validate().is_ok());
    }

    #[test]
    fn keeps_the_contract() {
        check_gate(Sigmoid::default());
        check_gate(Sigmoid { tau_pos: 3.0, tau_neg: 0.1 });
    }
}

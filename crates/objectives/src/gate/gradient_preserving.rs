//! PPO's minimum, with a bounded gradient where it is clipped.

use firebrick_core::{Binding, Bounds, Gate, Gated, ResponseTokens};
use serde::{Deserialize, Serialize};

use super::{PpoMin, ppo_min::validate_dual_clip};
use crate::{ConfigError, config_error::require_width};

/// The pessimistic minimum of PPO whose clipped tokens keep the gradient that they had at the bound.
///
/// ```text
/// J_t = min(w A, clip(w, low, high) A)
/// ∂J_t/∂ log π_θ(y_t) = scale_high · high · A     where A > 0 and w > high
///                     = scale_low · low · A       where A < 0 and w < low
///                     = w A                       elsewhere
/// ```
///
/// With both scales at 1 the coefficient is continuous at the bounds; with both at 0 this is [`PpoMin`]. Where the dual
/// clip acts, there is no gradient.
///
/// *Reference*: GPPO: Su et al., "Klear-Reasoner", 2025, arXiv:2508.07629.
///
/// *Differs from the paper*: the authors' code adds a dual clip of 3; here it is off unless set.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GradientPreserving {
    /// Factor of the gradient of tokens that are clipped below.
    pub scale_low: f64,
    /// Factor of the gradient of tokens that are clipped above.
    pub scale_high: f64,
    /// Largest weight c of a token with A < 0; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dual_clip: Option<f64>,
}

impl Default for GradientPreserving {
    /// The paper's: both scales 1.
    fn default() -> Self {
        Self { scale_low: 1.0, scale_high: 1.0, dual_clip: None }
    }
}

impl GradientPreserving {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When a scale is negative or not finite, or the dual clip not above 1.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require_width("scale_low", self.scale_low)?;
        require_width("scale_high", self.scale_high)?;
        validate_dual_clip(self.dual_clip)
    }
}

impl Gate for GradientPreserving {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], bounds: &[Bounds], out: &mut [Gated]) {
        let ppo = PpoMin { dual_clip: self.dual_clip, ..PpoMin::default() };
        let inputs = log_weights.iter().zip(response.advantages()).zip(bounds);
        for (out, ((log_weight, advantage), window)) in out.iter_mut().zip(inputs) {
            *out = ppo.token(log_weight.exp(), *advantage, *window);
            out.slope = match out.binding {
                Binding::Low => self.scale_low * out.value,
                Binding::High => self.scale_high * out.value,
                // Unclipped, the weight itself is differentiated, and a clamped one is constant.
                _ if log_weight.abs() >= response.context().log_ratio_limit() => 0.0,
                _ => out.slope,
            };
        }
    }

    fn is_score_function(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_close, check_gate};

    use super::*;

    const WINDOW: Bounds = Bounds { low: 0.8, high: 1.2 };

    fn gate(gate: GradientPreserving, weight: f64, advantage: f64) -> Gated {
        let response = TestResponse::from_log_ratios(&[0.0], &[advantage]);
        let mut out = [Gated::default()];
        gate.gate(&response.tokens(), &[weight.ln()], &[WINDOW], &mut out);
        out[0]
    }

    #[test]
    fn a_clipped_token_keeps_the_gradient_of_the_bound_times_its_scale() {
        let with = GradientPreserving { scale_low: 0.5, scale_high: 0.25, dual_clip: Some(3.0) };
        let token = gate(with, 1.5, 2.0);
        assert_eq!((token.value, token.slope, token.binding), (2.4, 0.6, Binding::High)); // 1.2 · 2 / 4
        let token = gate(with, 0.5, -2.0);
        assert_eq!((token.value, token.slope, token.binding), (-1.6, -0.8, Binding::Low)); // 0.8 · −2 / 2
        let token = gate(with, 10.0, -2.0);
        assert_eq!((token.value, token.slope, token.binding), (-6.0, 0.0, Binding::OuterHigh));
    }

    #[test]
    fn the_gradient_is_continuous_at_the_bounds() {
        for (bound, advantage) in [(1.2, 1.0), (0.8, -1.0)] {
            let at = |weight| gate(GradientPreserving::default(), weight, advantage).slope;
            assert_close(at(bound + 1e-9), at(bound - 1e-9), 2e-9, "slope");
        }
    }

    #[test]
    fn without_scales_it_is_ppo() {
        let none = GradientPreserving { scale_low: 0.0, scale_high: 0.0, dual_clip: None };
        for weight in [0.3_f64, 0.9, 1.1, 4.0] {
            for advantage in [1.0, -1.0] {
                let ppo = PpoMin::default().token(weight.ln().exp(), advantage, WINDOW);
                let token = gate(none, weight, advantage);
                assert_eq!((token.value, token.slope.abs()), (ppo.value, ppo.slope.abs()));
                assert_eq!(token.binding, ppo.binding);
            }
        }
    }

    #[test]
    fn scales_must_be_finite_and_not_negative() {
        let error = GradientPreserving { scale_low: -1.0, ..GradientPreserving::default() }.validate();
        assert_eq!(error.unwrap_err().to_string(), "scale_low = -1: allowed is a finite number >= 0");
        assert!(
            GradientPreserving { dual_clip: Some(1.0), ..GradientPreserving::default() }.validate().is_err()
        );
        assert!(GradientPreserving::default().validate().is_ok());
    }

    #[test]
    fn keeps_the_contract() {
        check_gate(GradientPreserving::default());
        check_gate(GradientPreserving { scale_low: 0.5, scale_high: 2.0, dual_clip: Some(3.0) });
    }
}

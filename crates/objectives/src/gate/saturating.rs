//! A detached weight that is clipped, and a gradient that is not.

use firebrick_core::{Bounds, Gate, Gated, ResponseTokens};
use serde::{Deserialize, Serialize};

use super::{MaskedValue, beyond};

/// A clipped, detached weight: beyond the window it stays at the bound, and the gradient survives.
///
/// ```text
/// J_t = sg[clip(w_t, low, high) A_t] · log π_θ(y_t)
/// ∂J_t/∂ log π_θ(y_t) = clip(w_t, low, high) A_t
/// ```
///
/// Without drift it is the plain policy gradient; within the window its coefficients are those of PPO.
///
/// *Reference*: CISPO: MiniMax, "MiniMax-M1", 2025, arXiv:2506.13585 (upper bound only); MinPRO, 2026, arXiv:2601.22718.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Saturating {
    /// What a token contributes to the loss value.
    pub value: MaskedValue,
}

impl Gate for Saturating {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], bounds: &[Bounds], out: &mut [Gated]) {
        for (index, out) in out.iter_mut().enumerate() {
            let (weight, window) = (log_weights[index].exp(), bounds[index]);
            let slope = weight.max(window.low).min(window.high) * response.advantages()[index];
            let value = self.value.of(slope, response.current()[index]);
            *out = Gated { value, slope, binding: beyond(weight, window) };
        }
    }

    fn is_score_function(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::Binding;
    use firebrick_testkit::{TestResponse, check_gate};

    use super::*;

    fn gate(value: MaskedValue, log_weight: f64, advantage: f64, window: Bounds) -> Gated {
        let response = TestResponse::new(&[-2.0], &[-3.0], &[advantage]);
        let mut out = [Gated::default()];
        Saturating { value }.gate(&response.tokens(), &[log_weight], &[window], &mut out);
        out[0]
    }

    #[test]
    fn a_token_beyond_either_bound_keeps_the_gradient_of_the_bound() {
        let window = Bounds { low: 0.5, high: 2.0 };
        for advantage in [1.5, -1.5] {
            let above = gate(MaskedValue::Weight, 1.0, advantage, window);
            assert_eq!((above.slope, above.binding), (2.0 * advantage, Binding::High));
            let below = gate(MaskedValue::Weight, -1.0, advantage, window);
            assert_eq!((below.slope, below.binding), (0.5 * advantage, Binding::Low));
            let inside = gate(MaskedValue::Weight, 0.0, advantage, window);
            assert_eq!(inside, Gated { value: advantage, slope: advantage, binding: Binding::None });
        }
    }

    #[test]
    fn the_value_as_written_carries_the_log_prob() {
        let token = gate(MaskedValue::WeightedLogProb, 1.0, 0.5, Bounds { low: 0.5, high: 2.0 });
        assert_eq!((token.value, token.slope), (-3.0, 1.0)); // 2 · 0.5 · (−3)
        assert_eq!(gate(MaskedValue::WeightedLogProb, 1.0, 0.0, Bounds::OPEN).value, 0.0);
    }

    #[test]
    fn keeps_the_contract() {
        check_gate(Saturating { value: MaskedValue::WeightedLogProb });
        check_gate(Saturating { value: MaskedValue::Weight });
    }
}

//! A mask that drops tokens outside the window.

use firebrick_core::{Binding, Bounds, Gate, Gated, ResponseTokens};
use serde::{Deserialize, Serialize};

use super::beyond;

/// What a masked token contributes to the loss value. The gradient is the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaskedValue {
    /// M w A log π_θ(y_t), as the objective is written.
    #[default]
    WeightedLogProb,
    /// M w A, which compares with the values of clipped objectives.
    Weight,
}

impl MaskedValue {
    /// Value of a token with the score-function coefficient `slope`.
    pub(super) fn of(self, slope: f64, log_prob: f64) -> f64 {
        match self {
            // Selected, not multiplied: the log-prob of a token that was dropped may be infinite.
            Self::WeightedLogProb if slope == 0.0 => 0.0,
            Self::WeightedLogProb => slope * log_prob,
            Self::Weight => slope,
        }
    }
}

/// A hard mask that does not look at the advantage's sign, with a detached weight.
///
/// ```text
/// M_t = 1[low ≤ w_t ≤ high]
/// J_t = sg[M_t w_t A_t] · log π_θ(y_t)
/// ∂J_t/∂ log π_θ(y_t) = M_t w_t A_t
/// ```
///
/// A masked token contributes nothing but stays in every denominator.
///
/// *Reference*: PNPO, "Reusing rollouts under policy lag", 2026, arXiv:2608.01418.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HardMask {
    /// What a token contributes to the loss value.
    pub value: MaskedValue,
}

impl Gate for HardMask {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], bounds: &[Bounds], out: &mut [Gated]) {
        for (index, out) in out.iter_mut().enumerate() {
            let (weight, window) = (log_weights[index].exp(), bounds[index]);
            let advantage = response.advantages()[index];
            let binding = beyond(weight, window);
            let slope = if binding == Binding::None && advantage != 0.0 { weight * advantage } else { 0.0 };
            *out = Gated { value: self.value.of(slope, response.current()[index]), slope, binding };
        }
    }

    fn is_score_function(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{LogProbs, ResponseContext};
    use firebrick_testkit::check_gate;

    use super::*;

    fn gate(value: MaskedValue, current: f64, log_weight: f64, advantage: f64) -> Gated {
        let context = ResponseContext::new(LogProbs::new(vec![current]), vec![advantage]).unwrap();
        let current = LogProbs::new(vec![current]);
        let response = ResponseTokens::new(&context, &current).unwrap();
        let mut out = [Gated::default()];
        HardMask { value }.gate(&response, &[log_weight], &[Bounds { low: 0.5, high: 2.0 }], &mut out);
        out[0]
    }

    #[test]
    fn the_mask_ignores_the_sign_of_the_advantage() {
        for advantage in [2.0, -2.0] {
            let inside = gate(MaskedValue::Weight, -3.0, 0.0, advantage);
            assert_eq!(inside, Gated { value: advantage, slope: advantage, binding: Binding::None });
            let above = gate(MaskedValue::Weight, -3.0, 1.0, advantage);
            assert_eq!(above, Gated { value: 0.0, slope: 0.0, binding: Binding::High });
            let below = gate(MaskedValue::Weight, -3.0, -1.0, advantage);
            assert_eq!(below, Gated { value: 0.0, slope: 0.0, binding: Binding::Low });
        }
    }

    #[test]
    fn the_interval_is_closed() {
        for bound in [0.5_f64, 2.0] {
            assert_eq!(gate(MaskedValue::Weight, -3.0, bound.ln(), 1.0).binding, Binding::None);
        }
    }

    #[test]
    fn the_value_as_written_carries_the_log_prob_and_the_slope_does_not() {
        let token = gate(MaskedValue::WeightedLogProb, -3.0, 0.0, 2.0);
        assert_eq!((token.value, token.slope), (-6.0, 2.0));
    }

    #[test]
    fn an_impossible_token_that_is_dropped_or_has_no_advantage_counts_as_zero() {
        assert_eq!(gate(MaskedValue::WeightedLogProb, f64::NEG_INFINITY, -1.0, 1.0).value, 0.0);
        assert_eq!(gate(MaskedValue::WeightedLogProb, f64::NEG_INFINITY, 0.0, 0.0).value, 0.0);
    }

    #[test]
    fn keeps_the_contract() {
        check_gate(HardMask { value: MaskedValue::WeightedLogProb });
        check_gate(HardMask { value: MaskedValue::Weight });
    }
}

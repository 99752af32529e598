//! Clip first, then average: the clipped geometric mean.

use firebrick_core::{Binding, Bounds, Gate, Gated, ResponseTokens};
use serde::{Deserialize, Serialize};

use crate::{ConfigError, config_error::require_width};

/// Which tokens a mean is taken over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeanScope {
    /// All tokens of the response (GMPO).
    #[default]
    Sequence,
    /// The tokens up to the current one, whose gradient reaches the current token only.
    Prefix,
}

/// The geometric mean of weights that are clipped one by one before they are averaged.
///
/// ```text
/// x_t = min(log w_t, high)     where A_t > 0
///     = max(log w_t, −low)     where A_t < 0
///     = 0                      where A_t = 0
/// G   = exp((1/L) Σ_k x_k),  J_t = Ā G               scope `Sequence`; Ā is the mean of the response's advantages
///       ∂(Σ_k J_k)/∂ log w_t = Ā G 1[x_t = log w_t]
/// G_t = exp((1/t) Σ_{k≤t} x_k),  J_t = A_t G_t       scope `Prefix`
///       coefficient = A_t G_t 1[x_t = log w_t]
/// ```
///
/// It clips only on the side that the advantage pushes towards, so one far token moves the mean by at most its width over
/// the length. The weights should be token ratios. Without a clipped token the scope `Sequence` is GSPO, and
/// `Prefix` the prefix mean. The window plays no part.
///
/// *Reference*: Zhao et al., "Geometric-mean policy optimization", 2025, arXiv:2507.20673.
///
/// *Differs from the paper*: the scope `Prefix` is not in it. Advantages that differ from token to token are averaged, as
/// in verl; the paper has one per response.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GeometricMean {
    /// How far a log-weight may fall below zero where A < 0 (nats).
    pub low: f64,
    /// How far a log-weight may rise above zero where A > 0 (nats).
    pub high: f64,
    /// Which tokens the mean is taken over.
    pub scope: MeanScope,
}

impl Default for GeometricMean {
    /// The paper's: 0.4 on either side, over the whole response.
    fn default() -> Self {
        Self { low: 0.4, high: 0.4, scope: MeanScope::Sequence }
    }
}

impl GeometricMean {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When a width is negative or not finite.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require_width("low", self.low)?;
        require_width("high", self.high)
    }

    /// The clipped log-weight, and the end of the window that acted.
    fn clipped(&self, log_weight: f64, advantage: f64) -> (f64, Binding) {
        if advantage > 0.0 && log_weight > self.high {
            (self.high, Binding::High)
        } else if advantage < 0.0 && log_weight < -self.low {
            (-self.low, Binding::Low)
        } else if advantage == 0.0 {
            (0.0, Binding::None)
        } else {
            (log_weight, Binding::None)
        }
    }
}

impl Gate for GeometricMean {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], _: &[Bounds], out: &mut [Gated]) {
        let advantages = response.advantages();
        let clipped = |index: usize| self.clipped(log_weights[index], advantages[index]);
        let len = log_weights.len();
        let mean = (0..len).map(|index| clipped(index).0).sum::<f64>() / len as f64;
        let whole = advantages.iter().sum::<f64>() / len as f64 * mean.exp();
        let mut sum = 0.0;
        for (index, out) in out.iter_mut().enumerate() {
            let (log_weight, binding) = clipped(index);
            sum += log_weight;
            let value = match self.scope {
                MeanScope::Sequence => whole,
                MeanScope::Prefix => advantages[index] * (sum / (index + 1) as f64).exp(),
            };
            // A token without advantage and a clipped one are constants in the mean, and so is, where the weight is
            // detached, one whose log-ratio was clamped.
            let is_constant = self.scope == MeanScope::Prefix
                && log_weights[index].abs() >= response.context().log_ratio_limit();
            let moves = binding == Binding::None && advantages[index] != 0.0 && !is_constant;
            *out = Gated { value, slope: if moves { value } else { 0.0 }, binding };
        }
    }

    /// The prefix mean is detached; that of the response is differentiated as it stands.
    fn is_score_function(&self) -> bool {
        self.scope == MeanScope::Prefix
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_all_close, check_gate};

    use super::*;

    fn gate(scope: MeanScope, log_weights: &[f64], advantages: &[f64]) -> Vec<Gated> {
        let response = TestResponse::from_log_ratios(log_weights, advantages);
        let mut out = vec![Gated::default(); log_weights.len()];
        let windows = vec![Bounds::OPEN; log_weights.len()];
        GeometricMean { scope, ..GeometricMean::default() }.gate(
            &response.tokens(),
            log_weights,
            &windows,
            &mut out,
        );
        out
    }

    fn column(out: &[Gated], of: fn(&Gated) -> f64) -> Vec<f64> {
        out.iter().map(of).collect()
    }

    /// x = [0.4, 0.1, −0.5]: mean 0, although 5 alone would move the unclipped mean to 1.53.
    #[test]
    fn one_far_token_moves_the_mean_by_its_width_over_the_length() {
        let out = gate(MeanScope::Sequence, &[5.0, 0.1, -0.5], &[2.0; 3]);
        assert_all_close(&column(&out, |token| token.value), &[2.0; 3], 1e-15, "value");
        assert_all_close(&column(&out, |token| token.slope), &[0.0, 2.0, 2.0], 1e-15, "slope");
        let bindings: Vec<Binding> = out.iter().map(|token| token.binding).collect();
        assert_eq!(bindings, [Binding::High, Binding::None, Binding::None]);
    }

    /// x = [0.5, −0.4, 0.2]: mean 0.1; only the harmful side is clipped.
    #[test]
    fn a_bad_response_is_clipped_below_only() {
        let out = gate(MeanScope::Sequence, &[0.5, -3.0, 0.2], &[-1.0; 3]);
        let mean = -(0.1_f64.exp());
        assert_all_close(&column(&out, |token| token.value), &[mean; 3], 1e-15, "value");
        assert_all_close(&column(&out, |token| token.slope), &[mean, 0.0, mean], 1e-15, "slope");
        assert_eq!(out[1].binding, Binding::Low);
    }

    /// Prefix means of x = [0.4, 0.1, −0.5]: [0.4, 0.25, 0]; the last is the whole response's.
    #[test]
    fn the_prefix_ends_at_the_whole_response_and_never_looks_ahead() {
        let advantages = [1.0, 1.0, 1.0];
        let out = gate(MeanScope::Prefix, &[5.0, 0.1, -0.5], &advantages);
        let expected = [0.4_f64, 0.25, 0.0].map(f64::exp);
        assert_all_close(&column(&out, |token| token.value), &expected, 1e-15, "value");
        assert_all_close(&column(&out, |token| token.slope), &[0.0, expected[1], 1.0], 1e-15, "slope");
        let moved = gate(MeanScope::Prefix, &[5.0, 0.1, 0.3], &advantages);
        assert_eq!(out[..2], moved[..2]);
        let whole = gate(MeanScope::Sequence, &[5.0, 0.1, -0.5], &advantages);
        assert_all_close(&[out[2].value, out[2].slope], &[whole[2].value, whole[2].slope], 1e-15, "last");
    }

    /// A = [2, 0, −1], x = [0.1, 0, −0.1]: mean advantage 1/3, mean 0.
    #[test]
    fn a_token_without_advantage_is_one_in_the_mean() {
        let out = gate(MeanScope::Sequence, &[0.1, 0.3, -0.1], &[2.0, 0.0, -1.0]);
        let third = 1.0 / 3.0;
        assert_all_close(&column(&out, |token| token.value), &[third; 3], 1e-15, "value");
        assert_all_close(&column(&out, |token| token.slope), &[third, 0.0, third], 1e-15, "slope");
    }

    #[test]
    fn widths_must_be_finite_and_not_negative() {
        let error = GeometricMean { low: -0.1, ..GeometricMean::default() }.validate().unwrap_err();
        assert_eq!(error.to_string(), "low = -0.1: allowed is a finite number >= 0");
        assert!(GeometricMean { high: f64::INFINITY, ..GeometricMean::default() }.validate().is_err());
        assert!(GeometricMean::default().validate().is_ok());
    }

    #[test]
    fn keeps_the_contract() {
        check_gate(GeometricMean::default());
        check_gate(GeometricMean { scope: MeanScope::Prefix, ..GeometricMean::default() });
    }
}

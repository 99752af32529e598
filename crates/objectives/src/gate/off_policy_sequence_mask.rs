//! A mask on bad responses that the current policy would hardly have produced.

use firebrick_core::{Binding, Bounds, Gate, Gated, ResponseTokens};
use serde::{Deserialize, Serialize};

use super::{PpoMin, SequenceStatistic};
use crate::{ConfigError, config_error::require};

/// A mask that drops a response with a negative advantage when it has become unlikely on average.
///
/// ```text
/// M   = 0 where A < 0 and (1/L) Σ_t log(π_roll(y_t)/π_θ(y_t)) > delta, else 1
/// J_t = M · min(w A, clip(w, low, high) A)        with the window open: M w A
/// ```
///
/// Within a kept response the gate is [`PpoMin`]. Every token of a dropped one is [`Binding::Dropped`] and stays in
/// every denominator. It needs one advantage per response.
///
/// *Reference*: DeepSeek-AI, "DeepSeek-V3.2", 2025, arXiv:2512.02556 (off-policy sequence masking). The paper gives no
/// number for delta, so there is no default.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OffPolicySequenceMask {
    /// Largest mean log-ratio from the current to the sampling policy of a bad response that is kept (nats).
    pub delta: f64,
}

impl OffPolicySequenceMask {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When the limit is no number.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require(!self.delta.is_nan(), "delta", self.delta, "a number")
    }
}

impl Gate for OffPolicySequenceMask {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], bounds: &[Bounds], out: &mut [Gated]) {
        let is_bad = response.advantages().first().is_some_and(|advantage| *advantage < 0.0);
        if is_bad && SequenceStatistic::MeanK1.of(response) > self.delta {
            out.fill(Gated { binding: Binding::Dropped, ..Gated::default() });
        } else {
            PpoMin::default().gate(response, log_weights, bounds, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, check_gate};

    use super::*;

    const WINDOW: Bounds = Bounds { low: 0.8, high: 1.2 };

    /// Mean of −log ρ for log ρ = [−0.5, −0.1] is 0.3.
    fn gate(delta: f64, advantage: f64) -> [Gated; 2] {
        let log_ratios = [-0.5, -0.1];
        let response = TestResponse::from_log_ratios(&log_ratios, &[advantage; 2]);
        let mut out = [Gated::default(); 2];
        OffPolicySequenceMask { delta }.gate(&response.tokens(), &log_ratios, &[WINDOW; 2], &mut out);
        out
    }

    #[test]
    fn only_a_bad_response_beyond_the_limit_is_dropped() {
        let dropped = Gated { binding: Binding::Dropped, ..Gated::default() };
        assert_eq!(gate(0.2, -1.0), [dropped; 2]);
        assert_eq!(gate(0.4, -1.0).map(|token| token.binding), [Binding::Low, Binding::None]);
        assert_eq!(gate(0.2, 1.0).map(|token| token.binding), [Binding::None; 2]);
    }

    #[test]
    fn a_kept_response_is_ppo() {
        for advantage in [1.0, -1.0] {
            let ppo = [-0.5_f64, -0.1].map(|d| PpoMin::default().token(d.exp(), advantage, WINDOW));
            assert_eq!(gate(f64::INFINITY, advantage), ppo);
        }
    }

    #[test]
    fn a_limit_must_be_a_number() {
        let error = OffPolicySequenceMask { delta: f64::NAN }.validate().unwrap_err();
        assert_eq!(error.to_string(), "delta = NaN: allowed is a number");
    }

    #[test]
    fn keeps_the_contract() {
        check_gate(OffPolicySequenceMask { delta: 0.01 });
    }
}

//! A mask on whole responses that have drifted from the policy that sampled them.

use firebrick_core::{Binding, Bounds, Gate, Gated, LOG_RATIO_LIMIT, ResponseTokens};
use serde::{Deserialize, Serialize};

use super::PpoMin;
use crate::{ConfigError, KlEstimator, config_error::require};

/// Estimate of the divergence from the policy that sampled a response, from its sampled tokens, with
/// ρ_t = π_θ(y_t)/π_roll(y_t) (nats).
///
/// Each estimates KL(π_roll ‖ π_θ): k1 = −log ρ, k2 = (log ρ)²/2, k3 = ρ − 1 − log ρ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SequenceStatistic {
    /// Largest k2 of a token.
    MaxK2,
    /// Largest k3 of a token.
    MaxK3,
    /// Mean of k1 over the tokens; it may be negative.
    MeanK1,
    /// Mean of k2 over the tokens.
    MeanK2,
    /// Mean of k3 over the tokens.
    MeanK3,
}

impl SequenceStatistic {
    /// The estimate for a response; zero without a policy token.
    pub fn of(self, response: &ResponseTokens<'_>) -> f64 {
        let (kl, takes_largest) = match self {
            Self::MaxK2 => (KlEstimator::K2, true),
            Self::MaxK3 => (KlEstimator::K3, true),
            Self::MeanK1 => (KlEstimator::K1, false),
            Self::MeanK2 => (KlEstimator::K2, false),
            Self::MeanK3 => (KlEstimator::K3, false),
        };
        let pairs = response.context().behaviour().iter().zip(response.current());
        let estimates = pairs.map(|(behaviour, current)| {
            // Samples come from the behaviour policy, so that it takes the first place of the divergence.
            kl.value((behaviour - current).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))
        });
        if takes_largest {
            estimates.fold(0.0, f64::max)
        } else {
            estimates.sum::<f64>() / response.len().max(1) as f64
        }
    }
}

/// A mask that drops a whole response when one of its tokens, or their mean, is too far from the policy that sampled.
///
/// ```text
/// M   = 1[statistic(π_roll, π_θ) ≤ threshold]
/// J_t = M · min(w A, clip(w, low, high) A)        with the window open: M w A
/// ```
///
/// Within a kept response the gate is [`PpoMin`]. Every token of a rejected one is [`Binding::Dropped`] and stays in
/// every denominator. The largest of a token makes the threshold independent of the length.
///
/// *Reference*: TRM, "Trust region masking", 2025, arXiv:2512.23075.
///
/// *Differs from the paper*: it takes the exact divergence at each position, which needs the sampling distribution; here
/// it is estimated from the sampled tokens. The paper's threshold is not published, so there is no default.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceDivergenceMask {
    /// What is compared with the threshold.
    pub statistic: SequenceStatistic,
    /// Largest divergence of a response that is kept (nats).
    pub threshold: f64,
}

impl SequenceDivergenceMask {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When the threshold is negative or no number.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require(self.threshold >= 0.0, "threshold", self.threshold, "a number >= 0")
    }
}

impl Gate for SequenceDivergenceMask {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], bounds: &[Bounds], out: &mut [Gated]) {
        if self.statistic.of(response) > self.threshold {
            out.fill(Gated { binding: Binding::Dropped, ..Gated::default() });
        } else {
            PpoMin::default().gate(response, log_weights, bounds, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_close, check_gate};

    use super::*;

    const ALL: [SequenceStatistic; 5] = [
        SequenceStatistic::MaxK2,
        SequenceStatistic::MaxK3,
        SequenceStatistic::MeanK1,
        SequenceStatistic::MeanK2,
        SequenceStatistic::MeanK3,
    ];

    /// log ρ = [0.5, −0.1]: k1 [−.5, .1], k2 [.125, .005], k3 [e^.5 − 1.5, e^−.1 − .9] = [.148721, .004837].
    #[test]
    fn the_statistics_are_those_worked_by_hand() {
        let response = TestResponse::from_log_ratios(&[0.5, -0.1], &[1.0; 2]);
        let expected = [0.125, 0.148_721_3, -0.2, 0.065, 0.076_779_3];
        for (statistic, expected) in ALL.into_iter().zip(expected) {
            assert_close(statistic.of(&response.tokens()), expected, 1e-6, "statistic");
        }
    }

    fn gate(threshold: f64, log_ratios: &[f64]) -> Vec<Gated> {
        let response = TestResponse::from_log_ratios(log_ratios, &vec![-1.0; log_ratios.len()]);
        let mut out = vec![Gated::default(); log_ratios.len()];
        let windows = vec![Bounds::OPEN; log_ratios.len()];
        let mask = SequenceDivergenceMask { statistic: SequenceStatistic::MaxK2, threshold };
        mask.gate(&response.tokens(), log_ratios, &windows, &mut out);
        out
    }

    #[test]
    fn one_far_token_removes_the_whole_response_whatever_its_length() {
        let dropped = Gated { binding: Binding::Dropped, ..Gated::default() };
        assert_eq!(gate(0.1, &[0.0, 0.5, 0.0]), [dropped; 3]);
        let mut long = vec![0.0; 100];
        long[7] = 0.5;
        assert_eq!(gate(0.1, &long), [dropped; 100]);
    }

    #[test]
    fn without_a_limit_it_is_the_importance_weighted_policy_gradient() {
        let out = gate(f64::INFINITY, &[3.0, -3.0]);
        for (token, log_ratio) in out.iter().zip([3.0_f64, -3.0]) {
            let weight = -log_ratio.exp();
            assert_eq!(*token, Gated { value: weight, slope: weight, binding: Binding::None });
        }
    }

    #[test]
    fn a_threshold_must_not_be_negative() {
        let mask = SequenceDivergenceMask { statistic: SequenceStatistic::MaxK3, threshold: -1.0 };
        let error = mask.validate().unwrap_err();
        assert_eq!(error.to_string(), "threshold = -1: allowed is a number >= 0");
        assert!(SequenceDivergenceMask { threshold: f64::NAN, ..mask }.validate().is_err());
    }

    #[test]
    fn keeps_the_contract() {
        for statistic in ALL {
            check_gate(SequenceDivergenceMask { statistic, threshold: 0.05 });
        }
    }
}

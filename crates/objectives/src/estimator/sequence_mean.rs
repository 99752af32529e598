//! The geometric mean of a whole response's ratios.

use firebrick_core::{ImportanceEstimator, ResponseTokens};
use serde::{Deserialize, Serialize};

/// Which log-probs a sequence weight's gradient reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SequenceRoute {
    /// All tokens of the response: the weight is differentiated as it stands (GSPO).
    #[default]
    Sequence,
    /// The current token only: the weight is detached and multiplied by π_θ(y_t)/sg[π_θ(y_t)] (GSPO-token).
    Current,
}

/// Sequence importance ratio, normalised by length: every token of a response has the same weight.
///
/// ```text
/// log w_t = (1/L) Σ_k d_k                             for all t
/// ∂ log w_t / ∂ log π_θ(y_k) = 1/L                    route `Sequence`
///                            = 1 if k = t, else 0     route `Current`
/// ```
///
/// When the advantage is the same for all tokens of a response, both routes have the same value and gradient.
///
/// *Reference*: Zheng et al., "Group sequence policy optimization", 2025, arXiv:2507.18071.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SequenceMean {
    /// Which log-probs the gradient reaches.
    pub route: SequenceRoute,
}

impl ImportanceEstimator for SequenceMean {
    fn log_weights(&self, response: &ResponseTokens<'_>, out: &mut [f64]) {
        out.fill(mean(response.log_ratios()));
    }

    fn pull_back(&self, _response: &ResponseTokens<'_>, upstream: &[f64], out: &mut [f64]) {
        match self.route {
            SequenceRoute::Sequence => out.fill(mean(upstream)),
            SequenceRoute::Current => out.copy_from_slice(upstream),
        }
    }
}

/// Mean of `values`; of none, NaN, which is then written nowhere.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, check_estimator};

    use super::*;

    #[test]
    fn the_sequence_route_spreads_the_mean_of_the_upstream() {
        let response = TestResponse::from_log_ratios(&[0.1, -0.3], &[1.0, 1.0]);
        let mut out = [0.0; 2];
        SequenceMean { route: SequenceRoute::Sequence }.pull_back(&response.tokens(), &[2.0, 4.0], &mut out);
        assert_eq!(out, [3.0, 3.0]);
        SequenceMean { route: SequenceRoute::Current }.pull_back(&response.tokens(), &[2.0, 4.0], &mut out);
        assert_eq!(out, [2.0, 4.0]);
    }

    #[test]
    fn a_change_of_the_last_token_changes_the_weight_of_the_first() {
        let weight = |last| {
            let response = TestResponse::from_log_ratios(&[0.1, last], &[1.0, 1.0]);
            let mut out = [0.0; 2];
            SequenceMean::default().log_weights(&response.tokens(), &mut out);
            out
        };
        assert_eq!(weight(0.3), [0.2, 0.2]);
        assert_eq!(weight(0.5), [0.3, 0.3]);
    }

    #[test]
    fn keeps_the_contract() {
        check_estimator(SequenceMean { route: SequenceRoute::Sequence });
        check_estimator(SequenceMean { route: SequenceRoute::Current });
    }
}

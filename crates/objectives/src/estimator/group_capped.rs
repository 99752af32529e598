//! The product of a response's ratios, with the mass of its group capped.

use std::collections::BTreeMap;

use firebrick_core::{
    ExactSum, ImportanceEstimator, OptimizerBatch, Requirements, ResponseTokens, StateError, Stateful,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ConfigError, config_error::require_width, drift::each_response};

const PART: &str = "the group-capped estimator";

/// Sequence ratios whose sum over a group is capped: all of a group shrink by the same factor, so their order and
/// proportions stay.
///
/// ```text
/// ρ_i   = exp(Σ_k d_{i,k})                            over the tokens of response i
/// C     = G (1 + ε)                                   G responses of the group in the optimizer batch
/// w_i,t = ρ_i · min(1, C / Σ_j ρ_j)                   for all t; the sum is over the group
/// ∂ log w_t / ∂ log π_θ(y_k) = 1 if k = t, else 0
/// ```
///
/// The weight is detached. The sum is formed over the whole optimizer batch under the current policy before the batch is
/// split, in log space, so micro-batches and the order of rows do not matter. Responses without a policy token do not
/// count in G. A group whose rows fall into several optimizer batches is capped in each by itself.
///
/// *Reference*: GMC-GRPO, 2026, arXiv:2610.01896.
///
/// *Differs from the paper*: only its abstract was at hand, whose threshold 1 + ε is read as the largest mean ratio of a
/// group. ε has no default: its value is not published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupCapped {
    /// How far the mean ratio of a group may exceed 1, ε.
    pub eps: f64,
    /// log min(1, C / Σ ρ) of each group of the batch.
    #[serde(skip)]
    log_factors: BTreeMap<usize, f64>,
}

impl GroupCapped {
    /// An estimator with the cap G (1 + `eps`).
    pub fn new(eps: f64) -> Self {
        Self { eps, log_factors: BTreeMap::new() }
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// When ε is negative or not finite.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require_width("eps", self.eps)
    }

    /// log min(1, C / Σ exp(x)) for the log-ratios x of a group's responses.
    fn log_factor(&self, log_ratios: &[f64]) -> f64 {
        let largest = log_ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: ExactSum = log_ratios.iter().map(|log_ratio| (log_ratio - largest).exp()).collect();
        let log_cap = (log_ratios.len() as f64 * (1.0 + self.eps)).ln();
        (log_cap - largest - sum.value().ln()).min(0.0)
    }
}

impl ImportanceEstimator for GroupCapped {
    /// # Panics
    /// When the response's group was not in the batch that was shown last.
    fn log_weights(&self, response: &ResponseTokens<'_>, out: &mut [f64]) {
        if response.is_empty() {
            return;
        }
        let factor = self.log_factors.get(&response.context().group());
        let factor = factor.expect("the optimizer batch is shown before its responses are evaluated");
        out.fill(response.log_ratios().iter().sum::<f64>() + factor);
    }

    fn requirements(&self) -> Requirements {
        Requirements { batch_current_log_probs: true, ..Requirements::default() }
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }
}

impl Stateful for GroupCapped {
    fn prepare(&mut self, batch: &OptimizerBatch<'_>) -> Result<(), StateError> {
        let mut groups: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        each_response(batch, PART, |response| {
            if !response.is_empty() {
                let rows = groups.entry(response.context().group()).or_default();
                rows.push(response.log_ratios().iter().sum());
            }
        })?;
        self.log_factors =
            groups.into_iter().map(|(group, log_ratios)| (group, self.log_factor(&log_ratios))).collect();
        Ok(())
    }

    fn save(&self) -> Value {
        Value::Null
    }

    fn load(&mut self, _state: &Value) -> Result<(), StateError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_all_close, assert_close, check_estimator};

    use super::*;
    use crate::drift::prepare;

    fn group(number: usize, ratios: &[f64]) -> Vec<TestResponse> {
        // Two tokens each, whose ratios multiply to the given one.
        let row = |ratio: &f64| {
            TestResponse::from_log_ratios(&[0.7, ratio.ln() - 0.7], &[1.0; 2])
                .map_context(|context| context.with_group(number))
        };
        ratios.iter().map(row).collect()
    }

    fn weights(estimator: &GroupCapped, rows: &[TestResponse]) -> Vec<f64> {
        let weight = |row: &TestResponse| {
            let mut out = [0.0; 2];
            estimator.log_weights(&row.tokens(), &mut out);
            assert_eq!(out[0], out[1]);
            out[0].exp()
        };
        rows.iter().map(weight).collect()
    }

    /// ρ = [.5, 1, 3, .5]: the sum 5 exceeds C = 4 · 1.2 = 4.8, so all shrink by 4.8/5 = .96. The second group's sum
    /// 3.5 is below 4.8 and it is left alone.
    #[test]
    fn only_a_group_above_its_cap_shrinks_and_all_of_it_by_the_same_factor() {
        let (above, below) = (group(7, &[0.5, 1.0, 3.0, 0.5]), group(2, &[0.5, 1.0, 1.5, 0.5]));
        let mut estimator = GroupCapped::new(0.2);
        prepare(&mut estimator, &[above.clone(), below.clone()].concat()).unwrap();
        assert_all_close(&weights(&estimator, &above), &[0.48, 0.96, 2.88, 0.48], 1e-12, "above");
        assert_close(weights(&estimator, &above).iter().sum(), 4.8, 1e-12, "mass");
        assert_all_close(&weights(&estimator, &below), &[0.5, 1.0, 1.5, 0.5], 1e-12, "below");
    }

    #[test]
    fn a_group_of_one_is_truncated() {
        for (ratio, expected) in [(3.0, 1.2), (1.1, 1.1), (0.2, 0.2)] {
            let row = group(0, &[ratio]);
            let mut estimator = GroupCapped::new(0.2);
            prepare(&mut estimator, &row).unwrap();
            assert_close(weights(&estimator, &row)[0], expected, 1e-12, "weight");
        }
    }

    #[test]
    fn the_order_of_rows_changes_no_bit_and_empty_rows_do_not_count() {
        let rows = group(0, &[0.3, 7.0, 1.9, 0.01, 2.3]);
        let mut reversed = rows.clone();
        reversed.reverse();
        let empty = TestResponse::from_log_ratios(&[], &[]);
        reversed.push(empty.clone());
        let [mut forwards, mut backwards] = [GroupCapped::new(0.2), GroupCapped::new(0.2)];
        prepare(&mut forwards, &rows).unwrap();
        prepare(&mut backwards, &reversed).unwrap();
        assert_eq!(forwards, backwards);
        forwards.log_weights(&empty.tokens(), &mut []);
    }

    /// Two rows of 1400 nats: their plain ratios would overflow.
    #[test]
    fn ratios_beyond_what_a_float_holds_are_capped_all_the_same() {
        let factor = GroupCapped::new(0.0).log_factor(&[1400.0, 1400.0]);
        assert_close(factor, -1400.0, 1e-14, "ln 2 − 1400 − ln 2");
    }

    #[test]
    fn keeps_the_contract() {
        check_estimator(GroupCapped::new(0.2));
    }
}

//! Advantages relative to the length-weighted mean of the group.

use firebrick_core::{AdvantageError, AdvantageEstimator, Advantages, Requirements, RewardBatch};

use super::scored_rows::{per_response, scored_groups};

/// Reward minus the group's mean reward, in which each response counts as often as it has policy tokens (OPO).
///
/// ```text
/// b   = Σ_j L_j R_j / Σ_j L_j      over the scored rows of the group
/// A_i = R_i − b                    so that Σ_i L_i A_i = 0
/// ```
///
/// This b is the baseline of least variance where the squared gradient norm of a response grows with its length. A group of
/// equal rewards, and so one with a single scored row, has advantages of exactly zero.
///
/// *Reference*: Hao et al., "On-policy RL with optimal reward baseline", 2025, arXiv:2505.23585. The paper's updates are
/// exactly on-policy: no clipping, no KL penalty and no entropy bonus.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LengthWeighted;

impl AdvantageEstimator for LengthWeighted {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        let groups = scored_groups(batch)?;
        let mut advantages = Vec::with_capacity(batch.rows.len());
        for group in &groups {
            let tokens: usize = group.rows.iter().map(|row| batch.rows[*row].len).sum();
            let values = if group.is_uniform() || tokens == 0 {
                // Without a token in the whole group no advantage is ever used.
                vec![0.0; group.rows.len()]
            } else {
                let terms = group.rows.iter().zip(&group.rewards);
                let sum: f64 = terms.map(|(row, reward)| batch.rows[*row].len as f64 * reward).sum();
                let baseline = sum / tokens as f64;
                group.rewards.iter().map(|reward| reward - baseline).collect()
            };
            advantages.extend(group.with(values));
        }
        Ok(per_response(batch, advantages))
    }

    /// Groups of at least two: a single completion has nothing to be compared with.
    fn requirements(&self) -> Requirements {
        Requirements { min_group_size: 2, ..Requirements::default() }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Advantage, RewardRow};
    use firebrick_testkit::check_advantage_estimator;

    use super::*;

    fn group(rows: &[(Option<f64>, usize)]) -> Vec<Advantage> {
        let rows = rows.iter().map(|(reward, len)| RewardRow::new(0, *reward, *len)).collect();
        LengthWeighted.advantages(&RewardBatch { rows }).unwrap().rows
    }

    /// b = 1 · 10 / (10 + 20 + 30 + 20) = 1/8; the 100 tokens of the unscored row do not count.
    #[test]
    fn a_long_response_weighs_more_in_the_baseline() {
        let found = group(&[(Some(1.0), 10), (Some(0.0), 20), (None, 100), (Some(0.0), 30), (Some(0.0), 20)]);
        let [right, wrong] = [0.875, -0.125].map(Advantage::Response);
        assert_eq!(found, [right, wrong.clone(), Advantage::Excluded, wrong.clone(), wrong]);
    }

    #[test]
    fn a_response_without_tokens_is_measured_and_weighs_nothing() {
        assert_eq!(
            group(&[(Some(1.0), 0), (Some(0.0), 4), (Some(0.5), 4)]),
            [0.75, -0.25, 0.25].map(Advantage::Response)
        );
        assert_eq!(group(&[(Some(1.0), 0), (Some(0.0), 0)]), [0.0, 0.0].map(Advantage::Response));
    }

    #[test]
    fn keeps_the_contract() {
        check_advantage_estimator(LengthWeighted);
    }
}

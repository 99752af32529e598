//! Deviations from the group's mean, divided by the deviation of the batch's rewards.

use firebrick_core::{AdvantageError, AdvantageEstimator, Advantages, Requirements, RewardBatch};

use super::{
    scored_rows::{ScoredGroup, per_response, scored_groups},
    std_spec::StdSpec,
};

/// Reward minus the group's mean, divided by the deviation of all rewards of the batch (LitePPO).
///
/// ```text
/// A_i = (R_i − mean_g) / (std_batch R + ε)
/// ```
///
/// The deviation is that of the rewards as they are, not of their distances from the groups' means, over all scored rows;
/// each counts once. A group of equal rewards has advantages of exactly zero.
///
/// *Reference*: Liu et al., "Part I: Tricks or traps? A deep dive into RL for LLM reasoning", 2025, arXiv:2508.08221.
///
/// *Differs from the paper*: which leaves open degrees of freedom and ε; the defaults are those of [`StdSpec`]. TRL's
/// `scale_rewards = batch` adds 1e-4.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BatchScaled {
    /// How rewards are divided by the deviation of the batch.
    pub std: StdSpec,
}

impl AdvantageEstimator for BatchScaled {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        let groups = scored_groups(batch)?;
        let rewards = groups.iter().flat_map(|group| group.rewards.iter().copied()).collect();
        let all = ScoredGroup { group: 0, size: batch.rows.len(), rows: Vec::new(), rewards };
        // Where all rewards of the batch are equal, so are those of each group: nothing is left to divide.
        let divisor = if all.is_uniform() { 1.0 } else { self.std.divisor(&all.centred()) };
        let scaled = |group: &ScoredGroup| group.centred().into_iter().map(|value| value / divisor).collect();
        Ok(per_response(batch, groups.iter().flat_map(|group| group.with(scaled(group)))))
    }

    /// Groups of at least two: a single completion has nothing to be compared with.
    fn requirements(&self) -> Requirements {
        Requirements { min_group_size: 2, ..Requirements::default() }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Advantage, RewardRow};
    use firebrick_testkit::{assert_all_close, check_advantage_estimator};

    use super::*;
    use crate::EpsPlacement;

    fn advantages(rewards: &[(usize, Option<f64>)]) -> Vec<Option<f64>> {
        let std = StdSpec { ddof: 0, eps: 0.0, placement: EpsPlacement::Add };
        let rows = rewards.iter().map(|(group, reward)| RewardRow::new(*group, *reward, 2)).collect();
        let number = |advantage| match advantage {
            Advantage::Response(advantage) => Some(advantage),
            Advantage::Excluded => None,
            other => panic!("expected one number per response, found {other:?}"),
        };
        BatchScaled { std }.advantages(&RewardBatch { rows }).unwrap().rows.into_iter().map(number).collect()
    }

    /// Rewards 4, 0 and 2, 2: mean 2, population variance (4 + 4) / 4 = 2. The unscored row would change both.
    #[test]
    fn the_deviation_is_that_of_the_raw_rewards_of_the_batch() {
        let found = advantages(&[(0, Some(4.0)), (1, Some(2.0)), (0, Some(0.0)), (1, Some(2.0)), (1, None)]);
        let numbers: Vec<f64> = found.iter().flatten().copied().collect();
        assert_all_close(&numbers, &[2_f64.sqrt(), 0.0, -(2_f64.sqrt()), 0.0], 1e-15, "advantages");
        assert_eq!(found[4], None);
    }

    /// Rewards 3, 1 and 13, 11: mean 7, population variance (16 + 36 + 36 + 16) / 4 = 26; centred they would have 1.
    #[test]
    fn the_distance_between_groups_counts_in_the_deviation() {
        let found = advantages(&[(0, Some(3.0)), (0, Some(1.0)), (1, Some(13.0)), (1, Some(11.0))]);
        let one = 1.0 / 26_f64.sqrt();
        let numbers: Vec<f64> = found.into_iter().flatten().collect();
        assert_all_close(&numbers, &[one, -one, one, -one], 1e-15, "advantages");
    }

    #[test]
    fn keeps_the_contract() {
        check_advantage_estimator(BatchScaled::default());
        check_advantage_estimator(BatchScaled {
            std: StdSpec { ddof: 0, eps: 0.0, placement: EpsPlacement::Floor },
        });
    }
}

//! Deviations from the group's mean, scaled up for the groups that say nothing.

use firebrick_core::{AdvantageError, AdvantageEstimator, Advantages, Requirements, RewardBatch};
use serde::{Deserialize, Serialize};

use super::{
    scored_rows::{per_response, scored_groups},
    std_spec::StdSpec,
};
use crate::ConfigError;

/// What the factor α of [`MixedGroupScaled`] makes up for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlphaMode {
    /// Rows of groups with equal rewards: α = B / (B − M).
    #[default]
    MixedGroups,
    /// Rows with the reward zero, as in verl: α = B / (number of rewards that are not zero).
    VerlCompat,
}

/// Reward minus the group's mean, times a factor for the rows that have no gradient (GPG).
///
/// ```text
/// A_i = α (R_i − mean_g)                     without a deviation, the paper's choice
/// A_i = α (R_i − mean_g) / (std_g + ε)       with one
/// α   = B / (B − M)
/// ```
///
/// B counts the scored rows of the batch, M those of them in groups whose rewards are all equal; unscored rows count in
/// neither. So groups without a gradient, which still enter the denominator of a mean over responses, do not weaken the
/// others. A group of equal rewards has advantages of exactly zero.
///
/// *Reference*: Chu et al., "GPG: A simple and strong reinforcement learning baseline for model reasoning", 2025,
/// arXiv:2504.02546.
///
/// *Differs from the paper*: which also samples again when too few groups are mixed; that is the trainer's dynamic
/// sampling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MixedGroupScaled {
    /// What the factor makes up for; default the paper's.
    pub alpha: AlphaMode,
    /// How rewards are divided by their group's deviation; default not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub std: Option<StdSpec>,
}

impl MixedGroupScaled {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.std.map_or(Ok(()), |std| std.validate()).map_err(|error| error.within("std"))
    }
}

impl AdvantageEstimator for MixedGroupScaled {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        let groups = scored_groups(batch)?;
        let all: usize = groups.iter().map(|group| group.rewards.len()).sum();
        let counted: usize = match self.alpha {
            AlphaMode::MixedGroups => {
                groups.iter().filter(|group| !group.is_uniform()).map(|group| group.rewards.len()).sum()
            }
            AlphaMode::VerlCompat => {
                groups.iter().flat_map(|group| &group.rewards).filter(|reward| **reward != 0.0).count()
            }
        };
        // Where nothing counts, all advantages are zero.
        let alpha = all as f64 / counted.max(1) as f64;
        let advantages = groups.iter().flat_map(|group| group.with(group.normalized(self.std)));
        Ok(per_response(batch, advantages.map(|(row, advantage)| (row, alpha * advantage))))
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

    /// Groups [1, 0], [2, 2] and [0, 1, none].
    fn advantages(mut estimator: MixedGroupScaled) -> Vec<f64> {
        let rows =
            [(0, Some(1.0)), (0, Some(0.0)), (1, Some(2.0)), (1, Some(2.0)), (2, Some(0.0)), (2, Some(1.0))];
        let rows = rows.iter().chain(&[(2, None)]);
        let rows = rows.map(|(group, reward)| RewardRow::new(*group, *reward, 1)).collect();
        let found = estimator.advantages(&RewardBatch { rows }).unwrap().rows;
        assert_eq!(found[6], Advantage::Excluded);
        let number = |advantage: &Advantage| match advantage {
            Advantage::Response(advantage) => *advantage,
            other => panic!("expected one number per response, found {other:?}"),
        };
        found[..6].iter().map(number).collect()
    }

    /// B = 6 scored rows, M = 2: α = 6/4. Four rewards are not zero, so verl's is the same here.
    #[test]
    fn rows_without_a_gradient_are_made_up_for() {
        for alpha in [AlphaMode::MixedGroups, AlphaMode::VerlCompat] {
            let found = advantages(MixedGroupScaled { alpha, std: None });
            assert_all_close(&found, &[0.75, -0.75, 0.0, 0.0, -0.75, 0.75], 1e-15, "advantages");
        }
    }

    /// The deviation of [1, 0] is ½ (population).
    #[test]
    fn a_deviation_comes_before_the_factor() {
        let std = Some(StdSpec { ddof: 0, eps: 0.0, placement: EpsPlacement::Add });
        let found = advantages(MixedGroupScaled { std, ..MixedGroupScaled::default() });
        assert_all_close(&found, &[1.5, -1.5, 0.0, 0.0, -1.5, 1.5], 1e-15, "advantages");
    }

    /// One of four rewards is not zero: α = 4; all four rows are in a mixed group: α = 1.
    #[test]
    fn verl_counts_rewards_that_are_not_zero() {
        let of = |alpha| {
            let rows = [1.0, 0.0, 0.0, 0.0].map(|reward| RewardRow::new(0, Some(reward), 1)).to_vec();
            MixedGroupScaled { alpha, std: None }.advantages(&RewardBatch { rows }).unwrap().rows
        };
        assert_eq!(of(AlphaMode::VerlCompat), [3.0, -1.0, -1.0, -1.0].map(Advantage::Response));
        assert_eq!(of(AlphaMode::MixedGroups), [0.75, -0.25, -0.25, -0.25].map(Advantage::Response));
    }

    #[test]
    fn keeps_the_contract() {
        check_advantage_estimator(MixedGroupScaled::default());
        check_advantage_estimator(MixedGroupScaled {
            alpha: AlphaMode::VerlCompat,
            std: Some(StdSpec::default()),
        });
    }
}

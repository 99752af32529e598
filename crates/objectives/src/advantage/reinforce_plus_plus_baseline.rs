//! Deviations from the group's mean, divided by their deviation over the batch.

use firebrick_core::{AdvantageError, AdvantageEstimator, Advantages, Requirements, RewardBatch};
use serde::{Deserialize, Serialize};

use super::{
    AdvantageWeighting,
    scored_rows::{ScoredGroup, per_response, scored_groups},
    std_spec::{StdSpec, whitening},
    whitening::whiten_responses,
};
use crate::ConfigError;

/// Reward minus the group's mean, whitened over the batch (REINFORCE++ with a baseline).
///
/// ```text
/// Ã_i = R_i − mean_g
/// A_i = (Ã_i − mean Ã) / std Ã      with recentre, over the whole batch
/// A_i = Ã_i / std Ã                 without
/// ```
///
/// Where every response counts once, the mean of Ã is zero already. Where it counts once per policy token, lengths shift
/// it, and with `recentre` a group of equal rewards then has an advantage that is not zero. The public versions:
///
/// | | `weighting` | `recentre` | `std` |
/// |---|---|---|---|
/// | verl (the default) | token | true | `ddof = 1, eps = 1e-8, placement = "inside_sqrt"` |
/// | OpenRLHF | token | true | `ddof = 0, eps = 1e-4, placement = "floor"` |
/// | ms-swift | sample | false | `ddof = 1` |
///
/// Unscored rows enter neither mean nor deviation. A group with a single scored row has Ã = 0.
///
/// *Reference*: Hu et al., "REINFORCE++", 2025, arXiv:2501.03262.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReinforcePlusPlusBaseline {
    /// How much a response counts in the batch; default per token.
    pub weighting: AdvantageWeighting,
    /// Whether the mean over the batch is taken off as well; default true.
    pub recentre: bool,
    /// How the batch is divided by its deviation; default [`StdSpec::WHITENING`], also key by key.
    #[serde(deserialize_with = "whitening")]
    pub std: StdSpec,
}

impl Default for ReinforcePlusPlusBaseline {
    fn default() -> Self {
        Self { weighting: AdvantageWeighting::Token, recentre: true, std: StdSpec::WHITENING }
    }
}

impl ReinforcePlusPlusBaseline {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.std.validate().map_err(|error| error.within("std"))
    }

    /// Whitens what `of_group` makes of each group.
    pub(super) fn whitened(
        &self,
        batch: &RewardBatch,
        of_group: impl Fn(&ScoredGroup) -> Vec<f64>,
    ) -> Result<Advantages, AdvantageError> {
        let (mut rows, mut values, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for group in scored_groups(batch)? {
            values.extend(of_group(&group));
            counts.extend(group.rows.iter().map(|row| match self.weighting {
                AdvantageWeighting::Token => batch.rows[*row].len,
                AdvantageWeighting::Sample => 1,
            }));
            rows.extend(group.rows);
        }
        whiten_responses(&mut values, &counts, self.std, self.recentre);
        Ok(per_response(batch, rows.into_iter().zip(values)))
    }
}

impl AdvantageEstimator for ReinforcePlusPlusBaseline {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        self.whitened(batch, ScoredGroup::centred)
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

    fn exact(weighting: AdvantageWeighting, recentre: bool) -> ReinforcePlusPlusBaseline {
        let std = StdSpec { ddof: 0, eps: 0.0, placement: EpsPlacement::Add };
        ReinforcePlusPlusBaseline { weighting, recentre, std }
    }

    /// Rewards 1 and 0 in responses of 3 tokens and 1, and a group of equal rewards of 2 tokens each.
    fn advantages(mut estimator: ReinforcePlusPlusBaseline) -> Vec<f64> {
        let rows = [(0, 1.0, 3), (1, 1.0, 2), (0, 0.0, 1), (1, 1.0, 2)]
            .map(|(group, reward, len)| RewardRow::new(group, Some(reward), len))
            .to_vec();
        let number = |advantage| match advantage {
            Advantage::Response(advantage) => advantage,
            other => panic!("expected one number per response, found {other:?}"),
        };
        estimator.advantages(&RewardBatch { rows }).unwrap().rows.into_iter().map(number).collect()
    }

    /// Ã = 1/2 three times, −1/2 once, 0 four times: mean 1/8, variance (4 · 1/4)/8 − 1/64 = 7/64.
    #[test]
    fn a_mean_over_tokens_shifts_a_group_of_equal_rewards() {
        let root = 7_f64.sqrt();
        let expected = [3.0 / root, -1.0 / root, -5.0 / root, -1.0 / root];
        assert_all_close(&advantages(exact(AdvantageWeighting::Token, true)), &expected, 1e-14, "recentred");
        let expected = [4.0 / root, 0.0, -4.0 / root, 0.0];
        assert_all_close(&advantages(exact(AdvantageWeighting::Token, false)), &expected, 1e-14, "scaled");
    }

    /// Ã = ½, 0, −½, 0: mean 0, variance 1/8.
    #[test]
    fn with_one_count_each_the_mean_is_zero_already() {
        let root = 2_f64.sqrt();
        for recentre in [true, false] {
            let found = advantages(exact(AdvantageWeighting::Sample, recentre));
            assert_all_close(&found, &[root, 0.0, -root, 0.0], 1e-14, "advantages");
        }
    }

    #[test]
    fn unscored_rows_enter_no_statistic() {
        let of = |rewards: &[Option<f64>]| {
            let rows = rewards.iter().map(|reward| RewardRow::new(0, *reward, 2)).collect();
            ReinforcePlusPlusBaseline::default().advantages(&RewardBatch { rows }).unwrap().rows
        };
        let found = of(&[Some(1.0), None, Some(0.0)]);
        assert_eq!(found[1], Advantage::Excluded);
        assert_eq!(
            [&found[0], &found[2]],
            [&of(&[Some(1.0), Some(0.0)])[0], &of(&[Some(1.0), Some(0.0)])[1]]
        );
    }

    #[test]
    fn keeps_the_contract() {
        for weighting in [AdvantageWeighting::Token, AdvantageWeighting::Sample] {
            for recentre in [true, false] {
                check_advantage_estimator(exact(weighting, recentre));
            }
        }
        check_advantage_estimator(ReinforcePlusPlusBaseline::default());
    }
}

//! Normalised within the group, then over the batch.

use firebrick_core::{AdvantageError, AdvantageEstimator, Advantages, Requirements, RewardBatch};
use serde::{Deserialize, Serialize};

use super::{
    AdvantageWeighting, ReinforcePlusPlusBaseline,
    std_spec::{StdSpec, whitening},
};
use crate::ConfigError;

/// Advantages relative to the group as in GRPO, then brought to mean zero and deviation one over the batch.
///
/// ```text
/// Ã_i = (R_i − mean_g) / (std_g + ε)
/// A_i = (Ã_i − mean Ã) / std Ã              over the whole batch
/// ```
///
/// Unscored rows enter neither mean nor deviation. As the mean over the batch is taken off, a group of equal rewards has
/// the advantage zero only where that mean is zero, as it is when every response counts once or all are equally long.
///
/// *Reference*: Liu et al., "GDPO: Group reward-decoupled normalization policy optimization", 2026, arXiv:2601.05242, for one
/// reward.
///
/// *Differs from the paper*: which normalises several rewards within the group one by one and adds them before the batch is
/// normalised. Here a row has one reward.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GroupThenBatch {
    /// How a group is divided by its deviation; default verl's GRPO.
    pub group_std: StdSpec,
    /// How much a response counts in the batch; default per token, as in verl.
    pub weighting: AdvantageWeighting,
    /// How the batch is divided by its deviation; default [`StdSpec::WHITENING`], also key by key.
    #[serde(deserialize_with = "whitening")]
    pub batch_std: StdSpec,
}

impl Default for GroupThenBatch {
    fn default() -> Self {
        Self {
            group_std: StdSpec::default(),
            weighting: AdvantageWeighting::Token,
            batch_std: StdSpec::WHITENING,
        }
    }
}

impl GroupThenBatch {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.group_std.validate().map_err(|error| error.within("group_std"))?;
        self.batch_std.validate().map_err(|error| error.within("batch_std"))
    }
}

impl AdvantageEstimator for GroupThenBatch {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        let Self { group_std, weighting, batch_std: std } = *self;
        let over_batch = ReinforcePlusPlusBaseline { weighting, recentre: true, std };
        over_batch.whitened(batch, |group| group.normalized(Some(group_std)))
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

    fn exact(weighting: AdvantageWeighting) -> GroupThenBatch {
        let std = StdSpec { ddof: 0, eps: 0.0, placement: EpsPlacement::Add };
        GroupThenBatch { group_std: std, weighting, batch_std: std }
    }

    fn numbers(mut estimator: impl AdvantageEstimator, rows: &[(usize, f64, usize)]) -> Vec<f64> {
        let rows =
            rows.iter().map(|(group, reward, len)| RewardRow::new(*group, Some(*reward), *len)).collect();
        let number = |advantage| match advantage {
            Advantage::Response(advantage) => advantage,
            other => panic!("expected one number per response, found {other:?}"),
        };
        estimator.advantages(&RewardBatch { rows }).unwrap().rows.into_iter().map(number).collect()
    }

    /// Both groups become ±1, whatever their spread, and the third 0; over the batch the variance is 4/6.
    #[test]
    fn groups_of_different_spread_count_alike() {
        let rows = [(0, 1.0, 1), (0, 0.0, 1), (1, 50.0, 1), (1, -50.0, 1), (2, 3.0, 1), (2, 3.0, 1)];
        let scale = 1.5_f64.sqrt();
        let expected = [scale, -scale, scale, -scale, 0.0, 0.0];
        for weighting in [AdvantageWeighting::Token, AdvantageWeighting::Sample] {
            assert_all_close(&numbers(exact(weighting), &rows), &expected, 1e-14, "advantages");
        }
    }

    /// A single group with one count each is normalised already.
    #[test]
    fn one_group_is_that_of_grpo() {
        let rows = [(0, 1.0, 3), (0, 0.0, 1), (0, 0.5, 2)];
        let grpo = crate::GroupNormalized { std: Some(exact(AdvantageWeighting::Sample).group_std) };
        let found = numbers(exact(AdvantageWeighting::Sample), &rows);
        assert_all_close(&found, &numbers(grpo, &rows), 1e-14, "advantages");
    }

    #[test]
    fn keeps_the_contract() {
        check_advantage_estimator(GroupThenBatch::default());
        check_advantage_estimator(exact(AdvantageWeighting::Sample));
    }
}

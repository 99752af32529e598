//! Only the best of a group, by its margin.

use firebrick_core::{AdvantageError, AdvantageEstimator, Advantages, Requirements, RewardBatch};
use serde::{Deserialize, Serialize};

use super::{
    scored_rows::{ScoredGroup, per_response, scored_groups},
    std_spec::StdSpec,
};
use crate::ConfigError;

/// The best response of a group has its margin over the second best, all others nothing: the leave-one-out advantage of the
/// group's best reward.
///
/// ```text
/// A_i = R_max − R_second            for the one best response, divided by (std_g + ε) if a deviation is given
/// A_i = 0                           for the others, and for all when two share the best reward
/// ```
///
/// A group of a single row is an error; a group that unscored rows leave with a single scored one has the advantage zero.
///
/// *Reference*: Tang et al., "Optimizing language models for inference time objectives using reinforcement learning", 2025,
/// arXiv:2503.19595. verl calls it `grpo_passk` and divides by the default [`StdSpec`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TopMargin {
    /// How the margin is divided by the group's deviation; default not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub std: Option<StdSpec>,
}

impl TopMargin {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.std.map_or(Ok(()), |std| std.validate()).map_err(|error| error.within("std"))
    }

    fn of_group(&self, group: &ScoredGroup) -> Vec<f64> {
        let mut advantages = vec![0.0; group.rewards.len()];
        if group.is_uniform() {
            return advantages;
        }
        let mut order: Vec<usize> = (0..group.rewards.len()).collect();
        order.sort_by(|a, b| group.rewards[*b].total_cmp(&group.rewards[*a]));
        let margin = group.rewards[order[0]] - group.rewards[order[1]];
        advantages[order[0]] = margin / self.std.map_or(1.0, |std| std.divisor(&group.centred()));
        advantages
    }
}

impl AdvantageEstimator for TopMargin {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        let groups = scored_groups(batch)?;
        for group in &groups {
            group.require_size(2, "top_margin")?;
        }
        Ok(per_response(batch, groups.iter().flat_map(|group| group.with(self.of_group(group)))))
    }

    /// Groups of at least two.
    fn requirements(&self) -> Requirements {
        Requirements { min_group_size: 2, ..Requirements::default() }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Advantage, RewardRow};
    use firebrick_testkit::check_advantage_estimator;

    use super::*;
    use crate::EpsPlacement;

    fn group(mut estimator: TopMargin, rewards: &[Option<f64>]) -> Result<Vec<Advantage>, AdvantageError> {
        let rows = rewards.iter().map(|reward| RewardRow::new(1, *reward, 2)).collect();
        Ok(estimator.advantages(&RewardBatch { rows })?.rows)
    }

    /// Margin 1 − 0.25; the deviation of [1, 0, 0.25, −0.25] about 0.25 is √((0.5625 + 0.0625 + 0 + 0.25)/3) = √(7/24).
    #[test]
    fn only_the_best_has_an_advantage() {
        let rewards = [Some(0.0), Some(1.0), None, Some(0.25), Some(-0.25)];
        let zero = Advantage::Response(0.0);
        let found = group(TopMargin::default(), &rewards).unwrap();
        let best = Advantage::Response(0.75);
        assert_eq!(found, [zero.clone(), best, Advantage::Excluded, zero.clone(), zero]);
        let std = Some(StdSpec { ddof: 1, eps: 0.0, placement: EpsPlacement::Add });
        let Advantage::Response(found) = group(TopMargin { std }, &rewards).unwrap()[1] else {
            panic!("one number per response")
        };
        assert!((found - 0.75 / (7.0_f64 / 24.0).sqrt()).abs() < 1e-15);
    }

    #[test]
    fn two_that_share_the_best_reward_have_no_margin() {
        let found = group(TopMargin::default(), &[Some(1.0), Some(1.0), Some(0.0)]).unwrap();
        assert_eq!(found, vec![Advantage::Response(0.0); 3]);
    }

    #[test]
    fn a_group_of_one_is_refused_and_one_left_by_a_failed_verifier_is_not() {
        let error = group(TopMargin::default(), &[Some(1.0)]).unwrap_err();
        assert_eq!(error.to_string(), "group 1 has 1 rows; top_margin needs at least 2");
        let found = group(TopMargin::default(), &[Some(1.0), None]).unwrap();
        assert_eq!(found, [Advantage::Response(0.0), Advantage::Excluded]);
    }

    #[test]
    fn keeps_the_contract() {
        check_advantage_estimator(TopMargin::default());
        check_advantage_estimator(TopMargin { std: Some(StdSpec::default()) });
    }
}

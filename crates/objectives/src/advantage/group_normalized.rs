//! Advantages relative to the other completions of the same prompt.

use firebrick_core::{Advantage, AdvantageError, AdvantageEstimator, Advantages, Requirements, RewardBatch};
use serde::{Deserialize, Serialize};

use crate::{
    ConfigError,
    config_error::{require, require_width},
};

/// Where ε keeps a small deviation from blowing an advantage up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EpsPlacement {
    /// std + ε.
    #[default]
    Add,
    /// √(variance + ε).
    InsideSqrt,
    /// max(std, ε).
    Floor,
}

/// How rewards are divided by their standard deviation.
///
/// *Differs from the paper*: DeepSeekMath (arXiv:2402.03300) names neither the degrees of freedom nor an ε.
/// The defaults, 1 and 1e-6 added to the deviation, are those of verl's GRPO.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StdSpec {
    /// Degrees of freedom subtracted from the number of rewards: 1 for the sample, 0 for the population
    /// deviation.
    pub ddof: u8,
    /// The small number ε, in units of the reward (of its square inside the root).
    pub eps: f64,
    /// Where it stands.
    pub placement: EpsPlacement,
}

impl Default for StdSpec {
    fn default() -> Self {
        Self { ddof: 1, eps: 1e-6, placement: EpsPlacement::Add }
    }
}

impl StdSpec {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When `ddof` is not 0 or 1, or `eps` is negative or not finite.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require(self.ddof <= 1, "ddof", f64::from(self.ddof), "0 or 1")?;
        require_width("eps", self.eps)
    }

    /// What deviations from the mean are divided by. They are not all zero and number more than `ddof`.
    fn divisor(&self, deviations: &[f64]) -> f64 {
        // Scaled by the largest, so that squares neither overflow nor vanish.
        let largest = deviations.iter().fold(0.0_f64, |largest, deviation| largest.max(deviation.abs()));
        let squares: f64 = deviations.iter().map(|deviation| (deviation / largest).powi(2)).sum();
        let std = largest * (squares / (deviations.len() - usize::from(self.ddof)) as f64).sqrt();
        match self.placement {
            EpsPlacement::Add => std + self.eps,
            EpsPlacement::InsideSqrt => std.hypot(self.eps.sqrt()),
            EpsPlacement::Floor => std.max(self.eps),
        }
    }
}

/// Advantages relative to the group, one for all tokens of a response.
///
/// ```text
/// A_i = (R_i − mean_g) / (std_g + ε)      with a deviation (GRPO)
/// A_i = R_i − mean_g                      without (Dr. GRPO)
/// ```
///
/// Mean and deviation are over the scored rows of the group; unscored rows come out as
/// [`Advantage::Excluded`]. A group whose rewards are all equal, and so one with a single scored row, has
/// advantages of exactly zero.
///
/// *Reference*: Shao et al., "DeepSeekMath", 2024, arXiv:2402.03300; without a deviation: Liu et al.,
/// "Understanding R1-Zero-like training", 2025, arXiv:2503.20783.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupNormalized {
    /// How rewards are divided by their deviation; `None` leaves them centred.
    pub std: Option<StdSpec>,
}

impl Default for GroupNormalized {
    /// With the default deviation.
    fn default() -> Self {
        Self { std: Some(StdSpec::default()) }
    }
}

impl GroupNormalized {
    fn of_group(&self, rewards: &[f64]) -> Vec<f64> {
        // By equality, not by a small deviation: the mean of three times 0.1 is not 0.1 in floating point.
        if rewards.iter().all(|reward| *reward == rewards[0]) {
            return vec![0.0; rewards.len()];
        }
        let mean = rewards.iter().sum::<f64>() / rewards.len() as f64;
        let deviations: Vec<f64> = rewards.iter().map(|reward| reward - mean).collect();
        let divisor = self.std.map_or(1.0, |std| std.divisor(&deviations));
        deviations.iter().map(|deviation| deviation / divisor).collect()
    }
}

impl AdvantageEstimator for GroupNormalized {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        let mut rows = vec![Advantage::Excluded; batch.rows.len()];
        for members in batch.groups() {
            let mut scored = Vec::with_capacity(members.len());
            let mut rewards = Vec::with_capacity(members.len());
            for row in members {
                let Some(reward) = batch.rows[row].reward else { continue };
                if !reward.is_finite() {
                    return Err(AdvantageError::NonFinite { row, group: batch.rows[row].group, reward });
                }
                scored.push(row);
                rewards.push(reward);
            }
            for (row, advantage) in scored.into_iter().zip(self.of_group(&rewards)) {
                rows[row] = Advantage::Response(advantage);
            }
        }
        Ok(rows.into())
    }

    /// Groups of at least two: a single completion has nothing to be compared with.
    fn requirements(&self) -> Requirements {
        Requirements { min_group_size: 2, ..Requirements::default() }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::RewardRow;
    use firebrick_testkit::{assert_all_close, check_advantage_estimator};

    use super::*;

    fn group(mut estimator: GroupNormalized, rewards: &[Option<f64>]) -> Vec<Advantage> {
        let rows = rewards.iter().map(|reward| RewardRow::new(0, *reward, 3)).collect();
        estimator.advantages(&RewardBatch { rows }).unwrap().rows
    }

    fn scored(estimator: GroupNormalized, rewards: &[f64]) -> Vec<f64> {
        let rewards: Vec<_> = rewards.iter().copied().map(Some).collect();
        let number = |advantage| match advantage {
            Advantage::Response(advantage) => advantage,
            other => panic!("expected one number per response, found {other:?}"),
        };
        group(estimator, &rewards).into_iter().map(number).collect()
    }

    fn with(ddof: u8, eps: f64, placement: EpsPlacement) -> GroupNormalized {
        GroupNormalized { std: Some(StdSpec { ddof, eps, placement }) }
    }

    /// Mean 0.25; deviation 0.5 (sample) or 0.433013 (population).
    #[test]
    fn one_right_of_four_gives_the_golden_advantages() {
        let rewards = [1.0, 0.0, 0.0, 0.0];
        let exact = |ddof| scored(with(ddof, 0.0, EpsPlacement::Add), &rewards);
        assert_all_close(&exact(1), &[1.5, -0.5, -0.5, -0.5], 1e-14, "sample");
        let root = 3_f64.sqrt();
        assert_all_close(&exact(0), &[root, -1.0 / root, -1.0 / root, -1.0 / root], 1e-14, "population");
        assert_eq!(scored(GroupNormalized { std: None }, &rewards), [0.75, -0.25, -0.25, -0.25]);
        assert_all_close(
            &scored(GroupNormalized::default(), &rewards),
            &[0.75 / 0.500_001, -0.25 / 0.500_001, -0.25 / 0.500_001, -0.25 / 0.500_001],
            1e-14,
            "default",
        );
    }

    #[test]
    fn epsilon_stands_where_it_is_placed() {
        let first = |placement| scored(with(1, 0.75, placement), &[1.0, 0.0, 0.0, 0.0])[0];
        assert_eq!(first(EpsPlacement::Add), 0.75 / 1.25);
        assert_all_close(&[first(EpsPlacement::InsideSqrt)], &[0.75], 1e-14, "sqrt(0.25 + 0.75) = 1");
        assert_eq!(first(EpsPlacement::Floor), 1.0);
    }

    #[test]
    fn equal_rewards_give_exactly_zero() {
        for estimator in [GroupNormalized::default(), with(0, 0.0, EpsPlacement::Floor)] {
            assert_eq!(scored(estimator, &[0.1, 0.1, 0.1]), [0.0; 3]);
            assert_eq!(scored(estimator, &[7.0]), [0.0]);
        }
    }

    /// TRL #5775.
    #[test]
    fn unscored_rows_enter_no_statistic() {
        let zero = Advantage::Response(0.0);
        let lone = group(GroupNormalized::default(), &[Some(1.0), None, None, None]);
        assert_eq!(lone, [zero, Advantage::Excluded, Advantage::Excluded, Advantage::Excluded]);
        let two = group(GroupNormalized { std: None }, &[Some(1.0), None, Some(0.0), None]);
        assert_eq!(
            two,
            [Advantage::Response(0.5), Advantage::Excluded, Advantage::Response(-0.5), Advantage::Excluded]
        );
    }

    #[test]
    fn tiny_and_huge_rewards_are_normalised_alike() {
        let exact = with(1, 0.0, EpsPlacement::Add);
        for scale in [1e-200, 1.0, 1e200] {
            let found = scored(exact, &[scale, 0.0, 0.0, 0.0]);
            assert_all_close(&found, &[1.5, -0.5, -0.5, -0.5], 1e-14, "scaled");
        }
    }

    #[test]
    fn a_reward_that_is_not_finite_is_refused_by_name() {
        let rows = vec![RewardRow::new(4, Some(0.0), 1), RewardRow::new(4, Some(f64::NAN), 1)];
        let error = GroupNormalized::default().advantages(&RewardBatch { rows }).unwrap_err();
        assert!(error.to_string().starts_with("row 1 (group 4): the reward is NaN"), "{error}");
    }

    #[test]
    fn degrees_of_freedom_beyond_one_are_refused() {
        let error = StdSpec { ddof: 2, ..StdSpec::default() }.validate().unwrap_err();
        assert_eq!(error.to_string(), "ddof = 2: allowed is 0 or 1");
        assert!(StdSpec { eps: f64::NAN, ..StdSpec::default() }.validate().is_err());
    }

    #[test]
    fn keeps_the_contract() {
        check_advantage_estimator(GroupNormalized::default());
        check_advantage_estimator(GroupNormalized { std: None });
        check_advantage_estimator(with(0, 1e-8, EpsPlacement::InsideSqrt));
    }
}

//! Advantages relative to the other completions of the same prompt.

use firebrick_core::{AdvantageError, AdvantageEstimator, Advantages, Requirements, RewardBatch};

use super::{
    scored_rows::{per_response, scored_groups},
    std_spec::StdSpec,
};

/// Advantages relative to the group, one for all tokens of a response.
///
/// ```text
/// A_i = (R_i − mean_g) / (std_g + ε)      with a deviation (GRPO)
/// A_i = R_i − mean_g                      without (Dr. GRPO)
/// ```
///
/// Mean and deviation are over the scored rows of the group; unscored rows come out as
/// [`firebrick_core::Advantage::Excluded`]. A group whose rewards are all equal, and so one with a single scored row, has
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

impl AdvantageEstimator for GroupNormalized {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        let groups = scored_groups(batch)?;
        Ok(per_response(batch, groups.iter().flat_map(|group| group.with(group.normalized(self.std)))))
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

    /// Rewards 1 and 1 less penalties of 0.5 and 0.25 + 0.25: equal again; less 0 and 0.5: mean 0.75.
    #[test]
    fn penalties_in_the_reward_are_taken_off_first() {
        let row = |penalties: &[f64]| RewardRow::new(0, Some(1.0), 2).with_penalties(penalties.to_vec());
        let of = |rows: Vec<RewardRow>| {
            GroupNormalized { std: None }.advantages(&RewardBatch { rows }).unwrap().rows
        };
        assert_eq!(of(vec![row(&[0.5, 0.0]), row(&[0.25, 0.25])]), [0.0, 0.0].map(Advantage::Response));
        assert_eq!(of(vec![row(&[]), row(&[0.5, 0.0])]), [0.25, -0.25].map(Advantage::Response));
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
    fn keeps_the_contract() {
        check_advantage_estimator(GroupNormalized::default());
        check_advantage_estimator(GroupNormalized { std: None });
        check_advantage_estimator(with(0, 1e-8, EpsPlacement::InsideSqrt));
    }
}

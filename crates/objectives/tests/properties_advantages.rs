//! Laws of advantage estimators that hold for all batches, and cases worked by hand that span several of them.

use firebrick_core::{Advantage, AdvantageEstimator, Advantages, RewardBatch, RewardRow};
use firebrick_objectives::{
    AdvantageConfig, AdvantageWeighting, Aggregation, BatchScaled, BetaNormalized, Denominator, EpsPlacement,
    Gae, GreedyBaseline, GroupNormalized, GroupThenBatch, LeaveOneOut, LengthWeighted, MixedGroupScaled,
    PassAtK, ReinforcePlusPlus, ReinforcePlusPlusBaseline, SmoothStandardized, StdSpec, TopMargin,
};
use firebrick_testkit::{assert_all_close, assert_close};
use proptest::prelude::*;

const DR_GRPO: GroupNormalized = GroupNormalized { std: None };
/// A population deviation without ε.
const PLAIN: StdSpec = StdSpec { ddof: 0, eps: 0.0, placement: EpsPlacement::Add };

/// Every estimator of the crate, with each of its switches.
fn all() -> Vec<Box<dyn AdvantageEstimator>> {
    let whitened = |weighting, recentre| ReinforcePlusPlusBaseline { weighting, recentre, std: PLAIN };
    vec![
        Box::new(GroupNormalized::default()),
        Box::new(DR_GRPO),
        Box::new(LeaveOneOut),
        Box::new(ReinforcePlusPlus::default()),
        Box::new(ReinforcePlusPlus { gamma: 0.9, std: PLAIN }),
        Box::new(ReinforcePlusPlusBaseline::default()),
        Box::new(whitened(AdvantageWeighting::Sample, true)),
        Box::new(whitened(AdvantageWeighting::Token, false)),
        Box::new(GroupThenBatch::default()),
        Box::new(BatchScaled::default()),
        Box::new(LengthWeighted),
        Box::new(GreedyBaseline),
        Box::new(MixedGroupScaled::default()),
        Box::new(PassAtK::new(2)),
        Box::new(TopMargin { std: Some(StdSpec::default()) }),
        Box::new(BetaNormalized::default()),
        Box::new(SmoothStandardized::new(1)),
        Box::new(Gae { gamma: 0.99, lambda: 0.95, whiten: Some(StdSpec::WHITENING) }),
    ]
}

fn evaluate(mut estimator: impl AdvantageEstimator, batch: &RewardBatch) -> Advantages {
    estimator.advantages(batch).expect("the estimator accepts the batch")
}

/// Advantages of rows that all have a score, one number per response.
fn numbers(estimator: impl AdvantageEstimator, batch: &RewardBatch) -> Vec<f64> {
    let of = |advantage: &Advantage| match advantage {
        Advantage::Response(value) => *value,
        other => panic!("expected one number per response, found {other:?}"),
    };
    evaluate(estimator, batch).rows.iter().map(of).collect()
}

/// Advantages of rows that all have a score, one number per token.
fn tokens(estimator: impl AdvantageEstimator, batch: &RewardBatch) -> Vec<Vec<f64>> {
    let of = |advantage: &Advantage| match advantage {
        Advantage::Tokens(values) => values.clone(),
        other => panic!("expected one number per token, found {other:?}"),
    };
    evaluate(estimator, batch).rows.iter().map(of).collect()
}

/// A row with everything that an estimator may need.
fn row(group: usize, reward: Option<f64>, len: usize) -> RewardRow {
    RewardRow::new(group, reward, len)
        .with_prompt(format!("prompt {group}"))
        .with_values((0..len).map(|t| 0.1 * t as f64).collect())
        .with_greedy_reward(Some(0.25))
}

fn batch(rows: &[(usize, f64, usize)]) -> RewardBatch {
    RewardBatch { rows: rows.iter().map(|(group, reward, len)| row(*group, Some(*reward), *len)).collect() }
}

fn one_group(rewards: &[f64]) -> RewardBatch {
    batch(&rewards.iter().map(|reward| (0, *reward, 1)).collect::<Vec<_>>())
}

fn map(batch: &RewardBatch, reward: impl Fn(&RewardRow) -> f64) -> RewardBatch {
    let mut batch = batch.clone();
    for row in &mut batch.rows {
        row.reward = Some(reward(row));
    }
    batch
}

/// Three interleaved groups of four with rewards in sixteenths from 0 to 1 (so that sums are exact) and lengths of 1 to 6.
fn batches() -> impl Strategy<Value = RewardBatch> {
    prop::collection::vec((0..=16_u8, 1..7_usize), 12).prop_map(|rows| {
        let rows = rows.iter().enumerate();
        let rows = rows.map(|(index, (reward, len))| (index % 3, f64::from(*reward) / 16.0, *len));
        batch(&rows.collect::<Vec<_>>())
    })
}

fn sums(batch: &RewardBatch, advantages: &[f64], weight: impl Fn(&RewardRow) -> f64) -> Vec<f64> {
    let sum = |rows: Vec<usize>| rows.iter().map(|row| weight(&batch.rows[*row]) * advantages[*row]).sum();
    batch.groups().into_iter().map(sum).collect()
}

fn flat(advantages: &Advantages, row: usize) -> Vec<f64> {
    match &advantages.rows[row] {
        Advantage::Excluded => vec![],
        Advantage::Response(value) => vec![*value],
        Advantage::Tokens(values) => values.clone(),
    }
}

proptest! {
    #[test]
    fn the_order_of_rows_and_the_names_of_groups_do_not_matter(
        batch in batches(),
        order in Just((0..12).collect::<Vec<usize>>()).prop_shuffle(),
        unscored in prop::collection::vec(any::<bool>(), 12),
    ) {
        let mut batch = batch;
        for (index, (row, unscored)) in batch.rows.iter_mut().zip(unscored).enumerate() {
            // The first six rows, two a group, keep their score.
            if unscored && index >= 6 {
                row.reward = None;
            }
        }
        let mut moved = RewardBatch { rows: order.iter().map(|row| batch.rows[*row].clone()).collect() };
        for row in &mut moved.rows {
            row.group = 90 - 7 * row.group;
        }
        for (first, second) in all().into_iter().zip(all()) {
            let name = format!("{first:?}");
            let (before, after) = (evaluate(second, &batch), evaluate(first, &moved));
            for (place, row) in order.iter().enumerate() {
                prop_assert_eq!(batch.rows[*row].reward.is_none(), before.rows[*row] == Advantage::Excluded);
                assert_all_close(&flat(&after, place), &flat(&before, *row), 1e-9, &name);
                if !before.returns.is_empty() {
                    prop_assert_eq!(&after.returns[place], &before.returns[*row]);
                }
            }
        }
    }

    #[test]
    fn groups_of_equal_rewards_are_finite_beside_mixed_ones_and_zero_where_only_the_group_counts(
        mixed in prop::collection::vec(0.0..1.0_f64, 4),
        reward in 0.0..1.0_f64,
        len in 1..5_usize,
    ) {
        let mut rows: Vec<(usize, f64, usize)> = mixed.iter().map(|reward| (0, *reward, 3)).collect();
        rows.extend([(1, reward, len); 5]);
        let batch = batch(&rows);
        // Whose advantages a mean over the batch, the greedy completion or a critic moves.
        let moved = ["ReinforcePlusPlus {", "recentre: true", "GroupThenBatch", "GreedyBaseline", "Gae"];
        for estimator in all() {
            let name = format!("{estimator:?}");
            let found = evaluate(estimator, &batch);
            let values: Vec<f64> = (4..9).flat_map(|row| flat(&found, row)).collect();
            prop_assert!(values.iter().all(|value| value.is_finite()), "{}: {:?}", name, values);
            let zero = values.iter().all(|value| *value == 0.0);
            prop_assert!(zero || moved.iter().any(|part| name.contains(part)), "{}: {:?}", name, values);
        }
    }

    #[test]
    fn grpo_ignores_an_affine_change_of_rewards(batch in batches(), scale in 0.1..10.0_f64, shift in -5.0..5.0_f64) {
        let grpo = GroupNormalized { std: Some(PLAIN) };
        let found = numbers(grpo, &map(&batch, |row| scale * row.reward.unwrap_or(0.0) + shift));
        let expected = numbers(grpo, &batch);
        for (found, expected) in found.iter().zip(&expected) {
            prop_assert!((found - expected).abs() <= 1e-11, "{} {}", found, expected);
        }
        for sum in sums(&batch, &expected, |_| 1.0) {
            prop_assert!(sum.abs() <= 1e-12);
        }
    }

    #[test]
    fn dr_grpo_ignores_a_shift_and_scales_with_the_rewards(batch in batches(), scale in 0.1..10.0_f64) {
        let found = numbers(DR_GRPO, &map(&batch, |row| scale * (row.reward.unwrap_or(0.0) + 8.0)));
        for (found, plain) in found.iter().zip(numbers(DR_GRPO, &batch)) {
            prop_assert!((found - scale * plain).abs() <= 1e-12 * scale.max(1.0) * 10.0);
        }
    }

    #[test]
    fn leave_one_out_is_dr_grpo_enlarged_and_has_a_baseline_of_the_others_alone(
        batch in batches(),
        row in 0..12_usize,
        change in -2.0..2.0_f64,
    ) {
        let found = numbers(LeaveOneOut, &batch);
        let expected: Vec<f64> = numbers(DR_GRPO, &batch).iter().map(|value| value * 4.0 / 3.0).collect();
        assert_all_close(&found, &expected, 1e-14, "G / (G − 1)");
        for sum in sums(&batch, &found, |_| 1.0) {
            prop_assert!(sum.abs() <= 1e-13);
        }
        let mut moved = batch.clone();
        moved.rows[row].reward = moved.rows[row].reward.map(|reward| reward + change);
        let slope = numbers(LeaveOneOut, &moved)[row] - found[row];
        prop_assert!((slope - change).abs() <= 1e-12);
    }

    #[test]
    fn reinforce_plus_plus_has_mean_zero_and_variance_one_over_tokens(batch in batches(), gamma in 0.5..1.0_f64) {
        for ddof in [0, 1] {
            let found =
                tokens(ReinforcePlusPlus { gamma, std: StdSpec { ddof, ..PLAIN } }, &batch).concat();
            let number = found.len() as f64;
            let mean = found.iter().sum::<f64>() / number;
            let variance =
                found.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (number - f64::from(ddof));
            prop_assert!(mean.abs() <= 1e-12);
            prop_assert!((variance - 1.0).abs() <= 1e-12 || found.iter().all(|value| *value == 0.0));
        }
    }

    #[test]
    fn without_discount_and_penalty_reinforce_plus_plus_is_constant_in_a_response(batch in batches()) {
        for values in tokens(ReinforcePlusPlus::default(), &batch) {
            prop_assert!(values.iter().all(|value| *value == values[0]));
        }
    }

    #[test]
    fn equal_lengths_weigh_tokens_as_samples(batch in batches(), len in 1..9_usize) {
        let mut batch = batch;
        batch.rows.iter_mut().for_each(|row| row.len = len);
        let of = |weighting| {
            numbers(ReinforcePlusPlusBaseline { weighting, recentre: true, std: PLAIN }, &batch)
        };
        let (by_token, by_sample) = (of(AdvantageWeighting::Token), of(AdvantageWeighting::Sample));
        for (by_token, by_sample) in by_token.iter().zip(by_sample) {
            prop_assert!((by_token - by_sample).abs() <= 1e-12);
        }
        assert_all_close(&numbers(LengthWeighted, &batch), &numbers(DR_GRPO, &batch), 1e-12, "OPO");
    }

    #[test]
    fn length_weighted_advantages_add_up_to_zero_over_tokens(batch in batches()) {
        let found = numbers(LengthWeighted, &batch);
        for sum in sums(&batch, &found, |row| row.len as f64) {
            prop_assert!(sum.abs() <= 1e-13);
        }
    }

    #[test]
    fn pass_at_one_is_grpo_with_the_population_deviation(right in prop::collection::vec(any::<bool>(), 2..12)) {
        let batch = one_group(&right.iter().map(|right| f64::from(u8::from(*right))).collect::<Vec<_>>());
        let grpo = GroupNormalized { std: Some(StdSpec { ddof: 0, ..StdSpec::default() }) };
        assert_all_close(&numbers(PassAtK::new(1), &batch), &numbers(grpo, &batch), 1e-12, "k = 1");
    }

    /// The definition: over all sets of k that a response belongs to, the mean of (1 if any is right else 0), standardised.
    #[test]
    fn pass_at_k_is_the_mean_over_all_sets(right in prop::collection::vec(any::<bool>(), 2..9), k in 0..8_usize) {
        let n = right.len();
        let k = 1 + k % n;
        let sets: Vec<u32> = (0..1_u32 << n).filter(|set| set.count_ones() as usize == k).collect();
        let worth = |set: u32| f64::from(u8::from((0..n).any(|row| set >> row & 1 == 1 && right[row])));
        let mean = |sets: &[u32]| sets.iter().map(|set| worth(*set)).sum::<f64>() / sets.len() as f64;
        let rho = mean(&sets);
        let sigma = (rho * (1.0 - rho)).sqrt();
        let expected: Vec<f64> = (0..n)
            .map(|row| {
                let own: Vec<u32> = sets.iter().copied().filter(|set| set >> row & 1 == 1).collect();
                (mean(&own) - rho) / (sigma + 1e-6)
            })
            .collect();
        let batch = one_group(&right.iter().map(|right| f64::from(u8::from(*right))).collect::<Vec<_>>());
        let found = numbers(PassAtK::new(k), &batch);
        for (found, expected) in found.iter().zip(&expected) {
            prop_assert!((found - expected).abs() <= 1e-9, "{} {}", found, expected);
        }
        prop_assert!(found.iter().sum::<f64>().abs() <= 1e-12);
    }

    #[test]
    fn gae_of_the_whole_return_is_return_less_value(batch in batches()) {
        let found = evaluate(Gae::default(), &batch);
        for (index, row) in batch.rows.iter().enumerate() {
            let reward = row.reward.expect("the row is scored");
            let expected: Vec<f64> = row.values.iter().map(|value| reward - value).collect();
            assert_all_close(&flat(&found, index), &expected, 1e-9, "advantages");
            assert_all_close(&found.returns[index], &vec![reward; row.len], 1e-9, "returns");
        }
    }

    #[test]
    fn gae_of_one_step_is_the_error_of_the_critic(batch in batches(), gamma in 0.0..1.0_f64) {
        let found = tokens(Gae { gamma, lambda: 0.0, whiten: None }, &batch);
        for (row, found) in batch.rows.iter().zip(found) {
            let rewards = row.token_rewards().expect("the row is scored");
            let next = |t: usize| row.values.get(t + 1).copied().unwrap_or(0.0);
            let expected: Vec<f64> =
                (0..row.len).map(|t| rewards[t] + gamma * next(t) - row.values[t]).collect();
            assert_all_close(&found, &expected, 1e-9, "errors");
        }
    }

    /// V_t = γ^{L − t} R.
    #[test]
    fn a_critic_that_is_right_leaves_no_advantage(batch in batches(), gamma in 0.5..1.0_f64, lambda in 0.0..1.0_f64) {
        let mut batch = batch;
        for row in &mut batch.rows {
            let reward = row.reward.expect("the row is scored");
            row.values = (0..row.len).map(|t| gamma.powi((row.len - 1 - t) as i32) * reward).collect();
        }
        for value in tokens(Gae { gamma, lambda, whiten: None }, &batch).concat() {
            prop_assert!(value.abs() <= 1e-12);
        }
    }

    #[test]
    fn a_single_group_has_a_flat_beta_distribution(rewards in prop::collection::vec(0.0..1.0_f64, 2..9)) {
        let batch = one_group(&rewards);
        prop_assert_eq!(numbers(BetaNormalized::default(), &batch), numbers(DR_GRPO, &batch));
    }

    #[test]
    fn a_first_visit_is_plain_standardisation(batch in batches()) {
        let plain = GroupNormalized { std: Some(StdSpec { ddof: 1, ..PLAIN }) };
        let found = numbers(SmoothStandardized::new(1), &batch);
        for (found, expected) in found.iter().zip(numbers(plain, &batch)) {
            prop_assert!((found - expected).abs() <= 1e-12, "{} {}", found, expected);
        }
    }
}

#[test]
fn rescaling_one_group_changes_every_group_under_a_batch_deviation() {
    let plain = batch(&[(0, 1.0, 1), (0, 0.0, 1), (1, 1.0, 1), (1, 0.0, 1)]);
    let scale_first = |row: &RewardRow| row.reward.unwrap_or(0.0) * if row.group == 0 { 3.0 } else { 1.0 };
    let scale_all = |row: &RewardRow| 3.0 * row.reward.unwrap_or(0.0);
    let lite = BatchScaled { std: PLAIN };
    let [before, first, both] =
        [plain.clone(), map(&plain, scale_first), map(&plain, scale_all)].map(|batch| numbers(lite, &batch));
    assert_all_close(&both, &before, 1e-14, "a common scale cancels");
    assert!(first[2] < 0.5 * before[2], "{first:?} {before:?}");
    assert_all_close(
        &numbers(GroupNormalized { std: Some(PLAIN) }, &map(&plain, scale_first)),
        &before,
        1e-14,
        "GRPO",
    );
}

/// b = (10 · 1 + 0) / 100.
#[test]
fn the_length_weighted_baseline_of_the_worked_example() {
    let batch = batch(&[(0, 1.0, 10), (0, 0.0, 20), (0, 0.0, 30), (0, 0.0, 40)]);
    assert_all_close(&numbers(LengthWeighted, &batch), &[0.9, -0.1, -0.1, -0.1], 1e-14, "OPO");
}

/// One right of four: mean ¼, leave-one-out 4/3 of it, pairs as in Pass@2, and only the best under the margin.
#[test]
fn one_right_of_four_under_every_group_estimator() {
    let batch = one_group(&[1.0, 0.0, 0.0, 0.0]);
    let of = |first: f64, other: f64| [first, other, other, other];
    let third = 1.0 / 3.0;
    let root = 3_f64.sqrt();
    let sample = StdSpec { ddof: 1, ..PLAIN };
    assert_all_close(&numbers(GroupNormalized { std: Some(sample) }, &batch), &of(1.5, -0.5), 1e-14, "GRPO");
    let population = GroupNormalized { std: Some(PLAIN) };
    assert_all_close(&numbers(population, &batch), &of(root, -1.0 / root), 1e-14, "population");
    assert_all_close(&numbers(DR_GRPO, &batch), &of(0.75, -0.25), 1e-14, "Dr. GRPO");
    assert_all_close(&numbers(LeaveOneOut, &batch), &of(1.0, -third), 1e-14, "RLOO");
    let pairs = PassAtK { eps: 0.0, ..PassAtK::new(2) };
    assert_all_close(&numbers(pairs, &batch), &of(1.0, -third), 1e-14, "Pass@2");
    assert_all_close(&numbers(TopMargin::default(), &batch), &of(1.0, 0.0), 1e-14, "margin");
    assert_all_close(&numbers(BatchScaled { std: sample }, &batch), &of(1.5, -0.5), 1e-14, "LitePPO");
}

/// Statistics over the whole batch are not those of its halves: only one of them has every return equal.
#[test]
fn whitening_is_over_the_whole_batch_not_over_a_part() {
    let halves = [batch(&[(0, 1.0, 2), (0, 1.0, 2)]), batch(&[(1, 0.0, 1), (1, 1.0, 3)])];
    let whole = RewardBatch { rows: halves.iter().flat_map(|half| half.rows.clone()).collect() };
    let estimator = ReinforcePlusPlus { gamma: 1.0, std: PLAIN };
    // Seven tokens of 1 and one of 0: mean 7/8, variance 7/64.
    let (right, wrong) = (1.0 / 7_f64.sqrt(), -7.0 / 7_f64.sqrt());
    let expected = [vec![right; 2], vec![right; 2], vec![wrong], vec![right; 3]].concat();
    assert_all_close(&tokens(estimator, &whole).concat(), &expected, 1e-14, "whole");
    assert_eq!(tokens(estimator, &halves[0]).concat(), [0.0; 4]);
}

#[test]
fn a_reward_equal_to_the_greedy_one_has_no_advantage() {
    let found = tokens(GreedyBaseline, &batch(&[(0, 0.25, 4), (1, 1.0, 2)]));
    assert_eq!(found, [vec![0.0; 4], vec![0.75; 2]]);
}

#[test]
fn without_a_uniform_group_nothing_is_made_up_for() {
    let batch = batch(&[(0, 1.0, 1), (0, 0.0, 1), (1, 0.5, 1), (1, 0.0, 1)]);
    assert_eq!(numbers(MixedGroupScaled::default(), &batch), numbers(DR_GRPO, &batch));
}

/// What a mean over responses makes of the mixed group: α/N (R − mean), the same however many uniform groups there are.
#[test]
fn uniform_groups_do_not_weaken_the_mixed_ones() {
    let mixed = [(0, 1.0, 3), (0, 0.0, 5), (0, 0.0, 2), (0, 0.0, 2)];
    let share = |uniform: usize| {
        let rows = (1..=uniform).flat_map(|group| [(group, 1.0, 7); 4]);
        let batch = batch(&mixed.iter().copied().chain(rows).collect::<Vec<_>>());
        let denominator = Denominator::of(batch.rows.iter().map(|row| row.len)).expect("there are tokens");
        let advantages = numbers(MixedGroupScaled::default(), &batch);
        let weight = |row: usize| Aggregation::SeqMeanTokenMean.weight(&denominator, batch.rows[row].len);
        (0..4).map(|row| weight(row) * advantages[row]).collect::<Vec<_>>()
    };
    for uniform in [1, 2, 5] {
        assert_all_close(&share(uniform), &share(0), 1e-14, "share of the mixed group");
    }
}

/// Policy tokens only: of a mask [1, 0, 1, 0] two are left, and the outcome sits on the second.
/// γ = λ = ½, V = 0: A_2 = 1, A_1 = ½ · ½ · 1. With γ = 0 nothing reaches the first.
#[test]
fn one_decay_per_policy_token_and_no_reward_lost_on_a_tail_of_observations() {
    let row = RewardRow::new(0, Some(1.0), 2).with_values(vec![0.0; 2]);
    let batch = RewardBatch { rows: vec![row] };
    assert_eq!(tokens(Gae { gamma: 0.5, lambda: 0.5, whiten: None }, &batch), [[0.25, 1.0]]);
    assert_eq!(tokens(Gae { gamma: 0.0, lambda: 0.5, whiten: None }, &batch), [[0.0, 1.0]]);
}

/// Group rewards [1, –, –, –] and [1, 0, –, –].
#[test]
fn unscored_rows_enter_no_statistic_of_any_estimator() {
    let with =
        |rewards: [Option<f64>; 4]| RewardBatch { rows: rewards.map(|reward| row(0, reward, 2)).to_vec() };
    let (lone, pair) = (with([Some(1.0), None, None, None]), with([Some(1.0), Some(0.0), None, None]));
    let mut only = pair.clone();
    only.rows.truncate(2);
    for ((first, second), third) in all().into_iter().zip(all()).zip(all()) {
        let name = format!("{first:?}");
        let found = evaluate(first, &lone);
        assert!(flat(&found, 0).iter().all(|value| value.is_finite()), "{name}: {found:?}");
        if !["ReinforcePlusPlus {", "GreedyBaseline", "Gae"].iter().any(|own| name.starts_with(own)) {
            assert_eq!(flat(&found, 0), [0.0], "{name}");
        }
        let (found, expected) = (evaluate(second, &pair), evaluate(third, &only));
        assert_eq!(found.rows[..2], expected.rows[..], "{name}");
        assert_eq!(found.rows[2..], [Advantage::Excluded, Advantage::Excluded], "{name}");
    }
}

/// Five completions, two of which no verifier could read: five entries, each at its own place.
#[test]
fn a_failed_verifier_shifts_no_other_row() {
    let rewards = [Some(1.0), None, Some(0.0), None, Some(1.0)];
    let batch = RewardBatch { rows: rewards.map(|reward| row(0, reward, 1)).to_vec() };
    for estimator in all() {
        let name = format!("{estimator:?}");
        let found = evaluate(estimator, &batch);
        let excluded: Vec<bool> = found.rows.iter().map(|row| *row == Advantage::Excluded).collect();
        assert_eq!(excluded, [false, true, false, true, false], "{name}");
        // The margin has no winner among two best, and one wrong response makes no pair of wrong ones.
        if !["TopMargin", "PassAtK"].iter().any(|own| name.starts_with(own)) {
            assert_eq!(found.rows[0], found.rows[4], "{name}");
            assert!(flat(&found, 0)[0] > flat(&found, 2)[0], "{name}");
        }
    }
}

/// Groups of means 0, ½ and ½: α, β > 1 have density 0 at the mean 0, where R − p is zero too.
#[test]
fn the_factor_of_a_mean_of_density_zero_is_capped() {
    let batch = batch(&[(0, 0.0, 1), (0, 0.0, 1), (1, 1.0, 1), (1, 0.0, 1), (2, 0.5, 1), (2, 0.5, 1)]);
    let found = numbers(BetaNormalized::default(), &batch);
    assert_eq!((found[0], found[1], found[4], found[5]), (0.0, 0.0, 0.0, 0.0));
    assert!(found[2] > 0.0 && found[2] == -found[3] && found[2] <= 0.5e6, "{found:?}");
}

/// Visits of [1, 0], [1, 1, 1, 1] (population variances): M = ½, then ¾; S² = ¼, then (¼ + 0 + ½ · ¼)/2 = 3/16.
/// A_all = ¼ / √(3/16) = 1/√3, and visit 2 gives half of it; a third visit of ones M = 5/6, S² = (3/8 + ⅔/16)/3 = 5/36,
/// A_all = ⅙ / (√5/6) = 1/√5, a third of it.
#[test]
fn uniform_visits_to_a_mixed_history_count_less_with_every_visit() {
    let mut estimator = SmoothStandardized::new(0);
    let second = 1.0 / 3_f64.sqrt() / 2.0;
    let third = 1.0 / 5_f64.sqrt() / 3.0;
    for (rewards, expected) in
        [(vec![1.0, 0.0], vec![1.0, -1.0]), (vec![1.0; 4], vec![second; 4]), (vec![1.0; 4], vec![third; 4])]
    {
        let found = estimator.advantages(&one_group(&rewards)).expect("the visit is accepted");
        let found: Vec<f64> = (0..rewards.len()).flat_map(|row| flat(&found, row)).collect();
        assert_all_close(&found, &expected, 1e-14, "visit");
    }
}

/// The mean and the deviation of a million tokens: half 0 and half 1 once more than before.
#[test]
fn long_responses_are_whitened_to_the_last_digits() {
    let rows = (0..64).map(|index| (index, f64::from(u8::from(index % 2 == 0)), 20_000)).collect::<Vec<_>>();
    let estimator = ReinforcePlusPlus { gamma: 1.0, std: PLAIN };
    for (index, values) in tokens(estimator, &batch(&rows)).iter().enumerate() {
        assert_eq!(values.len(), 20_000);
        assert_close(values[19_999], if index % 2 == 0 { 1.0 } else { -1.0 }, 1e-12, "advantage");
    }
}

#[test]
fn a_config_builds_what_it_names() {
    let batch = batch(&[(0, 1.0, 3), (0, 0.0, 2), (1, 0.5, 1), (1, 0.25, 4)]);
    let of = |text: &str| {
        let config: AdvantageConfig = toml::from_str(text).expect("the config parses");
        config.validate().expect("the config is valid");
        (evaluate(config.build(), &batch), config.is_per_token())
    };
    let plain = |estimator: Box<dyn AdvantageEstimator>| evaluate(estimator, &batch);
    for (text, estimator, per_token) in [
        ("type = 'leave_one_out'", Box::new(LeaveOneOut) as Box<dyn AdvantageEstimator>, false),
        ("type = 'length_weighted'", Box::new(LengthWeighted), false),
        ("type = 'greedy_baseline'", Box::new(GreedyBaseline), true),
        (
            "type = 'batch_scaled'\neps = 1e-4",
            Box::new(BatchScaled { std: StdSpec { eps: 1e-4, ..StdSpec::default() } }),
            false,
        ),
        ("type = 'gae'\nlambda = 0.5", Box::new(Gae { lambda: 0.5, ..Gae::default() }), true),
        ("type = 'reinforce_plus_plus'", Box::new(ReinforcePlusPlus::default()), true),
        ("type = 'smooth_standardized'\nddof = 0", Box::new(SmoothStandardized::new(0)), false),
        ("type = 'pass_at_k'\nk = 2", Box::new(PassAtK::new(2)), false),
    ] {
        assert_eq!(of(text), (plain(estimator), per_token), "{text}");
    }
}

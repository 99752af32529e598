//! Laws that hold for all responses and batches.

use firebrick_core::{
    Advantage, AdvantageEstimator, Binding, Bounds, ClipSchedule, ImportanceEstimator, Objective,
    ResponseTerms, RewardBatch, RewardRow,
};
use firebrick_objectives::{
    Aggregation, Composed, ConstantClip, Denominator, EpsPlacement, GroupNormalized, InverseSqrtClip,
    ObjectiveConfig, PpoMin, PrefixMean, SequenceMean, SqrtRatioClip, StdSpec, TokenRatio,
};
use firebrick_testkit::{GoldenBatch, GoldenOutcome, Record, TestResponse, assert_all_close, assert_close};
use proptest::prelude::*;

fn objective(text: &str) -> impl Objective + use<> {
    text.parse::<ObjectiveConfig>().expect("the config parses").objective()
}

fn pnpo(eps_minus: f64, eps_plus: f64, value: &str) -> impl Objective + use<> {
    objective(&format!(
        "type = 'pnpo'\nschedule.eps_minus = {eps_minus}\nschedule.eps_plus = {eps_plus}\ngate.value = {value:?}"
    ))
}

fn log_weights(estimator: &dyn ImportanceEstimator, d: &[f64]) -> Vec<f64> {
    let response = TestResponse::from_log_ratios(d, &vec![1.0; d.len()]);
    let mut out = vec![0.0; d.len()];
    estimator.log_weights(&response.tokens(), &mut out);
    out
}

fn last_window(schedule: &dyn ClipSchedule, len: usize) -> Bounds {
    let response = TestResponse::from_log_ratios(&vec![0.0; len], &vec![1.0; len]);
    let mut out = vec![Bounds::OPEN; len];
    schedule.bounds(&response.tokens(), &mut out);
    out[len - 1]
}

fn evaluate(objective: &dyn Objective, d: &[f64], advantages: &[f64]) -> ResponseTerms {
    objective.evaluate(&TestResponse::from_log_ratios(d, advantages).tokens(), 1.0)
}

fn recipes() -> Vec<Box<dyn Objective>> {
    vec![
        Box::new(objective("type = 'grpo'\nkl.coefficient = 0.0")),
        Box::new(objective("type = 'dapo'")),
        Box::new(objective("type = 'gspo'")),
        Box::new(objective("type = 'tapo'")),
        Box::new(pnpo(0.2, 0.28, "weighted_log_prob")),
    ]
}

fn log_ratios(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(-1.5..1.5, len)
}

fn tokens(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(f64, f64)>> {
    prop::collection::vec((-1.0..1.0, -2.0..2.0), len)
}

#[test]
fn without_drift_every_recipe_is_the_plain_policy_gradient() {
    let advantages = [1.5, -0.7, 0.0, 2.0];
    let expected = [
        ("GRPO", advantages),
        ("DAPO", advantages),
        ("GSPO spreads the mean", [0.7; 4]),
        ("TAPO", advantages),
        ("PNPO", advantages),
    ];
    assert_eq!(recipes().len(), expected.len());
    for (objective, (name, expected)) in recipes().into_iter().zip(expected) {
        let terms = evaluate(objective.as_ref(), &[0.0; 4], &advantages);
        assert_all_close(&terms.coefficients, &expected, 1e-14, name);
        assert_eq!(terms.bindings, [Binding::None; 4], "{name}");
    }
}

#[test]
fn zero_advantages_have_neither_loss_nor_gradient() {
    for objective in recipes() {
        let terms = evaluate(objective.as_ref(), &[0.5, -2.0, 3.0], &[0.0; 3]);
        assert_eq!((terms.loss, terms.coefficients), (0.0, vec![0.0; 3]), "{objective:?}");
    }
}

/// GRPO: four cases of the sign and the side.
#[test]
fn grpo_keeps_the_gradient_of_moves_that_correct_a_token() {
    let objective = objective("type = 'grpo'\nkl.coefficient = 0.0");
    let up = 1.5_f64.ln();
    let found = evaluate(&objective, &[up, -up, up, -up], &[1.0, 1.0, -1.0, -1.0]).coefficients;
    assert_all_close(&found, &[0.0, 1.0 / 1.5, -1.5, 0.0], 1e-14, "coefficients");
}

#[test]
fn the_token_mean_weighs_tokens_alike_whatever_their_row() {
    let denominator = Denominator::of([100, 3, 1]).expect("there are tokens");
    let weights = [100, 3, 1].map(|len| Aggregation::TokenMean.weight(&denominator, len));
    assert_eq!(weights, [1.0 / 104.0; 3]);
}

/// SkyRL #925: 100 tokens whose loss is 0.5 and 900 whose loss is 0.3 have the token mean (50 + 270)/1000 = 0.32, and not the
/// 0.4 of a mean of two means, wherever the batch is cut. Without drift J = A = −loss, and the coefficients are A/1000.
#[test]
fn the_token_mean_of_unequal_micro_batches_is_not_the_mean_of_their_means() {
    let objective = objective("type = 'dapo'");
    let rows = [vec![(100, 0.5), (900, 0.3)], vec![(50, 0.5), (50, 0.5), (1, 0.3), (899, 0.3)]];
    for rows in rows {
        let denominator = Denominator::of(rows.iter().map(|(len, _)| *len)).expect("there are tokens");
        let terms = rows.iter().map(|(len, loss)| {
            let response = TestResponse::from_log_ratios(&vec![0.0; *len], &vec![-loss; *len]);
            let weight = Aggregation::TokenMean.weight(&denominator, *len);
            let terms = objective.evaluate(&response.tokens(), weight);
            assert_all_close(&terms.coefficients, &vec![-loss / 1000.0; *len], 1e-14, "coefficients");
            terms.loss
        });
        let losses: Vec<f64> = terms.collect();
        for cut in 0..=losses.len() {
            let (first, second) = losses.split_at(cut);
            let total = first.iter().sum::<f64>() + second.iter().sum::<f64>();
            assert_close(total, 0.32, 1e-12, "loss");
        }
    }
}

#[test]
fn a_longer_response_counts_more_under_a_sum_and_alike_under_a_mean() {
    let denominator = Denominator::of([10, 20]).expect("there are tokens");
    let share = |mode: Aggregation, len: usize| mode.weight(&denominator, len) * len as f64;
    for mode in [Aggregation::SeqMeanTokenSum, Aggregation::SeqMeanTokenSumNorm { norm: 32.0 }] {
        assert_close(share(mode, 20), 2.0 * share(mode, 10), 1e-14, "sum");
    }
    for mode in [Aggregation::SeqMeanTokenMean, Aggregation::SeqSumTokenMean] {
        assert_close(share(mode, 20), share(mode, 10), 1e-14, "mean");
    }
}

/// Acceptance depends on a token's own weight: the third is rejected, and the fourth, whose prefix has
/// recovered, is not.
#[test]
fn a_rejected_token_does_not_reject_those_after_it() {
    let terms = evaluate(&pnpo(0.2, 0.2, "weighted_log_prob"), &[0.0, 0.0, 0.9, -0.9], &[1.0; 4]);
    assert_eq!(terms.bindings, [Binding::None, Binding::None, Binding::High, Binding::None]);
}

/// The window of PNPO is closed relative to the end, that of TAPO relative to the beginning.
#[test]
fn the_last_window_is_the_base_window() {
    for len in [2, 3, 100, 20_000] {
        let base = Bounds::around_one(3e-4, 4e-4);
        assert_eq!(last_window(&InverseSqrtClip::default(), len), base);
        let pnpo = SqrtRatioClip { eps_minus: 3e-4, eps_plus: 4e-4, interval: Default::default() };
        assert_eq!(last_window(&pnpo, len), base);
        assert_eq!(last_window(&ConstantClip { low: 3e-4, high: 4e-4 }, len), base);
    }
}

/// Observation tokens between policy tokens, whatever their log-probs, change nothing at the policy tokens.
#[test]
fn observation_tokens_change_nothing_even_when_they_are_not_finite() {
    let dense = serde_json::json!({
        "mask": [[1, 1, 1]],
        "old_logprobs": [[-1.0, -2.0, -0.5]],
        "logprobs": [[-1.3, -1.5, -0.75]],
        "advantages": [1.25],
    });
    let holed = serde_json::json!({
        "mask": [[0, 1, 0, 1, 0, 0, 1, 0]],
        "old_logprobs": [["nan", -1.0, 200.0, -2.0, "-inf", 0, -0.5, "nan"]],
        "logprobs": [["nan", -1.3, "inf", -1.5, 0, 0, -0.75, "inf"]],
        "advantages": [1.25],
    });
    let outcome = |arrays, objective: &dyn Objective| {
        let rows = GoldenBatch::new(Record::new(arrays)).rows("mask", "advantages");
        GoldenOutcome::of(objective, &rows, |len| 1.0 / len as f64)
    };
    for objective in recipes() {
        let dense = outcome(dense.clone(), objective.as_ref());
        let holed = outcome(holed.clone(), objective.as_ref());
        assert_eq!(dense.loss, holed.loss);
        assert_eq!(dense.bindings, holed.bindings);
        let [a, b, c] = dense.grad[0][..] else { panic!("three columns") };
        assert_eq!(holed.grad[0], [0.0, a, 0.0, b, 0.0, 0.0, c, 0.0]);
        assert!(dense.grad[0].iter().any(|grad| *grad != 0.0) || dense.bindings[2] != Binding::None);
    }
}

fn advantages(std: Option<StdSpec>, rewards: &[f64]) -> Vec<f64> {
    let rows = rewards.iter().map(|reward| RewardRow::new(0, Some(*reward), 1)).collect();
    let found = GroupNormalized { std }.advantages(&RewardBatch { rows }).expect("rewards are finite");
    let number = |row: &Advantage| match row {
        Advantage::Response(value) => *value,
        other => panic!("expected one number per response, found {other:?}"),
    };
    found.rows.iter().map(number).collect()
}

const NO_EPS: StdSpec = StdSpec { ddof: 1, eps: 0.0, placement: EpsPlacement::Add };

fn independent_loss(mode: Aggregation, batch: &[Vec<(f64, f64)>]) -> f64 {
    let surrogate = |(d, a): &(f64, f64)| (d.exp() * a).min(d.exp().clamp(0.8, 1.2) * a);
    let sums: Vec<(f64, f64)> =
        batch.iter().map(|row| (row.iter().map(surrogate).sum(), row.len() as f64)).collect();
    let tokens: f64 = sums.iter().map(|(_, len)| len).sum();
    let sequences = sums.iter().filter(|(_, len)| *len > 0.0).count() as f64;
    let total: f64 = sums.iter().map(|(sum, _)| sum).sum();
    let means: f64 = sums.iter().filter(|(_, len)| *len > 0.0).map(|(sum, len)| sum / len).sum();
    -match mode {
        Aggregation::TokenMean => total / tokens,
        Aggregation::TokenSum => total,
        Aggregation::SeqMeanTokenMean => means / sequences,
        Aggregation::SeqMeanTokenSum => total / sequences,
        Aggregation::SeqMeanTokenSumNorm { norm } => total / sequences / norm,
        Aggregation::SeqSumTokenMean => means,
    }
}

proptest! {
    /// The denominator is that of the whole batch, so how the batch is cut changes neither loss nor
    /// coefficients.
    #[test]
    fn every_partition_into_micro_batches_gives_the_same_loss_and_coefficients(
        batch in prop::collection::vec(tokens(0..9), 1..12),
        cuts in prop::collection::vec(0usize..4, 12),
    ) {
        let Ok(denominator) = Denominator::of(batch.iter().map(Vec::len)) else { return Ok(()) };
        let objective = objective("type = 'grpo'\nkl.coefficient = 0.0");
        for mode in [
            Aggregation::TokenMean,
            Aggregation::TokenSum,
            Aggregation::SeqMeanTokenMean,
            Aggregation::SeqMeanTokenSum,
            Aggregation::SeqMeanTokenSumNorm { norm: 16.0 },
            Aggregation::SeqSumTokenMean,
        ] {
            let row = |row: &[(f64, f64)]| {
                let (d, a): (Vec<f64>, Vec<f64>) = row.iter().copied().unzip();
                let weight = mode.weight(&denominator, row.len());
                objective.evaluate(&TestResponse::from_log_ratios(&d, &a).tokens(), weight)
            };
            let whole: Vec<ResponseTerms> = batch.iter().map(|tokens| row(tokens)).collect();
            let expected = independent_loss(mode, &batch);
            assert_close(whole.iter().map(|terms| terms.loss).sum(), expected, 1e-10, "whole batch");

            let mut split = 0.0;
            for micro in 0..4 {
                let members = (0..batch.len()).filter(|index| cuts[*index] == micro);
                split += members
                    .map(|index| {
                        let terms = row(&batch[index]);
                        assert_eq!(terms.coefficients, whole[index].coefficients);
                        terms.loss
                    })
                    .sum::<f64>();
            }
            assert_close(split, expected, 1e-10, "micro-batches");
        }
    }

    #[test]
    fn a_change_of_one_log_ratio_reaches_that_prefix_weight_and_all_later_ones_only(
        d in log_ratios(1..30), at in any::<prop::sample::Index>(), by in 0.01..1.0_f64,
    ) {
        let at = at.index(d.len());
        let mut moved = d.clone();
        moved[at] += by;
        let (before, after) =
            (log_weights(&PrefixMean::default(), &d), log_weights(&PrefixMean::default(), &moved));
        prop_assert_eq!(&before[..at], &after[..at]);
        for t in at..d.len() {
            assert_close(after[t] - before[t], by / (t + 1) as f64, 1e-6, "later weight");
        }
    }

    #[test]
    fn the_prefix_mean_begins_as_the_token_ratio_and_ends_as_the_sequence_mean(d in log_ratios(1..30)) {
        let prefix = log_weights(&PrefixMean::default(), &d);
        assert_eq!(prefix[0], log_weights(&TokenRatio, &d)[0]);
        assert_close(prefix[d.len() - 1], log_weights(&SequenceMean::default(), &d)[0], 1e-12, "last");
    }

    #[test]
    fn a_constant_drift_makes_all_three_weights_equal(d in -2.0..2.0_f64, len in 1usize..40) {
        let d = vec![d; len];
        let expected = log_weights(&TokenRatio, &d);
        assert_all_close(&log_weights(&PrefixMean::default(), &d), &expected, 1e-12, "prefix");
        assert_all_close(&log_weights(&SequenceMean::default(), &d), &expected, 1e-12, "sequence");
    }

    #[test]
    fn scaling_the_log_ratios_scales_the_log_weights(d in log_ratios(1..20), factor in -3.0..3.0_f64) {
        let scaled: Vec<f64> = d.iter().map(|d| factor * d).collect();
        let estimators: [&dyn ImportanceEstimator; 3] =
            [&TokenRatio, &SequenceMean::default(), &PrefixMean::default()];
        for estimator in estimators {
            let expected: Vec<f64> =
                log_weights(estimator, &d).iter().map(|weight| factor * weight).collect();
            assert_all_close(&log_weights(estimator, &scaled), &expected, 1e-8, "scaled");
        }
    }

    #[test]
    fn the_order_of_tokens_does_not_change_a_sequence_mean(d in log_ratios(1..20)) {
        let mut reversed = d.clone();
        reversed.reverse();
        let (a, b) =
            (log_weights(&SequenceMean::default(), &d), log_weights(&SequenceMean::default(), &reversed));
        assert_all_close(&a, &b, 1e-8, "sequence");
    }

    /// One token: GSPO is GRPO with its own bounds, and TAPO is GRPO with a width of 0.2.
    #[test]
    fn on_one_token_the_recipes_are_grpo(d in -3.0..3.0_f64, advantage in -2.0..2.0_f64) {
        let token = |clip, objective: &dyn Objective| {
            let grpo = Composed::new(TokenRatio, clip, PpoMin::default());
            assert_eq!(
                evaluate(objective, &[d], &[advantage]),
                evaluate(&grpo, &[d], &[advantage])
            );
        };
        token(ConstantClip { low: 3e-4, high: 4e-4 }, &objective("type = 'gspo'"));
        let tapo = objective("type = 'tapo'\ngate.outer = { type = 'open' }");
        token(ConstantClip { low: 0.2, high: 0.2 }, &tapo);
    }

    /// The last token of TAPO has the weight and the window of GSPO.
    #[test]
    fn on_the_last_token_tapo_is_gspo(d in log_ratios(2..20), advantage in -2.0..2.0_f64) {
        let a = vec![advantage; d.len()];
        let tapo = objective("type = 'tapo'\ngate.outer = { type = 'open' }");
        let (tapo, gspo) =
            (evaluate(&tapo, &d, &a), evaluate(&objective("type = 'gspo'"), &d, &a));
        let last = d.len() - 1;
        assert_close(tapo.log_weights[last], gspo.log_weights[last], 1e-12, "log-weight");
        assert_close(tapo.coefficients[last], gspo.coefficients[last], 1e-9, "coefficient");
        prop_assert_eq!(tapo.bindings[last], gspo.bindings[last]);
    }

    #[test]
    fn all_tokens_of_a_clipped_response_lose_their_gradient_under_gspo(
        d in 0.001..1.0_f64, len in 1usize..9,
    ) {
        let objective = objective("type = 'gspo'");
        let good = evaluate(&objective, &vec![d; len], &vec![1.0; len]);
        prop_assert_eq!(good.coefficients, vec![0.0; len]);
        let bad = evaluate(&objective, &vec![-d; len], &vec![-1.0; len]);
        prop_assert_eq!(bad.coefficients, vec![0.0; len]);
    }

    #[test]
    fn flipping_the_advantages_flips_every_coefficient_of_pnpo(tokens in tokens(1..20)) {
        let objective = pnpo(0.1, 0.2, "weighted_log_prob");
        let (d, a): (Vec<f64>, Vec<f64>) = tokens.into_iter().unzip();
        let flipped: Vec<f64> = a.iter().map(|a| -a).collect();
        let (plus, minus) = (evaluate(&objective, &d, &a), evaluate(&objective, &d, &flipped));
        let negated: Vec<f64> = minus.coefficients.iter().map(|coefficient| -coefficient).collect();
        prop_assert_eq!(plus.coefficients, negated);
        prop_assert_eq!(plus.bindings, minus.bindings);
    }

    /// At a fixed position the prefix mean orders responses as the product of ratios does.
    #[test]
    fn the_prefix_mean_keeps_sign_and_order_of_the_cumulative_ratio(
        rows in (1usize..20).prop_flat_map(|len| (log_ratios(len..len + 1), log_ratios(len..len + 1)))
    ) {
        let product = |d: &[f64]| d.iter().sum::<f64>();
        let (a, b) = (
            log_weights(&PrefixMean::default(), &rows.0),
            log_weights(&PrefixMean::default(), &rows.1),
        );
        for t in 0..a.len() {
            let (first, second) = (product(&rows.0[..=t]), product(&rows.1[..=t]));
            if first.abs() > 1e-9 {
                prop_assert_eq!(a[t] > 0.0, first > 0.0);
            }
            if (first - second).abs() > 1e-9 {
                prop_assert_eq!(a[t] < b[t], first < second);
            }
        }
    }

    #[test]
    fn normalised_advantages_ignore_scale_and_offset_of_the_rewards_and_sum_to_zero(
        rewards in prop::collection::vec(-3.0..3.0_f64, 2..12),
        scale in 0.1..10.0_f64,
        offset in -5.0..5.0_f64,
    ) {
        let spread = rewards.iter().fold(0.0_f64, |spread, reward| spread.max((reward - rewards[0]).abs()));
        prop_assume!(spread > 1e-2);
        let moved: Vec<f64> = rewards.iter().map(|reward| scale * reward + offset).collect();
        let normalised = advantages(Some(NO_EPS), &rewards);
        assert_all_close(&advantages(Some(NO_EPS), &moved), &normalised, 1e-8, "normalised");
        prop_assert!(normalised.iter().sum::<f64>().abs() < 1e-9);

        let centred = advantages(None, &rewards);
        let scaled: Vec<f64> = centred.iter().map(|advantage| scale * advantage).collect();
        assert_all_close(&advantages(None, &moved), &scaled, 1e-8, "centred");
        prop_assert!(centred.iter().sum::<f64>().abs() < 1e-9);
    }
}

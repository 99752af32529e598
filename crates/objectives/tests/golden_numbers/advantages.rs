//! Advantages of verl and TRL, and the rewards that they start from.

use firebrick_core::{Advantage, AdvantageError, AdvantageEstimator, Advantages, RewardBatch, RewardRow};
use firebrick_objectives::{
    AlphaMode, BatchScaled, EpsPlacement, Gae, GreedyBaseline, GroupNormalized, GroupThenBatch, KlEstimator,
    LeaveOneOut, LengthWeighted, MixedGroupScaled, OptimalTokenBaseline, ReinforcePlusPlus,
    ReinforcePlusPlusBaseline, StdSpec, TopMargin,
};
use firebrick_testkit::{Record, load_records};

use crate::support::{FOLDER, Report, list_error, relative_error as error};

const VERL_FILE: &str = "verl_advantages.json";
const TRL_FILE: &str = "trl_advantages.json";
const MISC: &str = "verl_misc.json";
const EXACT: f64 = 1e-11;
/// verl's means over a mask divide by n + 1e-8.
const VERL: f64 = 5e-8;
/// Where the other side computed in single precision.
const SINGLE: f64 = 1e-6;

/// Where our numbers are not those of verl on purpose, with the reason. A formula of verl's in this file gives its numbers all
/// the same.
const DIFFERENCES: &[(&str, &str)] = &[
    ("grpo mixed", LONE_RAW),
    ("grpo_vectorized mixed", LONE_RAW),
    ("reinforce_plus_plus_baseline mixed", LONE_RAW),
    ("rloo mixed", LONE_REFUSED),
    ("rloo_vectorized mixed", LONE_REFUSED),
    ("opo mixed", LONE_RAW),
    ("gpg mixed", LONE_RAW),
    ("gdpo mixed", LONE_RAW),
    ("optimal_token_baseline mixed_zerotailFalse", LONE_RAW),
];
const LONE_RAW: &str = "a row that is alone in its group keeps its raw reward there; here it has nothing to be \
    compared with, and its advantage is zero";
const LONE_REFUSED: &str =
    "a row that is alone in its group has an advantage there; here such a group is an error";

/// A fixture's arrays, and which mask tells its policy tokens.
struct Inputs {
    arrays: Record,
    mask: Vec<Vec<f64>>,
}

impl Inputs {
    fn new(mask: &str) -> Self {
        let arrays = Record::load(format!("{FOLDER}/inputs.json"));
        Self { mask: arrays.table(mask), arrays }
    }

    fn gather(&self, index: usize, row: &[f64]) -> Vec<f64> {
        self.mask[index].iter().zip(row).filter(|(mask, _)| **mask != 0.0).map(|(_, value)| *value).collect()
    }

    fn tokens(&self, key: &str) -> Vec<Vec<f64>> {
        self.arrays.table(key).iter().enumerate().map(|(index, row)| self.gather(index, row)).collect()
    }

    fn lengths(&self) -> Vec<usize> {
        self.mask.iter().map(|mask| mask.iter().filter(|value| **value != 0.0).count()).collect()
    }

    fn groups(&self, key: &str) -> Vec<usize> {
        self.arrays.numbers(key).into_iter().map(|group| group as usize).collect()
    }

    /// Rows with one reward each.
    fn outcomes(&self, groups: &str, rewards: &[f64]) -> RewardBatch {
        let rows = self.groups(groups).into_iter().zip(rewards).zip(self.lengths());
        RewardBatch {
            rows: rows.map(|((group, reward), len)| RewardRow::new(group, Some(*reward), len)).collect(),
        }
    }

    /// Rows with a reward per token: no outcome, and penalties of the other sign.
    fn dense(&self) -> RewardBatch {
        let baselines = self.arrays.numbers("reward_baselines");
        let rows = self.tokens("token_rewards_dense").into_iter().zip(self.tokens("values")).enumerate();
        let row = |(index, (rewards, values)): (usize, (Vec<f64>, Vec<f64>))| {
            RewardRow::new(index, Some(0.0), rewards.len())
                .with_penalties(rewards.iter().map(|reward| -reward).collect())
                .with_values(values)
                .with_greedy_reward(Some(baselines[index]))
        };
        RewardBatch { rows: rows.map(row).collect() }
    }
}

fn evaluate(mut estimator: impl AdvantageEstimator, batch: &RewardBatch) -> Advantages {
    estimator.advantages(batch).expect("the estimator accepts the batch")
}

/// One number per token.
fn expand(advantages: &Advantages, lengths: &[usize]) -> Vec<Vec<f64>> {
    let of = |(advantage, len): (&Advantage, &usize)| match advantage {
        Advantage::Response(value) => vec![*value; *len],
        Advantage::Tokens(values) => values.clone(),
        Advantage::Excluded => panic!("all rows are scored"),
    };
    advantages.rows.iter().zip(lengths).map(of).collect()
}

/// Largest error of one value per policy token against a table [B, T].
fn worst(inputs: &Inputs, found: &[Vec<f64>], expected: &[Vec<f64>]) -> f64 {
    assert_eq!(found.len(), expected.len(), "rows");
    let mut worst = 0.0_f64;
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let expected = inputs.gather(index, expected);
        assert_eq!(found.len(), expected.len(), "tokens of row {index}");
        worst = found.iter().zip(expected).fold(worst, |worst, (found, expected)| {
            let error = error(*found, expected);
            assert!(!error.is_nan(), "row {index}: {found} {expected}");
            worst.max(error)
        });
    }
    worst
}

/// Largest error relative to the largest number of the table: a return less its baseline loses digits.
fn worst_of_largest(inputs: &Inputs, found: &[Vec<f64>], expected: &[Vec<f64>]) -> f64 {
    let expected: Vec<f64> =
        expected.iter().enumerate().flat_map(|(index, row)| inputs.gather(index, row)).collect();
    let found = found.concat();
    assert_eq!(found.len(), expected.len(), "tokens");
    let largest = expected.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    found
        .iter()
        .zip(&expected)
        .map(|(found, expected)| (found - expected).abs() / largest)
        .fold(0.0, f64::max)
}

/// `values` with what verl gives a row that is alone in its group.
fn with_lone(batch: &RewardBatch, mut values: Vec<f64>, lone: impl Fn(f64) -> f64) -> Vec<f64> {
    for members in batch.groups() {
        if let [row] = members[..] {
            values[row] = lone(batch.rows[row].reward.expect("all rows are scored"));
        }
    }
    values
}

/// The batch without rows that are alone in their group, and the indices of what is left.
fn without_lone(batch: &RewardBatch) -> (RewardBatch, Vec<usize>) {
    let mut kept: Vec<usize> =
        batch.groups().into_iter().filter(|members| members.len() > 1).flatten().collect();
    kept.sort_unstable();
    (RewardBatch { rows: kept.iter().map(|row| batch.rows[*row].clone()).collect() }, kept)
}

fn numbers(advantages: &Advantages) -> Vec<f64> {
    let of = |advantage: &Advantage| match advantage {
        Advantage::Response(value) => *value,
        other => panic!("expected one number per response, found {other:?}"),
    };
    advantages.rows.iter().map(of).collect()
}

/// verl's whitening of one value per response over all tokens.
fn whitened(batch: &RewardBatch, values: &[f64]) -> Vec<Vec<f64>> {
    let rows = batch.rows.iter().zip(values);
    let rows = rows.map(|(row, value)| RewardRow::new(row.group, Some(*value), row.len)).collect();
    let lengths: Vec<usize> = batch.rows.iter().map(|row| row.len).collect();
    expand(&evaluate(ReinforcePlusPlus::default(), &RewardBatch { rows }), &lengths)
}

/// One value per response at all of its tokens.
fn broadcast(batch: &RewardBatch, values: &[f64]) -> Vec<Vec<f64>> {
    batch.rows.iter().zip(values).map(|(row, value)| vec![*value; row.len]).collect()
}

/// The advantages that verl's `name` stands for on rows of one reward each: ours, and, where they differ on purpose, those of
/// verl.
fn of_outcomes(inputs: &Inputs, name: &str, variant: &str) -> Result<Vec<Vec<f64>>, AdvantageError> {
    let mixed = variant.starts_with("mixed");
    let (groups, scores) =
        if mixed { ("group_index_mixed", "outcome_scores_mixed") } else { ("group_index", "outcome_scores") };
    let batch = inputs.outcomes(groups, &inputs.arrays.numbers(scores));
    let std = (!variant.ends_with("normFalse")).then(StdSpec::default);
    let verl_gpg = MixedGroupScaled { alpha: AlphaMode::VerlCompat, std: None };
    // verl gives a lone row the mean 0 and the deviation 1, to which ε is added in single precision.
    let by_deviation = |reward: f64| reward / std.map_or(1.0, |std| f64::from(1.0 + std.eps as f32));
    let grpo = |batch: &RewardBatch| {
        with_lone(batch, numbers(&evaluate(GroupNormalized { std }, batch)), by_deviation)
    };
    let found = match name {
        "grpo" | "grpo_vectorized" => broadcast(&batch, &grpo(&batch)),
        "grpo_passk" => expand(&TopMargin { std }.advantages(&batch)?, &inputs.lengths()),
        "reinforce_plus_plus_baseline" if mixed => {
            let centred = numbers(&evaluate(GroupNormalized { std: None }, &batch));
            whitened(&batch, &with_lone(&batch, centred, |reward| reward))
        }
        "reinforce_plus_plus_baseline" => {
            expand(&evaluate(ReinforcePlusPlusBaseline::default(), &batch), &inputs.lengths())
        }
        "rloo" | "rloo_vectorized" => {
            let (several, kept) = without_lone(&batch);
            if kept.len() < batch.rows.len() {
                let refused = LeaveOneOut.advantages(&batch);
                assert!(matches!(refused, Err(AdvantageError::GroupTooSmall { .. })), "{refused:?}");
            }
            let mut values = vec![0.0; batch.rows.len()];
            for (row, value) in kept.into_iter().zip(numbers(&evaluate(LeaveOneOut, &several))) {
                values[row] = value;
            }
            let lone = |reward: f64| if name == "rloo" { reward } else { 0.0 };
            broadcast(&batch, &with_lone(&batch, values, lone))
        }
        "opo" => {
            let values = numbers(&evaluate(LengthWeighted, &batch));
            broadcast(&batch, &with_lone(&batch, values, |reward| reward))
        }
        "gpg" => {
            let nonzero = batch.rows.iter().filter(|row| row.reward != Some(0.0)).count();
            let alpha = batch.rows.len() as f64 / nonzero as f64;
            let values = numbers(&evaluate(verl_gpg, &batch));
            broadcast(&batch, &with_lone(&batch, values, |reward| alpha * reward))
        }
        "gdpo" if variant.ends_with("two_rewards_w1_0.5") => {
            let second = inputs.outcomes(groups, &inputs.arrays.numbers("second_reward"));
            let sum: Vec<f64> =
                grpo(&batch).iter().zip(grpo(&second)).map(|(first, second)| first + 0.5 * second).collect();
            whitened(&batch, &sum)
        }
        "gdpo" if mixed => whitened(&batch, &grpo(&batch)),
        "gdpo" => expand(&evaluate(GroupThenBatch::default(), &batch), &inputs.lengths()),
        other => panic!("unknown estimator {other}"),
    };
    if mixed && name != "grpo_passk" {
        assert_lone_rows_are_ours(&batch, name, std, &found);
    }
    Ok(found)
}

/// Where a lone row does not touch the others, ours must be those of verl but for that row, and zero there.
fn assert_lone_rows_are_ours(batch: &RewardBatch, name: &str, std: Option<StdSpec>, verl: &[Vec<f64>]) {
    let ours = match name {
        "grpo" | "grpo_vectorized" => evaluate(GroupNormalized { std }, batch),
        "opo" => evaluate(LengthWeighted, batch),
        "gpg" => evaluate(MixedGroupScaled { alpha: AlphaMode::VerlCompat, std: None }, batch),
        _ => return,
    };
    for (row, (ours, verl)) in numbers(&ours).into_iter().zip(verl).enumerate() {
        let lone = batch.rows.iter().filter(|other| other.group == batch.rows[row].group).count() == 1;
        assert!(if lone { ours == 0.0 && verl[0] != 0.0 } else { ours == verl[0] }, "{name} {row}");
    }
}

fn with_group(mut row: RewardRow, group: usize) -> RewardRow {
    row.group = group;
    row
}

/// The optimal token baseline with verl's rule for a row that is alone in its group, which keeps its returns.
fn token_baseline(inputs: &Inputs, groups: &str, raw_tail: bool, weighted: bool) -> Vec<Vec<f64>> {
    let (log_probs, squares) = (inputs.tokens("old_logprobs"), inputs.tokens("sum_pi_squared"));
    let sampled = inputs.tokens("rollout_logprobs");
    let mut batch = inputs.dense();
    for (row, group) in inputs.groups(groups).into_iter().enumerate() {
        let learner = log_probs[row].clone();
        let ratios = learner.iter().zip(&sampled[row]).map(|(p, q)| (p - q).exp().min(2.0)).collect();
        let weights = if weighted { ratios } else { Vec::new() };
        batch.rows[row] = with_group(batch.rows[row].clone(), group)
            .with_collision_probabilities(learner, squares[row].clone())
            .with_weights(weights);
    }
    let mut found = expand(&evaluate(OptimalTokenBaseline { raw_tail }, &batch), &inputs.lengths());
    let raw = expand(&evaluate(OptimalTokenBaseline { raw_tail: true }, &batch), &inputs.lengths());
    for row in batch.groups().into_iter().filter(|members| members.len() == 1).flatten() {
        if !raw_tail {
            assert!(found[row].iter().all(|advantage| *advantage == 0.0));
        }
        found[row].clone_from(&raw[row]);
    }
    found
}

/// What a verl record should hold, one number per policy token.
struct Found {
    inputs: Inputs,
    advantages: Vec<Vec<f64>>,
    /// Present where verl's returns are not its advantages.
    returns: Option<Vec<Vec<f64>>>,
}

fn of_verl(name: &str, variant: &str) -> Result<Found, AdvantageError> {
    let mask = if variant.ends_with("holes") { "response_mask_holes" } else { "response_mask" };
    let inputs = Inputs::new(mask);
    let lengths = inputs.lengths();
    let groups = if variant.starts_with("mixed") { "group_index_mixed" } else { "group_index" };
    let number = |text: &str| text.parse::<f64>().expect("a number in the variant");
    let dense = inputs.dense();
    // A critic that says zero has the discounted sums of what follows as returns.
    let discounted = |gamma: f64| {
        let mut batch = dense.clone();
        batch.rows.iter_mut().for_each(|row| row.values.fill(0.0));
        Some(evaluate(Gae { gamma, ..Gae::default() }, &batch).returns)
    };
    let (advantages, returns) = match name {
        "gae" => {
            let [gamma, lambda] =
                [0, 1].map(|part| number(&variant.split('_').nth(part).expect("a part")[1..]));
            let gae = Gae { gamma, lambda, whiten: Some(StdSpec::WHITENING) };
            let found = evaluate(gae, &dense);
            (expand(&found, &lengths), Some(found.returns))
        }
        "reinforce_plus_plus" => {
            let gamma = number(variant.trim_start_matches("gamma").trim_end_matches("_holes"));
            let estimator = ReinforcePlusPlus { gamma, ..ReinforcePlusPlus::default() };
            (expand(&evaluate(estimator, &dense), &lengths), discounted(gamma))
        }
        "remax" => (expand(&evaluate(GreedyBaseline, &dense), &lengths), discounted(1.0)),
        "optimal_token_baseline" | "tir_optimal_token_baseline" => {
            let (raw_tail, weighted) = (!variant.ends_with("False"), variant.ends_with("isweights"));
            (token_baseline(&inputs, groups, raw_tail, weighted), discounted(1.0))
        }
        _ => (of_outcomes(&inputs, name, variant)?, None),
    };
    Ok(Found { inputs, advantages, returns })
}

fn difference(name: &str, variant: &str) -> Option<(&'static str, &'static str)> {
    let holds = |key: &str| {
        let (estimator, prefix) = key.split_once(' ').expect("an estimator and how its variant starts");
        estimator == name && variant.starts_with(prefix)
    };
    DIFFERENCES.iter().find(|(key, _)| holds(key)).copied()
}

/// How far from the other side's numbers those of an estimator may be.
fn tolerance(name: &str) -> f64 {
    match name {
        // Means or scores in single precision.
        "grpo_vectorized" | "gpg" => 2e-7,
        "gdpo" => SINGLE,
        "gae" | "reinforce_plus_plus" | "reinforce_plus_plus_baseline" => VERL,
        // verl adds 1e-8 to the sum of weights.
        "optimal_token_baseline" | "tir_optimal_token_baseline" => VERL,
        _ => EXACT,
    }
}

/// Compares every record of advantages, and those of rewards and whitening.
pub(crate) fn compare(report: &mut Report) {
    for record in load_records(format!("{FOLDER}/{VERL_FILE}")) {
        let (name, variant) = (record.text("estimator"), record.text("variant"));
        let error = match of_verl(name, variant) {
            Err(error) => {
                assert!(record.get("error").is_some(), "{name} {variant}: {error}");
                assert!(matches!(error, AdvantageError::GroupTooSmall { group: 2, found: 1, .. }), "{error}");
                0.0
            }
            Ok(Found { inputs, advantages, returns }) => {
                let same = record.get("returns_same").is_some();
                assert_eq!(
                    same,
                    returns.is_none(),
                    "{name} {variant}: returns are compared or said to be the same"
                );
                let of_returns =
                    returns.map_or(0.0, |returns| worst(&inputs, &returns, &record.table("returns")));
                let expected = record.table("advantages");
                let of_advantages = if name.ends_with("optimal_token_baseline") {
                    worst_of_largest(&inputs, &advantages, &expected)
                } else {
                    worst(&inputs, &advantages, &expected)
                };
                of_advantages.max(of_returns)
            }
        };
        assert!(error <= tolerance(name), "{name} {variant}: {error}");
        match difference(name, variant) {
            Some((key, reason)) => report.differs(VERL_FILE, name, key, reason),
            None => report.matched(VERL_FILE, name, error, None),
        }
    }
    for record in load_records(format!("{FOLDER}/{TRL_FILE}")) {
        let error = list_error(&of_trl(&record), &record.numbers("advantages"));
        assert!(error <= SINGLE, "{error}");
        report.matched(TRL_FILE, record.text("trainer"), error, None);
    }
    rewards(report);
    whitening(report);
}

/// Rewards of all reward functions, [F, B]; `None` where a completion has no score.
fn trl_rewards(record: &Record) -> Vec<Vec<Option<f64>>> {
    let lists = record.value("rewards").as_array().expect("a list per reward function");
    let numbers = |list: &serde_json::Value| {
        list.as_array().expect("a list of rewards").iter().map(serde_json::Value::as_f64).collect()
    };
    lists.iter().map(numbers).collect()
}

fn trl_batch(record: &Record, rewards: &[Option<f64>]) -> RewardBatch {
    let size = record.number("num_generations") as usize;
    let row = |(index, reward): (usize, &Option<f64>)| RewardRow::new(index / size, *reward, 1 + index);
    RewardBatch { rows: rewards.iter().enumerate().map(row).collect() }
}

/// Advantages of a TRL record; a row without a score has zero there.
fn of_trl(record: &Record) -> Vec<f64> {
    let cfg = record.record("cfg");
    let std = StdSpec { ddof: 1, eps: 1e-4, placement: EpsPlacement::Add };
    let rewards = trl_rewards(record);
    let weights = if cfg.get("reward_weights").is_some() { cfg.numbers("reward_weights") } else { vec![1.0] };
    let weighted = |lists: &[Vec<Option<f64>>]| -> Vec<Option<f64>> {
        let of =
            |row: usize| lists.iter().zip(&weights).map(|(list, w)| list[row].map(|reward| w * reward)).sum();
        (0..lists[0].len()).map(of).collect()
    };
    let sum = trl_batch(record, &weighted(&rewards));
    // One group of all rows: over the batch, each counting once.
    let over_batch = |values: Vec<Option<f64>>| {
        let rows = values.into_iter().map(|value| RewardRow::new(0, value, 1)).collect();
        evaluate(GroupNormalized { std: Some(std) }, &RewardBatch { rows })
    };
    let or_zero = |advantages: &Advantages| -> Vec<f64> {
        let of = |advantage: &Advantage| match advantage {
            Advantage::Response(value) => *value,
            Advantage::Excluded => 0.0,
            Advantage::Tokens(_) => panic!("one number per response"),
        };
        advantages.rows.iter().map(of).collect()
    };
    let found = match record.text("trainer") {
        "GRPOTrainer" if cfg.get("multi_objective_aggregation").is_some() => {
            let normalized = |list: &Vec<Option<f64>>| {
                let batch = trl_batch(record, list);
                or_zero(&evaluate(GroupNormalized { std: Some(std) }, &batch)).into_iter().map(Some).collect()
            };
            let lists: Vec<Vec<Option<f64>>> = rewards.iter().map(normalized).collect();
            over_batch(weighted(&lists))
        }
        "GRPOTrainer" => match cfg.get("scale_rewards").and_then(serde_json::Value::as_str) {
            None | Some("group") => evaluate(GroupNormalized { std: Some(std) }, &sum),
            Some("batch") => evaluate(BatchScaled { std }, &sum),
            Some("none") => evaluate(GroupNormalized { std: None }, &sum),
            Some(other) => panic!("unknown scale {other}"),
        },
        "RLOOTrainer" if cfg.get("normalize_advantages").is_some() => {
            over_batch(or_zero(&evaluate(LeaveOneOut, &sum)).into_iter().map(Some).collect())
        }
        "RLOOTrainer" => evaluate(LeaveOneOut, &sum),
        other => panic!("unknown trainer {other}"),
    };
    or_zero(&found)
}

#[test]
fn every_recorded_advantage_is_found() {
    let mut report = Report::default();
    compare(&mut report);
    let sum = |source: &str| {
        let counts = report.counts(source);
        counts.iter().fold((0, 0), |sum, (_, matched, differing)| (sum.0 + matched, sum.1 + differing))
    };
    assert_eq!((sum(VERL_FILE), sum(TRL_FILE), sum(MISC)), ((29, 12), (11, 0), (2, 0)));
    assert_eq!(report.differences.len(), DIFFERENCES.len(), "every difference was met");
}

/// TRL's metrics that follow from advantages: rows of groups without a spread; and the deviation of the batch, which is the
/// factor between centred and scaled.
#[test]
fn the_metrics_of_trl_are_those_of_the_rewards() {
    let mut checked = 0;
    for record in load_records(format!("{FOLDER}/trl_advantages.json")) {
        let Some(_) = record.get("metrics") else { continue };
        let (metrics, cfg) = (record.record("metrics"), record.record("cfg"));
        if let [rewards] = &trl_rewards(&record)[..] {
            let batch = trl_batch(&record, rewards);
            let centred = evaluate(GroupNormalized { std: None }, &batch);
            let scored: Vec<f64> = rewards.iter().flatten().copied().collect();
            let mean = scored.iter().sum::<f64>() / scored.len() as f64;
            assert!(error(mean, metrics.number("reward")) <= SINGLE);

            let std = StdSpec { ddof: 1, eps: 0.0, placement: EpsPlacement::Add };
            let scaled = evaluate(BatchScaled { std }, &batch);
            let pair = centred.rows.iter().zip(&scaled.rows).find_map(|pair| match pair {
                (Advantage::Response(a), Advantage::Response(b)) if *b != 0.0 => Some((*a, *b)),
                _ => None,
            });
            let (centred_first, scaled_first) = pair.expect("a group has a spread");
            assert!(error(centred_first / scaled_first, metrics.number("reward_std")) <= SINGLE);

            if cfg.get("scale_rewards").and_then(serde_json::Value::as_str) != Some("batch") {
                let zero = centred.rows.iter().filter(|row| **row == Advantage::Response(0.0)).count();
                let uniform = zero as f64 / rewards.len() as f64;
                assert!(error(uniform, metrics.number("frac_reward_zero_std")) <= SINGLE);
            }
            checked += 1;
        }
    }
    assert_eq!(checked, 6);
}

/// verl's reward with a KL penalty: ours with the penalty of k1 times the coefficient.
fn rewards(report: &mut Report) {
    let inputs = Inputs::new("response_mask");
    let record = Record::load(format!("{FOLDER}/verl_misc.json")).record("compute_rewards");
    let (behaviour, reference) = (inputs.tokens("old_logprobs"), inputs.tokens("ref_logprobs"));
    let kl = record.number("kl_ratio");
    let penalty = |row: usize, t: usize| kl * KlEstimator::K1.value(behaviour[row][t] - reference[row][t]);
    let found: Vec<Vec<f64>> = inputs
        .dense()
        .rows
        .into_iter()
        .enumerate()
        .map(|(index, mut row)| {
            row.penalties.iter_mut().enumerate().for_each(|(t, value)| *value += penalty(index, t));
            row.token_rewards().expect("the row is scored")
        })
        .collect();
    let error = worst(&inputs, &found, &record.table("value"));
    assert!(error <= EXACT, "{error}");
    report.matched(MISC, "rewards with a penalty", error, None);
}

/// Values that are one-step errors of a critic that says zero, without discount of what follows.
fn whitening(report: &mut Report) {
    let inputs = Inputs::new("response_mask");
    let rows = inputs.tokens("advantages_tok").into_iter().map(|values| {
        RewardRow::new(0, Some(0.0), values.len())
            .with_values(vec![0.0; values.len()])
            .with_penalties(values.iter().map(|value| -value).collect())
    });
    let gae = Gae { gamma: 0.0, lambda: 0.0, whiten: Some(StdSpec::WHITENING) };
    let found = expand(&evaluate(gae, &RewardBatch { rows: rows.collect() }), &inputs.lengths());
    let expected = Record::load(format!("{FOLDER}/verl_misc.json")).table("masked_whiten_of_advantages_tok");
    let error = worst(&inputs, &found, &expected);
    assert!(error <= VERL, "{error}");
    report.matched(MISC, "whitening", error, None);
}

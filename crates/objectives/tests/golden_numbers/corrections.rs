//! Rollout corrections of verl, and importance ratios of TRL.

use firebrick_core::{Corrected, LogProbs, OptimizerBatch, ResponseContext, RolloutCorrection};
use firebrick_objectives::{CorrectionConfig, off_policy_metrics};
use firebrick_testkit::{GoldenRow, Record, assert_all_close, assert_close};
use serde_json::Value;

use crate::support::{Report, inputs, list, list_error, relative_error};

const VERL_FILE: &str = "verl_rollout_corr.json";
const TRL_FILE: &str = "trl_advantages.json";
const EXACT: f64 = 1e-11;
/// verl's means divide by n + 1e-8.
const VERL: f64 = 5e-8;

/// Records that differ on purpose, each compared through a formula for the other side's rule instead.
const DIFFERENCES: &[(&str, &str)] = &[(
    "offpolicy response_mask_holes",
    "means over responses count the row without tokens, as one whose log-probs are all zero",
)];

/// The fixture's rows, with the policy that sampled (`rollout_logprobs`) and the proximal policy (`old_logprobs`).
struct Rows {
    rows: Vec<GoldenRow>,
    contexts: Vec<ResponseContext>,
}

impl Rows {
    fn load(mask: &str) -> Self {
        let inputs = inputs("inputs.json");
        let rows = inputs.rows(mask, "advantages_seq");
        let table = |key: &str| inputs.arrays().table(key);
        let (behaviour, proximal) = (table("rollout_logprobs"), table("old_logprobs"));
        let context = |(index, row): (usize, &GoldenRow)| {
            ResponseContext::new(LogProbs::new(row.gather(&behaviour[index])), vec![1.0; row.len()])
                .and_then(|context| context.anchored_at_proximal(LogProbs::new(row.gather(&proximal[index]))))
                .expect("one log-prob per policy token")
                .with_index(index)
        };
        let contexts = rows.iter().enumerate().map(context).collect();
        Self { rows, contexts }
    }

    /// What the correction makes of every token, row by row.
    fn corrected(&self, config: &str) -> Vec<Vec<Corrected>> {
        let config: CorrectionConfig = toml::from_str(config).expect("the config parses");
        config.validate().expect("the config is valid");
        let mut correction = config.build();
        if let Some(state) = correction.stateful() {
            let responses: Vec<&ResponseContext> = self.contexts.iter().collect();
            state.prepare(&OptimizerBatch { responses: &responses, current: None }).expect("it is prepared");
        }
        let row = |context: &ResponseContext| {
            let mut out = vec![Corrected::default(); context.len()];
            correction.correct(context, &mut out);
            out
        };
        self.contexts.iter().map(row).collect()
    }

    /// log ρ of every token, row by row.
    fn log_ratios(&self) -> Vec<Vec<f64>> {
        let row = |context: &ResponseContext| {
            let proximal = context.proximal().expect("the rows have them");
            proximal
                .iter()
                .zip(context.behaviour())
                .map(|(proximal, behaviour)| proximal - behaviour)
                .collect()
        };
        self.contexts.iter().map(row).collect()
    }

    fn tokens(&self) -> f64 {
        self.rows.iter().map(GoldenRow::len).sum::<usize>() as f64
    }
}

/// The weight that a token's loss is multiplied by, zero where it is rejected.
fn effective(row: &[Corrected]) -> Vec<f64> {
    row.iter().map(|token| if token.keep { token.weight } else { 0.0 }).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn fraction(values: &[f64], holds: impl Fn(f64) -> bool) -> f64 {
    values.iter().filter(|value| holds(**value)).count() as f64 / values.len() as f64
}

fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn smallest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Deviation of a sample of rows.
fn sample_std(values: &[f64]) -> f64 {
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// √(mean of squares − square of mean), the deviation that verl takes over tokens.
fn token_std(values: &[f64]) -> f64 {
    let squares: Vec<f64> = values.iter().map(|value| value * value).collect();
    (mean(&squares) - mean(values).powi(2)).max(0.0).sqrt()
}

/// Mean per row, zero for one without tokens.
fn row_means(rows: &[Vec<f64>]) -> Vec<f64> {
    rows.iter().map(|row| if row.is_empty() { 0.0 } else { mean(row) }).collect()
}

/// Holds every metric of the record, whose names start with `prefix`, against `found`.
fn assert_metrics(record: &Record, prefix: &str, found: &[(&str, f64)], what: &str) -> usize {
    let metrics = record.record("metrics");
    let present: Vec<_> =
        found.iter().filter(|(name, _)| metrics.get(&format!("{prefix}{name}")).is_some()).collect();
    for (name, value) in &present {
        assert_close(*value, metrics.number(&format!("{prefix}{name}")), VERL, &format!("{what} {name}"));
    }
    present.len()
}

fn metric_count(record: &Record) -> usize {
    record.value("metrics").as_object().expect("metrics").len()
}

/// A threshold of verl's weights: one number truncates, `low_high` masks.
fn weight_config(record: &Record) -> (String, f64, f64) {
    let level = match record.text("level") {
        "token" => "token",
        "sequence" => "sequence_product",
        other => panic!("unknown level {other}"),
    };
    let (kind, low, high) = match record.value("threshold") {
        Value::String(text) => {
            let (low, high) = text.split_once('_').expect("two bounds");
            let number = |text: &str| text.parse::<f64>().expect("a number");
            (format!("type = 'mask', low = {low:?}").replace('"', ""), number(low), number(high))
        }
        other => {
            let high = other.as_f64().expect("a number");
            ("type = 'truncate'".to_owned(), 1.0 / high, high)
        }
    };
    let normalize = record.value("batch_normalize");
    let config =
        format!("weight = {{ {kind}, level = '{level}', high = {high:?}, batch_normalize = {normalize} }}");
    (config, low, high)
}

/// Compares every record of verl's, and TRL's importance ratios.
pub(crate) fn compare(report: &mut Report) {
    weights(report);
    rejections(report);
    off_policy(report);
    importance_ratios(report);
}

#[test]
fn corrections_are_those_of_verl_and_trl() {
    let mut report = Report::default();
    compare(&mut report);
    let expected = [("rollout weights", 16, 0), ("rejection", 26, 0), ("off-policy metrics", 1, 1)];
    assert_eq!(report.counts(VERL_FILE), expected);
    assert_eq!(report.counts(TRL_FILE), [("importance ratio", 8, 0)]);
}

fn weights(report: &mut Report) {
    let (mut metrics_seen, mut metrics_total) = (0, 0);
    for record in list(VERL_FILE, "is_weights") {
        let rows = Rows::load(record.text("mask"));
        let (config, low, high) = weight_config(&record);
        let what = format!("{} {config}", record.text("mask"));
        let weights: Vec<Vec<f64>> = rows.corrected(&config).iter().map(|row| effective(row)).collect();
        let sequence = record.text("level") == "sequence";
        let mut worst = 0.0_f64;
        if sequence {
            let expected = record.numbers("seq_weights");
            for ((row, weights), expected) in rows.rows.iter().zip(&weights).zip(&expected) {
                assert_all_close(weights, &vec![*expected; row.len()], VERL, &what);
                worst = worst.max(list_error(weights, &vec![*expected; row.len()]));
            }
        } else {
            for ((row, weights), expected) in rows.rows.iter().zip(&weights).zip(&record.table("weights")) {
                assert_all_close(&row.scatter(weights), expected, VERL, &what);
                worst = worst.max(list_error(&row.scatter(weights), expected));
            }
        }

        // verl reports on the weights before they are divided by their mean.
        let plain = config.replace("batch_normalize = true", "batch_normalize = false");
        let plain: Vec<Vec<f64>> = rows.corrected(&plain).iter().map(|row| effective(row)).collect();
        let flat = plain.concat();
        let raw: Vec<f64> = rows.log_ratios().concat().iter().map(|log_ratio| log_ratio.exp()).collect();
        let products: Vec<f64> = rows.log_ratios().iter().map(|row| row.iter().sum::<f64>().exp()).collect();
        let per_row = row_means(&plain);
        // Of whole responses, the ratios before they are cut; of one without tokens, 0 per row and 1 as a product.
        let held: Vec<f64> = if sequence {
            products
                .iter()
                .zip(&rows.rows)
                .map(|(product, row)| if row.is_empty() { 0.0 } else { *product })
                .collect()
        } else {
            per_row.clone()
        };
        let reported = if sequence { &products } else { &flat };
        let ratios = if sequence { &products } else { &raw };
        // verl adds 1e-8 to the mean here.
        let squares: Vec<f64> = flat.iter().map(|weight| (weight / (mean(&flat) + 1e-8)).powi(2)).collect();
        let deviations: Vec<f64> = per_row.iter().map(|weight| (weight - 1.0).abs()).collect();
        let norm = if sequence { mean(&per_row) } else { mean(&flat) };
        metrics_seen += assert_metrics(
            &record,
            "rollout_is_",
            &[
                ("mean", mean(&flat)),
                ("max", largest(reported)),
                ("min", smallest(reported)),
                ("std", token_std(&flat)),
                ("eff_sample_size", 1.0 / mean(&squares)),
                ("ratio_fraction_high", fraction(ratios, |ratio| ratio > high)),
                ("ratio_fraction_low", fraction(ratios, |ratio| ratio < low)),
                ("seq_mean", mean(&per_row)),
                ("seq_std", sample_std(&per_row)),
                ("seq_max", largest(&per_row)),
                ("seq_min", smallest(&per_row)),
                ("seq_max_deviation", largest(&deviations)),
                ("seq_fraction_high", fraction(&held, |ratio| ratio > high)),
                ("seq_fraction_low", fraction(&held, |ratio| ratio < low)),
                ("oob_ratio", fraction(&flat, |weight| weight == 0.0)),
                ("batch_norm_factor", norm),
            ],
            &what,
        );
        metrics_total += metric_count(&record);
        report.matched(VERL_FILE, "rollout weights", worst, None);
    }
    assert_eq!(metrics_seen, metrics_total, "every metric was read");
}

/// One of verl's options as our rule, with verl's own statistic of log ρ and the bounds that it is held against.
struct VerlOption {
    name: String,
    rule: String,
    reduction: &'static str,
    statistic: fn(f64) -> f64,
    low: f64,
    high: f64,
}

impl VerlOption {
    fn new(name: &str, threshold: &str) -> Self {
        let (level, statistic) = name.rsplit_once('_').expect("level and statistic");
        let reduction = match level {
            "token" => "token",
            "seq_sum" => "sequence_sum",
            "seq_mean" => "sequence_mean",
            "seq_max" => "sequence_max",
            other => panic!("unknown level {other}"),
        };
        let number = |text: &str| text.parse::<f64>().expect("a number");
        let (ours, of_log_ratio, low, high): (_, fn(f64) -> f64, _, _) = match statistic {
            "k1" => {
                let high =
                    threshold.split_once('_').map_or_else(|| number(threshold), |(_, high)| number(high));
                let low = threshold.split_once('_').map_or_else(|| 1.0 / high, |(low, _)| number(low));
                ("ratio", |log_ratio| -log_ratio, low, high)
            }
            "k2" => ("k2", |log_ratio| log_ratio * log_ratio / 2.0, 0.0, number(threshold)),
            "k3" => ("k3", |log_ratio| log_ratio.exp() - 1.0 - log_ratio, 0.0, number(threshold)),
            other => panic!("unknown statistic {other}"),
        };
        let rule =
            format!("{{ statistic = '{ours}', reduction = '{reduction}', low = {low:?}, high = {high:?} }}");
        let (low, high) = if statistic == "k1" { (low.ln(), high.ln()) } else { (low, high) };
        Self { name: name.to_owned(), rule, reduction, statistic: of_log_ratio, low, high }
    }

    /// The reduced statistic of each token, row by row.
    fn values(&self, log_ratios: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let row = |row: &Vec<f64>| {
            let values: Vec<f64> = row.iter().map(|log_ratio| (self.statistic)(*log_ratio)).collect();
            let reduced = match self.reduction {
                "token" => return values,
                "sequence_sum" => values.iter().sum(),
                "sequence_mean" => mean(&values),
                _ => largest(&values),
            };
            vec![reduced; row.len()]
        };
        log_ratios.iter().map(row).collect()
    }
}

fn kept(rows: &Rows, rules: &[&str]) -> Vec<Vec<bool>> {
    let corrected = rows.corrected(&format!("rejection = [{}]", rules.join(", ")));
    corrected.iter().map(|row| row.iter().map(|token| token.keep).collect()).collect()
}

/// Rejected tokens over all tokens.
fn rejected_tokens(rows: &Rows, kept: &[Vec<bool>]) -> f64 {
    kept.iter().flatten().filter(|keep| !**keep).count() as f64 / rows.tokens()
}

/// Rows with a rejected token.
fn rejected_rows(kept: &[Vec<bool>]) -> f64 {
    kept.iter().filter(|row| row.contains(&false)).count() as f64
}

fn rejections(report: &mut Report) {
    let (mut metrics_seen, mut metrics_total) = (0, 0);
    let mut names = std::collections::BTreeSet::new();
    for record in list(VERL_FILE, "rs") {
        let rows = Rows::load(record.text("mask"));
        let thresholds = record.text("threshold").split(',');
        let options: Vec<VerlOption> = record
            .text("options")
            .split(',')
            .zip(thresholds)
            .map(|(name, at)| VerlOption::new(name, at))
            .collect();
        let rules: Vec<&str> = options.iter().map(|option| option.rule.as_str()).collect();
        let what = format!("{} {rules:?}", record.text("mask"));
        let all = kept(&rows, &rules);
        for ((row, kept), expected) in rows.rows.iter().zip(&all).zip(&record.table("kept")) {
            let kept: Vec<f64> = kept.iter().map(|keep| f64::from(u8::from(*keep))).collect();
            assert_eq!(row.scatter(&kept), *expected, "{what}");
        }

        let total = rows.rows.len() as f64;
        metrics_seen += assert_metrics(
            &record,
            "rollout_rs_",
            &[
                ("masked_fraction", rejected_tokens(&rows, &all)),
                ("seq_masked_fraction", rejected_rows(&all) / total),
            ],
            &what,
        );
        let with_tokens = rows.rows.iter().filter(|row| !row.is_empty()).count() as f64;
        for option in &options {
            let own = kept(&rows, &[&option.rule]);
            let values = option.values(&rows.log_ratios());
            let flat = values.concat();
            let per_row = row_means(&values);
            let held = if option.reduction == "token" { &flat } else { &per_row };
            let clipped: Vec<f64> = flat.iter().map(|value| value.clamp(option.low, option.high)).collect();
            let sizes: Vec<f64> = per_row.iter().map(|value| value.abs()).collect();
            metrics_seen += assert_metrics(
                &record,
                &format!("rollout_rs_{}_", option.name),
                &[
                    ("mean", mean(&flat)),
                    ("max", largest(&flat)),
                    ("min", smallest(&flat)),
                    ("std", token_std(&clipped)),
                    ("fraction_high", fraction(held, |value| value > option.high)),
                    ("fraction_low", fraction(held, |value| value < option.low)),
                    ("seq_mean", mean(&per_row)),
                    ("seq_std", sample_std(&per_row)),
                    ("seq_max", largest(&per_row)),
                    ("seq_min", smallest(&per_row)),
                    ("seq_max_deviation", largest(&sizes)),
                    ("seq_fraction_high", fraction(&per_row, |value| value > option.high)),
                    ("seq_fraction_low", fraction(&per_row, |value| value < option.low)),
                    ("masked_fraction", rejected_tokens(&rows, &own)),
                    ("seq_masked_fraction", rejected_rows(&own) / with_tokens),
                ],
                &what,
            );
            names.insert(option.name.clone());
        }
        metrics_total += metric_count(&record);
        report.matched(VERL_FILE, "rejection", 0.0, None);
    }
    assert_eq!(names.len(), 11, "every option was read");
    assert_eq!(metrics_seen, metrics_total, "every metric was read");
}

fn off_policy(report: &mut Report) {
    let names = [
        ("kl", "kl"),
        ("k3_kl", "k3"),
        ("chi2_token", "chi2_token"),
        ("training_log_ppl", "proximal_log_perplexity"),
        ("rollout_log_ppl", "behaviour_log_perplexity"),
        ("training_ppl", "proximal_perplexity"),
        ("rollout_ppl", "behaviour_perplexity"),
        ("log_ppl_diff", "log_perplexity_gap"),
        ("log_ppl_abs_diff", "log_perplexity_gap_abs"),
        ("log_ppl_diff_max", "log_perplexity_gap_max"),
        ("log_ppl_diff_min", "log_perplexity_gap_min"),
        ("ppl_ratio", "perplexity_ratio"),
        ("chi2_seq", "chi2_sequence"),
    ];
    for record in list(VERL_FILE, "offpolicy") {
        let rows = Rows::load(record.text("mask"));
        let found = off_policy_metrics(&rows.contexts);
        let total = rows.rows.len() as f64;
        let with_tokens = rows.rows.iter().filter(|row| !row.is_empty()).count() as f64;
        let key = format!("offpolicy {}", record.text("mask"));
        let difference = DIFFERENCES.iter().find(|(differing, _)| *differing == key);
        let differs = difference.is_some();
        let mut worst = 0.0_f64;
        assert_eq!(differs, total != with_tokens);
        let metrics = record.record("metrics");
        for (theirs, ours) in names {
            let mut value = found.get(&format!("off_policy/{ours}")).expect("the metric is recorded");
            // A row of zeros has perplexity and ratio 1, and no gap.
            let of_zeros = match theirs {
                "kl" | "k3_kl" | "chi2_token" => None,
                "log_ppl_diff_max" | "log_ppl_diff_min" => None,
                "training_ppl" | "rollout_ppl" | "ppl_ratio" => Some(1.0),
                _ => Some(0.0),
            };
            if let Some(of_zeros) = of_zeros.filter(|_| differs) {
                value = (value * with_tokens + of_zeros * (total - with_tokens)) / total;
            }
            assert_close(value, metrics.number(theirs), VERL, &format!("{key} {theirs}"));
            worst = worst.max(relative_error(value, metrics.number(theirs)));
        }
        assert_eq!(metric_count(&record), names.len(), "every metric was read");
        match difference {
            Some((key, reason)) => report.differs(VERL_FILE, "off-policy metrics", key, reason),
            None => report.matched(VERL_FILE, "off-policy metrics", worst, None),
        }
    }
}

fn importance_ratios(report: &mut Report) {
    let rows = Rows::load("response_mask");
    let log_ratios = rows.log_ratios().concat();
    let sizes: Vec<f64> = log_ratios.iter().map(|log_ratio| log_ratio.abs()).collect();
    for record in list(TRL_FILE, "vllm_is_ratio") {
        let (level, kind) = record.text("mode").split_once('_').expect("level and kind");
        let level = if level == "sequence" { "sequence_product" } else { level };
        // TRL's default is no lower bound.
        let low = record.get("clip_min").map_or(0.0, |low| low.as_f64().expect("a number"));
        let high = record.number("clip_max");
        let config =
            format!("weight = {{ type = '{kind}', level = '{level}', low = {low:?}, high = {high:?} }}");
        let weights: Vec<Vec<f64>> = rows.corrected(&config).iter().map(|row| effective(row)).collect();
        let mut worst = 0.0_f64;
        let ratios = if level == "token" {
            for ((row, weights), expected) in rows.rows.iter().zip(&weights).zip(&record.table("ratio")) {
                assert_all_close(weights, &row.gather(expected), EXACT, &config);
                worst = worst.max(list_error(weights, &row.gather(expected)));
            }
            weights.concat()
        } else {
            let expected = record.numbers("ratio");
            for (weights, expected) in weights.iter().zip(&expected) {
                assert_all_close(weights, &vec![*expected; weights.len()], EXACT, &config);
                worst = worst.max(list_error(weights, &vec![*expected; weights.len()]));
            }
            row_means(&weights)
        };
        let metrics = record.record("metrics");
        for (name, value) in [
            ("sampling_logp_difference/mean", mean(&sizes)),
            ("sampling_logp_difference/max", largest(&sizes)),
            ("importance_sampling_ratio/min", smallest(&ratios)),
            ("importance_sampling_ratio/mean", mean(&ratios)),
            ("importance_sampling_ratio/max", largest(&ratios)),
        ] {
            assert_close(
                value,
                metrics.number(&format!("sampling/{name}")),
                EXACT,
                &format!("{config} {name}"),
            );
        }
        assert_eq!(metric_count(&record), 5, "every metric was read");
        report.matched(TRL_FILE, "importance ratio", worst, None);
    }
}

//! The losses of TRL, put together from parts.

use firebrick_core::{
    Binding, Bounds, ClipSchedule, Gate, Gated, ImportanceEstimator, LogProbs, ResponseTokens,
};
use firebrick_objectives::{
    Aggregation, Composed, ConstantClip, Denominator, GeometricMean, KlEstimator, KlTerm,
    OffPolicySequenceMask, PpoMin, Saturating, SequenceMean, SequenceProduct, SequenceRoute, Sigmoid,
    TokenRatio,
};
use firebrick_testkit::{
    GoldenBatch, GoldenOutcome, GoldenRow, Record, TestResponse, assert_all_close, assert_close, load_records,
};

use crate::support::{FOLDER, Report, inputs, loss_error, table_error};

const SOURCE: &str = "trl_losses.json";
const EXACT: f64 = 1e-11;

/// Why VESPO's records are compared with a formula of this file only.
const VESPO: &str = "not offered: its weight is a gamma-shaped function of the whole response's ratio";

/// Drops tokens whose entropy is below a threshold from what another gate makes of them.
#[derive(Debug)]
struct TopEntropy {
    threshold: f64,
    gate: Box<dyn Gate>,
}

impl Gate for TopEntropy {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], bounds: &[Bounds], out: &mut [Gated]) {
        self.gate.gate(response, log_weights, bounds, out);
        let entropies = response.entropies().expect("the rows have entropies");
        for (out, entropy) in out.iter_mut().zip(entropies) {
            if *entropy < self.threshold {
                *out = Gated { binding: Binding::Dropped, ..Gated::default() };
            }
        }
    }
}

/// The rows with all policies: sampled by `rollout_logprobs`, anchored at `old_logprobs`.
fn rows(inputs: &GoldenBatch, mask: &str) -> Vec<GoldenRow> {
    let table = |key: &str| inputs.arrays().table(key);
    let (behaviour, proximal) = (table("rollout_logprobs"), table("old_logprobs"));
    let (current, reference, entropy) = (table("logprobs"), table("ref_logprobs"), table("entropy"));
    let advantages = inputs.arrays().numbers("advantages_seq");
    let row = |(index, row): (usize, GoldenRow)| {
        let response = TestResponse::new(
            &row.gather(&behaviour[index]),
            &row.gather(&current[index]),
            &vec![advantages[index]; row.len()],
        )
        .map_context(|context| {
            let proximal = LogProbs::new(row.gather(&proximal[index]));
            context.anchored_at_proximal(proximal).expect("one log-prob per policy token")
        })
        .with_reference(&row.gather(&reference[index]))
        .with_entropies(&row.gather(&entropy[index]));
        row.map_response(|_| response)
    };
    inputs.rows(mask, "advantages_seq").into_iter().enumerate().map(row).collect()
}

fn entropies(rows: &[GoldenRow]) -> Vec<f64> {
    rows.iter().flat_map(|row| row.response().tokens().entropies().unwrap_or_default().to_vec()).collect()
}

/// The quantile of all values, interpolated between neighbours.
fn quantile(mut values: Vec<f64>, at: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let position = at * (values.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(values.len() - 1);
    values[below] + (position - below as f64) * (values[above] - values[below])
}

type Boxed = Composed<Box<dyn ImportanceEstimator>, Box<dyn ClipSchedule>, Box<dyn Gate>>;

/// A record as an objective with its aggregation, and the same without what masks tokens after they are clipped.
struct Composition {
    objective: Boxed,
    unmasked: Boxed,
    aggregation: Aggregation,
    /// Whether there is one ratio for a whole response.
    one_ratio: bool,
    /// The loss under the name of the source.
    loss: String,
}

fn composition(record: &Record, rows: &[GoldenRow], norm: f64) -> Composition {
    let hp = record.record("hp");
    let number = |key: &str| hp.get(key).and_then(serde_json::Value::as_f64);
    let (low, high) = (number("epsilon_low").unwrap_or(0.2), number("epsilon_high").unwrap_or(0.2));
    let trainer = record.text("trainer").rsplit('.').next().unwrap_or_default();
    let loss = match trainer {
        "GRPOTrainer" => hp.text("loss_type"),
        other => other,
    };
    let per_response = hp.get("importance_sampling_level").is_some_and(|level| level == "sequence");
    let estimator = || -> Box<dyn ImportanceEstimator> {
        match (loss, per_response) {
            ("RLOOTrainer", _) => Box::new(SequenceProduct { route: SequenceRoute::Sequence }),
            (_, true) => Box::new(SequenceMean { route: SequenceRoute::Sequence }),
            (_, false) => Box::new(TokenRatio),
        }
    };
    let clip = || -> Box<dyn Gate> {
        match loss {
            "cispo" => Box::new(Saturating::default()),
            "sapo" => Box::new(Sigmoid {
                tau_pos: number("sapo_temperature_pos").unwrap_or(1.0),
                // The default goes through an f32 at the source.
                tau_neg: number("sapo_temperature_neg").unwrap_or(f64::from(1.05_f32)),
            }),
            "GMPOTrainer" => Box::new(GeometricMean { low, high, ..GeometricMean::default() }),
            _ => Box::new(PpoMin { dual_clip: number("delta"), ..PpoMin::default() }),
        }
    };
    let masked = || -> Box<dyn Gate> {
        if let Some(delta) = number("off_policy_mask_threshold") {
            assert!(["grpo", "dapo"].contains(&loss) && number("delta").is_none(), "PPO's minimum");
            Box::new(OffPolicySequenceMask { delta })
        } else if let Some(share) = number("top_entropy_quantile") {
            let threshold = quantile(entropies(rows), 1.0 - share);
            Box::new(TopEntropy { threshold, gate: clip() })
        } else {
            clip()
        }
    };
    let aggregation = match loss {
        "bnpo" | "dapo" | "cispo" => Aggregation::TokenMean,
        "dr_grpo" => Aggregation::SeqMeanTokenSumNorm { norm },
        "luspo" => Aggregation::SeqMeanTokenSum,
        "grpo" | "sapo" | "GMPOTrainer" | "RLOOTrainer" => Aggregation::SeqMeanTokenMean,
        other => panic!("unknown loss {other}"),
    };
    let kl = KlTerm {
        weighted: hp.get("use_bias_correction_kl").is_some(),
        ..KlTerm::new(KlEstimator::K3, number("beta").unwrap_or(0.0))
    };
    let compose = |gate: Box<dyn Gate>| -> Boxed {
        // CISPO's cap is absolute, and it has no lower bound.
        let window = if loss == "cispo" {
            ConstantClip { low: 1.0, high: high - 1.0 }
        } else {
            ConstantClip { low, high }
        };
        let schedule: Box<dyn ClipSchedule> = Box::new(window);
        Composed::new(estimator(), schedule, gate).with_kl((kl.coefficient != 0.0).then_some(kl))
    };
    Composition {
        objective: compose(masked()),
        unmasked: compose(clip()),
        aggregation,
        one_ratio: per_response || loss == "RLOOTrainer",
        loss: loss.to_owned(),
    }
}

/// Fractions of clipped tokens (of clipped responses, where a response has one ratio) under the names of the source.
fn clip_metrics(outcome: &GoldenOutcome, rows: &[GoldenRow], one_ratio: bool) -> Vec<(&'static str, f64)> {
    // A cap is counted where the advantage rewards a larger weight.
    let advantages = rows.iter().flat_map(|row| row.response().context().advantages());
    let mut pairs = outcome.bindings.iter().zip(advantages);
    let capped = pairs.clone().filter(|(binding, a)| **binding == Binding::High && **a > 0.0).count();
    let per_row: Vec<[f64; 2]> = rows
        .iter()
        .map(|row| {
            let own: Vec<Binding> = pairs.by_ref().take(row.len()).map(|(binding, _)| *binding).collect();
            [Binding::Low, Binding::High].map(|binding| {
                own.iter().filter(|found| **found == binding).count() as f64 / row.len().max(1) as f64
            })
        })
        .collect();
    let mean = |side: usize| {
        if one_ratio {
            per_row.iter().map(|row| row[side]).sum::<f64>() / rows.len() as f64
        } else {
            outcome.fraction([Binding::Low, Binding::High][side])
        }
    };
    let smallest = per_row.iter().map(|row| row[0]).fold(f64::INFINITY, f64::min);
    let largest = per_row.iter().map(|row| row[1]).fold(0.0, f64::max);
    vec![
        ("clip_ratio/low_mean", mean(0)),
        ("clip_ratio/high_mean", mean(1)),
        ("clip_ratio/region_mean", mean(0) + mean(1)),
        ("clip_ratio/low_min", smallest),
        ("clip_ratio/high_max", largest),
        ("cispo_clip_ratio", capped as f64 / outcome.bindings.len() as f64),
    ]
}

/// Mean over tokens of the KL estimate as it enters the loss, without its coefficient.
fn kl_metric(record: &Record, rows: &[GoldenRow]) -> f64 {
    let weighted = record.record("hp").get("use_bias_correction_kl").is_some();
    let term = KlTerm { weighted, ..KlTerm::new(KlEstimator::K3, 1.0) };
    let (mut sum, mut count) = (0.0, 0);
    for row in rows {
        let tokens = row.response().tokens();
        let reference = row.response().context().reference().expect("the rows have it");
        for (index, (current, reference)) in tokens.current().iter().zip(reference).enumerate() {
            sum += term.token(current - reference, tokens.log_ratios()[index]).0;
            count += 1;
        }
    }
    sum / f64::from(count)
}

/// φ of a row: w^k exp(λ (1 − w)) for the product w of its ratios, with k and λ for either sign of its advantage.
fn vespo_weight(row: &GoldenRow, hp: &Record) -> f64 {
    let number = |key: &str, default: f64| hp.get(key).map_or(default, |_| hp.number(key));
    let tokens = row.response().tokens();
    let log_weight: f64 = tokens.log_ratios().iter().sum();
    let (k, lambda) = if tokens.advantages().first().is_none_or(|advantage| *advantage >= 0.0) {
        (number("vespo_k_pos", 2.0), number("vespo_lambda_pos", 3.0))
    } else {
        (number("vespo_k_neg", 3.0), number("vespo_lambda_neg", 2.0))
    };
    (k * log_weight + lambda * (1.0 - log_weight.exp())).exp()
}

/// VESPO in plain arithmetic: the mean over tokens of −sg[φ] A log π.
fn assert_vespo(record: &Record, rows: &[GoldenRow], key: &str) {
    let hp = record.record("hp");
    let tokens = rows.iter().map(GoldenRow::len).sum::<usize>() as f64;
    let (mut loss, mut weights) = (0.0, 0.0);
    for (row, expected) in rows.iter().zip(record.table("grad")) {
        let (weight, response) = (vespo_weight(row, &hp), row.response().tokens());
        weights += weight;
        let slopes: Vec<f64> = response.advantages().iter().map(|a| -weight * a / tokens).collect();
        loss += slopes.iter().zip(response.current()).map(|(slope, log_prob)| slope * log_prob).sum::<f64>();
        assert_all_close(&row.scatter(&slopes), &expected, EXACT, key);
    }
    assert_close(loss, record.number("loss_value"), EXACT, key);
    let metric = record.record("metrics").number("vespo/phi_seq_mean");
    assert_close(weights / rows.len() as f64, metric, EXACT, key);
}

/// Compares every record.
pub(crate) fn compare(report: &mut Report) {
    let file = Record::load(format!("{FOLDER}/{SOURCE}"));
    let norm = file.number("max_completion_length");
    let inputs = inputs("inputs.json");
    for record in load_records(format!("{FOLDER}/{SOURCE}")) {
        let variant = record.text("variant");
        let key = format!("{variant} {}", record.text("mask"));
        if variant.starts_with("vespo") {
            assert_vespo(&record, &rows(&inputs, record.text("mask")), &key);
            report.differs(SOURCE, "vespo", "vespo", VESPO);
            continue;
        }
        let rows = rows(&inputs, record.text("mask"));
        let Composition { objective, unmasked, aggregation, one_ratio, loss: name } =
            composition(&record, &rows, norm);
        // Its means over rows count a row without tokens.
        let denominator = Denominator::counting_empty(rows.iter().map(GoldenRow::len));
        let denominator = denominator.expect("the batch has tokens");
        let weight = |len: usize| aggregation.weight(&denominator, len);
        let outcome = GoldenOutcome::of(&objective, &rows, weight);

        // The bonus has no gradient with respect to the log-probs of the sampled tokens alone.
        let coefficient = record.record("hp").get("entropy_coef").and_then(serde_json::Value::as_f64);
        let bonus: f64 = rows
            .iter()
            .map(|row| {
                weight(row.len())
                    * row.response().tokens().entropies().unwrap_or_default().iter().sum::<f64>()
            })
            .sum();
        let loss = outcome.loss - coefficient.unwrap_or(0.0) * bonus;
        let expected = record.number("loss_value");
        assert_close(loss, expected, EXACT, &key);

        let grad = record.table("grad");
        // Where a sigmoid is close to one, what is left of it has few digits at the source.
        let tolerance = if name == "sapo" { 1e-9 } else { EXACT };
        assert_all_close(&outcome.grad.concat(), &grad.concat(), tolerance, &key);

        let mut metrics = clip_metrics(&GoldenOutcome::of(&unmasked, &rows, weight), &rows, one_ratio);
        let entropies = entropies(&rows);
        metrics.push(("entropy", entropies.iter().sum::<f64>() / entropies.len() as f64));
        metrics.push(("policy_loss", outcome.loss));
        metrics.push(("kl", kl_metric(&record, &rows)));
        for (name, value) in record.value("metrics").as_object().expect("metrics by name") {
            let (_, found) = metrics
                .iter()
                .find(|(known, _)| known == name)
                .unwrap_or_else(|| panic!("{key}: unknown metric {name}"));
            assert_close(*found, value.as_f64().expect("a number"), EXACT, &format!("{key} {name}"));
        }

        let value = loss_error(loss, expected, &outcome.row_losses);
        report.matched(SOURCE, &name, value, Some(table_error(&outcome.grad, &grad)));
    }
    compare_helpers(report, &rows(&inputs, "response_mask"));
}

/// What the losses are built from: which responses and tokens are left out, and VESPO's weights.
fn compare_helpers(report: &mut Report, rows: &[GoldenRow]) {
    let helpers = Record::load(format!("{FOLDER}/{SOURCE}")).record("helpers");

    let masks = helpers.record("off_policy_mask");
    for threshold in ["0.02", "0.1", "0.3"] {
        let delta = threshold.parse().expect("a number");
        let clip = ConstantClip { low: 0.2, high: 0.2 };
        let objective = Composed::new(TokenRatio, clip, OffPolicySequenceMask { delta });
        let outcome = GoldenOutcome::of(&objective, rows, |_| 1.0);
        let mut bindings = outcome.bindings.iter();
        let mut kept = |row: &GoldenRow| {
            let own: Vec<_> = bindings.by_ref().take(row.len()).collect();
            f64::from(u8::from(own.iter().all(|binding| **binding != Binding::Dropped)))
        };
        let found: Vec<f64> = rows.iter().map(&mut kept).collect();
        assert_eq!(found, masks.numbers(threshold), "{threshold}");
    }
    report.matched(SOURCE, "off-policy mask", 0.0, None);

    let masks = helpers.record("high_entropy_mask");
    for share in ["0.2", "0.5", "0.8"] {
        let threshold = quantile(entropies(rows), 1.0 - share.parse::<f64>().expect("a number"));
        for (index, row) in rows.iter().enumerate() {
            let tokens = row.response().tokens();
            let entropies = tokens.entropies().expect("the rows have them");
            let found: Vec<f64> =
                entropies.iter().map(|entropy| f64::from(u8::from(*entropy >= threshold))).collect();
            assert_eq!(row.scatter(&found), masks.table(share)[index], "{share}[{index}]");
        }
    }
    report.matched(SOURCE, "mask of uncertain tokens", 0.0, None);

    let defaults = Record::new(serde_json::json!({}));
    let found: Vec<f64> = rows.iter().map(|row| vespo_weight(row, &defaults)).collect();
    assert_all_close(&found, &helpers.numbers("vespo_phi"), EXACT, "vespo_phi");
    report.differs(SOURCE, "vespo", "vespo", VESPO);
}

#[test]
fn losses_gradients_and_metrics_are_those_of_trl() {
    let mut report = Report::default();
    compare(&mut report);
    let expected = [
        ("grpo", 9, 0),
        ("bnpo", 2, 0),
        ("dr_grpo", 2, 0),
        ("dapo", 8, 0),
        ("luspo", 3, 0),
        ("cispo", 3, 0),
        ("sapo", 4, 0),
        ("vespo", 0, 4),
        ("GMPOTrainer", 6, 0),
        ("RLOOTrainer", 1, 0),
        ("off-policy mask", 1, 0),
        ("mask of uncertain tokens", 1, 0),
    ];
    assert_eq!(report.counts(SOURCE), expected);
}

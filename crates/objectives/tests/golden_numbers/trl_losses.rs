//! Golden numbers of the losses of TRL; see `golden/README.md` for where they come from.

mod pending;

use firebrick_core::{Binding, ClipSchedule, Gate, ImportanceEstimator, LogProbs};
use firebrick_objectives::{
    Aggregation, Composed, ConstantClip, Denominator, KlEstimator, KlTerm, OuterBounds, PpoMin, SequenceMean,
    SequenceRoute, TokenRatio,
};
use firebrick_testkit::{
    GoldenBatch, GoldenOutcome, GoldenRow, Record, TestResponse, assert_all_close, assert_close, load_records,
};
use pending::{GeometricMean, OffPolicySequenceMask, Saturating, SequenceProduct, Sigmoid, TopEntropy};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
const EXACT: f64 = 1e-11;

/// Records that differ on purpose: key and reason. Their weights are scaled to the other side's rule instead.
const DIFFERENCES: &[(&str, &str)] = &[
    ("grpo_0.2_0.28 response_mask_holes", EMPTY_ROW),
    ("dr_grpo_0.2_0.28 response_mask_holes", EMPTY_ROW),
    ("grpo_seq_0.2_0.28 response_mask_holes", EMPTY_ROW),
    ("luspo_seq_0.2_0.28 response_mask_holes", EMPTY_ROW),
    ("sapo_1.0_1.05 response_mask_holes", EMPTY_ROW),
    ("gmpo_0.4 response_mask_holes", EMPTY_ROW),
    ("gmpo_0.2_0.28 response_mask_holes", EMPTY_ROW),
    ("gmpo_0.4_beta0.04 response_mask_holes", EMPTY_ROW),
];
const EMPTY_ROW: &str = "means over rows count the row without tokens";

/// VESPO has no part here: its weight is a gamma-shaped function of the whole response's ratio.
const SKIPPED: &str = "vespo";

/// How far the numbers of one loss are from the recorded ones.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    loss: String,
    records: usize,
    /// Worst relative error of the loss.
    value: f64,
    /// Worst relative error of a derivative, relative to the largest of its record.
    gradient: f64,
}

fn inputs() -> GoldenBatch {
    GoldenBatch::new(Record::load(format!("{FOLDER}/inputs.json")))
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
            ("RLOOTrainer", _) => Box::new(SequenceProduct),
            (_, true) => Box::new(SequenceMean { route: SequenceRoute::Sequence }),
            (_, false) => Box::new(TokenRatio),
        }
    };
    let clip = || -> Box<dyn Gate> {
        match loss {
            // An absolute cap, and no lower bound.
            "cispo" => Box::new(Saturating { high }),
            "sapo" => Box::new(Sigmoid {
                tau_pos: number("sapo_temperature_pos").unwrap_or(1.0),
                // The default goes through an f32 at the source.
                tau_neg: number("sapo_temperature_neg").unwrap_or(f64::from(1.05_f32)),
            }),
            "GMPOTrainer" => Box::new(GeometricMean { low, high }),
            _ => Box::new(PpoMin { dual_clip: number("delta"), ..PpoMin::default() }),
        }
    };
    let masked = || -> Box<dyn Gate> {
        if let Some(delta) = number("off_policy_mask_threshold") {
            Box::new(OffPolicySequenceMask { delta, gate: clip() })
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
        let schedule: Box<dyn ClipSchedule> = Box::new(ConstantClip { low, high });
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
    let mut bindings = outcome.bindings.iter();
    let per_row: Vec<[f64; 2]> = rows
        .iter()
        .map(|row| {
            let own: Vec<Binding> = bindings.by_ref().take(row.len()).copied().collect();
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
        ("cispo_clip_ratio", mean(1)),
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

fn relative(found: f64, expected: f64, scale: f64) -> f64 {
    (found - expected).abs() / scale.max(1e-6)
}

/// Compares every record, and says how close each loss is.
fn trl() -> Vec<Row> {
    let file = Record::load(format!("{FOLDER}/trl_losses.json"));
    let norm = file.number("max_completion_length");
    let inputs = inputs();
    let mut table: Vec<Row> = Vec::new();
    let (mut differences, mut skipped) = (Vec::new(), 0);
    for record in load_records(format!("{FOLDER}/trl_losses.json")) {
        let variant = record.text("variant");
        if variant.starts_with(SKIPPED) {
            skipped += 1;
            continue;
        }
        let key = format!("{variant} {}", record.text("mask"));
        let rows = rows(&inputs, record.text("mask"));
        let Composition { objective, unmasked, aggregation, one_ratio, loss: name } =
            composition(&record, &rows, norm);
        let denominator = Denominator::of(rows.iter().map(GoldenRow::len)).expect("the batch has tokens");
        let mut scale = 1.0;
        if let Some((key, _)) = DIFFERENCES.iter().find(|(differing, _)| *differing == key) {
            scale = denominator.sequences() as f64 / rows.len() as f64;
            differences.push(*key);
        }
        let weight = |len: usize| scale * aggregation.weight(&denominator, len);
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

        let (found, grad) = (outcome.grad.concat(), record.table("grad").concat());
        assert_all_close(&found, &grad, EXACT, &key);
        let largest = grad.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        let worst = found.iter().zip(&grad).map(|(found, expected)| relative(*found, *expected, largest));

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

        let row = Row {
            loss: name,
            records: 1,
            value: relative(loss, expected, expected.abs()),
            gradient: worst.fold(0.0, f64::max),
        };
        match table.iter_mut().find(|known| known.loss == row.loss) {
            Some(known) => {
                known.records += 1;
                known.value = known.value.max(row.value);
                known.gradient = known.gradient.max(row.gradient);
            }
            None => table.push(row),
        }
    }
    assert_eq!(differences.len(), DIFFERENCES.len(), "every difference was met once");
    assert_eq!(skipped, 3, "records of VESPO");
    table
}

#[test]
fn losses_gradients_and_metrics_are_those_of_trl() {
    let table = trl();
    let records: Vec<(&str, usize)> = table.iter().map(|row| (row.loss.as_str(), row.records)).collect();
    let expected = [
        ("grpo", 9),
        ("bnpo", 2),
        ("dr_grpo", 2),
        ("dapo", 8),
        ("luspo", 3),
        ("cispo", 3),
        ("sapo", 4),
        ("GMPOTrainer", 6),
        ("RLOOTrainer", 1),
    ];
    assert_eq!(records, expected, "all 41 records but those of VESPO were read");
    for row in &table {
        assert!(row.value < 1e-12 && row.gradient < 1e-12, "{row:?}");
    }
}

/// Which responses are dropped when the policy has moved away from the one that sampled them.
#[test]
fn the_off_policy_mask_is_that_of_trl() {
    let rows = rows(&inputs(), "response_mask");
    let helpers = Record::load(format!("{FOLDER}/trl_losses.json")).record("helpers");
    let masks = helpers.record("off_policy_mask");
    for threshold in ["0.02", "0.1", "0.3"] {
        let delta = threshold.parse().expect("a number");
        let found: Vec<f64> = rows
            .iter()
            .map(|row| f64::from(u8::from(!pending::is_off_policy(&row.response().tokens(), delta))))
            .collect();
        assert_eq!(found, masks.numbers(threshold), "{threshold}");
    }
}

#[test]
fn the_mask_of_uncertain_tokens_is_that_of_trl() {
    let rows = rows(&inputs(), "response_mask");
    let helpers = Record::load(format!("{FOLDER}/trl_losses.json")).record("helpers");
    let masks = helpers.record("high_entropy_mask");
    for share in ["0.2", "0.5", "0.8"] {
        let threshold = quantile(entropies(&rows), 1.0 - share.parse::<f64>().expect("a number"));
        for (index, row) in rows.iter().enumerate() {
            let tokens = row.response().tokens();
            let entropies = tokens.entropies().expect("the rows have them");
            let found: Vec<f64> =
                entropies.iter().map(|entropy| f64::from(u8::from(*entropy >= threshold))).collect();
            assert_eq!(row.scatter(&found), masks.table(share)[index], "{share}[{index}]");
        }
    }
}

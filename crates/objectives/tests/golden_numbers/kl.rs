//! Golden numbers of KL penalties, aggregation, the value loss and the adaptive KL coefficient; and of other steps around a loss.

use firebrick_objectives::{AdaptiveKl, Aggregation, Denominator, KlEstimator, KlTerm, ValueLoss};
use firebrick_testkit::{GoldenRow, Record, assert_all_close, assert_close, load_records};

use crate::support::{FOLDER, Report, aggregation, inputs, list, list_error, relative_error, table_error};

const KL: &str = "verl_kl.json";
const MISC: &str = "verl_misc.json";
/// Width of the fixtures' masks, which verl divides by in `seq-mean-token-sum-norm`.
const WIDTH: usize = 12;
const EXACT: f64 = 1e-11;
/// verl's means divide by n + 1e-8.
const VERL: f64 = 5e-8;

/// Σ a · value over the policy tokens.
fn aggregate(mode: Aggregation, denominator: &Denominator, rows: &[GoldenRow], values: &[Vec<f64>]) -> f64 {
    let share = |(row, values): (&GoldenRow, &Vec<f64>)| {
        mode.weight(denominator, row.len()) * row.gather(values).iter().sum::<f64>()
    };
    rows.iter().zip(values).map(share).sum()
}

fn denominator(rows: &[GoldenRow]) -> Denominator {
    Denominator::of(rows.iter().map(GoldenRow::len)).expect("the batch has tokens")
}

/// Compares every record of both files, but those of `verl_misc.json` that are about rewards and advantages.
pub(crate) fn compare(report: &mut Report) {
    kl_penalties(report);
    means(report);
    value_loss(report);
    adaptive_coefficient(report);
    report.differs(
        MISC,
        "log-probs and entropy of logits",
        "logits",
        "compared where the softmax is taken, in firebrick-models (token_scores.rs), in f32",
    );
}

#[test]
fn penalties_means_and_the_value_loss_are_those_of_verl() {
    let mut report = Report::default();
    compare(&mut report);
    let kinds =
        ["kl", "abs", "mse", "low_var_kl", "k1+", "k3+", "abs+"].map(|kind| format!("KL estimate {kind}"));
    let kinds: Vec<_> = kinds.iter().map(|kind| (kind.as_str(), 1, 0)).collect();
    assert_eq!(report.counts(KL), kinds);
    let misc = [
        ("aggregation", 30, 0),
        ("value loss", 4, 0),
        ("adaptive KL coefficient", 1, 0),
        ("log-probs and entropy of logits", 0, 1),
    ];
    assert_eq!(report.counts(MISC), misc);
}

fn kl_penalties(report: &mut Report) {
    let inputs = inputs("inputs.json");
    let rows = inputs.rows("response_mask", "advantages_seq");
    let (current, reference) = (inputs.arrays().table("logprobs"), inputs.arrays().table("ref_logprobs"));
    for record in load_records(format!("{FOLDER}/{KL}")) {
        let kind = record.text("kind");
        let estimator = match kind.trim_end_matches('+') {
            "kl" | "k1" => KlEstimator::K1,
            "abs" => KlEstimator::Abs,
            "mse" | "k2" => KlEstimator::K2,
            "low_var_kl" | "k3" => KlEstimator::K3,
            other => panic!("unknown estimator {other}"),
        };
        let term = KlTerm { straight_through: kind.ends_with('+'), ..KlTerm::new(estimator, 1.0) };
        let (mut values, mut gradients) = (Vec::new(), Vec::new());
        for (index, row) in rows.iter().enumerate() {
            let pairs = row.gather(&current[index]).into_iter().zip(row.gather(&reference[index]));
            let tokens: Vec<(f64, f64)> = pairs.map(|(p, q)| term.token(p - q, 0.0)).collect();
            let (value, gradient): (Vec<f64>, Vec<f64>) = tokens.into_iter().unzip();
            let what = format!("{kind}[{index}]");
            assert_all_close(&row.scatter(&value), &record.table("per_token")[index], EXACT, &what);
            let expected = &record.table("grad_of_masked_sum")[index];
            assert_all_close(&row.scatter(&gradient), expected, EXACT, &what);
            values.push(row.scatter(&value));
            gradients.push(row.scatter(&gradient));
        }
        let denominator = denominator(&rows);
        let mean = aggregate(Aggregation::TokenMean, &denominator, &rows, &values);
        assert_close(mean, record.number("token_mean"), VERL, kind);
        for (name, expected) in record.value("agg").as_object().expect("means by name") {
            let found = aggregate(aggregation(name, WIDTH), &denominator, &rows, &values);
            assert_close(found, expected.as_f64().expect("a number"), VERL, &format!("{kind} {name}"));
        }
        report.matched(
            KL,
            &format!("KL estimate {kind}"),
            table_error(&values, &record.table("per_token")),
            Some(table_error(&gradients, &record.table("grad_of_masked_sum"))),
        );
    }
}

/// A rank of verl is told the counts of the whole batch and multiplies by the number of ranks, since their gradients are
/// averaged. Here the other ranks' rows are in the denominator, and nothing is averaged.
fn means(report: &mut Report) {
    let inputs = inputs("inputs.json");
    let entropy = inputs.arrays().table("entropy");
    let mut spread = 0;
    for record in list(MISC, "agg_loss_on_entropy") {
        let rows = inputs.rows(record.text("mask"), "advantages_seq");
        let options = record.record("kw");
        let number = |key: &str| options.get(key).and_then(serde_json::Value::as_f64);
        let width = number("loss_scale_factor").map_or(WIDTH, |factor| factor as usize);
        let mode = aggregation(record.text("agg"), width);
        let own: Vec<usize> = rows.iter().map(GoldenRow::len).filter(|len| *len > 0).collect();
        let (mut lengths, mut ranks) = (own.clone(), 1.0);
        if let (Some(tokens), Some(sequences)) = (number("batch_num_tokens"), number("global_batch_size")) {
            let others = sequences as usize - own.len();
            let tokens = tokens as usize - own.iter().sum::<usize>();
            lengths.extend((0..others).map(|row| if row == 0 { tokens - (others - 1) } else { 1 }));
            ranks = number("dp_size").expect("a number of ranks");
            spread += 1;
        }
        let denominator = Denominator::of(lengths).expect("the batch has tokens");
        let found = ranks * aggregate(mode, &denominator, &rows, &entropy);
        assert_close(found, record.number("value"), VERL, &format!("{} {options:?}", record.text("agg")));
        report.matched(MISC, "aggregation", relative_error(found, record.number("value")), None);
    }
    assert_eq!(spread, 10, "records of several ranks");
}

fn value_loss(report: &mut Report) {
    let inputs = inputs("inputs.json");
    let rows = inputs.rows("response_mask", "advantages_seq");
    let table = |key: &str| inputs.arrays().table(key);
    let (now, before, advantages) = (table("vpreds"), table("values"), table("advantages_tok"));
    let denominator = denominator(&rows);
    for record in list(MISC, "value_loss") {
        assert_eq!(record.text("returns"), "values+advantages_tok");
        let value_loss = ValueLoss { clip: record.number("cliprange_value"), coefficient: 1.0 };
        let mode = aggregation(record.text("agg"), WIDTH);
        let what = format!("{} {}", record.text("agg"), value_loss.clip);
        let (mut loss, mut clipped, mut gradient) = (0.0, 0, 0.0_f64);
        for (index, row) in rows.iter().enumerate() {
            let before = row.gather(&before[index]);
            let returns: Vec<f64> =
                before.iter().zip(row.gather(&advantages[index])).map(|(value, a)| value + a).collect();
            let weight = mode.weight(&denominator, row.len());
            let terms = value_loss.evaluate(&row.gather(&now[index]), &before, &returns, weight);
            let expected = &record.table("grad")[index];
            assert_all_close(&row.scatter(&terms.gradient), expected, VERL, &what);
            gradient = gradient.max(list_error(&row.scatter(&terms.gradient), expected));
            loss += terms.loss;
            clipped += terms.clipped;
        }
        assert_close(loss, record.number("loss_value"), VERL, &what);
        let fraction = clipped as f64 / denominator.tokens() as f64;
        assert_close(fraction, record.number("clipfrac"), VERL, &what);
        let value = relative_error(loss, record.number("loss_value"));
        report.matched(MISC, "value loss", value, Some(gradient));
    }
}

fn adaptive_coefficient(report: &mut Report) {
    let record = Record::load(format!("{FOLDER}/{MISC}")).record("adaptive_kl");
    let control = AdaptiveKl { target: record.number("target"), horizon: record.number("horizon") };
    let mut coefficient = record.number("init");
    let measured = record.numbers("current_kl");
    let mut worst = 0.0_f64;
    for (kl, expected) in measured.iter().zip(record.numbers("values")) {
        coefficient = control.updated(coefficient, *kl, record.number("n_steps") as usize);
        assert_close(coefficient, expected, EXACT, "coefficient");
        worst = worst.max(relative_error(coefficient, expected));
    }
    assert_eq!(measured.len(), 4, "every update was read");
    report.matched(MISC, "adaptive KL coefficient", worst, None);
}

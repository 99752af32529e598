//! What golden tests share: fixtures, the evaluation of a whole batch, and a table of how close the numbers come.

use firebrick_core::{LogProbs, Objective, OptimizerBatch};
use firebrick_objectives::{Aggregation, Denominator};
use firebrick_testkit::{GoldenBatch, GoldenOutcome, GoldenRow, Record};

/// Where the fixtures lie.
pub(crate) const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

/// The inputs that a fixture's records name.
pub(crate) fn inputs(file: &str) -> GoldenBatch {
    GoldenBatch::new(Record::load(format!("{FOLDER}/{file}")))
}

/// The aggregation that records call `name`; `width` is that of their masks, which one of them divides by.
pub(crate) fn aggregation(name: &str, width: usize) -> Aggregation {
    match name {
        "token-mean" => Aggregation::TokenMean,
        "token-sum" => Aggregation::TokenSum,
        "seq-mean-token-mean" => Aggregation::SeqMeanTokenMean,
        "seq-mean-token-sum" => Aggregation::SeqMeanTokenSum,
        "seq-mean-token-sum-norm" => Aggregation::SeqMeanTokenSumNorm { norm: width as f64 },
        other => panic!("unknown aggregation {other}"),
    }
}

/// Shows all rows to the objective's parts as one optimizer batch, and evaluates them under its one denominator.
pub(crate) fn evaluate(
    objective: &mut dyn Objective,
    rows: &[GoldenRow],
    aggregation: Aggregation,
) -> (GoldenOutcome, Denominator) {
    let contexts: Vec<_> = rows.iter().map(|row| row.response().context()).collect();
    let current: Vec<_> =
        rows.iter().map(|row| LogProbs::new(row.response().current().values().to_vec())).collect();
    let batch = OptimizerBatch { responses: &contexts, current: Some(&current) };
    for (name, part) in objective.stateful_parts() {
        part.prepare(&batch).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let counted = contexts.iter().map(|context| objective.counted_tokens(context));
    let denominator = Denominator::of(counted).expect("the batch has tokens");
    let outcome = GoldenOutcome::of(objective, rows, |len| aggregation.weight(&denominator, len));
    (outcome, denominator)
}

/// How close an objective comes to the records of another implementation.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Row {
    /// The objective, by its name at the source.
    pub(crate) objective: String,
    /// Records whose value and gradient are the same.
    pub(crate) matched: usize,
    /// Records that differ on purpose, each for a listed reason.
    pub(crate) differing: usize,
    /// Largest error of a matched value, relative to the sum of the responses' losses without their signs.
    pub(crate) value_error: f64,
    /// Largest relative error of an entry of a matched gradient.
    pub(crate) gradient_error: f64,
}

impl Row {
    /// Counts a matched record.
    pub(crate) fn add(&mut self, value_error: f64, gradient_error: f64) {
        self.matched += 1;
        self.value_error = self.value_error.max(value_error);
        self.gradient_error = self.gradient_error.max(gradient_error);
    }

    /// The row of `objective`, which is added when it is new.
    pub(crate) fn of<'a>(table: &'a mut Vec<Self>, objective: &str) -> &'a mut Self {
        let index = table.iter().position(|row| row.objective == objective).unwrap_or_else(|| {
            table.push(Self { objective: objective.to_owned(), ..Self::default() });
            table.len() - 1
        });
        &mut table[index]
    }
}

/// Error of `found`, relative to the larger of the two numbers and absolute below 1e-6.
pub(crate) fn relative_error(found: f64, expected: f64) -> f64 {
    if found == expected {
        return 0.0;
    }
    (found - expected).abs() / found.abs().max(expected.abs()).max(1e-6)
}

/// Largest relative error of an entry of a table.
///
/// # Panics
/// When the tables differ in shape.
pub(crate) fn table_error(found: &[Vec<f64>], expected: &[Vec<f64>]) -> f64 {
    assert_eq!(found.len(), expected.len(), "rows");
    let entries = found.iter().zip(expected).flat_map(|(found, expected)| {
        assert_eq!(found.len(), expected.len(), "columns");
        found.iter().zip(expected).map(|(found, expected)| relative_error(*found, *expected))
    });
    entries.fold(0.0, f64::max)
}

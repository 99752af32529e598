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

/// Shows all rows to the objective's parts as one optimizer batch, and evaluates them under its one denominator, which counts rows
/// without tokens when told so.
pub(crate) fn evaluate(
    objective: &mut dyn Objective,
    rows: &[GoldenRow],
    aggregation: Aggregation,
    counts_empty: bool,
) -> (GoldenOutcome, Denominator) {
    let contexts: Vec<_> = rows.iter().map(|row| row.response().context()).collect();
    let current: Vec<_> =
        rows.iter().map(|row| LogProbs::new(row.response().current().values().to_vec())).collect();
    let batch = OptimizerBatch { responses: &contexts, current: Some(&current) };
    for (name, part) in objective.stateful_parts() {
        part.prepare(&batch).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let counted = contexts.iter().map(|context| objective.counted_tokens(context));
    let counted: Vec<usize> = counted.collect();
    let denominator =
        if counts_empty { Denominator::counting_empty(counted) } else { Denominator::of(counted) };
    let denominator = denominator.expect("the batch has tokens");
    let outcome = GoldenOutcome::of(objective, rows, |len| aggregation.weight(&denominator, len));
    (outcome, denominator)
}

/// How close an objective, an estimator or another part comes to the records of one file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// The fixture.
    pub(crate) source: &'static str,
    /// The objective or estimator, by its name at the source.
    pub(crate) name: String,
    /// Records whose numbers are the same.
    pub(crate) matched: usize,
    /// Records that differ on purpose, each for a listed reason.
    pub(crate) differing: usize,
    /// Largest error of a matched value.
    pub(crate) value_error: f64,
    /// Largest error of an entry of a matched gradient; `None` where the records have none.
    pub(crate) gradient_error: Option<f64>,
}

/// Records of one file that differ on purpose for one reason.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Difference {
    pub(crate) source: &'static str,
    /// Which records.
    pub(crate) key: String,
    pub(crate) reason: &'static str,
    pub(crate) records: usize,
}

/// What was compared.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    pub(crate) differences: Vec<Difference>,
}

impl Report {
    /// Counts a record that is the same but for these errors.
    pub(crate) fn matched(&mut self, source: &'static str, name: &str, value: f64, gradient: Option<f64>) {
        assert!(!value.is_nan() && gradient.is_none_or(|error| !error.is_nan()), "{name}");
        let row = self.row(source, name);
        row.matched += 1;
        row.value_error = row.value_error.max(value);
        row.gradient_error = row.gradient_error.into_iter().chain(gradient).reduce(f64::max);
    }

    /// Counts a record that differs on purpose.
    pub(crate) fn differs(&mut self, source: &'static str, name: &str, key: &str, reason: &'static str) {
        self.row(source, name).differing += 1;
        let same = |known: &&mut Difference| known.source == source && known.key == key;
        match self.differences.iter_mut().find(same) {
            Some(known) => known.records += 1,
            None => self.differences.push(Difference { source, key: key.to_owned(), reason, records: 1 }),
        }
    }

    /// Name, matched and differing records of each row of a fixture.
    pub(crate) fn counts(&self, source: &str) -> Vec<(&str, usize, usize)> {
        let rows = self.rows.iter().filter(|row| row.source == source);
        rows.map(|row| (row.name.as_str(), row.matched, row.differing)).collect()
    }

    fn row(&mut self, source: &'static str, name: &str) -> &mut Row {
        let index = self.rows.iter().position(|row| row.source == source && row.name == name);
        let index = index.unwrap_or_else(|| {
            self.rows.push(Row {
                source,
                name: name.to_owned(),
                matched: 0,
                differing: 0,
                value_error: 0.0,
                gradient_error: None,
            });
            self.rows.len() - 1
        });
        &mut self.rows[index]
    }
}

/// The list `key` of a fixture.
pub(crate) fn list(source: &str, key: &str) -> Vec<Record> {
    let file = Record::load(format!("{FOLDER}/{source}"));
    file.value(key).as_array().expect("a list of records").iter().cloned().map(Record::new).collect()
}

/// Error of a loss relative to its size or, where responses of opposite sign cancel, to the sum of their absolute losses: the
/// digits that they lose are no error.
pub(crate) fn loss_error(found: f64, expected: f64, row_losses: &[f64]) -> f64 {
    let size: f64 = row_losses.iter().map(|loss| loss.abs()).sum();
    (found - expected).abs() / size.max(expected.abs()).max(1e-6)
}

/// Largest relative error of an entry of a list.
pub(crate) fn list_error(found: &[f64], expected: &[f64]) -> f64 {
    table_error(&[found.to_vec()], &[expected.to_vec()])
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

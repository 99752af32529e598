//! Prefix-mean objectives, TAPO and PNPO.

use firebrick_core::{Binding, Bounds, ClipSchedule};
use firebrick_objectives::{
    Aggregation, Composed, ConstantClip, HardMask, Horizon, IntervalForm, InverseSqrtClip, MaskedValue,
    OuterBounds, PpoMin, PrefixMean, PrefixRoute, SequenceMean, SequenceRoute, SqrtRatioClip, WindowSpace,
};
use firebrick_testkit::{GoldenBatch, GoldenRow, Record, assert_all_close, assert_close, load_records};

use crate::support::{FOLDER, Report, aggregation, evaluate, inputs, relative_error, table_error};

const EXACT: f64 = 1e-11;

fn rows(inputs: &GoldenBatch, record: &Record) -> Vec<GoldenRow> {
    inputs.rows(record.text("mask"), record.text("advantages"))
}

fn assert_table(found: &[Vec<f64>], expected: &[Vec<f64>], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: rows");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_all_close(found, expected, tolerance, &format!("{what}[{index}]"));
    }
}

/// One value per policy token against the valid entries of a table.
fn assert_tokens(rows: &[GoldenRow], found: impl Fn(usize) -> Vec<f64>, expected: &[Vec<f64>], what: &str) {
    for (index, row) in rows.iter().enumerate() {
        assert_all_close(&found(index), &row.gather(&expected[index]), EXACT, &format!("{what}[{index}]"));
    }
}

fn windows(schedule: &dyn ClipSchedule, row: &GoldenRow) -> Vec<Bounds> {
    let mut bounds = vec![Bounds::OPEN; row.len()];
    schedule.bounds(&row.response().tokens(), &mut bounds);
    bounds
}

/// The gates that a recorded `dual_clip` stands for; all of them must give the recorded numbers.
fn tapo_gates(hp: &Record) -> Vec<PpoMin> {
    let Some(dual) = hp.get("dual_clip") else { return vec![PpoMin::default()] };
    let side = |index: usize| dual[index].as_f64();
    match (side(0), side(1)) {
        (Some(low), Some(high)) => {
            vec![PpoMin { outer: OuterBounds::RatioClamp { low, high }, ..PpoMin::default() }]
        }
        (None, Some(high)) => vec![
            PpoMin { outer: OuterBounds::DualClipOnly { high }, ..PpoMin::default() },
            PpoMin { dual_clip: Some(high), ..PpoMin::default() },
        ],
        other => panic!("unknown dual clip {other:?}"),
    }
}

const TAPO: &str = "tapo.json";
const PNPO: &str = "pnpo.json";

/// Compares every record of both files.
pub(crate) fn compare(report: &mut Report) {
    tapo(report);
    pnpo(report);
}

#[test]
fn tapo_and_pnpo_give_every_recorded_number() {
    let mut report = Report::default();
    compare(&mut report);
    assert_eq!((report.counts(TAPO), report.counts(PNPO)), (vec![("tapo", 34, 0)], vec![("pnpo", 9, 0)]));
}

fn tapo(report: &mut Report) {
    let inputs = inputs("inputs.json");
    let (mut weights, mut widths) = (0, 0);
    for record in load_records(format!("{FOLDER}/{TAPO}")) {
        let hp = record.record("hp");
        let rows = rows(&inputs, &record);
        let what = format!("{} {}", record.text("variant"), record.text("agg"));
        let schedule = InverseSqrtClip {
            eps_max: hp.number("eps_max"),
            eps_min_low: hp.number("eps_min_l"),
            eps_min_high: hp.number("eps_min_r"),
            horizon: Horizon::ResponseLength,
            space: WindowSpace::Ratio,
            ..InverseSqrtClip::default()
        };
        let (mut value, mut gradient) = (0.0_f64, 0.0_f64);
        for gate in tapo_gates(&hp) {
            let mut objective = Composed::new(PrefixMean { route: PrefixRoute::Current }, schedule, gate);
            let (outcome, _) = evaluate(&mut objective, &rows, aggregation(record.text("agg"), 12), false);
            assert_close(outcome.loss, record.number("loss_value"), EXACT, &what);
            assert_table(&outcome.grad, &record.table("grad"), EXACT, &what);
            value = value.max(relative_error(outcome.loss, record.number("loss_value")));
            gradient = gradient.max(table_error(&outcome.grad, &record.table("grad")));
            let metrics = record.record("metrics");
            for (key, binding) in [
                ("clip_frac_low", Binding::Low),
                ("clip_frac_high", Binding::High),
                ("dual_frac_low", Binding::OuterLow),
                ("dual_frac_high", Binding::OuterHigh),
            ] {
                assert_close(outcome.fraction(binding), metrics.number(key), EXACT, &format!("{what} {key}"));
            }
            if record.get("R_prefix").is_some() {
                let ratios = |row: usize| outcome.log_weights[row].iter().map(|w| w.exp()).collect();
                assert_tokens(&rows, ratios, &record.table("R_prefix"), &what);
                weights += 1;
            }
        }
        if record.get("eps_l").is_some() {
            let eps = |side: fn(Bounds) -> f64| {
                let rows = &rows;
                move |row: usize| windows(&schedule, &rows[row]).into_iter().map(side).collect()
            };
            assert_tokens(&rows, eps(|window| 1.0 - window.low), &record.table("eps_l"), &what);
            assert_tokens(&rows, eps(|window| window.high - 1.0), &record.table("eps_r"), &what);
            widths += 1;
        }
        report.matched(TAPO, "tapo", value, Some(gradient));
    }
    assert_eq!((weights, widths), (4, 4), "recorded ratios and windows were read");
}

fn pnpo(report: &mut Report) {
    let inputs = inputs("inputs.json");
    let mut windows_checked = 0;
    for record in load_records(format!("{FOLDER}/{PNPO}")) {
        let hp = record.record("hp");
        let rows = rows(&inputs, &record);
        let what = format!("{} {}", record.text("variant"), record.text("mask"));
        let interval = match hp.text("interval") {
            "linear" => IntervalForm::Linear,
            "power" => IntervalForm::Power,
            other => panic!("unknown interval {other}"),
        };
        let schedule =
            SqrtRatioClip { eps_minus: hp.number("eps_minus"), eps_plus: hp.number("eps_plus"), interval };
        let (mut loss_error, mut gradient) = (0.0_f64, 0.0_f64);
        for (value, key) in
            [(MaskedValue::WeightedLogProb, "loss_value"), (MaskedValue::Weight, "loss_value_ratio_form")]
        {
            let mut objective = Composed::new(PrefixMean::default(), schedule, HardMask { value });
            let (outcome, _) = evaluate(&mut objective, &rows, Aggregation::SeqMeanTokenMean, false);
            assert_close(outcome.loss, record.number(key), EXACT, &what);
            assert_table(&outcome.grad, &record.table("grad"), EXACT, &what);
            loss_error = loss_error.max(relative_error(outcome.loss, record.number(key)));
            gradient = gradient.max(table_error(&outcome.grad, &record.table("grad")));
            assert_close(outcome.fraction(Binding::None), record.number("accept_frac"), EXACT, &what);
            let accept: Vec<f64> = outcome
                .bindings
                .iter()
                .map(|binding| f64::from(u8::from(*binding == Binding::None)))
                .collect();
            let table = record.table("accept");
            let expected: Vec<f64> =
                rows.iter().zip(&table).flat_map(|(row, accept)| row.gather(accept)).collect();
            assert_eq!(accept, expected, "{what}: accepted tokens");
            if record.get("w_prefix").is_some() {
                let ratios = |row: usize| outcome.log_weights[row].iter().map(|w| w.exp()).collect();
                assert_tokens(&rows, ratios, &record.table("w_prefix"), &what);
            }
        }
        if record.get("lo").is_some() {
            let side = |side: fn(Bounds) -> f64| {
                let rows = &rows;
                move |row: usize| windows(&schedule, &rows[row]).into_iter().map(side).collect()
            };
            assert_tokens(&rows, side(|window| window.low), &record.table("lo"), &what);
            assert_tokens(&rows, side(|window| window.high), &record.table("hi"), &what);
            windows_checked += 1;
        }
        report.matched(PNPO, "pnpo", loss_error, Some(gradient));
    }
    assert_eq!(windows_checked, 5, "recorded windows were read");
}

/// In a response with one advantage, the gradient through all tokens is the same as through the current one.
#[test]
fn both_routes_of_gspo_agree_when_the_advantage_is_constant_in_a_response() {
    let rows = inputs("inputs.json").rows("response_mask_holes", "advantages_seq");
    for mode in [Aggregation::SeqMeanTokenMean, Aggregation::TokenMean, Aggregation::SeqSumTokenMean] {
        for clip in [ConstantClip { low: 3e-4, high: 4e-4 }, ConstantClip { low: 0.2, high: 0.28 }] {
            let [sequence, current] = [SequenceRoute::Sequence, SequenceRoute::Current].map(|route| {
                evaluate(
                    &mut Composed::new(SequenceMean { route }, clip, PpoMin::default()),
                    &rows,
                    mode,
                    false,
                )
                .0
            });
            assert_eq!(sequence.loss, current.loss);
            assert_table(&sequence.grad, &current.grad, 1e-13, "grad");
        }
    }
}

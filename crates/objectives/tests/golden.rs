//! Golden numbers of other implementations; see `golden/README.md` for where they come from.

use firebrick_core::{Binding, Bounds, ClipSchedule, Objective};
use firebrick_objectives::{
    Aggregation, Composed, ConstantClip, Denominator, HardMask, Horizon, IntervalForm, InverseSqrtClip,
    MaskedValue, OuterBounds, PpoMin, PrefixMean, PrefixRoute, SequenceMean, SequenceRoute, SqrtRatioClip,
    TokenRatio, WindowSpace,
};
use firebrick_testkit::{
    GoldenBatch, GoldenOutcome, GoldenRow, Record, assert_all_close, assert_close, load_records,
};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
/// Width of the fixtures' masks, which verl divides by in `seq-mean-token-sum-norm`.
const WIDTH: f64 = 12.0;
const EXACT: f64 = 1e-11;
/// verl's means divide by n + 1e-8.
const VERL: f64 = 5e-8;

fn inputs() -> GoldenBatch {
    GoldenBatch::new(Record::load(format!("{FOLDER}/inputs.json")))
}

fn rows(inputs: &GoldenBatch, record: &Record) -> Vec<GoldenRow> {
    inputs.rows(record.text("mask"), record.text("advantages"))
}

fn aggregation(name: &str) -> Aggregation {
    match name {
        "token-mean" => Aggregation::TokenMean,
        "token-sum" => Aggregation::TokenSum,
        "seq-mean-token-mean" => Aggregation::SeqMeanTokenMean,
        "seq-mean-token-sum" => Aggregation::SeqMeanTokenSum,
        "seq-mean-token-sum-norm" => Aggregation::SeqMeanTokenSumNorm { norm: WIDTH },
        other => panic!("unknown aggregation {other}"),
    }
}

fn evaluate(
    objective: &dyn Objective,
    rows: &[GoldenRow],
    aggregation: Aggregation,
) -> (GoldenOutcome, Denominator) {
    let denominator = Denominator::of(rows.iter().map(GoldenRow::len)).expect("the batch has tokens");
    let outcome = GoldenOutcome::of(objective, rows, |len| aggregation.weight(&denominator, len));
    (outcome, denominator)
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
            vec![PpoMin { dual_clip: None, outer: OuterBounds::RatioClamp { low, high } }]
        }
        (None, Some(high)) => vec![
            PpoMin { dual_clip: None, outer: OuterBounds::DualClipOnly { high } },
            PpoMin { dual_clip: Some(high), outer: OuterBounds::Open {} },
        ],
        other => panic!("unknown dual clip {other:?}"),
    }
}

#[test]
fn tapo_gives_every_recorded_number() {
    let inputs = inputs();
    let (mut records, mut weights, mut widths) = (0, 0, 0);
    for record in load_records(format!("{FOLDER}/tapo.json")) {
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
        for gate in tapo_gates(&hp) {
            let objective = Composed::new(PrefixMean { route: PrefixRoute::Current }, schedule, gate);
            let (outcome, _) = evaluate(&objective, &rows, aggregation(record.text("agg")));
            assert_close(outcome.loss, record.number("loss_value"), EXACT, &what);
            assert_table(&outcome.grad, &record.table("grad"), EXACT, &what);
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
        records += 1;
    }
    assert_eq!((records, weights, widths), (34, 4, 4), "every record was read");
}

#[test]
fn pnpo_gives_every_recorded_number() {
    let inputs = inputs();
    let (mut records, mut windows_checked) = (0, 0);
    for record in load_records(format!("{FOLDER}/pnpo.json")) {
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
        for (value, key) in
            [(MaskedValue::WeightedLogProb, "loss_value"), (MaskedValue::Weight, "loss_value_ratio_form")]
        {
            let objective = Composed::new(PrefixMean::default(), schedule, HardMask { value });
            let (outcome, _) = evaluate(&objective, &rows, Aggregation::SeqMeanTokenMean);
            assert_close(outcome.loss, record.number(key), EXACT, &what);
            assert_table(&outcome.grad, &record.table("grad"), EXACT, &what);
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
        records += 1;
    }
    assert_eq!((records, windows_checked), (9, 5), "every record was read");
}

/// The gradient of a record, looked up or scaled where the fixture says so.
fn verl_grad(record: &Record, records: &[Record], tokens: usize) -> Vec<Vec<f64>> {
    let of_agg = |agg: &str| {
        let same = |other: &&Record| {
            other.text("agg") == agg
                && ["loss", "variant", "mask"].iter().all(|key| other.text(key) == record.text(key))
        };
        records.iter().find(same).expect("the record that the gradient is shared with").table("grad")
    };
    if record.get("grad").is_some() {
        record.table("grad")
    } else if record.get("grad_same_as_agg").is_some() {
        of_agg(record.text("grad_same_as_agg"))
    } else {
        assert_eq!(record.text("grad_note"), "token-mean grad times number of mask tokens");
        let mean = of_agg("token-mean");
        mean.iter().map(|row| row.iter().map(|value| value * tokens as f64).collect()).collect()
    }
}

#[test]
fn ppo_clip_and_gspo_give_the_numbers_of_verl() {
    let inputs = inputs();
    let records = load_records(format!("{FOLDER}/verl_vanilla_gspo.json"));
    let (mut vanilla, mut gspo) = (0, 0);
    for record in &records {
        let hp = record.record("hp");
        let rows = rows(&inputs, record);
        assert_eq!(record.text("old_logprobs"), "old_logprobs");
        let what = format!("{} {} {}", record.text("loss"), record.text("variant"), record.text("agg"));
        let schedule = ConstantClip { low: hp.number("clip_ratio_low"), high: hp.number("clip_ratio_high") };
        let (outcome, denominator) = match record.text("loss") {
            "vanilla" => {
                vanilla += 1;
                let gate = PpoMin { dual_clip: Some(hp.number("clip_ratio_c")), outer: OuterBounds::Open {} };
                let objective = Composed::new(TokenRatio, schedule, gate);
                evaluate(&objective, &rows, aggregation(record.text("agg")))
            }
            "gspo" => {
                gspo += 1;
                let estimator = SequenceMean { route: SequenceRoute::Current };
                let objective = Composed::new(estimator, schedule, PpoMin::default());
                evaluate(&objective, &rows, Aggregation::SeqMeanTokenMean)
            }
            other => panic!("unknown loss {other}"),
        };
        let tokens = denominator.tokens();
        assert_close(outcome.loss, record.number("loss_value"), VERL, &what);
        assert_table(&outcome.grad, &verl_grad(record, &records, tokens), VERL, &what);

        let metrics = record.record("metrics");
        let clipped = outcome.fraction(Binding::Low) + outcome.fraction(Binding::High);
        assert_close(clipped, metrics.number("actor/pg_clipfrac"), VERL, &what);
        let dual = outcome.fraction(Binding::OuterHigh);
        assert_close(dual, metrics.number("actor/pg_clipfrac_lower"), VERL, &what);
        let log_ratios: f64 = rows.iter().flat_map(|row| row.response().tokens().log_ratios().to_vec()).sum();
        assert_close(-log_ratios / tokens as f64, metrics.number("actor/ppo_kl"), VERL, &what);
    }
    assert_eq!((vanilla, gspo), (21, 14), "every record was read");
}

/// In a response with one advantage, the gradient through all tokens is the same as through the current one.
#[test]
fn both_routes_of_gspo_agree_when_the_advantage_is_constant_in_a_response() {
    let rows = inputs().rows("response_mask_holes", "advantages_seq");
    for mode in [Aggregation::SeqMeanTokenMean, Aggregation::TokenMean, Aggregation::SeqSumTokenMean] {
        for clip in [ConstantClip { low: 3e-4, high: 4e-4 }, ConstantClip { low: 0.2, high: 0.28 }] {
            let [sequence, current] = [SequenceRoute::Sequence, SequenceRoute::Current].map(|route| {
                evaluate(&Composed::new(SequenceMean { route }, clip, PpoMin::default()), &rows, mode).0
            });
            assert_eq!(sequence.loss, current.loss);
            assert_table(&sequence.grad, &current.grad, 1e-13, "grad");
        }
    }
}

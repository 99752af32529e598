//! Every policy loss of verl, put together from parts; see `../golden/README.md` for where the numbers come from.
//!
//! The parts that a weight or a rejection of verl's rollout correction stands for are defined here.

use firebrick_core::{
    Binding, ClipSchedule, Corrected, Gate, ImportanceEstimator, LOG_RATIO_LIMIT, LogProbs, Objective,
    ResponseContext, RolloutCorrection,
};
use firebrick_objectives::{
    Composed, ConstantClip, CovarianceClip, CovarianceKl, Denominator, Divergence, DivergenceMask,
    GeometricMean, HardMask, KlEstimator, KlTerm, MaskedValue, OpenWindow, PpoMin, Saturating, SequenceMean,
    SequenceProduct, SequenceRoute, Sigmoid, TokenRatio, Unweighted,
};
use firebrick_testkit::{GoldenBatch, GoldenOutcome, GoldenRow, Record, load_records};

use crate::support::{
    FOLDER, Report, aggregation, evaluate, inputs, list, loss_error, relative_error, table_error,
};

/// verl's means divide by n + 1e-8.
const TOLERANCE: f64 = 5e-8;

/// Where we differ from verl on purpose: which records, and why. A formula below gives verl's number for each.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "extreme/low_var_kl",
        "verl stops k3 at 10 nats, which is no farther than u = -2.6, and its gradient with it",
    ),
    ("extreme/k3+", "verl stops k3 at 10 nats; here it grows until u = -20"),
];

/// Losses of verl that take log-ratios as they are; all others clamp them at 20 nats.
const UNCLAMPED: [&str; 5] = ["gspo", "clip_cov", "kl_cov", "geo_mean", "dro"];
/// Beyond all log-ratios of the fixtures.
const FAR: f64 = 100.0;

fn difference(key: &str) -> Option<&'static str> {
    DIFFERENCES.iter().find(|(known, _)| *known == key).map(|(_, reason)| *reason)
}

fn log_rho(response: &ResponseContext) -> Vec<f64> {
    let proximal = response.proximal().expect("the test gives proximal log-probs");
    proximal.iter().zip(response.behaviour()).map(|(proximal, behaviour)| proximal - behaviour).collect()
}

/// min(ρ_t, 2); for verl's `geo_mean` the geometric mean of a response's.
#[derive(Debug)]
struct Truncated {
    averages: bool,
}

impl RolloutCorrection for Truncated {
    fn correct(&self, response: &ResponseContext, out: &mut [Corrected]) {
        let logs: Vec<f64> = log_rho(response).into_iter().map(|log| log.min(2f64.ln())).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        for (out, log) in out.iter_mut().zip(logs) {
            *out = Corrected { weight: if self.averages { mean } else { log }.exp(), keep: true };
        }
    }
}

/// Rejection, here of the current policy against the sampling one, that shrinks the denominators.
#[derive(Debug)]
struct Rejection {
    /// Largest mean k3 of a response.
    mean_k3: f64,
    /// Interval of a token's ratio.
    ratios: (f64, f64),
    /// What kept tokens are divided by.
    norm: f64,
}

impl RolloutCorrection for Rejection {
    fn correct(&self, response: &ResponseContext, out: &mut [Corrected]) {
        let logs = log_rho(response);
        let k3 = logs.iter().map(|log| log.exp() - 1.0 - log).sum::<f64>() / logs.len() as f64;
        for (out, log) in out.iter_mut().zip(logs) {
            let inside = (self.ratios.0.ln()..=self.ratios.1.ln()).contains(&log);
            *out = Corrected { weight: 1.0 / self.norm, keep: k3 <= self.mean_k3 && inside };
        }
    }
    fn shrinks_denominator(&self) -> bool {
        true
    }
}

type Correction = Option<Box<dyn RolloutCorrection>>;

fn compose(record: &Record, rows: &[GoldenRow]) -> Box<dyn Objective> {
    fn with<E, S, G>(estimator: E, schedule: S, gate: G, correction: Correction) -> Box<dyn Objective>
    where
        E: ImportanceEstimator + 'static,
        S: ClipSchedule + 'static,
        G: Gate + 'static,
    {
        Box::new(Composed::new(estimator, schedule, gate).with_correction(correction))
    }
    let hp = record.record("hp");
    let loss = record.text("loss");
    let truncated = record.get("is_weights").is_some() && loss != "bypass_mode";
    let correction: Correction = if truncated {
        Some(Box::new(Truncated { averages: loss == "geo_mean" }))
    } else {
        bypass_rejection(&hp, rows)
    };
    let clip = || ConstantClip { low: hp.number("clip_ratio_low"), high: hp.number("clip_ratio_high") };
    let dual = || PpoMin { dual_clip: Some(hp.number("clip_ratio_c")), ..PpoMin::default() };
    let cap = |high: f64| ConstantClip { low: 10.0, high: high - 1.0 };
    match loss {
        "vanilla" => with(TokenRatio, clip(), dual(), correction),
        "gspo" => {
            let estimator = SequenceMean { route: SequenceRoute::Current };
            with(estimator, clip(), PpoMin::default(), correction)
        }
        "sapo" => {
            let gate = Sigmoid { tau_pos: hp.number("tau_pos"), tau_neg: hp.number("tau_neg") };
            with(TokenRatio, OpenWindow, gate, correction)
        }
        "gpg" => with(Unweighted, OpenWindow, HardMask::default(), correction),
        "dro" => {
            let pull = KlTerm::new(KlEstimator::K2, hp.number("dro_beta"));
            Box::new(Composed::new(Unweighted, OpenWindow, HardMask::default()).with_kl(pull))
        }
        "clip_cov" => {
            let gate = CovarianceClip {
                cov_low: hp.number("clip_cov_lb"),
                cov_high: hp.number("clip_cov_ub"),
                ratio: hp.number("clip_cov_ratio"),
                ..CovarianceClip::default()
            };
            with(TokenRatio, clip(), gate, correction)
        }
        "kl_cov" => {
            let gate = CovarianceKl {
                fraction: hp.number("kl_cov_ratio"),
                coefficient: hp.number("ppo_kl_coef"),
                ..CovarianceKl::default()
            };
            with(TokenRatio, OpenWindow, gate, correction)
        }
        "geo_mean" => {
            let ConstantClip { low, high } = clip();
            with(TokenRatio, OpenWindow, GeometricMean { low, high, ..GeometricMean::default() }, correction)
        }
        "cispo" => with(TokenRatio, clip(), Saturating::default(), correction),
        "dppo_tv" | "dppo_kl" => {
            let ConstantClip { low, high } = clip();
            let divergence = match loss {
                "dppo_tv" => Divergence::BinaryTv { low, high },
                _ => Divergence::BinaryKl { low, high },
            };
            let value = MaskedValue::WeightedLogProb;
            let gate = DivergenceMask { divergence, max_weight: hp.number("clip_ratio_c"), value };
            with(TokenRatio, OpenWindow, gate, correction)
        }
        "bypass_mode" => {
            let rollout = hp.record("rollout_correction");
            match (rollout.text("loss_type"), rollout.get("rollout_is").and_then(|level| level.as_str())) {
                ("ppo_clip", None) => with(TokenRatio, clip(), dual(), correction),
                ("reinforce", Some("token")) => with(
                    TokenRatio,
                    cap(rollout.number("rollout_is_threshold")),
                    Saturating::default(),
                    correction,
                ),
                ("reinforce", Some("sequence")) => {
                    let window = cap(rollout.number("rollout_is_threshold"));
                    with(
                        SequenceProduct { route: SequenceRoute::Current },
                        window,
                        Saturating::default(),
                        correction,
                    )
                }
                other => panic!("unknown bypass {other:?}"),
            }
        }
        other => panic!("unknown loss {other}"),
    }
}

/// In bypass mode the ratio starts at the sampling policy, so its own weight is no correction; what remains is rejection.
fn bypass_rejection(hp: &Record, rows: &[GoldenRow]) -> Correction {
    hp.get("rollout_correction")?;
    let rollout = hp.record("rollout_correction");
    match rollout.get("rollout_rs")?.as_str()? {
        "seq_mean_k3" => {
            assert_eq!(rollout.text("rollout_rs_threshold"), "0.1");
            Some(Box::new(Rejection { mean_k3: 0.1, ratios: (0.0, f64::INFINITY), norm: 1.0 }))
        }
        "token_k1" => {
            assert_eq!(rollout.text("rollout_rs_threshold"), "0.5_2.0");
            // Its weights are divided by their mean over responses, before any token is rejected.
            let cap = rollout.number("rollout_is_threshold");
            let products: Vec<f64> = rows
                .iter()
                .filter(|row| !row.is_empty())
                .map(|row| row.response().tokens().log_ratios().iter().sum::<f64>().exp().min(cap))
                .collect();
            let norm = products.iter().sum::<f64>() / products.len() as f64;
            Some(Box::new(Rejection { mean_k3: f64::INFINITY, ratios: (0.5, 2.0), norm }))
        }
        other => panic!("unknown rejection {other}"),
    }
}

/// The responses of a record, with what its loss needs to know of them.
fn rows(inputs: &GoldenBatch, record: &Record) -> Vec<GoldenRow> {
    let (mask, advantages) = (record.text("mask"), record.text("advantages"));
    let loss = record.text("loss");
    let truncated = record.get("is_weights").is_some() && loss != "bypass_mode";
    let anchor = record.text("old_logprobs");
    let behaviour = if truncated { "rollout_logprobs" } else { anchor };
    let anchors = inputs.arrays().table(anchor);
    let complete = |(index, row): (usize, GoldenRow)| {
        let anchor = row.gather(&anchors[index]);
        row.map_response(|response| {
            let limit = if UNCLAMPED.contains(&loss) { FAR } else { LOG_RATIO_LIMIT };
            let response = response.map_context(|context| context.with_log_ratio_limit(limit));
            let current = response.current().values().to_vec();
            match loss {
                _ if truncated => response.map_context(|context| {
                    context.anchored_at_proximal(LogProbs::new(anchor)).expect("one per policy token")
                }),
                "dro" => response.with_reference(&anchor),
                "bypass_mode" => response.with_proximal(&current),
                _ => response,
            }
        })
    };
    inputs.rows_under(behaviour, mask, advantages).into_iter().enumerate().map(complete).collect()
}

/// The gradient of a record, looked up or scaled where the fixture says so.
fn recorded_gradient(record: &Record, records: &[Record], tokens: usize) -> Vec<Vec<f64>> {
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

/// One value and one coefficient per policy token of a response.
type Tokens = Vec<(f64, f64)>;

/// Holds verl's metrics against what our bindings, weights and log-probs say.
fn check_metrics(record: &Record, rows: &[GoldenRow], outcome: &GoldenOutcome, tokens: usize, what: &str) {
    let metrics = record.record("metrics");
    let hp = record.record("hp");
    let loss = record.text("loss");
    let share = |count: usize| count as f64 / tokens as f64;
    let acted =
        |which: &[Binding]| share(outcome.bindings.iter().filter(|binding| which.contains(binding)).count());
    let weighed = |holds: &dyn Fn(f64, f64) -> bool| {
        let pairs = rows
            .iter()
            .zip(&outcome.log_weights)
            .flat_map(|(row, log_weights)| log_weights.iter().zip(row.response().context().advantages()));
        share(pairs.filter(|(log_weight, advantage)| holds(**log_weight, **advantage)).count())
    };
    let (clipped, below) = match loss {
        "clip_cov" => (acted(&[Binding::Dropped]), 0.0),
        // verl counts a weight beyond either width, also where the clip does not act on it.
        "geo_mean" => {
            let (low, high) = (hp.number("clip_ratio_low"), hp.number("clip_ratio_high"));
            let outside = |d: f64| d < -low || d > high;
            (weighed(&|d, a| a > 0.0 && outside(d)), weighed(&|d, a| a < 0.0 && outside(d)))
        }
        // verl counts a weight beyond the cap also where the mask dropped the token.
        "dppo_tv" | "dppo_kl" => {
            let cap = hp.number("clip_ratio_c").ln();
            (acted(&[Binding::Dropped]), weighed(&|d, a| a < 0.0 && d > cap))
        }
        _ => (acted(&[Binding::Low, Binding::High]), acted(&[Binding::OuterHigh])),
    };
    let kept: Vec<bool> = outcome.bindings.iter().map(|binding| *binding != Binding::Dropped).collect();
    let rejects = loss == "bypass_mode";
    let log_ratios: Vec<f64> = rows
        .iter()
        .flat_map(|row| {
            let clamps = !UNCLAMPED.contains(&loss);
            let response = row.response();
            let pairs = response.current().values().iter().zip(response.context().anchor());
            let raw: Vec<f64> = pairs.map(|(current, anchor)| current - anchor).collect();
            if clamps { response.tokens().log_ratios().to_vec() } else { raw }
        })
        .zip(kept)
        .filter(|(_, kept)| *kept || !rejects)
        .map(|(d, _)| if loss == "kl_cov" { d.abs() } else { -d })
        .collect();
    let drift = log_ratios.iter().sum::<f64>() / tokens as f64;
    let known = [("actor/pg_clipfrac", clipped), ("actor/pg_clipfrac_lower", below), ("actor/ppo_kl", drift)];
    for (key, found) in known {
        if metrics.get(key).is_some() {
            let error = relative_error(found, metrics.number(key));
            assert!(error <= TOLERANCE, "{what} {key}: found {found}, expected {}", metrics.number(key));
        }
    }
}

fn compare_losses(report: &mut Report, fixture: &'static str, inputs_file: &str) {
    let inputs = inputs(inputs_file);
    let width = inputs.arrays().table("response_mask")[0].len();
    let records = load_records(format!("{FOLDER}/{fixture}"));
    for record in &records {
        let (loss, mask) = (record.text("loss"), record.text("mask"));
        let what = format!("{loss} {} {} {mask}", record.text("variant"), record.text("agg"));
        let rows = rows(&inputs, record);
        // These three have one aggregation whatever they are told.
        let fixed = ["gspo", "sapo", "geo_mean"].contains(&loss);
        let aggregation = aggregation(if fixed { "seq-mean-token-mean" } else { record.text("agg") }, width);
        // One of its means counts a response without tokens, and no other does.
        let counts_empty = loss == "geo_mean";
        let (outcome, denominator) =
            evaluate(compose(record, &rows).as_mut(), &rows, aggregation, counts_empty);
        let tokens = denominator.tokens();
        check_metrics(record, &rows, &outcome, tokens, &what);

        let expected = (record.number("loss_value"), recorded_gradient(record, &records, tokens));
        let errors = |loss: f64, gradient: &[Vec<f64>]| {
            (loss_error(loss, expected.0, &outcome.row_losses), table_error(gradient, &expected.1))
        };
        let (value, gradient) = errors(outcome.loss, &outcome.grad);
        assert!(value <= TOLERANCE, "{what}: value {} of {}, {value}", outcome.loss, expected.0);
        assert!(gradient <= TOLERANCE, "{what}: gradient {:?} of {:?}", outcome.grad, expected.1);
        report.matched(fixture, loss, value, Some(gradient));
    }
}

fn compare_kl(report: &mut Report) {
    let inputs = inputs("inputs_extreme.json");
    let (current, reference) = (inputs.arrays().table("logprobs"), inputs.arrays().table("ref_logprobs"));
    let rows = inputs.rows("response_mask", "advantages_seq");
    let denominator = Denominator::of(rows.iter().map(GoldenRow::len)).expect("the batch has tokens");
    for record in list(EXTREME, "kl") {
        let kind = record.text("kind").to_owned();
        let straight_through = kind.ends_with('+');
        let estimator = match kind.trim_end_matches('+') {
            "kl" | "k1" => KlEstimator::K1,
            "abs" => KlEstimator::Abs,
            "mse" => KlEstimator::K2,
            "low_var_kl" | "k3" => KlEstimator::K3,
            other => panic!("unknown estimate {other}"),
        };
        let term = KlTerm { straight_through, ..KlTerm::new(estimator, 1.0) };
        let key = format!("extreme/{kind}");
        let token = |u: f64| -> (f64, f64) {
            let (value, derivative) = term.token(u, 0.0);
            if difference(&key).is_none() {
                return (value, derivative);
            }
            assert_eq!(estimator, KlEstimator::K3, "{kind}");
            (value.min(10.0), if value > 10.0 && !straight_through { 0.0 } else { derivative })
        };
        let (mut values, mut gradient) = (Vec::new(), Vec::new());
        let mut sums = [0.0; 5];
        let names = [
            "token-mean",
            "token-sum",
            "seq-mean-token-mean",
            "seq-mean-token-sum",
            "seq-mean-token-sum-norm",
        ];
        for (index, row) in rows.iter().enumerate() {
            let pairs = row.gather(&current[index]).into_iter().zip(row.gather(&reference[index]));
            let tokens: Tokens = pairs.map(|(current, reference)| token(current - reference)).collect();
            let column = |of: fn(&(f64, f64)) -> f64| -> Vec<f64> { tokens.iter().map(of).collect() };
            for (sum, name) in sums.iter_mut().zip(names) {
                let weight = aggregation(name, 3).weight(&denominator, row.len());
                *sum += weight * column(|token| token.0).iter().sum::<f64>();
            }
            values.push(row.scatter(&column(|token| token.0)));
            gradient.push(row.scatter(&column(|token| token.1)));
        }
        let aggregated = record.record("agg");
        let aggregates =
            names.iter().zip(sums).map(|(name, sum)| relative_error(sum, aggregated.number(name)));
        let value = aggregates.fold(table_error(&values, &record.table("per_token")), f64::max);
        let value = value.max(relative_error(sums[0], record.number("token_mean")));
        let gradient = table_error(&gradient, &record.table("grad_of_masked_sum"));
        assert!(value <= TOLERANCE && gradient <= TOLERANCE, "{kind}: {value}, {gradient}");
        let name = format!("KL estimate {kind}");
        match difference(&key) {
            Some(reason) => report.differs(EXTREME, &name, &key, reason),
            None => report.matched(EXTREME, &name, value, Some(gradient)),
        }
    }
}

const LOSSES: &str = "verl_policy_losses.json";
const EXTREME: &str = "verl_policy_losses_extreme.json";

/// Compares every record of both files.
pub(crate) fn compare(report: &mut Report) {
    compare_losses(report, LOSSES, "inputs.json");
    compare_losses(report, EXTREME, "inputs_extreme.json");
    compare_kl(report);
}

#[test]
fn every_record_of_verl_is_matched_or_differs_for_a_listed_reason() {
    let mut report = Report::default();
    compare(&mut report);
    let expected = [
        ("vanilla", 26, 0),
        ("gspo", 19, 0),
        ("sapo", 14, 0),
        ("gpg", 12, 0),
        ("clip_cov", 21, 0),
        ("kl_cov", 14, 0),
        ("geo_mean", 19, 0),
        ("dro", 14, 0),
        ("cispo", 19, 0),
        ("dppo_tv", 14, 0),
        ("dppo_kl", 14, 0),
        ("bypass_mode", 28, 0),
    ];
    assert_eq!(report.counts(LOSSES), expected);
    let differing: usize = report.differences.iter().map(|difference| difference.records).sum();
    assert_eq!((differing, report.differences.len()), (2, DIFFERENCES.len()), "every difference was met");
}

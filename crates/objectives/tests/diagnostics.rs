//! Per-position diagnostics on drift whose law is known, and on cases worked by hand.

use firebrick_core::{Binding, Bounds, ResponseTerms};
use firebrick_objectives::{ObjectiveConfig, PositionDiagnostics, PositionReport};
use firebrick_testkit::{TestResponse, assert_close};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const SIGMA: f64 = 0.3;

/// Reports rows of log-ratios; weights are left out.
fn report(rows: impl IntoIterator<Item = Vec<f64>>) -> PositionReport {
    let mut diagnostics = PositionDiagnostics::default();
    for row in rows {
        add(&mut diagnostics, &row, &vec![1.0; row.len()], &ResponseTerms::default());
    }
    diagnostics.report()
}

fn add(to: &mut PositionDiagnostics, log_ratios: &[f64], advantages: &[f64], terms: &ResponseTerms) {
    to.add(&TestResponse::from_log_ratios(log_ratios, advantages).tokens(), terms);
}

/// Box-Muller.
fn standard_normal(rng: &mut ChaCha8Rng) -> f64 {
    let (radius, angle): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// `rows` rows of `len` tokens: a stationary AR(1) process of deviation `SIGMA` and correlation `phi` around `mean`.
fn drift(rows: usize, len: usize, phi: f64, mean: f64) -> Vec<Vec<f64>> {
    let mut rng = ChaCha8Rng::seed_from_u64(2610);
    let mut row = |_| {
        let mut state = standard_normal(&mut rng);
        let mut next = || {
            let here = state;
            state = phi * state + (1.0 - phi * phi).sqrt() * standard_normal(&mut rng);
            mean + SIGMA * here
        };
        (0..len).map(|_| next()).collect()
    };
    (0..rows).map(&mut row).collect()
}

const CENTER: f64 = -SIGMA * SIGMA / 2.0;

#[test]
fn independent_drift_follows_the_prediction_at_every_position() {
    let report = report(drift(2000, 200, 0.0, CENTER));
    assert_close(report.sigma.unwrap(), SIGMA, 5e-3, "sigma");
    assert_close(report.kl_consistency.unwrap(), 1.0, 0.03, "kl_consistency");
    assert_close(report.slope.unwrap(), -0.5, 0.02, "slope");
    // 64 single positions, 65–80, 81–100, 101–125, 126–156, 157–195, 196–243 (195 + 48).
    assert_eq!(report.position.len(), 70);
    assert_eq!((report.first_position[69], report.last_position[69], report.count[69]), (196, 243, 5 * 2000));
    for (bucket, position) in report.position.iter().enumerate() {
        assert_close(report.std_ratio[bucket].unwrap(), 1.0, 0.06, &format!("std_ratio at {position}"));
        // Four standard errors of a mean over 2000 rows.
        let error = 4.0 * SIGMA / position.sqrt() / 2000f64.sqrt() + 1e-3;
        assert!(report.mean_gap[bucket].abs() < error, "mean_gap at {position}");
    }
    assert_eq!((report.survivors, report.survivor_position), (2000, Some(196)));
    assert_eq!(report.survivor_slope, report.slope);
}

#[test]
fn drift_shared_by_all_tokens_of_a_response_does_not_average_out() {
    let report = report(drift(500, 200, 1.0, CENTER));
    assert_close(report.slope.unwrap(), 0.0, 1e-6, "slope");
    for (ratio, position) in report.std_ratio.iter().zip(&report.position) {
        assert_close(ratio.unwrap(), position.sqrt(), 1e-6, &format!("std_ratio at {position}"));
    }
}

/// For an AR(1) process Var(log R_t) = (σ²/t) [(1 + φ)/(1 − φ) − 2φ (1 − φ^t)/(t (1 − φ)²)].
#[test]
fn correlated_drift_lies_between() {
    let phi = 0.8;
    let report = report(drift(2000, 200, phi, CENTER));
    assert!((-0.45..-0.2).contains(&report.slope.unwrap()), "slope {:?}", report.slope);
    for t in [1_i32, 2, 4, 16, 64] {
        let n = f64::from(t);
        let end = 2.0 * phi * (1.0 - phi.powi(t)) / (n * (1.0 - phi) * (1.0 - phi));
        let expected = ((1.0 + phi) / (1.0 - phi) - end).sqrt();
        assert_close(report.std_ratio[t as usize - 1].unwrap(), expected, 0.06, &format!("std_ratio at {t}"));
    }
}

/// Mean +0.02 and σ = 0.3: the gap is 0.02 + 0.045, the consistency −2 · 0.02/0.09 = −0.444.
#[test]
fn a_mean_that_no_normalised_ratio_has_is_seen() {
    let report = report(drift(4000, 64, 0.0, 0.02));
    assert_close(report.kl_consistency.unwrap(), -0.444, 0.1, "kl_consistency");
    assert_close(*report.mean_gap.last().unwrap(), 0.065, 0.05, "mean_gap");
    assert_close(report.slope.unwrap(), -0.5, 0.02, "slope");
}

/// Responses drift as a whole, ten by ±0.4 until token 4 and ten by ±0.1 until token 16. Over all the spread is
/// √((0.16 + 0.01)/2) and falls to 0.1 after token 4; that of those who reach the end is 0.1 throughout.
#[test]
fn short_responses_that_drop_out_bend_the_slope_and_not_that_of_the_survivors() {
    let row = |index: usize| {
        let (drift, len) = if index < 10 { (0.4, 4) } else { (0.1, 16) };
        vec![if index.is_multiple_of(2) { drift } else { -drift }; len]
    };
    let report = report((0..20).map(row));
    assert_close(report.std[3].unwrap(), 0.085_f64.sqrt(), 1e-9, "std");
    assert_close(report.std[4].unwrap(), 0.1, 1e-9, "std");
    assert!(report.slope.unwrap() < -0.3, "slope {:?}", report.slope);
    assert_eq!((report.survivors, report.survivor_position), (10, Some(16)));
    assert_close(report.survivor_slope.unwrap(), 0.0, 1e-9, "survivor_slope");
    for std in &report.survivor_std {
        assert_close(std.unwrap(), 0.1, 1e-9, "survivor_std");
    }
}

/// Twenty rows of length 2 and one of length 3: two rows, a tenth of 21 rounded up to 3, must be left.
#[test]
fn a_tail_of_one_response_is_reported_without_a_spread() {
    let rows = (0..21).map(|index| vec![0.1 * f64::from(index % 3); if index == 0 { 3 } else { 2 }]);
    let report = report(rows);
    assert_eq!((report.reaching.as_slice(), report.survivor_position), (&[21, 21, 1][..], Some(2)));
    assert_eq!((report.std[2], report.std_ratio[2], report.survivor_std[2]), (None, None, None));
    assert_eq!(report.mean[2], 0.0);
    let names: Vec<_> = report.scalars().iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        [
            "position/sigma",
            "position/log_ratio_mean",
            "position/kl_consistency",
            "position/slope",
            "position/survivor_slope",
            "position/std_ratio_last"
        ]
    );
    assert_eq!(report.scalars()[5].1, report.std_ratio[1].unwrap());
}

/// Three rows of t = 65 … 67 tokens: in the bucket 65–80 lie 3 + 2 + 1 tokens at 65, 66 and 67.
#[test]
fn a_bucket_of_several_positions_is_predicted_by_the_mean_of_one_over_t() {
    let report = report((65..68).map(|len| vec![0.1 * (len as f64 - 66.0); len]));
    let inverse = (3.0 / 65.0 + 2.0 / 66.0 + 1.0 / 67.0) / 6.0;
    assert_close(report.position[64], 1.0 / inverse, 1e-12, "position");
    assert_close(report.predicted_std[64], report.sigma.unwrap() * inverse.sqrt(), 1e-12, "predicted_std");
    assert_eq!((report.count[64], report.reaching[64]), (6, 3));
}

fn terms(weights: [f64; 4], bindings: [Binding; 4]) -> ResponseTerms {
    ResponseTerms {
        log_weights: weights.map(f64::ln).to_vec(),
        windows: vec![Bounds { low: 0.75, high: 1.25 }; 4],
        bindings: bindings.to_vec(),
        ..ResponseTerms::default()
    }
}

/// Positions 1 to 4, two responses:
///
/// ```text
/// A    1      1      −1       0         1       1       −1       −1
/// w    2      0.5    0.5      2         1       2       1        3
///      high   −      low      −         −       −       dropped  outer high
/// ```
#[test]
fn clip_fractions_and_windows_are_those_worked_by_hand() {
    use Binding::{Dropped, High, Low, None as Free, OuterHigh};
    let mut diagnostics = PositionDiagnostics::default();
    let first = terms([2.0, 0.5, 0.5, 2.0], [High, Free, Low, Free]);
    let second = terms([1.0, 2.0, 1.0, 3.0], [Free, Free, Dropped, OuterHigh]);
    add(&mut diagnostics, &[0.0; 4], &[1.0, 1.0, -1.0, 0.0], &first);
    add(&mut diagnostics, &[0.0; 4], &[1.0, 1.0, -1.0, -1.0], &second);
    let report = diagnostics.report();

    let (positive, negative) = (&report.clip_positive, &report.clip_negative);
    assert_eq!(positive.high, [Some(0.5), Some(0.0), None, None]);
    assert_eq!(positive.low, [Some(0.0), Some(0.0), None, None]);
    assert_eq!(negative.low, [None, None, Some(0.5), Some(0.0)]);
    assert_eq!(negative.high, [None, None, Some(0.0), Some(0.0)]);
    assert_eq!(negative.dropped, [None, None, Some(0.5), Some(0.0)]);
    assert_eq!(negative.outer, [None, None, Some(0.0), Some(1.0)]);
    assert_eq!(report.below_window, [0.0, 0.5, 0.5, 0.0].map(Some));
    assert_eq!(report.above_window, [0.5, 0.5, 0.0, 1.0].map(Some));
}

/// Weights 1 and 3: (1 + 3)²/(2 (1 + 9)) = 0.8. Weights 1, 1, 1, 1 beside 3, 1, 1, 1, all together:
/// 10²/(8 · 16) = 0.78125.
#[test]
fn the_effective_sample_size_is_that_worked_by_hand() {
    let mut diagnostics = PositionDiagnostics::default();
    for first in [1.0, 3.0] {
        let terms = ResponseTerms {
            log_weights: [first, 1.0, 1.0, 1.0].map(f64::ln).to_vec(),
            ..ResponseTerms::default()
        };
        add(&mut diagnostics, &[0.0; 4], &[1.0; 4], &terms);
    }
    let report = diagnostics.report();
    assert_close(report.ess_by_position[0].unwrap(), 0.8, 1e-12, "position 1");
    assert_eq!(report.ess_by_position[1..], [Some(1.0); 3]);
    assert_close(report.ess.unwrap(), 0.78125, 1e-12, "all positions");
    assert_eq!((&report.below_window[0], &report.clip_positive.low[0]), (&None, &None));
}

/// A number that is not finite would be null in the text and could not be read back as a number.
fn json(report: &PositionReport) -> serde_json::Value {
    let text = serde_json::to_string(report).expect("reports can be written");
    assert_eq!(&serde_json::from_str::<PositionReport>(&text).expect("every number is finite"), report);
    serde_json::from_str(&text).expect("the text is JSON")
}

#[test]
fn what_is_not_defined_is_null() {
    let empty = json(&report([]));
    assert_eq!((&empty["sigma"], &empty["slope"], &empty["ess"]), (&().into(), &().into(), &().into()));
    assert_eq!((&empty["tokens"], &empty["mean"]), (&0.into(), &serde_json::json!([])));
    assert_eq!(json(&report([vec![]])), empty);
    assert_eq!(report([]).scalars(), []);

    let one_row = json(&report([vec![0.1, -0.2, 0.3]]));
    assert_eq!(one_row["std"], serde_json::json!([null, null, null]));
    assert_eq!((&one_row["slope"], &one_row["survivors"]), (&().into(), &0.into()));
    assert!(one_row["sigma"].as_f64().unwrap() > 0.0);

    let on_policy = json(&report([vec![0.0; 70], vec![0.0; 70]]));
    assert_eq!((&on_policy["sigma"], &on_policy["std"][3]), (&0.0.into(), &0.0.into()));
    assert_eq!((&on_policy["std_ratio"][3], &on_policy["kl_consistency"]), (&().into(), &().into()));
    assert_eq!((&on_policy["slope"], &on_policy["survivors"]), (&().into(), &2.into()));
}

#[test]
fn a_response_with_nan_is_left_out_and_counted() {
    let rows = drift(3, 5, 0.0, CENTER);
    let mut expected = report(rows.clone());
    let bad = vec![0.1, f64::NAN, 0.1];
    let found = report(rows.into_iter().chain([bad]));
    expected.not_finite = 1;
    assert_eq!(found, expected);
}

#[test]
#[should_panic(expected = "terms of 2 tokens for a response of 3")]
fn terms_of_another_response_are_refused() {
    let terms = ResponseTerms { log_weights: vec![0.0; 2], ..ResponseTerms::default() };
    add(&mut PositionDiagnostics::default(), &[0.0; 3], &[1.0; 3], &terms);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_order_and_any_split_give_the_same_report_to_the_last_bit(
        rows in prop::collection::vec((prop::collection::vec(-3.0f64..3.0, 0..90), any::<bool>()), 1..12),
        cut in 0usize..12,
        rotate in 0usize..12,
    ) {
        let objective = ObjectiveConfig::preset("tapo").unwrap().objective();
        let gather = |rows: &[(Vec<f64>, bool)]| {
            let mut diagnostics = PositionDiagnostics::default();
            for (row, liked) in rows {
                let advantages = vec![if *liked { 1.0 } else { -1.0 }; row.len()];
                let response = TestResponse::from_log_ratios(row, &advantages);
                let terms = firebrick_core::Objective::evaluate(&objective, &response.tokens(), 1.0);
                diagnostics.add(&response.tokens(), &terms);
            }
            diagnostics
        };
        let whole = gather(&rows).report();
        let mut turned = rows.clone();
        turned.rotate_left(rotate % rows.len());
        turned.reverse();
        let (left, right) = turned.split_at(cut.min(rows.len()));
        let mut merged = gather(right);
        merged.merge(&PositionDiagnostics::default());
        merged.merge(&gather(left));
        prop_assert_eq!(serde_json::to_string(&merged.report()).unwrap(), serde_json::to_string(&whole).unwrap());
    }
}

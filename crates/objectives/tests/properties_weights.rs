//! Laws of the importance estimators and clip schedules that hold for all responses and batches.

use firebrick_core::{
    Bounds, ClipSchedule, ImportanceEstimator, Objective, OptimizerBatch, ResponseTerms, Stateful,
};
use firebrick_objectives::{
    AbsolutePositionClip, BoundedPrefixProduct, Composed, ConstantClip, ConstantScaling, DriftKl,
    GroupCapped, MinPrefix, PowerLawClip, PpoMin, PrefixMean, PrefixProduct, ProbabilityClip, ScalingArm,
    SecondMomentClip, SequenceMean, SequenceProduct, SequenceRoute, SigmaSource, SqrtProbabilityClip,
    StateGeo, TokenRatio, Unweighted, WindowCentre,
};
use firebrick_testkit::{TestResponse, assert_all_close, assert_close};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const UNCLAMPED: PrefixProduct = PrefixProduct { max_log_weight: 20.0 };
const WIDE: BoundedPrefixProduct = BoundedPrefixProduct { width: 0.8, root: false };

/// Estimators whose weight at t depends on tokens up to t alone.
fn causal() -> [&'static dyn ImportanceEstimator; 6] {
    [
        &TokenRatio,
        &PrefixMean { route: firebrick_objectives::PrefixRoute::Current },
        &UNCLAMPED,
        &MinPrefix,
        &StateGeo,
        &WIDE,
    ]
}

fn log_weights(estimator: &dyn ImportanceEstimator, d: &[f64]) -> Vec<f64> {
    let response = TestResponse::from_log_ratios(d, &vec![1.0; d.len()]);
    let mut out = vec![0.0; d.len()];
    estimator.log_weights(&response.tokens(), &mut out);
    out
}

fn windows(schedule: &dyn ClipSchedule, len: usize) -> Vec<Bounds> {
    let response = TestResponse::from_log_ratios(&vec![0.0; len], &vec![1.0; len]);
    let mut out = vec![Bounds::OPEN; len];
    schedule.bounds(&response.tokens(), &mut out);
    out
}

fn evaluate(objective: &dyn Objective, d: &[f64], advantages: &[f64]) -> ResponseTerms {
    objective.evaluate(&TestResponse::from_log_ratios(d, advantages).tokens(), 1.0)
}

fn prepare(part: &mut dyn Stateful, rows: &[TestResponse]) {
    let contexts: Vec<_> = rows.iter().map(|row| row.context()).collect();
    let current: Vec<_> = rows.iter().map(|row| row.current().clone()).collect();
    let batch = OptimizerBatch { responses: &contexts, current: Some(&current) };
    part.prepare(&batch).expect("the batch can be used");
}

fn log_ratios(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(-1.0..1.0, len)
}

/// Rows of (d, A), at least one token each.
fn batches() -> impl Strategy<Value = Vec<Vec<(f64, f64)>>> {
    prop::collection::vec(prop::collection::vec((-1.0..1.0, -2.0..2.0), 1..12), 1..8)
}

fn row(tokens: &[(f64, f64)], group: usize) -> TestResponse {
    let (d, a): (Vec<f64>, Vec<f64>) = tokens.iter().copied().unzip();
    TestResponse::from_log_ratios(&d, &a).map_context(|context| context.with_group(group))
}

/// Box-Muller.
fn standard_normal(rng: &mut ChaCha8Rng) -> f64 {
    let (radius, angle): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// Independent d_k ~ N(−s²/2, s²).
fn drift(rng: &mut ChaCha8Rng, s: f64, len: usize) -> Vec<f64> {
    (0..len).map(|_| s * standard_normal(rng) - s * s / 2.0).collect()
}

#[test]
fn without_drift_every_weight_is_one() {
    for estimator in causal().into_iter().chain([&Unweighted as &dyn ImportanceEstimator]) {
        assert_eq!(log_weights(estimator, &[0.0; 7]), [0.0; 7], "{estimator:?}");
    }
    assert_eq!(log_weights(&SequenceProduct::default(), &[0.0; 7]), [0.0; 7]);
}

/// The fractions of R_64 below and above each window, for σ = .3: log R ~ N(−.045, .0375²).
fn tails(parts: &[AbsolutePositionClip]) -> Vec<(f64, f64)> {
    const DRAWS: usize = 40_000;
    let mut rng = ChaCha8Rng::seed_from_u64(64);
    let windows: Vec<Bounds> = parts.iter().map(|part| windows(part, 64)[63]).collect();
    let mut counts = vec![(0usize, 0usize); parts.len()];
    for _ in 0..DRAWS {
        let weight = log_weights(&PrefixMean::default(), &drift(&mut rng, 0.3, 64))[63].exp();
        for (count, window) in counts.iter_mut().zip(&windows) {
            count.0 += usize::from(weight < window.low);
            count.1 += usize::from(weight > window.high);
        }
    }
    let share = |count: usize| count as f64 / DRAWS as f64;
    counts.into_iter().map(|(below, above)| (share(below), share(above))).collect()
}

/// δ = .5: ε = .0375 √(2 ln 4) = 1.665 deviations, so .048 on either side of the centre; around 1 that is .045/.0375 = 1.2
/// deviations off: Φ(−.465) = .321 below and Φ(−2.865) = .002 above. A cap of .024127 is .6434 deviations: .26 on either
/// side, of which the upper end reaches only from 1 on when 1 must be inside: Φ(−1.2) = .115.
#[test]
fn centring_balances_the_tails_that_a_window_around_one_has_on_one_side() {
    let sigma = SigmaSource::Fixed { value: 0.3 };
    let mut around_one = AbsolutePositionClip::new(sigma);
    around_one.delta = 0.5;
    let mut centred = around_one;
    centred.centre = WindowCentre::Gaussian;
    let mut narrow = centred;
    narrow.cap = Some(0.024_127);
    let mut held = narrow;
    held.require_unit_inside = true;
    let found = tails(&[around_one, centred, narrow, held]);
    let expected = [(0.321, 0.0021), (0.048, 0.048), (0.26, 0.26), (0.26, 0.115)];
    for ((below, above), (low, high)) in found.into_iter().zip(expected) {
        assert!((below - low).abs() < 0.008, "{below} below, expected {low}");
        assert!((above - high).abs() < 0.008, "{above} above, expected {high}");
    }
}

/// log C_t ~ N(−t s²/2, t s²): the deviation grows as √t, and a window of the power 1/2 clips the same share everywhere.
#[test]
fn the_variance_of_the_cumulative_log_ratio_grows_with_the_position() {
    const DRAWS: usize = 40_000;
    let s = 0.1;
    let mut rng = ChaCha8Rng::seed_from_u64(2605);
    let draws: Vec<Vec<f64>> =
        (0..DRAWS).map(|_| log_weights(&PrefixProduct::default(), &drift(&mut rng, s, 16))).collect();
    for t in [1, 4, 16] {
        let values = || draws.iter().map(|row| row[t - 1]);
        let mean = values().sum::<f64>() / DRAWS as f64;
        let variance = values().map(|value| (value - mean).powi(2)).sum::<f64>() / DRAWS as f64;
        assert_close(variance, t as f64 * s * s, 0.03, &format!("Var(log C) at {t}"));
        let weights = || values().map(f64::exp);
        let mean = weights().sum::<f64>() / DRAWS as f64;
        assert_close(mean, 1.0, 0.01, &format!("E[C] at {t}"));
        let variance = weights().map(|value| (value - mean).powi(2)).sum::<f64>() / DRAWS as f64;
        assert_close(variance, (t as f64 * s * s).exp_m1(), 0.05, &format!("Var(C) at {t}"));
    }
}

/// The matched control has the mean of the prefix mean: E[R_t] = exp(−s²/2 + s²/(2t)), with K = s²/2.
#[test]
fn the_matched_control_has_the_mean_weight_of_the_prefix_mean() {
    const ROWS: usize = 20_000;
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let rows: Vec<Vec<f64>> = (0..ROWS).map(|_| drift(&mut rng, 0.3, 16)).collect();
    let batch: Vec<TestResponse> =
        rows.iter().map(|d| TestResponse::from_log_ratios(d, &[1.0; 16])).collect();
    let mut control = ConstantScaling::new(ScalingArm::Matched, DriftKl::K1);
    prepare(&mut control, &batch);
    let matched = log_weights(&control, &[0.0; 16]);
    assert_eq!(matched[0], 0.0, "the first position is left alone");
    for t in [4, 16] {
        let mean = rows.iter().map(|d| log_weights(&PrefixMean::default(), d)[t - 1].exp()).sum::<f64>();
        assert_close(mean / ROWS as f64, matched[t - 1].exp(), 3e-3, &format!("mean weight at {t}"));
    }
}

proptest! {
    #[test]
    fn a_change_of_one_log_ratio_reaches_no_earlier_weight(
        d in log_ratios(1..30), at in any::<prop::sample::Index>(), by in 0.01..1.0_f64,
    ) {
        let at = at.index(d.len());
        let mut moved = d.clone();
        moved[at] += by;
        for estimator in causal() {
            prop_assert_eq!(&log_weights(estimator, &d)[..at], &log_weights(estimator, &moved)[..at]);
        }
    }

    #[test]
    fn at_the_first_position_every_prefix_weight_is_the_token_ratio(d in log_ratios(1..9)) {
        let inside = d[0].clamp(-0.8, 0.8);
        let d: Vec<f64> = std::iter::once(inside).chain(d.into_iter().skip(1)).collect();
        for estimator in causal() {
            prop_assert_eq!(log_weights(estimator, &d)[0], inside);
        }
    }

    #[test]
    fn scaling_the_log_ratios_scales_the_log_weights(d in log_ratios(1..20), factor in 0.01..1.0_f64) {
        let scaled: Vec<f64> = d.iter().map(|d| factor * d).collect();
        let estimators: [&dyn ImportanceEstimator; 4] =
            [&UNCLAMPED, &SequenceProduct::default(), &MinPrefix, &StateGeo];
        for estimator in estimators {
            let expected: Vec<f64> = log_weights(estimator, &d).iter().map(|w| factor * w).collect();
            assert_all_close(&log_weights(estimator, &scaled), &expected, 1e-8, "scaled");
        }
        // The bound is a log-ratio itself and scales along.
        let expected: Vec<f64> = log_weights(&WIDE, &d).iter().map(|w| factor * w).collect();
        let narrower = BoundedPrefixProduct { width: factor * WIDE.width, ..WIDE };
        if d.iter().all(|d| (d.abs() - WIDE.width).abs() > 1e-9) {
            assert_all_close(&log_weights(&narrower, &scaled), &expected, 1e-8, "bounded");
        }
    }

    /// log C_t = t log R_t, so √t · ε around the one is ε/√t around the other.
    #[test]
    fn the_two_forms_of_ctpo_stop_the_same_tokens(
        d in prop::collection::vec(-0.1..0.1_f64, 1..40), a in prop::bool::ANY,
    ) {
        let clip = |power| PowerLawClip { low: 0.025, high: 0.05, power };
        let advantages = vec![if a { 1.0 } else { -1.0 }; d.len()];
        let product = Composed::new(PrefixProduct::default(), clip(0.5), PpoMin::default());
        let mean = Composed::new(PrefixMean::default(), clip(-0.5), PpoMin::default());
        let (product, mean) = (evaluate(&product, &d, &advantages), evaluate(&mean, &d, &advantages));
        prop_assert_eq!(product.bindings, mean.bindings);
    }

    /// Causal GSPO: the prefix mean in GSPO's constant window. Its last token is GSPO's, and no token sees a later one.
    #[test]
    fn causal_gspo_ends_as_gspo_and_looks_at_nothing_later(
        d in log_ratios(2..20), advantage in -2.0..2.0_f64, by in 0.01..1.0_f64,
    ) {
        let clip = ConstantClip { low: 3e-4, high: 4e-4 };
        let advantages = vec![advantage; d.len()];
        let causal = Composed::new(PrefixMean::default(), clip, PpoMin::default());
        let estimator = SequenceMean { route: SequenceRoute::Current };
        let gspo = Composed::new(estimator, clip, PpoMin::default());
        let (found, expected) = (evaluate(&causal, &d, &advantages), evaluate(&gspo, &d, &advantages));
        let last = d.len() - 1;
        assert_close(found.coefficients[last], expected.coefficients[last], 1e-9, "coefficient");
        prop_assert_eq!(found.bindings[last], expected.bindings[last]);
        let mut moved = d.clone();
        moved[last] += by;
        let moved = evaluate(&causal, &moved, &advantages);
        prop_assert_eq!(&moved.coefficients[..last], &found.coefficients[..last]);
        prop_assert_eq!(&moved.bindings[..last], &found.bindings[..last]);
    }

    #[test]
    fn the_less_likely_a_token_was_the_wider_its_window(q in 1e-6..1.0_f64, factor in 0.1..1.0_f64) {
        let dcpo = ProbabilityClip::default();
        let (likely, unlikely) = (dcpo.window(q), dcpo.window(factor * q));
        prop_assert!(unlikely.low <= likely.low && unlikely.high >= likely.high);
        prop_assert!((0.5..1.0).contains(&likely.low) && likely.high > 1.0 && likely.high <= 10.0);
        // Inside the cap the ends solve r (r − 1) q = ε.
        if likely.high < 10.0 {
            assert_close(likely.high * (likely.high - 1.0) * q, 0.2, 1e-9, "upper end");
        }
        if likely.low > 0.5 {
            assert_close(likely.low * (1.0 - likely.low) * q, 0.16, 1e-9, "lower end");
        }
        let ripo = SqrtProbabilityClip::default();
        let (likely, unlikely) = (ripo.window(q), ripo.window(factor * q));
        prop_assert!(unlikely.low <= likely.low && unlikely.high >= likely.high);
        if likely.high < 10.0 {
            assert_close(q * (likely.high - 1.0).powi(2), 0.05, 1e-9, "budget");
        }
    }

    #[test]
    fn harmful_log_ratios_capped_at_the_half_width_spend_the_whole_budget(
        d in prop::collection::vec(-2.0..2.0_f64, 1..40), budget in 1e-4..1.0_f64,
    ) {
        let squares: Vec<f64> = d.iter().map(|d| d * d).collect();
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / d.len() as f64;
        match SecondMomentClip::new(budget, 0.3, 0.5).half_width(squares.clone()) {
            None => prop_assert!(mean(&mut squares.iter().copied()) <= budget * (1.0 + 1e-12)),
            Some(half) => {
                let capped = mean(&mut squares.iter().map(|square| square.min(half * half)));
                assert_close(capped, budget, 1e-9, "capped second moment");
                prop_assert!(mean(&mut squares.iter().copied()) > budget * (1.0 - 1e-12));
            }
        }
    }

    #[test]
    fn parts_that_see_the_batch_do_not_see_its_order(batch in batches()) {
        let rows: Vec<TestResponse> =
            batch.iter().enumerate().map(|(index, tokens)| row(tokens, index % 3)).collect();
        let reversed: Vec<TestResponse> = rows.iter().rev().cloned().collect();
        fn both<P: Stateful + Clone>(part: P, rows: &[TestResponse], reversed: &[TestResponse]) -> [P; 2] {
            [rows, reversed].map(|rows| {
                let mut part = part.clone();
                prepare(&mut part, rows);
                part
            })
        }
        let [a, b] = both(GroupCapped::new(0.2), &rows, &reversed);
        prop_assert_eq!(a, b);
        let [a, b] = both(ConstantScaling::new(ScalingArm::Flat, DriftKl::K3), &rows, &reversed);
        prop_assert_eq!(a, b);
        let [a, b] = both(SecondMomentClip::default(), &rows, &reversed);
        prop_assert_eq!(a, b);
        let mut band = AbsolutePositionClip::new(SigmaSource::BatchStd { ema: None });
        band.centre = WindowCentre::Empirical;
        let [a, b] = both(band, &rows, &reversed);
        prop_assert_eq!(a, b);
    }

    #[test]
    fn a_capped_group_keeps_its_proportions_and_its_mass_within_the_cap(
        batch in batches(), eps in 0.0..1.0_f64,
    ) {
        let rows: Vec<TestResponse> = batch.iter().map(|tokens| row(tokens, 5)).collect();
        let mut estimator = GroupCapped::new(eps);
        prepare(&mut estimator, &rows);
        let sums = |row: &TestResponse| row.tokens().log_ratios().iter().sum::<f64>();
        let shrink: Vec<f64> = rows
            .iter()
            .map(|row| {
                let mut out = vec![0.0; row.tokens().len()];
                estimator.log_weights(&row.tokens(), &mut out);
                out[0] - sums(row)
            })
            .collect();
        let cap = rows.len() as f64 * (1.0 + eps);
        let mass = rows.iter().map(|row| sums(row).exp()).sum::<f64>();
        for factor in &shrink {
            prop_assert!((factor - (cap / mass).ln().min(0.0)).abs() < 1e-9);
        }
    }
}

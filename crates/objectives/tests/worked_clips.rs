//! One response, worked by hand, on which windows that look at the anchor's probability or at the position do clip.
//!
//! Anchor probabilities q = [.9, .01, .9, .01], ratios r = [1.21, 4, .766, .45], advantages [1, 1, −1, −1]. Products of ratios
//! C = [1.21, 4.84, 3.70744, 1.668348]; their t-th roots R = [1.21, 2.2, 1.547716, 1.136506].

use firebrick_core::{Binding, ClipSchedule, ImportanceEstimator, Objective, ResponseTerms};
use firebrick_objectives::{
    Composed, PowerLawClip, PpoMin, PrefixMean, PrefixProduct, ProbabilityClip, SqrtProbabilityClip,
    TokenRatio,
};
use firebrick_testkit::{TestResponse, assert_all_close, assert_close};

/// The examples have seven digits.
const DIGITS: f64 = 2e-6;

fn terms(
    estimator: impl ImportanceEstimator,
    schedule: impl ClipSchedule,
    ratios: [f64; 4],
    advantages: [f64; 4],
) -> ResponseTerms {
    let anchor = [0.9_f64, 0.01, 0.9, 0.01].map(f64::ln);
    let current: Vec<f64> = anchor.iter().zip(ratios).map(|(anchor, ratio)| anchor + ratio.ln()).collect();
    let response = TestResponse::new(&anchor, &current, &advantages);
    Composed::new(estimator, schedule, PpoMin::default()).evaluate(&response.tokens(), 1.0)
}

const RATIOS: [f64; 4] = [1.21, 4.0, 0.766, 0.45];
const ADVANTAGES: [f64; 4] = [1.0, 1.0, -1.0, -1.0];

/// q = .9: [½ + ½ √(1 − .64/.9), ½ + ½ √(1 + .8/.9)] = [.768742, 1.187184]; q = .01: [.5, ½ + ½ √81] = [.5, 5].
/// So 1.21 > 1.187184, 4 < 5, .766 < .768742, .45 < .5. J = 1.187184 + 4 − .768742 − .5.
#[test]
fn dcpo_stops_likely_tokens_early_and_unlikely_ones_late() {
    let found = terms(TokenRatio, ProbabilityClip::default(), RATIOS, ADVANTAGES);
    assert_all_close(&found.coefficients, &[0.0, 4.0, 0.0, 0.0], DIGITS, "coefficients");
    assert_close(found.loss, -3.918442, DIGITS, "loss");
    assert_eq!(found.bindings, [Binding::High, Binding::None, Binding::Low, Binding::Low]);
}

/// q = .9: ε = √(.05/.9) = .235702; q = .01: ε = √5 = 2.236068, so [.5, 3.236068].
/// So 1.21 < 1.235702, 4 > 3.236068, .766 > .764298, .45 < .5. J = 1.21 + 3.236068 − .766 − .5.
#[test]
fn ripo_stops_another_two_of_the_same_tokens() {
    let found = terms(TokenRatio, SqrtProbabilityClip::default(), RATIOS, ADVANTAGES);
    assert_all_close(&found.coefficients, &[1.21, 0.0, -0.766, 0.0], DIGITS, "coefficients");
    assert_close(found.loss, -3.180068, DIGITS, "loss");
    assert_eq!(found.bindings, [Binding::None, Binding::High, Binding::None, Binding::Low]);
}

/// q = 5e-4: DCPO's ½ + ½ √1601 = 20.5 and RIPO's 1 + √100 = 11 are both cut to 10.
#[test]
fn both_caps_stop_a_very_unlikely_token_at_ten() {
    let anchor = [5e-4_f64.ln()];
    let response = TestResponse::new(&anchor, &[anchor[0] + 12.0_f64.ln()], &[1.0]);
    let schedules: [Box<dyn ClipSchedule>; 2] =
        [Box::new(ProbabilityClip::default()), Box::new(SqrtProbabilityClip::default())];
    for schedule in schedules {
        let objective = Composed::new(TokenRatio, schedule, PpoMin::default());
        let found = objective.evaluate(&response.tokens(), 1.0);
        assert_close(found.loss, -10.0, 1e-12, "loss");
        assert_eq!(found.coefficients, [0.0]);
    }
}

const PRODUCT: PowerLawClip = PowerLawClip { low: 0.025, high: 0.05, power: 0.5 };
const MEAN: PowerLawClip = PowerLawClip { low: 0.025, high: 0.05, power: -0.5 };

/// Upper ends e^.05 = 1.051271 and e^.0707107 = 1.073271 stop 1.21 and 4.84; above one nothing stops A < 0.
/// J = 1.051271 + 1.073271 − 3.707440 − 1.668348.
#[test]
fn ctpo_on_the_product_keeps_the_weight_of_a_prefix_that_has_run_away() {
    let found = terms(PrefixProduct::default(), PRODUCT, RATIOS, ADVANTAGES);
    assert_all_close(&found.coefficients, &[0.0, 0.0, -3.70744, -1.668348], DIGITS, "coefficients");
    assert_close(found.loss, 3.251246, DIGITS, "loss");
}

/// Upper ends e^.05 and e^.0353553 = 1.035988. J = 1.051271 + 1.035988 − 1.547716 − 1.136506.
#[test]
fn ctpo_on_the_prefix_mean_stops_the_same_tokens_at_smaller_weights() {
    let found = terms(PrefixMean::default(), MEAN, RATIOS, ADVANTAGES);
    assert_all_close(&found.coefficients, &[0.0, 0.0, -1.547716, -1.136506], DIGITS, "coefficients");
    assert_close(found.loss, 0.596963, DIGITS, "loss");
}

/// d = [.04, .02, .1, −.3]: log C = [.04, .06, .16, −.14], log R = [.04, .03, .053333, −.035]. Product: upper widths
/// [.05, .0707107, .0866025, .1], lower width at 4 .05. Mean: [.05, .0353553, .0288675, .025] and .0125.
#[test]
fn both_forms_of_ctpo_stop_above_and_below() {
    let ratios = [0.04_f64, 0.02, 0.1, -0.3].map(f64::exp);
    let advantages = [1.0, 1.0, 1.0, -1.0];
    let product = terms(PrefixProduct::default(), PRODUCT, ratios, advantages);
    assert_all_close(&product.coefficients, &[1.040811, 1.061837, 0.0, 0.0], DIGITS, "product");
    assert_close(product.loss, -(1.040811 + 1.061837 + 1.090463 - 0.951229), DIGITS, "product");
    let mean = terms(PrefixMean::default(), MEAN, ratios, advantages);
    assert_all_close(&mean.coefficients, &[1.040811, 1.030455, 0.0, 0.0], DIGITS, "mean");
    assert_close(mean.loss, -(1.040811 + 1.030455 + 1.029288 - 0.987578), DIGITS, "mean");
    for found in [product, mean] {
        assert_eq!(found.bindings, [Binding::None, Binding::None, Binding::High, Binding::Low]);
    }
}

/// The shared example d = [.1, −.2, .3, .05]: DCPO and RIPO let everything through, CTPO one token of a good response.
#[test]
fn the_shared_example_has_the_published_coefficients() {
    let anchor = [0.5_f64, 0.2, 0.05, 0.9].map(f64::ln);
    let current: Vec<f64> = anchor.iter().zip([0.1, -0.2, 0.3, 0.05]).map(|(anchor, d)| anchor + d).collect();
    let coefficients = |objective: &dyn Objective, advantage: f64| {
        let response = TestResponse::new(&anchor, &current, &[advantage; 4]);
        objective.evaluate(&response.tokens(), 1.0).coefficients
    };
    let ratios = [1.105171, 0.818731, 1.349859, 1.051271];
    let dcpo = Composed::new(TokenRatio, ProbabilityClip::default(), PpoMin::default());
    let ripo = Composed::new(TokenRatio, SqrtProbabilityClip::default(), PpoMin::default());
    for objective in [&dcpo as &dyn Objective, &ripo] {
        assert_all_close(&coefficients(objective, 1.0), &ratios, DIGITS, "A = 1");
        assert_all_close(&coefficients(objective, -1.0), &ratios.map(|r| -r), DIGITS, "A = −1");
    }
    let ctpo = Composed::new(PrefixProduct::default(), PRODUCT, PpoMin::default());
    assert_all_close(&coefficients(&ctpo, 1.0), &[0.0, 0.904837, 0.0, 0.0], DIGITS, "A = 1");
    let expected = [-1.105171, 0.0, -1.221403, -1.284025];
    assert_all_close(&coefficients(&ctpo, -1.0), &expected, DIGITS, "A = −1");
}

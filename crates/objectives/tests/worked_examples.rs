//! One response, worked by hand under every recipe.
//!
//! L = 4, anchor probabilities [.5, .2, .05, .9], d = [.1, −.2, .3, .05]. Then r = exp(d) = [1.105171,
//! .818731, 1.349859, 1.051271]; prefix means of d = [.1, −.05, .0666667, .0625], so R = [1.105171, .951229,
//! 1.068939, 1.064494]; the sequence ratio is R_4.

use firebrick_core::{Binding, Objective, ResponseTerms};
use firebrick_objectives::{
    Composed, ConstantClip, ObjectiveConfig, PpoMin, PrefixMean, PrefixRoute, TokenRatio,
};
use firebrick_testkit::{TestResponse, assert_all_close, assert_close};

fn objective(text: &str) -> impl Objective + use<> {
    text.parse::<ObjectiveConfig>().expect("the config parses").objective()
}

fn pnpo(eps_minus: f64, eps_plus: f64, value: &str) -> impl Objective + use<> {
    objective(&format!(
        "type = 'pnpo'\nschedule.eps_minus = {eps_minus}\nschedule.eps_plus = {eps_plus}\ngate.value = {value:?}"
    ))
}

const D: [f64; 4] = [0.1, -0.2, 0.3, 0.05];
/// The examples have seven digits.
const DIGITS: f64 = 2e-6;

fn response(advantage: f64) -> TestResponse {
    let anchor = [0.5_f64, 0.2, 0.05, 0.9].map(f64::ln);
    let current: Vec<f64> = anchor.iter().zip(D).map(|(anchor, d)| anchor + d).collect();
    TestResponse::new(&anchor, &current, &[advantage; 4])
}

fn terms(objective: &dyn Objective, advantage: f64) -> ResponseTerms {
    objective.evaluate(&response(advantage).tokens(), 1.0)
}

#[track_caller]
fn assert_coefficients(objective: &dyn Objective, advantage: f64, expected: [f64; 4]) {
    assert_all_close(&terms(objective, advantage).coefficients, &expected, DIGITS, "coefficients");
}

#[test]
fn grpo_stops_the_third_token_of_a_good_response_only() {
    let objective = objective("type = 'grpo'\nkl.coefficient = 0.0");
    assert_coefficients(&objective, 1.0, [1.105171, 0.818731, 0.0, 1.051271]);
    assert_coefficients(&objective, -1.0, [-1.105171, -0.818731, -1.349859, -1.051271]);
    assert_eq!(terms(&objective, 1.0).bindings[2], Binding::High);
}

#[test]
fn dapo_agrees_with_grpo_where_a_ratio_passes_the_higher_bound_too() {
    let objective = objective("type = 'dapo'");
    assert_coefficients(&objective, 1.0, [1.105171, 0.818731, 0.0, 1.051271]);
    assert_coefficients(&objective, -1.0, [-1.105171, -0.818731, -1.349859, -1.051271]);
    let loss = terms(&objective, 1.0).loss;
    assert_close(loss, -(1.105171 + 0.818731 + 1.28 + 1.051271), DIGITS, "the clipped value is 1.28");
}

#[test]
fn gspo_stops_or_keeps_all_tokens_of_a_response_together() {
    for route in ["sequence", "current"] {
        let objective = objective(&format!("type = 'gspo'\nestimator.route = '{route}'"));
        assert_coefficients(&objective, 1.0, [0.0; 4]);
        assert_close(terms(&objective, 1.0).loss, -4.0 * 1.0004, 1e-12, "clipped value");
        assert_coefficients(&objective, -1.0, [-1.064494; 4]);
    }
}

/// Windows: [.8, 1.2], [.916982, 1.083077], [.968806, 1.031278], [.9997, 1.0004].
#[test]
fn tapo_stops_late_tokens_of_a_good_response() {
    let objective = objective("type = 'tapo'");
    assert_coefficients(&objective, 1.0, [1.105171, 0.951229, 0.0, 0.0]);
    assert_coefficients(&objective, -1.0, [-1.105171, -0.951229, -1.068939, -1.064494]);
    let mean = |advantage| objective.evaluate(&response(advantage).tokens(), 0.25).loss;
    assert_close(mean(1.0), -1.022020, DIGITS, "J(+1)");
    assert_close(mean(-1.0), 1.047458, DIGITS, "J(-1)");
}

#[test]
fn the_full_prefix_route_moves_gradient_to_early_tokens() {
    let open = ConstantClip { low: 1.0, high: 1e9 };
    let with = |route| Composed::new(PrefixMean { route }, open, PpoMin::default());
    assert_coefficients(&with(PrefixRoute::FullPrefix), 1.0, [2.203222, 1.098051, 0.622437, 0.266124]);
    assert_coefficients(&with(PrefixRoute::Current), 1.0, [1.105171, 0.951229, 1.068939, 1.064494]);
}

/// PPO's minimum never clips a ratio above one when the advantage is negative; only an outer bound does.
#[test]
fn a_large_prefix_ratio_of_a_bad_response_is_stopped_by_the_outer_bound_alone() {
    let response = TestResponse::from_log_ratios(&[2.5, 2.5], &[-1.0, -1.0]);
    let open = objective("type = 'tapo'\ngate.outer = { type = 'open' }");
    let terms = open.evaluate(&response.tokens(), 1.0);
    assert_eq!(terms.bindings, [Binding::None; 2]);
    assert_all_close(&terms.coefficients, &[-(2.5_f64.exp()); 2], 1e-12, "coefficients");
    let terms = objective("type = 'tapo'").evaluate(&response.tokens(), 1.0);
    assert_eq!(terms.bindings, [Binding::OuterHigh; 2]);
    assert_eq!((terms.loss, terms.coefficients), (20.0, vec![0.0; 2]));
}

/// h = [2, 1.414214, 1.154701, 1]; windows for ε = .05: [.9, 1.1], [.929289, 1.070711], [.942265, 1.057735],
/// [.95, 1.05].
#[test]
fn pnpo_accepts_the_same_tokens_for_either_sign() {
    let narrow = pnpo(0.05, 0.05, "weighted_log_prob");
    assert_coefficients(&narrow, 1.0, [0.0, 0.951229, 0.0, 0.0]);
    assert_coefficients(&narrow, -1.0, [0.0, -0.951229, 0.0, 0.0]);
    assert_eq!(terms(&narrow, 1.0).bindings, terms(&narrow, -1.0).bindings);
}

#[test]
fn pnpo_accepts_all_tokens_in_a_wide_window_and_none_in_a_narrow_one() {
    let wide = pnpo(0.2, 0.2, "weighted_log_prob");
    let quarter = wide.evaluate(&response(1.0).tokens(), 0.25);
    assert_all_close(
        &quarter.coefficients,
        &[0.276293, 0.237807, 0.267235, 0.266124],
        DIGITS,
        "coefficients",
    );
    let none = pnpo(0.02, 0.02, "weighted_log_prob");
    let terms = terms(&none, 1.0);
    assert_eq!((terms.loss, terms.coefficients), (0.0, vec![0.0; 4]));
}

/// log π_θ of the second token: ln .2 − .2 = −1.809438.
#[test]
fn pnpo_logs_either_the_objective_as_written_or_the_weight() {
    let with = |value| pnpo(0.05, 0.05, value);
    let written = terms(&with("weighted_log_prob"), 1.0).loss;
    assert_close(written, 0.951229 * 1.809438, DIGITS, "M w A log-prob");
    assert_close(terms(&with("weight"), 1.0).loss, -0.951229, DIGITS, "M w A");
}

/// OpenRLHF #1293: a mean log-ratio of 100 keeps loss and coefficients finite.
#[test]
fn a_response_that_drifted_out_of_sight_stays_finite() {
    let response = TestResponse::from_log_ratios(&[150.0, 50.0, 100.0], &[-1.0; 3]);
    let objectives: [Box<dyn Objective>; 5] = [
        Box::new(objective("type = 'grpo'\nkl.coefficient = 0.0")),
        Box::new(objective("type = 'dapo'")),
        Box::new(objective("type = 'gspo'")),
        Box::new(objective("type = 'tapo'\ngate.outer = { type = 'open' }")),
        Box::new(pnpo(0.2, 0.2, "weighted_log_prob")),
    ];
    for objective in objectives {
        let terms = objective.evaluate(&response.tokens(), 1.0 / 3.0);
        assert!(terms.loss.is_finite(), "{objective:?}");
        assert_eq!(terms.coefficients, [0.0; 3], "{objective:?}");
    }
}

#[test]
fn an_unclipped_token_ratio_is_exact_to_the_last_digits() {
    let objective = Composed::new(TokenRatio, ConstantClip { low: 0.2, high: 0.2 }, PpoMin::default());
    let response = TestResponse::from_log_ratios(&[1e-4, -1e-4], &[1.0, 1.0]);
    let terms = objective.evaluate(&response.tokens(), 0.5);
    assert_close(terms.loss, -1.000_000_005, 1e-15, "cosh(1e-4) = 1 + 5e-9");
}

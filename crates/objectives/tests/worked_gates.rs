//! One response, worked by hand under each gate, and the cases that other frameworks have got wrong.
//!
//! L = 4, anchor probabilities [.5, .2, .05, .9], d = [.1, −.2, .3, .05]. Then π = [.552585, .163746, .067493, .946144],
//! r = exp(d) = [1.105171, .818731, 1.349859, 1.051271] and the sequence ratio exp(mean d) = 1.064494.

use firebrick_core::{Binding, Objective, ResponseTerms};
use firebrick_objectives::{Divergence, ObjectiveConfig};
use firebrick_testkit::{TestResponse, assert_all_close, assert_close};

/// The examples have seven digits.
const DIGITS: f64 = 2e-6;
const UNCLIPPED: [f64; 4] = [-1.105171, -0.818731, -1.349859, -1.051271];

/// A token ratio in the window [1 − low, 1 + high] under a gate.
fn objective(low: f64, high: f64, gate: &str) -> impl Objective + use<> {
    let text = format!(
        "type = 'composed'\nestimator = {{ type = 'token_ratio' }}\nadvantage = {{ type = 'group_centered' }}\n\
         schedule = {{ type = 'constant', low = {low}, high = {high} }}\n\
         aggregation = {{ type = 'token_sum' }}\ngate = {gate}"
    );
    let config: ObjectiveConfig = text.parse().expect("the config parses");
    config.validate().expect("the config is valid");
    config.objective()
}

fn response(advantage: f64) -> TestResponse {
    let anchor = [0.5_f64, 0.2, 0.05, 0.9].map(f64::ln);
    let current: Vec<f64> = anchor.iter().zip([0.1, -0.2, 0.3, 0.05]).map(|(anchor, d)| anchor + d).collect();
    TestResponse::new(&anchor, &current, &[advantage; 4])
}

fn terms(objective: &dyn Objective, advantage: f64) -> ResponseTerms {
    objective.evaluate(&response(advantage).tokens(), 1.0)
}

#[track_caller]
fn assert_coefficients(objective: &dyn Objective, good: [f64; 4], bad: [f64; 4]) {
    assert_all_close(&terms(objective, 1.0).coefficients, &good, DIGITS, "A = 1");
    assert_all_close(&terms(objective, -1.0).coefficients, &bad, DIGITS, "A = −1");
}

/// x = [.1, −.2, .25, .05]: mean .05, exp(.05) = 1.051271. With A = −1 nothing is below −.25.
#[test]
fn gmpo_clips_one_token_and_moves_the_mean_of_all() {
    let objective = objective(1.0, 10.0, "{ type = 'geometric_mean', low = 0.25, high = 0.25 }");
    assert_coefficients(&objective, [1.051271, 1.051271, 0.0, 1.051271], [-1.064494; 4]);
    assert_close(terms(&objective, 1.0).loss, -4.0 * 1.051271, DIGITS, "value");
    assert_eq!(terms(&objective, 1.0).bindings[2], Binding::High);
}

#[test]
fn gmpo_without_a_clipped_token_is_gspo() {
    let gmpo = objective(1.0, 10.0, "{ type = 'geometric_mean' }");
    let gspo: ObjectiveConfig = "type = 'gspo'\nschedule = { type = 'constant', low = 1.0, high = 10.0 }"
        .parse()
        .expect("the config parses");
    for advantage in [1.0, -1.0] {
        let (gmpo, gspo) = (terms(&gmpo, advantage), terms(&gspo.objective(), advantage));
        assert_all_close(&gmpo.coefficients, &gspo.coefficients, 1e-14, "coefficients");
        assert_close(gmpo.loss, gspo.loss, 1e-14, "loss");
    }
}

/// Causal GMPO: x = [.1, −.2, .25, .05], prefix means [.1, −.05, .05, .05]. The last token has GMPO's value.
#[test]
fn causal_gmpo_ends_at_gmpo() {
    let gate = "{ type = 'geometric_mean', low = 0.25, high = 0.25, scope = 'prefix' }";
    let objective = objective(1.0, 10.0, gate);
    assert_coefficients(
        &objective,
        [1.105171, 0.951229, 0.0, 1.051271],
        [-1.105171, -0.951229, -1.068939, -1.064494],
    );
}

#[test]
fn cispo_keeps_the_gradient_of_the_cap() {
    let objective = objective(1.0, 0.2, "{ type = 'saturating' }");
    let good = [1.105171, 0.818731, 1.2, 1.051271];
    assert_coefficients(&objective, good, good.map(|coefficient| -coefficient));
}

/// 4 p (1 − p) r with p = sigmoid(r − 1), and with τ = 1.05 for A = −1.
#[test]
fn sapo_dampens_both_sides_smoothly() {
    assert_coefficients(
        &objective(0.2, 0.2, "{ type = 'sigmoid' }"),
        [1.102120, 0.812042, 1.309381, 1.050581],
        [-1.101808, -0.811360, -1.305324, -1.050510],
    );
}

/// π − μ = [.052585, −.036254, .017493, .046144] against .03.
#[test]
fn dppo_drops_by_the_difference_of_probabilities_and_not_by_the_ratio() {
    let gate = "{ type = 'divergence_mask', divergence = { type = 'binary_tv', low = 0.03, high = 0.03 } }";
    let objective = objective(0.2, 0.2, gate);
    assert_coefficients(&objective, [0.0, 0.818731, 1.349859, 0.0], [-1.105171, 0.0, -1.349859, -1.051271]);
    let dropped = Binding::Dropped;
    assert_eq!(terms(&objective, 1.0).bindings, [dropped, Binding::None, Binding::None, dropped]);
}

#[test]
fn dppos_binary_kl_divergences_are_those_worked_by_hand() {
    let response = response(1.0);
    let kl = Divergence::BinaryKl { low: 0.05, high: 0.05 };
    let found: Vec<f64> = (0..4).map(|index| kl.at(&response.tokens(), index)).collect();
    // The values have six decimals.
    for (found, expected) in found.iter().zip([0.005561, 0.004544, 0.002656, 0.016886]) {
        assert!((found - expected).abs() < 1e-6, "{found}, {expected}");
    }
}

#[test]
fn gppo_gives_the_clipped_token_the_gradient_of_the_bound() {
    let objective = objective(0.2, 0.2, "{ type = 'gradient_preserving' }");
    assert_coefficients(&objective, [1.105171, 0.818731, 1.2, 1.051271], UNCLIPPED);
    assert_eq!(terms(&objective, 1.0).bindings[2], Binding::High);
}

/// 1/r = [.904837, 1.221403, .740818, .951229]; r_3 > 1.2 is masked.
#[test]
fn aspo_turns_the_ratio_of_good_tokens_upside_down() {
    let objective = objective(0.2, 0.2, "{ type = 'reciprocal' }");
    assert_coefficients(&objective, [0.904837, 1.221403, 0.0, 0.951229], UNCLIPPED);
}

/// Every gate of this crate whose coefficients follow PPO's where nothing is masked.
const LIKE_PPO: [&str; 4] = [
    "{ type = 'ppo_min' }",
    "{ type = 'gradient_preserving' }",
    "{ type = 'covariance_clip' }",
    "{ type = 'sequence_divergence_mask', statistic = 'max_k3', threshold = inf }",
];

/// TRL #3175, #6021: ratios [1.5, .5, 1.5, .5] with advantages [+, +, −, −] are clipped once above and once below, not
/// four times.
#[test]
fn a_ratio_beyond_the_window_is_a_clip_only_where_the_clip_acts() {
    for gate in LIKE_PPO {
        let objective = objective(0.2, 0.2, gate);
        let bindings: Vec<Binding> = [(1.5_f64, 1.0), (0.5, 1.0), (1.5, -1.0), (0.5, -1.0)]
            .into_iter()
            .flat_map(|(ratio, advantage)| {
                let response = TestResponse::from_log_ratios(&[ratio.ln()], &[advantage]);
                objective.evaluate(&response.tokens(), 1.0).bindings
            })
            .collect();
        assert_eq!(bindings, [Binding::High, Binding::None, Binding::None, Binding::Low], "{gate}");
    }
}

/// tianshou #433, verl #784: dual clip 3 at (r = 10, A = 1), (10, −1), (.5, −1) gives 1.2, −3, −.8. A dual clip that grows
/// as exp(ln 3 · t^.5) is 3 at the first position.
#[test]
fn a_dual_clip_acts_on_negative_advantages_only_under_every_gate_that_has_one() {
    let growing =
        format!("{{ type = 'ppo_min', dual_clip_growth = {{ scale = {}, power = 0.5 }} }}", 3f64.ln());
    let gates = [
        "{ type = 'ppo_min', dual_clip = 3.0 }",
        "{ type = 'gradient_preserving', dual_clip = 3.0 }",
        growing.as_str(),
    ];
    for gate in gates {
        let objective = objective(0.2, 0.2, gate);
        let surrogate = |ratio: f64, advantage| {
            let response = TestResponse::from_log_ratios(&[ratio.ln()], &[advantage]);
            -objective.evaluate(&response.tokens(), 1.0).loss
        };
        let found = [surrogate(10.0, 1.0), surrogate(10.0, -1.0), surrogate(0.5, -1.0)];
        assert_all_close(&found, &[1.2, -3.0, -0.8], 1e-14, gate);
    }
}

/// OpenRLHF #1293: a mean log-ratio of 100 leaves loss and coefficients finite, for either sign of the advantage.
#[test]
fn a_response_that_drifted_out_of_sight_stays_finite_under_every_gate() {
    let gates = [
        "{ type = 'hard_mask' }",
        "{ type = 'saturating' }",
        "{ type = 'sigmoid' }",
        "{ type = 'reciprocal' }",
        "{ type = 'geometric_mean' }",
        "{ type = 'geometric_mean', scope = 'prefix' }",
        "{ type = 'covariance_kl' }",
        "{ type = 'off_policy_sequence_mask', delta = 0.1 }",
        "{ type = 'divergence_mask', divergence = { type = 'binary_tv', low = 0.2, high = 0.2 } }",
        "{ type = 'divergence_mask', divergence = { type = 'binary_kl', low = 0.2, high = 0.2 } }",
        "{ type = 'mask_from', estimator = { type = 'prefix_mean' }, sign_aware = false, \
         schedule = { type = 'constant', low = 0.2, high = 0.2 } }",
    ];
    for gate in gates.into_iter().chain(LIKE_PPO) {
        let objective = objective(0.2, 0.2, gate);
        for (advantage, sign) in [(1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (-1.0, -1.0)] {
            let response = TestResponse::new(
                &[-160.0, -60.0, -110.0].map(|log_prob| if sign > 0.0 { log_prob } else { -10.0 }),
                &[-10.0, -10.0, -10.0].map(|log_prob| if sign > 0.0 { log_prob } else { -110.0 }),
                &[advantage; 3],
            );
            let terms = objective.evaluate(&response.tokens(), 1.0 / 3.0);
            assert!(terms.loss.is_finite(), "{gate}");
            // No coefficient beyond the largest weight, exp(20).
            assert!(terms.coefficients.iter().all(|value| value.abs() <= 20f64.exp() / 3.0), "{gate}");
        }
    }
}

#[test]
fn every_gate_survives_a_round_trip_and_refuses_stray_keys() {
    let gates = [
        "{ type = 'saturating', value = 'weight' }",
        "{ type = 'sigmoid', tau_pos = 2.0 }",
        "{ type = 'gradient_preserving', scale_low = 0.5, dual_clip = 3.0 }",
        "{ type = 'divergence_mask', divergence = { type = 'top_k_kl', k = 20, low = 0.05, high = 0.05 } }",
        "{ type = 'sequence_divergence_mask', statistic = 'mean_k3', threshold = 0.1 }",
        "{ type = 'off_policy_sequence_mask', delta = 0.1 }",
        "{ type = 'geometric_mean', scope = 'prefix' }",
        "{ type = 'reciprocal', max_weight = 4.0 }",
        "{ type = 'covariance_clip', ratio = 0.01 }",
        "{ type = 'covariance_kl', fraction = 0.002 }",
        "{ type = 'ppo_min', dual_clip_growth = { scale = 0.05, power = 0.5 } }",
        "{ type = 'mask_from', estimator = { type = 'prefix_mean' }, sign_aware = true, \
         schedule = { type = 'sqrt_ratio', eps_minus = 0.1, eps_plus = 0.1 } }",
    ];
    for gate in gates {
        let text = format!("type = 'grpo'\ngate = {gate}");
        let config: ObjectiveConfig = text.parse().unwrap_or_else(|error| panic!("{gate}: {error}"));
        config.validate().unwrap_or_else(|error| panic!("{gate}: {error}"));
        let toml = toml::to_string(&config).expect("it serialises");
        assert_eq!(toml.parse::<ObjectiveConfig>().expect("it parses"), config, "{toml}");
        let stray = text.replace(" }", ", stray = 1 }");
        assert!(stray.parse::<ObjectiveConfig>().is_err(), "{stray}");
    }
}

#[test]
fn a_detached_weight_takes_no_route_through_other_tokens() {
    for gate in ["saturating", "reciprocal", "gradient_preserving"] {
        let text = format!("type = 'gspo'\ngate = {{ type = {gate:?} }}");
        let error =
            text.parse::<ObjectiveConfig>().expect("it parses").validate().expect_err("it is refused");
        assert!(
            error.to_string().starts_with("estimator.route = \"sequence\": the gate detaches"),
            "{error}"
        );
    }
}

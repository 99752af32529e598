//! Estimators and schedules as configuration: round trips, defaults and refusals.

use firebrick_objectives::{ObjectiveConfig, ScheduleConfig};
use firebrick_testkit::check_objective;

fn composed(estimator: &str, schedule: &str) -> Result<ObjectiveConfig, String> {
    let text = format!(
        "type = 'composed'\naggregation = {{ type = 'token_mean' }}\nadvantage = {{ type = 'group_normalized' }}\n\
         gate = {{ type = 'ppo_min' }}\nestimator = {{ {estimator} }}\nschedule = {{ {schedule} }}"
    );
    text.parse().map_err(|error: toml::de::Error| format!("{text}: {}", error.message()))
}

const OPEN: &str = "type = 'open'";
const TOKEN: &str = "type = 'token_ratio'";

const ESTIMATORS: [&str; 12] = [
    "type = 'unweighted'",
    "type = 'sequence_product'",
    "type = 'sequence_product', route = 'current'",
    "type = 'prefix_product'",
    "type = 'prefix_product', max_log_weight = 5.0",
    "type = 'min_prefix'",
    "type = 'group_capped', eps = 0.2",
    "type = 'state_geo'",
    "type = 'bounded_prefix_product'",
    "type = 'bounded_prefix_product', width = 0.3, root = true",
    "type = 'constant_scaling', arm = 'matched'",
    "type = 'constant_scaling', arm = 'token_times', divergence = 'k3', ema = 0.9",
];

const SCHEDULES: [&str; 13] = [
    OPEN,
    "type = 'inverse_sqrt', power = 1.0",
    "type = 'power_law', low = 0.025, high = 0.05, power = 0.5",
    "type = 'probability'",
    "type = 'sqrt_probability'",
    "type = 'entropy_split'",
    "type = 'second_moment'",
    "type = 'absolute_position', sigma = { type = 'fixed', value = 0.1 }",
    "type = 'absolute_position', sigma = { type = 'batch_std', ema = 0.9 }, centre = 'gaussian', cap = 0.3",
    "type = 'absolute_position', sigma = { type = 'batch_kl', estimator = 'k3' }, centre = 'empirical', \
     centre_ema = 0.5, space = 'ratio', require_unit_inside = true, delta = 0.1, floor = 1e-3",
    "type = 'stale', mode = 'tighten', schedule = { type = 'inverse_sqrt' }",
    "type = 'stale', mode = 'tighten', hurst = 1.0, schedule = { type = 'second_moment', budget = 0.01 }",
    "type = 'stale', mode = 'widen', schedule = { type = 'absolute_position', sigma = { type = 'batch_std' } }",
];

fn configs() -> Vec<ObjectiveConfig> {
    let estimators = ESTIMATORS.map(|estimator| composed(estimator, OPEN));
    let schedules = SCHEDULES.map(|schedule| composed(TOKEN, schedule));
    let configs: Result<_, String> = estimators.into_iter().chain(schedules).collect();
    configs.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_part_survives_a_round_trip_through_toml_and_json() {
    for config in configs() {
        let toml = toml::to_string(&config).expect("it serialises");
        assert_eq!(toml::from_str::<ObjectiveConfig>(&toml).expect("it parses"), config, "{toml}");
        let json = serde_json::to_string(&config).expect("it serialises");
        assert_eq!(serde_json::from_str::<ObjectiveConfig>(&json).expect("it parses"), config, "{json}");
    }
}

#[test]
fn every_part_is_valid_and_builds_what_keeps_the_contract() {
    for config in configs() {
        config.validate().unwrap_or_else(|error| panic!("{config:?}: {error}"));
        check_objective(config.build().objective);
    }
}

#[test]
fn parts_ask_for_what_they_look_at() {
    let needs =
        |estimator, schedule| composed(estimator, schedule).expect("it parses").build().requirements();
    assert!(needs("type = 'group_capped', eps = 0.2", OPEN).batch_current_log_probs);
    assert!(needs("type = 'constant_scaling', arm = 'flat'", OPEN).batch_current_log_probs);
    assert!(needs(TOKEN, "type = 'second_moment'").batch_current_log_probs);
    assert!(needs(TOKEN, SCHEDULES[12]).batch_current_log_probs);
    assert!(!needs(TOKEN, SCHEDULES[7]).batch_current_log_probs);
    assert!(needs(TOKEN, "type = 'entropy_split'").entropies);
    assert!(!needs("type = 'prefix_product'", "type = 'probability'").entropies);
}

#[test]
fn stray_keys_and_missing_ones_are_refused() {
    for estimator in [
        "type = 'unweighted', route = 'current'",
        "type = 'min_prefix', cap = 1.0",
        "type = 'state_geo', root = true",
        "type = 'group_capped'",
        "type = 'group_capped', eps = 0.2, log_factors = {}",
        "type = 'constant_scaling'",
        "type = 'constant_scaling', arm = 'flat', drift = 1.0",
        "type = 'prefix_product', route = 'full_prefix'",
    ] {
        assert!(composed(estimator, OPEN).is_err(), "{estimator}");
    }
    for schedule in [
        "type = 'open', low = 0.2",
        "type = 'power_law', low = 0.1, high = 0.1",
        "type = 'probability', eps = 0.2",
        "type = 'second_moment', window = 1.0",
        "type = 'absolute_position'",
        "type = 'absolute_position', sigma = { type = 'fixed' }",
        "type = 'absolute_position', sigma = { type = 'fixed', value = 0.1, ema = 0.9 }",
        "type = 'stale', mode = 'tighten'",
        "type = 'stale', mode = 'tighten', schedule = { type = 'open', low = 0.2 }",
    ] {
        assert!(composed(TOKEN, schedule).is_err(), "{schedule}");
    }
}

#[test]
fn refusals_name_the_whole_path() {
    let refusal = |estimator, schedule| {
        let config = composed(estimator, schedule).expect("it parses");
        config.validate().expect_err("it is refused").to_string()
    };
    assert_eq!(
        refusal("type = 'prefix_product', max_log_weight = 30.0", OPEN),
        "estimator.max_log_weight = 30: allowed is in (0, 20]"
    );
    assert_eq!(
        refusal("type = 'group_capped', eps = -0.1", OPEN),
        "estimator.eps = -0.1: allowed is a finite number >= 0"
    );
    assert_eq!(
        refusal("type = 'constant_scaling', arm = 'flat', ema = 1.0", OPEN),
        "estimator.ema = 1: allowed is in [0, 1)"
    );
    assert_eq!(
        refusal(
            TOKEN,
            "type = 'stale', mode = 'tighten', schedule = { type = 'probability', max_ratio = 0.5 }"
        ),
        "schedule.schedule.max_ratio = 0.5: allowed is a finite number >= 1"
    );
    let error = refusal(TOKEN, "type = 'stale', mode = 'widen', schedule = { type = 'inverse_sqrt' }");
    assert!(error.starts_with("schedule.mode = \"widen\": only a confidence band"), "{error}");
}

#[test]
fn a_mask_refuses_a_route_through_a_detached_product() {
    let text = "type = 'gspo'\nestimator = { type = 'sequence_product' }\ngate = { type = 'hard_mask' }";
    let config: ObjectiveConfig = text.parse().expect("it parses");
    let error = config.validate().expect_err("it is refused").to_string();
    assert!(error.starts_with("estimator.route = \"sequence\": the gate detaches"), "{error}");
}

#[test]
fn a_nested_schedule_has_its_own_keys_and_defaults() {
    let text = "type = 'tapo'\nschedule = { type = 'stale', mode = 'tighten', schedule = { type = 'inverse_sqrt', \
                eps_max = 0.3 } }";
    let config: ObjectiveConfig = text.parse().expect("it parses");
    let ScheduleConfig::Stale(stale) = &config.parts.schedule else { panic!("another schedule") };
    let ScheduleConfig::InverseSqrt(inner) = &*stale.schedule else { panic!("another schedule inside") };
    assert_eq!((inner.eps_max, inner.power, stale.hurst), (0.3, 0.5, 0.5));
}

//! Configs: round trips, defaults, overrides and refusals.

use firebrick_core::{Anchor, Requirements};
use firebrick_objectives::{
    AdvantageConfig, Aggregation, ConstantClip, GateConfig, KlEstimator, KlTerm, ObjectiveConfig,
    OuterBounds, PpoMin, Preset, ScheduleConfig, StdSpec,
};
use firebrick_testkit::{TestResponse, check_objective};

const COMPOSED: &str = "type = 'composed'\nanchor = 'proximal'\naggregation = { type = 'token_sum' }\n\
    advantage = { type = 'group_centered' }\nestimator = { type = 'token_ratio' }\n\
    schedule = { type = 'constant', low = 0.2, high = 0.3 }\ngate = { type = 'ppo_min', dual_clip = 3.0 }";

/// Every preset, with values for what the papers leave open, and changed ones.
fn configs() -> Vec<ObjectiveConfig> {
    let preset = |preset: &Preset| {
        let open = |key: &String| match key.as_str() {
            "aggregation.norm" => format!("{key} = 256.0\n"),
            "advantage.k" => format!("{key} = 2\n"),
            _ => format!("{key} = 0.05\n"),
        };
        let keys: String = preset.required.keys().map(open).collect();
        // The sample responses know the three most likely tokens.
        let k = if preset.name == "dppo_top_k" { "gate.divergence.k = 3\n" } else { "" };
        format!("type = '{}'\n{keys}{k}", preset.name)
    };
    let changed = [
        "type = 'grpo'\nanchor = 'proximal'\nentropy_coefficient = 0.01\nschedule.low = 0.1\ngate.dual_clip = 3.0\n\
         kl = { estimator = 'k3', coefficient = 0.04, straight_through = true, weighted = true }\n\
         aggregation = { type = 'seq_mean_token_sum_norm', norm = 256.0 }\n\
         advantage = { type = 'group_normalized', ddof = 0, eps = 1e-8, placement = 'inside_sqrt' }",
        "type = 'gspo'\nestimator.route = 'current'",
        "type = 'tapo'\nschedule = { type = 'sqrt_ratio', eps_minus = 0.1, eps_plus = 0.2, interval = 'power' }\n\
         estimator.route = 'full_prefix'\nkl = { estimator = 'abs', coefficient = 0.1, placement = 'reward' }",
        COMPOSED,
    ];
    let texts = Preset::all().iter().map(preset).chain(changed.map(str::to_owned));
    texts.map(|text| text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))).collect()
}

fn parse(toml: &str) -> Result<ObjectiveConfig, String> {
    toml.parse().map_err(|error: toml::de::Error| error.message().to_owned())
}

fn parsed(toml: &str) -> ObjectiveConfig {
    parse(toml).unwrap_or_else(|error| panic!("{toml}: {error}"))
}

/// The message of a config that parses and does not validate.
fn refusal(toml: &str) -> String {
    parsed(toml).validate().expect_err("the config is refused").to_string()
}

#[test]
fn every_config_survives_a_round_trip_through_toml_and_json() {
    for config in configs() {
        let toml = toml::to_string(&config).expect("it serialises");
        assert_eq!(toml::from_str::<ObjectiveConfig>(&toml).expect("it parses"), config, "{toml}");
        let json = serde_json::to_string(&config).expect("it serialises");
        assert_eq!(serde_json::from_str::<ObjectiveConfig>(&json).expect("it parses"), config, "{json}");
    }
}

#[test]
fn every_config_is_valid_and_builds_what_keeps_the_contract() {
    for config in configs() {
        config.validate().unwrap_or_else(|error| panic!("{}: {error}", config.r#type));
        check_objective(config.build().objective);
    }
}

#[test]
fn a_type_alone_is_the_paper() {
    let grpo = ObjectiveConfig::preset("grpo").expect("it has no open key").parts;
    assert_eq!(grpo.schedule, ScheduleConfig::Constant(ConstantClip { low: 0.2, high: 0.2 }));
    assert_eq!(grpo.kl, Some(KlTerm::new(KlEstimator::K3, 0.04)));
    assert_eq!(grpo.aggregation, Aggregation::SeqMeanTokenMean);
    let dapo = ObjectiveConfig::preset("dapo").expect("it has no open key").parts;
    assert_eq!(dapo.schedule, ScheduleConfig::Constant(ConstantClip { low: 0.2, high: 0.28 }));
    assert_eq!((dapo.aggregation, dapo.kl), (Aggregation::TokenMean, None));
    let tapo = ObjectiveConfig::preset("tapo").expect("it has no open key").parts;
    let outer = OuterBounds::RatioClamp { low: 0.5, high: 10.0 };
    assert_eq!(tapo.gate, GateConfig::PpoMin(PpoMin { outer, ..PpoMin::default() }));
}

#[test]
fn a_key_changes_one_number_and_a_type_replaces_the_part() {
    let changed = parsed("type = 'tapo'\nschedule.eps_max = 0.3\ngate.outer = { type = 'open' }");
    let mut expected = parsed("type = 'tapo'");
    let ScheduleConfig::InverseSqrt(schedule) = &mut expected.parts.schedule else {
        panic!("another schedule")
    };
    schedule.eps_max = 0.3;
    expected.parts.gate = GateConfig::PpoMin(PpoMin::default());
    assert_eq!(changed, expected);
    let advantage = parsed("type = 'grpo'\nadvantage.ddof = 0").parts.advantage;
    assert_eq!(advantage, AdvantageConfig::GroupNormalized(StdSpec { ddof: 0, ..StdSpec::default() }));
    let gate = parsed("type = 'tapo'\ngate = { type = 'ppo_min' }").parts.gate;
    assert_eq!(gate, GateConfig::PpoMin(PpoMin::default()), "the preset's outer bounds went with its gate");
}

#[test]
fn what_a_paper_leaves_open_has_no_default() {
    assert_eq!(
        parse("type = 'pnpo'\nschedule.eps_plus = 0.1"),
        Err("pnpo has no default for schedule.eps_minus: the paper does not publish it; try 3e-4, 0.01 or 0.2".into())
    );
    for preset in Preset::all() {
        assert_eq!(
            ObjectiveConfig::preset(preset.name).is_ok(),
            preset.required.is_empty(),
            "{}",
            preset.name
        );
    }
}

#[test]
fn unknown_keys_are_refused_at_every_depth() {
    for toml in [
        "type = 'grpo'\nclip = 0.2",
        "type = 'grpo'\nschedule.width = 0.2",
        "type = 'dapo'\nkl = { estimator = 'k3', coefficient = 0.1, beta = 0.1 }",
        "type = 'tapo'\ngate.outer = { type = 'open', low = 0.5 }",
        "type = 'tapo'\ngate.outer.mid = 1.0",
        "type = 'gspo'\naggregation = { type = 'token_mean', norm = 4.0 }",
        "type = 'grpo'\nadvantage = { type = 'group_centered', ddof = 1 }",
        "type = 'grpo'\nadvantage.epsilon = 1.0",
        "type = 'grpo'\nestimator.route = 'current'",
        "type = 'tapo'\nestimator.routes = 'current'",
    ] {
        assert!(parse(toml).is_err(), "{toml}");
    }
    assert!(parse(COMPOSED).is_ok());
    assert_eq!(parse(&COMPOSED.replace("gate =", "#")), Err("missing field `gate`".into()));
}

#[test]
fn an_unknown_type_is_answered_with_the_known_ones() {
    let error = parse("type = 'reinforce'").expect_err("there is no such preset");
    for name in Preset::all().iter().map(|preset| preset.name).chain(["composed"]) {
        assert!(error.contains(name), "{error}");
    }
    assert_eq!(parse(""), Err("missing field `type`".into()));
    assert_eq!(parse("type = 3"), Err("invalid type: integer, expected a string".into()));
}

#[test]
fn a_value_out_of_range_is_refused_with_its_key_and_range() {
    for (toml, message) in [
        ("type = 'grpo'\nschedule.low = -1", "schedule.low = -1: allowed is a finite number >= 0"),
        ("type = 'dapo'\nschedule.high = inf", "schedule.high = inf: allowed is a finite number >= 0"),
        ("type = 'gspo'\ngate.dual_clip = 1.0", "gate.dual_clip = 1: allowed is a finite number > 1"),
        ("type = 'grpo'\nkl.coefficient = -0.1", "kl.coefficient = -0.1: allowed is a finite number >= 0"),
        (
            "type = 'grpo'\nentropy_coefficient = nan",
            "entropy_coefficient = NaN: allowed is a finite number >= 0",
        ),
        ("type = 'tapo'\ngate.outer.low = 1.5", "gate.outer.low = 1.5: allowed is in [0, 1]"),
        (
            "type = 'tapo'\nschedule.eps_max = 1e-4",
            "schedule.eps_min_low = 0.0003 with schedule.eps_max = 0.0001: the window narrows, so the smallest width \
             must not exceed the largest",
        ),
        (
            "type = 'grpo'\naggregation = { type = 'seq_mean_token_sum_norm', norm = 0.0 }",
            "aggregation.norm = 0: allowed is a finite number > 0",
        ),
        ("type = 'grpo'\nadvantage.ddof = 3", "advantage.ddof = 3: allowed is 0 or 1"),
        (
            "type = 'grpo'\nvalue_loss = {}",
            "value_loss = 1: allowed is no such table, since these advantages use no critic; remove it",
        ),
    ] {
        assert_eq!(refusal(toml), message);
    }
}

#[test]
fn a_mask_refuses_a_route_through_its_detached_weight() {
    let mask = "gate = { type = 'hard_mask' }";
    for (name, route) in [("gspo", "sequence"), ("tapo", "full_prefix")] {
        let error = refusal(&format!("type = {name:?}\nestimator.route = {route:?}\n{mask}"));
        assert!(error.starts_with(&format!("estimator.route = {route:?}: the gate detaches")), "{error}");
        assert!(error.contains("set route = \"current\""), "{error}");
    }
}

#[test]
fn a_recipe_asks_for_what_its_parts_need() {
    let needs = |text: &str| parsed(text).build().requirements();
    let group = Requirements { min_group_size: 2, ..Requirements::default() };
    assert_eq!(needs("type = 'dapo'"), group);
    assert_eq!(needs("type = 'grpo'\nkl.coefficient = 0.0"), group);
    let reference = Requirements { reference_log_probs: true, ..group };
    assert_eq!(needs("type = 'grpo'"), reference);
    assert_eq!(needs("type = 'grpo'\nkl.placement = 'reward'"), reference);
    let proximal = Requirements { proximal_log_probs: true, ..group };
    assert_eq!(needs("type = 'dapo'\nanchor = 'proximal'"), proximal);
}

#[test]
fn a_built_recipe_computes_what_its_parts_compute() {
    let response = TestResponse::from_log_ratios(&[0.1, -0.2, 0.3, 0.05], &[1.0; 4]);
    let (preset, parts) = (
        parsed("type = 'dapo'\nschedule.high = 0.3\ngate.dual_clip = 3.0").build(),
        parsed(COMPOSED).build(),
    );
    let tokens = response.tokens();
    assert_eq!(preset.objective.evaluate(&tokens, 0.25), parts.objective.evaluate(&tokens, 0.25));
    assert_eq!((parts.aggregation, parts.anchor), (Aggregation::TokenSum, Anchor::Proximal));
}

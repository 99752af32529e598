//! Configs: round trips, defaults, overrides and refusals.

use firebrick_core::{Anchor, Requirements};
use firebrick_objectives::{
    AdvantageConfig, Aggregation, ComposedConfig, ConstantClip, DapoConfig, EpsPlacement, EstimatorConfig,
    GateConfig, GrpoConfig, GspoConfig, HardMask, Horizon, IntervalForm, InverseSqrtClip, KlEstimator,
    KlTerm, MaskedValue, ObjectiveConfig, OuterBounds, PnpoConfig, PpoMin, PrefixMean, PrefixRoute,
    ScheduleConfig, SequenceMean, SequenceRoute, SqrtRatioClip, StdSpec, TapoConfig, TokenRatio, WindowSpace,
};
use firebrick_testkit::{TestResponse, check_objective};

const KL: KlTerm = KlTerm { estimator: KlEstimator::K3, coefficient: 0.04 };

fn composed() -> ComposedConfig {
    ComposedConfig {
        estimator: EstimatorConfig::TokenRatio(TokenRatio),
        schedule: ScheduleConfig::Constant(ConstantClip { low: 0.2, high: 0.3 }),
        gate: GateConfig::PpoMin(PpoMin { dual_clip: Some(3.0), outer: OuterBounds::Open {} }),
        kl: None,
        aggregation: Aggregation::TokenSum,
        advantage: AdvantageConfig::GroupCentered {},
        anchor: Anchor::Proximal,
    }
}

/// Every preset as it stands and with every key changed, and every part.
fn configs() -> Vec<ObjectiveConfig> {
    let std = StdSpec { ddof: 0, eps: 1e-8, placement: EpsPlacement::InsideSqrt };
    let advantage = AdvantageConfig::GroupNormalized(std);
    let prefix = EstimatorConfig::PrefixMean(PrefixMean { route: PrefixRoute::FullPrefix });
    let sequence = EstimatorConfig::SequenceMean(SequenceMean { route: SequenceRoute::Current });
    let sqrt_ratio = SqrtRatioClip { eps_minus: 0.1, eps_plus: 0.2, interval: IntervalForm::Power };
    vec![
        ObjectiveConfig::Grpo(GrpoConfig::default()),
        ObjectiveConfig::Grpo(GrpoConfig {
            clip_low: 0.1,
            clip_high: 0.15,
            dual_clip: Some(3.0),
            kl: Some(KL),
            aggregation: Aggregation::SeqMeanTokenSumNorm { norm: 256.0 },
            advantage: advantage.clone(),
            anchor: Anchor::Proximal,
        }),
        ObjectiveConfig::Dapo(DapoConfig::default()),
        ObjectiveConfig::Gspo(GspoConfig { route: SequenceRoute::Current, ..GspoConfig::default() }),
        ObjectiveConfig::Tapo(TapoConfig::default()),
        ObjectiveConfig::Tapo(TapoConfig {
            horizon: Horizon::MaxLength,
            space: WindowSpace::Log,
            route: PrefixRoute::FullPrefix,
            outer: OuterBounds::Open {},
            dual_clip: Some(10.0),
            kl: Some(KL),
            ..TapoConfig::default()
        }),
        ObjectiveConfig::Pnpo(PnpoConfig::new(0.05, 0.1)),
        ObjectiveConfig::Pnpo(PnpoConfig {
            interval: IntervalForm::Power,
            value: MaskedValue::Weight,
            ..PnpoConfig::new(0.05, 0.1)
        }),
        ObjectiveConfig::Composed(composed()),
        ObjectiveConfig::Composed(ComposedConfig {
            estimator: prefix,
            schedule: ScheduleConfig::InverseSqrt(InverseSqrtClip::default()),
            gate: GateConfig::PpoMin(PpoMin {
                dual_clip: None,
                outer: OuterBounds::WindowCap { low: 0.5, high: 10.0 },
            }),
            kl: Some(KL),
            ..composed()
        }),
        ObjectiveConfig::Composed(ComposedConfig {
            estimator: sequence,
            schedule: ScheduleConfig::SqrtRatio(sqrt_ratio),
            gate: GateConfig::HardMask(HardMask { value: MaskedValue::Weight }),
            ..composed()
        }),
    ]
}

fn parse(toml: &str) -> Result<ObjectiveConfig, String> {
    toml::from_str(toml).map_err(|error: toml::de::Error| error.message().to_owned())
}

/// The message of a config that parses and does not validate.
fn refusal(toml: &str) -> String {
    let config = parse(toml).expect("the config parses");
    config.validate().expect_err("the config is refused").to_string()
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
        config.validate().expect("the config is valid");
        check_objective(config.build().objective);
    }
}

#[test]
fn a_type_alone_is_the_paper() {
    for (name, expected) in [
        ("grpo", ObjectiveConfig::Grpo(GrpoConfig::default())),
        ("dapo", ObjectiveConfig::Dapo(DapoConfig::default())),
        ("gspo", ObjectiveConfig::Gspo(GspoConfig::default())),
        ("tapo", ObjectiveConfig::Tapo(TapoConfig::default())),
    ] {
        assert_eq!(parse(&format!("type = {name:?}")), Ok(expected));
    }
    let (grpo, dapo) = (GrpoConfig::default(), DapoConfig::default());
    assert_eq!((grpo.clip_low, grpo.clip_high, grpo.kl), (0.2, 0.2, None));
    assert_eq!(grpo.aggregation, Aggregation::SeqMeanTokenMean);
    assert_eq!((dapo.clip_low, dapo.clip_high, dapo.aggregation), (0.2, 0.28, Aggregation::TokenMean));
    let gspo = GspoConfig::default();
    assert_eq!((gspo.clip_low, gspo.clip_high, gspo.route), (3e-4, 4e-4, SequenceRoute::Sequence));
    let tapo = TapoConfig::default();
    assert_eq!((tapo.eps_max, tapo.eps_min_low, tapo.eps_min_high), (0.2, 3e-4, 4e-4));
    assert_eq!(tapo.outer, OuterBounds::RatioClamp { low: 0.5, high: 10.0 });
}

#[test]
fn one_key_overrides_one_default() {
    let found = parse(
        "type = 'tapo'\neps_max = 0.3\nouter = { type = 'open' }\nadvantage = { type = 'group_centered' }",
    );
    let expected = TapoConfig {
        eps_max: 0.3,
        outer: OuterBounds::Open {},
        advantage: AdvantageConfig::GroupCentered {},
        ..TapoConfig::default()
    };
    assert_eq!(found, Ok(ObjectiveConfig::Tapo(expected)));
    let found = parse("type = 'grpo'\nadvantage = { type = 'group_normalized', ddof = 0 }");
    let std = StdSpec { ddof: 0, ..StdSpec::default() };
    let expected = GrpoConfig { advantage: AdvantageConfig::GroupNormalized(std), ..GrpoConfig::default() };
    assert_eq!(found, Ok(ObjectiveConfig::Grpo(expected)));
}

#[test]
fn the_widths_of_pnpo_have_no_default() {
    assert_eq!(parse("type = 'pnpo'\neps_plus = 0.1"), Err("missing field `eps_minus`".into()));
    assert_eq!(parse("type = 'pnpo'\neps_minus = 0.1"), Err("missing field `eps_plus`".into()));
}

#[test]
fn unknown_keys_are_refused_at_every_depth() {
    for toml in [
        "type = 'grpo'\nclip = 0.2",
        "type = 'dapo'\nkl = { estimator = 'k3', coefficient = 0.1, beta = 0.1 }",
        "type = 'tapo'\nouter = { type = 'open', low = 0.5 }",
        "type = 'tapo'\nouter = { type = 'ratio_clamp', low = 0.5, high = 10.0, mid = 1.0 }",
        "type = 'gspo'\naggregation = { type = 'token_mean', norm = 4.0 }",
        "type = 'grpo'\nadvantage = { type = 'group_centered', ddof = 1 }",
        "type = 'grpo'\nadvantage = { type = 'group_normalized', epsilon = 1.0 }",
        "type = 'pnpo'\neps_minus = 0.1\neps_plus = 0.1\ndual_clip = 3.0",
    ] {
        assert!(parse(toml).is_err(), "{toml}");
    }
    let parts = |estimator: &str| {
        parse(&format!(
            "type = 'composed'\naggregation = {{ type = 'token_mean' }}\ngate = {{ type = 'ppo_min' }}\n\
             schedule = {{ type = 'constant', low = 0.2, high = 0.2 }}\n\
             advantage = {{ type = 'group_centered' }}\nestimator = {estimator}"
        ))
    };
    assert!(parts("{ type = 'token_ratio' }").is_ok());
    assert!(parts("{ type = 'token_ratio', route = 'current' }").is_err());
    assert!(parts("{ type = 'prefix_mean', routes = 'current' }").is_err());
}

#[test]
fn an_unknown_type_is_answered_with_the_known_ones() {
    let error = parse("type = 'ppo'").expect_err("there is no such preset");
    for name in ["grpo", "dapo", "gspo", "tapo", "pnpo", "composed"] {
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn a_value_out_of_range_is_refused_with_its_key_and_range() {
    for (toml, message) in [
        ("type = 'grpo'\nclip_low = -1", "clip_low = -1: allowed is a finite number >= 0"),
        ("type = 'dapo'\nclip_high = inf", "clip_high = inf: allowed is a finite number >= 0"),
        ("type = 'gspo'\ndual_clip = 1.0", "dual_clip = 1: allowed is a finite number > 1"),
        (
            "type = 'grpo'\nkl = { estimator = 'k3', coefficient = -0.1 }",
            "kl.coefficient = -0.1: allowed is a finite number >= 0",
        ),
        (
            "type = 'tapo'\nouter = { type = 'ratio_clamp', low = 1.5, high = 10.0 }",
            "outer.low = 1.5: allowed is in [0, 1]",
        ),
        (
            "type = 'tapo'\neps_max = 1e-4",
            "eps_min_low = 0.0003 with eps_max = 0.0001: the window narrows, so the smallest width must not \
             exceed the largest",
        ),
        (
            "type = 'pnpo'\neps_minus = nan\neps_plus = 0.1",
            "eps_minus = NaN: allowed is a finite number >= 0",
        ),
        (
            "type = 'grpo'\naggregation = { type = 'seq_mean_token_sum_norm', norm = 0.0 }",
            "aggregation.norm = 0: allowed is a finite number > 0",
        ),
        (
            "type = 'grpo'\nadvantage = { type = 'group_normalized', ddof = 3 }",
            "advantage.ddof = 3: allowed is 0 or 1",
        ),
    ] {
        assert_eq!(refusal(toml), message);
    }
}

#[test]
fn a_composed_config_names_the_failing_part() {
    let schedule = ScheduleConfig::Constant(ConstantClip { low: -0.1, high: 0.2 });
    let error = ComposedConfig { schedule, ..composed() }.validate().expect_err("it is refused");
    assert_eq!(error.to_string(), "schedule.low = -0.1: allowed is a finite number >= 0");
    let gate = GateConfig::PpoMin(PpoMin { dual_clip: Some(0.5), outer: OuterBounds::Open {} });
    let error = ComposedConfig { gate, ..composed() }.validate().expect_err("it is refused");
    assert_eq!(error.to_string(), "gate.dual_clip = 0.5: allowed is a finite number > 1");
}

#[test]
fn a_mask_refuses_a_route_through_its_detached_weight() {
    let gate = GateConfig::HardMask(HardMask::default());
    for (estimator, route) in [
        (EstimatorConfig::SequenceMean(SequenceMean::default()), "sequence"),
        (EstimatorConfig::PrefixMean(PrefixMean { route: PrefixRoute::FullPrefix }), "full_prefix"),
    ] {
        let config = ComposedConfig { estimator, gate: gate.clone(), ..composed() };
        let error = config.validate().expect_err("it is refused").to_string();
        assert!(error.starts_with(&format!("estimator.route = {route:?}: ")), "{error}");
    }
}

#[test]
fn a_recipe_asks_for_what_its_parts_need() {
    let needs = |kl| ObjectiveConfig::Grpo(GrpoConfig { kl, ..GrpoConfig::default() }).build().requirements();
    let group = Requirements { min_group_size: 2, ..Requirements::default() };
    assert_eq!(needs(None), group);
    assert_eq!(needs(Some(KL)), Requirements { reference_log_probs: true, ..group });
}

#[test]
fn a_built_recipe_computes_what_its_parts_compute() {
    let response = TestResponse::from_log_ratios(&[0.1, -0.2, 0.3, 0.05], &[1.0; 4]);
    let preset = GrpoConfig { clip_high: 0.3, dual_clip: Some(3.0), ..GrpoConfig::default() };
    let (preset, parts) = (preset.build(), composed().build());
    let tokens = response.tokens();
    assert_eq!(preset.objective.evaluate(&tokens, 0.25), parts.objective.evaluate(&tokens, 0.25));
    assert_eq!((parts.aggregation, parts.anchor), (Aggregation::TokenSum, Anchor::Proximal));
}

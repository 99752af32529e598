//! Numbers that go wrong, batches without variance, prompts that are too long.

use burn::backend::Autodiff;
use firebrick_core::{
    Advantage, AdvantageError, AdvantageEstimator, Advantages, Objective, ResponseTerms, ResponseTokens,
    RewardBatch,
};
use firebrick_models::load_tensors;
use firebrick_objectives::{Aggregation, GroupNormalized, Recipe};
use firebrick_trainer::{
    DynamicSampling, OverLongPrompts, Plan, RunDirectory, RunError, RunOptions, StepOutcome, TrainSettings,
    TrainerError, WhenExhausted,
};

use crate::{
    fixture::{Echo, Flex, PRESETS, plan, prompts, settings},
    run_fixture::{config, start},
};

/// −Σ A·log π, with a coefficient that is not finite for some completions.
#[derive(Debug)]
struct Breaks(fn(&ResponseTokens<'_>) -> bool);

fn above_one(response: &ResponseTokens<'_>) -> bool {
    response.advantages()[0] > 1.0
}

impl Objective for Breaks {
    fn evaluate(&self, response: &ResponseTokens<'_>, weight: f64) -> ResponseTerms {
        let mut coefficients: Vec<f64> = response.advantages().iter().map(|a| a * weight).collect();
        if self.0(response) {
            coefficients[1] = f64::NAN;
        }
        let loss = -coefficients.iter().zip(response.current()).map(|(c, p)| c * p).sum::<f64>();
        let bindings = vec![firebrick_core::Binding::None; response.len()];
        ResponseTerms { loss, coefficients, bindings, ..ResponseTerms::default() }
    }
}

fn breaking(breaks: fn(&ResponseTokens<'_>) -> bool, settings: TrainSettings) -> Plan<Autodiff<Flex>> {
    let recipe = Recipe::new(Breaks(breaks), Aggregation::TokenMean, GroupNormalized::default());
    Plan::new(settings, recipe, Echo::default()).unwrap()
}

fn weights(model: &firebrick_models::Decoder<Autodiff<Flex>>) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w");
    firebrick_models::save_safetensors(model, &path).unwrap();
    std::fs::read(path).unwrap()
}

#[test]
fn a_number_that_is_not_finite_skips_the_step_and_its_batch_can_be_replayed() {
    let parent = tempfile::tempdir().unwrap();
    let run = parent.path().join("run");
    let directory = RunDirectory::create(&run, false).unwrap();
    directory.write("config.toml", "# of the run\n").unwrap();
    let mut broken = trainer(breaking(above_one, settings())).with_run_directory(directory);
    let before = weights(broken.model());
    let report = broken.step(&prompts()).unwrap();
    assert_eq!((report.outcome, report.optimizer_steps), (StepOutcome::Skipped, 0));
    assert_eq!(report.metrics.get("skipped_steps"), Some(1.0));
    assert_eq!(report.metrics.get("loss"), None);
    assert_eq!(weights(broken.model()), before);

    let dump = run.join("dumps/step_0_update_0");
    assert_eq!(std::fs::read_to_string(dump.join("config.toml")).unwrap(), "# of the run\n");
    let advantages: Vec<f64> =
        load_tensors(dump.join("batch.safetensors")).unwrap()["advantages"].iter::<f64>().collect();
    assert!(advantages.iter().any(|a| *a > 1.0) && advantages.iter().any(|a| *a < 0.0));

    let mut other = trainer(breaking(above_one, settings()));
    let replay = other.replay(&dump).unwrap();
    let fault = replay.fault.unwrap();
    assert_eq!(fault, replay.recorded);
    assert!(fault.contains("the coefficient of token 1 of sample") && fault.contains("NaN"), "{fault}");
    for row in &replay.rows {
        assert_eq!(row.loss.is_err(), row.advantage > 1.0, "{row:?}");
        assert!(row.loss.as_ref().err().is_none_or(|fault| fault.contains(&row.name)), "{row:?}");
    }
    assert!(replay.rows.iter().any(|row| row.loss.is_err()) && replay.rows.len() == 16);
    // With another objective the same batch is sound.
    assert_eq!(trainer(breaking(|_| false, settings())).replay(&dump).unwrap().fault, None);
}

fn trainer(
    plan: Plan<Autodiff<Flex>>,
) -> firebrick_trainer::Trainer<Autodiff<Flex>, firebrick_models::Decoder<Autodiff<Flex>>> {
    crate::fixture::trainer(plan)
}

#[test]
fn three_skipped_optimizer_steps_in_a_row_end_the_run() {
    let settings = TrainSettings { epochs: 4, ..settings() };
    let mut trainer = trainer(breaking(above_one, settings));
    let error = trainer.step(&prompts()).unwrap_err();
    let TrainerError::TooManySkipped { count, last, .. } = &error else { panic!("{error}") };
    assert_eq!(*count, 3);
    assert!(last.to_string().contains("coefficient of token 1"), "{last}");
}

/// Two are not three: a sound step in between starts the count again.
#[test]
fn sound_steps_between_skipped_ones_keep_the_run_going() {
    let settings = TrainSettings { mini_batches: 4, steps: 4, ..settings() };
    // Every mini-batch is one group, and the first group of each batch breaks.
    let mut trainer = trainer(breaking(|response| response.context().group() == 0, settings));
    for report in trainer.run(&prompts()).unwrap() {
        assert_eq!((report.outcome, report.optimizer_steps), (StepOutcome::Trained, 3));
        assert_eq!(report.metrics.get("skipped_steps"), Some(1.0));
    }
}

/// A learning rate that throws the weights out of the range of f32: the fault is in the log-probs, or in a gradient.
#[test]
fn weights_that_explode_are_named_too() {
    let mut settings = TrainSettings { epochs: 6, ..settings() };
    settings.optimizer.learning_rate = 1e39;
    let error = trainer(plan(settings, PRESETS[0])).step(&prompts()).unwrap_err();
    let TrainerError::TooManySkipped { last, .. } = &error else { panic!("{error}") };
    let last = last.to_string();
    assert!(last.contains("log-prob of token") || last.contains("gradient norm of"), "{last}");
}

/// Rewards vary in the groups of even digits only.
#[derive(Debug)]
struct EvenVary;

impl firebrick_core::RewardVerifier for EvenVary {
    fn verify(
        &self,
        sample: &firebrick_core::Sample<'_>,
    ) -> Result<firebrick_core::Verdict, firebrick_core::VerifyError> {
        let even = sample.prompt.answer.parse::<u32>().is_ok_and(|digit| digit.is_multiple_of(2));
        let reward = if even { sample.tokens.iter().map(|t| f64::from(*t)).sum() } else { 1.0 };
        Ok(firebrick_core::Verdict::scored(reward))
    }
}

fn dynamic(max_rounds: usize, when_exhausted: WhenExhausted) -> Plan<Autodiff<Flex>> {
    let settings = TrainSettings {
        dynamic_sampling: Some(DynamicSampling { max_rounds, when_exhausted }),
        ..settings()
    };
    let recipe = crate::fixture::objective(PRESETS[0]).build();
    Plan::new(settings, recipe, EvenVary).unwrap()
}

#[test]
fn dynamic_sampling_fills_the_batch_with_groups_that_vary() {
    let mut trainer = trainer(dynamic(10, WhenExhausted::Error));
    let report = trainer.step(&prompts()).unwrap();
    let metric = |name: &str| report.metrics.get(name).unwrap();
    // Of the ten problems of an epoch five vary; four are needed.
    assert!(metric("dynamic_sampling/rounds") >= 2.0, "{:?}", report.metrics);
    assert!(metric("dynamic_sampling/dropped_groups") >= 1.0);
    assert!(metric("frac_reward_zero_std") > 0.0, "what was dropped is still counted");
    // All 4 · 4 rows that were trained on have an advantage that is not zero.
    assert_eq!(report.outcome, StepOutcome::Trained);
}

#[test]
fn dynamic_sampling_that_is_exhausted_ends_shrinks_or_repeats_as_asked() {
    #[derive(Debug)]
    struct Count(std::sync::Arc<std::sync::Mutex<Vec<usize>>>);
    impl AdvantageEstimator for Count {
        fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
            self.0.lock().unwrap().push(batch.rows.len());
            Ok(batch.rows.iter().map(|_| Advantage::Response(1.0)).collect::<Vec<_>>().into())
        }
    }
    let rows_with = |when_exhausted| {
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let settings = TrainSettings {
            dynamic_sampling: Some(DynamicSampling { max_rounds: 1, when_exhausted }),
            prompts_per_step: 10,
            ..settings()
        };
        let mut recipe = crate::fixture::objective(PRESETS[0]).build();
        recipe.advantage = Box::new(Count(seen.clone()));
        let plan = Plan::<Autodiff<Flex>>::new(settings, recipe, EvenVary).unwrap();
        let outcome = trainer(plan).step(&prompts()).map(|_| ());
        let rows = seen.lock().unwrap().clone();
        (outcome, rows)
    };
    let (outcome, rows) = rows_with(WhenExhausted::Error);
    let error = outcome.unwrap_err();
    assert!(matches!(error, TrainerError::DynamicSampling { found: 5, wanted: 10, rounds: 1 }), "{error}");
    assert!(rows.is_empty() && error.to_string().contains("max_rounds"), "{error}");
    assert_eq!(rows_with(WhenExhausted::SmallerBatch).1, [5 * 4]);
    assert_eq!(rows_with(WhenExhausted::Repeat).1, [10 * 4]);
}

#[test]
fn over_long_prompts_are_an_error_or_are_dropped_or_cut_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.train.steps = 1;
    let long = format!("{}3=", "1".repeat(40));
    let row = serde_json::json!({"id": "long", "prompt": long, "answer": "3", "completion": "3"});
    let text = std::fs::read_to_string(&config.data.train).unwrap();
    let train = folder.path().join("train.jsonl");
    std::fs::write(&train, format!("{text}\n{row}\n")).unwrap();
    config.data.train = train;
    let error = start(&config, &RunOptions::default()).unwrap_err();
    assert!(matches!(&error, RunError::PromptLength { id, .. } if id == "long"), "{error}");
    let error = error.to_string();
    assert!(error.contains("42 tokens") && error.contains("data.over_long_prompts"), "{error}");
    assert!(!config.run.directory.exists());

    config.data.over_long_prompts = OverLongPrompts::Drop;
    assert_eq!(start(&config, &RunOptions::default()).unwrap().over_long_prompts, [1, 0]);
    let summary = std::fs::read_to_string(config.run.directory.join("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["over_long_prompts"]["train"], 1);

    config.data.over_long_prompts = OverLongPrompts::TruncateLeft;
    config.run.overwrite = true;
    config.train.prompts_per_step = 11; // so that the long one is drawn
    assert_eq!(start(&config, &RunOptions::default()).unwrap().over_long_prompts, [1, 0]);
}

//! Whole runs: learning, exclusion of unscored rows, reproducibility.

use burn::backend::Autodiff;

use firebrick_reward::{GraderSettings, RandomReward};
use firebrick_trainer::{
    EvaluationSettings, OptimizerSettings, Plan, RunDirectory, StepOutcome, TrainSettings, WarmStartSettings,
    WorkedSolution,
};

use crate::fixture::{Echo, Flex, PRESETS, objective, plan, prompts, settings, trainer};

fn long() -> TrainSettings {
    TrainSettings { steps: 25, prompts_per_step: 8, group_size: 8, epochs: 2, mini_batches: 2, ..settings() }
}

fn gain(plan: Plan<Autodiff<Flex>>) -> f64 {
    let mut trainer = trainer(plan);
    let reports = trainer.run(&prompts()).unwrap();
    let reward = |range: &[firebrick_trainer::StepReport]| {
        range.iter().map(|report| report.metrics.get("reward/mean").unwrap()).sum::<f64>()
            / range.len() as f64
    };
    reward(&reports[reports.len() - 3..]) - reward(&reports[..3])
}

#[test]
fn every_preset_learns_and_random_rewards_do_not() {
    for preset in PRESETS {
        let gain = gain(plan(long(), preset));
        assert!(gain > 0.1, "{preset}: {gain}");
    }
    let control = RandomReward::new(settings().seed, 0.5);
    let mut trainer = trainer(plan::<Autodiff<Flex>>(long(), PRESETS[3]).with_control_rewards(control));
    let evaluation = EvaluationSettings { success_reward: 0.3, ..EvaluationSettings::new(8) };
    let before = trainer.evaluate(&prompts(), &evaluation).unwrap().avg_at_k.value;
    trainer.run(&prompts()).unwrap();
    let after = trainer.evaluate(&prompts(), &evaluation).unwrap().avg_at_k.value;
    assert!((after - before).abs() < 0.15, "{before} {after}");
}

#[test]
fn the_proximal_anchor_and_a_reference_term_train_too() {
    let config = objective("type = \"grpo\"\nanchor = \"proximal\"");
    let plan = Plan::<Autodiff<Flex>>::new(long(), config.build(), Echo::default()).unwrap();
    let mut trainer = trainer(plan);
    let reports = trainer.run(&prompts()).unwrap();
    let kl = |index: usize| reports[index].metrics.get("kl").unwrap();
    assert!(kl(0) < kl(24) && kl(24) > 0.0, "{} {}", kl(0), kl(24));
}

/// NaN or missing verdicts: rows without one change neither the loss of the others nor the denominator.
#[test]
fn unscored_rows_are_left_out_and_a_step_without_any_verdict_is_no_optimizer_step() {
    let all_down = || Echo { down: ('0'..='9').collect() };
    let plan_of = |verifier: Echo, max_error_share: f64| {
        Plan::<Autodiff<Flex>>::new(settings(), objective(PRESETS[0]).build(), verifier)
            .unwrap()
            .with_verification(GraderSettings { max_error_share, ..GraderSettings::default() })
    };
    let error = trainer(plan_of(all_down(), 0.9)).step(&prompts()).unwrap_err().to_string();
    assert!(error.contains("a share of 1.000 where max_error_share = 0.9"), "{error}");
    let mut idle = trainer(plan_of(all_down(), 1.0));
    let report = idle.step(&prompts()).unwrap();
    assert_eq!((report.optimizer_steps, report.outcome), (0, StepOutcome::NothingToTrain));
    assert_eq!(report.metrics.get("frac_unscored"), Some(1.0));
    assert_eq!(report.metrics.get("loss"), None);
    let mut partly = trainer(plan_of(Echo { down: vec!['1', '3', '5', '7', '9'] }, 1.0));
    let report = partly.step(&prompts()).unwrap();
    assert_eq!(report.optimizer_steps, 1);
    let share = report.metrics.get("frac_unscored").unwrap();
    assert!(share > 0.0 && share < 1.0, "{share}");
}

#[test]
fn the_same_seed_writes_the_same_metrics_and_another_seed_does_not() {
    let parent = tempfile::tempdir().unwrap();
    let run = |name: &str, seed: u64| {
        let mut settings = settings();
        settings.seed = firebrick_core::RootSeed(seed);
        let directory = RunDirectory::create(&parent.path().join(name), false).unwrap();
        let mut trainer = trainer(plan::<Autodiff<Flex>>(settings, PRESETS[3])).with_run_directory(directory);
        trainer.run(&prompts()).unwrap();
        let text = |file: &str| std::fs::read_to_string(parent.path().join(name).join(file)).unwrap();
        assert_eq!(text("traces.jsonl").lines().count(), 3 * 8);
        assert_eq!(text("timings.jsonl").lines().count(), 3);
        text("metrics.jsonl")
    };
    let first = run("a", 1);
    assert_eq!(first.lines().count(), 3);
    assert_eq!(first, run("b", 1));
    assert_ne!(first, run("c", 2));
}

#[test]
fn a_warm_start_lowers_the_loss_and_stops_at_its_target() {
    let solutions: Vec<WorkedSolution> = prompts()
        .into_iter()
        .map(|prompt| WorkedSolution { response: prompt.answer.repeat(3), messages: prompt.messages })
        .collect();
    let mut trainer = trainer(plan::<Autodiff<Flex>>(settings(), PRESETS[3]));
    let warm_start = WarmStartSettings {
        steps: 300,
        batch_size: 10,
        optimizer: OptimizerSettings::new(1e-2),
        stop_at_accuracy: Some(0.8),
        probe_every: 10,
        probe_problems: 10,
    };
    // "777" and an end token: 3 of 4 tokens echo, so a success is a reward of 1 only for endless echoes; 0 stays below.
    let report = trainer.warm_start(&solutions, &warm_start, &[]).unwrap();
    assert_eq!((report.steps, report.probe_accuracy), (300, None));
    assert!(report.losses[299] < 0.05 && report.losses[0] > 1.0, "{:?}", report.losses);
    let evaluation = EvaluationSettings { success_reward: 0.75, ..EvaluationSettings::new(2) };
    assert!(trainer.evaluate(&prompts(), &evaluation).unwrap().avg_at_k.value > 0.9);
}

//! A run that was ended goes on as if it had not been.

use std::{collections::BTreeMap, path::Path};

use burn::backend::Autodiff;
use firebrick_core::{RewardVerifier, RootSeed, Sample, Verdict, VerifyError};
use firebrick_trainer::{
    LearningRateDecay, ModelSection, Plan, RunConfig, RunDirectoryError, RunError, RunOptions, StopSignal,
    run_plan,
};

use crate::{
    fixture::{Echo, Flex, objective},
    on_both_backends,
    run_fixture::{config, resume, start, start_on},
};

/// What must be the same to the last byte: the logs without wall-clock times, and the final checkpoint with weights,
/// moments and counters.
fn contents(config: &RunConfig) -> BTreeMap<String, Vec<u8>> {
    let run = &config.run.directory;
    let last = run.join("checkpoints").join(format!("step_{}", config.train.steps));
    let logs =
        ["metrics.jsonl", "traces.jsonl", "evaluations.jsonl", "summary.json"].map(|name| run.join(name));
    let state = ["model.safetensors", "optimizer.safetensors", "trainer.json"].map(|name| last.join(name));
    let read = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    };
    logs.iter().chain(&state).map(read).collect()
}

fn assert_same(whole: &RunConfig, parts: &RunConfig) {
    let (whole, parts) = (contents(whole), contents(parts));
    for (name, bytes) in &whole {
        assert!(!bytes.is_empty(), "{name} is empty");
        assert!(*bytes == parts[name], "{name} differs");
    }
}

/// With ten problems and four a step, eight steps cross three ends of an epoch; evaluations fall between checkpoints.
fn configs(folder: &Path) -> (RunConfig, RunConfig) {
    let whole = config(folder);
    let mut parts = whole.clone();
    parts.run.directory = folder.join("parts");
    (whole, parts)
}

on_both_backends! {
    fn twice_n_steps_are_n_steps_and_n_more_to_the_last_byte<B>() {
        let folder = tempfile::tempdir().unwrap();
        let (whole, mut parts) = configs(folder.path());
        start_on::<Autodiff<B>>(&whole, &RunOptions::default()).unwrap();
        // 5 steps end within an epoch, and between two checkpoints and two evaluations of the whole run.
        parts.train.steps = 5;
        start_on::<Autodiff<B>>(&parts, &RunOptions::default()).unwrap();
        parts.train.steps = 8;
        let summary =
            start_on::<Autodiff<B>>(&parts, &RunOptions { resume: true, ..RunOptions::default() }).unwrap();
        assert_eq!(summary.steps.len(), 3);
        assert_same(&whole, &parts);
    }
}

/// verl #5725, #7401: a checkpoint at the end of an epoch goes on with the next one.
#[test]
fn a_checkpoint_at_the_end_of_an_epoch_is_continued_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let (mut whole, mut parts) = configs(folder.path());
    whole.train.prompts_per_step = 5;
    parts.train.prompts_per_step = 5;
    start(&whole, &RunOptions::default()).unwrap();
    parts.train.steps = 2;
    start(&parts, &RunOptions::default()).unwrap();
    parts.train.steps = 8;
    assert_eq!(resume(&parts).unwrap().steps.len(), 6);
    assert_same(&whole, &parts);
}

/// A verifier that asks the run to stop after some verdicts.
#[derive(Debug)]
struct Stopper(StopSignal, std::sync::atomic::AtomicUsize);

impl RewardVerifier for Stopper {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        if self.1.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 1 {
            self.0.raise();
        }
        Echo::default().verify(sample)
    }
}

#[test]
fn a_run_that_is_asked_to_stop_ends_its_step_saves_and_can_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = configs(folder.path());
    // The learning rate decays over all steps, which a run that is stopped and goes on must not notice.
    let decaying = |mut config: RunConfig| {
        config.train.optimizer.decay = LearningRateDecay::Linear;
        config
    };
    let (whole, parts) = (decaying(whole), decaying(parts));
    let verifier =
        |stop: &StopSignal, after| Stopper(stop.clone(), std::sync::atomic::AtomicUsize::new(after));
    let go = |config: &RunConfig, resume, after| {
        let options = RunOptions { resume, ..RunOptions::default() };
        let recipe = objective("type = \"tapo\"").build();
        let plan = Plan::<Autodiff<Flex>>::new(config.train.clone(), recipe, verifier(&options.stop, after))
            .unwrap();
        run_plan(config, plan, &options, Default::default())
    };
    go(&whole, false, usize::MAX).unwrap();
    // 20 verdicts of the evaluation and 16 a step: the third step.
    let error = go(&parts, false, 20 + 2 * 16 + 7).unwrap_err();
    assert!(matches!(error, RunError::Stopped { done: 3, .. }), "{error}");
    assert!(error.to_string().contains("firebrick train --resume"), "{error}");
    assert!(!parts.run.directory.join("summary.json").exists());
    // In the evaluation before the first step of the continuation nothing is verified, so this stops in its first step.
    let error = go(&parts, true, 1).unwrap_err();
    assert!(matches!(error, RunError::Stopped { done: 4, .. }), "{error}");
    go(&parts, true, usize::MAX).unwrap();
    assert_same(&whole, &parts);
}

#[test]
fn a_run_without_steps_left_is_an_error_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.train.steps = 2;
    start(&config, &RunOptions::default()).unwrap();
    let error = resume(&config).unwrap_err();
    assert!(matches!(error, RunError::NothingLeft { done: 2, steps: 2 }), "{error}");
    assert!(error.to_string().contains("--steps"), "{error}");
    config.train.steps = 1;
    assert!(matches!(resume(&config), Err(RunError::NothingLeft { .. })));
}

/// A process that ends after the last checkpoint but before the summary has an evaluation and a model to write still.
#[test]
fn a_run_that_was_ended_before_its_summary_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.train.steps = 2;
    let first = start(&config, &RunOptions::default()).unwrap();
    let before = contents(&config);
    std::fs::remove_file(config.run.directory.join("summary.json")).unwrap();
    std::fs::remove_dir_all(config.run.directory.join("model")).unwrap();
    let second = resume(&config).unwrap();
    assert_eq!((second.steps.len(), second.before, second.after), (0, first.before, first.after));
    assert_eq!(before, contents(&config));
    assert!(config.run.directory.join("model/model.safetensors").exists());
}

#[test]
fn rows_after_the_checkpoint_are_cut() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, mut parts) = configs(folder.path());
    start(&whole, &RunOptions::default()).unwrap();
    parts.train.steps = 4;
    start(&parts, &RunOptions::default()).unwrap();
    let metrics = parts.run.directory.join("metrics.jsonl");
    let mut text = std::fs::read_to_string(&metrics).unwrap();
    text.push_str("{\"step\": 4, \"rew"); // a row that was being written
    std::fs::write(&metrics, text).unwrap();
    parts.train.steps = 8;
    resume(&parts).unwrap();
    assert_same(&whole, &parts);
}

#[test]
fn a_checkpoint_of_another_run_is_refused_with_the_keys_that_differ() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.train.steps = 2;
    start(&config, &RunOptions::default()).unwrap();
    config.train.steps = 4;
    let mut other = config.clone();
    other.train.seed = RootSeed(6);
    let ModelSection::Scratch(decoder) = &mut other.model else { panic!("a model made from scratch") };
    decoder.hidden_size = 32;
    let error = resume(&other).unwrap_err().to_string();
    for part in ["train.seed was 5 and is 6", "model.hidden_size was 16 and is 32"] {
        assert!(error.contains(part), "{error}");
    }
    std::fs::write(&config.data.train, r#"{"id": "p0", "prompt": "0=", "answer": "0", "completion": "0"}"#)
        .unwrap();
    let error = resume(&config).unwrap_err().to_string();
    assert!(error.contains("the contents of data.train have changed"), "{error}");
}

#[test]
fn a_torn_checkpoint_is_refused_and_an_earlier_one_can_be_named() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, mut parts) = configs(folder.path());
    start(&whole, &RunOptions::default()).unwrap();
    parts.train.steps = 6;
    start(&parts, &RunOptions::default()).unwrap();
    let checkpoints = parts.run.directory.join("checkpoints");
    let weights = checkpoints.join("step_6/model.safetensors");
    let bytes = std::fs::read(&weights).unwrap();
    std::fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
    parts.train.steps = 8;
    let error = resume(&parts).unwrap_err().to_string();
    assert!(error.contains("model.safetensors") && error.contains("intact are step_4"), "{error}");
    std::fs::write(checkpoints.join("latest"), "step_4").unwrap();
    resume(&parts).unwrap();
    assert_same(&whole, &parts);
}

#[test]
fn a_run_directory_that_exists_is_refused_and_one_that_does_not_cannot_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.train.steps = 1;
    let error = resume(&config).unwrap_err();
    assert!(matches!(error, RunError::RunDirectory(RunDirectoryError::NoRun { .. })), "{error}");
    start(&config, &RunOptions::default()).unwrap();
    let error = start(&config, &RunOptions::default()).unwrap_err().to_string();
    assert!(error.contains("--resume") && error.contains("--overwrite"), "{error}");
}

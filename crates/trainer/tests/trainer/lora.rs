//! Runs that train a low-rank adapter.

use std::{fs, path::Path};

use burn::tensor::{Int, Tensor, TensorData};
use firebrick_core::CausalLm;
use firebrick_models::{LoraConfig, ModelFolder};
use firebrick_trainer::{Control, MemoryEstimate, RunConfig, RunOptions, run};

use crate::{
    fixture::{Flex, objective},
    run_fixture::config,
};

type Train = burn::backend::Autodiff<Flex>;

/// A run with a penalty towards the reference policy, which is the base model.
fn lora_config(folder: &Path) -> RunConfig {
    let mut config = config(folder);
    config.lora = Some(LoraConfig::new(2, 4.0));
    config.objective = objective("type = \"grpo\"\nkl.coefficient = 0.1");
    config.train.steps = 4;
    config
}

fn go(config: &RunConfig, resume: bool) {
    let options = RunOptions { resume, ..RunOptions::default() };
    run::<Train>(config, &options, Default::default()).unwrap();
}

fn logits(folder: &Path) -> Vec<f32> {
    let model = ModelFolder::open(folder).unwrap().load::<Flex>(&Default::default()).unwrap();
    let ints = |values: [i64; 4]| {
        Tensor::<Flex, 2, Int>::from_data(TensorData::new(values.to_vec(), [1, 4]), &Default::default())
    };
    let hidden = model.hidden(ints([1, 11, 2, 3]), ints([0, 1, 2, 3]));
    model.logits(hidden.squeeze_dim(0)).into_data().iter::<f32>().collect()
}

fn largest_difference(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn a_run_of_an_adapter_goes_on_exactly_and_its_checkpoints_hold_the_adapter_alone() {
    let folder = tempfile::tempdir().unwrap();
    let whole = lora_config(folder.path());
    go(&whole, false);
    let mut parts = whole.clone();
    parts.run.directory = folder.path().join("parts");
    parts.train.steps = 2;
    go(&parts, false);
    parts.train.steps = 4;
    go(&parts, true);
    let last = |config: &RunConfig, file: &str| {
        fs::read(config.run.directory.join("checkpoints/step_4").join(file)).unwrap()
    };
    for file in ["adapter_model.safetensors", "optimizer.safetensors", "trainer.json"] {
        assert!(last(&whole, file) == last(&parts, file), "{file} differs");
    }
    let metrics =
        |config: &RunConfig| fs::read_to_string(config.run.directory.join("metrics.jsonl")).unwrap();
    assert_eq!(metrics(&whole), metrics(&parts));
    let checkpoint = whole.run.directory.join("checkpoints/step_4");
    for file in ["model.safetensors", "reference.safetensors"] {
        assert!(!checkpoint.join(file).exists(), "{file}");
    }
}

#[test]
fn the_adapter_the_merged_model_and_the_base_are_folders_that_open() {
    let folder = tempfile::tempdir().unwrap();
    let config = lora_config(folder.path());
    go(&config, false);
    let directory = &config.run.directory;
    let [adapter, checkpoint, merged, base] =
        ["adapter", "checkpoints/step_4", "model", "base"].map(|name| logits(&directory.join(name)));
    assert_eq!(adapter, checkpoint);
    assert!(largest_difference(&adapter, &merged) < 1e-5);
    assert!(largest_difference(&adapter, &base) > 1e-3, "the run moved the adapter");
    let mut lora = config.lora.unwrap();
    lora.target_modules.sort();
    assert_eq!(ModelFolder::open(directory.join("adapter")).unwrap().lora(), Some(&lora));
}

#[test]
fn a_penalty_towards_the_base_grows_from_zero_as_the_adapter_moves() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = lora_config(folder.path());
    config.warm_start = None;
    config.data.worked_solutions = None;
    config.control = Control::Random; // some advantages, whatever the model answers
    go(&config, false);
    let metrics = fs::read_to_string(config.run.directory.join("metrics.jsonl")).unwrap();
    let rows: Vec<serde_json::Value> =
        metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kl = |row: &serde_json::Value| row["kl"].as_f64().unwrap_or_else(|| panic!("no KL in {row}"));
    assert!(kl(&rows[3]) > kl(&rows[0]), "{} and {}", kl(&rows[0]), kl(&rows[3]));
}

#[test]
fn a_base_model_that_has_changed_is_refused_on_resume() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = config(folder.path());
    first.train.steps = 1;
    go(&first, false);
    let mut adapted = lora_config(folder.path());
    adapted.run.directory = folder.path().join("adapted");
    adapted.run.initial_model = Some(first.run.directory.join("model"));
    adapted.train.steps = 2;
    go(&adapted, false);
    adapted.train.steps = 3;
    let path = first.run.directory.join("model/model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let options = RunOptions { resume: true, ..RunOptions::default() };
    let error = run::<Train>(&adapted, &options, Default::default()).unwrap_err().to_string();
    assert!(error.contains("the contents of the base model's model.safetensors have changed"), "{error}");
}

#[test]
fn an_adapter_needs_no_second_policy_and_no_moments_of_frozen_weights() {
    let folder = tempfile::tempdir().unwrap();
    let adapted = lora_config(folder.path());
    let mut full = adapted.clone();
    full.lora = None;
    let part = |config: &RunConfig, name: &str| {
        let parts = MemoryEstimate::of(config, 2).unwrap().parts;
        parts.into_iter().find(|(part, _)| *part == name).map(|(_, bytes)| bytes)
    };
    let trained = adapted.lora.as_ref().unwrap().parameter_count(&adapted.decoder().unwrap()) as u64;
    assert_eq!(part(&adapted, "gradients"), Some(4 * trained));
    assert_eq!(part(&adapted, "optimizer moments"), Some(8 * trained));
    assert_eq!(part(&adapted, "weights"), Some(part(&full, "weights").unwrap() + 4 * trained));
    assert_eq!(part(&adapted, "reference policy"), None);
    assert!(part(&full, "reference policy").is_some());
}

//! Run configs.

use std::path::Path;

use burn::backend::Autodiff;
use firebrick_trainer::{RunConfig, RunError, RunOptions, run};

use crate::fixture::Flex;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs")
}

fn math() -> String {
    std::fs::read_to_string(folder().join("math-cpu.toml")).unwrap()
}

fn refused(text: &str) -> String {
    text.parse::<RunConfig>().unwrap_err().to_string()
}

#[test]
fn every_config_is_valid_and_comes_back_from_its_resolved_form() {
    let mut seen = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let config = RunConfig::read(&path).unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
        config.objective.build();
        let resolved: RunConfig = toml::to_string(&config).unwrap().parse().unwrap();
        assert_eq!(resolved, config, "{}", path.display());
        seen += 1;
    }
    assert!(seen >= 2);
}

#[test]
fn an_unknown_key_is_refused_with_the_known_ones() {
    let error = refused(&math().replace("group_size = 8", "group_sise = 8"));
    assert!(error.contains("group_sise") && error.contains("`group_size`"), "{error}");
}

#[test]
fn sections_that_contradict_each_other_are_refused_with_the_fix() {
    let error = refused(&math().replace("vocab_size = 32", "vocab_size = 8"));
    assert!(error.contains("model.vocab_size = 8") && error.contains("raise model.vocab_size"), "{error}");
    let solutions = math().lines().find(|line| line.starts_with("worked_solutions")).unwrap().to_owned();
    let error = refused(&math().replace(&solutions, ""));
    assert!(error.contains("data.worked_solutions"), "{error}");
}

#[test]
fn a_number_out_of_range_names_its_section() {
    let error = refused(&math().replace("type = \"tapo\"", "type = \"tapo\"\neps_max = -1.0"));
    assert!(error.starts_with("[objective]") && error.contains("eps_max = -1"), "{error}");
    let error = refused(&math().replace("samples = 8", "samples = 0"));
    assert!(error.contains("evaluation.samples = 0"), "{error}");
}

#[test]
fn a_prompt_that_leaves_no_room_for_a_response_is_refused_before_a_run_directory_exists() {
    let parent = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = math().replace("max_position_embeddings = 160", "max_position_embeddings = 115");
    let mut config = text.parse::<RunConfig>().unwrap().relative_to(&root);
    config.run.directory = parent.path().join("run");
    let error = run::<Autodiff<Flex>>(&config, &RunOptions::default(), Default::default()).unwrap_err();
    assert!(matches!(error, RunError::PromptLength { .. }));
    let error = error.to_string();
    assert!(error.contains("chained-sums-train-0") && error.contains("at most 5"), "{error}");
    assert!(!config.run.directory.exists());
}

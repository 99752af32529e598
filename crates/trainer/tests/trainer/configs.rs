//! Run configs.

use std::path::{Path, PathBuf};

use burn::backend::Autodiff;
use firebrick_objectives::Preset;
use firebrick_trainer::{ConfigLayers, RunConfig, RunError, RunOptions, run};

use crate::fixture::Flex;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs")
}

fn math() -> String {
    std::fs::read_to_string(folder().join("math-cpu.toml")).unwrap()
}

fn refused(text: &str) -> String {
    text.parse::<RunConfig>().unwrap_err().to_string()
}

/// The TOML files of a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.filter(|path| path.is_file()).collect();
    assert!(files.iter().all(|path| path.extension().is_some_and(|extension| extension == "toml")));
    files.sort();
    files
}

fn name(path: &Path) -> &str {
    path.file_stem().unwrap().to_str().unwrap()
}

/// Builds what can be built without data, and checks that the resolved form is the same config.
fn check(path: &Path, config: &RunConfig) {
    config.validate().unwrap();
    config.objective.build();
    let resolved: RunConfig = toml::to_string(config).unwrap().parse().unwrap();
    assert_eq!(&resolved, config, "{}", path.display());
}

#[test]
fn every_config_is_valid_and_comes_back_from_its_resolved_form() {
    let files = files(&folder());
    for path in &files {
        check(path, &RunConfig::read(path).unwrap_or_else(|error| panic!("{error}")));
    }
    assert_eq!(
        files.iter().map(|path| name(path)).collect::<Vec<_>>(),
        [
            "code-cpu",
            "from-scratch",
            "math-cpu",
            "math-small",
            "pnpo-r1-1.5b-code",
            "pnpo-r1-1.5b-math",
            "smollm2-lora",
            "tapo-qwen3-8b-code",
            "tapo-qwen3-8b-math"
        ]
    );
}

#[test]
fn every_overlay_is_valid_over_math_small_and_holds_the_objective_of_its_name() {
    let base = RunConfig::read(&folder().join("math-small.toml")).unwrap();
    let files = files(&folder().join("objectives"));
    for path in &files {
        let layers = ConfigLayers::default().file(folder().join("math-small.toml")).file(path);
        let config = layers.load().unwrap_or_else(|error| panic!("{error}"));
        check(path, &config);
        let resolved = toml::Table::try_from(&config).unwrap();
        assert_eq!(resolved["objective"]["type"].as_str(), Some(name(path)));
        // The overlay changes nothing else.
        assert_eq!(RunConfig { objective: base.objective.clone(), ..config }, base, "{}", path.display());
    }
    let mut presets: Vec<_> = Preset::all().iter().map(|preset| preset.name).collect();
    presets.sort_unstable();
    assert_eq!(files.iter().map(|path| name(path)).collect::<Vec<_>>(), presets);
}

#[test]
fn an_unknown_key_is_refused_with_the_known_ones() {
    let error = refused(&math().replace("group_size = 8", "group_sise = 8"));
    assert!(error.contains("unknown key train.group_sise; did you mean group_size? known are "), "{error}");
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
    let error = refused(&math().replace("type = \"tapo\"", "type = \"tapo\"\nschedule.eps_max = -1.0"));
    assert!(error.contains(": objective.schedule.eps_max = -1: allowed is "), "{error}");
    let error = refused(&math().replace("samples = 8", "samples = 0"));
    assert!(error.contains(": evaluation.samples = 0: allowed is "), "{error}");
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

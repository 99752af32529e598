//! The subcommands one after another, and what they refuse.

use crate::fixture::{config, fail, firebrick, succeed};

#[test]
fn a_model_is_fine_tuned_trained_evaluated_and_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = config(folder.path(), "run", 2);
    let path = path.to_str().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    succeed(&["sft", path, "--run-dir", &place("sft"), "--set", "warm_start.steps=60"]);
    let initial = format!("run.initial_model=\"{}\"", place("sft/model"));
    succeed(&["train", path, "--run-dir", &place("rl"), "--set", &initial, "--set", "warm_start.steps=1"]);
    assert!(folder.path().join("rl/checkpoints/step_2").is_dir());

    let eval = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&succeed(&[&["eval"], arguments, &["--json"]].concat())).unwrap()
    };
    let after = std::fs::read_to_string(folder.path().join("rl/summary.json")).unwrap();
    let after: serde_json::Value = serde_json::from_str(&after).unwrap();
    assert_eq!(eval(&[&place("rl")]), after["after"]);
    assert_eq!(eval(&[&place("rl"), "--checkpoint", "step_0"]), after["before"]);
    assert_eq!(eval(&[&place("rl"), "--samples", "4"])["k"], 4);
    let text = succeed(&["eval", &place("rl")]);
    assert!(text.contains("avg@2: ") && text.contains("pass@2: "), "{text}");

    let ask = ["generate", &place("rl"), "--prompt", "7=", "--samples", "3", "--temperature", "0", "--json"];
    let rows: Vec<serde_json::Value> =
        succeed(&ask).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row == &rows[0] && row["prompt"] == "7="), "greedy: {rows:?}");
    assert!(fail(&["generate", &place("rl"), "--prompt", "x"]).contains("'x'"));
    assert!(fail(&["generate", &place("nowhere"), "--prompt", "7="]).contains("no model.safetensors"));
    assert!(fail(&["eval", &place("nowhere")]).contains("is no run directory"));
}

#[test]
fn a_dry_run_prints_the_resolved_config_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = config(folder.path(), "run", 2);
    let text = succeed(&["train", path.to_str().unwrap(), "--set", "objective.type=grpo", "--dry-run"]);
    for part in ["type = \"grpo\"", "epochs = 1", "keep_last = 2", "steps = 2"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!folder.path().join("run").exists());
}

#[test]
fn layers_win_in_their_order_and_a_misspelt_key_is_refused_wherever_it_comes_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = config(folder.path(), "run", 2);
    let path = path.to_str().unwrap();
    let overlay = folder.path().join("overlay.toml");
    std::fs::write(&overlay, "[train]\nsteps = 3\nepochs = 3\n").unwrap();
    let overlay = overlay.to_str().unwrap();
    let output = firebrick(&["train", path, overlay, "--set", "train.group_size=2", "--dry-run"])
        .env("FIREBRICK__TRAIN__EPOCHS", "4")
        .env("FIREBRICK__TRAIN__GROUP_SIZE", "3")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for part in ["steps = 3", "epochs = 4", "group_size = 2"] {
        assert!(text.contains(part), "{text}");
    }
    let error = fail(&["train", path, "--set", "train.group_sise=2"]);
    assert!(error.contains("train.group_sise") && error.contains("did you mean"), "{error}");
    let output =
        firebrick(&["train", path, "--dry-run"]).env("FIREBRICK__TRAIN__EPOCS", "4").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("epocs"));
}

#[test]
fn what_cannot_work_is_refused_before_a_run_directory_exists() {
    let folder = tempfile::tempdir().unwrap();
    let path = config(folder.path(), "run", 2);
    let path = path.to_str().unwrap();
    for (set, parts) in [
        ("train.group_size=1", ["group_size", "raise"]),
        ("train.steps=0", ["train.steps = 0", "at least 1"]),
        ("checkpoints.every=0", ["checkpoints.every = 0", "at least 1"]),
        ("data.train=nowhere.jsonl", ["nowhere.jsonl", "cannot be opened"]),
        ("train.dynamic_sampling={max_rounds=0,when_exhausted=\"error\"}", ["max_rounds = 0", "at least 1"]),
        ("model.vocab_size=3", ["model.vocab_size = 3", "raise model.vocab_size"]),
    ] {
        let error = fail(&["train", path, "--set", set]);
        assert!(parts.iter().all(|part| error.contains(part)), "{set}: {error}");
        assert!(!folder.path().join("run").exists(), "{set}");
    }
}

/// A learning rate that throws the weights out of the range of f32 ends the run; what it met can be looked at again.
#[test]
fn a_run_whose_numbers_go_wrong_leaves_batches_that_can_be_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = config(folder.path(), "run", 4);
    let error = fail(&[
        "train",
        path.to_str().unwrap(),
        "--set",
        "train.optimizer.learning_rate=1e39",
        "--set",
        "train.epochs=6",
    ]);
    assert!(error.contains("3 optimizer steps in a row") && error.contains("--resume"), "{error}");
    let run = folder.path().join("run");
    let dump = std::fs::read_dir(run.join("dumps")).unwrap().next().unwrap().unwrap().path();
    assert!(error.contains("firebrick bench replay"), "{error}");
    let text = succeed(&["bench", "replay", dump.to_str().unwrap()]);
    let line = |start: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(start));
        line.unwrap_or_else(|| panic!("{text}")).trim().to_owned()
    };
    assert_eq!(line("recorded:"), line("now:"));
    assert!(text.contains("not finite"), "{text}");
}

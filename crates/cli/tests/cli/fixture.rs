//! A run of a tiny model on ten problems.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Writes data and config into `folder`; returns the config's path. The run directory is `folder/NAME`.
pub(crate) fn config(folder: &Path, name: &str, steps: usize) -> PathBuf {
    let rows: Vec<String> = (0..10)
        .map(|digit| {
            format!(
                r#"{{"id": "p{digit}", "prompt": "{digit}=", "answer": "{digit}", "completion": "{digit}"}}"#
            )
        })
        .collect();
    std::fs::write(folder.join("data.jsonl"), rows.join("\n")).expect("the folder can be written");
    let data = folder.join("data.jsonl");
    let data = data.display();
    let text = format!(
        r#"
[run]
directory = "{}"
[data]
train = "{data}"
held_out = "{data}"
worked_solutions = "{data}"
[tokenizer]
alphabet = "0123456789="
[model]
vocab_size = 12
hidden_size = 16
intermediate_size = 24
num_hidden_layers = 1
num_attention_heads = 2
num_key_value_heads = 1
max_position_embeddings = 16
initializer_range = 0.3
[warm_start]
steps = 3
batch_size = 4
optimizer = {{ learning_rate = 1e-3 }}
[train]
seed = 5
steps = {steps}
prompts_per_step = 4
group_size = 4
sampling = {{ max_new_tokens = 6 }}
optimizer = {{ learning_rate = 1e-2 }}
[objective]
type = "tapo"
[evaluation]
samples = 2
every = 7
[checkpoints]
every = 3
"#,
        folder.join(name).display()
    );
    let path = folder.join(format!("{name}.toml"));
    std::fs::write(&path, text).expect("the folder can be written");
    path
}

/// The command, with logs that say little.
pub(crate) fn firebrick(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firebrick"));
    command.args(arguments).env("RUST_LOG", "warn").env("NO_COLOR", "1");
    command
}

pub(crate) fn succeed(arguments: &[&str]) -> String {
    let output = firebrick(arguments).output().expect("the command can be started");
    assert!(output.status.success(), "{arguments:?}: {}", error_of(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn fail(arguments: &[&str]) -> String {
    let output = firebrick(arguments).output().expect("the command can be started");
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", error_of(&output));
    error_of(&output)
}

pub(crate) fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What two runs that are the same have the same to the last byte.
pub(crate) fn contents(run: &Path, steps: usize) -> BTreeMap<String, Vec<u8>> {
    let checkpoint = format!("checkpoints/step_{steps}");
    [
        "metrics.jsonl".to_owned(),
        "traces.jsonl".to_owned(),
        "evaluations.jsonl".to_owned(),
        "summary.json".to_owned(),
        "model/model.safetensors".to_owned(),
        format!("{checkpoint}/model.safetensors"),
        format!("{checkpoint}/optimizer.safetensors"),
        format!("{checkpoint}/trainer.json"),
    ]
    .into_iter()
    .map(|name| {
        let bytes = std::fs::read(run.join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, bytes)
    })
    .collect()
}

pub(crate) fn assert_same(whole: &Path, parts: &Path, steps: usize) {
    let (whole, parts) = (contents(whole, steps), contents(parts, steps));
    for (name, bytes) in &whole {
        assert!(!bytes.is_empty() && *bytes == parts[name], "{name} differs");
    }
}

//! The page on tasks is written from the tasks.
//!
//! ```text
//! FIREBRICK_WRITE=1 cargo test -p firebrick-reward --test tasks documents
//! ```
//! writes it; without the variable it is compared.

use std::path::{Path, PathBuf};

use firebrick_core::RootSeed;
use firebrick_reward::tasks::{TaskConfig, make};
use serde_json::Value;

const INTRODUCTION: &str = "\
# Generated problems

Every task makes as many problems as are wanted from a seed, the same ones on every machine, with exact answers. A row is a line of JSON
with the keys `id`, `prompt`, `answer`, `data_source` and `extra`; the verifier of tasks chooses its rule by `data_source`. The names of
settings, where a task has a counterpart there, are those of reasoning-gym; `TaskVerifier` in the documentation of `firebrick-reward` says
which answers are right. In reasoning-gym 0.1.25 `arithmetic` is called `basic_arithmetic`, `linear_equation` `simple_equations` and
`prime_factorisation` `prime_factorization`; the problems here are made and worded anew.

This page is written from the tasks by a test (`crates/reward/tests/tasks/documents.rs`). Examples are of seed 7, under the defaults.
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn source(task: &str) -> String {
    std::fs::read_to_string(root().join(format!("crates/reward/src/tasks/{task}.rs")))
        .expect("the source can be read")
}

/// The comment of a task's settings, from its source.
fn description(task: &str) -> String {
    let source = source(task);
    let text = &source[source.find("/// Settings of").expect("the settings have a comment")..];
    let lines: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("///")).map(str::trim).collect();
    let text = lines.join("\n");
    let example = text.split_once(": ").expect("the settings have a comment").1;
    example[..1].to_uppercase() + &example[1..]
}

/// The comments of the fields of a task's settings, from its source.
fn meanings(task: &str) -> Vec<(String, String)> {
    let source = source(task);
    let start = source.find("Config {\n").expect("the settings are a struct");
    let fields = &source[start..start + source[start..].find("\n}").expect("the settings are a struct")];
    let mut found = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in fields.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            comment.push(text);
        } else if let Some((key, _)) = line.strip_prefix("pub ").and_then(|field| field.split_once(':')) {
            found.push((key.to_owned(), comment.join(" ")));
            comment.clear();
        }
    }
    found
}

fn page() -> String {
    let mut text = format!("{INTRODUCTION}\n| task | prompt | answer |\n|---|---|---|\n");
    let rows = |name: &str| {
        make(&name.parse().expect("the task has problems and defaults"), 1, RootSeed(7))
            .expect("the task has problems and defaults")
            .remove(0)
    };
    for name in TaskConfig::names() {
        let row = rows(name);
        let answer = row.worked_solution().replace('\n', "\\n");
        text += &format!("| [`{name}`](#{name}) | `{}` | `{answer}` |\n", row.prompt);
    }
    for name in TaskConfig::names() {
        let defaults =
            serde_json::to_value(name.parse::<TaskConfig>().expect("the task has problems and defaults"))
                .expect("the task has problems and defaults");
        text +=
            &format!("\n## {name}\n\n{}\n\n| key | default | meaning |\n|---|---|---|\n", description(name));
        let meanings = meanings(name);
        assert_eq!(
            meanings.len() + 1,
            defaults.as_object().expect("the task has problems and defaults").len(),
            "{name}: a field without a comment"
        );
        for (key, meaning) in meanings {
            let default: &Value = &defaults[&key];
            let default = default.to_string().replace(',', ", ");
            let repeated = format!(" Default {}.", default.replace('-', "−"));
            let meaning = meaning.strip_suffix(&repeated).unwrap_or(&meaning);
            text += &format!("| `{key}` | `{default}` | {meaning} |\n");
        }
        text += &format!("\n```json\n{}\n```\n", rows(name).to_json());
    }
    text
}

#[test]
fn the_page_on_tasks_is_what_the_tasks_are() {
    let (path, text) = (root().join("docs/tasks.md"), page());
    if std::env::var_os("FIREBRICK_WRITE").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "docs/tasks.md is not what the tasks are; write it with FIREBRICK_WRITE=1");
}

//! The pages and configs that are written from the presets, so that they cannot say anything else.
//!
//! ```text
//! FIREBRICK_WRITE=1 cargo test -p firebrick-objectives --test documents
//! ```
//! writes them; without the variable they are compared.

use std::path::{Path, PathBuf};

use firebrick_objectives::{ObjectiveConfig, Preset};

/// What an overlay gives the keys that a paper leaves open.
fn chosen(preset: &str, key: &str) -> &'static str {
    match (preset, key) {
        (_, "aggregation.norm") => "256.0",
        ("pnpo", "schedule.eps_minus" | "schedule.eps_plus") => "0.05",
        ("min_pro", "schedule.high") => "0.2",
        ("trm", "gate.threshold") => "0.05",
        ("pass_at_k", "advantage.k") => "4",
        ("gmc_grpo", "estimator.eps") => "0.2",
        other => panic!("choose a value for {other:?}"),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Writes a file when asked to, and compares it otherwise.
#[track_caller]
fn hold(path: &str, text: &str) {
    let path = root().join(path);
    if std::env::var_os("FIREBRICK_WRITE").is_some() {
        std::fs::write(&path, text).expect("the file can be written");
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "{} is not what the presets say; write it with FIREBRICK_WRITE=1", path.display());
}

/// Breaks text into comment lines.
fn comment(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is a line");
        if !last.is_empty() && last.chars().count() + word.chars().count() > 117 {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines.iter().map(|line| format!("# {line}\n")).collect()
}

fn overlay(preset: &Preset) -> String {
    let mut text = comment(&format!("{}: {}.", preset.name, preset.title));
    text += &format!("#\n{}", comment(&format!("{}.", preset.source)));
    if !preset.differs.is_empty() {
        text += &comment(&preset.differs);
    }
    text += &format!("\n[objective]\ntype = {:?}\n", preset.name);
    for (key, reason) in &preset.required {
        text +=
            &format!("{}{key} = {}\n", comment(&format!("No default: {reason}.")), chosen(preset.name, key));
    }
    text += "# Its parts. A table with a `type` replaces one of them, single keys (schedule.high = 0.3) change it:\n";
    for (slot, part) in preset.slots() {
        text += &format!("# {slot} = {part}\n");
    }
    text
}

/// The tutorial shows the file that the gate compiles.
#[test]
fn the_tutorial_is_the_package_outside_the_workspace() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let file = read("consumers/own-objective/src/fading.rs");
    assert!(read("CONTRIBUTING.md").contains(&format!("```rust\n{}\n```", file.trim_end())));
    let main = read("consumers/own-objective/src/main.rs").replace("\n        Composed", " Composed");
    for line in [
        "let objective = Composed::new(FadingPrefix { half_life: 8.0 }, HalvingWindow { width: 0.2 }, PpoMin::default());",
        "run_plan(&config, plan, &RunOptions::default(), Default::default())?;",
    ] {
        assert!(main.contains(line) && read("CONTRIBUTING.md").contains(line), "{line}");
    }
}

#[test]
fn every_preset_has_its_overlay() {
    for preset in Preset::all() {
        let text = overlay(preset);
        let table: toml::Table = toml::from_str(&text).unwrap();
        let config: ObjectiveConfig = table["objective"].clone().try_into().unwrap();
        config.validate().unwrap();
        hold(&format!("configs/objectives/{}.toml", preset.name), &text);
    }
    let mut files: Vec<_> = std::fs::read_dir(root().join("configs/objectives"))
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    let mut names: Vec<_> = Preset::all().iter().map(|preset| preset.name).collect();
    names.sort_unstable();
    assert_eq!(files, names);
}

const INTRODUCTION: &str = "\
# Objectives

Every objective is a preset: a name for parts that stand in the same five slots. `type = \"NAME\"` in `[objective]` chooses one, and
any key of any part can be changed beside it; `firebrick objectives NAME` prints what follows here, and `firebrick explain NAME`
shows what the objective does with a response, token by token. This page is written from the presets by a test
(`crates/objectives/tests/documents.rs`).

```text
d_t = log π_θ(y_t) − log π_anchor(y_t)      log-ratio of token t; r_t = exp(d_t); anchor: the policy that sampled, unless said otherwise
A                                           advantage, never differentiated; R reward, mean_g and std_g over the group of a prompt
J_t                                         contribution of token t, which is maximised
sg[x]                                       x without its gradient
L                                           policy tokens of the response
```

| preset | estimator | schedule | gate | advantage | aggregation |
|---|---|---|---|---|---|
";

#[test]
fn the_page_on_objectives_is_what_the_presets_say() {
    let mut text = INTRODUCTION.to_owned();
    for preset in Preset::all() {
        let part = |slot: &str| preset.parts[slot]["type"].as_str().unwrap();
        text += &format!(
            "| [{name}](#{name}) | {} | {} | {} | {} | {} |\n",
            part("estimator"),
            part("schedule"),
            part("gate"),
            part("advantage"),
            part("aggregation"),
            name = preset.name,
        );
    }
    text += "\nWhat each part does, with all its keys, is in the documentation of `firebrick-objectives`. Corrections for a sampler that\n\
             differs from the trainer, `[objective.correction]`, go with every preset that is anchored at the proximal policy.\n";
    for preset in Preset::all() {
        text += &format!(
            "\n## {}\n\n{}.\n\n```text\n{}\n```\n\n",
            preset.name,
            preset.title,
            preset.formula.trim()
        );
        let plot = format!("docs/plots/{}.svg", preset.name);
        if root().join(&plot).exists() {
            text += &format!(
                "![weight and window of {} by position](plots/{}.svg)\n\n",
                preset.name, preset.name
            );
        }
        text += &format!("Source: {}.\n", preset.source);
        if !preset.differs.is_empty() {
            text += &format!("Differs from the paper, or is left open by it: {}\n", preset.differs);
        }
        for (key, reason) in &preset.required {
            text += &format!("`{key}` has no default: {reason}.\n");
        }
        text += "\n```toml\n";
        for (slot, part) in preset.slots() {
            text += &format!("{slot} = {part}\n");
        }
        text += "```\n";
    }
    hold("docs/objectives.md", &text);
}

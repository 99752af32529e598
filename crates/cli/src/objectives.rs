//! `firebrick objectives`: the published objectives and their parts.

use anyhow::Context;
use clap::Args;
use firebrick_objectives::Preset;

use crate::say::say;

/// Arguments of `firebrick objectives`.
#[derive(Debug, Args)]
pub(crate) struct ObjectivesArguments {
    /// Shows formula, source and every part of one objective.
    name: Option<String>,
}

pub(crate) fn objectives(arguments: &ObjectivesArguments) -> anyhow::Result<()> {
    let Some(name) = &arguments.name else { return say(&listed()) };
    let names = || Preset::all().iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ");
    let preset = Preset::find(name)
        .with_context(|| format!("there is no objective {name:?}; there are {}", names()))?;
    say(&described(preset))
}

/// All presets with their parts.
fn listed() -> String {
    const SLOTS: [&str; 5] = ["estimator", "schedule", "gate", "advantage", "aggregation"];
    let row = |name: &str, parts: [&str; 5]| {
        let [estimator, schedule, gate, advantage, aggregation] = parts;
        format!("{name:<29} {estimator:<23} {schedule:<17} {gate:<25} {advantage:<29} {aggregation}\n")
    };
    let mut text = row("type", SLOTS);
    for preset in Preset::all() {
        text += &row(preset.name, SLOTS.map(|slot| preset.parts[slot]["type"].as_str().unwrap_or_default()));
    }
    text += "\n`firebrick objectives TYPE` shows one in full; `firebrick explain TYPE` what it does, token by token.\n";
    text
}

/// A preset as text: what it is, where it comes from, and its parts as a config.
fn described(preset: &Preset) -> String {
    let mut text = format!(
        "{}: {}\n\n{}\n\nsource: {}\n",
        preset.name,
        preset.title,
        preset.formula.trim(),
        preset.source
    );
    if !preset.differs.is_empty() {
        text += &format!("differs from the paper: {}\n", preset.differs);
    }
    text += &format!("\n[objective]\ntype = {:?}\n", preset.name);
    for (key, reason) in &preset.required {
        text += &format!("{key} = ...   # no default: {reason}\n");
    }
    text += "# its parts:\n";
    for (slot, part) in preset.slots() {
        text += &format!("{slot} = {part}\n");
    }
    text
}

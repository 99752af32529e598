//! `firebrick objectives`: the published objectives and their parts.

use anyhow::Context;
use clap::Args;
use firebrick_objectives::Preset;
use toml::Value;

/// Arguments of `firebrick objectives`.
#[derive(Debug, Args)]
pub(crate) struct ObjectivesArguments {
    /// Shows formula, source and every part of one objective.
    name: Option<String>,
}

#[expect(clippy::print_stdout, reason = "the command talks to its user")]
pub(crate) fn objectives(arguments: &ObjectivesArguments) -> anyhow::Result<()> {
    match &arguments.name {
        Some(name) => {
            let names = || Preset::all().iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ");
            let preset = Preset::find(name)
                .with_context(|| format!("there is no objective {name:?}; there are {}", names()))?;
            print!("{}", described(preset)?);
        }
        None => {
            println!(
                "{:<20} {:<24} {:<20} {:<24} {:<28} aggregation",
                "type", "estimator", "schedule", "gate", "advantage"
            );
            for preset in Preset::all() {
                let part = |slot: &str| preset.parts[slot]["type"].as_str().unwrap_or_default().to_owned();
                println!(
                    "{:<20} {:<24} {:<20} {:<24} {:<28} {}",
                    preset.name,
                    part("estimator"),
                    part("schedule"),
                    part("gate"),
                    part("advantage"),
                    part("aggregation")
                );
            }
            println!(
                "\n`firebrick objectives TYPE` shows one in full; `firebrick explain TYPE` what it does, token by token."
            );
        }
    }
    Ok(())
}

/// A preset as text: what it is, where it comes from, and its parts as a config.
fn described(preset: &Preset) -> anyhow::Result<String> {
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
    for (slot, part) in &preset.parts {
        text += &format!("{slot} = {}\n", inline(part));
    }
    Ok(text)
}

/// A value on one line; toml writes nested tables over several.
fn inline(value: &Value) -> String {
    match value {
        Value::Table(table) => {
            let keys: Vec<String> =
                table.iter().map(|(key, value)| format!("{key} = {}", inline(value))).collect();
            format!("{{ {} }}", keys.join(", "))
        }
        other => other.to_string(),
    }
}

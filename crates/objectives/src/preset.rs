//! Published objectives as data: one file a preset, with its formula, source and parts.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;
use toml::{Table, Value};

/// A published objective: what it is, where it comes from, and the parts that it is made of.
///
/// The files stand in `presets/` of this crate and read like a config.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Preset {
    /// The `type` that it is chosen by in a config.
    #[serde(skip)]
    pub name: &'static str,
    /// What the name stands for, and what the objective does, in a line.
    pub title: String,
    /// The objective per token, in the notation of the crate's documentation.
    pub formula: String,
    /// Authors, year and arXiv id.
    pub source: String,
    /// Where this differs from the paper, or what the paper leaves open.
    #[serde(default)]
    pub differs: String,
    /// Keys that have no default, each with the reason.
    #[serde(default)]
    pub required: BTreeMap<String, String>,
    /// The parts, as the tables of a config.
    pub parts: Table,
}

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        /// Names of all presets, and `composed` for a config that names every part itself.
        pub(crate) const NAMES: &[&str] = &[$($name,)* "composed"];
        const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../presets/", $name, ".toml")))),*];
    };
}

presets![
    "grpo",
    "dr_grpo",
    "dapo",
    "gspo",
    "gspo_token",
    "gmpo",
    "cispo",
    "sapo",
    "dcpo",
    "clip_cov",
    "kl_cov",
    "dppo_tv",
    "dppo_kl",
    "dppo_top_k",
    "ripo",
    "tapo",
    "pnpo",
    "ctpo",
    "min_pro",
    "trm",
    "aspo",
    "gppo",
    "m2po",
    "gpg",
    "rloo",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "opo",
    "remax",
    "lite_ppo",
    "bnpo",
    "pass_at_k",
    "gmc_grpo",
    "oc_grpo",
    "ppo",
    "causal_gspo",
    "causal_gmpo",
    "tapo_raw",
    "tapo_bounded",
    "tapo_state",
];

static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    let preset = |(name, text): &(&'static str, &str)| {
        let preset: Preset = toml::from_str(text).expect("a test reads every preset");
        Preset { name, ..preset }
    };
    FILES.iter().map(preset).collect()
});

impl Preset {
    /// All presets, the best known first.
    pub fn all() -> &'static [Self] {
        &PRESETS
    }

    /// The preset of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// The parts in the order of a step, each on one line of TOML.
    pub fn slots(&self) -> Vec<(&'static str, String)> {
        SLOTS.iter().filter_map(|slot| Some((*slot, inline(self.parts.get(*slot)?)))).collect()
    }

    /// The preset's parts with the changes of `overrides` in place.
    pub(crate) fn with(&self, overrides: Table) -> Table {
        merged(self.parts.clone(), overrides)
    }

    /// The first required key that `parts` lack, with the reason why there is no default.
    pub(crate) fn missing(&self, parts: &Table) -> Option<(&str, &str)> {
        let has = |key: &str| {
            let mut keys = key.split('.');
            let first = keys.next().and_then(|key| parts.get(key));
            keys.try_fold(first?, |value, key| value.get(key))
        };
        let lacking = self.required.iter().find(|(key, _)| has(key).is_none());
        lacking.map(|(key, reason)| (key.as_str(), reason.as_str()))
    }
}

/// The slots that a preset may fill, in the order of a step.
const SLOTS: [&str; 9] = [
    "guided_prompts",
    "advantage",
    "estimator",
    "schedule",
    "gate",
    "correction",
    "kl",
    "value_loss",
    "aggregation",
];

/// A value on one line, the `type` of a table first; toml writes nested tables over several.
fn inline(value: &Value) -> String {
    match value {
        Value::Table(table) => {
            let (tag, keys): (Vec<_>, Vec<_>) = table.iter().partition(|(key, _)| *key == "type");
            let pairs: Vec<String> = tag
                .into_iter()
                .chain(keys)
                .map(|(key, value)| format!("{key} = {}", inline(value)))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}

/// Puts `changes` over `base`: a table that names its `type` is another part and replaces the one below; any other table
/// changes single keys of it.
fn merged(mut base: Table, changes: Table) -> Table {
    for (key, change) in changes {
        let value = match (base.remove(&key), change) {
            (Some(Value::Table(below)), Value::Table(change)) if !change.contains_key("type") => {
                Value::Table(merged(below, change))
            }
            (_, change) => change,
        };
        base.insert(key, value);
    }
    base
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_described_in_full() {
        for preset in Preset::all() {
            assert!(preset.title.len() > 20 && !preset.title.contains('\n'), "{}", preset.name);
            assert!(preset.formula.contains('='), "{}", preset.name);
            assert!(preset.source.contains("arXiv:") || preset.source.contains("http"), "{}", preset.name);
            assert_eq!(Preset::find(preset.name), Some(preset));
            assert_eq!(preset.slots().len(), preset.parts.len(), "{}: a slot is not listed", preset.name);
        }
        assert_eq!(Preset::all().len() + 1, NAMES.len());
        assert_eq!(Preset::find("reinforce"), None);
    }

    #[test]
    fn a_part_is_shown_on_one_line_with_its_type_first() {
        let slots = Preset::find("tapo").unwrap().slots();
        let gate = slots.iter().find(|(slot, _)| *slot == "gate").unwrap();
        let expected = r#"{ type = "ppo_min", outer = { type = "ratio_clamp", high = 10.0, low = 0.5 } }"#;
        assert_eq!(gate.1, expected);
    }

    #[test]
    fn a_table_with_a_type_replaces_and_one_without_changes_keys() {
        let base: Table =
            toml::from_str("a = { type = 'x', p = 1, q = { type = 'y', r = 2 } }\nb = 3").unwrap();
        let keys = merged(base.clone(), toml::from_str("a.q.r = 5\nb = 4").unwrap());
        let expected: Table =
            toml::from_str("a = { type = 'x', p = 1, q = { type = 'y', r = 5 } }\nb = 4").unwrap();
        assert_eq!(keys, expected);
        let part = merged(base, toml::from_str("a = { type = 'x' }").unwrap());
        assert_eq!(part, toml::from_str::<Table>("a = { type = 'x' }\nb = 3").unwrap());
    }
}

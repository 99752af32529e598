//! Settings of verifiers that are made of several.

use std::collections::BTreeMap;

use firebrick_core::RewardVerifier;
use serde::{Deserialize, Serialize};

use super::{RewardConfig, RewardConfigError, RewardConfigProblem, SourcePreset};
use crate::by_data_source::{ByDataSource, check_routes, route};
use crate::compose::{Gated, Part, Product, WeightedSum, check_names, check_parts, check_threshold};

/// Settings of [`WeightedSum`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightedSumConfig {
    /// The parts, the one that judges the answer first.
    pub parts: Vec<PartConfig>,
}

/// A part of [`WeightedSumConfig`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartConfig {
    /// What its reward is called in logs and metrics.
    pub name: String,
    /// What its reward is multiplied by; 0 records it only.
    pub weight: f64,
    /// The verifier.
    pub verifier: RewardConfig,
}

impl WeightedSumConfig {
    pub(super) fn check_own(&self) -> Result<(), RewardConfigError> {
        check_parts(self.parts.iter().map(|part| (part.name.as_str(), part.weight)))
    }

    pub(super) fn assemble(&self) -> Result<WeightedSum, RewardConfigError> {
        let verifiers = assemble_all(self.parts.iter().map(|part| &part.verifier))?;
        let parts = self.parts.iter().zip(verifiers);
        WeightedSum::new(parts.map(|(part, verifier)| Part::new(&part.name, part.weight, verifier)).collect())
    }
}

/// Settings of [`Product`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProductConfig {
    /// The parts, the one that judges the answer first.
    pub parts: Vec<FactorConfig>,
}

/// A part of [`ProductConfig`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FactorConfig {
    /// What its reward is called in logs and metrics.
    pub name: String,
    /// The verifier.
    pub verifier: RewardConfig,
}

impl ProductConfig {
    pub(super) fn check_own(&self) -> Result<(), RewardConfigError> {
        check_names(self.parts.iter().map(|part| part.name.as_str()))
    }

    pub(super) fn assemble(&self) -> Result<Product, RewardConfigError> {
        let verifiers = assemble_all(self.parts.iter().map(|part| &part.verifier))?;
        let names = self.parts.iter().map(|part| part.name.clone());
        Product::new(names.zip(verifiers).collect())
    }
}

/// Settings of [`Gated`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatedConfig {
    /// The verifier that is asked first.
    pub gate: Box<RewardConfig>,
    /// Reward of the gate from which the other verifier is asked.
    pub threshold: f64,
    /// The verifier behind the gate.
    pub verifier: Box<RewardConfig>,
}

impl GatedConfig {
    pub(super) fn check_own(&self) -> Result<(), RewardConfigError> {
        check_threshold(self.threshold)
    }

    pub(super) fn assemble(&self) -> Result<Gated, RewardConfigError> {
        let gate = self.gate.assemble().map_err(|error| error.within("gate"))?;
        let inner = self.verifier.assemble().map_err(|error| error.within("verifier"))?;
        Gated::new(gate, self.threshold, inner)
    }
}

/// Settings of [`ByDataSource`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByDataSourceConfig {
    /// Routes to begin with; a key of `sources` takes the place of one with the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<SourcePreset>,
    /// Verifiers by data source: its name, or the beginning of several and `*`.
    #[serde(default)]
    pub sources: BTreeMap<String, RewardConfig>,
    /// The verifier of all others. Without it, data of another source is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Box<RewardConfig>>,
}

impl ByDataSourceConfig {
    /// The routes of the preset and of `sources`.
    pub fn routes(&self) -> BTreeMap<String, RewardConfig> {
        let mut routes = self.preset.map(SourcePreset::routes).unwrap_or_default();
        routes.extend(self.sources.clone());
        routes
    }

    /// Checks the choice and every verifier that can be chosen.
    pub(super) fn validate(&self) -> Result<(), RewardConfigError> {
        let routes = self.routes();
        check_routes(&routes, self.default.is_some())?;
        for (key, config) in &routes {
            config.validate().map_err(|error| error.within(&source_key(key)))?;
        }
        match &self.default {
            Some(config) => config.validate().map_err(|error| error.within("default")),
            None => Ok(()),
        }
    }

    pub(super) fn assemble(&self) -> Result<ByDataSource, RewardConfigError> {
        let mut sources: BTreeMap<String, Box<dyn RewardVerifier>> = BTreeMap::new();
        for (key, config) in self.routes() {
            let verifier = config.assemble().map_err(|error| error.within(&source_key(&key)))?;
            sources.insert(key, verifier);
        }
        let default = match &self.default {
            Some(config) => Some(config.assemble().map_err(|error| error.within("default"))?),
            None => None,
        };
        ByDataSource::new(sources, default)
    }

    pub(super) fn check_sources(&self, sources: &[&str]) -> Result<(), RewardConfigError> {
        let routes = self.routes();
        let mut unknown: Vec<String> = Vec::new();
        let mut by_default: Vec<&str> = Vec::new();
        let mut reached: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for source in sources {
            match route(&routes, source) {
                Some((key, _)) => reached.entry(key).or_default().push(source),
                None if self.default.is_some() => by_default.push(source),
                None if !unknown.iter().any(|known| known == source) => unknown.push((*source).to_owned()),
                None => {}
            }
        }
        if !unknown.is_empty() {
            let known = routes.into_keys().collect();
            return Err(RewardConfigProblem::UnknownSources { sources: unknown, known }.at(""));
        }
        for (key, sources) in reached {
            routes[key].check_sources(&sources).map_err(|error| error.within(&source_key(key)))?;
        }
        match &self.default {
            Some(config) => config.check_sources(&by_default).map_err(|error| error.within("default")),
            None => Ok(()),
        }
    }
}

/// The verifiers of the tables in `parts`, with their keys.
pub(super) fn keyed<'a>(parts: impl Iterator<Item = &'a RewardConfig>) -> Vec<(String, &'a RewardConfig)> {
    parts.enumerate().map(|(index, verifier)| (format!("parts[{index}].verifier"), verifier)).collect()
}

/// The verifier of the table `verifier`, with its key.
pub(super) fn single(verifier: &RewardConfig) -> Vec<(String, &RewardConfig)> {
    vec![("verifier".to_owned(), verifier)]
}

fn assemble_all<'a>(
    parts: impl Iterator<Item = &'a RewardConfig>,
) -> Result<Vec<Box<dyn RewardVerifier>>, RewardConfigError> {
    let tables = keyed(parts).into_iter();
    tables.map(|(key, config)| config.assemble().map_err(|error| error.within(&key))).collect()
}

/// The key of a source as TOML writes it.
fn source_key(source: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if !source.is_empty() && source.chars().all(bare) {
        format!("sources.{source}")
    } else {
        format!("sources.{source:?}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::refusal;

    fn refused(config: Value) -> String {
        refusal(&serde_json::from_value(config).unwrap())
    }

    #[test]
    fn compositions_that_cannot_be_meant_are_refused_by_key() {
        let exact = || json!({"type": "exact_answer"});
        let sum = |parts: &[(&str, f64)]| {
            let part =
                |&(name, weight): &(&str, f64)| json!({"name": name, "weight": weight, "verifier": exact()});
            refused(json!({"type": "sum", "parts": parts.iter().map(part).collect::<Vec<_>>()}))
        };
        assert_eq!(sum(&[]), "parts = []: allowed is at least one part");
        assert_eq!(sum(&[("a", 0.0)]), "parts[0].weight = 0: allowed is not 0 in every part");
        let twice = "parts[1].name = \"a\": allowed is a name that no other part has";
        assert_eq!(sum(&[("a", 1.0), ("a", 1.0)]), twice);
        let part = json!({"name": "a", "verifier": exact()});
        assert_eq!(refused(json!({"type": "product", "parts": [part, part]})), twice);
        assert!(refused(json!({"type": "by_data_source"})).starts_with("sources = {}: allowed is"));
        let sources = json!({"type": "by_data_source", "sources": {"a*b": exact()}});
        assert!(refused(sources).starts_with("sources = \"a*b\": allowed is"));
        let threshold = f64::NAN;
        let (gate, verifier) = (Box::default(), Box::default());
        let gated = RewardConfig::Gated(GatedConfig { gate, threshold, verifier });
        assert_eq!(refusal(&gated), "threshold = NaN: allowed is a finite number");
    }

    #[test]
    fn what_is_wrong_inside_is_found_behind_every_verifier_around() {
        let wrong = json!({"type": "random", "probability": 2.0, "seed": 1});
        let exact = json!({"type": "exact_answer"});
        for (config, key) in [
            (
                json!({"type": "sum", "parts": [{"name": "a", "weight": 1.0, "verifier": wrong}]}),
                "parts[0].verifier",
            ),
            (json!({"type": "product", "parts": [{"name": "a", "verifier": wrong}]}), "parts[0].verifier"),
            (json!({"type": "gated", "gate": wrong, "threshold": 1.0, "verifier": exact}), "gate"),
            (json!({"type": "gated", "gate": exact, "threshold": 1.0, "verifier": wrong}), "verifier"),
            (json!({"type": "by_data_source", "sources": {"s": wrong}}), "sources.s"),
            (json!({"type": "by_data_source", "default": wrong}), "default"),
            (json!({"type": "overlong", "max_len": 8, "buffer": 4, "verifier": wrong}), "verifier"),
            (
                json!({"type": "length", "target": 4, "per_token": 0.5, "most": 1.0, "verifier": wrong}),
                "verifier",
            ),
            (
                json!({"type": "cosine_length", "verifier": wrong, "rewards": {"max_len": 12, "right_from": 1.0,
                    "right_short": 2.0, "right_long": 1.0, "wrong_short": -1.0, "wrong_long": 0.0, "exceeded": -2.0}}),
                "verifier",
            ),
            (json!({"type": "truncation_mask", "verifier": wrong}), "verifier"),
        ] {
            assert_eq!(refused(config), format!("{key}.probability = 2: allowed is 0 to 1"));
        }
    }

    #[cfg(feature = "programs")]
    #[test]
    fn nothing_is_started_before_all_is_valid_nor_to_find_that_out() {
        let config = |weight: f64| -> RewardConfig {
            let code = json!({"type": "code", "executor": {"type": "local", "python": "/nowhere/python3"}});
            serde_json::from_value(json!({"type": "sum", "parts": [
                {"name": "code", "weight": 1.0, "verifier": code},
                {"name": "exact", "weight": weight, "verifier": {"type": "random", "probability": weight, "seed": 1}},
            ]}))
            .unwrap()
        };
        assert!(config(1.0).validate().is_ok());
        let error = config(1.0).build().unwrap_err();
        assert_eq!(error.key(), "parts[0].verifier.executor");
        assert!(matches!(error.problem(), RewardConfigProblem::Executor { .. }), "{error}");
        assert_eq!(refusal(&config(2.0)), "parts[1].verifier.probability = 2: allowed is 0 to 1");
    }
}

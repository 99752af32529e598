//! Settings of verifiers that are made of several.

use std::collections::BTreeMap;

use firebrick_core::RewardVerifier;
use serde::{Deserialize, Serialize};

use super::{RewardConfig, RewardConfigError, RewardConfigProblem, SourcePreset};
use crate::by_data_source::{ByDataSource, check_keys, route};
use crate::compose::{Gated, Part, Product, WeightedSum};

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
    pub(super) fn build(&self) -> Result<WeightedSum, RewardConfigError> {
        let verifiers = build_all(self.parts.iter().map(|part| &part.verifier))?;
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
    pub(super) fn build(&self) -> Result<Product, RewardConfigError> {
        let verifiers = build_all(self.parts.iter().map(|part| &part.verifier))?;
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
    pub(super) fn build(&self) -> Result<Gated, RewardConfigError> {
        let gate = self.gate.build().map_err(|error| error.within("gate"))?;
        let inner = self.verifier.build().map_err(|error| error.within("verifier"))?;
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

    pub(super) fn build(&self) -> Result<ByDataSource, RewardConfigError> {
        let routes = self.routes();
        check_keys(routes.keys())?;
        let mut sources: BTreeMap<String, Box<dyn RewardVerifier>> = BTreeMap::new();
        for (key, config) in routes {
            let verifier = config.build().map_err(|error| error.within(&source_key(&key)))?;
            sources.insert(key, verifier);
        }
        let default = match &self.default {
            Some(config) => Some(config.build().map_err(|error| error.within("default"))?),
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

fn build_all<'a>(
    parts: impl Iterator<Item = &'a RewardConfig>,
) -> Result<Vec<Box<dyn RewardVerifier>>, RewardConfigError> {
    let built = keyed(parts).into_iter();
    built.map(|(key, config)| config.build().map_err(|error| error.within(&key))).collect()
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

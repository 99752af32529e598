//! The model of a run: made from scratch, or read from a folder.

use std::path::PathBuf;

use firebrick_models::{DecoderConfig, ModelError, ModelFolder};
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::{Map, Value};

/// `[model]`: what describes a decoder whose weights are drawn, or with the key `path` a folder that holds one.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ModelSection {
    /// A decoder with initial weights.
    Scratch(DecoderConfig),
    /// A model in a folder.
    Pretrained(PretrainedModel),
}

/// A model that someone trained before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PretrainedModel {
    /// A folder as Hugging Face lays it out (`config.json`, safetensors, `tokenizer.json`), or one with a PEFT adapter.
    pub path: PathBuf,
    /// Positions that are used at most, since a table of rotary angles is kept for each; default all that the model has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_positions: Option<usize>,
    /// What the folder's `config.json` is expected to say. Other contents are refused; and while the folder is not there, a dry run
    /// goes by this.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub config: Map<String, Value>,
}

impl<'de> Deserialize<'de> for ModelSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = Map::deserialize(deserializer)?;
        let is_folder = table.contains_key("path");
        let table = Value::Object(table);
        match is_folder {
            true => PretrainedModel::deserialize(table).map(Self::Pretrained),
            false => DecoderConfig::deserialize(table).map(Self::Scratch),
        }
        .map_err(D::Error::custom)
    }
}

impl ModelSection {
    /// What describes the decoder; of a folder it is read.
    ///
    /// # Errors
    /// When the folder's description cannot be read or describes what is not built in.
    pub fn decoder(&self) -> Result<DecoderConfig, ModelError> {
        match self {
            Self::Scratch(decoder) => Ok(decoder.clone()),
            Self::Pretrained(model) if model.is_missing() => model.expected(),
            Self::Pretrained(model) => Ok(model.open()?.config().clone()),
        }
    }

    /// The folder of a pretrained model, if it is there or nothing stands in for it.
    pub(crate) fn folder(&self) -> Result<Option<ModelFolder>, ModelError> {
        match self {
            Self::Scratch(_) => Ok(None),
            Self::Pretrained(model) if model.is_missing() => Ok(None),
            Self::Pretrained(model) => model.open().map(Some),
        }
    }
}

impl PretrainedModel {
    /// Whether the folder is not there and [`Self::config`] stands in for it.
    pub fn is_missing(&self) -> bool {
        !self.path.is_dir() && !self.config.is_empty()
    }

    /// What the config says of the folder.
    fn expected(&self) -> Result<DecoderConfig, ModelError> {
        let mut decoder = DecoderConfig::from_keys(self.config.clone(), "model.config")?;
        let positions = self.max_positions.unwrap_or(usize::MAX);
        decoder.max_position_embeddings = decoder.max_position_embeddings.min(positions);
        Ok(decoder)
    }

    fn open(&self) -> Result<ModelFolder, ModelError> {
        let folder = ModelFolder::open(&self.path)?;
        if !self.config.is_empty() {
            let (found, expected) =
                (folder.config(), DecoderConfig::from_keys(self.config.clone(), "model.config")?);
            if *found != expected {
                return Err(ModelError::HuggingFace {
                    path: folder.base().join("config.json"),
                    key: "the decoder".into(),
                    value: format!("{found:?}"),
                    allowed: format!("[model.config] says {expected:?}; change it, or take it out"),
                });
            }
        }
        Ok(match self.max_positions {
            Some(positions) => folder.with_max_positions(positions),
            None => folder,
        })
    }
}

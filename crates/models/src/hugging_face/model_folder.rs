//! A folder with a model.

use std::path::{Path, PathBuf};

use burn::tensor::backend::Backend;
use serde_json::{Map, Value, json};

use super::peft::{ADAPTER_CONFIG, ADAPTER_WEIGHTS};
use crate::{
    Decoder, DecoderConfig, LoraConfig, ModelError, files, save_safetensors,
    weight_files::{SINGLE, WeightFiles},
    weights::{load_adapters, load_some},
};

const CONFIG: &str = "config.json";

/// A folder with a model as Hugging Face lays it out, or with an adapter as PEFT does, whose base model is another folder.
///
/// Opening reads descriptions only.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFolder {
    /// Where the weights lie that all belong to one model.
    path: PathBuf,
    config: DecoderConfig,
    adapter: Option<(PathBuf, LoraConfig)>,
}

impl ModelFolder {
    /// Opens a folder with `config.json`, or with `adapter_config.json` alone.
    ///
    /// # Errors
    /// When a description cannot be read, or describes what is not built in.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = path.as_ref();
        if !path.join(CONFIG).is_file() && path.join(ADAPTER_CONFIG).is_file() {
            let (lora, base) = LoraConfig::load(path)?;
            let base = Self::open(base)?;
            if let Some((adapter, _)) = base.adapter {
                return Err(ModelError::HuggingFace {
                    path: path.join(ADAPTER_CONFIG),
                    key: "base_model_name_or_path".into(),
                    value: adapter.display().to_string(),
                    allowed: "an adapter beside an adapter is not built in; merge the first into its base"
                        .into(),
                });
            }
            return Ok(Self { adapter: Some((path.to_owned(), lora)), ..base });
        }
        Ok(Self { path: path.to_owned(), config: DecoderConfig::load(path.join(CONFIG))?, adapter: None })
    }

    /// What describes the model.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Where the model lies, or the base model of an adapter.
    pub fn base(&self) -> &Path {
        &self.path
    }

    /// What describes the adapter.
    pub fn lora(&self) -> Option<&LoraConfig> {
        self.adapter.as_ref().map(|(_, lora)| lora)
    }

    /// The files with weights, of the base model only.
    ///
    /// # Errors
    /// When there are none, or the list of shards does not fit them.
    pub fn weight_files(&self) -> Result<Vec<PathBuf>, ModelError> {
        Ok(WeightFiles::open(&self.path)?.paths())
    }

    /// Uses at most this many positions, whose rotary angles are kept in memory.
    #[must_use]
    pub fn with_max_positions(mut self, positions: usize) -> Self {
        self.config.max_position_embeddings = self.config.max_position_embeddings.min(positions);
        self
    }

    /// Loads the weights, one tensor at a time, and the adapter beside them: then only the adapter is trained.
    ///
    /// Two kinds of tensors that other programs leave in files are passed by: a head that the configuration ties to the embedding,
    /// and rotary frequencies, which follow from the configuration.
    ///
    /// # Errors
    /// Names the tensors that are missing, extra or of another shape, over all files.
    pub fn load<B: Backend>(&self, device: &B::Device) -> Result<Decoder<B>, ModelError> {
        let tied = self.config.tie_word_embeddings;
        let is_passed_by =
            |name: &str| name.ends_with(".rotary_emb.inv_freq") || (tied && name == "lm_head.weight");
        let model = load_some(self.config.without_weights(device)?, &self.path, &is_passed_by)?;
        match &self.adapter {
            None => Ok(model),
            Some((folder, lora)) => {
                let model = model.with_lora(lora, 0)?;
                // On a backend without gradients nothing tells what is trained, so the adapter is loaded by name.
                load_adapters(model, &folder.join(ADAPTER_WEIGHTS))
            }
        }
    }

    /// Writes a model of this configuration, adapters merged, as transformers and vLLM read it: weights and `config.json`.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn save<B: Backend>(&self, model: Decoder<B>, folder: &Path) -> Result<(), ModelError> {
        save_safetensors(&model.merged(), folder.join(SINGLE))?;
        self.save_config(folder)
    }

    /// Writes `config.json`, of which only the type of the elements is other than in the folder that was opened.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn save_config(&self, folder: &Path) -> Result<(), ModelError> {
        let mut keys: Map<String, Value> = files::read_json(&self.path.join(CONFIG))?;
        for key in ["dtype", "torch_dtype"] {
            if keys.contains_key(key) {
                keys.insert(key.into(), json!("float32"));
            }
        }
        files::write_json(&folder.join(CONFIG), &keys)
    }
}

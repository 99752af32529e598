//! `adapter_config.json` of PEFT.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::json_object::JsonObject;
use crate::{LoraConfig, ModelError, files};

/// The name of an adapter's description.
pub(crate) const ADAPTER_CONFIG: &str = "adapter_config.json";

/// The name of an adapter's weights.
pub(crate) const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";

/// Keys that do not change what an adapter computes once it is trained.
const PASSED_BY: [&str; 13] = [
    "auto_mapping",
    "eva_config",
    "inference_mode",
    "init_lora_weights",
    "loftq_config",
    "lora_dropout",
    "megatron_config",
    "megatron_core",
    "peft_type",
    "peft_version",
    "qalora_group_size", // of a kind of adapter that `use_qalora` would choose
    "revision",
    "task_type",
];

impl LoraConfig {
    /// Reads the description of an adapter that PEFT or [`Self::save`] wrote, and where its base model lies: a folder, relative to
    /// that of the adapter if it is not found otherwise.
    ///
    /// # Errors
    /// Names the key that cannot be honoured, its value and what is allowed.
    pub fn load(folder: impl AsRef<Path>) -> Result<(Self, PathBuf), ModelError> {
        let folder = folder.as_ref();
        let path = folder.join(ADAPTER_CONFIG);
        let keys: Map<String, Value> = files::read_json(&path)?;
        let mut object = JsonObject::new(&path, keys);
        object.only("peft_type", &[json!("LORA")], "other adapters are not built in")?;
        object.pass_by(&PASSED_BY);
        object.only("bias", &[json!("none")], "biases are not trained")?;
        let all_linear = json!("all-linear");
        let config = Self {
            rank: object.required("r", "a whole number, at least 1")?,
            alpha: object.required("lora_alpha", "a number above 0")?,
            rslora: object.flag("use_rslora")?,
            target_modules: match object.required::<Value>("target_modules", "a list of names")? {
                value if value == all_linear => Self::new(1, 1.0).target_modules,
                value => match serde_json::from_value::<Vec<String>>(value.clone()) {
                    Ok(mut names) => {
                        names.sort_unstable();
                        names
                    }
                    Err(_) => {
                        let allowed = "allowed is a list of names, or \"all-linear\"".into();
                        return Err(object.refused("target_modules", &value, allowed));
                    }
                },
            },
        };
        let base: String = object.required("base_model_name_or_path", "a folder")?;
        let base = [PathBuf::from(&base), folder.join(&base)]
            .into_iter()
            .find(|path| path.is_dir())
            .ok_or_else(|| {
                let allowed = "no such folder; put the base model there, or name its folder".into();
                object.error("base_model_name_or_path", &base, allowed)
            })?;
        object.finish()?;
        config.validate()?;
        Ok((config, base))
    }

    /// Writes the description of an adapter for PEFT.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, folder: impl AsRef<Path>, base: &Path) -> Result<(), ModelError> {
        let keys = json!({
            "base_model_name_or_path": base,
            "bias": "none",
            "fan_in_fan_out": false,
            "inference_mode": true,
            "init_lora_weights": true,
            "lora_alpha": self.alpha,
            "lora_dropout": 0.0,
            "peft_type": "LORA",
            "r": self.rank,
            "target_modules": self.target_modules,
            "task_type": "CAUSAL_LM",
            "use_dora": false,
            "use_rslora": self.rslora,
        });
        files::write_json(&folder.as_ref().join(ADAPTER_CONFIG), &keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_comes_back_and_what_cannot_be_honoured_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("base")).unwrap();
        let config =
            LoraConfig { rslora: true, target_modules: vec!["q_proj".into()], ..LoraConfig::new(4, 8.0) };
        config.save(folder.path(), Path::new("base")).unwrap();
        let (read, base) = LoraConfig::load(folder.path()).unwrap();
        assert_eq!((read, base), (config, folder.path().join("base")));

        let path = folder.path().join(ADAPTER_CONFIG);
        let text = std::fs::read_to_string(&path).unwrap();
        let error = |from: &str, to: &str| {
            std::fs::write(&path, text.replace(from, to)).unwrap();
            LoraConfig::load(folder.path()).unwrap_err().to_string()
        };
        for (from, to, part) in [
            ("\"use_dora\": false", "\"use_dora\": true", "use_dora = true"),
            ("\"bias\": \"none\"", "\"bias\": \"all\"", "bias = \"all\": allowed is \"none\""),
            ("\"LORA\"", "\"IA3\"", "peft_type = \"IA3\""),
            ("\"base\"", "\"elsewhere\"", "base_model_name_or_path = elsewhere: no such folder"),
            ("\"r\": 4", "\"r\": 0", "rank = 0"),
        ] {
            let message = error(from, to);
            assert!(message.contains(part), "{message}");
        }
        std::fs::write(&path, text.replace("[\n    \"q_proj\"\n  ]", "\"all-linear\"")).unwrap();
        assert_eq!(LoraConfig::load(folder.path()).unwrap().0.target_modules.len(), 7);
    }
}

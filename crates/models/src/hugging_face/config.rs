//! `config.json` of the Llama, Mistral, Qwen2 and Qwen3 families.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::json_object::JsonObject;
use crate::{DecoderConfig, ModelError, RopeScaling, files, rope_scaling::yarn_magnitude};

/// What a `config.json` may be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Family {
    Llama,
    Mistral,
    Qwen2,
    Qwen3,
    /// A decoder of no public family, under the names of [`DecoderConfig`].
    Firebrick,
}

const FAMILIES: &str = "llama, mistral, qwen2, qwen3 or firebrick";

/// Keys that do not change what a decoder computes here.
const PASSED_BY: [&str; 27] = [
    "_name_or_path",
    "architectures",
    "auto_map",
    "bos_token_id",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "dtype",
    "eos_token_id",
    "id2label",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "max_length",
    "model_type",
    "output_attentions",
    "pad_token_id",
    "pretraining_tp",
    "problem_type",
    "return_dict",
    "sep_token_id",
    "tokenizer_class",
    "torch_dtype",
    "transformers.js_config",
    "transformers_version",
    "unk_token_id",
    "unsloth_version",
    "use_cache",
];

impl DecoderConfig {
    /// Reads a `config.json` of Hugging Face (`model_type` llama, mistral, qwen2 or qwen3) and checks it.
    ///
    /// Keys that change what the model computes are honoured or refused; a key that is not known and switched on is refused.
    /// Attention over a sliding window is that over all tokens as long as no row is longer than the window, so
    /// `max_position_embeddings` is at most the window.
    ///
    /// # Errors
    /// Names the file, the key, its value and what is allowed.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = path.as_ref();
        Self::from_keys(files::read_json(path)?, path)
    }

    /// [`Self::load`] of what a `config.json` would hold; errors name `origin`.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn from_keys(keys: Map<String, Value>, origin: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = origin.as_ref();
        let mut object = JsonObject::new(path, keys.clone());
        let config = match object.required("model_type", FAMILIES)? {
            Family::Firebrick => {
                let mut keys = keys;
                keys.remove("model_type");
                serde_json::from_value(Value::Object(keys))
                    .map_err(|source| ModelError::Json { path: path.into(), source })?
            }
            family => public(object, family)?,
        };
        config.validate()?;
        Ok(config)
    }

    /// Writes a `config.json` that [`Self::load`] reads, and transformers too where one of its families has the same options:
    /// all but query and key norms together with biases of some projections only.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), ModelError> {
        let path = path.as_ref();
        let mut keys = match serde_json::to_value(self) {
            Ok(Value::Object(keys)) => keys,
            Ok(other) => unreachable!("a structure is an object, found {other}"),
            Err(source) => return Err(ModelError::Json { path: path.into(), source }),
        };
        let biases = (self.attention_bias, self.attention_output_bias, self.mlp_bias);
        let family = match (self.qk_norm, biases) {
            (false, (false, false, _) | (true, true, _)) => Some(("llama", "LlamaForCausalLM")),
            (false, (true, false, false)) => Some(("qwen2", "Qwen2ForCausalLM")),
            (true, (false, false, false) | (true, true, false)) => Some(("qwen3", "Qwen3ForCausalLM")),
            _ => None,
        };
        match family {
            None => {
                keys.insert("model_type".into(), json!("firebrick"));
            }
            Some((family, architecture)) => {
                keys.remove("qk_norm");
                keys.remove("attention_output_bias");
                if family == "qwen2" {
                    keys.remove("attention_bias");
                }
                if family != "llama" {
                    keys.remove("mlp_bias");
                }
                keys.insert("head_dim".into(), json!(self.head_size()));
                keys.insert("model_type".into(), json!(family));
                keys.insert("architectures".into(), json!([architecture]));
                keys.insert("hidden_act".into(), json!("silu"));
                keys.insert("torch_dtype".into(), json!("float32"));
            }
        }
        files::write_json(path, &keys)
    }
}

/// A description in the words of a public family.
fn public(mut object: JsonObject<'_>, family: Family) -> Result<DecoderConfig, ModelError> {
    object.pass_by(&PASSED_BY);
    object.only("hidden_act", &[json!("silu")], "other activations are not built in")?;
    object.only("attention_dropout", &[json!(0.0), json!(0)], "dropout is not built in")?;
    object.only("use_mrope", &[json!(false)], "positions in several dimensions are not built in")?;
    object.only("rope_interleaved", &[json!(false)], "only half rotation is built in")?;
    let count = "a whole number, at least 1";
    let heads: usize = object.required("num_attention_heads", count)?;
    let layers: usize = object.required("num_hidden_layers", count)?;
    let positions: usize = object.required("max_position_embeddings", count)?;
    let window = sliding_window(&mut object, family, layers)?;
    let (rope_theta, rope_scaling) = rotary(&mut object, positions)?;
    // Keys that a file leaves out have the defaults of the family in transformers.
    let (default_kv_heads, default_head) = match family {
        Family::Mistral => (8, None),
        Family::Qwen2 => (32, None),
        Family::Qwen3 => (32, Some(128)),
        Family::Llama | Family::Firebrick => (heads, None),
    };
    let bias = match family {
        Family::Llama | Family::Qwen3 => object.flag("attention_bias")?,
        _ => false,
    };
    let config = DecoderConfig {
        vocab_size: object.required("vocab_size", count)?,
        hidden_size: object.required("hidden_size", count)?,
        intermediate_size: object.required("intermediate_size", count)?,
        num_hidden_layers: layers,
        num_attention_heads: heads,
        num_key_value_heads: object.count("num_key_value_heads")?.unwrap_or(default_kv_heads),
        head_dim: object.count("head_dim")?.or(default_head),
        max_position_embeddings: window.map_or(positions, |window| positions.min(window)),
        rope_theta,
        rope_scaling,
        rms_norm_eps: object.number("rms_norm_eps")?.unwrap_or(1e-6),
        tie_word_embeddings: object.flag("tie_word_embeddings")?,
        attention_bias: bias || family == Family::Qwen2,
        attention_output_bias: bias,
        mlp_bias: family == Family::Llama && object.flag("mlp_bias")?,
        qk_norm: family == Family::Qwen3,
        initializer_range: object.number("initializer_range")?.unwrap_or(0.02),
    };
    object.finish()?;
    Ok(config)
}

/// The window of the layers that have one.
fn sliding_window(
    object: &mut JsonObject<'_>,
    family: Family,
    layers: usize,
) -> Result<Option<usize>, ModelError> {
    let is_qwen = matches!(family, Family::Qwen2 | Family::Qwen3);
    let used = if is_qwen { object.flag("use_sliding_window")? } else { family == Family::Mistral };
    let first = object.count("max_window_layers")?.unwrap_or(28);
    let kinds: Option<Vec<String>> = object.take("layer_types", "a list of strings")?;
    let of_kinds = |kind: &str| kinds.as_ref().map(|kinds| kinds.iter().any(|found| found == kind));
    let full_or_sliding = |kind: &String| kind == "full_attention" || kind == "sliding_attention";
    if let Some(other) = kinds.iter().flatten().find(|kind| !full_or_sliding(kind)) {
        let allowed = "allowed is full_attention or sliding_attention for each layer".into();
        return Err(object.error("layer_types", other, allowed));
    }
    if family == Family::Llama {
        return Ok(None); // has no such key: what is left of it is refused as unknown
    }
    let given = object.count("sliding_window")?;
    let slides = of_kinds("sliding_attention").unwrap_or(!is_qwen || first < layers);
    Ok(given.filter(|_| used && slides))
}

/// The base of the wavelengths and their change. Older files have `rope_theta` and `rope_scaling`, newer ones `rope_parameters`.
fn rotary(object: &mut JsonObject<'_>, positions: usize) -> Result<(f64, Option<RopeScaling>), ModelError> {
    let theta = object.number("rope_theta")?;
    let original = object.count("original_max_position_embeddings")?;
    object.only("partial_rotary_factor", &[json!(1.0), json!(1)], "a head is rotated as a whole")?;
    let older = object.object("rope_scaling", "rope_scaling.")?;
    let newer = object.object("rope_parameters", "rope_parameters.")?;
    let mut rope = match (older, newer) {
        (Some(rope), None) | (None, Some(rope)) => rope,
        (None, None) => return Ok((theta.unwrap_or(10_000.0), None)),
        (Some(_), Some(_)) => {
            let allowed = "allowed is one of rope_scaling and rope_parameters".into();
            return Err(object.error("rope_scaling", "given beside rope_parameters", allowed));
        }
    };
    let theta = rope.number("rope_theta")?.or(theta).unwrap_or(10_000.0);
    rope.only("partial_rotary_factor", &[json!(1.0), json!(1)], "a head is rotated as a whole")?;
    let kind = rope.text("rope_type")?;
    let kind = rope.text("type")?.filter(|_| kind.is_none()).or(kind).unwrap_or_else(|| "default".into());
    let own_original = rope.count("original_max_position_embeddings")?;
    let original = original.or(own_original).unwrap_or(positions);
    let factor = "a number above 0";
    let scaling = match kind.as_str() {
        "default" => {
            rope.pass_by(&["factor"]);
            None
        }
        "linear" => Some(RopeScaling::Linear { factor: rope.required("factor", factor)? }),
        "llama3" => Some(RopeScaling::Llama3 {
            factor: rope.required("factor", factor)?,
            low_freq_factor: rope.required("low_freq_factor", factor)?,
            high_freq_factor: rope.required("high_freq_factor", factor)?,
            original_max_position_embeddings: original,
        }),
        "yarn" => {
            let factor = rope.number("factor")?.unwrap_or(positions as f64 / original as f64);
            let weights = (rope.number("mscale")?, rope.number("mscale_all_dim")?);
            let given = rope.number("attention_factor")?;
            let attention_factor = given.or(match weights {
                (Some(one), Some(all)) if one != 0.0 && all != 0.0 => {
                    Some(yarn_magnitude(factor, one) / yarn_magnitude(factor, all))
                }
                _ => None,
            });
            Some(RopeScaling::Yarn {
                factor,
                original_max_position_embeddings: original,
                beta_fast: rope.number("beta_fast")?.unwrap_or(32.0),
                beta_slow: rope.number("beta_slow")?.unwrap_or(1.0),
                attention_factor,
                truncate: rope.take("truncate", "true or false")?.unwrap_or(true),
            })
        }
        other => {
            let allowed = "allowed is default, linear, llama3 or yarn".into();
            return Err(rope.error("rope_type", other, allowed));
        }
    };
    rope.finish()?;
    Ok((theta, scaling))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tiny_config;

    fn base(model_type: &str) -> Value {
        json!({
            "model_type": model_type, "vocab_size": 11, "hidden_size": 16, "intermediate_size": 20,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
            "max_position_embeddings": 32, "rope_theta": 100.0, "rms_norm_eps": 1e-5, "hidden_act": "silu",
            "torch_dtype": "bfloat16", "initializer_range": 0.15, "bos_token_id": 1, "use_cache": true
        })
    }

    fn load(keys: &Value) -> Result<DecoderConfig, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, keys.to_string()).unwrap();
        DecoderConfig::load(&path).map_err(|error| error.to_string())
    }

    fn with(model_type: &str, changes: Value) -> Result<DecoderConfig, String> {
        let mut keys = base(model_type);
        for (key, value) in changes.as_object().unwrap() {
            keys[key] = value.clone();
        }
        load(&keys)
    }

    #[test]
    fn each_family_has_its_biases_and_norms() {
        let tiny = DecoderConfig { head_dim: Some(4), ..tiny_config() };
        assert_eq!(load(&base("llama")).unwrap(), tiny);
        assert_eq!(load(&base("mistral")).unwrap(), tiny);
        let qwen2 = DecoderConfig { attention_bias: true, ..tiny.clone() };
        assert_eq!(load(&base("qwen2")).unwrap(), qwen2);
        assert_eq!(load(&base("qwen3")).unwrap(), DecoderConfig { qk_norm: true, ..tiny.clone() });
        let biased = with("llama", json!({"attention_bias": true, "mlp_bias": true})).unwrap();
        assert!(biased.attention_bias && biased.attention_output_bias && biased.mlp_bias);
    }

    #[test]
    fn keys_that_are_left_out_have_the_defaults_of_the_family() {
        let mut keys = base("qwen3");
        let object = keys.as_object_mut().unwrap();
        for key in ["num_key_value_heads", "head_dim", "rope_theta", "rms_norm_eps"] {
            object.remove(key);
        }
        object["num_attention_heads"] = json!(32);
        object["hidden_size"] = json!(64);
        let config = load(&keys).unwrap();
        assert_eq!((config.num_key_value_heads, config.head_dim), (32, Some(128)));
        assert_eq!((config.rope_theta, config.rms_norm_eps), (10_000.0, 1e-6));
        keys["model_type"] = json!("llama");
        let config = load(&keys).unwrap();
        assert_eq!((config.num_key_value_heads, config.head_dim), (32, None));
        keys.as_object_mut().unwrap().remove("vocab_size");
        assert!(load(&keys).unwrap_err().contains("vocab_size = not given: allowed is a whole number"));
    }

    #[test]
    fn older_and_newer_names_of_the_rotary_settings_mean_the_same() {
        let yarn = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8});
        let mut newer = yarn.clone();
        newer["rope_theta"] = json!(1e6);
        let older = with("qwen2", json!({"rope_theta": 1e6, "rope_scaling": yarn})).unwrap();
        let mut keys = base("qwen2");
        keys.as_object_mut().unwrap().remove("rope_theta");
        keys["rope_parameters"] = newer;
        assert_eq!(load(&keys).unwrap(), older);
        assert!(matches!(older.rope_scaling, Some(RopeScaling::Yarn { factor: 4.0, beta_fast: 32.0, .. })));
        let plain = with("llama", json!({"rope_scaling": {"type": "linear", "factor": 2}})).unwrap();
        assert_eq!(plain.rope_scaling, Some(RopeScaling::Linear { factor: 2.0 }));
        let plain = with("llama", json!({"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}));
        assert_eq!(plain.unwrap().rope_scaling, None);
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_name() {
        for (family, changes, part) in [
            ("llama", json!({"hidden_act": "gelu"}), "hidden_act = \"gelu\": allowed is \"silu\""),
            ("llama", json!({"quantization_config": {"bits": 4}}), "quantization_config"),
            (
                "llama",
                json!({"attn_logit_softcapping": 50.0}),
                "attn_logit_softcapping = 50.0: the key is not known",
            ),
            ("qwen2", json!({"use_mrope": true}), "use_mrope = true"),
            (
                "llama",
                json!({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
                "rope_scaling.rope_type = dynamic",
            ),
            ("llama", json!({"rope_scaling": {"rope_type": "linear"}}), "rope_scaling.factor = not given"),
            ("llama", json!({"sliding_window": 8}), "sliding_window = 8"),
            (
                "qwen3",
                json!({"layer_types": ["full_attention", "chunked_attention"]}),
                "layer_types = chunked_attention",
            ),
            ("gemma2", json!({}), "model_type = \"gemma2\": allowed is llama, mistral, qwen2, qwen3"),
            ("llama", json!({"vocab_size": -1}), "vocab_size = -1"),
            ("qwen2", json!({"mlp_bias": true}), "mlp_bias = true"),
        ] {
            let error = with(family, changes).unwrap_err();
            assert!(error.contains(part) && error.contains("config.json"), "{error}");
        }
        assert!(with("llama", json!({"some_new_switch": false, "other": null})).is_ok());
    }

    #[test]
    fn a_sliding_window_bounds_the_positions_where_it_is_used() {
        let positions = |family, changes| with(family, changes).unwrap().max_position_embeddings;
        assert_eq!(positions("mistral", json!({"sliding_window": 8})), 8);
        assert_eq!(positions("mistral", json!({"sliding_window": null})), 32);
        assert_eq!(positions("qwen2", json!({"sliding_window": 8, "use_sliding_window": false})), 32);
        let used = json!({"sliding_window": 8, "use_sliding_window": true, "max_window_layers": 1});
        assert_eq!(positions("qwen2", used), 8);
        let no_layer = json!({"sliding_window": 8, "use_sliding_window": true, "max_window_layers": 2});
        assert_eq!(positions("qwen2", no_layer), 32);
        let listed = json!({
            "sliding_window": 8, "use_sliding_window": true, "max_window_layers": 2,
            "layer_types": ["full_attention", "sliding_attention"]
        });
        assert_eq!(positions("qwen3", listed), 8);
    }

    #[test]
    fn a_stored_configuration_comes_back_whatever_its_options() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        for bits in 0..16u32 {
            let on = |bit: u32| bits & (1 << bit) != 0;
            let config = DecoderConfig {
                attention_bias: on(0),
                attention_output_bias: on(1),
                mlp_bias: on(2),
                qk_norm: on(3),
                head_dim: Some(6),
                rope_scaling: Some(RopeScaling::Linear { factor: 2.0 }),
                ..tiny_config()
            };
            config.save(&path).unwrap();
            assert_eq!(DecoderConfig::load(&path).unwrap(), config, "{bits:b}");
        }
    }
}

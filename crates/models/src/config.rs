//! What describes a decoder.

use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use crate::{Decoder, ModelError, RopeScaling, init::WeightInit};

/// Shape and constants of a [`Decoder`], under the field names of Hugging Face's `config.json`.
///
/// Optional fields have the defaults of the Llama and Qwen configurations of Hugging Face. Unknown fields are
/// refused. [`Self::load`] reads the `config.json` of a public family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecoderConfig {
    /// Number of token ids, V.
    pub vocab_size: usize,
    /// Width of the residual stream, D.
    pub hidden_size: usize,
    /// Width of the gated feed-forward layer.
    pub intermediate_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Number of query heads, H.
    pub num_attention_heads: usize,
    /// Number of key and value heads, a divisor of the number of query heads.
    pub num_key_value_heads: usize,
    /// Width of a head, even; `hidden_size / num_attention_heads` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_dim: Option<usize>,
    /// Number of positions that have rotary angles.
    pub max_position_embeddings: usize,
    /// Base of the rotary wavelengths (default 10 000).
    #[serde(default = "default_rope_theta")]
    pub rope_theta: f64,
    /// How the rotary angles are changed for longer contexts (default: not at all).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<RopeScaling>,
    /// Added to the mean square before its root is taken (default 1e-6).
    #[serde(default = "default_rms_norm_eps")]
    pub rms_norm_eps: f64,
    /// Whether the head shares the embedding's weights (default: no).
    #[serde(default)]
    pub tie_word_embeddings: bool,
    /// Whether the query, key and value projections have a bias, as in Qwen2 (default: no).
    #[serde(default)]
    pub attention_bias: bool,
    /// Whether the output projection of attention has a bias (default: no).
    #[serde(default)]
    pub attention_output_bias: bool,
    /// Whether the projections of the feed-forward layer have biases (default: no).
    #[serde(default)]
    pub mlp_bias: bool,
    /// Whether the queries and keys of each head are normalised before they are rotated, as in Qwen3
    /// (default: no).
    #[serde(default)]
    pub qk_norm: bool,
    /// Standard deviation of the initial weights (default 0.02).
    #[serde(default = "default_initializer_range")]
    pub initializer_range: f64,
}

fn default_rope_theta() -> f64 {
    10_000.0
}

fn default_rms_norm_eps() -> f64 {
    1e-6
}

fn default_initializer_range() -> f64 {
    0.02
}

impl DecoderConfig {
    /// Width of a head: `head_dim`, or what the hidden size leaves for each head.
    pub fn head_size(&self) -> usize {
        self.head_dim.unwrap_or_else(|| self.hidden_size / self.num_attention_heads.max(1))
    }

    /// Number of parameters of the decoder; a head that shares the embedding's weights counts once.
    pub fn parameter_count(&self) -> usize {
        let (width, head) = (self.hidden_size, self.head_size());
        let (queries, keys) = (self.num_attention_heads * head, self.num_key_value_heads * head);
        let projections = 2 * width * queries + 2 * width * keys + 3 * width * self.intermediate_size;
        let biases = [
            (self.attention_bias, queries + 2 * keys),
            (self.attention_output_bias, width),
            (self.mlp_bias, 2 * self.intermediate_size + width),
        ];
        let biases: usize = biases.iter().map(|(present, count)| if *present { *count } else { 0 }).sum();
        let norms = 2 * width + if self.qk_norm { 2 * head } else { 0 };
        let embeddings = if self.tie_word_embeddings { 1 } else { 2 } * self.vocab_size * width;
        embeddings + self.num_hidden_layers * (projections + biases + norms) + width
    }

    /// Checks that the fields fit together.
    ///
    /// # Errors
    /// [`ModelError::Config`] names the first field that cannot be used, its value and what is allowed.
    pub fn validate(&self) -> Result<(), ModelError> {
        for (key, value) in [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("max_position_embeddings", self.max_position_embeddings),
        ] {
            require(value > 0, key, value, "at least 1")?;
        }
        let heads = self.num_attention_heads;
        require(
            heads.is_multiple_of(self.num_key_value_heads),
            "num_key_value_heads",
            self.num_key_value_heads,
            format!("a divisor of num_attention_heads ({heads})"),
        )?;
        require(
            self.head_dim.is_some() || self.hidden_size.is_multiple_of(heads),
            "hidden_size",
            self.hidden_size,
            format!("a multiple of num_attention_heads ({heads}), or set head_dim"),
        )?;
        let head = self.head_size();
        let even = head > 0 && head.is_multiple_of(2);
        require(even, "head_dim", head, "even and at least 2, since rotary positions turn pairs")?;
        for (key, value) in [("rope_theta", self.rope_theta), ("rms_norm_eps", self.rms_norm_eps)] {
            require(value.is_finite() && value > 0.0, key, value, "a finite number above 0")?;
        }
        self.rope_scaling.as_ref().map_or(Ok(()), RopeScaling::validate)?;
        let range = self.initializer_range;
        let usable = range.is_finite() && range >= 0.0;
        require(usable, "initializer_range", range, "a finite number, at least 0")
    }

    /// A decoder with initial weights drawn from `seed`.
    ///
    /// Weights are drawn on the host from N(0, `initializer_range`²), so that they are the same on every
    /// backend. The projections that write to the residual stream (`o_proj`, `down_proj`) are smaller by
    /// 1/√(2·layers), so that the stream's variance does not grow with depth; norms start at one, biases at
    /// zero.
    ///
    /// *Reference*: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.3
    /// (the scaling).
    ///
    /// # Errors
    /// When the configuration is not valid ([`Self::validate`]).
    pub fn init<B: Backend>(&self, device: &B::Device, seed: u64) -> Result<Decoder<B>, ModelError> {
        self.validate()?;
        Ok(Decoder::new(self, &mut WeightInit::new(seed, device)))
    }

    /// A decoder whose matrices take no memory until weights are loaded.
    pub(crate) fn without_weights<B: Backend>(&self, device: &B::Device) -> Result<Decoder<B>, ModelError> {
        self.validate()?;
        Ok(Decoder::new(self, &mut WeightInit::unset(device)))
    }

    /// Standard deviation of the projections that write to the residual stream.
    pub(crate) fn residual_std(&self) -> f64 {
        self.initializer_range / (2.0 * self.num_hidden_layers as f64).sqrt()
    }
}

pub(crate) fn require(
    holds: bool,
    key: &'static str,
    value: impl ToString,
    allowed: impl Into<String>,
) -> Result<(), ModelError> {
    if holds {
        return Ok(());
    }
    Err(ModelError::Config { key, value: value.to_string(), allowed: allowed.into() })
}

#[cfg(test)]
mod tests {
    use burn::module::Module;

    use super::*;
    use crate::testing::tiny_config;

    fn message(change: impl FnOnce(&mut DecoderConfig)) -> String {
        let mut config = tiny_config();
        change(&mut config);
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn a_bad_field_is_named_with_its_value_and_what_is_allowed() {
        assert_eq!(
            message(|config| config.num_key_value_heads = 3),
            "num_key_value_heads = 3: allowed is a divisor of num_attention_heads (4)"
        );
        assert_eq!(
            message(|config| config.hidden_size = 18),
            "hidden_size = 18: allowed is a multiple of num_attention_heads (4), or set head_dim"
        );
        assert_eq!(
            message(|config| config.head_dim = Some(5)),
            "head_dim = 5: allowed is even and at least 2, since rotary positions turn pairs"
        );
        assert_eq!(message(|config| config.vocab_size = 0), "vocab_size = 0: allowed is at least 1");
        assert_eq!(
            message(|config| config.rms_norm_eps = 0.0),
            "rms_norm_eps = 0: allowed is a finite number above 0"
        );
        assert_eq!(
            message(|config| config.initializer_range = f64::NAN),
            "initializer_range = NaN: allowed is a finite number, at least 0"
        );
        assert!(tiny_config().validate().is_ok());
    }

    #[test]
    fn as_many_parameters_are_counted_as_a_decoder_has() {
        let configs = [
            tiny_config(),
            DecoderConfig { tie_word_embeddings: true, num_key_value_heads: 1, ..tiny_config() },
            DecoderConfig { attention_bias: true, ..tiny_config() },
            DecoderConfig { attention_output_bias: true, mlp_bias: true, ..tiny_config() },
            DecoderConfig { qk_norm: true, head_dim: Some(6), num_hidden_layers: 3, ..tiny_config() },
        ];
        for config in configs {
            let decoder = config.init::<burn_flex::Flex>(&Default::default(), 1).unwrap();
            assert_eq!(config.parameter_count(), decoder.num_params(), "{config:?}");
        }
    }

    #[test]
    fn optional_fields_have_the_defaults_of_the_family() {
        let config: DecoderConfig = serde_json::from_str(
            r#"{"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
                "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 4}"#,
        )
        .unwrap();
        assert_eq!((config.rope_theta, config.rms_norm_eps, config.initializer_range), (1e4, 1e-6, 0.02));
        assert_eq!(
            (config.tie_word_embeddings, config.attention_bias, config.qk_norm),
            (false, false, false)
        );
        assert_eq!(config.head_size(), 4);
    }
}

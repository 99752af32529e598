//! Low-rank adapters.
//!
//! Shapes: I inputs, O outputs, R rank.

use burn::{
    module::{Module, Param},
    tensor::{Tensor, TensorData, backend::Backend},
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::{Decoder, ModelError, Projection, config::require, projection::LowRank};

/// The linear layers of a decoder's layer.
const PROJECTIONS: [&str; 7] = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

/// A low-rank adapter: y = x·W + s·(x·A)·B with W frozen, A `[I, R]` and B `[R, O]` trained.
///
/// *Reference*: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, arXiv:2106.09685; `rslora`:
/// Kalajdzievski, "A Rank Stabilization Scaling Factor for Fine-Tuning with LoRA", 2023, arXiv:2312.03732.
///
/// There is no dropout: a ratio of likelihoods compares the network that is trained with the one that sampled, which
/// dropout would make two networks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraConfig {
    /// The rank R.
    pub rank: usize,
    /// The factor is s = alpha / rank.
    pub alpha: f64,
    /// Whether the factor is s = alpha / √rank instead (default: no).
    #[serde(default)]
    pub rslora: bool,
    /// The linear layers that get an adapter, by the end of their names: `q_proj` is that of every layer, `layers.3.mlp.up_proj`
    /// one of one layer (default: all linear layers but the head).
    #[serde(default = "all_projections")]
    pub target_modules: Vec<String>,
}

fn all_projections() -> Vec<String> {
    PROJECTIONS.map(String::from).to_vec()
}

impl LoraConfig {
    /// Adapters of all linear layers.
    pub fn new(rank: usize, alpha: f64) -> Self {
        Self { rank, alpha, rslora: false, target_modules: all_projections() }
    }

    /// The factor s.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.rslora { rank.sqrt() } else { rank }
    }

    /// Checks every range.
    ///
    /// # Errors
    /// [`ModelError::Config`] names the first field that cannot be used.
    pub fn validate(&self) -> Result<(), ModelError> {
        require(self.rank > 0, "rank", self.rank, "at least 1")?;
        require(self.alpha.is_finite() && self.alpha > 0.0, "alpha", self.alpha, "a finite number above 0")?;
        let known =
            |target: &String| target.rsplit('.').next().is_some_and(|last| PROJECTIONS.contains(&last));
        let unknown = self.target_modules.iter().find(|target| !known(target));
        let allowed = || format!("names that end with one of {}", PROJECTIONS.join(", "));
        match unknown {
            Some(target) => require(false, "target_modules", target, allowed()),
            None => require(!self.target_modules.is_empty(), "target_modules", "[]", allowed()),
        }
    }

    /// Whether the layer of this name gets an adapter.
    fn targets(&self, name: &str) -> bool {
        let ends = |target: &String| {
            name.strip_suffix(target.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        self.target_modules.iter().any(ends)
    }

    /// Number of trained parameters beside a decoder.
    pub fn parameter_count(&self, config: &crate::DecoderConfig) -> usize {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let queries = config.num_attention_heads * config.head_size();
        let keys = config.num_key_value_heads * config.head_size();
        let sides = [
            ("self_attn.q_proj", width + queries),
            ("self_attn.k_proj", width + keys),
            ("self_attn.v_proj", width + keys),
            ("self_attn.o_proj", queries + width),
            ("mlp.gate_proj", width + inner),
            ("mlp.up_proj", width + inner),
            ("mlp.down_proj", inner + width),
        ];
        let layer = |layer: usize| -> usize {
            let targeted = |name: &str| self.targets(&format!("model.layers.{layer}.{name}"));
            sides.iter().filter(|(name, _)| targeted(name)).map(|(_, side)| self.rank * side).sum()
        };
        (0..config.num_hidden_layers).map(layer).sum()
    }
}

impl<B: Backend> Decoder<B> {
    /// Freezes all weights and puts adapters beside those of the chosen layers.
    ///
    /// A is drawn on the host from U(−1/√I, 1/√I), B is zero: the model computes what it did.
    ///
    /// # Errors
    /// When the configuration is not valid, or names a layer that the model does not have.
    pub fn with_lora(self, config: &LoraConfig, seed: u64) -> Result<Self, ModelError> {
        config.validate()?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut adapted = 0;
        let model = self.no_grad().map_projections(&mut |name, projection| {
            if !config.targets(name) {
                return projection;
            }
            adapted += 1;
            let ([inputs, outputs], device) = (projection.weight.dims(), projection.weight.device());
            let bound = 1.0 / (inputs as f64).sqrt();
            let mut uniform = || (bound * (2.0 * rng.random::<f64>() - 1.0)) as f32;
            let values: Vec<f32> = (0..inputs * config.rank).map(|_| uniform()).collect();
            let data = TensorData::new(values, [inputs, config.rank]);
            let lora = LowRank {
                a: Param::from_tensor(Tensor::from_data(data, &device)),
                b: Param::from_tensor(Tensor::zeros([config.rank, outputs], &device)),
                scale: config.scale(),
            };
            Projection { lora: Some(lora), ..projection }
        });
        let targets = config.target_modules.join(", ");
        require(adapted > 0, "target_modules", targets, "names of layers that the model has")?;
        Ok(model)
    }

    /// Whether adapters are trained beside the weights.
    pub fn has_lora(&self) -> bool {
        self.model.layers.iter().any(|layer| {
            let (attention, mlp) = (&layer.self_attn, &layer.mlp);
            [&attention.q_proj, &attention.k_proj, &attention.v_proj, &attention.o_proj]
                .into_iter()
                .chain([&mlp.gate_proj, &mlp.up_proj, &mlp.down_proj])
                .any(|projection| projection.lora.is_some())
        })
    }

    /// The model without its adapters, on the same weights: nothing is copied.
    #[must_use]
    pub fn without_lora(self) -> Self {
        self.map_projections(&mut |_, projection| projection.without_adapter())
    }

    /// The model with its adapters added into the weights. Merge `model.valid()`: on an autodiff backend the sums would be
    /// recorded.
    #[must_use]
    pub fn merged(self) -> Self {
        self.map_projections(&mut |_, projection| projection.merged())
    }

    /// Replaces every linear layer but the head; `change` is given its name.
    fn map_projections(mut self, change: &mut dyn FnMut(&str, Projection<B>) -> Projection<B>) -> Self {
        let layers = self.model.layers.into_iter().enumerate();
        self.model.layers = layers
            .map(|(index, mut layer)| {
                let mut replace =
                    |place: &str, projection| change(&format!("model.layers.{index}.{place}"), projection);
                let (attention, mlp) = (&mut layer.self_attn, &mut layer.mlp);
                attention.q_proj = replace("self_attn.q_proj", attention.q_proj.clone());
                attention.k_proj = replace("self_attn.k_proj", attention.k_proj.clone());
                attention.v_proj = replace("self_attn.v_proj", attention.v_proj.clone());
                attention.o_proj = replace("self_attn.o_proj", attention.o_proj.clone());
                mlp.gate_proj = replace("mlp.gate_proj", mlp.gate_proj.clone());
                mlp.up_proj = replace("mlp.up_proj", mlp.up_proj.clone());
                mlp.down_proj = replace("mlp.down_proj", mlp.down_proj.clone());
                layer
            })
            .collect();
        self
    }
}

#[cfg(test)]
mod tests {
    use burn::{
        backend::Autodiff,
        module::{AutodiffModule, ModuleVisitor},
        tensor::ElementConversion,
    };
    use burn_flex::Flex;
    use firebrick_core::CausalLm;

    use super::*;
    use crate::testing::{assert_close, int_tensor, jittered, tiny_config, values};

    type Train = Autodiff<Flex>;

    fn model() -> Decoder<Train> {
        jittered(tiny_config().init(&Default::default(), 7).unwrap(), 7)
    }

    fn logits<B: crate::FusedOps>(model: &Decoder<B>) -> Vec<f64> {
        let hidden = model.hidden(int_tensor([3, 1, 4, 1, 5], [1, 5]), int_tensor(0..5, [1, 5]));
        values(&model.logits(hidden.squeeze_dim(0)))
    }

    /// Gives the zero factors numbers, so that the adapters do something.
    fn trained(config: &LoraConfig) -> Decoder<Train> {
        model().with_lora(config, 3).unwrap().map_projections(&mut |_, mut projection| {
            projection.lora = projection.lora.map(|lora| jittered(lora, 5));
            projection
        })
    }

    #[test]
    fn fresh_adapters_change_nothing_and_are_all_that_is_trained() {
        let config = LoraConfig {
            target_modules: vec!["q_proj".into(), "mlp.down_proj".into()],
            ..LoraConfig::new(2, 4.0)
        };
        let (base, adapted) = (model(), model().with_lora(&config, 3).unwrap());
        assert_eq!(logits(&base.valid()), logits(&adapted.valid()));
        assert!(adapted.has_lora() && !base.has_lora());

        struct Trained(usize);
        impl<B: Backend> ModuleVisitor<B> for Trained {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
                if param.is_require_grad() {
                    self.0 += param.shape().num_elements();
                }
            }
        }
        let mut count = Trained(0);
        adapted.visit(&mut count);
        assert_eq!(count.0, config.parameter_count(&tiny_config()));
        assert_eq!(count.0, 2 * 2 * (16 + 16 + 20 + 16));
    }

    #[test]
    fn gradients_reach_the_adapters_only() {
        let model = trained(&LoraConfig::new(2, 4.0));
        let hidden = model.hidden(int_tensor([3, 1, 4], [1, 3]), int_tensor(0..3, [1, 3]));
        let scores =
            model.token_scores(hidden.squeeze_dim(0), int_tensor([1, 4, 1], [3]), Default::default());
        let grads = scores.log_probs.sum().backward();
        let layer = &model.model.layers[0];
        let lora = layer.self_attn.v_proj.lora.as_ref().unwrap();
        for grad in [lora.a.grad(&grads), lora.b.grad(&grads)] {
            assert!(grad.unwrap().abs().max().into_scalar().elem::<f64>() > 1e-3);
        }
        assert!(layer.self_attn.v_proj.weight.grad(&grads).is_none());
        assert!(layer.input_layernorm.weight.grad(&grads).is_none());
        assert!(model.lm_head.as_ref().unwrap().weight.grad(&grads).is_none());
        assert!(model.model.embed_tokens.weight.grad(&grads).is_none());
    }

    #[test]
    fn a_merged_model_computes_the_same_and_without_adapters_the_base_is_left() {
        for config in [LoraConfig::new(2, 4.0), LoraConfig { rslora: true, ..LoraConfig::new(3, 5.0) }] {
            let adapted = trained(&config).valid();
            let (with, base) = (logits(&adapted), logits(&model().valid()));
            assert!(with.iter().zip(&base).any(|(a, b)| (a - b).abs() > 0.01), "the adapters do something");
            assert_close(&logits(&adapted.clone().merged()), &with, 1e-5);
            assert!(!adapted.clone().merged().has_lora());
            assert_eq!(logits(&adapted.without_lora()), base);
        }
        assert_eq!(LoraConfig { rslora: true, ..LoraConfig::new(4, 5.0) }.scale(), 2.5);
    }

    #[test]
    fn one_layer_can_be_named_and_a_name_that_fits_nothing_is_refused() {
        let one =
            |target: &str| LoraConfig { target_modules: vec![target.into()], ..LoraConfig::new(1, 1.0) };
        let adapted = model().with_lora(&one("layers.1.self_attn.o_proj"), 1).unwrap();
        let has = |layer: usize| adapted.model.layers[layer].self_attn.o_proj.lora.is_some();
        assert_eq!((has(0), has(1)), (false, true));
        let error = model().with_lora(&one("layers.7.mlp.up_proj"), 1).unwrap_err().to_string();
        assert!(error.contains("target_modules = layers.7.mlp.up_proj"), "{error}");
        let error = one("query").validate().unwrap_err().to_string();
        assert!(error.contains("target_modules = query") && error.contains("q_proj"), "{error}");
        assert!(LoraConfig::new(0, 1.0).validate().unwrap_err().to_string().contains("rank = 0"));
    }
}

//! The decoder.
//!
//! Shapes: B rows, S positions, N tokens, D hidden size, V vocabulary.

use std::ops::Range;

use burn::{
    module::Module,
    nn::Embedding,
    tensor::{Int, Tensor, backend::Backend},
};
use firebrick_core::{CausalLm, ScoreOptions, TokenScores};

use crate::{
    CausalMask, DecoderConfig, DecoderLayer, FusedOps, KvCache, Projection, RmsNorm, RotaryTable,
    init::WeightInit, rope_scaling::RotaryFrequencies,
};

/// A decoder-only language model of the Llama and Qwen families. Its fields are named as in Hugging Face's
/// weights.
///
/// A forward pass on an autodiff backend keeps its graph until a `backward`: generate and evaluate on
/// `model.valid()`.
#[derive(Module, Debug)]
pub struct Decoder<B: Backend> {
    /// Everything but the head.
    pub model: DecoderBody<B>,
    /// Head, weight `[D, V]`; `None` when the embedding serves as the head.
    pub lm_head: Option<Projection<B>>,
}

/// The embedding, the layers and the last norm of a [`Decoder`].
#[derive(Module, Debug)]
pub struct DecoderBody<B: Backend> {
    /// Token embedding, weight `[V, D]`.
    pub embed_tokens: Embedding<B>,
    /// The layers.
    pub layers: Vec<DecoderLayer<B>>,
    /// Norm after the last layer.
    pub norm: RmsNorm<B>,
    rotary: RotaryTable<B>,
}

impl<B: Backend> Decoder<B> {
    /// A decoder of a valid configuration. Parameters are drawn in the order of the layers.
    pub(crate) fn new(config: &DecoderConfig, init: &mut WeightInit<'_, B>) -> Self {
        let (vocab, width, std) = (config.vocab_size, config.hidden_size, config.initializer_range);
        let embed_tokens = init.embedding(vocab, width, std);
        let layers = (0..config.num_hidden_layers).map(|_| DecoderLayer::new(config, init)).collect();
        let lm_head = (!config.tie_word_embeddings).then(|| init.linear(width, vocab, std));
        let positions = config.max_position_embeddings;
        let frequencies =
            RotaryFrequencies::new(config.head_size(), config.rope_theta, config.rope_scaling.as_ref());
        let model = DecoderBody {
            embed_tokens,
            layers,
            norm: RmsNorm::new(width, config.rms_norm_eps, init.device()),
            rotary: RotaryTable::new(positions, &frequencies, init.device()),
        };
        Self { model, lm_head }
    }

    /// Weight of the head, `[D, V]`.
    fn head(&self) -> Tensor<B, 2> {
        match &self.lm_head {
            Some(head) => head.weight.val(),
            None => self.model.embed_tokens.weight.val().transpose(),
        }
    }
}

impl<B: FusedOps> DecoderBody<B> {
    /// Runs `layers` on `x`, or on the embedding of the tokens, and the last norm after the last layer: for new tokens after those
    /// in the cache, if there is one.
    ///
    /// # Shapes
    /// - `x`: `[B, S, D]`
    /// - `tokens`, `positions`: `[B, S]`
    /// - returns `[B, S, D]`
    fn forward(
        &self,
        layers: Range<usize>,
        x: Option<Tensor<B, 3>>,
        tokens: Tensor<B, 2, Int>,
        positions: Tensor<B, 2, Int>,
        mut cache: Option<&mut KvCache<B>>,
    ) -> Tensor<B, 3> {
        let [rows, columns] = tokens.dims();
        let mask = match &mut cache {
            Some(cache) => cache.grow(columns),
            None => CausalMask::new(columns, columns, [].into()),
        };
        let mask = if B::READS_MASK_BIAS { mask.with_bias(&tokens.device()) } else { mask };
        let positions = positions.flatten(0, 1);
        let angles = self.layers[0].self_attn.angles(&self.rotary, positions);
        // Two dimensions throughout: a projection of three runs one product, and one weight gradient, for
        // each row.
        let mut x = match x {
            Some(x) => x.flatten(0, 1),
            None => self.embed_tokens.weight.val().select(0, tokens.flatten(0, 1)),
        };
        let last = layers.end == self.layers.len();
        for index in layers {
            let layer = &self.layers[index];
            let cache = cache.as_deref_mut().map(|cache| (index, cache));
            x = layer.forward(x, rows, &angles, &mask, cache);
        }
        let [_, width] = x.dims();
        let x = if last { self.norm.forward(x) } else { x };
        x.reshape([rows, columns, width])
    }
}

impl<B: FusedOps> CausalLm<B> for Decoder<B> {
    type Cache = KvCache<B>;

    fn vocab_size(&self) -> usize {
        self.model.embed_tokens.weight.dims()[0]
    }

    fn max_positions(&self) -> usize {
        self.model.rotary.positions()
    }

    fn hidden(&self, tokens: Tensor<B, 2, Int>, positions: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        self.model.forward(0..self.model.layers.len(), None, tokens, positions, None)
    }

    /// One for each layer.
    fn segments(&self) -> usize {
        self.model.layers.len()
    }

    fn segment(
        &self,
        index: usize,
        x: Option<Tensor<B, 3>>,
        tokens: Tensor<B, 2, Int>,
        positions: Tensor<B, 2, Int>,
    ) -> Tensor<B, 3> {
        self.model.forward(index..index + 1, x, tokens, positions, None)
    }

    fn base(&self) -> Option<Self> {
        self.has_lora().then(|| self.clone().without_lora())
    }

    fn logits(&self, hidden: Tensor<B, 2>) -> Tensor<B, 2> {
        hidden.matmul(self.head())
    }

    fn token_scores(
        &self,
        hidden: Tensor<B, 2>,
        targets: Tensor<B, 1, Int>,
        options: ScoreOptions,
    ) -> TokenScores<B> {
        B::token_scores(hidden, self.head(), targets, options)
    }

    fn new_cache(&self, left_padding: &[usize], _device: &B::Device) -> KvCache<B> {
        KvCache::new(self.model.layers.len(), left_padding)
    }

    fn extend(
        &self,
        tokens: Tensor<B, 2, Int>,
        positions: Tensor<B, 2, Int>,
        cache: &mut KvCache<B>,
    ) -> Tensor<B, 3> {
        self.model.forward(0..self.model.layers.len(), None, tokens, positions, Some(cache))
    }

    fn retain_rows(&self, cache: &mut KvCache<B>, rows: &[usize]) {
        cache.retain_rows(rows);
    }
}

#[cfg(test)]
mod tests {
    use burn::{backend::Autodiff, module::AutodiffModule, tensor::backend::AutodiffBackend};
    use burn_flex::Flex;
    use burn_ndarray::NdArray;

    use super::*;
    use crate::{
        reference::ReferenceDecoder,
        testing::{assert_close, int_tensor, jittered, on_both_backends, tiny_config, values},
        weights,
    };

    const TOKENS: [usize; 7] = [3, 1, 4, 1, 5, 9, 2];

    /// Configurations that together use every option.
    fn configs() -> [DecoderConfig; 3] {
        [
            tiny_config(),
            DecoderConfig { tie_word_embeddings: true, num_key_value_heads: 1, ..tiny_config() },
            DecoderConfig { attention_bias: true, qk_norm: true, head_dim: Some(6), ..tiny_config() },
        ]
    }

    fn model<B: Backend>(config: &DecoderConfig) -> Decoder<B> {
        jittered(config.init(&Default::default(), 7).unwrap(), 7)
    }

    fn logits<B: FusedOps>(model: &Decoder<B>, tokens: &[usize]) -> Vec<f64> {
        let shape = [1, tokens.len()];
        let hidden = model.hidden(int_tensor(tokens.to_vec(), shape), int_tensor(0..tokens.len(), shape));
        values(&model.logits(hidden.squeeze_dim(0)))
    }

    on_both_backends! {
        fn logits_agree_with_plain_loops_in_f64<B>() {
            for config in configs() {
                let model = model::<B>(&config);
                let expected = ReferenceDecoder::of(&config, &model).logits(&TOKENS).concat();
                assert_close(&logits(&model, &TOKENS), &expected, 2e-5);
            }
        }

        /// Rows of different lengths, padded on the left, in a prefill and then token by token; a row leaves
        /// and the others change places.
        fn cached_steps_give_the_hidden_states_of_a_full_pass<B>() {
            for config in configs() {
                let model = model::<B>(&config);
                let rows: [&[usize]; 3] = [&TOKENS[..4], &[8], &[6, 10]];
                let tails = [5, 6, 7];
                let full = |row: usize, len: usize| {
                    let tokens = [rows[row], &tails].concat();
                    let tokens = &tokens[..rows[row].len() + len];
                    let shape = [1, tokens.len()];
                    let positions = int_tensor(0..tokens.len(), shape);
                    let hidden = values(&model.hidden(int_tensor(tokens.to_vec(), shape), positions));
                    hidden[hidden.len() - config.hidden_size..].to_vec()
                };
                let last = |hidden: Tensor<B, 3>| {
                    let [_, columns, _] = hidden.dims();
                    values(&hidden.narrow(1, columns - 1, 1))
                };
                let padding = rows.map(|row| 4 - row.len());
                let mut cache = model.new_cache(&padding, &Default::default());
                let padded = |pad, row: &[usize]| [vec![0; pad], row.to_vec()].concat();
                let tokens = padding.iter().zip(rows).flat_map(|(pad, row)| padded(*pad, row));
                let positions =
                    padding.iter().zip(rows).flat_map(|(pad, row)| padded(*pad, &[0, 1, 2, 3][..row.len()]));
                let (tokens, positions) = (int_tensor(tokens, [3, 4]), int_tensor(positions, [3, 4]));
                let hidden = model.extend(tokens, positions, &mut cache);
                assert_close(&last(hidden), &[0, 1, 2].map(|row| full(row, 0)).concat(), 1e-5);
                let step = |kept: &[usize], new: usize, cache: &mut KvCache<B>| {
                    let shape = [kept.len(), 1];
                    let positions = kept.iter().map(|row| rows[*row].len() + new);
                    let tokens = int_tensor(vec![tails[new]; kept.len()], shape);
                    last(model.extend(tokens, int_tensor(positions, shape), cache))
                };
                let hidden = step(&[0, 1, 2], 0, &mut cache);
                assert_close(&hidden, &[0, 1, 2].map(|row| full(row, 1)).concat(), 1e-5);
                model.retain_rows(&mut cache, &[2, 1]);
                assert_eq!((cache.rows(), cache.columns()), (2, 5));
                let hidden = step(&[2, 1], 1, &mut cache);
                assert_close(&hidden, &[2, 1].map(|row| full(row, 2)).concat(), 1e-5);
                model.retain_rows(&mut cache, &[0]);
                assert_close(&step(&[2], 2, &mut cache), &full(2, 3), 1e-5);
            }
        }

        fn segments_one_after_the_other_are_the_whole_pass<B>() {
            for config in configs() {
                let model = model::<B>(&config);
                let tokens = || int_tensor(TOKENS.iter().copied().cycle().take(12), [2, 6]);
                let positions = || int_tensor((0..6).chain(0..6), [2, 6]);
                let run = |x, index| Some(model.segment(index, x, tokens(), positions()));
                let hidden = (0..model.segments()).fold(None, run).unwrap();
                assert_eq!(values(&hidden), values(&model.hidden(tokens(), positions())));
            }
        }

        fn padding_tokens_change_nothing_at_real_tokens<B>() {
            let model = model::<B>(&tiny_config());
            let right = |pad: usize| {
                let tokens = [3, 1, 4, pad, pad, 8, 6, 2, 7, pad];
                let positions = (0..5).chain(0..5);
                let hidden = model.hidden(int_tensor(tokens, [2, 5]), int_tensor(positions, [2, 5]));
                let hidden = values(&hidden);
                [&hidden[..3 * 16], &hidden[5 * 16..9 * 16]].concat()
            };
            assert_eq!(right(0), right(9));
            let left = |pad: usize| {
                let mut cache = model.new_cache(&[2, 0], &Default::default());
                let tokens = int_tensor([pad, pad, 3, 8, 6, 2], [2, 3]);
                let positions = int_tensor([pad, pad, 0, 0, 1, 2], [2, 3]);
                model.extend(tokens, positions, &mut cache);
                let hidden = model.extend(int_tensor([5, 5], [2, 1]), int_tensor([1, 3], [2, 1]), &mut cache);
                values(&hidden)
            };
            assert_eq!(left(0), left(9));
        }

        /// Central differences of the f64 decoder, at three entries of every parameter.
        fn gradients_agree_with_finite_differences<B>() {
            for config in configs() {
                let model = model::<Autodiff<B>>(&config);
                let weights = [0.5, -1.0, 0.0, 2.0, 0.7, -0.3];
                let shape = [1, TOKENS.len() - 1];
                let count = TOKENS.len() - 1;
                let hidden =
                    model.hidden(int_tensor(TOKENS[..count].to_vec(), shape), int_tensor(0..count, shape));
                let targets = int_tensor(TOKENS[1..].to_vec(), [count]);
                let options = ScoreOptions { chunk_tokens: 4, ..ScoreOptions::default() };
                let scores = model.token_scores(hidden.squeeze_dim(0), targets, options);
                let factors = Tensor::from_floats(weights, &Default::default());
                let grads = gradients(&model, &(scores.log_probs * factors).sum().backward());

                let reference = ReferenceDecoder::of(&config, &model.valid());
                let objective = |reference: &ReferenceDecoder| {
                    let log_probs = reference.next_log_probs(&TOKENS);
                    log_probs.iter().zip(&weights).map(|(log_prob, weight)| log_prob * weight).sum::<f64>()
                };
                assert_eq!(grads.len(), reference.weights.len());
                for (name, grad) in &grads {
                    let scale = grad.iter().fold(0.0f64, |max, x| max.max(x.abs()));
                    assert!(scale > 1e-3, "{name}: no gradient");
                    for index in [0, grad.len() / 2, grad.len() - 1] {
                        let shifted = |by: f64| {
                            let mut reference = reference.clone();
                            reference.weights.get_mut(name).unwrap()[index] += by;
                            objective(&reference)
                        };
                        let expected = (shifted(1e-5) - shifted(-1e-5)) / 2e-5;
                        let close = (grad[index] - expected).abs() <= 1e-4 * scale + 1e-6;
                        assert!(close, "{name}[{index}]: found {}, expected {expected}", grad[index]);
                    }
                }
            }
        }
    }

    /// Gradients by name, in the layouts of the reference.
    fn gradients<B: AutodiffBackend>(
        model: &Decoder<B>,
        grads: &B::Gradients,
    ) -> std::collections::BTreeMap<String, Vec<f64>> {
        struct Replace<'a, B: AutodiffBackend>(&'a B::Gradients);
        impl<B: AutodiffBackend> burn::module::ModuleMapper<B> for Replace<'_, B> {
            fn map_float<const D: usize>(
                &mut self,
                param: burn::module::Param<Tensor<B, D>>,
            ) -> burn::module::Param<Tensor<B, D>> {
                let grad = param.val().grad(self.0).expect("every parameter has a gradient");
                param.map(|_| Tensor::from_inner(grad))
            }
        }
        let tensors = weights::collect(&model.clone().map(&mut Replace::<B>(grads)));
        tensors.into_iter().map(|(name, tensor)| (name, tensor.iter().collect())).collect()
    }

    #[test]
    fn initial_weights_are_the_same_on_every_backend_and_set_by_the_seed() {
        fn bytes<B: Backend>(seed: u64) -> Vec<(String, Vec<u8>)> {
            let config = DecoderConfig { attention_bias: true, qk_norm: true, ..tiny_config() };
            let model: Decoder<B> = config.init(&Default::default(), seed).unwrap();
            let tensors = weights::collect(&model).into_iter();
            tensors.map(|(name, tensor)| (name, tensor.as_bytes().to_vec())).collect()
        }
        assert_eq!(bytes::<Flex>(1), bytes::<NdArray>(1));
        assert_ne!(bytes::<Flex>(1), bytes::<Flex>(2));
    }

    #[test]
    fn projections_into_the_residual_stream_start_smaller_by_the_root_of_twice_the_layers() {
        let config =
            DecoderConfig { hidden_size: 64, intermediate_size: 64, num_hidden_layers: 8, ..tiny_config() };
        let model: Decoder<Flex> = config.init(&Default::default(), 1).unwrap();
        let deviation = |linear: &Projection<Flex>| {
            let list = values(&linear.weight.val());
            (list.iter().map(|x| x * x).sum::<f64>() / list.len() as f64).sqrt()
        };
        let layer = &model.model.layers[3];
        // The standard error of a deviation over 4096 draws is 1.1 %.
        for (linear, expected) in [
            (&layer.mlp.up_proj, 0.15),
            (&layer.self_attn.q_proj, 0.15),
            (&layer.mlp.down_proj, 0.15 / 4.0),
            (&layer.self_attn.o_proj, 0.15 / 4.0),
        ] {
            assert!((deviation(linear) / expected - 1.0).abs() < 0.05, "{}", deviation(linear));
        }
    }

    #[test]
    fn the_model_knows_its_vocabulary_and_its_positions() {
        let model = model::<Flex>(&tiny_config());
        assert_eq!((model.vocab_size(), model.max_positions()), (11, 32));
    }
}

//! One layer of the decoder.
//!
//! Shapes: B rows, S positions, D hidden size, F width of the feed-forward layer.

use burn::{
    module::Module,
    tensor::{Tensor, backend::Backend},
};

use crate::{
    CausalMask, DecoderConfig, FusedOps, KvCache, Projection, RmsNorm, SelfAttention, init::WeightInit,
    self_attention::QueryKeyAngles,
};

/// A pre-norm layer: x ← x + attention(norm(x)), then x ← x + mlp(norm(x)).
#[derive(Module, Debug)]
pub struct DecoderLayer<B: Backend> {
    /// Norm before attention.
    pub input_layernorm: RmsNorm<B>,
    /// Attention.
    pub self_attn: SelfAttention<B>,
    /// Norm before the feed-forward layer.
    pub post_attention_layernorm: RmsNorm<B>,
    /// Feed-forward layer.
    pub mlp: GatedMlp<B>,
}

impl<B: Backend> DecoderLayer<B> {
    pub(crate) fn new(config: &DecoderConfig, init: &mut WeightInit<'_, B>) -> Self {
        let norm = |device| RmsNorm::new(config.hidden_size, config.rms_norm_eps, device);
        Self {
            input_layernorm: norm(init.device()),
            self_attn: SelfAttention::new(config, init),
            post_attention_layernorm: norm(init.device()),
            mlp: GatedMlp::new(config, init),
        }
    }

    /// Applies the layer.
    ///
    /// # Shapes
    /// - `x`: `[B·S, D]`, `rows` = B
    /// - returns `[B·S, D]`
    pub(crate) fn forward(
        &self,
        x: Tensor<B, 2>,
        rows: usize,
        angles: &QueryKeyAngles<B>,
        mask: &CausalMask<B>,
        cache: Option<(usize, &mut KvCache<B>)>,
    ) -> Tensor<B, 2>
    where
        B: FusedOps,
    {
        let normed = self.input_layernorm.forward(x.clone());
        let x = x + self.self_attn.forward(normed, rows, angles, mask, cache);
        let normed = self.post_attention_layernorm.forward(x.clone());
        x + self.mlp.forward(normed)
    }
}

/// A gated feed-forward layer: y = (silu(x·W_gate) ⊙ x·W_up) · W_down.
///
/// *Reference*: Shazeer, "GLU Variants Improve Transformer", 2020, arXiv:2002.05202 (SwiGLU).
#[derive(Module, Debug)]
pub struct GatedMlp<B: Backend> {
    /// Gate, weight `[D, F]`.
    pub gate_proj: Projection<B>,
    /// What is gated, weight `[D, F]`.
    pub up_proj: Projection<B>,
    /// Output, weight `[F, D]`.
    pub down_proj: Projection<B>,
}

impl<B: Backend> GatedMlp<B> {
    fn new(config: &DecoderConfig, init: &mut WeightInit<'_, B>) -> Self {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        Self {
            gate_proj: init.projection(width, inner, config.initializer_range, config.mlp_bias),
            up_proj: init.projection(width, inner, config.initializer_range, config.mlp_bias),
            down_proj: init.projection(inner, width, config.residual_std(), config.mlp_bias),
        }
    }

    /// Applies the layer to each token.
    ///
    /// # Shapes
    /// - `x`: `[N, D]`
    /// - returns `[N, D]`
    pub fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2>
    where
        B: FusedOps,
    {
        let gate = self.gate_proj.forward(x.clone());
        self.down_proj.forward(B::gated_silu(gate, self.up_proj.forward(x)))
    }
}

//! Causal self-attention with grouped keys and values.
//!
//! Shapes: B rows, S positions, D hidden size, H query heads, G key and value heads, E width of a head.

use burn::{
    module::Module,
    tensor::{Int, Tensor, backend::Backend},
};

use crate::{
    CausalMask, DecoderConfig, FusedOps, KvCache, Projection, RmsNorm, RotaryAngles, RotaryTable,
    init::WeightInit,
};

/// Attention of every token to those before it, H query heads sharing G heads of keys and values.
///
/// *Reference*: Ainslie et al., "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head
/// Checkpoints", 2023, arXiv:2305.13245.
#[derive(Module, Debug)]
pub struct SelfAttention<B: Backend> {
    /// Queries, weight `[D, H·E]`.
    pub q_proj: Projection<B>,
    /// Keys, weight `[D, G·E]`.
    pub k_proj: Projection<B>,
    /// Values, weight `[D, G·E]`.
    pub v_proj: Projection<B>,
    /// Output, weight `[H·E, D]`.
    pub o_proj: Projection<B>,
    /// Norm of the queries of each head, weight `[E]`.
    pub q_norm: Option<RmsNorm<B>>,
    /// Norm of the keys of each head, weight `[E]`.
    pub k_norm: Option<RmsNorm<B>>,
    heads: usize,
    kv_heads: usize,
    head_size: usize,
}

/// The rotary angles of a forward pass.
#[derive(Debug)]
pub(crate) struct QueryKeyAngles<B: Backend> {
    queries: RotaryAngles<B>,
    keys: RotaryAngles<B>,
}

impl<B: Backend> SelfAttention<B> {
    pub(crate) fn new(config: &DecoderConfig, init: &mut WeightInit<'_, B>) -> Self {
        let (width, head_size) = (config.hidden_size, config.head_size());
        let (heads, kv_heads) = (config.num_attention_heads, config.num_key_value_heads);
        let std = config.initializer_range;
        let mut project = |outputs| init.projection(width, outputs, std, config.attention_bias);
        let q_proj = project(heads * head_size);
        let k_proj = project(kv_heads * head_size);
        let v_proj = project(kv_heads * head_size);
        let o_proj =
            init.projection(heads * head_size, width, config.residual_std(), config.attention_output_bias);
        let norm = || config.qk_norm.then(|| RmsNorm::new(head_size, config.rms_norm_eps, init.device()));
        Self { q_norm: norm(), k_norm: norm(), q_proj, k_proj, v_proj, o_proj, heads, kv_heads, head_size }
    }

    /// The angles of tokens at the given positions, `[T]`.
    pub(crate) fn angles(&self, table: &RotaryTable<B>, positions: Tensor<B, 1, Int>) -> QueryKeyAngles<B> {
        QueryKeyAngles {
            queries: table.angles(positions.clone(), self.heads),
            keys: table.angles(positions, self.kv_heads),
        }
    }

    /// Attends from every token to the cached tokens (those of `x` alone without a cache).
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
        let [tokens, _] = x.dims();
        let queries = self.q_proj.forward(x.clone());
        let queries = self.rotated(queries, self.q_norm.as_ref(), rows, self.heads, &angles.queries);
        let keys = self.k_proj.forward(x.clone());
        let keys = self.rotated(keys, self.k_norm.as_ref(), rows, self.kv_heads, &angles.keys);
        let values = self.v_proj.forward(x).reshape([rows, tokens / rows, self.kv_heads, self.head_size]);
        let (keys, values) = match cache {
            Some((layer, cache)) => cache.append(layer, keys, values),
            None => (keys, values),
        };
        let attended = B::causal_attention(queries, keys, values, mask);
        self.o_proj.forward(attended.reshape([tokens, self.heads * self.head_size]))
    }

    /// Splits `[B·S, heads·E]` into heads, normalises and rotates them: `[B, S, heads, E]`.
    fn rotated(
        &self,
        x: Tensor<B, 2>,
        norm: Option<&RmsNorm<B>>,
        rows: usize,
        heads: usize,
        angles: &RotaryAngles<B>,
    ) -> Tensor<B, 4>
    where
        B: FusedOps,
    {
        let [tokens, _] = x.dims();
        let x = match norm {
            Some(norm) => norm
                .forward(x.reshape([tokens * heads, self.head_size]))
                .reshape([tokens, heads * self.head_size]),
            None => x,
        };
        B::rotary(x, angles).reshape([rows, tokens / rows, heads, self.head_size])
    }
}

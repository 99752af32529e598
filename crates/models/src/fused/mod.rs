//! The operations that dominate a decoder, named so that a backend can bring kernels of its own.
//!
//! Shapes: B rows, S queries, K keys, T or N tokens, H query heads, G key and value heads, E width of a head,
//! D hidden size, F width of the feed-forward layer, V vocabulary.

#[cfg(test)]
mod agreement;
mod attention;
mod autodiff;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "flex")]
mod flex;
mod gated_silu;
#[cfg(feature = "ndarray")]
mod ndarray;
mod precision;
mod rms_norm;
mod rotary;
mod token_scores;
#[cfg(feature = "wgpu")]
mod wgpu;

use burn::tensor::{Int, Tensor, backend::Backend};
use firebrick_core::{ScoreOptions, TokenScores};

use crate::{CausalMask, RotaryAngles};

/// A backend with the operations of a decoder.
///
/// Every operation has a default that is composed of the backend's own, so that an empty `impl` is enough. An
/// override must agree with the default in value.
///
/// Under `Autodiff<B>` each operation is one node of the graph, whose gradients are the backward operations of `B`. These compute
/// again what they need instead of keeping it: no scores of attention and no logits outlive an operation.
///
/// The trait is implemented for the backends that this crate's features compile in, and for `Autodiff<B>` of
/// each. For a backend of your own write `impl FusedOps for MyBackend {}`. For one of a third crate, where
/// neither the trait nor the type is yours, wrap the type in one of your own, implement `Backend` for that by
/// delegation, and do the same.
pub trait FusedOps: Backend {
    /// Whether attention reads [`CausalMask::bias`], which is then made once for all layers.
    const READS_MASK_BIAS: bool = true;

    /// Turns the pair (x_i, x_{i+E/2}) of every head by the angle φ_i of its token:
    /// (x_i·cos φ_i − x_{i+E/2}·sin φ_i, x_{i+E/2}·cos φ_i + x_i·sin φ_i).
    ///
    /// *Reference*: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021,
    /// arXiv:2104.09864; on the pairs see [`crate::RotaryTable`].
    ///
    /// # Shapes
    /// - `x`: `[T, heads·E]`, with the angles of as many heads
    /// - returns `[T, heads·E]`
    fn rotary(x: Tensor<Self, 2>, angles: &RotaryAngles<Self>) -> Tensor<Self, 2> {
        rotary::composed(x, angles)
    }

    /// Gradient of [`FusedOps::rotary`] with respect to `x`, from that of its result: `[T, heads·E]` to the same.
    fn rotary_backward(grad: Tensor<Self, 2>, angles: &RotaryAngles<Self>) -> Tensor<Self, 2> {
        rotary::composed_backward(grad, angles)
    }

    /// Divides each row by its root mean square: y = w · x / √(mean(x²) + ε), the mean in f32 or wider.
    ///
    /// *Reference*: Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019, arXiv:1910.07467.
    ///
    /// # Shapes
    /// - `x`: `[N, D]`
    /// - `weight`: `[D]`
    /// - returns `[N, D]`
    fn rms_norm(x: Tensor<Self, 2>, weight: Tensor<Self, 1>, eps: f64) -> Tensor<Self, 2> {
        rms_norm::composed(x, weight, eps)
    }

    /// Gradients of [`FusedOps::rms_norm`] with respect to `x` and `weight`, from that of its result, `[N, D]`.
    fn rms_norm_backward(
        x: Tensor<Self, 2>,
        weight: Tensor<Self, 1>,
        eps: f64,
        grad: Tensor<Self, 2>,
    ) -> (Tensor<Self, 2>, Tensor<Self, 1>) {
        rms_norm::composed_backward(x, weight, eps, grad)
    }

    /// The gated product silu(gate) ⊙ up, with silu(x) = x / (1 + e^−x).
    ///
    /// *Reference*: Shazeer, "GLU Variants Improve Transformer", 2020, arXiv:2002.05202.
    ///
    /// # Shapes
    /// - `gate`, `up`: `[N, F]`
    /// - returns `[N, F]`
    fn gated_silu(gate: Tensor<Self, 2>, up: Tensor<Self, 2>) -> Tensor<Self, 2> {
        gated_silu::composed(gate, up)
    }

    /// Gradients of [`FusedOps::gated_silu`] with respect to `gate` and `up`, from that of its result, `[N, F]`.
    fn gated_silu_backward(
        gate: Tensor<Self, 2>,
        up: Tensor<Self, 2>,
        grad: Tensor<Self, 2>,
    ) -> (Tensor<Self, 2>, Tensor<Self, 2>) {
        gated_silu::composed_backward(gate, up, grad)
    }

    /// Attention softmax(q·kᵀ/√E + mask)·v, in which query head h uses head ⌊h·G/H⌋ of the keys and values;
    /// the softmax in f32 or wider. What a query without any visible key gets is finite and means nothing.
    ///
    /// *Reference*: Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762; Ainslie et al.,
    /// "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints", 2023,
    /// arXiv:2305.13245.
    ///
    /// # Shapes
    /// - `queries`: `[B, S, H, E]`
    /// - `keys`, `values`: `[B, C, G, E]` with C at least the K of the mask; the columns after K are not read
    /// - returns `[B, S, H, E]`
    fn causal_attention(
        queries: Tensor<Self, 4>,
        keys: Tensor<Self, 4>,
        values: Tensor<Self, 4>,
        mask: &CausalMask<Self>,
    ) -> Tensor<Self, 4> {
        attention::composed(queries, keys, values, mask)
    }

    /// Gradients of [`FusedOps::causal_attention`] with respect to `queries`, `keys` and `values`, from that of its result,
    /// `[B, S, H, E]`. Here C = K.
    fn causal_attention_backward(
        queries: Tensor<Self, 4>,
        keys: Tensor<Self, 4>,
        values: Tensor<Self, 4>,
        mask: &CausalMask<Self>,
        grad: Tensor<Self, 4>,
    ) -> [Tensor<Self, 4>; 3] {
        attention::composed_backward(queries, keys, values, mask, grad)
    }

    /// Appends `new` to the first `columns` columns of a cache of keys or values. Not differentiable.
    ///
    /// # Shapes
    /// - `cache`: `[B, C, G, E]` with C ≥ `columns`
    /// - `new`: `[B, S, G, E]`
    /// - returns `[B, C', G, E]` with C' ≥ `columns` + S; what the columns after those hold means nothing
    fn extend_cache(cache: Tensor<Self, 4>, columns: usize, new: Tensor<Self, 4>) -> Tensor<Self, 4> {
        attention::composed_extend_cache(cache, columns, new)
    }

    /// Log-probs (and entropies) of chosen tokens under softmax(hidden·head / temperature), in f32 or wider,
    /// at most [`ScoreOptions::chunk_tokens`] tokens at a time.
    ///
    /// # Shapes
    /// - `hidden`: `[N, D]`
    /// - `head`: `[D, V]`
    /// - `targets`: `[N]`
    ///
    /// # Panics
    /// When `chunk_tokens` is 0.
    fn token_scores(
        hidden: Tensor<Self, 2>,
        head: Tensor<Self, 2>,
        targets: Tensor<Self, 1, Int>,
        options: ScoreOptions,
    ) -> TokenScores<Self> {
        token_scores::composed(hidden, head, targets, options)
    }

    /// Gradients of [`FusedOps::token_scores`] with respect to `hidden` and, if `head_wanted`, to `head`, from those of the
    /// log-probs and, where they are attached, of the entropies, each `[N]`.
    fn token_scores_backward(
        hidden: Tensor<Self, 2>,
        head: Tensor<Self, 2>,
        targets: Tensor<Self, 1, Int>,
        options: ScoreOptions,
        log_prob_grad: Tensor<Self, 1>,
        entropy_grad: Option<Tensor<Self, 1>>,
        head_wanted: bool,
    ) -> (Tensor<Self, 2>, Option<Tensor<Self, 2>>) {
        let given = (log_prob_grad, entropy_grad);
        token_scores::composed_backward(hidden, head, targets, options, given, head_wanted)
    }

    /// Entropy −Σ p·log p of softmax(logits) in nats. Not differentiable: no gradient flows, and no graph is
    /// kept.
    ///
    /// # Shapes
    /// - `logits`: `[N, V]`
    /// - returns `[N]`
    fn entropy(logits: Tensor<Self, 2>) -> Tensor<Self, 1> {
        token_scores::entropy(logits)
    }
}

//! The second door: an objective in Burn tensors, for whoever thinks in tensors or needs autodiff through the weight.
//!
//! Shapes: B responses, T policy tokens of the longest response of the micro-batch.

use std::fmt::Debug;

use burn::tensor::{Bool, Tensor, backend::AutodiffBackend};
use firebrick_core::Requirements;

/// What a tensor objective sees of a micro-batch. Entries where `mask` is false are padding and may hold anything, NaN and
/// infinities too: select with the mask before `exp`, `log` or a division; never multiply by it.
#[derive(Debug, Clone)]
pub struct TensorBatch<B: AutodiffBackend> {
    /// Log-probs under the current policy, `[B, T]`; gradients flow here.
    pub log_probs: Tensor<B, 2>,
    /// Log-probs under the policy that the ratio is anchored at, `[B, T]`.
    pub anchor_log_probs: Tensor<B, 2>,
    /// Advantages, `[B, T]`.
    pub advantages: Tensor<B, 2>,
    /// Aggregation weight of every token, `[B, T]`: the trainer's one denominator is in it. A loss is the sum over tokens
    /// of −weight · J.
    pub weights: Tensor<B, 2>,
    /// Which entries are policy tokens, `[B, T]`.
    pub mask: Tensor<B, 2, Bool>,
}

/// A policy objective in Burn tensors.
pub trait TensorObjective<B: AutodiffBackend>: Debug + Send + Sync {
    /// Returns the loss of a micro-batch, `[1]`: its share of the optimizer batch's loss.
    fn loss(&self, batch: TensorBatch<B>) -> Tensor<B, 1>;

    /// What the objective needs.
    fn requirements(&self) -> Requirements {
        Requirements::default()
    }
}

/// GRPO in tensors: J_t = min(r A, clip(r, 1 − ε_low, 1 + ε_high) A) with the token ratio r.
///
/// The same formula as the host form `grpo` of `firebrick-objectives`; a test holds the two together.
///
/// *Reference*: Shao et al., "DeepSeekMath", 2024, arXiv:2402.03300.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TensorGrpo {
    /// ε_low.
    pub clip_low: f64,
    /// ε_high.
    pub clip_high: f64,
}

impl Default for TensorGrpo {
    /// ε = 0.2 on both sides.
    fn default() -> Self {
        Self { clip_low: 0.2, clip_high: 0.2 }
    }
}

impl<B: AutodiffBackend> TensorObjective<B> for TensorGrpo {
    fn loss(&self, batch: TensorBatch<B>) -> Tensor<B, 1> {
        let padding = batch.mask.bool_not();
        let clean = |values: Tensor<B, 2>| values.mask_fill(padding.clone(), 0.0);
        let advantages = clean(batch.advantages);
        // Beyond ± 20 nats the clamp stops the gradient, as in the host form.
        let log_ratios = (clean(batch.log_probs) - clean(batch.anchor_log_probs)).clamp(-20.0, 20.0);
        let ratios = log_ratios.exp();
        let clipped = ratios.clone().clamp(1.0 - self.clip_low, 1.0 + self.clip_high) * advantages.clone();
        // On a tie `min_pair` gives the whole gradient to its first operand: the unclipped branch, as the host form does.
        let value = (ratios * advantages).min_pair(clipped);
        (value * clean(batch.weights)).sum().neg()
    }
}

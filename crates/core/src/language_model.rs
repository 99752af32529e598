//! The contract of a language model.
//!
//! Shapes: B rows, S positions, N tokens, D hidden size, V vocabulary.

use std::fmt::Debug;

use burn::{
    module::{Module, ModuleDisplay},
    tensor::{Int, Tensor, backend::Backend},
};

/// Whether [`CausalLm::token_scores`] also returns entropies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EntropyMode {
    /// No entropies.
    #[default]
    Skip,
    /// Entropies that no gradient flows through, for metrics.
    Detached,
    /// Entropies with a gradient, for an entropy bonus.
    Attached,
}

/// How chosen tokens are scored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreOptions {
    /// Logits are divided by it, so that log-probs are those of the distribution that tokens were sampled from; above 0.
    pub temperature: f64,
    /// Most tokens whose logits over the vocabulary exist at once; at least 1.
    pub chunk_tokens: usize,
    /// Whether entropies are wanted.
    pub entropy: EntropyMode,
}

impl Default for ScoreOptions {
    /// Temperature 1, chunks of 1024 tokens, no entropy.
    fn default() -> Self {
        Self { temperature: 1.0, chunk_tokens: 1024, entropy: EntropyMode::Skip }
    }
}

/// Log-probs of chosen tokens, with the entropies of the distributions they were chosen from.
#[derive(Debug, Clone)]
pub struct TokenScores<B: Backend> {
    /// Log-probs in nats, `[N]`, in f32 or wider.
    pub log_probs: Tensor<B, 1>,
    /// Entropies in nats, `[N]`; present when asked for.
    pub entropies: Option<Tensor<B, 1>>,
}

/// A decoder language model.
///
/// Positions are explicit, so that rows can be padded on the left during generation. In training rows are padded on
/// the right, where causal attention keeps padding from reaching a real token.
pub trait CausalLm<B: Backend>: Module<B> + ModuleDisplay {
    /// Keys and values of the tokens seen so far.
    type Cache: Debug + Send;

    /// Number of token ids, V.
    fn vocab_size(&self) -> usize;

    /// Number of positions that the model can tell apart.
    fn max_positions(&self) -> usize;

    /// Hidden states before the head.
    ///
    /// # Shapes
    /// - `tokens`, `positions`: `[B, S]`; rows padded on the right with any valid token.
    /// - returns `[B, S, D]`
    fn hidden(&self, tokens: Tensor<B, 2, Int>, positions: Tensor<B, 2, Int>) -> Tensor<B, 3>;

    /// Segments that [`Self::hidden`] can be run in, one after the other, so that a trainer may keep what passes from one to the
    /// next and compute the rest again; at least 1. Default 1.
    fn segments(&self) -> usize {
        1
    }

    /// Runs one segment; all of them in order are [`Self::hidden`].
    ///
    /// # Shapes
    /// - `x`: `[B, S, D]`, what the segment before returned; `None` for the first
    /// - `tokens`, `positions`: `[B, S]`, the same for every segment
    /// - returns `[B, S, D]`
    fn segment(
        &self,
        index: usize,
        x: Option<Tensor<B, 3>>,
        tokens: Tensor<B, 2, Int>,
        positions: Tensor<B, 2, Int>,
    ) -> Tensor<B, 3> {
        debug_assert!(index == 0 && x.is_none(), "the default is one segment");
        self.hidden(tokens, positions)
    }

    /// The model without the adapters that are trained beside its frozen weights, which it shares; `None` for a model without any.
    /// It is the reference policy of a run that trains adapters. Default `None`.
    fn base(&self) -> Option<Self> {
        None
    }

    /// Logits of hidden states.
    ///
    /// # Shapes
    /// - `hidden`: `[N, D]`
    /// - returns `[N, V]`
    fn logits(&self, hidden: Tensor<B, 2>) -> Tensor<B, 2>;

    /// Log-probs (and entropies) of chosen tokens from the hidden states that predict them, in chunks over tokens so
    /// that no `[N, V]` tensor exists for large N.
    ///
    /// # Shapes
    /// - `hidden`: `[N, D]`, N at least 1
    /// - `targets`: `[N]`
    fn token_scores(
        &self,
        hidden: Tensor<B, 2>,
        targets: Tensor<B, 1, Int>,
        options: ScoreOptions,
    ) -> TokenScores<B>;

    /// An empty cache for rows whose first `left_padding[row]` columns are padding.
    fn new_cache(&self, left_padding: &[usize], device: &B::Device) -> Self::Cache;

    /// Appends tokens to the cached rows and returns their hidden states.
    ///
    /// # Shapes
    /// - `tokens`, `positions`: `[B, S]`; entries in a row's left padding are ignored
    /// - returns `[B, S, D]`; entries in left padding are finite but mean nothing
    fn extend(
        &self,
        tokens: Tensor<B, 2, Int>,
        positions: Tensor<B, 2, Int>,
        cache: &mut Self::Cache,
    ) -> Tensor<B, 3>;

    /// Keeps only the given rows of the cache, in this order. A row that is named several times is copied: completions of one
    /// prompt share the reading of it.
    fn retain_rows(&self, cache: &mut Self::Cache, rows: &[usize]);
}

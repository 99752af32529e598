//! From ragged token lists to padded tensors and back: the only place where padding exists.
//!
//! Shapes: B rows, S positions (the longest row of a micro-batch, less its last token), D hidden size, N scored tokens of
//! all rows in row order.

use burn::tensor::{Int, Tensor, TensorData, backend::Backend};
use firebrick_core::{CausalLm, Completion, ScoreOptions, TokenId, TokenScores};

/// Tokens of which some are scored: the policy tokens of a completion, the answer of a worked solution.
#[derive(Debug, Clone, PartialEq)]
pub struct Sequence {
    tokens: Vec<TokenId>,
    scored: Vec<usize>,
}

impl Sequence {
    /// A prompt followed by tokens that are all scored.
    ///
    /// # Panics
    /// When the prompt is empty: its first token would have nothing to be predicted from.
    pub fn prompt_and_response(prompt: &[TokenId], response: &[TokenId]) -> Self {
        assert!(!prompt.is_empty(), "a sequence needs at least one prompt token");
        let scored = (prompt.len()..prompt.len() + response.len()).collect();
        Self { tokens: [prompt, response].concat(), scored }
    }

    /// Tokens with the places of those that are scored; `None` when a place is beyond the tokens or is the first, which
    /// nothing predicts.
    pub(crate) fn from_parts(tokens: Vec<TokenId>, scored: Vec<usize>) -> Option<Self> {
        let fits = !tokens.is_empty() && scored.iter().all(|place| (1..tokens.len()).contains(place));
        fits.then_some(Self { tokens, scored })
    }

    pub(crate) fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    pub(crate) fn scored(&self) -> &[usize] {
        &self.scored
    }

    /// The scored tokens as a device takes them.
    pub(crate) fn scored_tokens(&self) -> impl Iterator<Item = i64> {
        self.scored.iter().map(|place| i64::from(self.tokens[*place]))
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Number of scored tokens.
    pub fn scored_len(&self) -> usize {
        self.scored.len()
    }
}

impl Sequence {
    /// The completion as if it had followed another prompt.
    pub(crate) fn after_prompt(prompt: &[TokenId], completion: &Completion) -> Self {
        let own = completion.tokens().len() - completion.response_tokens().len();
        let scored = completion.policy_positions().map(|place| place - own + prompt.len()).collect();
        Self { tokens: [prompt, completion.response_tokens()].concat(), scored }
    }
}

impl From<&Completion> for Sequence {
    fn from(completion: &Completion) -> Self {
        Self { tokens: completion.tokens().to_vec(), scored: completion.policy_positions().collect() }
    }
}

/// Splits sequences into micro-batches of similar length.
///
/// Returns indices into `lengths`; every index stands in exactly one micro-batch. Rows are taken from the longest to the
/// shortest, and a micro-batch holds at most `max_tokens` positions, padding included, but always at least one row.
/// `None` puts all rows into one micro-batch.
pub fn micro_batches(lengths: &[usize], max_tokens: Option<usize>) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(lengths[*index]));
    let Some(max_tokens) = max_tokens else {
        return if order.is_empty() { Vec::new() } else { vec![order] };
    };
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for index in order {
        match batches.last_mut() {
            Some(batch) if (batch.len() + 1) * lengths[batch[0]] <= max_tokens => batch.push(index),
            _ => batches.push(vec![index]),
        }
    }
    batches
}

/// Scores the chosen tokens of `sequences` with one forward pass.
///
/// # Shapes
/// - returns log-probs (and entropies) `[N]`; `None` when no token is scored
pub fn score<B: Backend, M: CausalLm<B>>(
    model: &M,
    sequences: &[&Sequence],
    options: ScoreOptions,
    device: &B::Device,
) -> Option<TokenScores<B>> {
    let batch = PaddedBatch::new(sequences, device)?;
    Some(model.token_scores(batch.scored_by(model), batch.targets, options))
}

/// Sequences side by side.
///
/// Rows are padded on the right, where causal attention keeps padding from every real token; the hidden states of
/// scored tokens are *selected* before any head, so whatever padding holds never enters a sum.
#[derive(Debug, Clone)]
pub(crate) struct PaddedBatch<B: Backend> {
    /// `[B, S]`.
    pub(crate) tokens: Tensor<B, 2, Int>,
    /// `[B, S]`.
    pub(crate) positions: Tensor<B, 2, Int>,
    /// The scored tokens, `[N]`.
    pub(crate) targets: Tensor<B, 1, Int>,
    /// Where the tokens before them are, over rows and positions, `[N]`.
    predicting: Tensor<B, 1, Int>,
}

impl<B: Backend> PaddedBatch<B> {
    /// `None` when no token is scored.
    pub(crate) fn new(sequences: &[&Sequence], device: &B::Device) -> Option<Self> {
        let width = sequences.iter().map(|sequence| sequence.len() - 1).max()?;
        let mut tokens = Vec::with_capacity(sequences.len() * width);
        let mut positions = Vec::with_capacity(sequences.len() * width);
        let mut predicting = Vec::new();
        let mut targets = Vec::new();
        for (row, sequence) in sequences.iter().enumerate() {
            let inputs = &sequence.tokens[..sequence.len() - 1];
            tokens.extend(inputs.iter().map(|token| i64::from(*token)));
            tokens.resize((row + 1) * width, 0);
            positions.extend(0..width as i64);
            predicting.extend(sequence.scored.iter().map(|scored| (row * width + scored - 1) as i64));
            targets.extend(sequence.scored_tokens());
        }
        if targets.is_empty() {
            return None;
        }
        let shape = [sequences.len(), width];
        let matrix =
            |values: Vec<i64>| Tensor::<B, 2, Int>::from_data(TensorData::new(values, shape), device);
        Some(Self {
            tokens: matrix(tokens),
            positions: matrix(positions),
            targets: ints(targets, device),
            predicting: ints(predicting, device),
        })
    }

    /// The hidden states of `model` that predict the scored tokens, `[N, D]`.
    pub(crate) fn scored_by<M: CausalLm<B>>(&self, model: &M) -> Tensor<B, 2> {
        self.scored(model.hidden(self.tokens.clone(), self.positions.clone()))
    }

    /// Those of all hidden states, `[B, S, D]`, that predict the scored tokens, `[N, D]`.
    pub(crate) fn scored(&self, hidden: Tensor<B, 3>) -> Tensor<B, 2> {
        hidden.flatten::<2>(0, 1).select(0, self.predicting.clone())
    }
}

/// Log-probs of the scored tokens of every sequence, for a model on its inference backend.
///
/// Returns one list per sequence, in order.
pub fn log_probs<B: Backend, M: CausalLm<B>>(
    model: &M,
    sequences: &[&Sequence],
    options: ScoreOptions,
    max_tokens: Option<usize>,
    device: &B::Device,
) -> Vec<Vec<f64>> {
    per_row(sequences, max_tokens, |rows| Some(to_host(score(model, rows, options, device)?.log_probs)))
}

/// Computes one number per scored token, micro-batch by micro-batch; one list per sequence, in order.
pub(crate) fn per_row(
    sequences: &[&Sequence],
    max_tokens: Option<usize>,
    compute: impl Fn(&[&Sequence]) -> Option<Vec<f64>>,
) -> Vec<Vec<f64>> {
    let lengths: Vec<usize> = sequences.iter().map(|sequence| sequence.len()).collect();
    let mut out = vec![Vec::new(); sequences.len()];
    for batch in micro_batches(&lengths, max_tokens) {
        let rows: Vec<&Sequence> = batch.iter().map(|index| sequences[*index]).collect();
        if let Some(values) = compute(&rows) {
            for (index, part) in batch.iter().zip(split_rows(&values, &rows)) {
                out[*index] = part.to_vec();
            }
        }
    }
    out
}

/// Cuts a flat list of scored tokens into one slice per sequence.
pub(crate) fn split_rows<'a>(values: &'a [f64], rows: &[&Sequence]) -> Vec<&'a [f64]> {
    let mut rest = values;
    rows.iter()
        .map(|row| {
            let (head, tail) = rest.split_at(row.scored_len());
            rest = tail;
            head
        })
        .collect()
}

/// Reads a vector from the device: one synchronisation.
pub(crate) fn to_host<B: Backend>(values: Tensor<B, 1>) -> Vec<f64> {
    values.into_data().iter::<f64>().collect()
}

pub(crate) fn ints<B: Backend>(values: Vec<i64>, device: &B::Device) -> Tensor<B, 1, Int> {
    let len = values.len();
    Tensor::from_data(TensorData::new(values, [len]), device)
}

pub(crate) fn floats<B: Backend>(values: Vec<f32>, device: &B::Device) -> Tensor<B, 1> {
    let len = values.len();
    Tensor::from_data(TensorData::new(values, [len]), device)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_over_long_row_gets_a_micro_batch_of_its_own() {
        assert_eq!(micro_batches(&[3, 100, 2, 3], Some(6)), [vec![1], vec![0, 3], vec![2]]);
        assert_eq!(micro_batches(&[3, 5], None), [vec![1, 0]]);
        assert!(micro_batches(&[], None).is_empty() && micro_batches(&[], Some(4)).is_empty());
    }

    proptest! {
        #[test]
        fn every_row_stands_in_exactly_one_micro_batch(
            lengths in prop::collection::vec(1usize..50, 0..40),
            max_tokens in 1usize..200,
        ) {
            let batches = micro_batches(&lengths, Some(max_tokens));
            let mut seen: Vec<usize> = batches.concat();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>());
            for batch in batches {
                let width = batch.iter().map(|row| lengths[*row]).max().unwrap();
                prop_assert!(batch.len() == 1 || batch.len() * width <= max_tokens);
            }
        }
    }
}

//! What needs a policy's whole next-token distribution: its most likely tokens, what another policy makes of them, how
//! concentrated it is.
//!
//! Shapes: N scored tokens, D hidden size, V vocabulary, K tokens per position.

use burn::tensor::{Tensor, TensorData, activation::log_softmax, backend::Backend};
use firebrick_core::{CausalLm, TokenId, TopK};

use crate::{Sequence, micro_batches, sequence::PaddedBatch};

/// Most logits that exist at once, as a number of elements.
const CHUNK_ELEMENTS: usize = 1 << 24;

/// The `k` most likely tokens at every scored position, the likeliest first, ties by token id.
pub(crate) fn top_k<B: Backend, M: CausalLm<B>>(
    model: &M,
    sequences: &[&Sequence],
    k: usize,
    temperature: f64,
    max_tokens: Option<usize>,
    device: &B::Device,
) -> Vec<TopK> {
    let empty = || TopK { k, tokens: Vec::new(), log_probs: Vec::new(), holds_sampled: Vec::new() };
    let mut out: Vec<TopK> = sequences.iter().map(|_| empty()).collect();
    let vocabulary = model.vocab_size();
    each_row(model, sequences, max_tokens, device, |index, hidden, targets| {
        let row = &mut out[index];
        for (hidden, targets) in chunks(hidden, targets, vocabulary) {
            let values: Vec<f64> = log_probs(model, hidden, temperature).into_data().iter::<f64>().collect();
            for (values, target) in values.chunks(vocabulary).zip(targets) {
                let mut order: Vec<usize> = (0..vocabulary).collect();
                let by_value = |a: &usize, b: &usize| values[*b].total_cmp(&values[*a]).then(a.cmp(b));
                if k < vocabulary {
                    order.select_nth_unstable_by(k - 1, by_value);
                    order.truncate(k);
                }
                order.sort_unstable_by(by_value);
                row.holds_sampled.push(order.contains(&(*target as usize)));
                row.log_probs.extend(order.iter().map(|token| values[*token]));
                row.tokens.extend(order.into_iter().map(|token| token as TokenId));
            }
        }
    });
    out
}

/// Log-probs of `tokens` at every scored position, K per position, row by row.
pub(crate) fn log_probs_of<B: Backend, M: CausalLm<B>>(
    model: &M,
    sequences: &[&Sequence],
    tokens: &[&TopK],
    temperature: f64,
    max_tokens: Option<usize>,
    device: &B::Device,
) -> Vec<Vec<f64>> {
    let mut out = vec![Vec::new(); sequences.len()];
    each_row(model, sequences, max_tokens, device, |index, hidden, targets| {
        let k = tokens[index].k;
        let mut wanted = tokens[index].tokens.chunks(k);
        for (hidden, targets) in chunks(hidden, targets, model.vocab_size()) {
            let ids: Vec<i64> =
                wanted.by_ref().take(targets.len()).flatten().map(|token| i64::from(*token)).collect();
            let ids = Tensor::from_data(TensorData::new(ids, [targets.len(), k]), device);
            let picked = log_probs(model, hidden, temperature).gather(1, ids);
            out[index].extend(picked.into_data().iter::<f64>());
        }
    });
    out
}

/// Σ_v π(v)² at every scored position: the chance that two draws are the same token.
pub(crate) fn collision_probabilities<B: Backend, M: CausalLm<B>>(
    model: &M,
    sequences: &[&Sequence],
    temperature: f64,
    max_tokens: Option<usize>,
    device: &B::Device,
) -> Vec<Vec<f64>> {
    let mut out = vec![Vec::new(); sequences.len()];
    each_row(model, sequences, max_tokens, device, |index, hidden, targets| {
        for (hidden, _) in chunks(hidden, targets, model.vocab_size()) {
            let squares = log_probs(model, hidden, temperature).mul_scalar(2.0).exp().sum_dim(1);
            out[index].extend(squares.into_data().iter::<f64>());
        }
    });
    out
}

/// Hands the hidden states `[N, D]` and the scored tokens of each row to `visit`.
fn each_row<B: Backend, M: CausalLm<B>>(
    model: &M,
    sequences: &[&Sequence],
    max_tokens: Option<usize>,
    device: &B::Device,
    mut visit: impl FnMut(usize, Tensor<B, 2>, &[i64]),
) {
    let lengths: Vec<usize> = sequences.iter().map(|sequence| sequence.len()).collect();
    for batch in micro_batches(&lengths, max_tokens) {
        let rows: Vec<&Sequence> = batch.iter().map(|index| sequences[*index]).collect();
        let Some(padded) = PaddedBatch::new(&rows, device) else { continue };
        let hidden = padded.scored_by(model);
        let mut start = 0;
        for (index, row) in batch.into_iter().zip(rows) {
            let len = row.scored_len();
            if len > 0 {
                let targets: Vec<i64> = row.scored_tokens().collect();
                visit(index, hidden.clone().narrow(0, start, len), &targets);
            }
            start += len;
        }
    }
}

/// Cuts a row so that the logits of a piece are bounded.
fn chunks<B: Backend>(
    hidden: Tensor<B, 2>,
    targets: &[i64],
    vocabulary: usize,
) -> impl Iterator<Item = (Tensor<B, 2>, &[i64])> {
    let size = (CHUNK_ELEMENTS / vocabulary).max(1);
    targets
        .chunks(size)
        .enumerate()
        .map(move |(index, targets)| (hidden.clone().narrow(0, index * size, targets.len()), targets))
}

/// Log-probs of the whole vocabulary in f32: `[N, D]` to `[N, V]`.
fn log_probs<B: Backend, M: CausalLm<B>>(model: &M, hidden: Tensor<B, 2>, temperature: f64) -> Tensor<B, 2> {
    log_softmax(model.logits(hidden).cast(burn::tensor::DType::F32).div_scalar(temperature), 1)
}

#[cfg(test)]
mod tests {
    use burn::backend::Flex;
    use firebrick_models::DecoderConfig;

    use super::*;
    use crate::sequence;

    #[test]
    fn the_most_likely_tokens_come_first_and_agree_with_the_scores() {
        let device = Default::default();
        let text = "vocab_size = 7\nhidden_size = 8\nintermediate_size = 16\nnum_hidden_layers = 1\n\
            num_attention_heads = 2\nnum_key_value_heads = 1\nmax_position_embeddings = 16";
        let config: DecoderConfig = toml::from_str(text).unwrap();
        let model = config.init::<Flex>(&device, 3).unwrap();
        let rows =
            [Sequence::prompt_and_response(&[1, 2], &[3, 4, 5]), Sequence::prompt_and_response(&[6], &[0])];
        let rows: Vec<&Sequence> = rows.iter().collect();
        let all = top_k(&model, &rows, 7, 0.7, Some(8), &device);
        let two = top_k(&model, &rows, 2, 0.7, None, &device);
        assert_eq!(
            two[0].tokens,
            all[0].tokens.chunks(7).flat_map(|row| row[..2].to_vec()).collect::<Vec<_>>()
        );
        for (row, sequence) in all.iter().zip(&rows) {
            assert!(row.holds_sampled.iter().all(|held| *held));
            for position in row.log_probs.chunks(7) {
                assert!(position.windows(2).all(|pair| pair[0] >= pair[1]));
                assert!((position.iter().map(|p| p.exp()).sum::<f64>() - 1.0).abs() < 1e-5);
            }
            // The sampled token's log-prob is the one that the trainer computes.
            let options = firebrick_core::ScoreOptions { temperature: 0.7, ..Default::default() };
            let scores = sequence::log_probs(&model, &[sequence], options, None, &device);
            let targets = &sequence.tokens()[sequence.len() - sequence.scored_len()..];
            for ((score, target), (ids, values)) in
                scores[0].iter().zip(targets).zip(row.tokens.chunks(7).zip(row.log_probs.chunks(7)))
            {
                let place = ids.iter().position(|id| id == target).unwrap();
                assert!((values[place] - score).abs() < 1e-5);
            }
        }
        let collisions = collision_probabilities(&model, &rows, 0.7, Some(8), &device);
        for (found, row) in collisions.iter().zip(&all) {
            for (found, position) in found.iter().zip(row.log_probs.chunks(7)) {
                let expected: f64 = position.iter().map(|p| (2.0 * p).exp()).sum();
                assert!((found - expected).abs() < 1e-6);
            }
        }
        let again = log_probs_of(&model, &rows, &all.iter().collect::<Vec<_>>(), 0.7, Some(8), &device);
        for (again, row) in again.iter().zip(&all) {
            assert!(again.iter().zip(&row.log_probs).all(|(a, b)| (a - b).abs() < 1e-6));
        }
    }
}

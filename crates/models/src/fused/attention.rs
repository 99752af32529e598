//! Causal attention with grouped keys and values, composed.

use burn::tensor::{Tensor, backend::Backend};

use super::precision::{narrowed, widened};
use crate::CausalMask;

/// Heads of queries, keys and values, laid out so that one product broadcasts the keys over the R = H/G query heads that share
/// them.
struct Heads<B: Backend> {
    /// Scaled queries, `[B, G, R, S, E]`.
    queries: Tensor<B, 5>,
    /// `[B, G, 1, E, K]`
    keys: Tensor<B, 5>,
    /// `[B, G, 1, K, E]`
    values: Tensor<B, 5>,
}

impl<B: Backend> Heads<B> {
    fn new(queries: Tensor<B, 4>, keys: Tensor<B, 4>, values: Tensor<B, 4>, mask: &CausalMask<B>) -> Self {
        let scale = 1.0 / (queries.dims()[3] as f64).sqrt();
        let [_, _, kv_heads, _] = keys.dims();
        Self {
            queries: by_group(queries.mul_scalar(scale), kv_heads),
            keys: by_group(first_columns(keys, mask.keys()), kv_heads).permute([0, 1, 2, 4, 3]),
            values: by_group(first_columns(values, mask.keys()), kv_heads),
        }
    }

    /// e^score and its sum over the keys, with scores shifted so that the highest is 0; in f32 or wider.
    fn weights(&self, mask: &CausalMask<B>) -> (Tensor<B, 5>, Tensor<B, 5>) {
        let scores = self.queries.clone().matmul(self.keys.clone());
        let scores = masked(widened(scores), mask);
        // Shifting by a constant changes neither value nor gradient, so none flows through the maximum.
        let highest = scores.clone().detach().max_dim(4);
        let weights = (scores - highest).exp();
        let total = weights.clone().sum_dim(4);
        (weights, total)
    }
}

/// The first columns of a cache.
fn first_columns<B: Backend>(cache: Tensor<B, 4>, columns: usize) -> Tensor<B, 4> {
    if cache.dims()[1] == columns { cache } else { cache.narrow(1, 0, columns) }
}

pub(super) fn composed_extend_cache<B: Backend>(
    cache: Tensor<B, 4>,
    columns: usize,
    new: Tensor<B, 4>,
) -> Tensor<B, 4> {
    Tensor::cat(vec![first_columns(cache, columns), new], 1)
}

/// `[B, T, heads, E]` to `[B, G, heads/G, T, E]`.
fn by_group<B: Backend>(x: Tensor<B, 4>, kv_heads: usize) -> Tensor<B, 5> {
    let [rows, columns, heads, head] = x.dims();
    x.reshape([rows, columns, kv_heads, heads / kv_heads, head]).permute([0, 2, 3, 1, 4])
}

/// `[B, G, R, T, E]` to `[B, T, G·R, E]`.
fn by_token<B: Backend>(x: Tensor<B, 5>) -> Tensor<B, 4> {
    let [rows, kv_heads, group, columns, head] = x.dims();
    x.permute([0, 3, 1, 2, 4]).reshape([rows, columns, kv_heads * group, head])
}

pub(super) fn composed<B: Backend>(
    queries: Tensor<B, 4>,
    keys: Tensor<B, 4>,
    values: Tensor<B, 4>,
    mask: &CausalMask<B>,
) -> Tensor<B, 4> {
    let dtype = values.dtype();
    let heads = Heads::new(queries, keys, values, mask);
    let (weights, total) = heads.weights(mask);
    // The division is left to the end, where there are E numbers to divide for each query instead of K.
    by_token(narrowed(weights, dtype).matmul(heads.values)) / by_token(narrowed(total, dtype))
}

/// Gradients of queries, keys and values. The probabilities p are computed again: ∂v = pᵀ·g, and with ∂p = g·vᵀ the scores have
/// ∂s = p ⊙ (∂p − Σ p·∂p).
pub(super) fn composed_backward<B: Backend>(
    queries: Tensor<B, 4>,
    keys: Tensor<B, 4>,
    values: Tensor<B, 4>,
    mask: &CausalMask<B>,
    grad: Tensor<B, 4>,
) -> [Tensor<B, 4>; 3] {
    let dtype = values.dtype();
    let [_, _, kv_heads, head] = keys.dims();
    let heads = Heads::new(queries, keys, values, mask);
    let (weights, total) = heads.weights(mask);
    let weights = weights / total;
    let grad = by_group(grad, kv_heads);
    let transposed = |x: Tensor<B, 5>| x.permute([0, 1, 2, 4, 3]);
    let value_grad = transposed(narrowed(weights.clone(), dtype)).matmul(grad.clone()).sum_dim(2);
    let weight_grad = widened(grad.matmul(transposed(heads.values)));
    let mean = (weights.clone() * weight_grad.clone()).sum_dim(4);
    let score_grad = narrowed(weights * (weight_grad - mean), dtype);
    let scale = 1.0 / (head as f64).sqrt();
    let query_grad = score_grad.clone().matmul(transposed(heads.keys)).mul_scalar(scale);
    let key_grad = transposed(score_grad).matmul(heads.queries).sum_dim(2);
    [query_grad, key_grad, value_grad].map(by_token)
}

/// Adds the mask to scores `[B, G, H/G, S, K]`.
fn masked<B: Backend>(scores: Tensor<B, 5>, mask: &CausalMask<B>) -> Tensor<B, 5> {
    let Some(bias) = mask.bias(&scores.device()) else { return scores };
    let shape = scores.dims();
    let [rows, kv_heads, group, columns, seen] = shape;
    let bias = narrowed(bias, scores.dtype());
    match bias.dims()[0] {
        // Flat, so that one row of numbers is added to all others.
        1 => {
            let flat = scores.reshape([rows * kv_heads * group, columns * seen]);
            (flat + bias.reshape([1, columns * seen])).reshape(shape)
        }
        _ => scores + bias.reshape([rows, 1, 1, columns, seen]),
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Tensor, backend::Backend};

    use crate::{
        CausalMask,
        reference::attend,
        testing::{assert_close, numbers, on_both_backends, tensor, values},
    };

    const HEAD: usize = 4;

    fn heads<B: Backend>(seed: u64, shape: [usize; 3]) -> (Tensor<B, 4>, Vec<Vec<f64>>) {
        let [rows, columns, heads] = shape;
        let list = numbers(seed, rows * columns * heads * HEAD);
        let vectors = list.chunks_exact(HEAD).map(|head| head.iter().map(|x| f64::from(*x)).collect());
        let vectors = vectors.collect();
        (tensor(&list, [rows, columns, heads, HEAD]), vectors)
    }

    on_both_backends! {
        /// Six query heads share two heads of keys and values; the last three of five positions ask.
        fn agrees_with_plain_loops_over_grouped_heads_and_left_padding<B>() {
            let (rows, queries, seen, query_heads, kv_heads) = (2, 3, 5, 6, 2);
            let (q, q_list) = heads::<B>(1, [rows, queries, query_heads]);
            let (k, k_list) = heads(2, [rows, seen, kv_heads]);
            let (v, v_list) = heads(3, [rows, seen, kv_heads]);
            for padding in [[0, 0], [0, 2]] {
                let mask = CausalMask::new(queries, seen, padding.into());
                let mut expected = Vec::new();
                for row in 0..rows {
                    for query in 0..queries {
                        for head in 0..query_heads {
                            let list = |list: &[Vec<f64>]| -> Vec<Vec<f64>> {
                                let columns = padding[row]..seen - queries + query + 1;
                                let index = |column| (row * seen + column) * kv_heads + head / 3;
                                columns.map(|column| list[index(column)].clone()).collect()
                            };
                            let (keys, values) = (list(&k_list), list(&v_list));
                            let query = &q_list[(row * queries + query) * query_heads + head];
                            let slices = |list| <[Vec<f64>]>::iter(list).map(Vec::as_slice);
                            expected.extend(attend(query, slices(&keys), slices(&values)));
                        }
                    }
                }
                let attended = B::causal_attention(q.clone(), k.clone(), v.clone(), &mask);
                assert_close(&values(&attended), &expected, 1e-6);
            }
        }

        fn a_query_that_sees_padding_only_is_finite<B>() {
            let (q, _) = heads::<B>(1, [1, 2, 2]);
            let (k, _) = heads(2, [1, 2, 2]);
            let mask = CausalMask::new(2, 2, [2].into());
            let attended = values(&B::causal_attention(q, k.clone(), k, &mask));
            assert!(attended.iter().all(|x| x.is_finite()), "{attended:?}");
        }

        fn scores_far_beyond_the_range_of_exp_are_all_right<B>() {
            let q = tensor::<B, 4>(&[1000.0, 0.0], [1, 1, 1, 2]);
            let k = tensor(&[1000.0, 0.0, -1000.0, 0.0], [1, 2, 1, 2]);
            let v = tensor(&[1.0, 2.0, 3.0, 4.0], [1, 2, 1, 2]);
            let attended = B::causal_attention(q, k, v, &CausalMask::new(1, 2, [].into()));
            assert_close(&values(&attended), &[1.0, 2.0], 0.0);
        }
    }
}

//! Causal attention with grouped keys and values, composed.

use burn::tensor::{Tensor, backend::Backend};

use super::precision::{narrowed, widened};
use crate::CausalMask;

pub(super) fn composed<B: Backend>(
    queries: Tensor<B, 4>,
    keys: Tensor<B, 4>,
    values: Tensor<B, 4>,
    mask: &CausalMask<B>,
) -> Tensor<B, 4> {
    let [rows, columns, heads, head] = queries.dims();
    let [_, seen, kv_heads, _] = keys.dims();
    let group = heads / kv_heads;
    // One product broadcasts the keys over the query heads that share them: [B, G, H/G, S, K].
    let queries = queries.mul_scalar(1.0 / (head as f64).sqrt());
    let queries = queries.reshape([rows, columns, kv_heads, group, head]).permute([0, 2, 3, 1, 4]);
    let keys = keys.reshape([rows, seen, kv_heads, 1, head]).permute([0, 2, 3, 4, 1]);
    let values = values.reshape([rows, seen, kv_heads, 1, head]).permute([0, 2, 3, 1, 4]);

    let scores = masked(widened(queries.matmul(keys)), mask);
    // Shifting by a constant changes neither value nor gradient, so none flows through the maximum.
    let highest = scores.clone().detach().max_dim(4);
    let weights = (scores - highest).exp();
    let total = weights.clone().sum_dim(4);
    let dtype = values.dtype();
    let attended = narrowed(weights, dtype).matmul(values).permute([0, 3, 1, 2, 4]);
    let total = narrowed(total, dtype).permute([0, 3, 1, 2, 4]);
    // The division is left to the end, where there are E numbers to divide for each query instead of K.
    attended.reshape([rows, columns, heads, head]) / total.reshape([rows, columns, heads, 1])
}

/// Adds the mask to scores `[B, G, H/G, S, K]`.
fn masked<B: Backend>(scores: Tensor<B, 5>, mask: &CausalMask<B>) -> Tensor<B, 5> {
    let Some(bias) = mask.bias() else { return scores };
    let shape = scores.dims();
    let [rows, kv_heads, group, columns, seen] = shape;
    let bias = widened(bias.clone());
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
        mask::hide_left,
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
            let device = Default::default();
            for padding in [[0, 0], [0, 2]] {
                let mut mask = CausalMask::new(queries, seen, &device);
                if let Some(hidden) = hide_left(&padding, &device) {
                    let rest = Tensor::zeros([rows, seen - 2], &device);
                    mask = mask.with_padding(Tensor::cat(vec![hidden, rest], 1));
                }
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
            let device = Default::default();
            let hidden = hide_left(&[2], &device).unwrap();
            let mask = CausalMask::new(2, 2, &device).with_padding(hidden);
            let attended = values(&B::causal_attention(q, k.clone(), k, &mask));
            assert!(attended.iter().all(|x| x.is_finite()), "{attended:?}");
        }

        fn scores_far_beyond_the_range_of_exp_are_all_right<B>() {
            let q = tensor::<B, 4>(&[1000.0, 0.0], [1, 1, 1, 2]);
            let k = tensor(&[1000.0, 0.0, -1000.0, 0.0], [1, 2, 1, 2]);
            let v = tensor(&[1.0, 2.0, 3.0, 4.0], [1, 2, 1, 2]);
            let attended = B::causal_attention(q, k, v, &CausalMask::new(1, 2, &Default::default()));
            assert_close(&values(&attended), &[1.0, 2.0], 0.0);
        }
    }
}

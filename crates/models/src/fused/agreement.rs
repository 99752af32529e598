//! Every operation agrees with its composed form, in value and in gradient, on shapes, masks and lengths of all kinds.

use burn::{
    backend::Autodiff,
    tensor::{DType, FloatDType, Int, Tensor, backend::Backend},
};
use firebrick_core::{EntropyMode, ScoreOptions, TokenScores};
use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

use super::{FusedOps, attention, gated_silu, rms_norm, rotary, token_scores};
use crate::{
    CausalMask,
    testing::{assert_close, int_tensor, numbers, on_both_backends, rotary_table, tensor, values},
};

/// Value and gradients of Σ result · w, with numbers w of their own for each entry.
struct Differentiated {
    value: Vec<f64>,
    gradients: Vec<Vec<f64>>,
}

fn differentiate<B: FusedOps, const D: usize, const R: usize, const N: usize>(
    inputs: [Tensor<B, D>; N],
    operation: impl Fn([Tensor<Autodiff<B>, D>; N]) -> Tensor<Autodiff<B>, R>,
) -> Differentiated {
    let inputs = inputs.map(|input| Tensor::<Autodiff<B>, D>::from_inner(input).require_grad());
    let result = operation(inputs.clone());
    let weights = tensor(&numbers(99, result.shape().num_elements()), result.dims());
    let value = values(&result);
    let gradients = (result * weights).sum().backward();
    let gradients =
        inputs.iter().map(|input| values(&input.grad(&gradients).expect("a gradient of each input")));
    Differentiated { value, gradients: gradients.collect() }
}

/// Asserts that value and gradients agree to `tolerance` of the largest entry.
#[track_caller]
fn assert_agree(found: &Differentiated, expected: &Differentiated, tolerance: f64) {
    let lists = std::iter::once((&found.value, &expected.value));
    let lists = lists.chain(found.gradients.iter().zip(&expected.gradients));
    for (name, (found, expected)) in ["value", "gradient 0", "gradient 1", "gradient 2"].iter().zip(lists) {
        assert_eq!(found.len(), expected.len(), "{name}");
        let scale = expected.iter().fold(1.0f64, |max, x| max.max(x.abs()));
        for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
            let close = (found - expected).abs() <= tolerance * scale; // false for NaN
            assert!(close, "{name}, entry {index}: found {found}, expected {expected}");
        }
    }
}

fn random<B: Backend, const D: usize>(seed: u64, shape: [usize; D], scale: f32) -> Tensor<B, D> {
    let list: Vec<f32> =
        numbers(seed, shape.iter().product()).into_iter().map(|number| scale * number).collect();
    tensor(&list, shape)
}

/// Runs `check` on `count` draws of `strategy`, always the same.
fn for_each<S: Strategy>(count: u32, strategy: S, check: impl Fn(S::Value)) {
    let config = ProptestConfig { cases: count, failure_persistence: None, ..ProptestConfig::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let outcome = TestRunner::new_with_rng(config, rng).run(&strategy, |value| {
        check(value);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// A mask, and sizes of an attention: rows, query heads for each head of keys, heads of keys, width of a head.
#[derive(Debug, Clone)]
struct AttentionCase {
    queries: usize,
    cached: usize,
    padding: Vec<usize>,
    group: usize,
    kv_heads: usize,
    head: usize,
}

fn attention_cases() -> impl Strategy<Value = AttentionCase> {
    let queries = prop_oneof![3 => 1usize..6, 1 => 60usize..70, 1 => 125usize..140];
    let sizes = (queries, 0usize..20, 1usize..4, 1usize..4, 1usize..4, 1usize..10);
    sizes.prop_flat_map(|(queries, cached, rows, group, kv_heads, half)| {
        let padding = prop_oneof![
            Just(vec![0; rows]),
            // Some rows may be padding up to and beyond the first query.
            prop::collection::vec(0..=cached + queries / 2, rows),
        ];
        padding.prop_map(move |padding| AttentionCase {
            queries,
            cached,
            padding,
            group,
            kv_heads,
            head: 2 * half,
        })
    })
}

impl AttentionCase {
    fn inputs<B: Backend>(&self) -> [Tensor<B, 4>; 3] {
        let (rows, keys) = (self.padding.len(), self.cached + self.queries);
        let queries = random(1, [rows, self.queries, self.group * self.kv_heads, self.head], 3.0);
        let [keys, values] = [2, 3].map(|seed| random(seed, [rows, keys, self.kv_heads, self.head], 2.0));
        [queries, keys, values]
    }

    fn mask<B: Backend>(&self) -> CausalMask<B> {
        CausalMask::new(self.queries, self.cached + self.queries, self.padding.as_slice().into())
    }

    /// Removes what queries without any visible key give and get, which means nothing.
    fn without_blind<B: Backend>(&self, attended: Tensor<B, 4>) -> Tensor<B, 4> {
        let [rows, queries, heads, head] = attended.dims();
        let sees = |row: usize, query: usize| self.cached + query + 1 > self.padding[row];
        let keep = (0..rows * queries).map(|at| f32::from(u8::from(sees(at / queries, at % queries))));
        let keep: Vec<f32> = keep.flat_map(|keep| std::iter::repeat_n(keep, heads * head)).collect();
        attended * tensor(&keep, [rows, queries, heads, head])
    }
}

on_both_backends! {
    fn attention_is_its_composed_form<B>() {
        for_each(48, attention_cases(), |case| {
            let found = differentiate::<B, 4, 4, 3>(case.inputs(), |[q, k, v]| {
                case.without_blind(FusedOps::causal_attention(q, k, v, &case.mask()))
            });
            let expected = differentiate::<B, 4, 4, 3>(case.inputs(), |[q, k, v]| {
                case.without_blind(attention::composed(q, k, v, &case.mask()))
            });
            assert_agree(&found, &expected, 2e-5);
        });
    }

    fn a_cache_that_was_extended_serves_attention_as_its_columns_do<B>() {
        for_each(32, attention_cases(), |case| {
            let [q, k, v] = case.inputs::<B>();
            let (keys, added) = (case.cached + case.queries, case.queries);
            if case.cached == 0 {
                return;
            }
            // In two parts, of which the second usually finds room.
            let extended = |all: &Tensor<B, 4>| {
                let cache = all.clone().narrow(1, 0, case.cached);
                let first = added / 2;
                let cache = match first {
                    0 => cache,
                    _ => B::extend_cache(cache, case.cached, all.clone().narrow(1, case.cached, first)),
                };
                let columns = case.cached + first;
                B::extend_cache(cache, columns, all.clone().narrow(1, columns, keys - columns))
            };
            let found = B::causal_attention(q.clone(), extended(&k), extended(&v), &case.mask());
            let expected = B::causal_attention(q, k, v, &case.mask());
            assert_eq!(values(&found), values(&expected));
        });
    }

    /// Kernels are for f32; the attention of anything else is composed, and its cache too.
    fn other_types_of_numbers_are_served_too<B>() {
        let case = AttentionCase { queries: 2, cached: 3, padding: vec![0, 1], group: 2, kv_heads: 1, head: 4 };
        let [q, k, v] = case.inputs::<B>().map(|input| input.cast(FloatDType::F64));
        let extended = |all: &Tensor<B, 4>| {
            B::extend_cache(all.clone().narrow(1, 0, 3), 3, all.clone().narrow(1, 3, 2))
        };
        let found = B::causal_attention(q, extended(&k), extended(&v), &case.mask());
        assert_eq!(found.dtype(), DType::F64);
        let [q, k, v] = case.inputs::<B>();
        let expected = values(&B::causal_attention(q, k, v, &case.mask()));
        assert_close(&values(&found), &expected, 1e-5);
    }

    fn rotation_is_its_composed_form<B>() {
        for_each(32, (1usize..200, 1usize..5, 1usize..20), |(tokens, heads, half)| {
            let table = rotary_table::<Autodiff<B>>(300, 2 * half, 50.0);
            let positions = int_tensor((0..tokens).map(|token| token * 7 % 300), [tokens]);
            let angles = table.angles(positions, heads);
            let input = || [random(1, [tokens, heads * 2 * half], 2.0)];
            let found = differentiate::<B, 2, 2, 1>(input(), |[x]| FusedOps::rotary(x, &angles));
            let expected = differentiate::<B, 2, 2, 1>(input(), |[x]| rotary::composed(x, &angles));
            assert_agree(&found, &expected, 1e-6);
        });
    }

    fn the_norm_is_its_composed_form<B>() {
        for_each(32, (1usize..200, 1usize..300), |(rows, width)| {
            let weight = random::<B, 1>(2, [width], 2.0);
            let inputs = || [random(1, [rows, width], 2.0), weight.clone().unsqueeze()];
            let found = differentiate::<B, 2, 2, 2>(inputs(), |[x, weight]| {
                FusedOps::rms_norm(x, weight.squeeze_dim(0), 1e-5)
            });
            let expected = differentiate::<B, 2, 2, 2>(inputs(), |[x, weight]| {
                rms_norm::composed(x, weight.squeeze_dim(0), 1e-5)
            });
            assert_agree(&found, &expected, 1e-5);
        });
    }

    fn the_gate_is_its_composed_form<B>() {
        for_each(32, (1usize..200, 1usize..300), |(rows, width)| {
            let inputs = || [1, 2].map(|seed| random(seed, [rows, width], 8.0));
            let found = differentiate::<B, 2, 2, 2>(inputs(), |[gate, up]| FusedOps::gated_silu(gate, up));
            let expected =
                differentiate::<B, 2, 2, 2>(inputs(), |[gate, up]| gated_silu::composed(gate, up));
            assert_agree(&found, &expected, 2e-6);
        });
    }

    /// With a head of its own and one that is a transposed embedding, with and without entropies.
    fn scores_are_their_composed_form<B>() {
        let modes = prop_oneof![
            Just(EntropyMode::Skip),
            Just(EntropyMode::Detached),
            Just(EntropyMode::Attached)
        ];
        let sizes = (1usize..40, 1usize..20, 2usize..400, 1usize..50, 1u32..4, modes, any::<bool>());
        for_each(48, sizes, |(tokens, width, vocab, chunk_tokens, warmth, entropy, tied)| {
            let options = ScoreOptions { temperature: 0.5 * f64::from(warmth), chunk_tokens, entropy };
            let targets = || -> Tensor<Autodiff<B>, 1, Int> {
                int_tensor((0..tokens).map(|token| token * 31 % vocab), [tokens])
            };
            let inputs = || {
                let head = if tied { [vocab, width] } else { [width, vocab] };
                [random(1, [tokens, width], 2.0), random(2, head, 2.0)]
            };
            let joined = |scores: TokenScores<Autodiff<B>>| match scores.entropies {
                Some(entropies) => Tensor::cat(vec![scores.log_probs, entropies], 0),
                None => scores.log_probs,
            };
            let head = |head: Tensor<Autodiff<B>, 2>| if tied { head.transpose() } else { head };
            let found = differentiate::<B, 2, 1, 2>(inputs(), |[hidden, weight]| {
                joined(FusedOps::token_scores(hidden, head(weight), targets(), options))
            });
            let expected = differentiate::<B, 2, 1, 2>(inputs(), |[hidden, weight]| {
                joined(token_scores::composed(hidden, head(weight), targets(), options))
            });
            assert_agree(&found, &expected, 2e-5);
        });
    }
}

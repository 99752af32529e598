//! What the tests of this crate share.

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::{Int, Tensor, TensorData, backend::Backend},
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{DecoderConfig, RotaryTable, rope_scaling::RotaryFrequencies};

/// Makes a `#[test]` of a function that is generic over the backend run on every CPU backend, and with the feature `cuda` on
/// the GPU.
macro_rules! on_both_backends {
    ($($(#[$attribute:meta])* fn $name:ident<$B:ident>() $body:block)*) => {
        $(
            $(#[$attribute])*
            #[test]
            fn $name() {
                fn check<$B: crate::FusedOps>() $body
                check::<burn_flex::Flex>();
                check::<burn_ndarray::NdArray<f32>>();
                #[cfg(feature = "cuda")]
                check::<burn::backend::Cuda>();
            }
        )*
    };
}
pub(crate) use on_both_backends;

/// Two layers, four query heads that share two heads of keys and values.
pub(crate) fn tiny_config() -> DecoderConfig {
    DecoderConfig {
        vocab_size: 11,
        hidden_size: 16,
        intermediate_size: 20,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: None,
        max_position_embeddings: 32,
        rope_theta: 100.0,
        rms_norm_eps: 1e-5,
        tie_word_embeddings: false,
        attention_bias: false,
        attention_output_bias: false,
        mlp_bias: false,
        rope_scaling: None,
        qk_norm: false,
        initializer_range: 0.15,
    }
}

/// The angles of `positions` positions for heads of width `head`.
pub(crate) fn rotary_table<B: Backend>(positions: usize, head: usize, theta: f64) -> RotaryTable<B> {
    RotaryTable::new(positions, &RotaryFrequencies::new(head, theta, None), &Default::default())
}

/// Numbers in (−1, 1), the same for the same seed.
pub(crate) fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..len).map(|_| 2.0 * rng.random::<f32>() - 1.0).collect()
}

/// Adds numbers in (−0.2, 0.2) to every parameter, so that no bias is zero and no norm is one.
pub(crate) fn jittered<B: Backend, M: Module<B>>(module: M, seed: u64) -> M {
    struct Jitter(u64);
    impl<B: Backend> ModuleMapper<B> for Jitter {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
            self.0 += 1;
            let shape: [usize; D] = param.dims();
            let noise = tensor(&numbers(self.0, shape.iter().product()), shape).mul_scalar(0.2);
            param.map(|value| (value.detach() + noise).detach().require_grad())
        }
    }
    module.map(&mut Jitter(1000 * seed))
}

pub(crate) fn tensor<B: Backend, const D: usize>(values: &[f32], shape: [usize; D]) -> Tensor<B, D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), &Default::default())
}

pub(crate) fn int_tensor<B: Backend, const D: usize>(
    values: impl IntoIterator<Item = usize>,
    shape: [usize; D],
) -> Tensor<B, D, Int> {
    let values: Vec<i64> = values.into_iter().map(|value| value as i64).collect();
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

pub(crate) fn values<B: Backend, const D: usize>(tensor: &Tensor<B, D>) -> Vec<f64> {
    tensor.to_data().iter::<f64>().collect()
}

/// Asserts that two lists agree to `tolerance`, absolutely.
#[track_caller]
pub(crate) fn assert_close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let close = (found - expected).abs() <= tolerance; // false for NaN
        assert!(close, "entry {index}: found {found}, expected {expected}");
    }
}

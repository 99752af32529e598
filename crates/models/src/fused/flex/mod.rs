//! The operations on burn-flex: vectorised and threaded kernels for f32; anything else is composed.
//!
//! What a kernel returns does not depend on the number of threads: work is cut into pieces of fixed size, each computed by one
//! thread, and sums over pieces are taken in their order.

mod attention;
mod matrix;
mod row_wise;
mod simd;
mod token_scores;

use burn::tensor::{DType, Int, Shape, Tensor, TensorData, TensorPrimitive};
use burn_flex::{Flex, FlexTensor};
use firebrick_core::{ScoreOptions, TokenScores};

use super::FusedOps;
use crate::{CausalMask, RotaryAngles};

impl FusedOps for Flex {
    const READS_MASK_BIAS: bool = false;

    fn rotary(x: Tensor<Self, 2>, angles: &RotaryAngles<Self>) -> Tensor<Self, 2> {
        match all_f32([x.dtype(), angles.cos.dtype()]) {
            true => row_wise::rotary(x, angles, 1.0),
            false => super::rotary::composed(x, angles),
        }
    }

    fn rotary_backward(grad: Tensor<Self, 2>, angles: &RotaryAngles<Self>) -> Tensor<Self, 2> {
        match all_f32([grad.dtype(), angles.cos.dtype()]) {
            true => row_wise::rotary(grad, angles, -1.0),
            false => super::rotary::composed_backward(grad, angles),
        }
    }

    fn rms_norm(x: Tensor<Self, 2>, weight: Tensor<Self, 1>, eps: f64) -> Tensor<Self, 2> {
        match all_f32([x.dtype(), weight.dtype()]) {
            true => row_wise::rms_norm(x, weight, eps),
            false => super::rms_norm::composed(x, weight, eps),
        }
    }

    fn rms_norm_backward(
        x: Tensor<Self, 2>,
        weight: Tensor<Self, 1>,
        eps: f64,
        grad: Tensor<Self, 2>,
    ) -> (Tensor<Self, 2>, Tensor<Self, 1>) {
        match all_f32([x.dtype(), weight.dtype(), grad.dtype()]) {
            true => row_wise::rms_norm_backward(x, weight, eps, grad),
            false => super::rms_norm::composed_backward(x, weight, eps, grad),
        }
    }

    fn gated_silu(gate: Tensor<Self, 2>, up: Tensor<Self, 2>) -> Tensor<Self, 2> {
        match all_f32([gate.dtype(), up.dtype()]) {
            true => row_wise::gated_silu(gate, up),
            false => super::gated_silu::composed(gate, up),
        }
    }

    fn gated_silu_backward(
        gate: Tensor<Self, 2>,
        up: Tensor<Self, 2>,
        grad: Tensor<Self, 2>,
    ) -> (Tensor<Self, 2>, Tensor<Self, 2>) {
        match all_f32([gate.dtype(), up.dtype(), grad.dtype()]) {
            true => row_wise::gated_silu_backward(gate, up, grad),
            false => super::gated_silu::composed_backward(gate, up, grad),
        }
    }

    fn causal_attention(
        queries: Tensor<Self, 4>,
        keys: Tensor<Self, 4>,
        values: Tensor<Self, 4>,
        mask: &CausalMask<Self>,
    ) -> Tensor<Self, 4> {
        match all_f32([queries.dtype(), keys.dtype(), values.dtype()]) {
            true => attention::forward(queries, keys, values, mask),
            false => super::attention::composed(queries, keys, values, mask),
        }
    }

    fn causal_attention_backward(
        queries: Tensor<Self, 4>,
        keys: Tensor<Self, 4>,
        values: Tensor<Self, 4>,
        mask: &CausalMask<Self>,
        grad: Tensor<Self, 4>,
    ) -> [Tensor<Self, 4>; 3] {
        match all_f32([queries.dtype(), keys.dtype(), values.dtype(), grad.dtype()]) {
            true => attention::backward(queries, keys, values, mask, grad),
            false => super::attention::composed_backward(queries, keys, values, mask, grad),
        }
    }

    fn extend_cache(cache: Tensor<Self, 4>, columns: usize, new: Tensor<Self, 4>) -> Tensor<Self, 4> {
        match all_f32([cache.dtype(), new.dtype()]) {
            true => attention::extend_cache(cache, columns, new),
            false => super::attention::composed_extend_cache(cache, columns, new),
        }
    }

    fn token_scores(
        hidden: Tensor<Self, 2>,
        head: Tensor<Self, 2>,
        targets: Tensor<Self, 1, Int>,
        options: ScoreOptions,
    ) -> TokenScores<Self> {
        match all_f32([hidden.dtype(), head.dtype()]) {
            true => token_scores::forward(hidden, head, targets, options),
            false => super::token_scores::composed(hidden, head, targets, options),
        }
    }

    fn token_scores_backward(
        hidden: Tensor<Self, 2>,
        head: Tensor<Self, 2>,
        targets: Tensor<Self, 1, Int>,
        options: ScoreOptions,
        log_prob_grad: Tensor<Self, 1>,
        entropy_grad: Option<Tensor<Self, 1>>,
        head_wanted: bool,
    ) -> (Tensor<Self, 2>, Option<Tensor<Self, 2>>) {
        let entropy_dtype = entropy_grad.as_ref().map_or(DType::F32, Tensor::dtype);
        let all_f32 = all_f32([hidden.dtype(), head.dtype(), log_prob_grad.dtype(), entropy_dtype]);
        let given = (log_prob_grad, entropy_grad);
        match all_f32 {
            true => token_scores::backward(hidden, head, targets, options, given, head_wanted),
            false => {
                super::token_scores::composed_backward(hidden, head, targets, options, given, head_wanted)
            }
        }
    }
}

fn all_f32<const N: usize>(types: [DType; N]) -> bool {
    types.iter().all(|dtype| *dtype == DType::F32)
}

/// The tensor, copied if its numbers do not follow one another.
fn contiguous<const D: usize>(tensor: Tensor<Flex, D>) -> FlexTensor {
    let tensor: FlexTensor = tensor.into_primitive().tensor();
    if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() }
}

/// The numbers of a tensor of [`contiguous`].
fn numbers(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().expect("a contiguous tensor of f32")
}

/// A tensor of these numbers, without a copy.
fn tensor<const D: usize>(values: Vec<f32>, shape: [usize; D]) -> Tensor<Flex, D> {
    let primitive = FlexTensor::from_data(TensorData::new(values, Shape::from(shape)));
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

//! Operations on one row after the other: rotation, norm, gate.

use burn::tensor::Tensor;
use burn_flex::Flex;
use rayon::prelude::*;

use super::{
    contiguous, numbers,
    simd::{Kernel, exp, mul_add, run, sum_pairs},
    tensor,
};
use crate::RotaryAngles;

/// Numbers that one thread works on at a time.
const PIECE: usize = 1 << 15;

/// Numbers of a piece that is whole rows, at least one.
fn whole_rows(width: usize) -> usize {
    (PIECE / width.max(1)).max(1) * width
}

/// Turns pairs by their angles times `direction`.
pub(super) fn rotary(x: Tensor<Flex, 2>, angles: &RotaryAngles<Flex>, direction: f32) -> Tensor<Flex, 2> {
    let [tokens, width] = x.dims();
    let [head, _] = angles.quarter_turn.dims();
    let [x, cos, sin] = [x, angles.cos.clone(), angles.sin.clone()].map(contiguous);
    let mut turned = vec![0.0; tokens * width];
    let size = whole_rows(width);
    turned
        .par_chunks_mut(size)
        .zip(numbers(&x).par_chunks(size))
        .zip(numbers(&cos).par_chunks(size).zip(numbers(&sin).par_chunks(size)))
        .for_each(|((turned, x), (cos, sin))| run(Rotary { turned, x, cos, sin, head, direction }));
    tensor(turned, [tokens, width])
}

struct Rotary<'a> {
    turned: &'a mut [f32],
    x: &'a [f32],
    cos: &'a [f32],
    sin: &'a [f32],
    head: usize,
    direction: f32,
}

impl Kernel for Rotary<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let half = self.head / 2;
        let heads = self.turned.chunks_exact_mut(self.head).zip(self.x.chunks_exact(self.head));
        let angles = self.cos.chunks_exact(self.head).zip(self.sin.chunks_exact(self.head));
        for ((turned, x), (cos, sin)) in heads.zip(angles) {
            // Both halves of a head turn by the same angles.
            let ((a, b), (turned_a, turned_b)) = (x.split_at(half), turned.split_at_mut(half));
            let (cos, sin) = (&cos[..half], &sin[..half]);
            for i in 0..half {
                let sin = sin[i] * self.direction;
                turned_a[i] = mul_add::<FMA>(a[i], cos[i], -(b[i] * sin));
                turned_b[i] = mul_add::<FMA>(b[i], cos[i], a[i] * sin);
            }
        }
    }
}

pub(super) fn rms_norm(x: Tensor<Flex, 2>, weight: Tensor<Flex, 1>, eps: f64) -> Tensor<Flex, 2> {
    let [rows, width] = x.dims();
    let (x, weight) = (contiguous(x), contiguous(weight));
    let mut normed = vec![0.0; rows * width];
    let size = whole_rows(width);
    let weight = numbers(&weight);
    let pieces = normed.par_chunks_mut(size).zip(numbers(&x).par_chunks(size));
    pieces.for_each(|(normed, x)| run(RmsNorm { normed, x, weight, eps: eps as f32 }));
    tensor(normed, [rows, width])
}

struct RmsNorm<'a> {
    normed: &'a mut [f32],
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
}

/// 1/√(mean(x²) + ε).
#[inline(always)]
fn inverse_root<const FMA: bool>(x: &[f32], eps: f32) -> f32 {
    1.0 / (sum_pairs(x, x, mul_add::<FMA>) / x.len() as f32 + eps).sqrt()
}

impl Kernel for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let width = self.weight.len();
        for (normed, x) in self.normed.chunks_exact_mut(width).zip(self.x.chunks_exact(width)) {
            let factor = inverse_root::<FMA>(x, self.eps);
            for ((normed, x), weight) in normed.iter_mut().zip(x).zip(self.weight) {
                *normed = x * factor * weight;
            }
        }
    }
}

pub(super) fn rms_norm_backward(
    x: Tensor<Flex, 2>,
    weight: Tensor<Flex, 1>,
    eps: f64,
    grad: Tensor<Flex, 2>,
) -> (Tensor<Flex, 2>, Tensor<Flex, 1>) {
    let [rows, width] = x.dims();
    let (x, weight, grad) = (contiguous(x), contiguous(weight), contiguous(grad));
    let weight = numbers(&weight);
    let mut x_grad = vec![0.0; rows * width];
    let size = whole_rows(width);
    let parts: Vec<Vec<f32>> = x_grad
        .par_chunks_mut(size)
        .zip(numbers(&x).par_chunks(size).zip(numbers(&grad).par_chunks(size)))
        .map(|(x_grad, (x, grad))| {
            let mut weight_grad = vec![0.0; width];
            run(RmsNormBackward { x_grad, weight_grad: &mut weight_grad, x, weight, grad, eps: eps as f32 });
            weight_grad
        })
        .collect();
    let mut weight_grad = vec![0.0; width];
    for part in parts {
        weight_grad.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    (tensor(x_grad, [rows, width]), tensor(weight_grad, [width]))
}

struct RmsNormBackward<'a> {
    x_grad: &'a mut [f32],
    weight_grad: &'a mut [f32],
    x: &'a [f32],
    weight: &'a [f32],
    grad: &'a [f32],
    eps: f32,
}

impl Kernel for RmsNormBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let width = self.weight.len();
        let rows = self.x_grad.chunks_exact_mut(width).zip(self.x.chunks_exact(width));
        for ((x_grad, x), grad) in rows.zip(self.grad.chunks_exact(width)) {
            let factor = inverse_root::<FMA>(x, self.eps);
            for ((x_grad, grad), weight) in x_grad.iter_mut().zip(grad).zip(self.weight) {
                *x_grad = grad * weight;
            }
            let along = sum_pairs(x_grad, x, mul_add::<FMA>) / width as f32 * factor * factor;
            for (((x_grad, x), grad), sum) in
                x_grad.iter_mut().zip(x).zip(grad).zip(self.weight_grad.iter_mut())
            {
                *x_grad = (*x_grad - x * along) * factor;
                *sum = mul_add::<FMA>(grad * factor, *x, *sum);
            }
        }
    }
}

pub(super) fn gated_silu(gate: Tensor<Flex, 2>, up: Tensor<Flex, 2>) -> Tensor<Flex, 2> {
    let shape = gate.dims();
    let (gate, up) = (contiguous(gate), contiguous(up));
    let mut gated = vec![0.0; shape[0] * shape[1]];
    gated
        .par_chunks_mut(PIECE)
        .zip(numbers(&gate).par_chunks(PIECE).zip(numbers(&up).par_chunks(PIECE)))
        .for_each(|(gated, (gate, up))| run(GatedSilu { gated, gate, up }));
    tensor(gated, shape)
}

struct GatedSilu<'a> {
    gated: &'a mut [f32],
    gate: &'a [f32],
    up: &'a [f32],
}

#[inline(always)]
fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<FMA>(-x))
}

impl Kernel for GatedSilu<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for ((gated, gate), up) in self.gated.iter_mut().zip(self.gate).zip(self.up) {
            *gated = gate * sigmoid::<FMA>(*gate) * up;
        }
    }
}

pub(super) fn gated_silu_backward(
    gate: Tensor<Flex, 2>,
    up: Tensor<Flex, 2>,
    grad: Tensor<Flex, 2>,
) -> (Tensor<Flex, 2>, Tensor<Flex, 2>) {
    let shape = gate.dims();
    let [gate, up, grad] = [gate, up, grad].map(contiguous);
    let [mut gate_grad, mut up_grad] = [(); 2].map(|()| vec![0.0; shape[0] * shape[1]]);
    gate_grad
        .par_chunks_mut(PIECE)
        .zip(up_grad.par_chunks_mut(PIECE))
        .zip(numbers(&gate).par_chunks(PIECE).zip(numbers(&up).par_chunks(PIECE)))
        .zip(numbers(&grad).par_chunks(PIECE))
        .for_each(|(((gate_grad, up_grad), (gate, up)), grad)| {
            run(GatedSiluBackward { gate_grad, up_grad, gate, up, grad });
        });
    (tensor(gate_grad, shape), tensor(up_grad, shape))
}

struct GatedSiluBackward<'a> {
    gate_grad: &'a mut [f32],
    up_grad: &'a mut [f32],
    gate: &'a [f32],
    up: &'a [f32],
    grad: &'a [f32],
}

impl Kernel for GatedSiluBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let grads = self.gate_grad.iter_mut().zip(self.up_grad.iter_mut());
        let inputs = self.gate.iter().zip(self.up).zip(self.grad);
        for ((gate_grad, up_grad), ((gate, up), grad)) in grads.zip(inputs) {
            let logistic = sigmoid::<FMA>(*gate);
            let grad = grad * logistic;
            *up_grad = grad * gate;
            *gate_grad = grad * up * mul_add::<FMA>(*gate, 1.0 - logistic, 1.0);
        }
    }
}

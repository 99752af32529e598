//! The operations under automatic differentiation: one node each, whose backward is the inner backend's.

use std::{fmt::Debug, marker::PhantomData};

use burn::{
    backend::{
        Autodiff,
        autodiff::{
            checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
            grads::Gradients,
            ops::{Backward, Ops, OpsKind},
        },
    },
    tensor::{Int, Tensor, TensorPrimitive, backend::Backend, ops::FloatTensor},
};
use firebrick_core::{EntropyMode, ScoreOptions, TokenScores};

use super::FusedOps;
use crate::{CausalMask, RotaryAngles};

/// What is known of an operation of N inputs: how gradients go back through it.
trait Rule<B: Backend, const N: usize>: Debug + Send + 'static {
    /// What the backward pass needs.
    type Saved: Clone + Debug + Send + 'static;

    /// Gradients of the inputs from the gradient of the result. Those that are not `wanted`, which belong to frozen weights, may
    /// be left out.
    fn backward(saved: Self::Saved, grad: FloatTensor<B>, wanted: [bool; N]) -> [Option<FloatTensor<B>>; N];
}

/// A node of the graph that follows a rule.
#[derive(Debug)]
struct Node<R>(PhantomData<R>);

impl<B: Backend, R: Rule<B, N>, const N: usize> Backward<B, N> for Node<R> {
    type State = R::Saved;

    fn backward(self, ops: Ops<R::Saved, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let wanted = ops.parents.each_ref().map(Option::is_some);
        for (parent, grad) in ops.parents.into_iter().zip(R::backward(ops.state, grad, wanted)) {
            if let (Some(parent), Some(grad)) = (parent, grad) {
                grads.register::<B>(parent.id, grad);
            }
        }
    }
}

/// Puts an operation into the graph.
fn record<B: Backend, C: CheckpointStrategy, R: Rule<B, N>, const N: usize>(
    inputs: [&FloatTensor<Autodiff<B, C>>; N],
    saved: R::Saved,
    result: FloatTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    let node = Node::<R>(PhantomData);
    match node.prepare::<C>(inputs.map(|input| input.node.clone())).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(saved, result),
        OpsKind::UnTracked(prepared) => prepared.finish(result),
    }
}

fn float<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

fn primitive<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

fn inner_angles<B: Backend, C: CheckpointStrategy>(angles: &RotaryAngles<Autodiff<B, C>>) -> RotaryAngles<B> {
    let inner = |tensor: &Tensor<Autodiff<B, C>, 2>| tensor.clone().inner();
    RotaryAngles {
        cos: inner(&angles.cos),
        sin: inner(&angles.sin),
        quarter_turn: inner(&angles.quarter_turn),
    }
}

#[derive(Debug)]
struct Rotary;

impl<B: FusedOps> Rule<B, 1> for Rotary {
    type Saved = RotaryAngles<B>;

    fn backward(
        angles: RotaryAngles<B>,
        grad: FloatTensor<B>,
        _wanted: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(primitive(B::rotary_backward(float(grad), &angles)))]
    }
}

#[derive(Debug)]
struct RmsNorm;

impl<B: FusedOps> Rule<B, 2> for RmsNorm {
    type Saved = (Tensor<B, 2>, Tensor<B, 1>, f64);

    fn backward(
        (x, weight, eps): Self::Saved,
        grad: FloatTensor<B>,
        _wanted: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let (x, weight) = B::rms_norm_backward(x, weight, eps, float(grad));
        [Some(primitive(x)), Some(primitive(weight))]
    }
}

#[derive(Debug)]
struct GatedSilu;

impl<B: FusedOps> Rule<B, 2> for GatedSilu {
    type Saved = [Tensor<B, 2>; 2];

    fn backward(
        [gate, up]: Self::Saved,
        grad: FloatTensor<B>,
        _wanted: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let (gate, up) = B::gated_silu_backward(gate, up, float(grad));
        [Some(primitive(gate)), Some(primitive(up))]
    }
}

#[derive(Debug)]
struct Attention;

impl<B: FusedOps> Rule<B, 3> for Attention {
    type Saved = ([Tensor<B, 4>; 3], CausalMask<B>);

    fn backward(
        ([queries, keys, values], mask): Self::Saved,
        grad: FloatTensor<B>,
        _wanted: [bool; 3],
    ) -> [Option<FloatTensor<B>>; 3] {
        let grads = B::causal_attention_backward(queries, keys, values, &mask, float(grad));
        grads.map(|grad| Some(primitive(grad)))
    }
}

/// The result is the log-probs, `[N]`, followed by the entropies where they are attached, `[2·N]`.
#[derive(Debug)]
struct Scores;

impl<B: FusedOps> Rule<B, 2> for Scores {
    type Saved = (Tensor<B, 2>, Tensor<B, 2>, Tensor<B, 1, Int>, ScoreOptions);

    fn backward(
        (hidden, head, targets, options): Self::Saved,
        grad: FloatTensor<B>,
        [_, head_wanted]: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let grad: Tensor<B, 1> = float(grad);
        let [tokens] = targets.dims();
        let attached = options.entropy == EntropyMode::Attached;
        let entropy_grad = attached.then(|| grad.clone().narrow(0, tokens, tokens));
        let log_prob_grad = if attached { grad.narrow(0, 0, tokens) } else { grad };
        let (hidden, head) = B::token_scores_backward(
            hidden,
            head,
            targets,
            options,
            log_prob_grad,
            entropy_grad,
            head_wanted,
        );
        [Some(primitive(hidden)), head.map(primitive)]
    }
}

impl<B: FusedOps, C: CheckpointStrategy> FusedOps for Autodiff<B, C> {
    const READS_MASK_BIAS: bool = B::READS_MASK_BIAS;

    fn rotary(x: Tensor<Self, 2>, angles: &RotaryAngles<Self>) -> Tensor<Self, 2> {
        let angles = inner_angles(angles);
        let x = primitive(x);
        let turned = B::rotary(float(x.primitive.clone()), &angles);
        float(record::<B, C, Rotary, 1>([&x], angles, primitive(turned)))
    }

    fn rms_norm(x: Tensor<Self, 2>, weight: Tensor<Self, 1>, eps: f64) -> Tensor<Self, 2> {
        let inputs = [primitive(x), primitive(weight)];
        let (x, weight) = (float(inputs[0].primitive.clone()), float(inputs[1].primitive.clone()));
        let normed = B::rms_norm(Tensor::clone(&x), Tensor::clone(&weight), eps);
        float(record::<B, C, RmsNorm, 2>(inputs.each_ref(), (x, weight, eps), primitive(normed)))
    }

    fn gated_silu(gate: Tensor<Self, 2>, up: Tensor<Self, 2>) -> Tensor<Self, 2> {
        let inputs = [primitive(gate), primitive(up)];
        let saved = inputs.each_ref().map(|input| float(input.primitive.clone()));
        let [gate, up] = saved.clone();
        float(record::<B, C, GatedSilu, 2>(inputs.each_ref(), saved, primitive(B::gated_silu(gate, up))))
    }

    fn causal_attention(
        queries: Tensor<Self, 4>,
        keys: Tensor<Self, 4>,
        values: Tensor<Self, 4>,
        mask: &CausalMask<Self>,
    ) -> Tensor<Self, 4> {
        let mask = mask.inner();
        let inputs = [queries, keys, values].map(primitive);
        let saved = inputs.each_ref().map(|input| float(input.primitive.clone()));
        let [queries, keys, values] = saved.clone();
        let attended = B::causal_attention(queries, keys, values, &mask);
        float(record::<B, C, Attention, 3>(inputs.each_ref(), (saved, mask), primitive(attended)))
    }

    fn extend_cache(cache: Tensor<Self, 4>, columns: usize, new: Tensor<Self, 4>) -> Tensor<Self, 4> {
        Tensor::from_inner(B::extend_cache(cache.inner(), columns, new.inner()))
    }

    fn token_scores(
        hidden: Tensor<Self, 2>,
        head: Tensor<Self, 2>,
        targets: Tensor<Self, 1, Int>,
        options: ScoreOptions,
    ) -> TokenScores<Self> {
        let [tokens] = targets.dims();
        let targets = targets.inner();
        let inputs = [primitive(hidden), primitive(head)];
        let [hidden, head] = inputs.each_ref().map(|input| float(input.primitive.clone()));
        let scores = B::token_scores(Tensor::clone(&hidden), Tensor::clone(&head), targets.clone(), options);
        let attached = options.entropy == EntropyMode::Attached;
        let result = match &scores.entropies {
            Some(entropies) if attached => Tensor::cat(vec![scores.log_probs, entropies.clone()], 0),
            _ => scores.log_probs,
        };
        let saved = (hidden, head, targets, options);
        let result: Tensor<Self, 1> =
            float(record::<B, C, Scores, 2>(inputs.each_ref(), saved, primitive(result)));
        match attached {
            true => TokenScores {
                log_probs: result.clone().narrow(0, 0, tokens),
                entropies: Some(result.narrow(0, tokens, tokens)),
            },
            false => TokenScores { log_probs: result, entropies: scores.entropies.map(Tensor::from_inner) },
        }
    }

    fn entropy(logits: Tensor<Self, 2>) -> Tensor<Self, 1> {
        // On the inner backend, since a detached leaf would still be tracked and keep its graph.
        Tensor::from_inner(B::entropy(logits.inner()))
    }
}

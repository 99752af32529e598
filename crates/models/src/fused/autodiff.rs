//! The operations under automatic differentiation.

use burn::{
    backend::{Autodiff, autodiff::checkpoint::strategy::CheckpointStrategy},
    tensor::Tensor,
};

use super::FusedOps;

/// Operations are composed of differentiable ones; the entropy leaves the graph.
impl<B: FusedOps, C: CheckpointStrategy> FusedOps for Autodiff<B, C> {
    fn entropy(logits: Tensor<Self, 2>) -> Tensor<Self, 1> {
        // On the inner backend, since a detached leaf would still be tracked and keep its graph.
        Tensor::from_inner(B::entropy(logits.inner()))
    }
}

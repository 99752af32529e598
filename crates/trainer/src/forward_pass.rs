//! The forward pass that is trained through, with or without keeping what the layers compute.
//!
//! Shapes: B rows, S positions, D hidden size.

use burn::{
    module::AutodiffModule,
    tensor::{Int, Tensor, backend::AutodiffBackend},
};
use firebrick_core::CausalLm;

use crate::{gradients::Gradients, sequence::PaddedBatch};

/// Runs a model's body forward for a later [`Self::backward`].
///
/// *Reference*: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016, arXiv:1604.06174 (to compute activations again).
#[derive(Debug)]
pub(crate) struct ForwardPass<B: AutodiffBackend> {
    /// What is needed to run the segments again; `None` when the graph holds all of it.
    again: Option<Again<B>>,
}

#[derive(Debug)]
struct Again<B: AutodiffBackend> {
    tokens: Tensor<B, 2, Int>,
    positions: Tensor<B, 2, Int>,
    /// What each segment after the first was given.
    inputs: Vec<Tensor<B::InnerBackend, 3>>,
    /// The hidden states, where the graph of the loss begins.
    hidden: Tensor<B, 3>,
}

impl<B: AutodiffBackend> ForwardPass<B> {
    /// Runs the model's body. With `recompute` only what passes between segments is kept.
    /// Returns also the hidden states, `[B, S, D]`.
    pub(crate) fn run<M>(model: &M, batch: &PaddedBatch<B>, recompute: bool) -> (Self, Tensor<B, 3>)
    where
        M: CausalLm<B> + AutodiffModule<B>,
        M::InnerModule: CausalLm<B::InnerBackend>,
    {
        let (tokens, positions) = (batch.tokens.clone(), batch.positions.clone());
        if !recompute {
            return (Self { again: None }, model.hidden(tokens, positions));
        }
        let plain = model.valid();
        let mut inputs = Vec::with_capacity(model.segments());
        let mut x = None;
        for index in 0..model.segments() {
            inputs.extend(x.clone());
            x = Some(plain.segment(index, x, tokens.clone().inner(), positions.clone().inner()));
        }
        let hidden = Tensor::from_inner(x.expect("a model has at least one segment")).require_grad();
        (Self { again: Some(Again { tokens, positions, inputs, hidden: hidden.clone() }) }, hidden)
    }

    /// Runs `loss`, which was computed from the hidden states, backward and adds the gradients of `model`.
    pub(crate) fn backward<L, M>(
        self,
        loss: &Tensor<B, 1>,
        learner: &L,
        model: &M,
        gradients: &mut Gradients<L>,
    ) where
        L: AutodiffModule<B>,
        M: CausalLm<B>,
    {
        let mut graph = loss.backward();
        let Some(Again { tokens, positions, mut inputs, hidden }) = self.again else {
            gradients.accumulate(graph, learner);
            return;
        };
        let mut grad = hidden.grad_remove(&mut graph);
        gradients.accumulate(graph, learner);
        for index in (0..model.segments()).rev() {
            let Some(above) = grad.take() else { return }; // the loss does not depend on the hidden states
            let x = inputs.pop().map(|x| Tensor::<B, 3>::from_inner(x).require_grad());
            let output = model.segment(index, x.clone(), tokens.clone(), positions.clone());
            // A sum whose gradient with respect to the output is `above`.
            let mut graph = (output * Tensor::from_inner(above)).sum().backward();
            grad = x.and_then(|x| x.grad_remove(&mut graph));
            gradients.accumulate(graph, learner);
        }
    }
}

//! A critic: a decoder's body with a head of one number.
//!
//! Shapes: B rows, S positions, N tokens, D hidden size.

use burn::{
    module::{Initializer, Module},
    nn::{Linear, LinearConfig},
    tensor::{Tensor, backend::Backend},
};
use firebrick_core::CausalLm;

/// A language model whose head over the vocabulary is passed by: hidden states go to one number, the predicted value.
///
/// The head starts at zero, so that a fresh critic predicts zero everywhere.
#[derive(Module, Debug)]
pub struct ValueModel<B: Backend, M> {
    /// The model whose hidden states are used.
    pub trunk: M,
    /// `[D, 1]` with a bias.
    pub head: Linear<B>,
}

impl<B: Backend, M: CausalLm<B>> ValueModel<B, M> {
    /// A critic on top of a model with hidden states of `hidden_size`.
    pub fn new(trunk: M, hidden_size: usize, device: &B::Device) -> Self {
        let head = LinearConfig::new(hidden_size, 1).with_initializer(Initializer::Zeros).init(device);
        Self { trunk, head }
    }

    /// Predicted values of hidden states.
    ///
    /// # Shapes
    /// - `hidden`: `[N, D]`
    /// - returns `[N]`
    pub fn values(&self, hidden: Tensor<B, 2>) -> Tensor<B, 1> {
        self.head.forward(hidden).squeeze_dim(1)
    }
}

//! A linear layer that may carry a low-rank adapter.
//!
//! Shapes: N tokens, I inputs, O outputs, R rank.

use burn::{
    module::{Module, Param},
    tensor::{Tensor, backend::Backend},
};

/// y = x·W + b, and with an adapter also + s·(x·A)·B.
#[derive(Module, Debug)]
pub struct Projection<B: Backend> {
    /// The weight W, `[I, O]`.
    pub weight: Param<Tensor<B, 2>>,
    /// The bias b, `[O]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// What is trained beside a frozen weight.
    pub lora: Option<LowRank<B>>,
}

/// The factors of a low-rank adapter.
#[derive(Module, Debug)]
pub struct LowRank<B: Backend> {
    /// A, `[I, R]`.
    pub a: Param<Tensor<B, 2>>,
    /// B, `[R, O]`.
    pub b: Param<Tensor<B, 2>>,
    /// The factor s.
    pub scale: f64,
}

impl<B: Backend> Projection<B> {
    /// Applies the layer to each token.
    ///
    /// # Shapes
    /// - `x`: `[N, I]`
    /// - returns `[N, O]`
    pub fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let adapted = self.lora.as_ref().map(|lora| lora.forward(x.clone()));
        let mut y = x.matmul(self.weight.val());
        if let Some(bias) = &self.bias {
            y = y + bias.val().unsqueeze();
        }
        match adapted {
            Some(adapted) => y + adapted,
            None => y,
        }
    }

    /// The same layer without its adapter, on the same weights.
    #[must_use]
    pub(crate) fn without_adapter(self) -> Self {
        Self { lora: None, ..self }
    }

    /// The same function as one matrix: W + s·A·B.
    #[must_use]
    pub(crate) fn merged(self) -> Self {
        match &self.lora {
            None => self,
            Some(lora) => {
                let delta = lora.a.val().matmul(lora.b.val()).mul_scalar(lora.scale);
                let weight = self.weight.clone().map(|weight| weight + delta);
                Self { weight, bias: self.bias, lora: None }
            }
        }
    }
}

impl<B: Backend> LowRank<B> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        // The factor goes to the narrow side, where there is least to multiply.
        x.matmul(self.a.val()).mul_scalar(self.scale).matmul(self.b.val())
    }
}

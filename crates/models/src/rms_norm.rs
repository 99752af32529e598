//! Normalisation by the root mean square.

use burn::{
    module::{Module, Param},
    tensor::{Tensor, backend::Backend},
};

use crate::FusedOps;

/// Divides each row by its root mean square and scales it with a learned weight: y = w · x / √(mean(x²) + ε).
///
/// *Reference*: Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019, arXiv:1910.07467.
#[derive(Module, Debug)]
pub struct RmsNorm<B: Backend> {
    /// The weight w, `[D]`.
    pub weight: Param<Tensor<B, 1>>,
    eps: f64,
}

impl<B: Backend> RmsNorm<B> {
    /// A norm over rows of `width`, its weight all ones.
    pub(crate) fn new(width: usize, eps: f64, device: &B::Device) -> Self {
        Self { weight: Param::from_tensor(Tensor::ones([width], device)), eps }
    }

    /// Normalises each row.
    ///
    /// # Shapes
    /// - `x`: `[N, D]`
    /// - returns `[N, D]`
    pub fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2>
    where
        B: FusedOps,
    {
        B::rms_norm(x, self.weight.val(), self.eps)
    }
}

//! The angles of rotary positions.
//!
//! Shapes: P positions, T tokens, E width of a head.

use burn::{
    module::Module,
    tensor::{Int, Tensor, TensorData, backend::Backend},
};

/// Cosines and sines of the rotary angles of every position: position p turns pair i by p · θ^(−2i/E).
///
/// *Reference*: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, arXiv:2104.09864.
///
/// *Differs from the paper*: pair i is made of the entries i and i + E/2 of a head (half rotation, the layout of weights
/// on Hugging Face), not of neighbours.
#[derive(Module, Debug)]
pub struct RotaryTable<B: Backend> {
    /// `[P, E/2]`
    cos: Tensor<B, 2>,
    /// `[P, E/2]`
    sin: Tensor<B, 2>,
}

/// Cosines and sines of the rotary angles of some tokens.
#[derive(Debug, Clone)]
pub struct RotaryAngles<B: Backend> {
    /// Cosine of each pair's angle, `[T, 1, E/2]`.
    pub cos: Tensor<B, 3>,
    /// Sine of each pair's angle, `[T, 1, E/2]`.
    pub sin: Tensor<B, 3>,
}

impl<B: Backend> RotaryTable<B> {
    /// The angles of `positions` positions for heads of width `head`, computed in f64.
    pub(crate) fn new(positions: usize, head: usize, theta: f64, device: &B::Device) -> Self {
        let half = head / 2;
        let table = |function: fn(f64) -> f64| {
            let mut values = Vec::with_capacity(positions * half);
            for position in 0..positions {
                for pair in 0..half {
                    let frequency = theta.powf(-2.0 * pair as f64 / head as f64);
                    values.push(function(position as f64 * frequency) as f32);
                }
            }
            Tensor::from_data(TensorData::new(values, [positions, half]), device)
        };
        Self { cos: table(f64::cos), sin: table(f64::sin) }
    }

    /// Number of positions, P.
    pub fn positions(&self) -> usize {
        self.cos.dims()[0]
    }

    /// The angles of tokens at the given positions.
    ///
    /// # Shapes
    /// - `positions`: `[T]`, each below P
    pub fn angles(&self, positions: Tensor<B, 1, Int>) -> RotaryAngles<B> {
        RotaryAngles {
            cos: self.cos.clone().select(0, positions.clone()).unsqueeze_dim(1),
            sin: self.sin.clone().select(0, positions).unsqueeze_dim(1),
        }
    }
}

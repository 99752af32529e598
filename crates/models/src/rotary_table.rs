//! The angles of rotary positions.
//!
//! Shapes: P positions, T tokens, E width of a head.

use burn::{
    module::Module,
    tensor::{Int, Tensor, TensorData, backend::Backend},
};

use crate::rope_scaling::RotaryFrequencies;

/// Cosines and sines of the rotary angles of every position: position p turns pair i by p · θ^(−2i/E), or as the
/// configuration's [`crate::RopeScaling`] changes it.
///
/// *Reference*: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021,
/// arXiv:2104.09864.
///
/// *Differs from the paper*: pair i is made of the entries i and i + E/2 of a head (half rotation, the layout
/// of weights on Hugging Face), not of neighbours.
#[derive(Module, Debug)]
pub struct RotaryTable<B: Backend> {
    /// `[P, E]`
    cos: Tensor<B, 2>,
    /// `[P, E]`
    sin: Tensor<B, 2>,
    /// `[E, E]`
    quarter_turn: Tensor<B, 2>,
}

/// Cosines and sines of the rotary angles of some tokens, laid out as their heads are.
///
/// Built once for all layers of a forward pass.
#[derive(Debug, Clone)]
pub struct RotaryAngles<B: Backend> {
    /// Cosine of the angle of each entry's pair, the same in all heads, `[T, heads·E]`.
    pub cos: Tensor<B, 2>,
    /// Sine of the angle of each entry's pair, the same in all heads, `[T, heads·E]`.
    pub sin: Tensor<B, 2>,
    /// The matrix that turns every pair (a, b) of a head, as a row vector, into (−b, a), `[E, E]`.
    pub quarter_turn: Tensor<B, 2>,
}

impl<B: Backend> RotaryTable<B> {
    /// The angles of `positions` positions, computed in f64.
    pub(crate) fn new(positions: usize, frequencies: &RotaryFrequencies, device: &B::Device) -> Self {
        let half = frequencies.per_position.len();
        let head = 2 * half;
        let table = |function: fn(f64) -> f64| {
            let mut values = Vec::with_capacity(positions * head);
            for position in 0..positions {
                for entry in 0..head {
                    let angle = position as f64 * frequencies.per_position[entry % half];
                    values.push((function(angle) * frequencies.amplitude) as f32);
                }
            }
            Tensor::from_data(TensorData::new(values, [positions, head]), device)
        };
        let mut turn = vec![0.0f32; head * head];
        for pair in 0..half {
            turn[(pair + half) * head + pair] = -1.0;
            turn[pair * head + pair + half] = 1.0;
        }
        let quarter_turn = Tensor::from_data(TensorData::new(turn, [head, head]), device);
        Self { cos: table(f64::cos), sin: table(f64::sin), quarter_turn }
    }

    /// Number of positions, P.
    pub fn positions(&self) -> usize {
        self.cos.dims()[0]
    }

    /// The angles of tokens with the given number of heads.
    ///
    /// # Shapes
    /// - `positions`: `[T]`, each below P
    pub fn angles(&self, positions: Tensor<B, 1, Int>, heads: usize) -> RotaryAngles<B> {
        let spread = |table: &Tensor<B, 2>| table.clone().select(0, positions.clone()).repeat_dim(1, heads);
        let quarter_turn = self.quarter_turn.clone();
        RotaryAngles { cos: spread(&self.cos), sin: spread(&self.sin), quarter_turn }
    }
}

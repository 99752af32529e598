//! Initial weights, drawn on the host so that they are the same on every backend.

use burn::{
    module::{Param, ParamId},
    nn::Embedding,
    tensor::{Shape, Tensor, TensorData, backend::Backend},
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::Projection;

/// Draws the parameters of a model one after another from one stream, or leaves them for a file to fill.
pub(crate) struct WeightInit<'a, B: Backend> {
    rng: Option<ChaCha8Rng>,
    device: &'a B::Device,
}

impl<'a, B: Backend> WeightInit<'a, B> {
    pub(crate) fn new(seed: u64, device: &'a B::Device) -> Self {
        Self { rng: Some(ChaCha8Rng::seed_from_u64(seed)), device }
    }

    /// Matrices that take no memory until they are loaded; read before that, they are zero.
    pub(crate) fn unset(device: &'a B::Device) -> Self {
        Self { rng: None, device }
    }

    pub(crate) fn device(&self) -> &'a B::Device {
        self.device
    }

    /// A projection without bias, its weight `[inputs, outputs]` drawn with standard deviation `std`.
    pub(crate) fn linear(&mut self, inputs: usize, outputs: usize, std: f64) -> Projection<B> {
        Projection { weight: self.normal([inputs, outputs], std), bias: None, lora: None }
    }

    /// A projection whose bias, if it has one, starts at zero.
    pub(crate) fn projection(
        &mut self,
        inputs: usize,
        outputs: usize,
        std: f64,
        bias: bool,
    ) -> Projection<B> {
        let bias = bias.then(|| Param::from_tensor(Tensor::zeros([outputs], self.device)));
        Projection { bias, ..self.linear(inputs, outputs, std) }
    }

    /// An embedding, its weight `[tokens, width]` drawn with standard deviation `std`.
    pub(crate) fn embedding(&mut self, tokens: usize, width: usize, std: f64) -> Embedding<B> {
        Embedding { weight: self.normal([tokens, width], std) }
    }

    fn normal<const D: usize>(&mut self, shape: [usize; D], std: f64) -> Param<Tensor<B, D>> {
        let Some(rng) = &mut self.rng else {
            let zeros = move |device: &B::Device, grad| Tensor::zeros(shape, device).set_require_grad(grad);
            let device = self.device.clone();
            return Param::uninitialized(ParamId::new(), zeros, device, true, Shape::from(shape));
        };
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| (std * draw(rng)) as f32).collect();
        Param::from_tensor(Tensor::from_data(TensorData::new(values, shape), self.device))
    }
}

/// One draw from N(0, 1).
///
/// *Reference*: Box, Muller, "A note on the generation of random normal deviates", Ann. Math. Statist.
/// 29, 1958.
fn draw(rng: &mut ChaCha8Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_standard_normal_and_set_by_the_seed() {
        let draws = |seed| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            (0..20_000).map(|_| draw(&mut rng)).collect::<Vec<_>>()
        };
        let sample = draws(3);
        let moment = |power| sample.iter().map(|x| x.powi(power)).sum::<f64>() / sample.len() as f64;
        // Standard errors of the moments of 20 000 draws: 0.007, 0.010, 0.027 and 0.069.
        assert!(moment(1).abs() < 0.03, "{}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.04, "{}", moment(2));
        assert!(moment(3).abs() < 0.11, "{}", moment(3));
        assert!((moment(4) - 3.0).abs() < 0.28, "{}", moment(4));
        assert_eq!(sample, draws(3));
        assert_ne!(sample, draws(4));
    }
}

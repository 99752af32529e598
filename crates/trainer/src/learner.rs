//! The model that learns, with its optimizer.

use std::{collections::BTreeMap, path::Path};

use burn::{
    module::AutodiffModule,
    optim::{AdamW, AdamWConfig, Optimizer, adaptor::OptimizerAdaptor},
    tensor::{TensorData, backend::AutodiffBackend},
};
use firebrick_models::{ModelError, load_tensors, load_trained};
use serde::{Deserialize, Serialize};

use crate::{
    CheckpointError, LearningRateDecay, LearningRateSchedule, TrainerError,
    gradients::{GradientGroups, Gradients},
    optimizer_state,
};

/// AdamW and its learning rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimizerSettings {
    /// Peak learning rate; a choice of the run.
    pub learning_rate: f64,
    /// What follows the warm-up.
    #[serde(default)]
    pub decay: LearningRateDecay,
    /// Optimizer steps of linear warm-up.
    #[serde(default)]
    pub warmup_steps: usize,
    /// Decay of the first moment.
    #[serde(default = "OptimizerSettings::default_beta_1")]
    pub beta_1: f64,
    /// Decay of the second moment.
    #[serde(default = "OptimizerSettings::default_beta_2")]
    pub beta_2: f64,
    /// Added to the root of the second moment.
    #[serde(default = "OptimizerSettings::default_epsilon")]
    pub epsilon: f64,
    /// Decoupled weight decay of matrices; norm scales and biases have none.
    #[serde(default)]
    pub weight_decay: f64,
    /// Gradients are scaled so that their global norm is at most this; 0 leaves them as they are.
    #[serde(default = "OptimizerSettings::default_max_grad_norm")]
    pub max_grad_norm: f64,
}

impl OptimizerSettings {
    /// The field's usual settings: β 0.9 and 0.999, ε 1e-8, no weight decay, global norm at most 1, constant rate.
    pub fn new(learning_rate: f64) -> Self {
        Self {
            learning_rate,
            decay: LearningRateDecay::Constant,
            warmup_steps: 0,
            beta_1: Self::default_beta_1(),
            beta_2: Self::default_beta_2(),
            epsilon: Self::default_epsilon(),
            weight_decay: 0.0,
            max_grad_norm: Self::default_max_grad_norm(),
        }
    }

    /// The learning rate over `total_steps` optimizer steps.
    pub fn schedule(&self, total_steps: usize) -> LearningRateSchedule {
        LearningRateSchedule {
            peak: self.learning_rate,
            warmup_steps: self.warmup_steps,
            total_steps,
            decay: self.decay,
        }
    }

    fn default_beta_1() -> f64 {
        0.9
    }
    fn default_beta_2() -> f64 {
        0.999
    }
    fn default_epsilon() -> f64 {
        1e-8
    }
    fn default_max_grad_norm() -> f64 {
        1.0
    }

    fn adamw(&self, weight_decay: f64) -> AdamWConfig {
        AdamWConfig::new()
            .with_beta_1(self.beta_1 as f32)
            .with_beta_2(self.beta_2 as f32)
            .with_epsilon(self.epsilon as f32)
            .with_weight_decay(weight_decay as f32)
    }
}

/// A model with its optimizer: two AdamW instances over disjoint parameters, so that only matrices decay.
pub(crate) struct Learner<B: AutodiffBackend, M: AutodiffModule<B>> {
    /// Absent only while the optimizer, which consumes the model, is at work: no second copy of the weights exists.
    model: Option<M>,
    decayed: OptimizerAdaptor<AdamW, M, B>,
    plain: OptimizerAdaptor<AdamW, M, B>,
    max_grad_norm: Option<f64>,
}

impl<B: AutodiffBackend, M: AutodiffModule<B>> std::fmt::Debug for Learner<B, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Learner").field("max_grad_norm", &self.max_grad_norm).finish_non_exhaustive()
    }
}

impl<B: AutodiffBackend, M: AutodiffModule<B>> Learner<B, M> {
    pub(crate) fn new(model: M, settings: &OptimizerSettings) -> Self {
        Self {
            model: Some(model),
            decayed: settings.adamw(settings.weight_decay).init(),
            plain: settings.adamw(0.0).init(),
            max_grad_norm: (settings.max_grad_norm > 0.0).then_some(settings.max_grad_norm),
        }
    }

    pub(crate) fn model(&self) -> &M {
        self.model.as_ref().expect("the model is absent only inside `step`")
    }

    /// Starts again with fresh moments on the same weights.
    pub(crate) fn restart(&mut self, settings: &OptimizerSettings) {
        let model = self.model.take().expect("the model is absent only inside `step`");
        *self = Self::new(model, settings);
    }

    /// Replaces the weights that are trained by those of a file.
    pub(crate) fn load_weights(&mut self, path: &Path) -> Result<(), ModelError> {
        let model = self.model().clone();
        self.model = Some(load_trained(model, path)?);
        Ok(())
    }

    /// What the optimizer remembers, as named tensors.
    pub(crate) fn moments(&self) -> BTreeMap<String, TensorData> {
        let moments = self.decayed.to_record().into_iter().chain(self.plain.to_record()).collect();
        optimizer_state::to_tensors(self.model(), moments)
    }

    /// Takes over what [`Self::moments`] returned, from a file.
    pub(crate) fn load_moments_from(&mut self, path: &Path) -> Result<(), CheckpointError> {
        self.load_moments(load_tensors(path)?)
            .map_err(|reason| CheckpointError::State { path: path.to_owned(), reason })
    }

    /// Takes over what [`Self::moments`] returned.
    ///
    /// # Errors
    /// Says which tensors do not fit the model.
    fn load_moments(&mut self, tensors: BTreeMap<String, TensorData>) -> Result<(), String> {
        let (matrices, rest) = optimizer_state::from_tensors(self.model(), tensors)?;
        self.decayed = self.decayed.clone().load_record(matrices.into_iter().collect());
        self.plain = self.plain.clone().load_record(rest.into_iter().collect());
        Ok(())
    }

    /// One optimizer step. Returns the global gradient norm before clipping.
    ///
    /// # Errors
    /// When a gradient is not finite; the model is unchanged.
    pub(crate) fn step(&mut self, gradients: Gradients<M>, learning_rate: f64) -> Result<f64, TrainerError> {
        let (groups, norm) = self.clip(gradients)?;
        self.apply(groups, learning_rate);
        Ok(norm)
    }

    /// The gradients as the optimizer takes them, and their global norm before clipping.
    ///
    /// # Errors
    /// When a gradient is not finite.
    pub(crate) fn clip(&self, gradients: Gradients<M>) -> Result<(GradientGroups, f64), TrainerError> {
        gradients.finish::<B>(self.model(), self.max_grad_norm)
    }

    /// Moves the weights.
    pub(crate) fn apply(&mut self, groups: GradientGroups, learning_rate: f64) {
        let model = self.model.take().expect("the model is absent only inside `step`");
        let model = self.decayed.step(learning_rate, model, groups.decayed);
        self.model = Some(self.plain.step(learning_rate, model, groups.plain));
    }
}

#[cfg(test)]
mod tests {
    use burn::{
        backend::{Autodiff, Flex},
        nn::{Linear, LinearConfig},
    };

    use super::*;

    type Train = Autodiff<Flex>;

    fn weights(layer: &Linear<Train>) -> (Vec<f64>, Vec<f64>) {
        let bias = layer.bias.as_ref().unwrap().val();
        (layer.weight.val().into_data().iter::<f64>().collect(), bias.into_data().iter::<f64>().collect())
    }

    /// With zero gradients only the decay is left: matrices shrink by lr · decay, biases stay.
    #[test]
    fn weight_decay_acts_on_matrices_only() {
        let layer = LinearConfig::new(3, 2).init::<Train>(&Default::default());
        let before = weights(&layer);
        let settings = OptimizerSettings { weight_decay: 0.5, ..OptimizerSettings::new(0.1) };
        let mut learner = Learner::new(layer, &settings);
        let bias = learner.model().bias.as_ref().unwrap().val();
        let nothing = (learner.model().weight.val().sum() + bias.sum()).mul_scalar(0.0);
        let mut gradients = Gradients::new();
        gradients.backward(&nothing, learner.model());
        assert_eq!(learner.step(gradients, 0.1).unwrap(), 0.0);
        let after = weights(learner.model());
        assert!(before.0.iter().zip(&after.0).all(|(before, after)| (after - 0.95 * before).abs() < 1e-6));
        assert_eq!(before.1, after.1);
    }

    /// AdamW's first step is lr · g / (|g| + ε) whatever the gradient's size.
    #[test]
    fn the_first_step_moves_each_parameter_by_the_learning_rate() {
        let layer = LinearConfig::new(3, 2).init::<Train>(&Default::default());
        let before = weights(&layer);
        let mut learner = Learner::new(layer, &OptimizerSettings::new(0.01));
        let loss = learner.model().weight.val().sum().mul_scalar(0.3);
        let mut gradients = Gradients::new();
        gradients.backward(&loss, learner.model());
        learner.step(gradients, 0.01).unwrap();
        let after = weights(learner.model());
        assert!(before.0.iter().zip(&after.0).all(|(before, after)| (before - after - 0.01).abs() < 1e-6));
        assert_eq!(before.1, after.1); // a parameter without a gradient is not touched
    }
}

//! Gradients of all parameters together: accumulation over micro-batches, the global norm, the split by weight decay.

use burn::{
    module::{AutodiffModule, ModuleVisitor, Param},
    optim::{GradientsAccumulator, GradientsParams},
    tensor::{
        Tensor,
        backend::{AutodiffBackend, Backend},
    },
};

use crate::TrainerError;

/// Gradients summed over the micro-batches of one optimizer step.
pub(crate) struct Gradients<M> {
    accumulator: GradientsAccumulator<M>,
}

impl<M> std::fmt::Debug for Gradients<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gradients").finish_non_exhaustive()
    }
}

/// The two parameter groups of the optimizer.
pub(crate) struct GradientGroups {
    /// Matrices.
    pub(crate) decayed: GradientsParams,
    /// Norm scales and biases.
    pub(crate) plain: GradientsParams,
}

impl<M> Gradients<M> {
    pub(crate) fn new() -> Self {
        Self { accumulator: GradientsAccumulator::new() }
    }

    /// Runs `loss` backward and adds the gradients of `model`. The graph is freed, which is why a loss must come here even
    /// when its value is of no interest.
    pub(crate) fn backward<B: AutodiffBackend>(&mut self, loss: &Tensor<B, 1>, model: &M)
    where
        M: AutodiffModule<B>,
    {
        self.accumulate(loss.backward(), model);
    }

    /// Adds the gradients of `model` in what a backward pass returned.
    pub(crate) fn accumulate<B: AutodiffBackend>(&mut self, graph: B::Gradients, model: &M)
    where
        M: AutodiffModule<B>,
    {
        self.accumulator.accumulate(model, GradientsParams::from_grads(graph, model));
    }

    /// Adds the gradients of other rows of the same model.
    pub(crate) fn add<B: AutodiffBackend>(&mut self, mut other: Self, model: &M)
    where
        M: AutodiffModule<B>,
    {
        self.accumulator.accumulate(model, other.accumulator.grads());
    }

    /// Ends the accumulation: scales all gradients together so that their global norm is at most `max_norm`, and splits
    /// them into parameter groups.
    ///
    /// Returns the groups and the norm before scaling.
    ///
    /// # Errors
    /// Names the first tensor whose gradient is not finite.
    pub(crate) fn finish<B: AutodiffBackend>(
        mut self,
        model: &M,
        max_norm: Option<f64>,
    ) -> Result<(GradientGroups, f64), TrainerError>
    where
        M: AutodiffModule<B>,
    {
        let mut gradients = self.accumulator.grads();
        let mut norms = SquaredNorms::<B> {
            gradients: &gradients,
            path: Vec::new(),
            names: Vec::new(),
            sums: Vec::new(),
        };
        model.visit(&mut norms);
        let SquaredNorms { names, sums, .. } = norms;
        let mut total = 0.0;
        if !sums.is_empty() {
            let values = Tensor::cat(sums, 0).into_data(); // one read for all parameters
            for (name, value) in names.into_iter().zip(values.iter::<f64>()) {
                if !value.is_finite() {
                    let what = format!("the gradient norm of {name}");
                    return Err(TrainerError::NonFinite { what, value: value.sqrt() });
                }
                total += value;
            }
        }
        let norm = total.sqrt();
        let scale = max_norm.filter(|max| norm > *max).map(|max| max / norm);
        let mut split = Split {
            gradients: &mut gradients,
            scale,
            groups: GradientGroups { decayed: GradientsParams::new(), plain: GradientsParams::new() },
        };
        model.visit(&mut split);
        Ok((split.groups, norm))
    }
}

struct SquaredNorms<'a, B: AutodiffBackend> {
    gradients: &'a GradientsParams,
    path: Vec<String>,
    names: Vec<String>,
    sums: Vec<Tensor<B::InnerBackend, 1>>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for SquaredNorms<'_, B> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.gradients.get::<B::InnerBackend, D>(param.id) {
            self.names.push(self.path.join("."));
            self.sums.push(row_major(gradient).square().sum());
        }
    }
}

struct Split<'a> {
    gradients: &'a mut GradientsParams,
    scale: Option<f64>,
    groups: GradientGroups,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Split<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.gradients.remove::<B::InnerBackend, D>(param.id) {
            let mut gradient = row_major(gradient);
            if let Some(scale) = self.scale {
                gradient = gradient.mul_scalar(scale);
            }
            let group = if D >= 2 { &mut self.groups.decayed } else { &mut self.groups.plain };
            group.register::<B::InnerBackend, D>(param.id, gradient);
        }
    }
}

/// The tensor with its elements in the order of its indices.
///
/// The gradient of a weight that is used transposed may come in another order, which AdamW would hand on to moments and
/// weights; sums over them would then round differently from those of a run that has read the same numbers from a
/// checkpoint. A tensor that is in order already is not copied.
fn row_major<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    let shape = tensor.shape();
    tensor.reshape([shape.num_elements()]).reshape(shape)
}

#[cfg(test)]
mod tests {
    use burn::{
        backend::{Autodiff, Flex},
        module::Module,
        nn::{Linear, LinearConfig},
    };

    use super::*;

    type Train = Autodiff<Flex>;

    #[derive(Module, Debug)]
    struct Outer<B: Backend> {
        inner: Linear<B>,
    }

    fn model() -> Outer<Train> {
        Outer { inner: LinearConfig::new(2, 2).init(&Default::default()) }
    }

    /// Σ weights + Σ biases, times `scale`: every gradient entry is `scale`.
    fn loss(model: &Outer<Train>, scale: f64) -> Tensor<Train, 1> {
        let bias = model.inner.bias.as_ref().expect("the layer has a bias").val();
        (model.inner.weight.val().sum() + bias.sum()).mul_scalar(scale)
    }

    fn entries<const D: usize>(group: &GradientsParams, param: &Param<Tensor<Train, D>>) -> Option<Vec<f64>> {
        let gradient = group.get::<Flex, D>(param.id)?;
        Some(gradient.into_data().iter::<f64>().collect())
    }

    #[test]
    fn micro_batches_add_up_and_the_norm_is_global_over_all_parameters() {
        let model = model();
        let mut gradients = Gradients::new();
        gradients.backward(&loss(&model, 0.25), &model);
        gradients.backward(&loss(&model, 0.75), &model);
        let (groups, norm) = gradients.finish::<Train>(&model, Some(1.0)).unwrap();
        assert!((norm - 6f64.sqrt()).abs() < 1e-6, "{norm}"); // six entries of 1
        let scaled = 1.0 / 6f64.sqrt();
        let weights = entries(&groups.decayed, &model.inner.weight).unwrap();
        let biases = entries(&groups.plain, model.inner.bias.as_ref().unwrap()).unwrap();
        assert_eq!((weights.len(), biases.len()), (4, 2));
        assert!(weights.iter().chain(&biases).all(|entry| (entry - scaled).abs() < 1e-6));
    }

    #[test]
    fn gradients_below_the_largest_norm_stay_as_they_are() {
        let model = model();
        let mut gradients = Gradients::new();
        gradients.backward(&loss(&model, 0.1), &model);
        let (groups, _) = gradients.finish::<Train>(&model, Some(1.0)).unwrap();
        assert!((entries(&groups.decayed, &model.inner.weight).unwrap()[0] - 0.1).abs() < 1e-7);
        assert!(entries(&groups.plain, &model.inner.weight).is_none());
    }

    #[test]
    fn a_gradient_that_is_not_finite_is_named() {
        let model = model();
        let mut gradients = Gradients::new();
        let bias = model.inner.bias.as_ref().unwrap().val();
        gradients.backward(&(loss(&model, 1.0) + bias.mul_scalar(f64::INFINITY).sum()), &model);
        let error = gradients.finish::<Train>(&model, None).err().unwrap();
        let TrainerError::NonFinite { what, value } = error else { panic!("{error}") };
        assert_eq!(what, "the gradient norm of inner.bias");
        assert!(value.is_infinite());
    }
}

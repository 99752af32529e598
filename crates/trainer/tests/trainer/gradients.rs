//! From an objective's coefficients to the logits, through the trainer's surrogate and real autodiff.

use burn::{
    backend::Autodiff,
    tensor::{Int, Tensor, TensorData, activation::log_softmax},
};
use firebrick_core::{LogProbs, Objective, ResponseContext, ResponseTokens};
use firebrick_objectives::{Aggregation, Denominator};
use firebrick_trainer::surrogate;

use crate::fixture::{PRESETS, objective};

const VOCABULARY: usize = 5;

/// Two responses, of four and three tokens: logits, chosen tokens, log-ratios and advantages that reach both bounds.
struct Batch {
    logits: Vec<f64>,
    targets: Vec<usize>,
    rows: Vec<(std::ops::Range<usize>, f64, Vec<f64>)>,
}

fn batch() -> Batch {
    let logits = (0..7 * VOCABULARY).map(|i| ((i * 37 % 23) as f64 - 11.0) / 7.0).collect();
    Batch {
        logits,
        targets: vec![1, 0, 4, 2, 3, 3, 0],
        rows: vec![(0..4, 1.0, vec![0.1, -0.2, 0.3, 0.05]), (4..7, -0.7, vec![-0.3, 0.02, 0.4])],
    }
}

fn log_softmax_f64(row: &[f64]) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let log_sum = max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
    row.iter().map(|x| x - log_sum).collect()
}

impl Batch {
    fn log_probs(&self) -> Vec<f64> {
        let rows = self.logits.chunks(VOCABULARY).map(log_softmax_f64);
        rows.zip(&self.targets).map(|(row, target)| row[*target]).collect()
    }

    /// Loss and coefficients of the whole batch on the host.
    fn evaluate(&self, objective: &dyn Objective, aggregation: Aggregation) -> (f64, Vec<f64>) {
        let denominator = Denominator::of(self.rows.iter().map(|(range, ..)| range.len())).unwrap();
        let log_probs = self.log_probs();
        let mut loss = 0.0;
        let mut coefficients = Vec::new();
        for (range, advantage, log_ratios) in &self.rows {
            let current = &log_probs[range.clone()];
            let behaviour = current.iter().zip(log_ratios).map(|(current, ratio)| current - ratio).collect();
            let context =
                ResponseContext::new(LogProbs::new(behaviour), vec![*advantage; range.len()]).unwrap();
            let current = LogProbs::new(current.to_vec());
            let response = ResponseTokens::new(&context, &current).unwrap();
            let terms = objective.evaluate(&response, aggregation.weight(&denominator, range.len()));
            loss += terms.loss;
            coefficients.extend(terms.coefficients);
        }
        (loss, coefficients)
    }
}

crate::on_both_backends! {
    /// The gradient with respect to the logits is −Σ c_n (1[v = y_n] − p_v), computed in f64 on the host.
    fn autodiff_to_the_logits_gives_the_gradient_of_the_objective<B>() {
        let device = Default::default();
        let batch = batch();
        for preset in PRESETS {
            let recipe = objective(preset).build();
            let (_, coefficients) = batch.evaluate(recipe.objective.as_ref(), recipe.aggregation);
            assert!(coefficients.iter().any(|c| *c != 0.0), "{preset}: the case must not be all clipped");

            let values: Vec<f32> = batch.logits.iter().map(|x| *x as f32).collect();
            let logits = Tensor::<Autodiff<B>, 2>::from_data(
                TensorData::new(values, [7, VOCABULARY]),
                &device,
            )
            .require_grad();
            let targets: Vec<i64> = batch.targets.iter().map(|target| *target as i64).collect();
            let targets =
                Tensor::<Autodiff<B>, 2, Int>::from_data(TensorData::new(targets, [7, 1]), &device);
            let log_probs = log_softmax(logits.clone(), 1).gather(1, targets).reshape([7]);
            let on_device: Vec<f32> = coefficients.iter().map(|c| *c as f32).collect();
            let on_device = Tensor::from_data(TensorData::new(on_device, [7]), &device);
            let gradients = surrogate(log_probs, on_device).backward();
            let found: Vec<f64> = logits.grad(&gradients).unwrap().into_data().iter::<f64>().collect();

            for (n, row) in batch.logits.chunks(VOCABULARY).enumerate() {
                for (v, log_p) in log_softmax_f64(row).into_iter().enumerate() {
                    let chosen = f64::from(u8::from(v == batch.targets[n]));
                    let expected = -coefficients[n] * (chosen - log_p.exp());
                    let found = found[n * VOCABULARY + v];
                    assert!((found - expected).abs() < 1e-5, "{preset}, token {n}, logit {v}: {found} {expected}");
                }
            }
        }
    }
}

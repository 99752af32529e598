//! GRPO in Burn tensors against GRPO on the host.

use burn::{
    backend::Autodiff,
    tensor::{Bool, Tensor, TensorData},
};
use firebrick_core::{LogProbs, ResponseContext, ResponseTokens};
use firebrick_objectives::{Aggregation, Denominator};
use firebrick_trainer::{TensorBatch, TensorGrpo, TensorObjective};

use crate::fixture::objective;

/// Log-probs, anchors and advantage of each response; ratios lie inside, beyond and far beyond the bounds, of both signs.
const ROWS: [(&[f64], &[f64], f64); 3] = [
    (&[-1.0, -0.5, -2.0], &[-1.05, -1.0, -1.5], 1.2),
    (&[-0.3, -3.0, -0.7, -25.0], &[-0.8, -2.9, -0.1, -1.0], -0.6),
    (&[-2.0], &[-2.0], 0.0),
];

fn host() -> (f64, Vec<Vec<f64>>) {
    let recipe = objective("type = \"grpo\"\nkl.coefficient = 0.0").build();
    let denominator = Denominator::of(ROWS.map(|(current, ..)| current.len())).unwrap();
    let mut loss = 0.0;
    let coefficients = ROWS
        .map(|(current, anchor, advantage)| {
            let context =
                ResponseContext::new(LogProbs::new(anchor.to_vec()), vec![advantage; current.len()]).unwrap();
            let current = LogProbs::new(current.to_vec());
            let response = ResponseTokens::new(&context, &current).unwrap();
            let weight = Aggregation::SeqMeanTokenMean.weight(&denominator, response.len());
            let terms = recipe.objective.evaluate(&response, weight);
            loss += terms.loss;
            terms.coefficients
        })
        .to_vec();
    (loss, coefficients)
}

/// Returns loss and gradient; `padding` fills every entry that is no policy token.
fn tensors<B>(padding: f32) -> (f64, Vec<f64>)
where
    B: burn::tensor::backend::AutodiffBackend,
{
    let device = Default::default();
    let denominator = Denominator::of(ROWS.map(|(current, ..)| current.len())).unwrap();
    let table = |value: &dyn Fn(usize, usize) -> f64| {
        let values: Vec<f32> = (0..3)
            .flat_map(|row| {
                (0..4).map(move |t| if t < ROWS[row].0.len() { value(row, t) as f32 } else { padding })
            })
            .collect();
        Tensor::<B, 2>::from_data(TensorData::new(values, [3, 4]), &device)
    };
    let mask: Vec<bool> = (0..12).map(|i| i % 4 < ROWS[i / 4].0.len()).collect();
    let log_probs = table(&|row, t| ROWS[row].0[t]).require_grad();
    let loss = TensorGrpo::default().loss(TensorBatch {
        log_probs: log_probs.clone(),
        anchor_log_probs: table(&|row, t| ROWS[row].1[t]),
        advantages: table(&|row, _| ROWS[row].2),
        weights: table(&|row, _| Aggregation::SeqMeanTokenMean.weight(&denominator, ROWS[row].0.len())),
        mask: Tensor::<B, 2, Bool>::from_data(TensorData::new(mask, [3, 4]), &device),
    });
    let value = loss.clone().into_data().iter::<f64>().next().unwrap();
    let gradients = loss.backward();
    (value, log_probs.grad(&gradients).unwrap().into_data().iter::<f64>().collect())
}

crate::on_both_backends! {
    fn grpo_in_tensors_equals_grpo_on_the_host<B>() {
        let (loss, coefficients) = host();
        let (found, gradient) = tensors::<Autodiff<B>>(0.0);
        assert!((found - loss).abs() < 1e-5, "{found} {loss}");
        for (row, coefficients) in coefficients.iter().enumerate() {
            for t in 0..4 {
                // The loss is minimised: its gradient is minus the coefficient; padding has none.
                let expected = -coefficients.get(t).copied().unwrap_or(0.0);
                let found = gradient[row * 4 + t];
                assert!((found - expected).abs() < 1e-5, "row {row}, token {t}: {found} {expected}");
            }
        }
    }

    fn padding_that_is_not_finite_changes_nothing<B>() {
        let clean = tensors::<Autodiff<B>>(0.0);
        for padding in [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, 200.0] {
            assert_eq!(tensors::<Autodiff<B>>(padding), clean, "padding {padding}");
        }
    }
}

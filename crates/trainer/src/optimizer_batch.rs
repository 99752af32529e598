//! One optimizer step: the denominator of the whole batch, micro-batches, coefficients, gradients.

use std::time::Instant;

use burn::{
    module::AutodiffModule,
    tensor::{Tensor, TensorData, backend::AutodiffBackend},
};
use firebrick_core::{
    Binding, CausalLm, Current, EntropyMode, LogProbs, Metrics, Objective, OptimizerBatch, ResponseContext,
    ResponseTerms, ResponseTokens, ScoreOptions, TokenScores,
};
use firebrick_objectives::Denominator;

use crate::{
    Plan, Sequence, TensorBatch, Timings, TrainerError,
    gradients::Gradients,
    micro_batches,
    plan::PolicyLoss,
    score,
    sequence::{floats, ints, log_probs, split_rows, to_host},
    surrogate,
};

/// A response that is trained on.
#[derive(Debug)]
pub(crate) struct TrainRow {
    /// Where it comes from, for errors.
    pub(crate) name: String,
    pub(crate) sequence: Sequence,
    pub(crate) context: ResponseContext,
}

/// Runs forward and backward over all micro-batches of an optimizer batch.
///
/// Returns the accumulated gradients, or `None` when the batch holds no policy token, so that there is no step to take.
pub(crate) fn accumulate<B: AutodiffBackend, M>(
    plan: &mut Plan<B>,
    model: &M,
    rows: &[&TrainRow],
    entropy: EntropyMode,
    metrics: &mut Metrics,
    timings: &mut Timings,
    device: &B::Device,
) -> Result<Option<Gradients<M>>, TrainerError>
where
    M: CausalLm<B> + AutodiffModule<B>,
    M::InnerModule: CausalLm<B::InnerBackend>,
{
    let Ok(denominator) = Denominator::of(rows.iter().map(|row| row.context.len())) else {
        return Ok(None);
    };
    prepare(plan, model, rows, device)?;
    let _span = tracing::info_span!("loss", rows = rows.len()).entered();
    let lengths: Vec<usize> = rows.iter().map(|row| row.sequence.len()).collect();
    let mut gradients = Gradients::new();
    let mut total = 0.0;
    let clock = Instant::now();
    let mut on_host = 0.0;
    for batch in micro_batches(&lengths, plan.settings.micro_batch_limit()) {
        let batch: Vec<&TrainRow> = batch.into_iter().map(|index| rows[index]).collect();
        let sequences: Vec<&Sequence> = batch.iter().map(|row| &row.sequence).collect();
        let options = ScoreOptions {
            temperature: plan.settings.sampling.temperature,
            entropy,
            ..ScoreOptions::default()
        };
        let Some(scores) = score(model, &sequences, options, device) else { continue };
        let TokenScores { log_probs, entropies } = scores;
        if let Some(entropies) = entropies {
            let tokens = entropies.dims()[0] as f64;
            metrics.add_mean("entropy", to_host(entropies.inner()).iter().sum(), tokens);
        }
        let weights: Vec<f64> =
            batch.iter().map(|row| plan.aggregation.weight(&denominator, row.context.len())).collect();
        let part = MicroBatch { rows: &batch, sequences: &sequences, weights: &weights };
        let (loss, value) = match part.loss(plan, log_probs.clone(), metrics, &mut on_host, device) {
            Ok(loss) => loss,
            Err(error) => {
                log_probs.sum().backward(); // a graph that is never run backward is never freed
                return Err(error);
            }
        };
        total += value;
        gradients.backward(&loss, model);
    }
    timings.objective += on_host;
    timings.forward_backward += clock.elapsed().as_secs_f64() - on_host;
    if !total.is_finite() {
        return Err(TrainerError::NonFinite { what: "the loss".into(), value: total });
    }
    metrics.add_mean("loss", total, 1.0);
    Ok(Some(gradients))
}

/// Rows that go through the model together.
struct MicroBatch<'a> {
    rows: &'a [&'a TrainRow],
    sequences: &'a [&'a Sequence],
    /// Aggregation weight of each row.
    weights: &'a [f64],
}

impl MicroBatch<'_> {
    /// The loss that is run backward, and its value.
    fn loss<B: AutodiffBackend>(
        &self,
        plan: &Plan<B>,
        log_probs: Tensor<B, 1>,
        metrics: &mut Metrics,
        on_host: &mut f64,
        device: &B::Device,
    ) -> Result<(Tensor<B, 1>, f64), TrainerError> {
        let values = to_host(log_probs.clone().inner());
        let current: Vec<LogProbs<Current>> = split_rows(&values, self.sequences)
            .into_iter()
            .map(|part| LogProbs::new(part.to_vec()))
            .collect();
        for (row, log_probs) in self.rows.iter().zip(&current) {
            check_finite(row, "log-prob", log_probs.values())?;
        }
        match &plan.loss {
            PolicyLoss::Host(objective) => {
                let clock = Instant::now();
                let mut coefficients = Vec::with_capacity(values.len());
                let mut total = 0.0;
                for ((row, current), weight) in self.rows.iter().zip(&current).zip(self.weights) {
                    let response = ResponseTokens::new(&row.context, current)?;
                    let terms = objective.evaluate(&response, *weight);
                    check_finite(row, "coefficient", &terms.coefficients)?;
                    if !terms.loss.is_finite() {
                        let what = format!("the loss of {}", row.name);
                        return Err(TrainerError::NonFinite { what, value: terms.loss });
                    }
                    record_terms(&response, &terms, plan.requirements.reference_log_probs, metrics);
                    total += terms.loss;
                    coefficients.extend(terms.coefficients.iter().map(|c| *c as f32));
                }
                *on_host += clock.elapsed().as_secs_f64();
                Ok((surrogate(log_probs, floats(coefficients, device)), total))
            }
            PolicyLoss::Tensor(objective) => {
                let loss = objective.loss(tensor_batch(log_probs, self.rows, self.weights, device));
                let value = to_host(loss.clone().inner())[0];
                Ok((loss, value))
            }
        }
    }
}

/// Names the first token of a row whose number is not finite.
fn check_finite(row: &TrainRow, number: &str, values: &[f64]) -> Result<(), TrainerError> {
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(token) => Err(TrainerError::NonFinite {
            what: format!("the {number} of token {token} of {}", row.name),
            value: values[token],
        }),
    }
}

/// Shows the whole batch to the stateful parts of the objective.
fn prepare<B: AutodiffBackend, M>(
    plan: &mut Plan<B>,
    model: &M,
    rows: &[&TrainRow],
    device: &B::Device,
) -> Result<(), TrainerError>
where
    M: CausalLm<B> + AutodiffModule<B>,
    M::InnerModule: CausalLm<B::InnerBackend>,
{
    let PolicyLoss::Host(objective) = &mut plan.loss else { return Ok(()) };
    let mut parts = objective.stateful_parts();
    if parts.is_empty() {
        return Ok(());
    }
    let current: Option<Vec<LogProbs<Current>>> = plan.requirements.batch_current_log_probs.then(|| {
        let sequences: Vec<&Sequence> = rows.iter().map(|row| &row.sequence).collect();
        let options =
            ScoreOptions { temperature: plan.settings.sampling.temperature, ..ScoreOptions::default() };
        log_probs(&model.valid(), &sequences, options, plan.settings.micro_batch_limit(), device)
            .into_iter()
            .map(LogProbs::new)
            .collect()
    });
    let responses: Vec<&ResponseContext> = rows.iter().map(|row| &row.context).collect();
    let batch = OptimizerBatch { responses: &responses, current: current.as_deref() };
    for (_, part) in &mut parts {
        part.prepare(&batch)?;
    }
    Ok(())
}

/// Records what the objective did, as sums over tokens.
fn record_terms(response: &ResponseTokens<'_>, terms: &ResponseTerms, with_kl: bool, metrics: &mut Metrics) {
    let tokens = response.len() as f64;
    let count = |of: &[Binding]| terms.bindings.iter().filter(|binding| of.contains(binding)).count() as f64;
    metrics.add_mean("clip_ratio/low_mean", count(&[Binding::Low]), tokens);
    metrics.add_mean("clip_ratio/high_mean", count(&[Binding::High]), tokens);
    metrics.add_mean("clip_ratio/outer_mean", count(&[Binding::OuterLow, Binding::OuterHigh]), tokens);
    metrics.add_mean("clip_ratio/region_mean", tokens - count(&[Binding::None]), tokens);
    let weights = || terms.log_weights.iter().map(|log_weight| log_weight.exp());
    if !terms.log_weights.is_empty() {
        metrics.add_mean("ratio/mean", weights().sum(), tokens);
        metrics.add_max("ratio/max", weights().fold(0.0, f64::max));
        metrics.add_min("ratio/min", weights().fold(f64::INFINITY, f64::min));
    }
    let gaps = || response.current().iter().zip(response.context().behaviour()).map(|(c, b)| c - b);
    metrics.add_mean("ppo_kl", -gaps().sum::<f64>(), tokens);
    metrics.add_max("log_ratio/abs_max", gaps().fold(0.0, |max, gap| max.max(gap.abs())));
    if with_kl {
        metrics.add_mean("kl", terms.kl_sum, tokens);
    }
}

/// Lays the rows of a micro-batch out as `[B, T]` tensors for a tensor objective.
fn tensor_batch<B: AutodiffBackend>(
    log_probs: Tensor<B, 1>,
    rows: &[&TrainRow],
    weights: &[f64],
    device: &B::Device,
) -> TensorBatch<B> {
    let width = rows.iter().map(|row| row.context.len()).max().unwrap_or(0);
    let shape = [rows.len(), width];
    let mut index = Vec::with_capacity(rows.len() * width);
    let mut mask = Vec::with_capacity(rows.len() * width);
    let (mut anchors, mut advantages, mut weight_values) = (Vec::new(), Vec::new(), Vec::new());
    let mut start = 0;
    for (row, weight) in rows.iter().zip(weights) {
        let len = row.context.len();
        for t in 0..width {
            let valid = t < len;
            index.push(if valid { (start + t) as i64 } else { 0 });
            mask.push(valid);
            anchors.push(if valid { row.context.anchor()[t] as f32 } else { 0.0 });
            advantages.push(if valid { row.context.advantages()[t] as f32 } else { 0.0 });
            weight_values.push(*weight as f32);
        }
        start += len;
    }
    let matrix = |values: Vec<f32>| Tensor::from_data(TensorData::new(values, shape), device);
    TensorBatch {
        log_probs: log_probs.select(0, ints(index, device)).reshape(shape),
        anchor_log_probs: matrix(anchors),
        advantages: matrix(advantages),
        weights: matrix(weight_values),
        mask: Tensor::from_data(TensorData::new(mask, shape), device),
    }
}

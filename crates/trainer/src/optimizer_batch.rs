//! One optimizer step: the denominator of the whole batch, micro-batches, coefficients, gradients.

use std::{cmp::Reverse, collections::BTreeMap, thread, time::Instant};

use burn::{
    module::AutodiffModule,
    tensor::{Tensor, TensorData, backend::AutodiffBackend},
};
use firebrick_core::{
    Binding, CausalLm, Current, EntropyMode, LogProbs, Metrics, Objective, OptimizerBatch, ResponseContext,
    ResponseTerms, ResponseTokens, ScoreOptions, TokenScores,
};
use firebrick_objectives::{Denominator, PositionDiagnostics};
use rayon::prelude::*;

use crate::{
    Plan, Sequence, TensorBatch, Timings, TrainerError,
    critic::CriticTargets,
    distribution,
    forward_pass::ForwardPass,
    gradients::Gradients,
    micro_batches,
    plan::PolicyLoss,
    sequence::{PaddedBatch, floats, ints, log_probs, split_rows, to_host},
    surrogate,
};

/// A response that is trained on.
#[derive(Debug)]
pub(crate) struct TrainRow {
    /// Where it comes from, for errors.
    pub(crate) name: String,
    pub(crate) sequence: Sequence,
    pub(crate) context: ResponseContext,
    /// What the critic is trained towards, when there is one.
    pub(crate) critic: Option<CriticTargets>,
}

/// What was measured over an optimizer batch.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) metrics: Metrics,
    pub(crate) positions: PositionDiagnostics,
    /// Log-probs of the responses whose tokens are traced, as the objective saw them last; by index.
    pub(crate) traced: BTreeMap<usize, Vec<f64>>,
}

impl Measured {
    /// Takes over what was measured in another optimizer step of the same rollout batch.
    pub(crate) fn merge(&mut self, other: Self) {
        self.metrics.merge(&other.metrics);
        self.positions.merge(&other.positions);
        self.traced.extend(other.traced);
    }
}

/// Runs forward and backward over all micro-batches of an optimizer batch, in as many parts side by side as the settings say.
///
/// Returns the accumulated gradients and the one denominator, or `None` when no token of the batch is counted, so that there
/// is no step to take.
pub(crate) fn accumulate<B: AutodiffBackend, M>(
    plan: &mut Plan<B>,
    model: &M,
    rows: &[&TrainRow],
    entropy: EntropyMode,
    measured: &mut Measured,
    timings: &mut Timings,
    device: &B::Device,
) -> Result<Option<(Gradients<M>, Denominator)>, TrainerError>
where
    M: CausalLm<B> + AutodiffModule<B>,
    M::InnerModule: CausalLm<B::InnerBackend>,
{
    prepare(plan, model, rows, device)?;
    let Ok(denominator) = Denominator::of(rows.iter().map(|row| plan.counted_tokens(&row.context))) else {
        return Ok(None);
    };
    let _span = tracing::info_span!("loss", rows = rows.len()).entered();
    let clock = Instant::now();
    let pass = Pass { plan, denominator: &denominator, entropy, device };
    let parts = parts_of(rows, plan.settings.parallel_parts);
    let count = parts.len() as f64;
    let results: Vec<Result<Part<M>, TrainerError>> = if let [rows] = &parts[..] {
        vec![pass.run(model, rows)]
    } else {
        // A fork shares the weights but not the graph: clones would wait for one another's locks.
        let parts: Vec<_> = parts.iter().map(|rows| (model.clone().fork(device), rows)).collect();
        let pass = &pass;
        // Threads of their own, since one of the pool may take up another part while it waits for a kernel in this one.
        thread::scope(|scope| {
            let threads: Vec<_> =
                parts.into_iter().map(|(model, rows)| scope.spawn(move || pass.run(&model, rows))).collect();
            let join = |part: thread::ScopedJoinHandle<'_, _>| {
                part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        })
    };
    let mut gradients = Gradients::new();
    let (mut total, mut on_host) = (0.0, 0.0);
    for part in results {
        let part = part?;
        gradients.add(part.gradients, model);
        measured.merge(part.measured);
        total += part.loss;
        on_host += part.on_host / count;
    }
    timings.objective += on_host;
    timings.forward_backward += clock.elapsed().as_secs_f64() - on_host;
    if !total.is_finite() {
        return Err(TrainerError::NonFinite { what: "the loss".into(), value: total });
    }
    measured.metrics.add_mean("loss", total, 1.0);
    Ok(Some((gradients, denominator)))
}

/// Deals rows out over at most `count` parts of nearly the same work: from the longest on, one to each in turn.
fn parts_of<'a>(rows: &[&'a TrainRow], count: usize) -> Vec<Vec<&'a TrainRow>> {
    let mut order = rows.to_vec();
    order.sort_by_key(|row| Reverse(row.sequence.len()));
    let count = count.clamp(1, order.len().max(1));
    (0..count).map(|part| order.iter().skip(part).step_by(count).copied().collect()).collect()
}

/// What the forward and backward passes of an optimizer batch have in common.
struct Pass<'a, B: AutodiffBackend> {
    plan: &'a Plan<B>,
    denominator: &'a Denominator,
    entropy: EntropyMode,
    device: &'a B::Device,
}

/// What the passes over some rows of an optimizer batch came to.
struct Part<M> {
    gradients: Gradients<M>,
    loss: f64,
    measured: Measured,
    /// Seconds in the objective.
    on_host: f64,
}

impl<B: AutodiffBackend> Pass<'_, B> {
    /// Runs forward and backward over `rows`, micro-batch by micro-batch.
    fn run<M>(&self, model: &M, rows: &[&TrainRow]) -> Result<Part<M>, TrainerError>
    where
        M: CausalLm<B> + AutodiffModule<B>,
        M::InnerModule: CausalLm<B::InnerBackend>,
    {
        let Self { plan, denominator, entropy, device } = *self;
        let lengths: Vec<usize> = rows.iter().map(|row| row.sequence.len()).collect();
        let mut done =
            Part { gradients: Gradients::new(), loss: 0.0, measured: Measured::default(), on_host: 0.0 };
        for batch in micro_batches(&lengths, plan.settings.micro_batch_limit_of_part()) {
            let batch: Vec<&TrainRow> = batch.into_iter().map(|index| rows[index]).collect();
            let sequences: Vec<&Sequence> = batch.iter().map(|row| &row.sequence).collect();
            let options = ScoreOptions {
                temperature: plan.settings.sampling.temperature,
                entropy,
                ..ScoreOptions::default()
            };
            let top_k = plan.requirements.top_k > 0;
            let top_k = top_k.then(|| current_top_k(plan, &model.valid(), &batch, &sequences, device));
            let Some(padded) = PaddedBatch::new(&sequences, device) else { continue };
            let (pass, hidden) = ForwardPass::run(model, &padded, plan.settings.recompute_activations);
            let TokenScores { log_probs, entropies } =
                model.token_scores(padded.scored(hidden), padded.targets, options);
            let entropy_values = entropies.as_ref().map(|entropies| to_host(entropies.clone().inner()));
            if let Some(values) = &entropy_values {
                done.measured.metrics.add_mean("entropy", values.iter().sum(), values.len() as f64);
            }
            let weight =
                |row: &&TrainRow| plan.aggregation.weight(denominator, plan.counted_tokens(&row.context));
            let weights: Vec<f64> = batch.iter().map(weight).collect();
            let part = MicroBatch {
                rows: &batch,
                sequences: &sequences,
                weights: &weights,
                entropies: entropy_values.as_deref(),
                top_k: top_k.as_deref(),
            };
            let loss = part.loss(plan, log_probs.clone(), &mut done.measured, &mut done.on_host, device);
            let (mut loss, mut value) = match loss {
                Ok(loss) => loss,
                Err(error) => {
                    log_probs.sum().backward(); // a graph that is never run backward is never freed
                    return Err(error);
                }
            };
            if plan.entropy_coefficient > 0.0
                && let (Some(entropies), Some(values)) = (entropies, &entropy_values)
            {
                let shares = part.token_weights(plan.entropy_coefficient);
                value -= shares.iter().zip(values).map(|(share, value)| share * value).sum::<f64>();
                let shares = floats(shares.iter().map(|share| *share as f32).collect(), device);
                loss = loss + surrogate(entropies, shares);
            }
            done.loss += value;
            pass.backward(&loss, model, model, &mut done.gradients);
        }
        Ok(done)
    }
}

/// Rows that go through the model together.
struct MicroBatch<'a> {
    rows: &'a [&'a TrainRow],
    sequences: &'a [&'a Sequence],
    /// Aggregation weight of each row.
    weights: &'a [f64],
    /// Entropy of every policy token, row after row, when there are any.
    entropies: Option<&'a [f64]>,
    /// The current policy's log-probs of the behaviour policy's most likely tokens, row by row, when required.
    top_k: Option<&'a [Vec<f64>]>,
}

impl MicroBatch<'_> {
    /// `scale` times the aggregation weight of every policy token, row after row.
    fn token_weights(&self, scale: f64) -> Vec<f64> {
        let rows = self.rows.iter().zip(self.weights);
        rows.flat_map(|(row, weight)| std::iter::repeat_n(scale * weight, row.context.len())).collect()
    }

    /// The responses as the parts of an objective see them.
    fn responses<'c>(
        &'c self,
        current: &'c [LogProbs<Current>],
    ) -> Result<Vec<ResponseTokens<'c>>, TrainerError> {
        let entropies = self.entropies.map(|values| split_rows(values, self.sequences));
        let response = |(index, row): (usize, &&'c TrainRow)| {
            let mut response = ResponseTokens::new(&row.context, &current[index])?;
            if let Some(entropies) = &entropies {
                response = response.with_entropies(entropies[index])?;
            }
            if let Some(top_k) = self.top_k {
                response = response.with_top_k(&top_k[index])?;
            }
            Ok(response)
        };
        self.rows.iter().enumerate().map(response).collect()
    }

    /// The loss that is run backward, and its value.
    fn loss<B: AutodiffBackend>(
        &self,
        plan: &Plan<B>,
        log_probs: Tensor<B, 1>,
        measured: &mut Measured,
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
                let responses = self.responses(&current)?;
                let evaluate =
                    |(response, weight): (&ResponseTokens<'_>, &f64)| objective.evaluate(response, *weight);
                let evaluated: Vec<ResponseTerms> =
                    responses.par_iter().zip(self.weights).map(evaluate).collect();
                let kl_in_loss = plan.requirements.reference_log_probs && plan.reward_kl.is_none();
                for ((row, response), terms) in self.rows.iter().zip(&responses).zip(evaluated) {
                    check_finite(row, "coefficient", &terms.coefficients)?;
                    if !terms.loss.is_finite() {
                        let what = format!("the loss of {}", row.name);
                        return Err(TrainerError::NonFinite { what, value: terms.loss });
                    }
                    record_terms(response, &terms, kl_in_loss, &mut measured.metrics);
                    measured.positions.add(response, &terms);
                    if row.context.index() < plan.settings.token_traces_per_step {
                        measured.traced.insert(row.context.index(), response.current().to_vec());
                    }
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

/// The current policy's log-probs of the behaviour policy's most likely tokens.
fn current_top_k<B: AutodiffBackend, N: CausalLm<B::InnerBackend>>(
    plan: &Plan<B>,
    model: &N,
    rows: &[&TrainRow],
    sequences: &[&Sequence],
    device: &B::Device,
) -> Vec<Vec<f64>> {
    let wanted: Vec<_> = rows
        .iter()
        .map(|row| row.context.top_k().expect("the batch was collected with what is required"))
        .collect();
    let temperature = plan.settings.sampling.temperature;
    distribution::log_probs_of(
        model,
        sequences,
        &wanted,
        temperature,
        plan.settings.micro_batch_limit(),
        device,
    )
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

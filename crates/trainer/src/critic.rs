//! The critic: predicted values, and their loss.

use burn::{module::AutodiffModule, tensor::backend::AutodiffBackend};
use firebrick_core::{CausalLm, Metrics};
use firebrick_models::ValueModel;
use firebrick_objectives::{Denominator, ValueLoss};

use crate::{
    OptimizerSettings, Plan, Sequence, TrainerError,
    forward_pass::ForwardPass,
    gradients::Gradients,
    learner::Learner,
    micro_batches,
    optimizer_batch::TrainRow,
    sequence::{PaddedBatch, floats, ints, per_row, split_rows, to_host},
};

/// What the critic said of a response when the rollout batch was collected, and what it is trained towards: one entry per
/// policy token, in units of the reward.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CriticTargets {
    pub(crate) values: Vec<f64>,
    pub(crate) returns: Vec<f64>,
}

/// A value model that learns beside the policy. It starts from the policy's weights with a head that predicts zero.
#[derive(Debug)]
pub(crate) struct Critic<B: AutodiffBackend, M>
where
    M: CausalLm<B> + AutodiffModule<B>,
    M::InnerModule: CausalLm<B::InnerBackend>,
{
    pub(crate) learner: Learner<B, ValueModel<B, M>>,
}

impl<B: AutodiffBackend, M> Critic<B, M>
where
    M: CausalLm<B> + AutodiffModule<B>,
    M::InnerModule: CausalLm<B::InnerBackend>,
{
    pub(crate) fn new(policy: &M, settings: &OptimizerSettings, device: &B::Device) -> Self {
        let valid = policy.valid();
        // One token is enough to learn how wide hidden states are.
        let [_, _, width] =
            valid.hidden(ints(vec![0], device).unsqueeze(), ints(vec![0], device).unsqueeze()).dims();
        let model = ValueModel::new(policy.clone(), width, device);
        Self { learner: Learner::new(model, settings) }
    }

    /// Predicted values at the policy tokens of every sequence, on the inference backend.
    pub(crate) fn values(
        &self,
        sequences: &[&Sequence],
        max_tokens: Option<usize>,
        device: &B::Device,
    ) -> Vec<Vec<f64>> {
        let model = self.learner.model().valid();
        per_row(sequences, max_tokens, |rows| {
            let batch = PaddedBatch::new(rows, device)?;
            Some(to_host(model.values(batch.scored_by(&model.trunk))))
        })
    }

    /// Forward and backward of the value loss over all micro-batches of an optimizer batch.
    pub(crate) fn accumulate(
        &self,
        plan: &Plan<B>,
        loss: ValueLoss,
        rows: &[&TrainRow],
        denominator: &Denominator,
        metrics: &mut Metrics,
        device: &B::Device,
    ) -> Result<Gradients<ValueModel<B, M>>, TrainerError> {
        let model = self.learner.model();
        let lengths: Vec<usize> = rows.iter().map(|row| row.sequence.len()).collect();
        let mut gradients = Gradients::new();
        for batch in micro_batches(&lengths, plan.settings.micro_batch_limit()) {
            let batch: Vec<&TrainRow> = batch.into_iter().map(|index| rows[index]).collect();
            let sequences: Vec<&Sequence> = batch.iter().map(|row| &row.sequence).collect();
            let Some(padded) = PaddedBatch::new(&sequences, device) else { continue };
            let (pass, hidden) = ForwardPass::run(&model.trunk, &padded, plan.settings.recompute_activations);
            let values = model.values(padded.scored(hidden));
            let on_host = to_host(values.clone().inner());
            let mut slopes = Vec::with_capacity(on_host.len());
            for (row, values) in batch.iter().zip(split_rows(&on_host, &sequences)) {
                let targets = row.critic.as_ref().expect("a plan with a critic has targets for every row");
                let weight = plan.aggregation.weight(denominator, plan.counted_tokens(&row.context));
                let terms = loss.evaluate(values, &targets.values, &targets.returns, weight);
                let tokens = values.len() as f64;
                metrics.add_sum("value_loss", terms.loss);
                metrics.add_mean("value_clip_ratio", terms.clipped as f64, tokens);
                slopes.extend(terms.gradient.iter().map(|slope| *slope as f32));
            }
            // Like the policy's surrogate: a sum whose gradient is the loss's.
            let loss = (values * floats(slopes, device)).sum();
            pass.backward(&loss, model, &model.trunk, &mut gradients);
        }
        Ok(gradients)
    }
}

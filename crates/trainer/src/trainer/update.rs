//! The second half of a step: passes over the rollout batch, optimizer steps, numbers that go wrong.

use std::time::Instant;

use burn::{module::AutodiffModule, tensor::backend::AutodiffBackend};
use firebrick_core::{CausalLm, EntropyMode, Metrics, SeedStream};
use rand::seq::SliceRandom;

use super::Trainer;
use crate::{
    StepOutcome, Timings, TrainerError, dump,
    optimizer_batch::{Measured, TrainRow, accumulate},
};

/// Optimizer steps in a row that may be skipped before the run ends: one is an accident, three are a pattern.
const MOST_SKIPPED_IN_A_ROW: usize = 3;

impl<B: AutodiffBackend, M> Trainer<B, M>
where
    M: CausalLm<B> + AutodiffModule<B>,
    M::InnerModule: CausalLm<B::InnerBackend>,
{
    /// Passes over the groups in a new order each, dealt out over the optimizer steps of a pass.
    ///
    /// An optimizer step that meets a number which is not finite is skipped: its batch is written down for replay, and
    /// weights and stateful parts stay as they were.
    pub(super) fn update(
        &mut self,
        groups: &mut [Vec<TrainRow>],
        step: &mut Measured,
        timings: &mut Timings,
    ) -> Result<(StepOutcome, usize), TrainerError> {
        let settings = self.plan.settings.clone();
        let planned = self.step * settings.epochs * settings.mini_batches;
        let (mut taken, mut skipped) = (0, 0);
        for epoch in 0..settings.epochs {
            let mut order: Vec<usize> = (0..groups.len()).collect();
            order.shuffle(&mut settings.seed.rng(SeedStream::MiniBatch, &[self.step as u64, epoch as u64]));
            for part in 0..settings.mini_batches {
                let rows: Vec<&TrainRow> = order
                    .iter()
                    .skip(part)
                    .step_by(settings.mini_batches)
                    .flat_map(|group| &groups[*group])
                    .collect();
                // The entropy of the sampling policy is a property of the batch; later passes would only repeat it.
                let entropy = self.plan.entropy_mode(epoch == 0);
                let index = epoch * settings.mini_batches + part;
                let before = self.plan.save_parts();
                let mut measured = Measured::default();
                match self.optimizer_step(&rows, entropy, planned + index, &mut measured, timings) {
                    Ok(stepped) => {
                        warn_if_ratio_is_one(taken, &mut measured.metrics);
                        step.merge(measured);
                        self.skipped_in_a_row = 0;
                        taken += usize::from(stepped);
                        if stepped {
                            groups.iter_mut().flatten().for_each(|row| row.context.age());
                        }
                    }
                    Err(fault @ TrainerError::NonFinite { .. }) => {
                        skipped += 1;
                        self.plan.load_parts(&before)?;
                        self.skip(fault, &rows, &before, index)?;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        step.metrics.add_sum("optimizer_steps", taken as f64);
        step.metrics.add_sum("skipped_steps", f64::from(skipped));
        let outcome = match (taken, skipped) {
            (0, 0) => StepOutcome::NothingToTrain,
            (0, _) => StepOutcome::Skipped,
            _ => StepOutcome::Trained,
        };
        if outcome == StepOutcome::NothingToTrain {
            tracing::warn!("no completion was scored, so the step trained on nothing");
        }
        Ok((outcome, taken))
    }

    /// One optimizer step; `false` when the batch holds no token to train on.
    fn optimizer_step(
        &mut self,
        rows: &[&TrainRow],
        entropy: EntropyMode,
        index: usize,
        measured: &mut Measured,
        timings: &mut Timings,
    ) -> Result<bool, TrainerError> {
        let model = self.learner.model();
        let accumulated = accumulate(&mut self.plan, model, rows, entropy, measured, timings, &self.device)?;
        let Some((gradients, denominator)) = accumulated else { return Ok(false) };
        let metrics = &mut measured.metrics;
        let clock = Instant::now();
        let critic = match (&self.critic, self.plan.value_loss) {
            (Some(critic), Some(loss)) => {
                let gradients =
                    critic.accumulate(&self.plan, loss, rows, &denominator, metrics, &self.device)?;
                Some(critic.learner.clip(gradients)?)
            }
            _ => None,
        };
        timings.forward_backward += clock.elapsed().as_secs_f64();
        let _span = tracing::info_span!("optimize").entered();
        let clock = Instant::now();
        // Nothing moves before all gradients are known to be finite.
        let (gradients, norm) = self.learner.clip(gradients)?;
        let settings = &self.plan.settings;
        let steps = settings.optimizer_steps();
        let rate = settings.optimizer.schedule(steps).at(index);
        self.learner.apply(gradients, rate);
        if let (Some(critic), Some((gradients, norm))) = (&mut self.critic, critic) {
            critic.learner.apply(gradients, settings.critic_optimizer().schedule(steps).at(index));
            metrics.add_mean("critic_grad_norm", norm, 1.0);
        }
        timings.optimizer += clock.elapsed().as_secs_f64();
        metrics.add_mean("grad_norm", norm, 1.0);
        metrics.add_mean("learning_rate", rate, 1.0);
        self.version += 1;
        Ok(true)
    }

    /// Writes the batch of a skipped optimizer step down, and ends the run when too many were skipped in a row.
    fn skip(
        &mut self,
        fault: TrainerError,
        rows: &[&TrainRow],
        parts: &dump::Parts,
        index: usize,
    ) -> Result<(), TrainerError> {
        self.skipped_in_a_row += 1;
        let written = match &self.run_directory {
            Some(run) => {
                let folder = run.path().join("dumps").join(format!("step_{}_update_{index}", self.step));
                dump::write(&folder, self.learner.model(), self.plan.anchor, rows, parts, &fault)?;
                format!("replay it with `firebrick bench replay {}`", folder.display())
            }
            None => "there is no run directory to write its batch to".to_owned(),
        };
        tracing::warn!(step = self.step, update = index, %fault, "optimizer step skipped; {written}");
        if self.skipped_in_a_row >= MOST_SKIPPED_IN_A_ROW {
            return Err(TrainerError::TooManySkipped {
                count: self.skipped_in_a_row,
                written,
                last: Box::new(fault),
            });
        }
        Ok(())
    }
}

/// After the first optimizer step on a rollout batch the ratio must have moved.
fn warn_if_ratio_is_one(optimizer_steps: usize, metrics: &mut Metrics) {
    if optimizer_steps > 0
        && let Some(moved) = metrics.get("log_ratio/abs_max")
    {
        metrics.add_max("ratio_identically_one", f64::from(u8::from(moved == 0.0)));
        if moved == 0.0 {
            tracing::warn!(
                "ratio_identically_one: the policy was updated but no importance ratio moved; is the learning rate zero?"
            );
        }
    }
}

//! Supervised fine-tuning on worked solutions, before reinforcement learning.

use burn::{module::AutodiffModule, tensor::backend::AutodiffBackend};
use firebrick_core::{CausalLm, Prompt, ScoreOptions, SeedStream};
use firebrick_objectives::{Aggregation, Denominator};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use crate::{
    EvaluationSettings, OptimizerSettings, PlanError, Sequence, Trainer, TrainerError, WorkedSolution,
    data_cursor::DataCursor,
    gradients::Gradients,
    micro_batches,
    plan::require,
    score,
    sequence::{floats, to_host},
    surrogate,
};

/// A warm start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmStartSettings {
    /// Most optimizer steps.
    pub steps: usize,
    /// Worked solutions per step.
    pub batch_size: usize,
    /// AdamW and its learning rate; the moments do not go on into reinforcement learning.
    pub optimizer: OptimizerSettings,
    /// Stop as soon as single completions reach this accuracy on the probe problems.
    #[serde(default)]
    pub stop_at_accuracy: Option<f64>,
    /// Steps between two looks at the accuracy.
    #[serde(default = "default_probe_every")]
    pub probe_every: usize,
    /// Problems of the probe (the first of the training problems), one completion each.
    #[serde(default = "default_probe_problems")]
    pub probe_problems: usize,
}

impl WarmStartSettings {
    /// Checks every range.
    ///
    /// # Errors
    /// Names the key, its value and what is allowed.
    pub fn validate(&self) -> Result<(), PlanError> {
        for (key, value) in [
            ("steps", self.steps),
            ("batch_size", self.batch_size),
            ("probe_every", self.probe_every),
            ("probe_problems", self.probe_problems),
        ] {
            require(value >= 1, key, value as f64, "a whole number, at least 1")?;
        }
        self.optimizer.validate()?;
        match self.stop_at_accuracy {
            Some(target) => {
                require((0.0..=1.0).contains(&target), "stop_at_accuracy", target, "a share, in [0, 1]")
            }
            None => Ok(()),
        }
    }
}

fn default_probe_every() -> usize {
    20
}
fn default_probe_problems() -> usize {
    128
}

/// What a warm start did.
#[derive(Debug, Clone, PartialEq)]
pub struct WarmStartReport {
    /// Optimizer steps taken.
    pub steps: usize,
    /// Mean negative log-likelihood per token (nats) of each step.
    pub losses: Vec<f64>,
    /// Accuracy of the last probe, if one was made.
    pub probe_accuracy: Option<f64>,
}

impl<B: AutodiffBackend, M> Trainer<B, M>
where
    M: CausalLm<B> + AutodiffModule<B>,
    M::InnerModule: CausalLm<B::InnerBackend>,
{
    /// Fine-tunes the model on worked solutions: the token mean of −log π_θ over the responses, each with a stop token.
    ///
    /// `probe` are the problems that [`WarmStartSettings::stop_at_accuracy`] looks at; never the held-out ones.
    ///
    /// # Errors
    /// When a solution cannot be tokenized, there is none, or a number is not finite.
    pub fn warm_start(
        &mut self,
        solutions: &[WorkedSolution],
        settings: &WarmStartSettings,
        probe: &[Prompt],
    ) -> Result<WarmStartReport, TrainerError> {
        if solutions.is_empty() {
            return Err(TrainerError::NoData { what: "the list of worked solutions" });
        }
        let _span = tracing::info_span!("warm_start").entered();
        let sequences = self.encode_solutions(solutions)?;
        let schedule = settings.optimizer.schedule(settings.steps);
        let mut cursor = DataCursor::new(self.plan.settings.seed, SeedStream::WarmStart);
        self.learner.restart(&settings.optimizer);
        let mut report = WarmStartReport { steps: 0, losses: Vec::new(), probe_accuracy: None };
        let bar = ProgressBar::new(settings.steps as u64).with_message("warm start");
        for step in 0..settings.steps {
            if self.stop.is_raised() {
                return Err(TrainerError::StoppedInWarmStart { step });
            }
            let rows: Vec<&Sequence> = cursor
                .next(sequences.len(), settings.batch_size)
                .into_iter()
                .map(|index| &sequences[index])
                .collect();
            let loss = self.supervised_step(&rows, schedule.at(step))?;
            report.losses.push(loss);
            report.steps = step + 1;
            bar.inc(1);
            if let Some(target) = settings.stop_at_accuracy
                && report.steps.is_multiple_of(settings.probe_every)
                && !probe.is_empty()
            {
                let problems = &probe[..probe.len().min(settings.probe_problems)];
                let accuracy = self.assess(problems, &EvaluationSettings::new(1))?.avg_at_k.value;
                tracing::info!(step = report.steps, loss, accuracy, "warm start");
                report.probe_accuracy = Some(accuracy);
                if accuracy >= target {
                    break;
                }
            }
        }
        bar.finish_and_clear();
        let optimizer = self.plan.settings.optimizer.clone();
        self.learner.restart(&optimizer);
        Ok(report)
    }

    fn encode_solutions(&self, solutions: &[WorkedSolution]) -> Result<Vec<Sequence>, TrainerError> {
        solutions
            .iter()
            .enumerate()
            .map(|(index, solution)| {
                let failed = |source| TrainerError::WorkedSolution { index, source };
                let prompt = self.tokenizer.encode_chat(&solution.messages).map_err(failed)?;
                let mut response = self.tokenizer.encode(&solution.response).map_err(failed)?;
                response.extend(self.tokenizer.stop_tokens().first());
                Ok(Sequence::prompt_and_response(&prompt, &response))
            })
            .collect()
    }

    /// Returns the mean negative log-likelihood per response token.
    fn supervised_step(&mut self, rows: &[&Sequence], rate: f64) -> Result<f64, TrainerError> {
        let denominator = Denominator::of(rows.iter().map(|row| row.scored_len()))
            .map_err(|_| TrainerError::NoData { what: "the batch of worked solutions" })?;
        let model = self.learner.model();
        let lengths: Vec<usize> = rows.iter().map(|row| row.len()).collect();
        let mut gradients = Gradients::new();
        let mut total = 0.0;
        for batch in micro_batches(&lengths, self.plan.settings.micro_batch_limit()) {
            let batch: Vec<&Sequence> = batch.into_iter().map(|index| rows[index]).collect();
            let Some(scores) = score(model, &batch, ScoreOptions::default(), &self.device) else { continue };
            let weights = batch
                .iter()
                .flat_map(|row| {
                    let weight = Aggregation::TokenMean.weight(&denominator, row.scored_len());
                    std::iter::repeat_n(weight as f32, row.scored_len())
                })
                .collect();
            let loss = surrogate(scores.log_probs, floats(weights, &self.device));
            total += to_host(loss.clone().inner())[0];
            gradients.backward(&loss, model);
        }
        self.learner.step(gradients, rate)?;
        Ok(total)
    }
}

//! The loop: rollout, verdicts, advantages, optimizer steps.

use std::time::Instant;

use burn::{module::AutodiffModule, tensor::backend::AutodiffBackend};
use firebrick_core::{
    Advantage, Anchor, CausalLm, EntropyMode, Group, LogProbs, Metrics, PolicyRef, Prompt, ResponseContext,
    RewardBatch, RewardRow, RolloutEngine, SamplingSpec, ScoreOptions, SeedStream, Tokenizer,
};
use indicatif::{ProgressBar, ProgressStyle};
use rand::seq::SliceRandom;

use crate::{
    EvaluationReport, EvaluationSettings, Plan, RunDirectory, Sequence, StepReport, Timings, TrainerError,
    data_cursor::DataCursor,
    evaluation,
    learner::Learner,
    optimizer_batch::{TrainRow, accumulate},
    parity,
    rollout_batch::{Sampler, record},
    sequence::log_probs,
};

/// Trains a model of type `M` on the autodiff backend `B` as a [`Plan`] says.
///
/// The trainer is made of parts and knows none of them by name. Generation, evaluation, proximal and reference log-probs
/// run on the inner backend (`model.valid()`), which shares the weights: a forward pass on an autodiff backend that is
/// never followed by `backward` keeps its graph for ever.
#[derive(Debug)]
pub struct Trainer<B: AutodiffBackend, M>
where
    M: CausalLm<B> + AutodiffModule<B>,
{
    pub(crate) plan: Plan<B>,
    pub(crate) learner: Learner<B, M>,
    pub(crate) tokenizer: Box<dyn Tokenizer>,
    pub(crate) engine: Box<dyn RolloutEngine<M::InnerModule>>,
    pub(crate) device: B::Device,
    sampling: SamplingSpec,
    reference: Option<M::InnerModule>,
    run_directory: Option<RunDirectory>,
    cursor: DataCursor,
    step: usize,
    /// Version of the weights: optimizer steps taken.
    version: u64,
}

impl<B: AutodiffBackend, M> Trainer<B, M>
where
    M: CausalLm<B> + AutodiffModule<B>,
    M::InnerModule: CausalLm<B::InnerBackend>,
{
    /// Joins a checked plan with a model, its tokenizer and an engine. Stop tokens that the plan leaves out are the tokenizer's.
    ///
    /// # Errors
    /// When model and tokenizer do not fit each other.
    pub fn new(
        plan: Plan<B>,
        model: M,
        tokenizer: impl Tokenizer + 'static,
        engine: impl RolloutEngine<M::InnerModule> + 'static,
        device: B::Device,
    ) -> Result<Self, TrainerError> {
        if tokenizer.vocab_size() > model.vocab_size() {
            return Err(TrainerError::Vocabulary {
                tokenizer: tokenizer.vocab_size(),
                model: model.vocab_size(),
            });
        }
        let mut sampling = plan.settings.sampling.clone();
        if sampling.stop_tokens.is_empty() {
            sampling.stop_tokens = tokenizer.stop_tokens().to_vec();
        }
        Ok(Self {
            learner: Learner::new(model, &plan.settings.optimizer),
            cursor: DataCursor::new(plan.settings.seed, SeedStream::Data),
            plan,
            tokenizer: Box::new(tokenizer),
            engine: Box::new(engine),
            device,
            sampling,
            reference: None,
            run_directory: None,
            step: 0,
            version: 0,
        })
    }

    /// Writes metrics, timings, traces and evaluations to a run directory.
    #[must_use]
    pub fn with_run_directory(mut self, run_directory: RunDirectory) -> Self {
        self.run_directory = Some(run_directory);
        self
    }

    /// The model in training.
    pub fn model(&self) -> &M {
        self.learner.model()
    }

    /// Trains until the plan's steps are done, with a progress bar when the output is a terminal.
    ///
    /// # Errors
    /// When a step fails.
    pub fn run(&mut self, prompts: &[Prompt]) -> Result<Vec<StepReport>, TrainerError> {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} steps, {eta} left  {msg}");
        let bar = ProgressBar::new(self.plan.settings.steps as u64)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let mut reports = Vec::new();
        while self.step < self.plan.settings.steps {
            let report = self.step(prompts)?;
            let metric = |name| report.metrics.get(name).unwrap_or(f64::NAN);
            let reward = metric("reward/mean");
            bar.set_message(format!("reward {reward:.3}"));
            bar.inc(1);
            tracing::info!(
                step = report.step,
                reward,
                entropy = metric("entropy"),
                length = metric("completions/mean_length"),
                clipped = metric("clip_ratio/region_mean"),
                grad_norm = metric("grad_norm"),
                seconds = report.timings.total(),
            );
            reports.push(report);
        }
        bar.finish_and_clear();
        Ok(reports)
    }

    /// One rollout batch and all optimizer steps on it.
    ///
    /// # Errors
    /// When a part fails, when engine and trainer disagree before the first optimizer step, or when a number is not
    /// finite.
    pub fn step(&mut self, prompts: &[Prompt]) -> Result<StepReport, TrainerError> {
        if prompts.is_empty() {
            return Err(TrainerError::NoData { what: "the list of training prompts" });
        }
        let _span = tracing::info_span!("step", step = self.step).entered();
        let mut metrics = Metrics::default();
        let mut timings = Timings::default();
        let groups = self.rollout(prompts, &mut timings)?;
        record(&groups, &mut metrics);
        let clock = Instant::now();
        let (rows, advantages) = self.rows(&groups, &mut metrics)?;
        timings.score = clock.elapsed().as_secs_f64();
        let optimizer_steps = self.update(&rows, &mut metrics, &mut timings)?;
        let report = StepReport { step: self.step, optimizer_steps, metrics, timings };
        self.write(&report, &groups, &advantages)?;
        self.step += 1;
        Ok(report)
    }

    fn rollout(&mut self, prompts: &[Prompt], timings: &mut Timings) -> Result<Vec<Group>, TrainerError> {
        let settings = &self.plan.settings;
        let picked = self.cursor.next(prompts.len(), settings.prompts_per_step);
        let chosen: Vec<&Prompt> = picked.iter().map(|index| &prompts[*index]).collect();
        let (seed, step, samples) = (settings.seed, self.step as u64, settings.group_size);
        Sampler {
            engine: self.engine.as_mut(),
            policy: PolicyRef { model: &self.learner.model().valid(), version: self.version },
            sampling: &self.sampling,
            tokenizer: self.tokenizer.as_ref(),
            verifier: self.plan.control.as_ref().unwrap_or(&self.plan.verifier).as_ref(),
            timings,
        }
        .groups(&chosen, samples, |prompt, sample| seed.seed(SeedStream::Sampling, &[step, prompt, sample]))
    }

    /// Advantages and log-probs under the fixed policies. Unscored rows are left out of the loss and its denominator.
    fn rows(
        &mut self,
        groups: &[Group],
        metrics: &mut Metrics,
    ) -> Result<(Vec<Vec<TrainRow>>, Vec<Advantage>), TrainerError> {
        let _span = tracing::info_span!("advantage").entered();
        let all: Vec<_> = groups
            .iter()
            .enumerate()
            .flat_map(|(group, members)| members.rows.iter().map(move |row| (group, row)))
            .collect();
        let rewards = all
            .iter()
            .map(|(group, row)| RewardRow::new(*group, row.verdict.reward(), row.completion.policy_len()))
            .collect();
        let advantages = self.plan.advantage.advantages(&RewardBatch { rows: rewards })?.rows;

        let sequences: Vec<Sequence> = all.iter().map(|(_, row)| Sequence::from(&row.completion)).collect();
        let model = self.learner.model().valid();
        let mut proximal = None;
        if self.plan.anchor == Anchor::Proximal || self.version == 0 {
            let recomputed = self.score(&model, &sequences);
            if self.version == 0 {
                let parity = parity::check(groups, &recomputed, self.plan.settings.parity_tolerance)?;
                metrics.add_mean("mismatch/abs_log_prob_mean", parity.mean, 1.0);
                metrics.add_max("mismatch/abs_log_prob_max", parity.max);
            }
            proximal = (self.plan.anchor == Anchor::Proximal).then_some(recomputed);
        }
        let mut reference = None;
        if self.plan.requirements.reference_log_probs {
            let policy = self.reference.take().unwrap_or(model);
            reference = Some(self.score(&policy, &sequences));
            self.reference = Some(policy);
        }

        let max_len = self.sampling.max_new_tokens;
        let mut rows: Vec<Vec<TrainRow>> = groups.iter().map(|_| Vec::new()).collect();
        for (index, (((group, row), sequence), advantage)) in
            all.into_iter().zip(sequences).zip(&advantages).enumerate()
        {
            let len = row.completion.policy_len();
            let per_token = match advantage {
                Advantage::Excluded => continue,
                Advantage::Response(value) => vec![*value; len],
                Advantage::Tokens(values) => values.clone(),
            };
            let mut context = ResponseContext::new(row.completion.behaviour_log_probs(), per_token)?
                .with_group(group)
                .with_max_response_len(max_len)
                .with_seed(
                    self.plan.settings.seed.seed(SeedStream::Objective, &[self.step as u64, index as u64]),
                );
            if let Some(values) = &proximal {
                context = context.anchored_at_proximal(LogProbs::new(values[index].clone()))?;
            }
            if let Some(values) = &reference {
                context = context.with_reference(LogProbs::new(values[index].clone()))?;
            }
            let name = format!("sample {index} (prompt `{}`)", groups[group].prompt.id);
            rows[group].push(TrainRow { name, sequence, context });
        }
        Ok((rows, advantages))
    }

    fn score(&self, model: &M::InnerModule, sequences: &[Sequence]) -> Vec<Vec<f64>> {
        let options = ScoreOptions { temperature: self.sampling.temperature, ..ScoreOptions::default() };
        let sequences: Vec<&Sequence> = sequences.iter().collect();
        log_probs(model, &sequences, options, self.plan.settings.micro_batch_limit(), &self.device)
    }

    /// Passes over the groups in a new order each, dealt out over the optimizer steps of a pass.
    fn update(
        &mut self,
        groups: &[Vec<TrainRow>],
        metrics: &mut Metrics,
        timings: &mut Timings,
    ) -> Result<usize, TrainerError> {
        let settings = self.plan.settings.clone();
        let schedule = settings.optimizer.schedule(settings.optimizer_steps());
        let planned = self.step * settings.epochs * settings.mini_batches;
        let mut taken = 0;
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
                let entropy = if epoch == 0 { EntropyMode::Detached } else { EntropyMode::Skip };
                let model = self.learner.model();
                let mut part_metrics = Metrics::default();
                let gradients = accumulate(
                    &mut self.plan,
                    model,
                    &rows,
                    entropy,
                    &mut part_metrics,
                    timings,
                    &self.device,
                )?;
                warn_if_ratio_is_one(taken, &mut part_metrics);
                metrics.merge(&part_metrics);
                let Some(gradients) = gradients else { continue };
                let _span = tracing::info_span!("optimize").entered();
                let rate = schedule.at(planned + epoch * settings.mini_batches + part);
                let clock = Instant::now();
                let norm = self.learner.step(gradients, rate)?;
                timings.optimizer += clock.elapsed().as_secs_f64();
                metrics.add_mean("grad_norm", norm, 1.0);
                metrics.add_mean("learning_rate", rate, 1.0);
                self.version += 1;
                taken += 1;
            }
        }
        metrics.add_sum("optimizer_steps", taken as f64);
        if taken == 0 {
            tracing::warn!("no completion was scored, so the step trained on nothing");
        }
        Ok(taken)
    }

    fn write(
        &self,
        report: &StepReport,
        groups: &[Group],
        advantages: &[Advantage],
    ) -> Result<(), TrainerError> {
        let Some(run) = &self.run_directory else { return Ok(()) };
        run.log(report.step, &report.metrics)?;
        run.append("timings.jsonl", &serde_json::json!({ "step": report.step, "seconds": report.timings }))?;
        let rows = groups.iter().flat_map(|group| group.rows.iter().map(move |row| (&group.prompt, row)));
        for ((prompt, row), advantage) in rows.zip(advantages).take(self.plan.settings.traces_per_step) {
            let advantage = match advantage {
                Advantage::Excluded => None,
                Advantage::Response(value) => Some(*value),
                Advantage::Tokens(values) => values.first().copied(),
            };
            run.append(
                "traces.jsonl",
                &serde_json::json!({
                    "step": report.step,
                    "id": prompt.id,
                    "answer": prompt.answer,
                    "response": self.tokenizer.decode(row.completion.response_tokens()),
                    "verdict": row.verdict,
                    "advantage": advantage,
                    "tokens": row.completion.policy_len(),
                    "finish_reason": row.completion.finish_reason(),
                }),
            )?;
        }
        Ok(())
    }

    /// Evaluates the current policy: avg@k and unbiased pass@k with standard errors, at the temperature of training.
    /// The same seed draws the same samples, so two evaluations differ by the policy alone.
    ///
    /// # Errors
    /// When generation fails or there is nothing to evaluate.
    pub fn evaluate(
        &mut self,
        prompts: &[Prompt],
        settings: &EvaluationSettings,
    ) -> Result<EvaluationReport, TrainerError> {
        let report = self.assess(prompts, settings)?;
        if let Some(run) = &self.run_directory {
            run.append("evaluations.jsonl", &serde_json::json!({ "step": self.step, "evaluation": report }))?;
        }
        Ok(report)
    }

    /// [`Self::evaluate`] without a record of it.
    pub(crate) fn assess(
        &mut self,
        prompts: &[Prompt],
        settings: &EvaluationSettings,
    ) -> Result<EvaluationReport, TrainerError> {
        let _span = tracing::info_span!("evaluate", problems = prompts.len()).entered();
        let chosen: Vec<&Prompt> = prompts.iter().collect();
        let seed = self.plan.settings.seed;
        let groups = Sampler {
            engine: self.engine.as_mut(),
            policy: PolicyRef { model: &self.learner.model().valid(), version: self.version },
            sampling: &self.sampling,
            tokenizer: self.tokenizer.as_ref(),
            verifier: self.plan.verifier.as_ref(),
            timings: &mut Timings::default(),
        }
        .groups(&chosen, settings.samples, |prompt, sample| {
            seed.seed(SeedStream::Evaluation, &[prompt, sample])
        })?;
        evaluation::report(&groups, settings, self.tokenizer.as_ref())
            .ok_or(TrainerError::NoData { what: "the set of scored problems" })
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

//! The loop: rollout, verdicts, advantages, optimizer steps.

mod collect;
mod replay;
mod state;
mod telemetry;
mod update;

use std::{sync::Arc, time::Instant};

use burn::{module::AutodiffModule, tensor::backend::AutodiffBackend};
use firebrick_core::{CausalLm, PolicyRef, Prompt, RolloutEngine, SamplingSpec, SeedStream, Tokenizer};
use firebrick_reward::Grader;

pub use replay::{ReplayReport, ReplayRow};
pub(crate) use telemetry::Progress;
use telemetry::Traced;

use crate::{
    EvaluationReport, EvaluationSettings, Plan, RunDirectory, StepReport, StopSignal, Timings, TrainerError,
    critic::Critic, data_cursor::DataCursor, evaluation, learner::Learner, optimizer_batch::Measured,
    rollout_batch::Sampler,
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
    M::InnerModule: CausalLm<B::InnerBackend>,
{
    pub(crate) plan: Plan<B>,
    pub(crate) learner: Learner<B, M>,
    pub(crate) tokenizer: Box<dyn Tokenizer>,
    pub(crate) engine: Box<dyn RolloutEngine<M::InnerModule>>,
    pub(crate) device: B::Device,
    /// Verifies for evaluation, and for training unless there is a control.
    grader: Grader,
    /// Verifies for training in the place of `grader`.
    control: Option<Grader>,
    sampling: SamplingSpec,
    /// Prompts are cut to their last tokens where they have more.
    max_prompt_tokens: Option<usize>,
    reference: Option<M::InnerModule>,
    critic: Option<Critic<B, M>>,
    run_directory: Option<RunDirectory>,
    cursor: DataCursor,
    step: usize,
    /// Version of the weights: optimizer steps taken.
    version: u64,
    skipped_in_a_row: usize,
    pub(crate) stop: StopSignal,
}

impl<B: AutodiffBackend, M> Trainer<B, M>
where
    M: CausalLm<B> + AutodiffModule<B>,
    M::InnerModule: CausalLm<B::InnerBackend>,
{
    /// Joins a checked plan with a model, its tokenizer and an engine. Stop tokens that the plan leaves out are the tokenizer's.
    ///
    /// # Errors
    /// When model and tokenizer do not fit each other, or the settings of verification cannot be used.
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
        if plan.requirements.top_k > model.vocab_size() {
            return Err(TrainerError::TopK { k: plan.requirements.top_k, vocabulary: model.vocab_size() });
        }
        let mut sampling = plan.settings.sampling.clone();
        if sampling.stop_tokens.is_empty() {
            sampling.stop_tokens = tokenizer.stop_tokens().to_vec();
        }
        let grader = |verifier: &Arc<_>| Grader::new(Arc::clone(verifier), plan.verification.clone());
        Ok(Self {
            grader: grader(&plan.verifier)?,
            control: plan.control.as_ref().map(grader).transpose()?,
            learner: Learner::new(model, &plan.settings.optimizer),
            cursor: DataCursor::new(plan.settings.seed, SeedStream::Data),
            plan,
            tokenizer: Box::new(tokenizer),
            engine: Box::new(engine),
            device,
            sampling,
            max_prompt_tokens: None,
            reference: None,
            critic: None,
            run_directory: None,
            step: 0,
            version: 0,
            skipped_in_a_row: 0,
            stop: StopSignal::default(),
        })
    }

    /// Writes metrics, timings, traces and evaluations to a run directory.
    #[must_use]
    pub fn with_run_directory(mut self, run_directory: RunDirectory) -> Self {
        self.run_directory = Some(run_directory);
        self
    }

    /// Cuts prompts to their last `tokens` tokens; without a limit a prompt that is too long for the model is an error.
    #[must_use]
    pub fn truncating_prompts(mut self, tokens: usize) -> Self {
        self.max_prompt_tokens = Some(tokens);
        self
    }

    /// Stops after the step during which `stop` is raised; a warm start stops at once.
    #[must_use]
    pub fn stopping_on(mut self, stop: StopSignal) -> Self {
        self.stop = stop;
        self
    }

    pub(crate) fn run_directory(&self) -> Option<&RunDirectory> {
        self.run_directory.as_ref()
    }

    /// The model in training.
    pub fn model(&self) -> &M {
        self.learner.model()
    }

    /// Steps done.
    pub fn steps_done(&self) -> usize {
        self.step
    }

    /// Trains until the plan's steps are done, with a progress bar when the output is a terminal.
    ///
    /// # Errors
    /// When a step fails.
    pub fn run(&mut self, prompts: &[Prompt]) -> Result<Vec<StepReport>, TrainerError> {
        let progress = Progress::new(self.step, self.plan.settings.steps);
        let mut reports = Vec::new();
        while self.step < self.plan.settings.steps && !self.stop.is_raised() {
            let report = self.step(prompts)?;
            progress.announce(&report);
            reports.push(report);
        }
        progress.finish();
        Ok(reports)
    }

    /// One rollout batch and all optimizer steps on it.
    ///
    /// # Errors
    /// When a part fails, when engine and trainer disagree before the first optimizer step, or when numbers are not
    /// finite in three optimizer steps in a row.
    pub fn step(&mut self, prompts: &[Prompt]) -> Result<StepReport, TrainerError> {
        if prompts.is_empty() {
            return Err(TrainerError::NoData { what: "the list of training prompts" });
        }
        let _span = tracing::info_span!("step", step = self.step).entered();
        let mut measured = Measured::default();
        let mut timings = Timings::default();
        let groups = self.rollout(prompts, &mut measured.metrics, &mut timings)?;
        let clock = Instant::now();
        let (mut rows, advantages) = self.rows(&groups, &mut measured.metrics)?;
        timings.score = clock.elapsed().as_secs_f64();
        let (outcome, optimizer_steps) = self.update(&mut rows, &mut measured, &mut timings)?;
        let Measured { mut metrics, positions, traced } = measured;
        let positions = positions.report();
        for (name, value) in positions.scalars() {
            metrics.add_mean(name, value, 1.0);
        }
        let report = StepReport { step: self.step, outcome, optimizer_steps, metrics, positions, timings };
        self.write(&report, &groups, &advantages, &Traced { rows: &rows, current: &traced })?;
        self.step += 1;
        Ok(report)
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
        if let Some(run) = &mut self.run_directory {
            run.log_evaluation(self.step, &report)?;
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
            grader: &self.grader,
            max_prompt_tokens: self.max_prompt_tokens,
            guided: false,
            timings: &mut Timings::default(),
        }
        .groups(&chosen, settings.samples, |prompt, sample| {
            seed.seed(SeedStream::Evaluation, &[prompt, sample])
        })?;
        evaluation::report(&groups, settings, self.tokenizer.as_ref())
            .ok_or(TrainerError::NoData { what: "the set of scored problems" })
    }
}

//! A whole run from a config: warm start, evaluation, reinforcement learning, evaluation, model on disk; and its
//! continuation after it was ended.

use std::time::Instant;

use burn::{module::AutodiffModule, tensor::backend::AutodiffBackend};
use firebrick_core::{CausalLm, Prompt};
use firebrick_models::{Decoder, FusedOps};
use firebrick_reward::RandomReward;
use serde::Serialize;

use crate::{
    CheckpointError, Control, EvaluationReport, LearningRateDecay, MemoryEstimate, Plan, RunConfig,
    RunConfigError, RunDirectory, RunError, StepReport, StopSignal, Trainer,
    checkpoint::{CheckpointStore, Manifest},
    continuation::check_same_run,
    memory_limit::{advice, fitting_settings},
    run_data::RunData,
    run_model::{BASE, describe_adapter, describe_model, trainer_with, write_adapter, write_model},
    trainer::Progress,
};

/// There when a run is done.
const SUMMARY: &str = "summary.json";

/// How a run starts and ends. The default is a new run that nothing stops.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Goes on from the latest checkpoint in the run directory.
    pub resume: bool,
    /// Ends the run after the step during which it is raised.
    pub stop: StopSignal,
    /// Free bytes of the device, which the run's estimate is held against; not checked when unknown.
    pub free_memory: Option<u64>,
}

/// What a run did.
#[derive(Debug, Clone)]
pub struct RunSummary {
    /// Held-out accuracy before reinforcement learning.
    pub before: EvaluationReport,
    /// Held-out accuracy after it.
    pub after: EvaluationReport,
    /// The steps of this process.
    pub steps: Vec<StepReport>,
    /// Optimizer steps of the warm start.
    pub warm_start_steps: usize,
    /// Prompts that were dropped or truncated: of the training problems, of the held-out ones.
    pub over_long_prompts: [usize; 2],
    /// What the tensors were estimated to take.
    pub memory: MemoryEstimate,
    /// Wall-clock seconds of the parts, in this process.
    pub seconds: RunSeconds,
}

/// Wall-clock seconds of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct RunSeconds {
    /// Warm start with its probes.
    pub warm_start: f64,
    /// All evaluations.
    pub evaluation: f64,
    /// Reinforcement learning.
    pub reinforcement: f64,
    /// Checkpoints.
    pub checkpoints: f64,
}

/// Runs a config on the autodiff backend `B`: [`run_plan`] with the plan that the config describes.
///
/// # Errors
/// Names what is wrong with the config, the data, the run directory or the run itself.
pub fn run<B>(config: &RunConfig, options: &RunOptions, device: B::Device) -> Result<RunSummary, RunError>
where
    B: AutodiffBackend + FusedOps,
    B::InnerBackend: FusedOps,
{
    run_plan::<B>(config, plan_of(config)?, options, device)
}

/// The plan that a config describes.
///
/// # Errors
/// Names what is wrong with the config.
pub fn plan_of<B: AutodiffBackend>(config: &RunConfig) -> Result<Plan<B>, RunError> {
    config.validate()?;
    let plan = Plan::new(config.train.clone(), config.objective.build(), config.verifier()?)?
        .with_verification(config.verification.clone());
    Ok(match config.control {
        Control::None => plan,
        Control::Random => plan.with_control_rewards(RandomReward::new(config.train.seed, 0.5)),
    })
}

/// Runs a plan of one's own on the data and the model of a config, whose objective and reward are not looked at.
///
/// Everything that can be refused is refused before a weight is made: config, data files, lengths, run directory, checkpoint.
///
/// # Errors
/// Names what is wrong with the config, the data, the run directory or the run itself; [`RunError::Stopped`] when it was
/// asked to stop.
pub fn run_plan<B>(
    config: &RunConfig,
    plan: Plan<B>,
    options: &RunOptions,
    device: B::Device,
) -> Result<RunSummary, RunError>
where
    B: AutodiffBackend + FusedOps,
    B::InnerBackend: FusedOps,
{
    config.validate()?;
    let data = RunData::read(config)?;
    check_references(config, &plan, &data)?;
    let estimate = MemoryEstimate::of(config, data.longest_prompt)?;
    tracing::info!("memory that the tensors are estimated to take:\n{estimate}");
    check_memory(config, &data, &estimate, options)?;
    let resolved = serde_json::to_value(config).map_err(RunError::Record)?;
    let store = CheckpointStore::new(&config.run.directory, config.checkpoints.clone());
    let (directory, checkpoint) = if options.resume {
        let directory = RunDirectory::open(&config.run.directory)?;
        let checkpoint = store.latest()?;
        if let Some((path, manifest)) = &checkpoint {
            check_same_run(manifest, &resolved, &data.digests, path)?;
            check_steps_left(config, manifest, directory.path().join(SUMMARY).exists())?;
        }
        (directory, checkpoint)
    } else {
        (RunDirectory::create(&config.run.directory, config.run.overwrite)?, None)
    };
    directory.write("config.toml", &toml::to_string(config)?)?;
    directory.remove(SUMMARY)?;
    let mut manifest = match &checkpoint {
        Some((path, manifest)) => {
            tracing::info!(checkpoint = %path.display(), step = manifest.step, "the run goes on");
            manifest.clone()
        }
        None => Manifest::new(0, resolved.clone(), data.digests.clone()),
    };
    manifest.adopt_config(resolved);
    directory.cut_logs(&manifest.logs)?;
    if data.over_long != [0, 0] {
        let [train, held_out] = data.over_long;
        tracing::warn!(rule = ?config.data.over_long_prompts, train, held_out, "over-long prompts");
    }

    for remark in config.objective.remarks(config.train.sampling.max_new_tokens) {
        tracing::warn!(objective = config.objective.r#type, "{remark}");
    }
    let mut start = config.clone();
    if checkpoint.is_some() && config.adapter()?.is_none() {
        start.run.initial_model = None; // the checkpoint's weights take its place
    }
    let trainer = trainer_with(&start, plan, data.tokenizer.clone(), device)?.with_run_directory(directory);
    let mut run = Run::new(config, &data, trainer, manifest, options);
    match checkpoint {
        Some((path, _)) => run.trainer.load_state(&path)?,
        None => run.start()?,
    }
    let steps = run.learn(&options.stop)?;
    run.finish(steps)
}

/// Fine-tunes the model of a config on its worked solutions, evaluates it, and writes it to the run directory; no
/// reinforcement learning. Another run takes it up with `run.initial_model`.
///
/// # Errors
/// As [`run`]; also when the config has no `[warm_start]`.
pub fn fine_tune<B>(
    config: &RunConfig,
    options: &RunOptions,
    device: B::Device,
) -> Result<RunSummary, RunError>
where
    B: AutodiffBackend + FusedOps,
    B::InnerBackend: FusedOps,
{
    if config.warm_start.is_none() {
        return Err(RunConfigError::Combination {
            problem: "there is no [warm_start], which says how to fine-tune".into(),
            fix: "add one, and data.worked_solutions",
        }
        .into());
    }
    let plan = plan_of::<B>(config)?;
    let data = RunData::read(config)?;
    check_memory(config, &data, &MemoryEstimate::of(config, data.longest_prompt)?, options)?;
    let directory = RunDirectory::create(&config.run.directory, config.run.overwrite)?;
    directory.write("config.toml", &toml::to_string(config)?)?;
    let trainer = trainer_with(config, plan, data.tokenizer.clone(), device)?.with_run_directory(directory);
    let manifest = Manifest::new(0, serde_json::Value::Null, data.digests.clone());
    let mut run = Run::new(config, &data, trainer, manifest, options);
    run.warm_start()?;
    run.finish(Vec::new())
}

/// Finds the problems that the verifier cannot grade: some are said, a file that has no other is refused.
fn check_references<B: AutodiffBackend>(
    config: &RunConfig,
    plan: &Plan<B>,
    data: &RunData,
) -> Result<(), RunError> {
    for (key, path, prompts) in [
        ("data.train", &config.data.train, &data.train),
        ("data.held_out", &config.data.held_out, &data.held_out),
    ] {
        let reason = |prompt: &Prompt| {
            let reason = plan.verifier.check_reference(prompt).err()?;
            Some(format!("{}: {reason}", prompt.id))
        };
        let unusable: Vec<String> = prompts.iter().filter_map(reason).collect();
        let Some(first) = unusable.first() else { continue };
        if unusable.len() == prompts.len() {
            return Err(RunError::NoReference { key, path: path.clone(), first: first.clone() });
        }
        let (count, of) = (unusable.len(), prompts.len());
        tracing::warn!(
            key, count, of, first = ?&unusable[..count.min(3)],
            "problems whose completions cannot be graded and stay unscored"
        );
    }
    Ok(())
}

fn check_memory(
    config: &RunConfig,
    data: &RunData,
    estimate: &MemoryEstimate,
    options: &RunOptions,
) -> Result<(), RunError> {
    match options.free_memory.filter(|free| config.run.check_memory && estimate.total() > *free) {
        None => Ok(()),
        Some(available) => {
            let settings = fitting_settings(config, data.longest_prompt, available)?;
            let (advice, estimate) = (advice(config, settings), Box::new(estimate.clone()));
            Err(RunError::Memory { estimate, available, advice })
        }
    }
}

fn check_steps_left(config: &RunConfig, manifest: &Manifest, is_done: bool) -> Result<(), RunError> {
    let steps = config.train.steps;
    if manifest.step > steps || (manifest.step == steps && is_done) {
        return Err(RunError::NothingLeft { done: manifest.step, steps });
    }
    let then = &manifest.config["train"]["steps"];
    if *then != serde_json::json!(steps) && config.train.optimizer.decay != LearningRateDecay::Constant {
        tracing::warn!(
            "train.steps was {then} and is {steps}: the learning rate now decays over the new number of steps, so the run is not what one run of {steps} steps would have been"
        );
    }
    Ok(())
}

/// A run in progress.
struct Run<'a, B: AutodiffBackend + FusedOps>
where
    B::InnerBackend: FusedOps,
{
    config: &'a RunConfig,
    data: &'a RunData,
    store: CheckpointStore,
    trainer: Trainer<B, Decoder<B>>,
    /// What the next checkpoint says.
    manifest: Manifest,
    seconds: RunSeconds,
}

impl<'a, B: AutodiffBackend + FusedOps> Run<'a, B>
where
    B::InnerBackend: FusedOps,
{
    fn new(
        config: &'a RunConfig,
        data: &'a RunData,
        trainer: Trainer<B, Decoder<B>>,
        manifest: Manifest,
        options: &RunOptions,
    ) -> Self {
        Self {
            config,
            data,
            store: CheckpointStore::new(&config.run.directory, config.checkpoints.clone()),
            trainer: trainer.stopping_on(options.stop.clone()).truncating_prompts(data.prompt_limit),
            manifest,
            seconds: RunSeconds::default(),
        }
    }

    /// Warm start, evaluation, and the checkpoint before the first step.
    fn start(&mut self) -> Result<(), RunError> {
        if let (Some(base), None) = (self.trainer.model().valid().base(), self.config.model.folder()?) {
            write_model(self.config, &self.data.tokenizer, &base, BASE)?;
        }
        self.warm_start()?;
        self.evaluate()?;
        self.save(|_| None)
    }

    fn warm_start(&mut self) -> Result<(), RunError> {
        let clock = Instant::now();
        if let Some(settings) = &self.config.warm_start {
            let report = self.trainer.warm_start(&self.data.solutions, settings, &self.data.train)?;
            self.manifest.warm_start_steps = report.steps;
        }
        self.seconds.warm_start = clock.elapsed().as_secs_f64();
        Ok(())
    }

    /// Evaluates, unless the weights are those that were evaluated last. The first evaluation is the one before learning.
    fn evaluate(&mut self) -> Result<EvaluationReport, RunError> {
        let step = self.trainer.steps_done();
        if let Some((_, report)) = self.manifest.evaluated.as_ref().filter(|(at, _)| *at == step) {
            return Ok(report.clone());
        }
        let clock = Instant::now();
        let report = self.trainer.evaluate(&self.data.held_out, &self.config.evaluation)?;
        self.seconds.evaluation += clock.elapsed().as_secs_f64();
        tracing::info!(step, avg_at_k = %report.avg_at_k, problems = report.problems, "held-out");
        self.manifest.before.get_or_insert_with(|| report.clone());
        self.manifest.evaluated = Some((step, report.clone()));
        Ok(report)
    }

    /// The steps that are left, with evaluations and checkpoints.
    fn learn(&mut self, stop: &StopSignal) -> Result<Vec<StepReport>, RunError> {
        let settings = self.config;
        let mut reports = Vec::new();
        let progress = Progress::new(self.trainer.steps_done(), settings.train.steps);
        while self.trainer.steps_done() < settings.train.steps && !stop.is_raised() {
            let clock = Instant::now();
            let report = self.trainer.step(&self.data.train)?;
            self.seconds.reinforcement += clock.elapsed().as_secs_f64();
            progress.announce(&report);
            let done = self.trainer.steps_done();
            let mut evaluated = Vec::new();
            if settings.evaluation.every > 0 && done.is_multiple_of(settings.evaluation.every) {
                evaluated = self.evaluate()?.values();
            }
            if self.store.is_due(done) || done == settings.train.steps || stop.is_raised() {
                self.save(|name| {
                    let evaluated = evaluated.iter().find(|(known, _)| known == name);
                    evaluated.map(|(_, value)| *value).or_else(|| report.metrics.get(name))
                })?;
            }
            reports.push(report);
        }
        progress.finish();
        let done = self.trainer.steps_done();
        if done < settings.train.steps {
            return Err(RunError::Stopped { done, directory: settings.run.directory.clone() });
        }
        Ok(reports)
    }

    fn save(&mut self, metric: impl Fn(&str) -> Option<f64>) -> Result<(), RunError> {
        let _span = tracing::info_span!("checkpoint").entered();
        let clock = Instant::now();
        self.manifest.step = self.trainer.steps_done();
        if let Some(directory) = self.trainer.run_directory() {
            self.manifest.logs = directory.sync_logs()?;
        }
        let trainer = &mut self.trainer;
        let (config, data) = (self.config, self.data);
        self.store.write::<CheckpointError>(self.manifest.clone(), metric, |folder| {
            // So a checkpoint is a model directory as well.
            match config.adapter()? {
                None => describe_model(config, &data.tokenizer, folder)?,
                Some(lora) => describe_adapter(config, &data.tokenizer, &lora, folder)?,
            }
            trainer.save_state(folder)
        })?;
        self.seconds.checkpoints += clock.elapsed().as_secs_f64();
        Ok(())
    }

    /// The last evaluation, the model, and the summary that says that the run is done.
    fn finish(mut self, steps: Vec<StepReport>) -> Result<RunSummary, RunError> {
        let after = self.evaluate()?;
        let before = self.manifest.before.clone().unwrap_or_else(|| after.clone());
        let (model, tokenizer) = (self.trainer.model(), &self.data.tokenizer);
        write_model(self.config, tokenizer, &model.valid().merged(), "model")?;
        if let Some(lora) = self.config.adapter()? {
            write_adapter(self.config, tokenizer, &lora, model, "adapter")?;
        }
        let summary = serde_json::json!({
            "steps": self.trainer.steps_done(),
            "warm_start_steps": self.manifest.warm_start_steps,
            "over_long_prompts": { "train": self.data.over_long[0], "held_out": self.data.over_long[1] },
            "before": before,
            "after": after,
        });
        let text = serde_json::to_string_pretty(&summary).map_err(RunError::Record)?;
        if let Some(directory) = self.trainer.run_directory() {
            directory.write(SUMMARY, &(text + "\n"))?;
        }
        Ok(RunSummary {
            before,
            after,
            steps,
            warm_start_steps: self.manifest.warm_start_steps,
            over_long_prompts: self.data.over_long,
            memory: MemoryEstimate::of(self.config, self.data.longest_prompt)?,
            seconds: self.seconds,
        })
    }
}

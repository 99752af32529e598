//! A whole run from a config: warm start, evaluation, reinforcement learning, evaluation, model on disk.

use std::num::NonZeroUsize;

use burn::tensor::backend::AutodiffBackend;
use firebrick_core::{Prompt, SeedStream, Tokenizer};
use firebrick_models::{CharTokenizer, FusedOps, ModelError, save_safetensors};
use firebrick_reward::RandomReward;
use firebrick_rollout::EmbeddedEngine;
use serde::Serialize;

use crate::{
    Control, DataError, EvaluationReport, Plan, PlanError, RunConfig, RunConfigError, RunDirectory,
    RunDirectoryError, StepReport, Trainer, TrainerError, WorkedSolution, read_prompts,
    read_worked_solutions,
};

/// Most completions that are generated at once: an evaluation asks for thousands.
const ENGINE_ROWS: NonZeroUsize = NonZeroUsize::new(512).expect("not zero");

/// What a run did.
#[derive(Debug, Clone)]
pub struct RunSummary {
    /// Held-out accuracy before reinforcement learning.
    pub before: EvaluationReport,
    /// Held-out accuracy after it.
    pub after: EvaluationReport,
    /// The steps.
    pub steps: Vec<StepReport>,
    /// Optimizer steps of the warm start.
    pub warm_start_steps: usize,
    /// Wall-clock seconds of the parts.
    pub seconds: RunSeconds,
}

/// Wall-clock seconds of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct RunSeconds {
    /// Warm start with its probes.
    pub warm_start: f64,
    /// Both evaluations.
    pub evaluation: f64,
    /// Reinforcement learning.
    pub reinforcement: f64,
}

/// Runs a config on the autodiff backend `B`: [`run_plan`] with the plan that the config describes.
///
/// # Errors
/// Names what is wrong with the config, the data, the run directory or the run itself.
pub fn run<B>(config: &RunConfig, device: B::Device) -> Result<RunSummary, RunError>
where
    B: AutodiffBackend + FusedOps,
    B::InnerBackend: FusedOps,
{
    config.validate()?;
    let verifier = config.verifier().map_err(RunConfigError::from)?;
    let mut plan = Plan::new(config.train.clone(), config.objective.build(), verifier)?;
    if config.control == Control::Random {
        plan = plan.with_control_rewards(RandomReward::new(config.train.seed, 0.5));
    }
    run_plan::<B>(config, plan, device)
}

/// Runs a plan of one's own on the data and the model of a config, whose objective and reward are not looked at.
///
/// Everything that can be refused is refused before a weight is made: config, data files, lengths, run directory.
///
/// # Errors
/// Names what is wrong with the config, the data, the run directory or the run itself.
pub fn run_plan<B>(config: &RunConfig, plan: Plan<B>, device: B::Device) -> Result<RunSummary, RunError>
where
    B: AutodiffBackend + FusedOps,
    B::InnerBackend: FusedOps,
{
    config.validate()?;
    let tokenizer = CharTokenizer::new(&config.tokenizer.alphabet).map_err(RunConfigError::from)?;
    let train = read_prompts(&config.data.train)?;
    let held_out = read_prompts(&config.data.held_out)?;
    let solutions = config.data.worked_solutions.as_deref().map(read_worked_solutions).transpose()?;
    check_lengths(
        config,
        &tokenizer,
        train.iter().chain(&held_out),
        solutions.as_deref().unwrap_or_default(),
    )?;
    let directory = RunDirectory::create(&config.run.directory, config.run.overwrite)?;
    directory.write("config.toml", &toml::to_string(config)?)?;

    let model = config
        .model
        .init::<B>(&device, config.train.seed.seed(SeedStream::Initialisation, &[]))
        .map_err(RunConfigError::from)?;
    let engine = EmbeddedEngine::<B::InnerBackend>::new(device.clone()).with_max_batch_rows(ENGINE_ROWS);
    let mut trainer =
        Trainer::new(plan, model, tokenizer.clone(), engine, device)?.with_run_directory(directory);

    let clock = std::time::Instant::now();
    let mut seconds = RunSeconds::default();
    let mut warm_start_steps = 0;
    if let (Some(settings), Some(solutions)) = (&config.warm_start, &solutions) {
        warm_start_steps = trainer.warm_start(solutions, settings, &train)?.steps;
    }
    seconds.warm_start = clock.elapsed().as_secs_f64();
    let before = trainer.evaluate(&held_out, &config.evaluation)?;
    seconds.evaluation = clock.elapsed().as_secs_f64() - seconds.warm_start;
    tracing::info!(avg_at_k = %before.avg_at_k, problems = before.problems, "held-out before");
    let clock = std::time::Instant::now();
    let steps = trainer.run(&train)?;
    seconds.reinforcement = clock.elapsed().as_secs_f64();
    let clock = std::time::Instant::now();
    let after = trainer.evaluate(&held_out, &config.evaluation)?;
    seconds.evaluation += clock.elapsed().as_secs_f64();
    tracing::info!(avg_at_k = %after.avg_at_k, problems = after.problems, "held-out after");

    let path = config.run.directory.join("model");
    std::fs::create_dir_all(&path).map_err(|source| RunDirectoryError::Io { path: path.clone(), source })?;
    save_safetensors(trainer.model(), path.join("model.safetensors"))?;
    config.model.save(path.join("config.json"))?;
    tokenizer.save(path.join("tokenizer.json"))?;
    Ok(RunSummary { before, after, steps, warm_start_steps, seconds })
}

/// Checks that every prompt leaves room for the longest response, and that every worked solution fits.
fn check_lengths<'a>(
    config: &RunConfig,
    tokenizer: &dyn Tokenizer,
    prompts: impl Iterator<Item = &'a Prompt>,
    solutions: &[WorkedSolution],
) -> Result<(), RunError> {
    let (limit, max_new) = (config.model.max_position_embeddings, config.train.sampling.max_new_tokens);
    for prompt in prompts {
        let failed = |source| TrainerError::Prompt { id: prompt.id.clone(), source };
        let tokens = tokenizer.encode_chat(&prompt.messages).map_err(failed)?.len();
        if tokens == 0 || tokens + max_new > limit {
            return Err(RunError::PromptLength { id: prompt.id.clone(), tokens, max_new, limit });
        }
    }
    for (index, solution) in solutions.iter().enumerate() {
        let failed = |source| TrainerError::WorkedSolution { index, source };
        let prompt = tokenizer.encode_chat(&solution.messages).map_err(failed)?.len();
        let response = tokenizer.encode(&solution.response).map_err(failed)?.len() + 1;
        if prompt == 0 || prompt + response > limit {
            return Err(RunError::SolutionLength { row: index + 1, prompt, response, limit });
        }
    }
    Ok(())
}

/// A run that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The config cannot be used.
    #[error(transparent)]
    Config(#[from] RunConfigError),
    /// The composition cannot work.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A data file cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A prompt is empty, or prompt and response do not fit into the model's positions.
    #[error(
        "prompt `{id}` has {tokens} tokens; it needs at least one and, with train.sampling.max_new_tokens = {max_new}, at most {} (model.max_position_embeddings = {limit}); drop the row, or change one of the two", limit.saturating_sub(*max_new)
    )]
    PromptLength {
        /// Id of the prompt.
        id: String,
        /// Its tokens.
        tokens: usize,
        /// Most new tokens.
        max_new: usize,
        /// Positions of the model.
        limit: usize,
    },
    /// A worked solution has no prompt, or does not fit into the model's positions.
    #[error(
        "worked solution {row}: {prompt} prompt tokens and {response} response tokens; the prompt needs at least one, and both together at most model.max_position_embeddings = {limit}"
    )]
    SolutionLength {
        /// Row, from 1.
        row: usize,
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens of the response, the end token included.
        response: usize,
        /// Positions of the model.
        limit: usize,
    },
    /// The run directory cannot be used.
    #[error(transparent)]
    RunDirectory(#[from] RunDirectoryError),
    /// The resolved config cannot be written as TOML.
    #[error("the resolved config cannot be written")]
    Resolve(#[from] toml::ser::Error),
    /// The model cannot be written.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Training failed.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
}

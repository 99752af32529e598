//! What can end a run before its end.

use std::path::PathBuf;

use firebrick_models::ModelError;

use crate::{
    CheckpointError, DataError, MemoryEstimate, PlanError, RunConfigError, RunDirectoryError, TrainerError,
};

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
        "prompt `{id}` has {tokens} tokens; it needs at least one and, with train.sampling.max_new_tokens = {max_new}, at most {} (model.max_position_embeddings = {limit}); change one of the two, or set data.over_long_prompts to \"drop\" or \"truncate_left\"", limit.saturating_sub(*max_new)
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
    /// Every prompt of a file was dropped.
    #[error("{key}: all prompts of {} have more than {limit} tokens and were dropped", path.display())]
    AllDropped {
        /// The config key.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Most tokens of a prompt.
        limit: usize,
    },
    /// No problem of a file can be graded.
    #[error(
        "{key}: no problem of {} can be graded; the first is {first}; check the reference answers, and that `reward.type` is the verifier for them", path.display()
    )]
    NoReference {
        /// The config key.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// The first problem with the reason.
        first: String,
    },
    /// The tensors of the run are estimated not to fit into the device's memory.
    #[error(
        "the run is estimated to need {} MiB and {} MiB are free; {advice}; the estimate by part:\n{estimate}\nrun.check_memory = false starts it all the same", estimate.total() >> 20, available >> 20
    )]
    Memory {
        /// What is needed.
        estimate: Box<MemoryEstimate>,
        /// Free bytes of the device.
        available: u64,
        /// What would fit.
        advice: String,
    },
    /// The folder of the pretrained model is not there.
    #[error("model.path = {}: there is no such folder", path.display())]
    NoModel {
        /// The folder.
        path: PathBuf,
    },
    /// A run that is to go on has no step left.
    #[error(
        "nothing is left to do: {done} steps are done and train.steps = {steps}; ask for more with --steps"
    )]
    NothingLeft {
        /// Steps done.
        done: usize,
        /// Steps asked for.
        steps: usize,
    },
    /// The run was asked to stop, and did so after a whole step, with a checkpoint.
    #[error("stopped after {done} steps; go on with `firebrick train --resume {}`", directory.display())]
    Stopped {
        /// Steps done.
        done: usize,
        /// The run directory.
        directory: PathBuf,
    },
    /// A checkpoint cannot be written or used.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The resolved config or the summary cannot be written as JSON.
    #[error("the run's records cannot be written")]
    Record(#[source] serde_json::Error),
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

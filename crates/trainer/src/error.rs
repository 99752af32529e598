//! What can end a run.

use firebrick_core::{
    AdvantageError, CompletionError, ResponseError, RolloutError, StateError, TokenizerError,
};
use firebrick_reward::GraderError;

use crate::{DumpError, RunDirectoryError};

/// A run that cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainerError {
    /// The engine failed.
    #[error(transparent)]
    Rollout(#[from] RolloutError),
    /// The engine returned another number of completions than asked for.
    #[error("the rollout engine returned {returned} completions for {asked} requests")]
    EngineMismatch {
        /// Completions asked for.
        asked: usize,
        /// Completions returned.
        returned: usize,
    },
    /// Completions cannot be verified, or too many met a fault of the verifier.
    #[error(transparent)]
    Verification(#[from] GraderError),
    /// Completions do not form groups.
    #[error(transparent)]
    Completion(#[from] CompletionError),
    /// No advantage can be formed.
    #[error(transparent)]
    Advantage(#[from] AdvantageError),
    /// Log-probs do not fit their response.
    #[error(transparent)]
    Response(#[from] ResponseError),
    /// A part refused the batch.
    #[error(transparent)]
    State(#[from] StateError),
    /// The run directory cannot be written.
    #[error(transparent)]
    RunDirectory(#[from] RunDirectoryError),
    /// A prompt cannot be tokenized.
    #[error("prompt `{id}` cannot be tokenized")]
    Prompt {
        /// Id of the prompt.
        id: String,
        /// Why not.
        #[source]
        source: TokenizerError,
    },
    /// A worked solution cannot be tokenized.
    #[error("worked solution {index} cannot be tokenized")]
    WorkedSolution {
        /// Index of the row, from 0.
        index: usize,
        /// Why not.
        #[source]
        source: TokenizerError,
    },
    /// The model cannot express what the tokenizer says.
    #[error(
        "the tokenizer has {tokenizer} tokens but the model's vocabulary only {model}; set the model's vocab_size to at least {tokenizer}"
    )]
    Vocabulary {
        /// Tokens of the tokenizer.
        tokenizer: usize,
        /// Tokens of the model.
        model: usize,
    },
    /// The objective looks at more tokens than there are.
    #[error(
        "the objective compares the {k} most likely tokens, but the model's vocabulary has {vocabulary}; lower k to at most that"
    )]
    TopK {
        /// Tokens per position.
        k: usize,
        /// Tokens of the model.
        vocabulary: usize,
    },
    /// There is nothing to train or evaluate on.
    #[error("{what} is empty")]
    NoData {
        /// Which data.
        what: &'static str,
    },
    /// Engine and trainer disagree on the same weights.
    #[error(
        "prompt `{prompt}`, response token {token}: the engine's log-prob is {engine}, the trainer computes {trainer} from the same weights (mean difference over the batch {mean:e}, tolerance {tolerance:e}); every ratio would be wrong. Compare temperature, top-k/top-p, positions and weights of the two, or raise parity_tolerance if the engine computes in lower precision"
    )]
    Parity {
        /// Id of the prompt.
        prompt: String,
        /// Index of the policy token.
        token: usize,
        /// What the engine reported.
        engine: f64,
        /// What the trainer computed.
        trainer: f64,
        /// Mean absolute difference over all tokens.
        mean: f64,
        /// The largest mean difference that is accepted.
        tolerance: f64,
    },
    /// Too few groups have variance.
    #[error(
        "dynamic sampling: {found} of {wanted} groups have rewards that differ after {rounds} rounds; raise train.dynamic_sampling.max_rounds, set when_exhausted to \"smaller_batch\" or \"repeat\", or choose problems that the policy sometimes solves"
    )]
    DynamicSampling {
        /// Groups with variance.
        found: usize,
        /// Groups of a batch.
        wanted: usize,
        /// Rounds of sampling.
        rounds: usize,
    },
    /// A warm start was asked to stop; it is not continued, but it is the same when it is started again.
    #[error("stopped in the warm start after {step} steps; a warm start begins anew when the run goes on")]
    StoppedInWarmStart {
        /// Steps done.
        step: usize,
    },
    /// The batch of a skipped step cannot be written or read.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// Numbers were not finite in several optimizer steps in a row.
    #[error(
        "{count} optimizer steps in a row met numbers that are not finite, so the run ends with the weights before them; {written}"
    )]
    TooManySkipped {
        /// How many.
        count: usize,
        /// Where the last batch was written.
        written: String,
        /// The last fault.
        #[source]
        last: Box<TrainerError>,
    },
    /// A number is NaN or infinite; the weights are those before the step.
    #[error("{what} is {value}; lower the learning rate, or look at the batch that caused it")]
    NonFinite {
        /// Which number.
        what: String,
        /// Its value.
        value: f64,
    },
}

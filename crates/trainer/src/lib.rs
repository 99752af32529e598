//! The generic trainer: a checked plan, the loop, warm start, evaluation and telemetry.
//!
//! [`Plan`] composes a recipe (objective, aggregation, advantages, anchor), a verifier and settings, and refuses what
//! cannot work before a weight exists. [`Trainer`] joins it with a model, a tokenizer and an engine and runs it on any Burn
//! backend. [`TensorObjective`] is the second door, for objectives written in Burn tensors.

mod allocator;
mod checkpoint;
mod config;
mod config_layer;
mod config_layers;
mod continuation;
mod critic;
mod data;
mod data_cursor;
mod distribution;
mod dump;
mod durable;
mod dynamic_sampling;
mod error;
mod evaluation;
mod forward_pass;
mod gradients;
mod key_error;
mod learner;
mod learning_rate;
mod memory_estimate;
mod memory_limit;
mod model_section;
mod optimizer_batch;
mod optimizer_ranges;
mod optimizer_state;
mod parity;
mod plan;
mod read_table;
mod rollout_batch;
mod run;
mod run_data;
mod run_directory;
mod run_error;
mod run_model;
mod run_tokenizer;
mod sequence;
mod serde_message;
mod step_report;
mod stop_signal;
mod surrogate;
mod tensor_objective;
mod tensorboard;
mod token_trace;
mod trainer;
mod warm_start;

pub use allocator::keep_freed_memory;
pub use checkpoint::{BestBy, Better, CheckpointError, CheckpointSettings};
pub use config::{Control, DataSection, RunConfig, RunConfigError, RunSection, TokenizerSection};
pub use config_layers::ConfigLayers;
pub use data::{
    Columns, CompletionRow, DataError, DataReader, RowPlace, WorkedSolution, read_completions, read_prompts,
    read_worked_solutions,
};
pub use dump::DumpError;
pub use dynamic_sampling::{DynamicSampling, WhenExhausted};
pub use error::TrainerError;
pub use evaluation::{
    Estimate, EvaluationExample, EvaluationReport, EvaluationSettings, accuracy, pass_at_k,
};
pub use key_error::KeyError;
pub use learner::OptimizerSettings;
pub use learning_rate::{LearningRateDecay, LearningRateSchedule};
pub use memory_estimate::MemoryEstimate;
pub use model_section::{ModelSection, PretrainedModel};
pub use plan::{Plan, PlanError, TrainSettings};
pub use run::{RunOptions, RunSeconds, RunSummary, fine_tune, plan_of, run, run_plan};
pub use run_data::{DataSummary, OverLongPrompts, inspect_data};
pub use run_directory::{RunDirectory, RunDirectoryError};
pub use run_error::RunError;
pub use run_model::trainer_of;
pub use sequence::{Sequence, log_probs, micro_batches, score};
pub use step_report::{StepOutcome, StepReport, Timings};
pub use stop_signal::StopSignal;
pub use surrogate::surrogate;
pub use tensor_objective::{TensorBatch, TensorGrpo, TensorObjective};
pub use tensorboard::EventWriter;
pub use token_trace::{TokenTrace, TokenTraceError};
pub use trainer::{ReplayReport, ReplayRow, Trainer};
pub use warm_start::{WarmStartReport, WarmStartSettings};

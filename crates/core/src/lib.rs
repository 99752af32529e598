//! The contracts of Firebrick. Reading this file is reading the framework.
//!
//! A training step is a chain of small parts, and every part is a trait with one required method:
//!
//! ```text
//! Prompt ─► RolloutEngine ─► Completion ─► RewardVerifier ─► Verdict ─► Group
//!        ─► AdvantageEstimator ─► Advantages
//!        ─► ImportanceEstimator ─► ClipSchedule ─► Gate ─► one coefficient per policy token   (together: Objective)
//!        ─► CausalLm: −Σ coefficient · log_prob, backward, optimizer
//! ```
//!
//! * [`RolloutEngine`] samples [`Completion`]s from a policy, [`RewardVerifier`] scores them.
//! * [`AdvantageEstimator`] turns the [`Verdict`]s of whole [`Group`]s into advantages.
//! * [`ImportanceEstimator`], [`ClipSchedule`] and [`Gate`] are the parts of a policy [`Objective`]: how the gap between the
//!   policy that sampled and the policy that learns is weighed, how far it may go at each position, and what happens
//!   at the bound. They work in `f64` on the policy tokens of one response ([`ResponseTokens`]): no padding, no mask,
//!   no device, no denominator.
//! * [`RolloutCorrection`] weighs or rejects what the trainer's own log-probs show to be sampled from another policy.
//! * [`CausalLm`] (feature `burn`) is what a language model must offer; [`Tokenizer`] what a tokenizer must.
//!
//! The crate holds words and contracts only: no algorithm, no input or output. Everything that a part needs beyond its
//! arguments is declared as data ([`Requirements`]), so a composition is checked before a weight exists. A part that
//! keeps state or wants to see the whole optimizer batch says so through [`Stateful`].
#![cfg_attr(docsrs, feature(doc_cfg))]

mod advantage;
mod completion;
mod correction;
mod estimator;
mod gate;
#[cfg(feature = "burn")]
mod language_model;
mod metrics;
mod objective;
mod policy;
mod prompt;
mod requirements;
mod response;
mod rollout;
mod sampling;
mod schedule;
mod seed;
mod stateful;
mod tokenizer;
mod verdict;
mod verifier;

pub use advantage::{Advantage, AdvantageError, AdvantageEstimator, Advantages, RewardBatch, RewardRow};
pub use completion::{Completion, CompletionError, FinishReason, Group, GroupRow, TokenId, TokenRole};
pub use correction::{Corrected, RolloutCorrection};
pub use estimator::ImportanceEstimator;
pub use gate::{Binding, Gate, Gated};
#[cfg(feature = "burn")]
pub use language_model::{CausalLm, EntropyMode, ScoreOptions, TokenScores};
pub use metrics::{ExactSum, Metric, Metrics};
pub use objective::{Objective, ResponseTerms};
pub use policy::{Anchor, Behaviour, Current, LogProbs, PolicyKind, Proximal, Reference};
pub use prompt::{Message, Prompt};
pub use requirements::Requirements;
pub use response::{LOG_RATIO_LIMIT, OptimizerBatch, ResponseContext, ResponseError, ResponseTokens, TopK};
pub use rollout::{GenerationRequest, PolicyRef, RolloutEngine, RolloutError};
pub use sampling::{SamplingError, SamplingSpec};
pub use schedule::{Bounds, ClipSchedule};
pub use seed::{RootSeed, SeedStream};
pub use stateful::{StateError, Stateful};
pub use tokenizer::{Tokenizer, TokenizerError};
pub use verdict::{Score, UnscoredReason, Verdict};
pub use verifier::{RewardVerifier, Sample, VerifyError};

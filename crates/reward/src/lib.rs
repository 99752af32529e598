//! Verifiable rewards: answer extraction and exact equality.
//!
//! Grading needs a problem and a text, and no model:
//!
//! ```
//! use firebrick_core::{Prompt, RewardVerifier, Sample};
//! use firebrick_reward::ExactAnswer;
//!
//! let prompt = Prompt::new("p1", "What is 1/4 + 1/4?", "1/2");
//! let verifier = ExactAnswer::default();
//! let verdict = verifier.verify(&Sample::of_text(&prompt, r"Half of it, so \boxed{0.5}."))?;
//! assert_eq!(verdict.reward(), Some(1.0));
//!
//! let verdict = verifier.verify(&Sample::of_text(&prompt, r"Let me see: \boxed{"))?;
//! assert_eq!(verdict.reward(), Some(0.0));
//! # Ok::<(), firebrick_core::VerifyError>(())
//! ```
//!
//! [`ExactAnswer`] is made of parts that stand alone: [`extract_answer`] finds the answer in a response,
//! [`Answer`] compares two answers, [`parse_rational`] reads a number exactly. Training and evaluation use
//! the same ones.
//!
//! Verifiers are made of verifiers: [`WeightedSum`], [`Product`] and [`Gated`] combine them, [`OverlongPenalty`], [`LengthPenalty`],
//! [`CosineLength`] and [`TruncationMask`] change what they pay by length, [`ByDataSource`] chooses one for each data set, and
//! [`RewardConfig`] builds all of them from configuration. [`Grader`] verifies on threads that are watched.
//!
//! A reward of your own is an `impl` of [`firebrick_core::RewardVerifier`]; nothing has to be registered
//! here.

mod answer;
mod by_data_source;
mod compose;
mod config;
mod exact_answer;
mod extraction;
#[cfg(test)]
mod fixed_verdict;
mod format_reward;
mod math;
mod normal_text;
mod overlong;
#[cfg(feature = "programs")]
pub mod program;
mod random_reward;
mod rational;
mod shape;
mod supervise;
pub mod tasks;

pub use answer::{Answer, Comparison, EqualityRule};
pub use by_data_source::ByDataSource;
pub use compose::{Gated, Part, Product, WeightedSum};
pub use config::{
    ByDataSourceConfig, CosineLengthConfig, FactorConfig, GatedConfig, LengthPenaltyConfig, OverlongConfig,
    PartConfig, ProductConfig, RandomConfig, RewardConfig, RewardConfigError, RewardConfigProblem,
    SourcePreset, TruncationMaskConfig, WeightedSumConfig,
};
pub use exact_answer::{ExactAnswer, ExactAnswerConfig};
pub use extraction::{Extracted, ExtractionMethod, ExtractionSpec, extract_answer};
pub use format_reward::{FormatConfig, FormatReward};
pub use math::{Grade, MatchType, MathConfig, MathPreset, MathVerifier};
pub use num_rational::BigRational;
pub use overlong::{OverlongPenalty, overlong_penalty};
pub use random_reward::RandomReward;
pub use rational::{MAX_NUMBER_BYTES, parse_rational};
pub use shape::{CosineLength, CosineRewards, LengthPenalty, TruncationMask, cosine_length_reward};
pub use supervise::{Grader, GraderError, GraderSettings, GradingBatch, OwnedSample, grade};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

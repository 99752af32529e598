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
//! A reward of your own is an `impl` of [`firebrick_core::RewardVerifier`]; nothing has to be registered
//! here.

mod answer;
mod exact_answer;
mod extraction;
mod normal_text;
mod overlong;
mod random_reward;
mod rational;

pub use answer::{Answer, Comparison, EqualityRule};
pub use exact_answer::{ExactAnswer, ExactAnswerConfig, ExactAnswerError};
pub use extraction::{Extracted, ExtractionMethod, ExtractionSpec, extract_answer};
pub use num_rational::BigRational;
pub use overlong::{OverlongPenalty, overlong_penalty};
pub use random_reward::RandomReward;
pub use rational::{MAX_NUMBER_BYTES, parse_rational};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

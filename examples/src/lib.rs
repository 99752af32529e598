//! Shared by the examples.

mod chained_sums;
mod data_rows;
mod sevens;
mod training_example;

pub use chained_sums::{ChainedSum, ChainedSums, ChainedSumsSpec};
pub use sevens::Sevens;
pub use training_example::{TrainingExample, train_and_report};

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct ReadmeDoctests;

#[cfg(doctest)]
#[doc = include_str!("../../CONTRIBUTING.md")]
struct ContributingDoctests;

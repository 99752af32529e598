//! Shared by the examples.

mod chained_sums;
mod data_rows;
mod sevens;

pub use chained_sums::{ChainedSum, ChainedSums, ChainedSumsSpec};
pub use sevens::Sevens;

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct ReadmeDoctests;

#[cfg(doctest)]
#[doc = include_str!("../../CONTRIBUTING.md")]
struct ContributingDoctests;

//! Shared by the examples.

mod chained_sums;
mod data_rows;

pub use chained_sums::{ChainedSum, ChainedSums, ChainedSumsSpec};

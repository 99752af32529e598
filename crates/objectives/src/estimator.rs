//! Importance estimators, and the choice among them.

mod prefix_mean;
mod sequence_mean;
mod token_ratio;

pub use prefix_mean::{PrefixMean, PrefixRoute};
pub use sequence_mean::{SequenceMean, SequenceRoute};
pub use token_ratio::TokenRatio;

use firebrick_core::ImportanceEstimator;
use serde::{Deserialize, Serialize};

/// An importance estimator of this crate, chosen by `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EstimatorConfig {
    /// [`TokenRatio`].
    TokenRatio(TokenRatio),
    /// [`SequenceMean`].
    SequenceMean(SequenceMean),
    /// [`PrefixMean`].
    PrefixMean(PrefixMean),
}

impl EstimatorConfig {
    /// The estimator.
    pub fn build(&self) -> Box<dyn ImportanceEstimator> {
        match *self {
            Self::TokenRatio(part) => Box::new(part),
            Self::SequenceMean(part) => Box::new(part),
            Self::PrefixMean(part) => Box::new(part),
        }
    }
}

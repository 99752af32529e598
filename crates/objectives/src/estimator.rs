//! Importance estimators, and the choice among them.

mod prefix_mean;
mod sequence_mean;
mod token_ratio;

pub use prefix_mean::{PrefixMean, PrefixRoute};
pub use sequence_mean::{SequenceMean, SequenceRoute};
pub use token_ratio::TokenRatio;

use firebrick_core::ImportanceEstimator;
use serde::{Deserialize, Serialize};

use crate::ConfigError;

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
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    /// The route's name when the gradient reaches other tokens than the current one.
    pub(crate) fn spreading_route(&self) -> Option<&'static str> {
        match self {
            Self::SequenceMean(SequenceMean { route: SequenceRoute::Sequence }) => Some("sequence"),
            Self::PrefixMean(PrefixMean { route: PrefixRoute::FullPrefix }) => Some("full_prefix"),
            _ => None,
        }
    }

    /// Whether that route is defined for one advantage per response only.
    pub(crate) fn needs_one_advantage(&self) -> bool {
        matches!(self, Self::SequenceMean(_))
    }

    /// The estimator.
    pub fn build(&self) -> Box<dyn ImportanceEstimator> {
        match *self {
            Self::TokenRatio(part) => Box::new(part),
            Self::SequenceMean(part) => Box::new(part),
            Self::PrefixMean(part) => Box::new(part),
        }
    }
}

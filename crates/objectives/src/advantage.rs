//! Advantage estimators, and the choice among them.

mod group_normalized;

pub use group_normalized::{EpsPlacement, GroupNormalized, StdSpec};

use firebrick_core::AdvantageEstimator;
use serde::{Deserialize, Serialize};

use crate::ConfigError;

/// An advantage estimator of this crate, chosen by `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum AdvantageConfig {
    /// [`GroupNormalized`] with a deviation: reward minus group mean, divided by the group's deviation
    /// (GRPO).
    GroupNormalized(StdSpec),
    /// [`GroupNormalized`] without a deviation: reward minus group mean (Dr. GRPO). (The braces make a stray
    /// key in a config an error.)
    GroupCentered {},
}

impl Default for AdvantageConfig {
    /// GRPO's.
    fn default() -> Self {
        Self::GroupNormalized(StdSpec::default())
    }
}

impl AdvantageConfig {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::GroupNormalized(std) => std.validate(),
            Self::GroupCentered {} => Ok(()),
        }
    }

    /// Whether the advantage may differ from token to token of a response.
    pub fn is_per_token(&self) -> bool {
        false
    }

    /// The estimator.
    pub fn build(&self) -> Box<dyn AdvantageEstimator> {
        match *self {
            Self::GroupNormalized(std) => Box::new(GroupNormalized { std: Some(std) }),
            Self::GroupCentered {} => Box::new(GroupNormalized { std: None }),
        }
    }
}

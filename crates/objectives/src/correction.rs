//! Rollout corrections, and the choice among them.

use firebrick_core::RolloutCorrection;
use serde::{Deserialize, Serialize};

use crate::ConfigError;

/// A rollout correction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorrectionConfig {}

impl CorrectionConfig {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Refuses a correction of a ratio that already starts at the policy that sampled.
    pub(crate) fn validate_anchor(&self, _behaviour: bool) -> Result<(), ConfigError> {
        Ok(())
    }

    /// The correction.
    pub fn build(&self) -> Box<dyn RolloutCorrection> {
        unreachable!()
    }
}

//! Gates, and the choice among them.

mod hard_mask;
mod ppo_min;

pub use hard_mask::{HardMask, MaskedValue};
pub use ppo_min::{OuterBounds, PpoMin};

use firebrick_core::Gate;
use serde::{Deserialize, Serialize};

use crate::ConfigError;

/// A gate of this crate, chosen by `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum GateConfig {
    /// [`PpoMin`].
    PpoMin(PpoMin),
    /// [`HardMask`].
    HardMask(HardMask),
}

impl GateConfig {
    /// Its `type`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::PpoMin(_) => "ppo_min",
            Self::HardMask(_) => "hard_mask",
        }
    }

    /// Whether it is defined for one advantage per response only.
    pub(crate) fn needs_one_advantage(&self) -> bool {
        false
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::PpoMin(part) => part.validate(),
            Self::HardMask(_) => Ok(()),
        }
    }

    /// The gate.
    pub fn build(&self) -> Box<dyn Gate> {
        match *self {
            Self::PpoMin(part) => Box::new(part),
            Self::HardMask(part) => Box::new(part),
        }
    }
}

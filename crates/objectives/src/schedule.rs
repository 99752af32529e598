//! Clip schedules, and the choice among them.

mod constant_clip;
mod inverse_sqrt_clip;
mod sqrt_ratio_clip;

pub use constant_clip::ConstantClip;
pub use inverse_sqrt_clip::{Horizon, InverseSqrtClip, WindowSpace};
pub use sqrt_ratio_clip::{IntervalForm, SqrtRatioClip};

use firebrick_core::ClipSchedule;
use serde::{Deserialize, Serialize};

use crate::ConfigError;

/// A clip schedule of this crate, chosen by `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ScheduleConfig {
    /// [`ConstantClip`].
    Constant(ConstantClip),
    /// [`InverseSqrtClip`].
    InverseSqrt(InverseSqrtClip),
    /// [`SqrtRatioClip`].
    SqrtRatio(SqrtRatioClip),
}

impl ScheduleConfig {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::Constant(part) => part.validate(),
            Self::InverseSqrt(part) => part.validate(),
            Self::SqrtRatio(part) => part.validate(),
        }
    }

    /// The schedule.
    pub fn build(&self) -> Box<dyn ClipSchedule> {
        match *self {
            Self::Constant(part) => Box::new(part),
            Self::InverseSqrt(part) => Box::new(part),
            Self::SqrtRatio(part) => Box::new(part),
        }
    }
}

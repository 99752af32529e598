//! Clip schedules, and the choice among them.

mod absolute_position_clip;
mod constant_clip;
mod entropy_split_clip;
mod inverse_sqrt_clip;
mod open_window;
mod power_law_clip;
mod probability_clip;
mod second_moment_clip;
mod sqrt_probability_clip;
mod sqrt_ratio_clip;
mod stale_clip;

pub use absolute_position_clip::{AbsolutePositionClip, SigmaSource, WindowCentre};
pub use constant_clip::ConstantClip;
pub use entropy_split_clip::EntropySplitClip;
pub use inverse_sqrt_clip::{Horizon, InverseSqrtClip, WindowSpace};
pub use open_window::OpenWindow;
pub use power_law_clip::PowerLawClip;
pub use probability_clip::ProbabilityClip;
pub use second_moment_clip::SecondMomentClip;
pub use sqrt_probability_clip::SqrtProbabilityClip;
pub use sqrt_ratio_clip::{IntervalForm, SqrtRatioClip};
pub use stale_clip::{StaleClip, StaleConfig, StalenessMode};

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
    /// [`OpenWindow`].
    Open(OpenWindow),
    /// [`PowerLawClip`].
    PowerLaw(PowerLawClip),
    /// [`ProbabilityClip`].
    Probability(ProbabilityClip),
    /// [`SqrtProbabilityClip`].
    SqrtProbability(SqrtProbabilityClip),
    /// [`EntropySplitClip`].
    EntropySplit(EntropySplitClip),
    /// [`SecondMomentClip`].
    SecondMoment(SecondMomentClip),
    /// [`AbsolutePositionClip`].
    AbsolutePosition(AbsolutePositionClip),
    /// [`StaleClip`].
    Stale(StaleConfig),
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
            Self::Open(_) => Ok(()),
            Self::PowerLaw(part) => part.validate(),
            Self::Probability(part) => part.validate(),
            Self::SqrtProbability(part) => part.validate(),
            Self::EntropySplit(part) => part.validate(),
            Self::SecondMoment(part) => part.validate(),
            Self::AbsolutePosition(part) => part.validate(),
            Self::Stale(part) => part.validate(),
        }
    }

    /// The schedule.
    pub fn build(&self) -> Box<dyn ClipSchedule> {
        match self {
            Self::Constant(part) => Box::new(*part),
            Self::InverseSqrt(part) => Box::new(*part),
            Self::SqrtRatio(part) => Box::new(*part),
            Self::Open(part) => Box::new(*part),
            Self::PowerLaw(part) => Box::new(*part),
            Self::Probability(part) => Box::new(*part),
            Self::SqrtProbability(part) => Box::new(*part),
            Self::EntropySplit(part) => Box::new(*part),
            Self::SecondMoment(part) => Box::new(*part),
            Self::AbsolutePosition(part) => Box::new(*part),
            Self::Stale(part) => Box::new(part.build()),
        }
    }
}

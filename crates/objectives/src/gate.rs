//! Gates, and the choice among them.

mod covariance;
mod covariance_clip;
mod covariance_kl;
mod divergence;
mod divergence_mask;
mod geometric_mean;
mod gradient_preserving;
mod hard_mask;
mod mask_from;
mod off_policy_sequence_mask;
mod ppo_min;
mod reciprocal;
mod saturating;
mod sequence_divergence_mask;
mod sigmoid;

pub use covariance::TokenSelection;
pub use covariance_clip::CovarianceClip;
pub use covariance_kl::CovarianceKl;
pub use divergence::Divergence;
pub use divergence_mask::DivergenceMask;
pub use geometric_mean::{GeometricMean, MeanScope};
pub use gradient_preserving::GradientPreserving;
pub use hard_mask::{HardMask, MaskedValue};
pub use mask_from::MaskFrom;
pub use off_policy_sequence_mask::OffPolicySequenceMask;
pub use ppo_min::{DualClipGrowth, OuterBounds, PpoMin};
pub use reciprocal::Reciprocal;
pub use saturating::Saturating;
pub use sequence_divergence_mask::{SequenceDivergenceMask, SequenceStatistic};
pub use sigmoid::Sigmoid;

use firebrick_core::{Binding, Bounds, Gate};
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
    /// [`Saturating`].
    Saturating(Saturating),
    /// [`Sigmoid`].
    Sigmoid(Sigmoid),
    /// [`GradientPreserving`].
    GradientPreserving(GradientPreserving),
    /// [`DivergenceMask`].
    DivergenceMask(DivergenceMask),
    /// [`SequenceDivergenceMask`].
    SequenceDivergenceMask(SequenceDivergenceMask),
    /// [`OffPolicySequenceMask`].
    OffPolicySequenceMask(OffPolicySequenceMask),
    /// [`GeometricMean`].
    GeometricMean(GeometricMean),
    /// [`Reciprocal`].
    Reciprocal(Reciprocal),
    /// [`CovarianceClip`].
    CovarianceClip(CovarianceClip),
    /// [`CovarianceKl`].
    CovarianceKl(CovarianceKl),
    /// [`MaskFrom`].
    MaskFrom(MaskFrom),
}

impl GateConfig {
    /// Its `type`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::PpoMin(_) => "ppo_min",
            Self::HardMask(_) => "hard_mask",
            Self::Saturating(_) => "saturating",
            Self::Sigmoid(_) => "sigmoid",
            Self::GradientPreserving(_) => "gradient_preserving",
            Self::DivergenceMask(_) => "divergence_mask",
            Self::SequenceDivergenceMask(_) => "sequence_divergence_mask",
            Self::OffPolicySequenceMask(_) => "off_policy_sequence_mask",
            Self::GeometricMean(_) => "geometric_mean",
            Self::Reciprocal(_) => "reciprocal",
            Self::CovarianceClip(_) => "covariance_clip",
            Self::CovarianceKl(_) => "covariance_kl",
            Self::MaskFrom(_) => "mask_from",
        }
    }

    /// Whether it is defined for one advantage per response only.
    pub(crate) fn needs_one_advantage(&self) -> bool {
        matches!(self, Self::OffPolicySequenceMask(_))
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::PpoMin(part) => part.validate(),
            Self::HardMask(_) | Self::Saturating(_) => Ok(()),
            Self::Sigmoid(part) => part.validate(),
            Self::GradientPreserving(part) => part.validate(),
            Self::DivergenceMask(part) => part.validate(),
            Self::SequenceDivergenceMask(part) => part.validate(),
            Self::OffPolicySequenceMask(part) => part.validate(),
            Self::GeometricMean(part) => part.validate(),
            Self::Reciprocal(part) => part.validate(),
            Self::CovarianceClip(part) => part.validate(),
            Self::CovarianceKl(part) => part.validate(),
            Self::MaskFrom(part) => part.validate(),
        }
    }

    /// The gate.
    pub fn build(&self) -> Box<dyn Gate> {
        match self {
            Self::PpoMin(part) => Box::new(*part),
            Self::HardMask(part) => Box::new(*part),
            Self::Saturating(part) => Box::new(*part),
            Self::Sigmoid(part) => Box::new(*part),
            Self::GradientPreserving(part) => Box::new(*part),
            Self::DivergenceMask(part) => Box::new(*part),
            Self::SequenceDivergenceMask(part) => Box::new(*part),
            Self::OffPolicySequenceMask(part) => Box::new(*part),
            Self::GeometricMean(part) => Box::new(*part),
            Self::Reciprocal(part) => Box::new(*part),
            Self::CovarianceClip(part) => Box::new(part.clone()),
            Self::CovarianceKl(part) => Box::new(part.clone()),
            Self::MaskFrom(part) => part.build(),
        }
    }
}

/// The end of the window that a weight lies beyond.
fn beyond(weight: f64, window: Bounds) -> Binding {
    if weight < window.low {
        Binding::Low
    } else if weight > window.high {
        Binding::High
    } else {
        Binding::None
    }
}

//! Importance estimators, and the choice among them.

mod bounded_prefix_product;
mod constant_scaling;
mod group_capped;
mod min_prefix;
mod prefix_mean;
mod prefix_product;
mod sequence_mean;
mod sequence_product;
mod state_geo;
mod token_ratio;
mod unweighted;

pub use bounded_prefix_product::BoundedPrefixProduct;
pub use constant_scaling::{ConstantScaling, ScalingArm};
pub use group_capped::GroupCapped;
pub use min_prefix::MinPrefix;
pub use prefix_mean::{PrefixMean, PrefixRoute};
pub use prefix_product::PrefixProduct;
pub use sequence_mean::{SequenceMean, SequenceRoute};
pub use sequence_product::SequenceProduct;
pub use state_geo::StateGeo;
pub use token_ratio::TokenRatio;
pub use unweighted::Unweighted;

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
    /// [`Unweighted`].
    Unweighted(Unweighted),
    /// [`SequenceProduct`].
    SequenceProduct(SequenceProduct),
    /// [`PrefixProduct`].
    PrefixProduct(PrefixProduct),
    /// [`MinPrefix`].
    MinPrefix(MinPrefix),
    /// [`GroupCapped`].
    GroupCapped(GroupCapped),
    /// [`StateGeo`].
    StateGeo(StateGeo),
    /// [`BoundedPrefixProduct`].
    BoundedPrefixProduct(BoundedPrefixProduct),
    /// [`ConstantScaling`].
    ConstantScaling(ConstantScaling),
}

impl EstimatorConfig {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::PrefixProduct(part) => part.validate(),
            Self::GroupCapped(part) => part.validate(),
            Self::BoundedPrefixProduct(part) => part.validate(),
            Self::ConstantScaling(part) => part.validate(),
            Self::TokenRatio(_)
            | Self::SequenceMean(_)
            | Self::PrefixMean(_)
            | Self::Unweighted(_)
            | Self::SequenceProduct(_)
            | Self::MinPrefix(_)
            | Self::StateGeo(_) => Ok(()),
        }
    }

    /// The route's name when the gradient reaches other tokens than the current one.
    pub(crate) fn spreading_route(&self) -> Option<&'static str> {
        match self {
            Self::SequenceMean(SequenceMean { route: SequenceRoute::Sequence })
            | Self::SequenceProduct(SequenceProduct { route: SequenceRoute::Sequence }) => Some("sequence"),
            Self::PrefixMean(PrefixMean { route: PrefixRoute::FullPrefix }) => Some("full_prefix"),
            _ => None,
        }
    }

    /// Whether that route is defined for one advantage per response only.
    pub(crate) fn needs_one_advantage(&self) -> bool {
        matches!(self, Self::SequenceMean(_) | Self::SequenceProduct(_))
    }

    /// The estimator.
    pub fn build(&self) -> Box<dyn ImportanceEstimator> {
        match self {
            Self::TokenRatio(part) => Box::new(*part),
            Self::SequenceMean(part) => Box::new(*part),
            Self::PrefixMean(part) => Box::new(*part),
            Self::Unweighted(part) => Box::new(*part),
            Self::SequenceProduct(part) => Box::new(*part),
            Self::PrefixProduct(part) => Box::new(*part),
            Self::MinPrefix(part) => Box::new(*part),
            Self::GroupCapped(part) => Box::new(part.clone()),
            Self::StateGeo(part) => Box::new(*part),
            Self::BoundedPrefixProduct(part) => Box::new(*part),
            Self::ConstantScaling(part) => Box::new(*part),
        }
    }
}

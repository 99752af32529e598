//! GSPO.

use firebrick_core::Anchor;
use serde::{Deserialize, Serialize};

use super::{validate_clip, validate_surroundings};
use crate::{
    AdvantageConfig, Aggregation, Composed, ConfigError, ConstantClip, KlTerm, OuterBounds, PpoMin, Recipe,
    SequenceMean, SequenceRoute,
};

/// Group sequence policy optimization: one ratio for the whole response, clipped as in PPO.
///
/// ```text
/// J_t = min(s A, clip(s, 1 − low, 1 + high) A)        s = exp((1/L) Σ d)
/// ```
///
/// With the default aggregation the objective is the mean of J over responses. An aggregation that sums
/// tokens weighs responses by their length.
///
/// *Reference*: Zheng et al., "Group sequence policy optimization", 2025, arXiv:2507.18071.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GspoConfig {
    /// Distance of the window's lower end from 1; default 0.0003.
    pub clip_low: f64,
    /// Distance of the window's upper end from 1; default 0.0004.
    pub clip_high: f64,
    /// Which log-probs the gradient reaches; default all of the response (GSPO), `current` is GSPO-token.
    pub route: SequenceRoute,
    /// Largest weight of a token with a negative advantage ([`PpoMin::dual_clip`]); default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dual_clip: Option<f64>,
    /// KL penalty towards the reference policy; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl: Option<KlTerm>,
    /// How token contributions are averaged; default the mean over responses of their token means.
    pub aggregation: Aggregation,
    /// How rewards become advantages; default group-normalized.
    pub advantage: AdvantageConfig,
    /// Which policy the ratio compares the current one with; default the one that sampled the tokens.
    pub anchor: Anchor,
}

impl Default for GspoConfig {
    fn default() -> Self {
        Self {
            clip_low: 3e-4,
            clip_high: 4e-4,
            route: SequenceRoute::Sequence,
            dual_clip: None,
            kl: None,
            aggregation: Aggregation::SeqMeanTokenMean,
            advantage: AdvantageConfig::default(),
            anchor: Anchor::default(),
        }
    }
}

impl GspoConfig {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        validate_clip(self.clip_low, self.clip_high, self.dual_clip)?;
        validate_surroundings(self.kl.as_ref(), &self.aggregation, &self.advantage)
    }

    /// The objective alone, with its parts as concrete types.
    pub fn objective(&self) -> Composed<SequenceMean, ConstantClip, PpoMin> {
        let schedule = ConstantClip { low: self.clip_low, high: self.clip_high };
        let gate = PpoMin { dual_clip: self.dual_clip, outer: OuterBounds::Open {} };
        Composed::new(SequenceMean { route: self.route }, schedule, gate).with_kl(self.kl)
    }

    /// The recipe.
    pub fn build(&self) -> Recipe {
        Recipe {
            objective: Box::new(self.objective()),
            aggregation: self.aggregation,
            advantage: self.advantage.build(),
            anchor: self.anchor,
        }
    }
}

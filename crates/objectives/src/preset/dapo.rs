//! DAPO.

use firebrick_core::Anchor;
use serde::{Deserialize, Serialize};

use super::{validate_clip, validate_surroundings};
use crate::{
    AdvantageConfig, Aggregation, Composed, ConfigError, ConstantClip, KlTerm, OuterBounds, PpoMin, Recipe,
    TokenRatio,
};

/// The policy objective of DAPO: GRPO with a wider upper side, all tokens of the batch weighing the same, no
/// KL penalty.
///
/// ```text
/// J_t = min(r_t A, clip(r_t, 1 − low, 1 + high) A)        r_t = exp(d_t)
/// ```
///
/// Dynamic sampling and the shaping of overlong responses concern the data and the reward and are not part of
/// it.
///
/// *Reference*: Yu et al., "DAPO", 2025, arXiv:2503.14476.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DapoConfig {
    /// Distance of the window's lower end from 1; default 0.2.
    pub clip_low: f64,
    /// Distance of the window's upper end from 1; default 0.28.
    pub clip_high: f64,
    /// Largest weight of a token with a negative advantage ([`PpoMin::dual_clip`]); default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dual_clip: Option<f64>,
    /// KL penalty towards the reference policy; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl: Option<KlTerm>,
    /// How token contributions are averaged; default the mean over all tokens of the batch.
    pub aggregation: Aggregation,
    /// How rewards become advantages; default group-normalized.
    pub advantage: AdvantageConfig,
    /// Which policy the ratio compares the current one with; default the one that sampled the tokens.
    pub anchor: Anchor,
}

impl Default for DapoConfig {
    fn default() -> Self {
        Self {
            clip_low: 0.2,
            clip_high: 0.28,
            dual_clip: None,
            kl: None,
            aggregation: Aggregation::TokenMean,
            advantage: AdvantageConfig::default(),
            anchor: Anchor::default(),
        }
    }
}

impl DapoConfig {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        validate_clip(self.clip_low, self.clip_high, self.dual_clip)?;
        validate_surroundings(self.kl.as_ref(), &self.aggregation, &self.advantage)
    }

    /// The objective alone, with its parts as concrete types.
    pub fn objective(&self) -> Composed<TokenRatio, ConstantClip, PpoMin> {
        let schedule = ConstantClip { low: self.clip_low, high: self.clip_high };
        let gate = PpoMin { dual_clip: self.dual_clip, outer: OuterBounds::Open {} };
        Composed::new(TokenRatio, schedule, gate).with_kl(self.kl)
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

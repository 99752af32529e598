//! GRPO.

use firebrick_core::Anchor;
use serde::{Deserialize, Serialize};

use super::{validate_clip, validate_surroundings};
use crate::{
    AdvantageConfig, Aggregation, Composed, ConfigError, ConstantClip, KlTerm, OuterBounds, PpoMin, Recipe,
    TokenRatio,
};

/// Group relative policy optimization: the token ratio, clipped as in PPO, with advantages relative to the
/// group.
///
/// ```text
/// J_t = min(r_t A, clip(r_t, 1 − low, 1 + high) A)        r_t = exp(d_t)
/// ```
///
/// *Reference*: Shao et al., "DeepSeekMath", 2024, arXiv:2402.03300.
///
/// *Differs from the paper*: there is no KL penalty unless `kl` sets one; the paper's is `k3` with a
/// coefficient of 0.04, a choice that belongs to a run because it costs a reference model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GrpoConfig {
    /// Distance of the window's lower end from 1; default 0.2.
    pub clip_low: f64,
    /// Distance of the window's upper end from 1; default 0.2.
    pub clip_high: f64,
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

impl Default for GrpoConfig {
    fn default() -> Self {
        Self {
            clip_low: 0.2,
            clip_high: 0.2,
            dual_clip: None,
            kl: None,
            aggregation: Aggregation::SeqMeanTokenMean,
            advantage: AdvantageConfig::default(),
            anchor: Anchor::default(),
        }
    }
}

impl GrpoConfig {
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

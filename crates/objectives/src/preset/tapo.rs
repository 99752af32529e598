//! TAPO.

use firebrick_core::Anchor;
use serde::{Deserialize, Serialize};

use super::validate_surroundings;
use crate::{
    AdvantageConfig, Aggregation, Composed, ConfigError, Horizon, InverseSqrtClip, KlTerm, OuterBounds,
    PpoMin, PrefixMean, PrefixRoute, Recipe, WindowSpace,
};

/// The objective of TAPO: the prefix ratio, clipped as in PPO in a window that narrows with the position.
///
/// ```text
/// J_t = min(R_t A, clip(R_t, 1 − ε_t^low, 1 + ε_t^high) A)        R_t = exp((1/t) Σ_{k≤t} d_k)
/// ε_t = ε_min + (ε_max − ε_min) (1/√t − 1/√T) / (1 − 1/√T)
/// ```
///
/// At the first token this is GRPO with a width of `eps_max`, at the last GSPO with widths of `eps_min_*`.
///
/// *Reference*: TAPO, 2026, arXiv:2610.13020.
///
/// *Differs from the paper*: it names outer bounds [0.5, 10] and not how they act. The default clamps the
/// ratio, which differs from the other readings only where a ratio leaves [0.5, 10]. It names no aggregation;
/// the default is GRPO's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TapoConfig {
    /// Width of both sides of the window at the first position; default 0.2.
    pub eps_max: f64,
    /// Width of the lower side at the horizon; default 0.0003.
    pub eps_min_low: f64,
    /// Width of the upper side at the horizon; default 0.0004.
    pub eps_min_high: f64,
    /// The position T at which the window is narrowest; default the response's own length.
    pub horizon: Horizon,
    /// What the widths are distances in; default ratios.
    pub space: WindowSpace,
    /// Which log-probs the gradient reaches; default the current token's.
    pub route: PrefixRoute,
    /// Bounds beyond the window; default a clamp of the ratio to [0.5, 10].
    pub outer: OuterBounds,
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

impl Default for TapoConfig {
    fn default() -> Self {
        let InverseSqrtClip { eps_max, eps_min_low, eps_min_high, horizon, space } =
            InverseSqrtClip::default();
        Self {
            eps_max,
            eps_min_low,
            eps_min_high,
            horizon,
            space,
            route: PrefixRoute::Current,
            outer: OuterBounds::RatioClamp { low: 0.5, high: 10.0 },
            dual_clip: None,
            kl: None,
            aggregation: Aggregation::SeqMeanTokenMean,
            advantage: AdvantageConfig::default(),
            anchor: Anchor::default(),
        }
    }
}

impl TapoConfig {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.schedule().validate()?;
        self.gate().validate()?;
        validate_surroundings(self.kl.as_ref(), &self.aggregation, &self.advantage)
    }

    /// The objective alone, with its parts as concrete types.
    pub fn objective(&self) -> Composed<PrefixMean, InverseSqrtClip, PpoMin> {
        Composed::new(PrefixMean { route: self.route }, self.schedule(), self.gate()).with_kl(self.kl)
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

    fn schedule(&self) -> InverseSqrtClip {
        InverseSqrtClip {
            eps_max: self.eps_max,
            eps_min_low: self.eps_min_low,
            eps_min_high: self.eps_min_high,
            horizon: self.horizon,
            space: self.space,
        }
    }

    fn gate(&self) -> PpoMin {
        PpoMin { dual_clip: self.dual_clip, outer: self.outer }
    }
}

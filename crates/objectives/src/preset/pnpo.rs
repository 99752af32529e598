//! PNPO.

use firebrick_core::Anchor;
use serde::{Deserialize, Serialize};

use super::validate_surroundings;
use crate::{
    AdvantageConfig, Aggregation, Composed, ConfigError, HardMask, IntervalForm, KlTerm, MaskedValue,
    PrefixMean, PrefixRoute, Recipe, SqrtRatioClip,
};

/// The objective of PNPO: the prefix ratio as a detached weight, masked outside a window that widens towards
/// the beginning.
///
/// ```text
/// J_t = sg[M_t w_t A_t] · log π_θ(y_t)        w_t = exp((1/t) Σ_{k≤t} d_k)
/// M_t = 1[1 − ε₋ h_t ≤ w_t ≤ 1 + ε₊ h_t]      h_t = √(L/t)
/// ```
///
/// The mask does not look at the advantage's sign; masked tokens stay in the denominator. `eps_minus` and
/// `eps_plus` must be given: the paper's values are not published.
///
/// *Reference*: PNPO, "Reusing rollouts under policy lag", 2026, arXiv:2608.01418.
///
/// *Differs from the paper*: the form of the interval is a choice, for lack of the paper's own; default
/// linear.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PnpoConfig {
    /// Distance of the base interval's lower end from 1, ε₋.
    pub eps_minus: f64,
    /// Distance of the base interval's upper end from 1, ε₊.
    pub eps_plus: f64,
    /// How the interval widens; default linear.
    #[serde(default)]
    pub interval: IntervalForm,
    /// What a token contributes to the loss value; default as the objective is written.
    #[serde(default)]
    pub value: MaskedValue,
    /// KL penalty towards the reference policy; default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kl: Option<KlTerm>,
    /// How token contributions are averaged; default the mean over responses of their token means.
    #[serde(default = "default_aggregation")]
    pub aggregation: Aggregation,
    /// How rewards become advantages; default group-normalized.
    #[serde(default)]
    pub advantage: AdvantageConfig,
    /// Which policy the ratio compares the current one with; default the one that sampled the tokens.
    #[serde(default)]
    pub anchor: Anchor,
}

fn default_aggregation() -> Aggregation {
    Aggregation::SeqMeanTokenMean
}

impl PnpoConfig {
    /// A config with the two widths that have no default.
    pub fn new(eps_minus: f64, eps_plus: f64) -> Self {
        Self {
            eps_minus,
            eps_plus,
            interval: IntervalForm::default(),
            value: MaskedValue::default(),
            kl: None,
            aggregation: default_aggregation(),
            advantage: AdvantageConfig::default(),
            anchor: Anchor::default(),
        }
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.schedule().validate()?;
        validate_surroundings(self.kl.as_ref(), &self.aggregation, &self.advantage)
    }

    /// The objective alone, with its parts as concrete types.
    pub fn objective(&self) -> Composed<PrefixMean, SqrtRatioClip, HardMask> {
        let gate = HardMask { value: self.value };
        Composed::new(PrefixMean { route: PrefixRoute::Current }, self.schedule(), gate).with_kl(self.kl)
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

    fn schedule(&self) -> SqrtRatioClip {
        SqrtRatioClip { eps_minus: self.eps_minus, eps_plus: self.eps_plus, interval: self.interval }
    }
}

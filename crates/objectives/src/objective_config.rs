//! The choice among recipes.

use serde::{Deserialize, Serialize};

use crate::{
    ComposedConfig, ConfigError, DapoConfig, GrpoConfig, GspoConfig, PnpoConfig, Recipe, TapoConfig,
};

/// A recipe, chosen by `type`. Unknown keys are refused.
///
/// ```
/// use firebrick_objectives::{ConfigError, ObjectiveConfig};
///
/// let config: ObjectiveConfig = toml::from_str(r#"
///     type = "tapo"
///     eps_max = 0.3
///     aggregation = { type = "token_mean" }
/// "#)?;
/// config.validate()?;
/// let recipe = config.build();
///
/// let wrong: ObjectiveConfig = toml::from_str("type = 'grpo'\nclip_low = -0.2")?;
/// assert_eq!(
///     wrong.validate().unwrap_err().to_string(),
///     "clip_low = -0.2: allowed is a finite number >= 0"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ObjectiveConfig {
    /// Group relative policy optimization.
    Grpo(GrpoConfig),
    /// Decoupled clip and dynamic sampling policy optimization.
    Dapo(DapoConfig),
    /// Group sequence policy optimization.
    Gspo(GspoConfig),
    /// Prefix mean with a window that narrows as 1/√t.
    Tapo(TapoConfig),
    /// Prefix mean with a sign-free mask that widens as √(L/t) towards the beginning.
    Pnpo(PnpoConfig),
    /// Any parts of this crate together.
    Composed(ComposedConfig),
}

impl ObjectiveConfig {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first key that is out of range, its value and what is allowed.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::Grpo(config) => config.validate(),
            Self::Dapo(config) => config.validate(),
            Self::Gspo(config) => config.validate(),
            Self::Tapo(config) => config.validate(),
            Self::Pnpo(config) => config.validate(),
            Self::Composed(config) => config.validate(),
        }
    }

    /// The recipe. Call [`Self::validate`] first: a config that it refuses builds an objective that makes no
    /// sense.
    pub fn build(&self) -> Recipe {
        match self {
            Self::Grpo(config) => config.build(),
            Self::Dapo(config) => config.build(),
            Self::Gspo(config) => config.build(),
            Self::Tapo(config) => config.build(),
            Self::Pnpo(config) => config.build(),
            Self::Composed(config) => config.build(),
        }
    }
}

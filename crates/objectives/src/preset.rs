//! Named recipes with the papers' numbers as defaults.

mod composed;
mod dapo;
mod grpo;
mod gspo;
mod pnpo;
mod tapo;

pub use composed::ComposedConfig;
pub use dapo::DapoConfig;
pub use grpo::GrpoConfig;
pub use gspo::GspoConfig;
pub use pnpo::PnpoConfig;
pub use tapo::TapoConfig;

use crate::{AdvantageConfig, Aggregation, ConfigError, KlTerm, config_error::require_width, gate};

/// Checks what every recipe has.
fn validate_surroundings(
    kl: Option<&KlTerm>,
    aggregation: &Aggregation,
    advantage: &AdvantageConfig,
) -> Result<(), ConfigError> {
    kl.map_or(Ok(()), KlTerm::validate).map_err(|error| error.within("kl"))?;
    aggregation.validate().map_err(|error| error.within("aggregation"))?;
    advantage.validate().map_err(|error| error.within("advantage"))
}

/// Checks a constant window with a dual clip.
fn validate_clip(low: f64, high: f64, dual_clip: Option<f64>) -> Result<(), ConfigError> {
    require_width("clip_low", low)?;
    require_width("clip_high", high)?;
    gate::validate_dual_clip(dual_clip)
}

//! A KL coefficient that follows a target.

use serde::{Deserialize, Serialize};

use crate::{ConfigError, config_error::require};

/// Largest relative error that one update answers to.
const ERROR_LIMIT: f64 = 0.2;

/// A proportional controller that moves a KL coefficient β so that the divergence approaches a target.
///
/// ```text
/// e = clip(kl/target − 1, −0.2, 0.2)
/// β ← β (1 + e · completions / horizon)
/// ```
///
/// *Reference*: Ziegler et al., "Fine-tuning language models from human preferences", 2019, arXiv:1909.08593.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveKl {
    /// The divergence aimed at, in nats, in the unit of what [`Self::updated`] is given.
    pub target: f64,
    /// Completions over which an error of 0.2 changes β by a fifth.
    pub horizon: f64,
}

impl AdaptiveKl {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When the target or the horizon is not positive and finite.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (key, value) in [("target", self.target), ("horizon", self.horizon)] {
            require(value.is_finite() && value > 0.0, key, value, "a finite number > 0")?;
        }
        Ok(())
    }

    /// The coefficient after a batch of `completions` with the divergence `kl` (nats).
    pub fn updated(&self, coefficient: f64, kl: f64, completions: usize) -> f64 {
        let error = (kl / self.target - 1.0).clamp(-ERROR_LIMIT, ERROR_LIMIT);
        coefficient * (1.0 + error * completions as f64 / self.horizon)
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::assert_close;

    use super::*;

    const CONTROL: AdaptiveKl = AdaptiveKl { target: 4.0, horizon: 100.0 };

    /// Error 0.1 over half of the horizon: 5 % more. Far away, the error counts as ± 0.2: 10 %.
    #[test]
    fn the_coefficient_follows_the_error_up_to_its_limit() {
        assert_close(CONTROL.updated(2.0, 4.4, 50), 2.1, 1e-14, "above");
        assert_close(CONTROL.updated(2.0, 400.0, 50), 2.2, 1e-14, "far above");
        assert_close(CONTROL.updated(2.0, 0.0, 50), 1.8, 1e-14, "far below");
        assert_eq!(CONTROL.updated(2.0, 4.0, 50), 2.0);
    }

    #[test]
    fn a_target_that_is_not_positive_is_refused() {
        let error = AdaptiveKl { target: 0.0, ..CONTROL }.validate().unwrap_err();
        assert_eq!(error.to_string(), "target = 0: allowed is a finite number > 0");
        assert!(AdaptiveKl { horizon: f64::INFINITY, ..CONTROL }.validate().is_err());
    }
}

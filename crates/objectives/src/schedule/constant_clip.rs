//! The same window at every position.

use firebrick_core::{Bounds, ClipSchedule, ResponseTokens};
use serde::{Deserialize, Serialize};

use crate::{ConfigError, config_error::require_width};

/// A window that does not depend on the position: [1 − low, 1 + high].
///
/// A `low` of 1 or more never binds, because weights are positive.
///
/// *Reference*: one width, Schulman et al., 2017, arXiv:1707.06347; two, Yu et al., "DAPO", 2025,
/// arXiv:2503.14476.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConstantClip {
    /// Distance of the lower end from 1.
    pub low: f64,
    /// Distance of the upper end from 1.
    pub high: f64,
}

impl ConstantClip {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When a width is negative or not finite.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require_width("low", self.low)?;
        require_width("high", self.high)
    }
}

impl ClipSchedule for ConstantClip {
    fn bounds(&self, _response: &ResponseTokens<'_>, out: &mut [Bounds]) {
        out.fill(Bounds::around_one(self.low, self.high));
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, check_schedule};

    use super::*;

    #[test]
    fn the_window_is_asymmetric() {
        let response = TestResponse::from_log_ratios(&[0.0; 2], &[1.0; 2]);
        let mut out = [Bounds::OPEN; 2];
        ConstantClip { low: 0.25, high: 0.5 }.bounds(&response.tokens(), &mut out);
        assert_eq!(out, [Bounds { low: 0.75, high: 1.5 }; 2]);
    }

    #[test]
    fn widths_must_be_finite_and_not_negative() {
        let error = ConstantClip { low: 0.2, high: f64::INFINITY }.validate().unwrap_err();
        assert_eq!(error.to_string(), "high = inf: allowed is a finite number >= 0");
        assert!(ConstantClip { low: -0.1, high: 0.2 }.validate().is_err());
        assert!(ConstantClip { low: 10.0, high: 0.0 }.validate().is_ok());
    }

    #[test]
    fn keeps_the_contract() {
        check_schedule(ConstantClip { low: 3e-4, high: 4e-4 });
    }
}

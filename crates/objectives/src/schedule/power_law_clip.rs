//! A window whose width in log space is a power of the position.

use firebrick_core::{Bounds, ClipSchedule, ResponseTokens};
use serde::{Deserialize, Serialize};

use crate::{
    ConfigError,
    config_error::{require, require_width},
};

/// A window that follows a power of the position in log space.
///
/// ```text
/// [exp(−low · t^p), exp(high · t^p)]
/// ```
///
/// The standard deviation of a cumulative log-ratio grows as √t under independent drift, and p = 1/2 keeps step with it;
/// that of a prefix mean falls as 1/√t, and p = −1/2 does. The two are the same condition, since log C_t = t log R_t: they clip
/// the same tokens, at different weights. p = 0 is a constant window in log space.
///
/// *Reference*: CTPO, 2026, arXiv:2605.07331: low 0.025, high 0.05 with p = 1/2 on the cumulative ratio, and p = −1/2 on the
/// geometric mean. There are no defaults here, because the numbers only make sense with their estimator.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerLawClip {
    /// Width of the lower side at the first position (nats).
    pub low: f64,
    /// Width of the upper side at the first position (nats).
    pub high: f64,
    /// The exponent p of the position.
    pub power: f64,
}

impl PowerLawClip {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When a width is negative or not finite, or the exponent is not in [−2, 2].
    pub fn validate(&self) -> Result<(), ConfigError> {
        require_width("low", self.low)?;
        require_width("high", self.high)?;
        require((-2.0..=2.0).contains(&self.power), "power", self.power, "in [-2, 2]")
    }
}

impl ClipSchedule for PowerLawClip {
    fn bounds(&self, response: &ResponseTokens<'_>, out: &mut [Bounds]) {
        for (index, out) in out.iter_mut().enumerate() {
            let scale = response.position(index).powf(self.power);
            *out = Bounds { low: (-self.low * scale).exp(), high: (self.high * scale).exp() };
        }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_close, check_schedule};

    use super::*;

    fn bounds(power: f64, len: usize) -> Vec<Bounds> {
        let response = TestResponse::from_log_ratios(&vec![0.0; len], &vec![1.0; len]);
        let mut out = vec![Bounds::OPEN; len];
        PowerLawClip { low: 0.025, high: 0.05, power }.bounds(&response.tokens(), &mut out);
        out
    }

    /// p = 1/2: widths at t = 4 are twice, at t = 100 ten times those at t = 1; p = −1/2: half, a tenth.
    #[test]
    fn the_log_width_is_the_power_of_the_position() {
        for (power, fourth, hundredth) in [(0.5, 2.0, 10.0), (-0.5, 0.5, 0.1), (0.0, 1.0, 1.0)] {
            let out = bounds(power, 100);
            for (t, scale) in [(1, 1.0), (4, fourth), (100, hundredth)] {
                assert_close(out[t - 1].low.ln(), -0.025 * scale, 1e-10, "low");
                assert_close(out[t - 1].high.ln(), 0.05 * scale, 1e-10, "high");
            }
        }
    }

    #[test]
    fn the_exponent_zero_is_a_constant_window() {
        let out = bounds(0.0, 50);
        assert_eq!(out, [Bounds { low: (-0.025_f64).exp(), high: 0.05_f64.exp() }; 50]);
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let part = PowerLawClip { low: 0.025, high: 0.05, power: 2.5 };
        assert_eq!(part.validate().unwrap_err().to_string(), "power = 2.5: allowed is in [-2, 2]");
        assert!(PowerLawClip { power: 0.5, low: -1.0, ..part }.validate().is_err());
        assert!(PowerLawClip { power: -0.5, ..part }.validate().is_ok());
    }

    #[test]
    fn keeps_the_contract() {
        for power in [-0.5, 0.0, 0.5] {
            check_schedule(PowerLawClip { low: 0.025, high: 0.05, power });
        }
    }
}

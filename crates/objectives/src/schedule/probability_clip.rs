//! A window that widens for tokens that the anchor policy held unlikely.

use firebrick_core::{Bounds, ClipSchedule, ResponseTokens};
use serde::{Deserialize, Serialize};

use crate::{
    ConfigError,
    config_error::{require, require_width},
};

/// A window that bounds |(r − 1) π_θ(y_t)|, the change of a token's probability weighted by its ratio.
///
/// ```text
/// low  = ½ + ½ √max(1 − 4 ε_low/q, 0)
/// high = min(½ + ½ √(1 + 4 ε_high/q), max_ratio)            q = π_anchor(y_t)
/// ```
///
/// The ends solve (r − 1) r q = −ε_low and = ε_high. The lower end is never below ½: an unlikely token may lose at most half
/// of its probability.
///
/// *Reference*: "DCPO: dynamic clipping policy optimization", 2025, arXiv:2509.02333; the default numbers are the paper's, the
/// cap that of its code.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProbabilityClip {
    /// Bound of the lower side, ε_low; default 0.16.
    pub eps_low: f64,
    /// Bound of the upper side, ε_high; default 0.2.
    pub eps_high: f64,
    /// Largest upper end, a ratio; default 10.
    pub max_ratio: f64,
}

impl Default for ProbabilityClip {
    fn default() -> Self {
        Self { eps_low: 0.16, eps_high: 0.2, max_ratio: 10.0 }
    }
}

impl ProbabilityClip {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When a bound is negative or not finite, or the largest ratio is below 1.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require_width("eps_low", self.eps_low)?;
        require_width("eps_high", self.eps_high)?;
        let holds = self.max_ratio.is_finite() && self.max_ratio >= 1.0;
        require(holds, "max_ratio", self.max_ratio, "a finite number >= 1")
    }

    /// The window of a token that the anchor policy gave the probability `q`.
    pub fn window(&self, q: f64) -> Bounds {
        // A probability that underflows to zero has the limit of a small one, also where ε is zero and 0/0 has none.
        let share = |eps: f64| if eps == 0.0 { 0.0 } else { 4.0 * eps / q };
        Bounds {
            low: 0.5 + 0.5 * (1.0 - share(self.eps_low)).max(0.0).sqrt(),
            high: (0.5 + 0.5 * (1.0 + share(self.eps_high)).sqrt()).min(self.max_ratio),
        }
    }
}

impl ClipSchedule for ProbabilityClip {
    fn bounds(&self, response: &ResponseTokens<'_>, out: &mut [Bounds]) {
        for (out, log_prob) in out.iter_mut().zip(response.context().anchor()) {
            *out = self.window(log_prob.exp());
        }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::LogProbs;
    use firebrick_testkit::{TestResponse, assert_all_close, assert_close, check_schedule};

    use super::*;

    /// q = .9: √(1 − .711111) = .537484, √(1 + .888889) = 1.374369. q = .01: 1 − 64 < 0, √81 = 9.
    #[test]
    fn the_windows_of_a_likely_and_an_unlikely_token_are_those_worked_by_hand() {
        let part = ProbabilityClip::default();
        for (q, low, high) in [(0.9, 0.768742, 1.187184), (0.01, 0.5, 5.0), (5e-4, 0.5, 10.0)] {
            assert_close(part.window(q).low, low, 1e-6, "low");
            assert_close(part.window(q).high, high, 1e-6, "high");
        }
    }

    #[test]
    fn the_windows_of_the_shared_example_are_the_published_ones() {
        let anchor = [0.5_f64, 0.2, 0.05, 0.9].map(f64::ln);
        let response = TestResponse::new(&anchor, &anchor, &[1.0; 4]);
        let mut out = [Bounds::OPEN; 4];
        ProbabilityClip::default().bounds(&response.tokens(), &mut out);
        let (low, high): (Vec<_>, Vec<_>) = out.iter().map(|bounds| (bounds.low, bounds.high)).unzip();
        assert_all_close(&low, &[0.5, 0.5, 0.5, 0.768742], 1e-6, "low");
        assert_all_close(&high, &[1.306226, 1.618034, 2.561553, 1.187184], 1e-6, "high");
    }

    #[test]
    fn the_window_follows_the_policy_that_the_ratio_is_anchored_at() {
        let response = TestResponse::new(&[0.01_f64.ln()], &[-1.0], &[1.0])
            .map_context(|context| context.anchored_at_proximal(LogProbs::new(vec![0.9_f64.ln()])).unwrap());
        let mut out = [Bounds::OPEN];
        ProbabilityClip::default().bounds(&response.tokens(), &mut out);
        assert_close(out[0].high, 1.187184, 1e-6, "high");
    }

    #[test]
    fn without_a_bound_there_is_no_room() {
        let part = ProbabilityClip { eps_low: 0.0, eps_high: 0.0, max_ratio: 10.0 };
        for q in [0.9, 1e-3, 0.0] {
            assert_eq!(part.window(q), Bounds { low: 1.0, high: 1.0 });
        }
    }

    #[test]
    fn a_cap_below_one_is_refused() {
        let part = ProbabilityClip { max_ratio: 0.5, ..ProbabilityClip::default() };
        assert_eq!(
            part.validate().unwrap_err().to_string(),
            "max_ratio = 0.5: allowed is a finite number >= 1"
        );
    }

    #[test]
    fn keeps_the_contract() {
        check_schedule(ProbabilityClip::default());
    }
}

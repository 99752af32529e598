//! A window as wide as the inverse square root of the anchor's probability.

use firebrick_core::{Bounds, ClipSchedule, ResponseTokens};
use serde::{Deserialize, Serialize};

use crate::{
    ConfigError,
    config_error::{require, require_width},
};

/// A window whose second-order share of the KL divergence, q ε², is the same for every token.
///
/// ```text
/// [max(1 − ε, floor), min(1 + ε, cap)]        ε = √(δ/q),  q = π_anchor(y_t)
/// ```
///
/// The floor acts for q < δ/(1 − floor)², the cap for q < δ/(cap − 1)²; with the default numbers below 0.2 and 0.05/81.
///
/// *Reference*: RIPO, "Riemannian isometric policy optimization", 2026, arXiv:2607.10169.
///
/// *Differs from the paper*: formula and numbers are those that public implementations quote; its full text was not at hand.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SqrtProbabilityClip {
    /// Budget q ε² of a token, δ; default 0.05.
    pub delta: f64,
    /// Smallest lower end, a ratio in [0, 1]; default 0.5.
    pub floor: f64,
    /// Largest upper end, a ratio; default 10.
    pub cap: f64,
}

impl Default for SqrtProbabilityClip {
    fn default() -> Self {
        Self { delta: 0.05, floor: 0.5, cap: 10.0 }
    }
}

impl SqrtProbabilityClip {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When the budget is negative or not finite, or floor and cap do not lie on either side of 1.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require_width("delta", self.delta)?;
        require((0.0..=1.0).contains(&self.floor), "floor", self.floor, "in [0, 1]")?;
        require(self.cap.is_finite() && self.cap >= 1.0, "cap", self.cap, "a finite number >= 1")
    }

    /// The window of a token that the anchor policy gave the probability `q`.
    pub fn window(&self, q: f64) -> Bounds {
        // Zero by a probability that underflows to zero is still no room.
        let eps = if self.delta == 0.0 { 0.0 } else { (self.delta / q).sqrt() };
        Bounds { low: (1.0 - eps).max(self.floor), high: (1.0 + eps).min(self.cap) }
    }
}

impl ClipSchedule for SqrtProbabilityClip {
    fn bounds(&self, response: &ResponseTokens<'_>, out: &mut [Bounds]) {
        for (out, log_prob) in out.iter_mut().zip(response.context().anchor()) {
            *out = self.window(log_prob.exp());
        }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_all_close, assert_close, check_schedule};

    use super::*;

    /// q = [.5, .2, .05, .9]: ε = [.316228, .5, 1, .235702]; the floor acts on the third.
    #[test]
    fn the_windows_of_the_shared_example_are_those_worked_by_hand() {
        let anchor = [0.5_f64, 0.2, 0.05, 0.9].map(f64::ln);
        let response = TestResponse::new(&anchor, &anchor, &[1.0; 4]);
        let mut out = [Bounds::OPEN; 4];
        SqrtProbabilityClip::default().bounds(&response.tokens(), &mut out);
        let (low, high): (Vec<_>, Vec<_>) = out.iter().map(|bounds| (bounds.low, bounds.high)).unzip();
        assert_all_close(&low, &[0.683772, 0.5, 0.5, 0.764298], 1e-6, "low");
        assert_all_close(&high, &[1.316228, 1.5, 2.0, 1.235702], 1e-6, "high");
    }

    /// Floor: .05/.25 = .2. Cap: .05/81 = 6.1728e-4.
    #[test]
    fn floor_and_cap_act_below_the_probabilities_worked_by_hand() {
        let part = SqrtProbabilityClip::default();
        assert!(part.window(0.21).low > 0.5 && part.window(0.19).low == 0.5);
        assert!(part.window(6.2e-4).high < 10.0 && part.window(6.1e-4).high == 10.0);
    }

    #[test]
    fn the_budget_of_every_token_between_them_is_the_same() {
        for q in [0.25, 0.5, 0.9, 1.0] {
            let eps = 1.0 - SqrtProbabilityClip::default().window(q).low;
            assert_close(q * eps * eps, 0.05, 1e-12, "q ε²");
        }
    }

    #[test]
    fn without_a_budget_there_is_no_room() {
        let part = SqrtProbabilityClip { delta: 0.0, ..SqrtProbabilityClip::default() };
        assert_eq!([part.window(0.5), part.window(0.0)], [Bounds { low: 1.0, high: 1.0 }; 2]);
    }

    #[test]
    fn ends_on_the_wrong_side_of_one_are_refused() {
        let part = SqrtProbabilityClip { floor: 1.5, ..SqrtProbabilityClip::default() };
        assert_eq!(part.validate().unwrap_err().to_string(), "floor = 1.5: allowed is in [0, 1]");
        assert!(SqrtProbabilityClip { cap: 0.9, ..SqrtProbabilityClip::default() }.validate().is_err());
    }

    #[test]
    fn keeps_the_contract() {
        check_schedule(SqrtProbabilityClip::default());
    }
}

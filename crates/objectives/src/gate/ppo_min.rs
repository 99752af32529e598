//! The pessimistic minimum of PPO, with dual clip and outer bounds.

use firebrick_core::{Binding, Bounds, Gate, Gated, ResponseTokens};
use serde::{Deserialize, Serialize};

use crate::{ConfigError, config_error::require};

/// Bounds beyond the window, far from 1. The fields are ratios.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum OuterBounds {
    /// There are none. (The braces make a stray key in a config an error.)
    Open {},
    /// The window is cut to [low, high]; it has no effect on a window that lies inside.
    WindowCap {
        /// Smallest lower end of the window.
        low: f64,
        /// Largest upper end of the window.
        high: f64,
    },
    /// The weight is clamped to [low, high] before the minimum is taken, with no gradient outside, whatever
    /// the advantage's sign. For A < 0 that contains a dual clip at `high`; for A > 0 it also stops weights
    /// below `low`.
    RatioClamp {
        /// Smallest weight.
        low: f64,
        /// Largest weight.
        high: f64,
    },
    /// Only the dual clip: the same as [`PpoMin::dual_clip`] at `high`.
    DualClipOnly {
        /// Largest weight of a token with A < 0.
        high: f64,
    },
}

impl Default for OuterBounds {
    /// None.
    fn default() -> Self {
        Self::Open {}
    }
}

impl OuterBounds {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When the bounds do not lie on either side of 1.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match *self {
            Self::Open {} => Ok(()),
            Self::WindowCap { low, high } | Self::RatioClamp { low, high } => {
                require((0.0..=1.0).contains(&low), "low", low, "in [0, 1]")?;
                require(high.is_finite() && high >= 1.0, "high", high, "a finite number >= 1")
            }
            Self::DualClipOnly { high } => {
                require(high.is_finite() && high > 1.0, "high", high, "a finite number > 1")
            }
        }
    }
}

/// The pessimistic minimum of PPO.
///
/// ```text
/// J_t = min(w A, clip(w, low, high) A)
/// ∂J_t/∂ log w_t = w A     inside the window, and outside it where the minimum is the unclipped term
///                = 0       where A > 0 and w > high, or A < 0 and w < low
/// ```
///
/// A weight exactly at a bound keeps its gradient. With a dual clip c, a token with a negative advantage
/// additionally has J_t = max(J_t, c A), with no gradient where that acts. The dual clip may grow with the position;
/// of several the smallest acts. The binding is [`Binding::OuterLow`] or [`Binding::OuterHigh`] where an outer bound or
/// the dual clip acted and the window did not.
///
/// *Reference*: Schulman et al., 2017, arXiv:1707.06347; dual clip: Ye et al., "Mastering complex control in
/// MOBA games with deep reinforcement learning", 2019, arXiv:1912.09729; growing dual clip: CTPO, 2026, arXiv:2605.07331.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PpoMin {
    /// Largest weight c of a token with A < 0; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dual_clip: Option<f64>,
    /// A dual clip that grows with the position; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dual_clip_growth: Option<DualClipGrowth>,
    /// Bounds beyond the window; default none.
    pub outer: OuterBounds,
}

/// A dual clip that grows with the position t: c_t = exp(scale · t^power).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DualClipGrowth {
    /// Logarithm of the dual clip at the first position (nats).
    pub scale: f64,
    /// Power of the position.
    pub power: f64,
}

impl PpoMin {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When a dual clip is not above 1, or the outer bounds do not lie on either side of 1.
    pub fn validate(&self) -> Result<(), ConfigError> {
        validate_dual_clip(self.dual_clip)?;
        if let Some(DualClipGrowth { scale, power }) = self.dual_clip_growth {
            let within = |error: ConfigError| error.within("dual_clip_growth");
            require(scale.is_finite() && scale > 0.0, "scale", scale, "a finite number > 0")
                .map_err(within)?;
            require(power.is_finite(), "power", power, "a finite number").map_err(within)?;
        }
        self.outer.validate().map_err(|error| error.within("outer"))
    }

    /// The same gate at one position, where a growing dual clip is a number.
    fn at(&self, position: f64) -> Self {
        let Some(DualClipGrowth { scale, power }) = self.dual_clip_growth else { return *self };
        let grown = (scale * position.powf(power)).exp();
        let dual_clip = Some(self.dual_clip.map_or(grown, |clip| clip.min(grown)));
        Self { dual_clip, dual_clip_growth: None, ..*self }
    }

    /// What becomes of one token. A growing dual clip is left to [`Self::at`].
    pub(super) fn token(&self, weight: f64, advantage: f64, window: Bounds) -> Gated {
        let (mut low, mut high) = (window.low, window.high);
        let mut clamped = weight;
        let mut dual_clip = self.dual_clip;
        match self.outer {
            OuterBounds::Open {} => {}
            OuterBounds::WindowCap { low: cap_low, high: cap_high } => {
                low = low.max(cap_low);
                high = high.min(cap_high);
            }
            OuterBounds::RatioClamp { low, high } => clamped = weight.clamp(low, high),
            OuterBounds::DualClipOnly { high } => {
                dual_clip = Some(dual_clip.map_or(high, |clip| clip.min(high)));
            }
        }
        let mut bound = clamped;
        let mut binding = Binding::None;
        if advantage > 0.0 && clamped > high {
            (bound, binding) = (high, Binding::High);
        } else if advantage < 0.0 && clamped < low {
            (bound, binding) = (low, Binding::Low);
        } else if advantage != 0.0 && clamped < weight {
            binding = Binding::OuterHigh;
        } else if advantage != 0.0 && clamped > weight {
            binding = Binding::OuterLow;
        }
        if let Some(clip) = dual_clip
            && advantage < 0.0
            && bound > clip
        {
            (bound, binding) = (clip, Binding::OuterHigh);
        }
        let value = bound * advantage;
        Gated { value, slope: if binding == Binding::None { value } else { 0.0 }, binding }
    }
}

impl Gate for PpoMin {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], bounds: &[Bounds], out: &mut [Gated]) {
        let inputs = log_weights.iter().zip(response.advantages()).zip(bounds);
        for (index, (out, ((log_weight, advantage), window))) in out.iter_mut().zip(inputs).enumerate() {
            let gate = self.at(response.position(index));
            *out = gate.token(log_weight.exp(), *advantage, *window);
        }
    }
}

/// Refuses a dual clip that is not above 1.
pub(crate) fn validate_dual_clip(dual_clip: Option<f64>) -> Result<(), ConfigError> {
    let clip = dual_clip.unwrap_or(f64::MAX);
    require(clip.is_finite() && clip > 1.0, "dual_clip", clip, "a finite number > 1")
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_close, check_gate};

    use super::*;

    const WINDOW: Bounds = Bounds { low: 0.8, high: 1.2 };
    const CLAMP: OuterBounds = OuterBounds::RatioClamp { low: 0.5, high: 10.0 };

    fn gated(value: f64, slope: f64, binding: Binding) -> Gated {
        Gated { value, slope, binding }
    }

    #[test]
    fn each_sign_of_the_advantage_is_stopped_on_one_side_only() {
        let gate = PpoMin::default();
        assert_eq!(gate.token(1.5, 1.0, WINDOW), gated(1.2, 0.0, Binding::High));
        assert_eq!(gate.token(0.5, 1.0, WINDOW), gated(0.5, 0.5, Binding::None));
        assert_eq!(gate.token(1.5, -1.0, WINDOW), gated(-1.5, -1.5, Binding::None));
        assert_eq!(gate.token(0.5, -1.0, WINDOW), gated(-0.8, 0.0, Binding::Low));
        assert_eq!(gate.token(1.5, 0.0, WINDOW), gated(0.0, 0.0, Binding::None));
    }

    #[test]
    fn a_weight_at_a_bound_keeps_its_gradient() {
        let gate = PpoMin { dual_clip: Some(3.0), outer: CLAMP, ..PpoMin::default() };
        assert_eq!(gate.token(1.2, 1.0, WINDOW), gated(1.2, 1.2, Binding::None));
        assert_eq!(gate.token(0.8, -1.0, WINDOW), gated(-0.8, -0.8, Binding::None));
        assert_eq!(gate.token(3.0, -1.0, WINDOW), gated(-3.0, -3.0, Binding::None));
        assert_eq!(gate.token(0.5, 1.0, WINDOW), gated(0.5, 0.5, Binding::None));
    }

    /// tianshou #433, verl #784: the extra bound belongs to negative advantages alone.
    #[test]
    fn the_dual_clip_acts_on_negative_advantages_only() {
        let gate = PpoMin { dual_clip: Some(3.0), ..PpoMin::default() };
        assert_eq!(gate.token(10.0, 1.0, WINDOW), gated(1.2, 0.0, Binding::High));
        assert_eq!(gate.token(10.0, -1.0, WINDOW), gated(-3.0, 0.0, Binding::OuterHigh));
        assert_eq!(gate.token(0.5, -1.0, WINDOW), gated(-0.8, 0.0, Binding::Low));
    }

    #[test]
    fn a_ratio_clamp_stops_what_the_window_lets_through() {
        let gate = PpoMin { outer: CLAMP, ..PpoMin::default() };
        assert_eq!(gate.token(0.3, 2.0, WINDOW), gated(1.0, 0.0, Binding::OuterLow));
        assert_eq!(gate.token(12.0, -1.0, WINDOW), gated(-10.0, 0.0, Binding::OuterHigh));
        assert_eq!(gate.token(0.3, -1.0, WINDOW), gated(-0.8, 0.0, Binding::Low));
        assert_eq!(gate.token(12.0, 1.0, WINDOW), gated(1.2, 0.0, Binding::High));
        assert_eq!(gate.token(12.0, 1.0, Bounds::OPEN), gated(10.0, 0.0, Binding::OuterHigh));
        assert_eq!(gate.token(0.3, -1.0, Bounds::OPEN), gated(-0.5, 0.0, Binding::OuterLow));
    }

    #[test]
    fn a_window_cap_changes_only_a_window_that_reaches_beyond_it() {
        let gate = PpoMin { outer: OuterBounds::WindowCap { low: 0.5, high: 10.0 }, ..PpoMin::default() };
        assert_eq!(gate.token(12.0, -1.0, WINDOW), gated(-12.0, -12.0, Binding::None));
        assert_eq!(gate.token(12.0, 1.0, Bounds::OPEN), gated(10.0, 0.0, Binding::High));
        assert_eq!(gate.token(0.3, -1.0, Bounds::OPEN), gated(-0.5, 0.0, Binding::Low));
        assert_eq!(gate.token(0.3, -1.0, WINDOW), gated(-0.8, 0.0, Binding::Low));
    }

    #[test]
    fn dual_clip_only_is_a_dual_clip_and_the_smaller_of_two_acts() {
        let only = PpoMin { outer: OuterBounds::DualClipOnly { high: 10.0 }, ..PpoMin::default() };
        let both = PpoMin { dual_clip: Some(3.0), ..only };
        let plain = PpoMin { dual_clip: Some(10.0), ..PpoMin::default() };
        for weight in [0.3, 1.0, 5.0, 12.0] {
            for advantage in [1.0, -1.0] {
                assert_eq!(only.token(weight, advantage, WINDOW), plain.token(weight, advantage, WINDOW));
            }
        }
        assert_eq!(both.token(5.0, -1.0, WINDOW), gated(-3.0, 0.0, Binding::OuterHigh));
    }

    fn growing(scale: f64, power: f64) -> PpoMin {
        PpoMin { dual_clip_growth: Some(DualClipGrowth { scale, power }), ..PpoMin::default() }
    }

    /// exp(ln 2 · √t) at t = 1, 4, 9: 2, 4, 8. The weight is 5 throughout.
    #[test]
    fn a_growing_dual_clip_lets_later_tokens_pass() {
        let weights = [5.0_f64.ln(); 9];
        let response = TestResponse::from_log_ratios(&weights, &[-1.0; 9]);
        let mut out = [Gated::default(); 9];
        let gate = growing(2.0_f64.ln(), 0.5);
        gate.gate(&response.tokens(), &weights, &[Bounds::OPEN; 9], &mut out);
        for (index, value) in [(0, -2.0), (3, -4.0)] {
            assert_close(out[index].value, value, 1e-14, "value");
            assert_eq!((out[index].slope, out[index].binding), (0.0, Binding::OuterHigh));
        }
        assert_eq!(out[8].binding, Binding::None);
        assert_close(out[8].slope, -5.0, 1e-14, "slope");
        let capped = PpoMin { dual_clip: Some(3.0), ..gate };
        assert_eq!(capped.at(9.0).dual_clip, Some(3.0), "the smaller of the two acts");
        assert_eq!(capped.at(1.0).dual_clip, gate.at(1.0).dual_clip);
    }

    #[test]
    fn bounds_on_the_wrong_side_of_one_are_refused() {
        let gate = PpoMin { dual_clip: Some(0.9), ..PpoMin::default() };
        assert_eq!(
            gate.validate().unwrap_err().to_string(),
            "dual_clip = 0.9: allowed is a finite number > 1"
        );
        let gate = PpoMin { outer: OuterBounds::RatioClamp { low: 2.0, high: 10.0 }, ..PpoMin::default() };
        assert_eq!(gate.validate().unwrap_err().to_string(), "outer.low = 2: allowed is in [0, 1]");
        assert!(PpoMin { dual_clip: Some(3.0), outer: CLAMP, ..growing(0.05, 0.5) }.validate().is_ok());
        let error = growing(0.0, 0.5).validate().unwrap_err();
        assert_eq!(error.to_string(), "dual_clip_growth.scale = 0: allowed is a finite number > 0");
        assert!(growing(0.05, f64::NAN).validate().is_err());
    }

    #[test]
    fn keeps_the_contract() {
        for outer in [
            OuterBounds::Open {},
            OuterBounds::WindowCap { low: 0.5, high: 10.0 },
            CLAMP,
            OuterBounds::DualClipOnly { high: 10.0 },
        ] {
            check_gate(PpoMin { outer, ..PpoMin::default() });
            check_gate(PpoMin { dual_clip: Some(3.0), outer, ..PpoMin::default() });
            check_gate(PpoMin { dual_clip: Some(3.0), outer, ..growing(0.05, 0.5) });
        }
    }
}

//! A window that narrows with an inverse power of the position, by default the square root.

use firebrick_core::{Bounds, ClipSchedule, ResponseTokens};
use serde::{Deserialize, Serialize};

use crate::{
    ConfigError,
    config_error::{require, require_order, require_width},
};

/// The position T at which a narrowing window reaches its smallest width.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Horizon {
    /// The length of the response itself, L. The window then looks ahead: it depends on where the response
    /// ends.
    #[default]
    ResponseLength,
    /// The run's limit on response tokens, the same for all responses. Positions beyond it count as T.
    MaxLength,
}

/// What a width is a distance in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowSpace {
    /// Ratios: [1 − ε^low, 1 + ε^high].
    #[default]
    Ratio,
    /// Nats: [exp(−ε^low), exp(ε^high)].
    Log,
}

/// A window that narrows from `eps_max` at the first position to `eps_min_*` at the horizon T as t^−p does.
///
/// ```text
/// ε_t = ε_min + (ε_max − ε_min) · (t^−p − T^−p) / (1 − T^−p)          t = 1 … T
/// ```
///
/// At T = 1, where the formula is 0/0, ε_1 = ε_max, its value at t = 1 for every other T.
///
/// *Reference*: TAPO, 2026, arXiv:2610.13020, equation 13; the default numbers are the paper's.
///
/// *Differs from the paper*: the exponent, the horizon and the space of the window are choices here; the defaults
/// are the paper's reading, whose p is 1/2.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InverseSqrtClip {
    /// Width of both sides at the first position; default 0.2.
    pub eps_max: f64,
    /// Width of the lower side at the horizon; default 0.0003.
    pub eps_min_low: f64,
    /// Width of the upper side at the horizon; default 0.0004.
    pub eps_min_high: f64,
    /// The exponent p; default 0.5.
    pub power: f64,
    /// What T is.
    pub horizon: Horizon,
    /// What the widths are distances in.
    pub space: WindowSpace,
}

impl Default for InverseSqrtClip {
    fn default() -> Self {
        Self {
            eps_max: 0.2,
            eps_min_low: 3e-4,
            eps_min_high: 4e-4,
            power: 0.5,
            horizon: Horizon::default(),
            space: WindowSpace::default(),
        }
    }
}

impl InverseSqrtClip {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When a width is negative or not finite, the smallest exceeds the largest, or the exponent is not positive.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require_width("eps_max", self.eps_max)?;
        for (key, eps_min) in [("eps_min_low", self.eps_min_low), ("eps_min_high", self.eps_min_high)] {
            require_width(key, eps_min)?;
            require_order(
                (key, eps_min),
                ("eps_max", self.eps_max),
                "the window narrows, so the smallest width must not exceed the largest",
            )?;
        }
        let holds = self.power.is_finite() && self.power > 0.0;
        require(holds, "power", self.power, "a finite number > 0")
    }

    /// Widths (low, high) at position `t` (from 1) for the horizon `horizon`; positions beyond it count as the
    /// horizon.
    pub fn widths(&self, t: f64, horizon: f64) -> (f64, f64) {
        let share = self.share(t, horizon);
        // Not ε_min + (ε_max − ε_min) · share: this form is exact at both ends.
        let between = |eps_min: f64| eps_min * (1.0 - share) + self.eps_max * share;
        (between(self.eps_min_low), between(self.eps_min_high))
    }

    /// (t^−p − T^−p) / (1 − T^−p): 1 at t = 1, 0 at t ≥ T.
    fn share(&self, t: f64, horizon: f64) -> f64 {
        if t <= 1.0 {
            return 1.0;
        }
        // Also a position beyond a horizon of one token, where the window is already at its smallest.
        if t >= horizon {
            return 0.0;
        }
        let (here, last) = (self.falloff(t), self.falloff(horizon));
        (here - last) / (1.0 - last)
    }

    /// t^−p.
    fn falloff(&self, t: f64) -> f64 {
        // The square root is exact to the last bit, and faster.
        if self.power == 0.5 { 1.0 / t.sqrt() } else { t.powf(-self.power) }
    }
}

impl ClipSchedule for InverseSqrtClip {
    fn bounds(&self, response: &ResponseTokens<'_>, out: &mut [Bounds]) {
        let horizon = match self.horizon {
            Horizon::ResponseLength => response.len(),
            Horizon::MaxLength => response.context().max_response_len(),
        };
        for (index, out) in out.iter_mut().enumerate() {
            let (low, high) = self.widths(response.position(index), horizon as f64);
            *out = match self.space {
                WindowSpace::Ratio => Bounds::around_one(low, high),
                WindowSpace::Log => Bounds { low: (-low).exp(), high: high.exp() },
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{LogProbs, ResponseContext};
    use firebrick_testkit::{TestResponse, assert_all_close, assert_close, check_schedule};

    use super::*;

    fn bounds(schedule: InverseSqrtClip, len: usize, max_response_len: usize) -> Vec<Bounds> {
        let context = ResponseContext::new(LogProbs::new(vec![-1.0; len]), vec![1.0; len])
            .unwrap()
            .with_max_response_len(max_response_len);
        let current = LogProbs::new(vec![-1.0; len]);
        let mut out = vec![Bounds::OPEN; len];
        schedule.bounds(&ResponseTokens::new(&context, &current).unwrap(), &mut out);
        out
    }

    /// t = 2, T = 4: (0.707107 − 0.5)/0.5 = 0.414214, and 0.0003 + 0.1997 · 0.414214 = 0.083018.
    #[test]
    fn the_widths_of_four_positions_are_those_worked_by_hand() {
        let (low, high): (Vec<_>, Vec<_>) =
            (1..=4).map(|t| InverseSqrtClip::default().widths(f64::from(t), 4.0)).unzip();
        assert_all_close(&low, &[0.2, 0.083018, 0.031194, 0.0003], 2e-5, "low");
        assert_all_close(&high, &[0.2, 0.083077, 0.031278, 0.0004], 2e-5, "high");
    }

    #[test]
    fn the_widths_over_twenty_thousand_positions_are_the_reference_ones() {
        let eps = |t| InverseSqrtClip::default().widths(f64::from(t), 20_000.0).0;
        for (t, expected) in
            [(1, 0.2), (2, 0.141093), (10, 0.062478), (100, 0.018990), (1000, 0.005238), (20_000, 0.0003)]
        {
            assert_close(eps(t), expected, 1e-4, &format!("eps at {t}"));
        }
        assert!((2..=20_000).all(|t| eps(t) < eps(t - 1)), "strictly decreasing");
        assert_eq!((eps(1), eps(20_000)), (0.2, 0.0003), "exact at both ends");
    }

    #[test]
    fn a_response_of_one_token_has_the_widest_window() {
        assert_eq!(bounds(InverseSqrtClip::default(), 1, 8), [Bounds::around_one(0.2, 0.2)]);
    }

    #[test]
    fn positions_beyond_the_longest_response_count_as_the_last() {
        let schedule = InverseSqrtClip { horizon: Horizon::MaxLength, ..InverseSqrtClip::default() };
        let out = bounds(schedule, 6, 4);
        assert_eq!(out[3..], [Bounds::around_one(3e-4, 4e-4); 3]);
        assert_eq!(out[..3], bounds(schedule, 4, 4)[..3]);
        assert_eq!(schedule.widths(2.0, 1.0), (3e-4, 4e-4));
    }

    #[test]
    fn the_longest_response_sets_the_same_window_for_short_and_long_responses() {
        let schedule = InverseSqrtClip { horizon: Horizon::MaxLength, ..InverseSqrtClip::default() };
        assert_eq!(bounds(schedule, 3, 100), bounds(schedule, 50, 100)[..3]);
        let own = InverseSqrtClip::default();
        assert_ne!(bounds(own, 3, 100), bounds(own, 50, 100)[..3]);
    }

    /// p = 1, t = 2, T = 4: (1/2 − 1/4)/(1 − 1/4) = 1/3, and 0.0003 + 0.1997/3 = 0.066867.
    #[test]
    fn every_exponent_has_the_same_ends_and_a_larger_one_narrows_sooner() {
        let with = |power| InverseSqrtClip { power, ..InverseSqrtClip::default() };
        assert_close(with(1.0).widths(2.0, 4.0).0, 0.066_866_666_7, 1e-9, "p = 1");
        for power in [0.25, 0.5, 1.0, 2.0] {
            assert_eq!(with(power).widths(1.0, 700.0), (0.2, 0.2));
            assert_eq!(with(power).widths(700.0, 700.0), (3e-4, 4e-4));
            let (sooner, later) = (with(2.0 * power).widths(9.0, 700.0), with(power).widths(9.0, 700.0));
            assert!(sooner.0 < later.0 && sooner.1 < later.1, "{power}");
        }
    }

    #[test]
    fn positions_of_the_caller_count_instead_of_ranks() {
        let response = TestResponse::from_log_ratios(&[0.0; 4], &[1.0; 4]);
        let tokens = response.tokens().at_positions(vec![1.0, 1.5, 4.0, 9.0]).unwrap();
        let mut out = [Bounds::OPEN; 4];
        let schedule = InverseSqrtClip::default();
        schedule.bounds(&tokens, &mut out);
        let (low, high) = schedule.widths(1.5, 4.0);
        let [first, last] = [Bounds::around_one(0.2, 0.2), Bounds::around_one(3e-4, 4e-4)];
        assert_eq!(out, [first, Bounds::around_one(low, high), last, last]);
    }

    #[test]
    fn an_exponent_that_does_not_narrow_is_refused() {
        let part = InverseSqrtClip { power: 0.0, ..InverseSqrtClip::default() };
        assert_eq!(part.validate().unwrap_err().to_string(), "power = 0: allowed is a finite number > 0");
    }

    #[test]
    fn a_log_window_holds_exponentials() {
        let schedule = InverseSqrtClip { space: WindowSpace::Log, ..InverseSqrtClip::default() };
        let last = bounds(schedule, 4, 4)[3];
        assert_eq!(last, Bounds { low: (-3e-4_f64).exp(), high: 4e-4_f64.exp() });
    }

    #[test]
    fn a_window_that_widens_is_refused() {
        let error = InverseSqrtClip { eps_min_high: 0.3, ..InverseSqrtClip::default() };
        assert_eq!(
            error.validate().unwrap_err().to_string(),
            "eps_min_high = 0.3 with eps_max = 0.2: the window narrows, so the smallest width must not \
             exceed the largest"
        );
    }

    #[test]
    fn keeps_the_contract() {
        for horizon in [Horizon::ResponseLength, Horizon::MaxLength] {
            for space in [WindowSpace::Ratio, WindowSpace::Log] {
                check_schedule(InverseSqrtClip { horizon, space, ..InverseSqrtClip::default() });
            }
        }
    }
}

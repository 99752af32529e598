//! A window that widens from the end of the response towards its beginning.

use firebrick_core::{Bounds, ClipSchedule, ResponseTokens};
use serde::{Deserialize, Serialize};

use crate::{
    ConfigError,
    config_error::{require, require_width},
};

/// How the factor h widens the base interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalForm {
    /// [1 − ε₋ h, 1 + ε₊ h]. The lower end may fall below zero, where it never binds.
    #[default]
    Linear,
    /// [(1 − ε₋)^h, (1 + ε₊)^h].
    Power,
}

/// A window that is the base interval at the last token and √(L/t) times as wide at position t.
///
/// ```text
/// [1 − ε₋ h_t, 1 + ε₊ h_t]        h_t = √(L/t)        form `Linear`
/// [(1 − ε₋)^h_t, (1 + ε₊)^h_t]                        form `Power`
/// ```
///
/// The widths have no default: the paper's values are not published.
///
/// *Reference*: PNPO, "Reusing rollouts under policy lag", 2026, arXiv:2608.01418.
///
/// *Differs from the paper*: the form of the interval is a choice here, for lack of the paper's own; default
/// linear.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqrtRatioClip {
    /// Distance of the base interval's lower end from 1, ε₋.
    pub eps_minus: f64,
    /// Distance of the base interval's upper end from 1, ε₊.
    pub eps_plus: f64,
    /// How the interval widens.
    #[serde(default)]
    pub interval: IntervalForm,
}

impl SqrtRatioClip {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When a width is negative or not finite, or a power interval would have a negative base.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require_width("eps_minus", self.eps_minus)?;
        require_width("eps_plus", self.eps_plus)?;
        require(
            self.interval == IntervalForm::Linear || self.eps_minus <= 1.0,
            "eps_minus",
            self.eps_minus,
            "in [0, 1] for a power interval",
        )
    }
}

impl ClipSchedule for SqrtRatioClip {
    fn bounds(&self, response: &ResponseTokens<'_>, out: &mut [Bounds]) {
        let len = response.len() as f64;
        for (index, out) in out.iter_mut().enumerate() {
            let widening = (len / response.position(index)).sqrt();
            *out = match self.interval {
                IntervalForm::Linear => {
                    Bounds::around_one(self.eps_minus * widening, self.eps_plus * widening)
                }
                IntervalForm::Power => Bounds {
                    low: (1.0 - self.eps_minus).powf(widening),
                    high: (1.0 + self.eps_plus).powf(widening),
                },
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_close, check_schedule};

    use super::*;

    fn bounds(schedule: SqrtRatioClip, len: usize) -> Vec<Bounds> {
        let response = TestResponse::from_log_ratios(&vec![0.0; len], &vec![1.0; len]);
        let mut out = vec![Bounds::OPEN; len];
        schedule.bounds(&response.tokens(), &mut out);
        out
    }

    /// h = [2, 1.414214, 1.154701, 1].
    #[test]
    fn the_windows_of_four_positions_are_those_worked_by_hand() {
        let out =
            bounds(SqrtRatioClip { eps_minus: 0.05, eps_plus: 0.05, interval: IntervalForm::Linear }, 4);
        let expected = [(0.9, 1.1), (0.929289, 1.070711), (0.942265, 1.057735), (0.95, 1.05)];
        for (bounds, (low, high)) in out.iter().zip(expected) {
            assert_close(bounds.low, low, 1e-6, "low");
            assert_close(bounds.high, high, 1e-6, "high");
        }
    }

    #[test]
    fn a_power_interval_raises_both_ends_to_the_widening() {
        let out = bounds(SqrtRatioClip { eps_minus: 0.2, eps_plus: 0.3, interval: IntervalForm::Power }, 4);
        assert_close(out[0].low, 0.64, 1e-14, "0.8 squared");
        assert_close(out[0].high, 1.69, 1e-14, "1.3 squared");
        assert_eq!(out[3], Bounds { low: 0.8, high: 1.3 });
    }

    #[test]
    fn the_last_window_is_the_base_interval_and_each_earlier_one_contains_the_next() {
        for interval in [IntervalForm::Linear, IntervalForm::Power] {
            for len in [1, 2, 7, 500] {
                let out = bounds(SqrtRatioClip { eps_minus: 3e-4, eps_plus: 4e-4, interval }, len);
                assert_eq!(out[len - 1], Bounds::around_one(3e-4, 4e-4));
                assert!(out.windows(2).all(|pair| pair[0].low < pair[1].low && pair[0].high > pair[1].high));
            }
        }
    }

    #[test]
    fn an_early_lower_end_below_zero_is_left_there() {
        let out =
            bounds(SqrtRatioClip { eps_minus: 0.2, eps_plus: 0.2, interval: IntervalForm::Linear }, 100);
        assert_eq!(out[0].low, -1.0);
    }

    /// L = 2, t = 8 at the second token: h = 1/2.
    #[test]
    fn positions_of_the_caller_count_instead_of_ranks() {
        let response = TestResponse::from_log_ratios(&[0.0; 2], &[1.0; 2]);
        let tokens = response.tokens().at_positions(vec![2.0, 8.0]).unwrap();
        let mut out = [Bounds::OPEN; 2];
        let part = SqrtRatioClip { eps_minus: 0.2, eps_plus: 0.4, interval: IntervalForm::Linear };
        part.bounds(&tokens, &mut out);
        assert_eq!(out, [Bounds::around_one(0.2, 0.4), Bounds::around_one(0.1, 0.2)]);
    }

    #[test]
    fn a_power_interval_of_a_negative_base_is_refused() {
        let schedule = SqrtRatioClip { eps_minus: 1.5, eps_plus: 0.2, interval: IntervalForm::Power };
        assert_eq!(
            schedule.validate().unwrap_err().to_string(),
            "eps_minus = 1.5: allowed is in [0, 1] for a power interval"
        );
        assert!(SqrtRatioClip { interval: IntervalForm::Linear, ..schedule }.validate().is_ok());
    }

    #[test]
    fn keeps_the_contract() {
        for interval in [IntervalForm::Linear, IntervalForm::Power] {
            check_schedule(SqrtRatioClip { eps_minus: 0.05, eps_plus: 0.1, interval });
        }
    }
}

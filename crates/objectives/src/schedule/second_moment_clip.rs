//! A window that is solved for so that the batch keeps to a second-moment budget.

use firebrick_core::{
    Bounds, ClipSchedule, OptimizerBatch, Requirements, ResponseTokens, StateError, Stateful,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ConfigError,
    config_error::{require, require_width},
    drift::each_response,
};

const PART: &str = "the second-moment clip";

/// A window just wide enough that the second moment of the harmful log-ratios stays within a budget.
///
/// ```text
/// H = tokens with A > 0, d > 0 or A < 0, d < 0              those whose update moves further away
/// mean over H of d² ≤ budget:  no window
/// otherwise [min(exp(−τ), 1 − min_low), max(exp(τ), 1 + min_high)]   with  mean over H of min(d², τ²) = budget
/// ```
///
/// τ is exact: it is found by sorting. It is solved for over the whole optimizer batch under the current policy before the
/// batch is split, and so does not depend on micro-batches or on the order of rows.
///
/// *Reference*: M2PO, 2025, arXiv:2510.01161; budget from the paper.
///
/// *Differs from the paper*: the smallest widths are those of its code, which solves in each micro-batch by itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SecondMomentClip {
    /// Largest second moment of the harmful log-ratios (nats²); default 0.04.
    pub budget: f64,
    /// Smallest width of the lower side, in ratios; default 0.3.
    pub min_low: f64,
    /// Smallest width of the upper side, in ratios; default 0.5.
    pub min_high: f64,
    #[serde(skip)]
    window: Option<Bounds>,
}

impl Default for SecondMomentClip {
    fn default() -> Self {
        Self { budget: 0.04, min_low: 0.3, min_high: 0.5, window: None }
    }
}

impl SecondMomentClip {
    /// A window with the given budget and smallest widths.
    pub fn new(budget: f64, min_low: f64, min_high: f64) -> Self {
        Self { budget, min_low, min_high, window: None }
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// When one is negative or not finite, or the lower width exceeds 1.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require_width("budget", self.budget)?;
        require((0.0..=1.0).contains(&self.min_low), "min_low", self.min_low, "in [0, 1]")?;
        require_width("min_high", self.min_high)
    }

    /// The half-width τ (nats) at which the mean of min(s, τ²) over the squared log-ratios s is the budget; `None` when
    /// their mean is within it.
    pub fn half_width(&self, mut squares: Vec<f64>) -> Option<f64> {
        squares.sort_unstable_by(f64::total_cmp);
        let total = self.budget * squares.len() as f64;
        if squares.iter().sum::<f64>() <= total {
            return None;
        }
        // With the k smallest below τ², their sum + (n − k) τ² is the total. The first k whose solution does not
        // exceed the next square is the one.
        let mut below = 0.0;
        for (count, square) in squares.iter().enumerate() {
            let solution = (total - below) / (squares.len() - count) as f64;
            if solution <= *square {
                return Some(solution.max(0.0).sqrt());
            }
            below += square;
        }
        None
    }
}

impl ClipSchedule for SecondMomentClip {
    /// # Panics
    /// When no optimizer batch was shown before.
    fn bounds(&self, _response: &ResponseTokens<'_>, out: &mut [Bounds]) {
        out.fill(self.window.expect("the optimizer batch is shown before its responses are evaluated"));
    }

    fn requirements(&self) -> Requirements {
        Requirements { batch_current_log_probs: true, ..Requirements::default() }
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }
}

impl Stateful for SecondMomentClip {
    fn prepare(&mut self, batch: &OptimizerBatch<'_>) -> Result<(), StateError> {
        let mut squares = Vec::new();
        each_response(batch, PART, |response| {
            let tokens = response.log_ratios().iter().zip(response.advantages());
            squares.extend(tokens.filter(|(d, a)| *d * *a > 0.0).map(|(d, _)| d * d));
        })?;
        self.window = Some(self.half_width(squares).map_or(Bounds::OPEN, |half| Bounds {
            low: (-half).exp().min(1.0 - self.min_low),
            high: half.exp().max(1.0 + self.min_high),
        }));
        Ok(())
    }

    fn save(&self) -> Value {
        Value::Null
    }

    fn load(&mut self, _state: &Value) -> Result<(), StateError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_close, check_schedule};

    use super::*;
    use crate::drift::prepare;

    fn window(part: SecondMomentClip, rows: &[TestResponse]) -> Bounds {
        let mut part = part;
        prepare(&mut part, rows).unwrap();
        let mut out = [Bounds { low: f64::NAN, high: f64::NAN }];
        part.bounds(&TestResponse::from_log_ratios(&[0.0], &[1.0]).tokens(), &mut out);
        out[0]
    }

    /// Squares [.01, .04, .25, 1], budget .1, total .4. Nothing below: τ² = .1 > .01. One below: .39/3 = .13 > .04.
    /// Two below: .35/2 = .175 ≤ .25. Check: (.01 + .04 + .175 + .175)/4 = .1.
    #[test]
    fn the_half_width_is_the_one_worked_by_hand() {
        let part = SecondMomentClip::new(0.1, 0.0, 0.0);
        let half = part.half_width(vec![1.0, 0.04, 0.25, 0.01]).unwrap();
        assert_close(half * half, 0.175, 1e-14, "τ²");
    }

    /// Harmful are .5 (A > 0) and −1 (A < 0), not −2 (A > 0), 3 (A < 0), nor 4 with A = 0: (.25 + 1)/2 > .1; with
    /// total .2, τ² = .1 ≤ .25.
    #[test]
    fn only_tokens_that_move_further_away_count() {
        let rows = [
            TestResponse::from_log_ratios(&[0.5, -2.0, 4.0], &[1.0, 1.0, 0.0]),
            TestResponse::from_log_ratios(&[-1.0, 3.0], &[-2.0, -0.5]),
        ];
        let found = window(SecondMomentClip::new(0.1, 0.0, 0.0), &rows);
        let half = 0.1_f64.sqrt();
        assert_close(found.low, (-half).exp(), 1e-14, "low");
        assert_close(found.high, half.exp(), 1e-14, "high");
        let [first, second] = rows;
        assert_eq!(window(SecondMomentClip::new(0.1, 0.0, 0.0), &[second, first]), found);
    }

    #[test]
    fn within_the_budget_there_is_no_window() {
        for rows in [&[0.1, -0.1][..], &[0.0], &[]] {
            let row = TestResponse::from_log_ratios(rows, &vec![1.0; rows.len()]);
            assert_eq!(window(SecondMomentClip::default(), &[row]), Bounds::OPEN);
        }
    }

    /// τ = .2: exp(−.2) = .8187 and exp(.2) = 1.2214 are both narrower than the smallest widths.
    #[test]
    fn the_window_is_never_narrower_than_its_smallest_widths() {
        let row = TestResponse::from_log_ratios(&[1.0, 1.0], &[1.0, 1.0]);
        assert_eq!(window(SecondMomentClip::default(), &[row]), Bounds { low: 0.7, high: 1.5 });
    }

    #[test]
    fn a_budget_of_nothing_closes_the_window() {
        let row = TestResponse::from_log_ratios(&[0.3], &[1.0]);
        assert_eq!(window(SecondMomentClip::new(0.0, 0.0, 0.0), &[row]), Bounds { low: 1.0, high: 1.0 });
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let part = SecondMomentClip::new(0.04, 1.5, 0.5);
        assert_eq!(part.validate().unwrap_err().to_string(), "min_low = 1.5: allowed is in [0, 1]");
        assert!(SecondMomentClip::new(-1.0, 0.3, 0.5).validate().is_err());
    }

    #[test]
    fn keeps_the_contract() {
        check_schedule(SecondMomentClip::default());
        check_schedule(SecondMomentClip::new(1e-3, 0.0, 0.0));
    }
}

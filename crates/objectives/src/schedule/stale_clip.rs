//! A schedule that counts tokens of an older policy for more.

use firebrick_core::{Bounds, ClipSchedule, Requirements, ResponseContext, ResponseTokens, Stateful};
use serde::{Deserialize, Serialize};

use crate::{ConfigError, ScheduleConfig, config_error::require};

/// What staleness does to a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StalenessMode {
    /// A stale prefix counts as a longer one, so a window that narrows with the position narrows sooner: the further a policy
    /// is away, the less it is trusted.
    Tighten,
    /// The window follows the fluctuation that stale tokens have by nature, which is larger: a confidence band keeps its
    /// level.
    Widen,
}

/// Another schedule at positions that count how stale each token is.
///
/// ```text
/// t_eq(t) = Σ_{j≤t} max(1, k_j)^{2H}          k: optimizer steps between the policy that sampled token j and the learner
/// bounds(t) = schedule(t_eq)                  mode `Tighten`
///           = schedule(t²/t_eq)               mode `Widen`
/// ```
///
/// The gap of a drift over k steps has a variance that grows as k^{2H}: H = 1/2 for steps in independent directions, H = 1 for
/// steps in the same one. A prefix mean over such tokens has the deviation σ₁ √t_eq / t, so a band σ₁ √(2 ln(2/δ)/t) becomes
/// σ₁ √(2 ln(2/δ) t_eq)/t when it is read at t²/t_eq. With k ≤ 1 everywhere, t_eq = t and nothing changes.
///
/// *Reference*: in no paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StaleClip<S> {
    /// Exponent H of the drift, in [0, 1].
    pub hurst: f64,
    /// What staleness does to the window.
    pub mode: StalenessMode,
    /// The schedule that is read at other positions.
    pub schedule: S,
}

impl<S> StaleClip<S> {
    /// The position that the schedule is read at for each policy token.
    pub fn positions(&self, response: &ResponseContext) -> Vec<f64> {
        let mut sum = 0.0;
        let position = |index: usize| {
            let gap = response.version_gap(index).max(1) as f64;
            sum += gap.powf(2.0 * self.hurst);
            let t = (index + 1) as f64;
            match self.mode {
                StalenessMode::Tighten => sum,
                StalenessMode::Widen => t * t / sum,
            }
        };
        (0..response.len()).map(position).collect()
    }
}

impl<S: ClipSchedule> ClipSchedule for StaleClip<S> {
    fn bounds(&self, response: &ResponseTokens<'_>, out: &mut [Bounds]) {
        let positions = self.positions(response.context());
        let response = response.clone().at_positions(positions).expect("there is one position per token");
        self.schedule.bounds(&response, out);
    }

    fn requirements(&self) -> Requirements {
        self.schedule.requirements()
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        self.schedule.stateful()
    }
}

/// A [`StaleClip`] as configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaleConfig {
    /// Exponent H of the drift, in [0, 1]; default 0.5.
    #[serde(default = "default_hurst")]
    pub hurst: f64,
    /// What staleness does to the window. `widen` is a confidence band's reading, and so for `absolute_position` only.
    pub mode: StalenessMode,
    /// The schedule that is read at other positions.
    pub schedule: Box<ScheduleConfig>,
}

fn default_hurst() -> f64 {
    0.5
}

impl StaleConfig {
    /// Checks the numbers, and that mode and schedule go together.
    ///
    /// # Errors
    /// When H is not in [0, 1], the inner schedule is refused or is a `stale` one itself, or a window is to widen that is
    /// no confidence band.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require((0.0..=1.0).contains(&self.hurst), "hurst", self.hurst, "in [0, 1]")?;
        self.schedule.validate().map_err(|error| error.within("schedule"))?;
        let refused = |key: &str, choice, reason| {
            Err(ConfigError::Incompatible { key: key.to_owned(), choice, reason })
        };
        if matches!(*self.schedule, ScheduleConfig::Stale(_)) {
            return refused(
                "schedule.type",
                "stale",
                "staleness would count twice; name the schedule inside",
            );
        }
        if self.mode == StalenessMode::Widen && !matches!(*self.schedule, ScheduleConfig::AbsolutePosition(_))
        {
            return refused(
                "mode",
                "widen",
                "only a confidence band knows how wide the fluctuation is; set mode = \"tighten\", or \
                 schedule.type = \"absolute_position\"",
            );
        }
        Ok(())
    }

    /// The schedule.
    pub fn build(&self) -> StaleClip<Box<dyn ClipSchedule>> {
        StaleClip { hurst: self.hurst, mode: self.mode, schedule: self.schedule.build() }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_close, check_schedule};

    use super::*;
    use crate::{AbsolutePositionClip, ConstantClip, InverseSqrtClip, SigmaSource};

    const BAND: SigmaSource = SigmaSource::Fixed { value: 0.1 };

    fn response(gaps: &[u64]) -> TestResponse {
        TestResponse::from_log_ratios(&vec![0.0; gaps.len()], &vec![1.0; gaps.len()])
            .map_context(|context| context.with_version_gaps(gaps.to_vec()).unwrap())
    }

    fn bounds(schedule: &dyn ClipSchedule, response: &TestResponse) -> Vec<Bounds> {
        let mut out = vec![Bounds::OPEN; response.tokens().len()];
        schedule.bounds(&response.tokens(), &mut out);
        out
    }

    fn positions(hurst: f64, mode: StalenessMode, gaps: &[u64]) -> Vec<f64> {
        StaleClip { hurst, mode, schedule: () }.positions(response(gaps).context())
    }

    /// H = 1/2: 4 · 2 = 8; H = 1: 4 · 2² = 16; t²/t_eq = 16/8 = 2 and 16/16 = 1. Mixed gaps 0, 1, 3: 1 + 1 + 3 = 5.
    #[test]
    fn positions_are_those_worked_by_hand() {
        let tighten = StalenessMode::Tighten;
        assert_eq!(positions(0.5, tighten, &[2; 4]), [2.0, 4.0, 6.0, 8.0]);
        assert_eq!(positions(1.0, tighten, &[2; 4])[3], 16.0);
        assert_eq!(positions(0.5, tighten, &[0, 1, 3]), [1.0, 2.0, 5.0]);
        assert_eq!(positions(0.5, StalenessMode::Widen, &[2; 4])[3], 2.0);
        assert_eq!(positions(1.0, StalenessMode::Widen, &[2; 4])[3], 1.0);
    }

    #[test]
    fn a_fresh_response_has_the_inner_schedule() {
        for gaps in [[0; 6], [1; 6]] {
            let inner = InverseSqrtClip::default();
            let part = StaleClip { hurst: 1.0, mode: StalenessMode::Tighten, schedule: inner };
            assert_eq!(bounds(&part, &response(&gaps)), bounds(&inner, &response(&gaps)));
            let inner = AbsolutePositionClip::new(BAND);
            let part = StaleClip { hurst: 1.0, mode: StalenessMode::Widen, schedule: inner };
            assert_eq!(bounds(&part, &response(&gaps)), bounds(&inner, &response(&gaps)));
        }
    }

    /// L = T = 4 and k = 2: positions 2, 4, 6, 8, of which the last three are at or beyond the horizon.
    #[test]
    fn a_tightened_window_reaches_its_smallest_width_sooner() {
        let inner = InverseSqrtClip::default();
        let part = StaleClip { hurst: 0.5, mode: StalenessMode::Tighten, schedule: inner };
        let out = bounds(&part, &response(&[2; 4]));
        let (low, high) = inner.widths(2.0, 4.0);
        assert_eq!(out[0], Bounds::around_one(low, high));
        assert_eq!(out[1..], [Bounds::around_one(3e-4, 4e-4); 3]);
    }

    /// t = 4, k = 2, H = 1/2: ε = .1 · 2.71620 · √8/4 = .192064, against .135810 without staleness.
    #[test]
    fn a_widened_band_follows_the_fluctuation() {
        let schedule = AbsolutePositionClip::new(BAND);
        let part = StaleClip { hurst: 0.5, mode: StalenessMode::Widen, schedule };
        let out = bounds(&part, &response(&[2; 4]));
        assert_close(out[3].high.ln(), 0.192064, 1e-4, "high");
        let tight = StaleClip { mode: StalenessMode::Tighten, ..part };
        assert_close(bounds(&tight, &response(&[2; 4]))[3].high.ln(), 0.096032, 1e-4, "read at 8");
    }

    #[test]
    fn what_the_inner_schedule_needs_is_asked_for() {
        let schedule = AbsolutePositionClip::new(SigmaSource::BatchStd { ema: None });
        let mut part = StaleClip { hurst: 0.5, mode: StalenessMode::Widen, schedule };
        assert!(part.requirements().batch_current_log_probs && part.stateful().is_some());
    }

    #[test]
    fn combinations_that_make_no_sense_are_refused() {
        let constant = Box::new(ScheduleConfig::Constant(ConstantClip { low: 0.2, high: 0.2 }));
        let part = StaleConfig { hurst: 0.5, mode: StalenessMode::Widen, schedule: constant.clone() };
        let error = part.validate().unwrap_err().to_string();
        assert!(error.starts_with("mode = \"widen\": only a confidence band"), "{error}");
        let tight = StaleConfig { mode: StalenessMode::Tighten, ..part };
        assert!(tight.validate().is_ok());
        let nested =
            StaleConfig { schedule: Box::new(ScheduleConfig::Stale(tight.clone())), ..tight.clone() };
        assert!(nested.validate().unwrap_err().to_string().starts_with("schedule.type = \"stale\""));
        let wild = StaleConfig { hurst: 1.5, ..tight.clone() };
        assert_eq!(wild.validate().unwrap_err().to_string(), "hurst = 1.5: allowed is in [0, 1]");
        let inner = ScheduleConfig::Constant(ConstantClip { low: -0.2, high: 0.2 });
        let wrong = StaleConfig { schedule: Box::new(inner), ..tight };
        assert_eq!(
            wrong.validate().unwrap_err().to_string(),
            "schedule.low = -0.2: allowed is a finite number >= 0"
        );
    }

    #[test]
    fn keeps_the_contract() {
        let schedule = InverseSqrtClip::default();
        check_schedule(StaleClip { hurst: 0.5, mode: StalenessMode::Tighten, schedule });
        let schedule = AbsolutePositionClip::new(SigmaSource::BatchStd { ema: Some(0.9) });
        check_schedule(StaleClip { hurst: 1.0, mode: StalenessMode::Widen, schedule });
    }
}

//! A window that is a confidence band around the natural fluctuation of a prefix mean.

use firebrick_core::{
    Bounds, ClipSchedule, OptimizerBatch, Requirements, ResponseTokens, StateError, Stateful,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    ConfigError, DriftKl, WindowSpace,
    config_error::{require, require_order, require_width},
    drift::{Tracked, token_mean, validate_decay},
};

const PART: &str = "the absolute-position clip";

/// Where the deviation σ of the log-ratio of one token comes from (nats).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum SigmaSource {
    /// A number.
    Fixed {
        /// The deviation.
        value: f64,
    },
    /// The root of the variance of d over all policy tokens of the optimizer batch, with the divisor n.
    BatchStd {
        /// Decay of the variance's average over optimizer steps, in [0, 1); default none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ema: Option<f64>,
    },
    /// √(2 K), as independent Gaussian drift has it, with K the batch's KL divergence per token, cut off at zero.
    BatchKl {
        /// How K is estimated; default k1.
        #[serde(default)]
        estimator: DriftKl,
        /// Decay of the estimate's average over optimizer steps, in [0, 1); default none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ema: Option<f64>,
    },
}

impl SigmaSource {
    fn ema(self) -> Option<f64> {
        match self {
            Self::Fixed { .. } => None,
            Self::BatchStd { ema } | Self::BatchKl { ema, .. } => ema,
        }
    }

    fn is_fixed(self) -> bool {
        matches!(self, Self::Fixed { .. })
    }
}

/// What the window is centred on, in log space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowCentre {
    /// 0: the weight 1.
    #[default]
    None,
    /// −σ²/2, where the log-ratio of a token is centred under Gaussian drift; the mean of a prefix has the same centre at
    /// every position.
    Gaussian,
    /// The mean of d over all policy tokens of the optimizer batch.
    Empirical,
}

/// A confidence band of the prefix mean, of level 1 − δ by a sub-Gaussian bound: it depends on the absolute position and on
/// how far the batch has drifted, not on the length of the response.
///
/// ```text
/// ε_t = clamp(σ √(2 ln(2/δ)/t), floor, cap)
/// [exp(c − ε_t), exp(c + ε_t)]                    space `Log`
/// [exp(c) (1 − ε_t), exp(c) (1 + ε_t)]            space `Ratio`
/// ```
///
/// With a centre c below zero and a narrow band the upper end may lie below 1, so that a token whose weight is exactly 1 is
/// clipped; `require_unit_inside` stretches the window to hold 1, and brings back the one-sidedness that the centre removes.
/// What is taken from the batch is taken under the current policy over the whole optimizer batch before it is split; averages
/// over steps are part of the checkpoint.
///
/// *Reference*: after the variance law of TAPO, 2026, arXiv:2610.13020: log R_t has the deviation σ/√t under independent
/// drift. The schedule itself is in no paper.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AbsolutePositionClip {
    /// Where σ comes from.
    pub sigma: SigmaSource,
    /// Probability δ with which a natural fluctuation leaves the band, at most; default 0.05.
    #[serde(default = "default_delta")]
    pub delta: f64,
    /// Smallest width; default 0.
    #[serde(default)]
    pub floor: f64,
    /// Largest width; default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<f64>,
    /// What the window is centred on; default the weight 1.
    #[serde(default)]
    pub centre: WindowCentre,
    /// Decay of an empirical centre's average over optimizer steps, in [0, 1); default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub centre_ema: Option<f64>,
    /// What the widths are distances in; default nats.
    #[serde(default = "default_space")]
    pub space: WindowSpace,
    /// Whether the window is stretched to hold the weight 1; default not.
    #[serde(default)]
    pub require_unit_inside: bool,
    /// The batch's variance or KL divergence.
    #[serde(skip)]
    spread: Tracked,
    /// The batch's mean of d.
    #[serde(skip)]
    mean: Tracked,
}

fn default_delta() -> f64 {
    0.05
}

fn default_space() -> WindowSpace {
    WindowSpace::Log
}

impl AbsolutePositionClip {
    /// A band around the weight 1 with the default numbers.
    pub fn new(sigma: SigmaSource) -> Self {
        Self {
            sigma,
            delta: default_delta(),
            floor: 0.0,
            cap: None,
            centre: WindowCentre::default(),
            centre_ema: None,
            space: default_space(),
            require_unit_inside: false,
            spread: Tracked::default(),
            mean: Tracked::default(),
        }
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// When σ, a width, a decay or δ is out of range, or a decay is given for a centre that has none.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if let SigmaSource::Fixed { value } = self.sigma {
            require_width("value", value).map_err(|error| error.within("sigma"))?;
        }
        validate_decay("ema", self.sigma.ema()).map_err(|error| error.within("sigma"))?;
        require(self.delta > 0.0 && self.delta < 1.0, "delta", self.delta, "in (0, 1)")?;
        require_width("floor", self.floor)?;
        if let Some(cap) = self.cap {
            require_width("cap", cap)?;
            let fix = "the smallest width must not exceed the largest";
            require_order(("floor", self.floor), ("cap", cap), fix)?;
        }
        validate_decay("centre_ema", self.centre_ema)?;
        let choice = match self.centre {
            WindowCentre::None => "none",
            WindowCentre::Gaussian => "gaussian",
            WindowCentre::Empirical => return Ok(()),
        };
        match self.centre_ema {
            None => Ok(()),
            Some(_) => Err(ConfigError::Incompatible {
                key: "centre".to_owned(),
                choice,
                reason: "centre_ema averages an empirical centre; remove it, or set centre = \"empirical\"",
            }),
        }
    }

    /// σ of the batch (nats).
    fn sigma(&self) -> f64 {
        match self.sigma {
            SigmaSource::Fixed { value } => value,
            SigmaSource::BatchStd { .. } => self.spread.get().sqrt(),
            SigmaSource::BatchKl { .. } => (2.0 * self.spread.get().max(0.0)).sqrt(),
        }
    }

    fn centre(&self, sigma: f64) -> f64 {
        match self.centre {
            WindowCentre::None => 0.0,
            WindowCentre::Gaussian => -sigma * sigma / 2.0,
            WindowCentre::Empirical => self.mean.get(),
        }
    }

    /// ε_t for a deviation σ.
    fn width(&self, sigma: f64, position: f64) -> f64 {
        let first = sigma * (2.0 * (2.0 / self.delta).ln()).sqrt();
        (first / position.sqrt()).max(self.floor).min(self.cap.unwrap_or(f64::INFINITY))
    }

    /// The window at a position for a deviation σ and a centre.
    fn window(&self, sigma: f64, centre: f64, position: f64) -> Bounds {
        let eps = self.width(sigma, position);
        let window = match self.space {
            WindowSpace::Log => Bounds { low: (centre - eps).exp(), high: (centre + eps).exp() },
            WindowSpace::Ratio => {
                Bounds { low: centre.exp() * (1.0 - eps), high: centre.exp() * (1.0 + eps) }
            }
        };
        if self.require_unit_inside {
            Bounds { low: window.low.min(1.0), high: window.high.max(1.0) }
        } else {
            window
        }
    }

    /// What a run should be told of a centre that may leave the weight 1 outside of the window, in responses of at most
    /// `max_len` tokens.
    pub(crate) fn remark(&self, max_len: usize) -> Option<String> {
        if self.centre == WindowCentre::None || self.require_unit_inside {
            return None;
        }
        let where_ = match self.sigma {
            SigmaSource::Fixed { value } if self.centre == WindowCentre::Gaussian => {
                let outside = |t: &usize| self.window(value, self.centre(value), *t as f64).high < 1.0;
                format!("from position {} on", (1..=max_len).find(outside)?)
            }
            _ => "where the drift is large enough".to_owned(),
        };
        Some(format!(
            "{where_} the window does not hold the weight 1, so tokens of a positive advantage that have not drifted are \
             clipped; schedule.require_unit_inside = true stretches the window"
        ))
    }

    fn sees_batch(&self) -> bool {
        !self.sigma.is_fixed() || self.centre == WindowCentre::Empirical
    }
}

impl ClipSchedule for AbsolutePositionClip {
    /// # Panics
    /// When σ or the centre is the batch's and no optimizer batch was shown before.
    fn bounds(&self, response: &ResponseTokens<'_>, out: &mut [Bounds]) {
        let sigma = self.sigma();
        let centre = self.centre(sigma);
        for (index, out) in out.iter_mut().enumerate() {
            *out = self.window(sigma, centre, response.position(index));
        }
    }

    fn requirements(&self) -> Requirements {
        Requirements { batch_current_log_probs: self.sees_batch(), ..Requirements::default() }
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        if self.sees_batch() { Some(self) } else { None }
    }
}

impl Stateful for AbsolutePositionClip {
    fn prepare(&mut self, batch: &OptimizerBatch<'_>) -> Result<(), StateError> {
        let spread = match self.sigma {
            SigmaSource::Fixed { .. } => None,
            SigmaSource::BatchStd { .. } => {
                let mean = token_mean(batch, PART, |log_ratio| log_ratio)?;
                // A second pass, since the mean of squares less the square of the mean loses digits.
                Some(token_mean(batch, PART, |log_ratio| (log_ratio - mean).powi(2))?)
            }
            SigmaSource::BatchKl { estimator, .. } => {
                Some(token_mean(batch, PART, |log_ratio| estimator.token(log_ratio))?)
            }
        };
        if let Some(spread) = spread {
            self.spread.update(spread, self.sigma.ema());
        }
        if self.centre == WindowCentre::Empirical {
            self.mean.update(token_mean(batch, PART, |log_ratio| log_ratio)?, self.centre_ema);
        }
        Ok(())
    }

    fn save(&self) -> Value {
        let (spread, mean) = (self.spread.save(self.sigma.ema()), self.mean.save(self.centre_ema));
        if spread.is_null() && mean.is_null() {
            return Value::Null;
        }
        json!({ "spread": spread, "mean": mean })
    }

    fn load(&mut self, state: &Value) -> Result<(), StateError> {
        if !state.is_null() && !state.is_object() {
            let reason = format!("it must be an object or null, found {state}");
            return Err(StateError::Mismatch { part: PART.to_owned(), reason });
        }
        // A missing entry reads as null, which changes nothing.
        self.spread.load(&state["spread"], PART)?;
        self.mean.load(&state["mean"], PART)
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_close, check_schedule};

    use super::*;
    use crate::drift::prepare;

    const FIXED: SigmaSource = SigmaSource::Fixed { value: 0.1 };
    const STD: SigmaSource = SigmaSource::BatchStd { ema: None };
    const K3: SigmaSource = SigmaSource::BatchKl { estimator: DriftKl::K3, ema: None };

    fn bounds(part: &AbsolutePositionClip, len: usize) -> Vec<Bounds> {
        let response = TestResponse::from_log_ratios(&vec![0.0; len], &vec![1.0; len]);
        let mut out = vec![Bounds::OPEN; len];
        part.bounds(&response.tokens(), &mut out);
        out
    }

    fn row(log_ratios: &[f64]) -> TestResponse {
        TestResponse::from_log_ratios(log_ratios, &vec![1.0; log_ratios.len()])
    }

    /// √(2 ln 40) = 2.71620, so σ = .1 gives .27162 at the first position.
    /// σ = 0.3, δ = 0.05: ε_t = 0.3 · 2.7162/√t falls below σ²/2 = 0.045 where √t > 18.108, so from t = 328 on.
    #[test]
    fn a_run_is_told_from_where_on_the_window_does_not_hold_one() {
        let fixed = AbsolutePositionClip {
            centre: WindowCentre::Gaussian,
            ..AbsolutePositionClip::new(SigmaSource::Fixed { value: 0.3 })
        };
        assert!(
            fixed
                .remark(400)
                .unwrap()
                .starts_with("from position 328 on the window does not hold the weight 1")
        );
        assert_eq!(fixed.remark(327), None);
        assert_eq!(AbsolutePositionClip { require_unit_inside: true, ..fixed }.remark(400), None);
        assert_eq!(AbsolutePositionClip { centre: WindowCentre::None, ..fixed }.remark(400), None);
        let measured = AbsolutePositionClip { sigma: SigmaSource::BatchStd { ema: None }, ..fixed };
        assert!(measured.remark(4).unwrap().starts_with("where the drift is large enough"));
    }

    #[test]
    fn the_widths_are_those_worked_by_hand() {
        let out = bounds(&AbsolutePositionClip::new(FIXED), 1000);
        for (t, eps) in [(1, 0.27162), (4, 0.13581), (100, 0.027162), (1000, 0.0085894)] {
            assert_close(out[t - 1].high.ln(), eps, 1e-4, &format!("high at {t}"));
            assert_close(out[t - 1].low.ln(), -eps, 1e-4, &format!("low at {t}"));
        }
        let matched = AbsolutePositionClip::new(SigmaSource::Fixed { value: 0.073632 });
        assert_close(bounds(&matched, 1)[0].high.ln(), 0.2, 1e-4, "the first width of TAPO");
    }

    #[test]
    fn floor_and_cap_bound_the_widths() {
        let part = AbsolutePositionClip {
            floor: 0.1,
            cap: Some(0.2),
            space: WindowSpace::Ratio,
            ..AbsolutePositionClip::new(FIXED)
        };
        let out = bounds(&part, 100);
        assert_eq!((out[0], out[99]), (Bounds::around_one(0.2, 0.2), Bounds::around_one(0.1, 0.1)));
        assert_close(out[3].high, 1.13581, 1e-5, "between them");
    }

    /// d = [.1, −.3 | .2]: mean 0, variance (.01 + .09 + .04)/3 = .0466667, σ = .216025.
    #[test]
    fn the_deviation_of_the_batch_has_the_divisor_n() {
        let mut part = AbsolutePositionClip::new(STD);
        prepare(&mut part, &[row(&[0.1, -0.3]), row(&[0.2])]).unwrap();
        assert_close(part.sigma(), 0.216_024_69, 1e-8, "σ");
    }

    /// k1 of the same is 0; k3 is the mean of [.00517092, .04081822, .02140276] = .02246397, σ = √.04492794 = .211962.
    #[test]
    fn the_divergence_of_the_batch_gives_the_deviation_of_gaussian_drift() {
        let mut part = AbsolutePositionClip::new(K3);
        prepare(&mut part, &[row(&[0.1, -0.3]), row(&[0.2])]).unwrap();
        assert_close(part.sigma(), 0.211_962, 1e-5, "k3");
        let k1 = SigmaSource::BatchKl { estimator: DriftKl::K1, ema: None };
        let mut part = AbsolutePositionClip::new(k1);
        prepare(&mut part, &[row(&[0.5])]).unwrap();
        assert_eq!(part.sigma(), 0.0, "a negative estimate is cut off");
    }

    /// σ = .3: −.045; the empirical mean of [−.1, .04] is −.03.
    #[test]
    fn the_centre_moves_both_ends_alike_at_every_position() {
        for (centre, expected) in
            [(WindowCentre::None, 0.0), (WindowCentre::Gaussian, -0.045), (WindowCentre::Empirical, -0.03)]
        {
            let sigma = SigmaSource::Fixed { value: 0.3 };
            let mut part = AbsolutePositionClip { centre, ..AbsolutePositionClip::new(sigma) };
            if let Some(part) = part.stateful() {
                prepare(part, &[row(&[-0.1, 0.04])]).unwrap();
            }
            for bounds in bounds(&part, 70) {
                assert_close(bounds.low.ln() + bounds.high.ln(), 2.0 * expected, 1e-8, "twice the centre");
            }
            let ratio = bounds(&AbsolutePositionClip { space: WindowSpace::Ratio, ..part }, 70);
            for bounds in ratio {
                assert_close(bounds.low + bounds.high, 2.0 * expected.exp(), 1e-12, "twice the centre");
            }
        }
    }

    #[test]
    fn the_weight_one_is_held_inside_on_request_only() {
        let narrow = AbsolutePositionClip {
            centre: WindowCentre::Gaussian,
            cap: Some(0.01),
            ..AbsolutePositionClip::new(SigmaSource::Fixed { value: 0.3 })
        };
        let window = bounds(&narrow, 1)[0];
        assert!(window.high < 1.0);
        let held = bounds(&AbsolutePositionClip { require_unit_inside: true, ..narrow }, 1)[0];
        assert_eq!(held, Bounds { low: window.low, high: 1.0 });
    }

    #[test]
    fn only_a_batch_that_is_looked_at_is_asked_for() {
        let needs = |mut part: AbsolutePositionClip| {
            assert_eq!(part.requirements().batch_current_log_probs, part.stateful().is_some());
            part.stateful().is_some()
        };
        assert!(!needs(AbsolutePositionClip::new(FIXED)));
        assert!(!needs(AbsolutePositionClip {
            centre: WindowCentre::Gaussian,
            ..AbsolutePositionClip::new(FIXED)
        }));
        assert!(needs(AbsolutePositionClip {
            centre: WindowCentre::Empirical,
            ..AbsolutePositionClip::new(FIXED)
        }));
        assert!(needs(AbsolutePositionClip::new(STD)));
    }

    #[test]
    fn restored_averages_go_on_where_they_were() {
        let part = || AbsolutePositionClip {
            centre: WindowCentre::Empirical,
            centre_ema: Some(0.5),
            ..AbsolutePositionClip::new(SigmaSource::BatchStd { ema: Some(0.9) })
        };
        let (mut first, mut second) = (part(), part());
        prepare(&mut first, &[row(&[0.3, -0.1])]).unwrap();
        second.load(&first.save()).unwrap();
        for part in [&mut first, &mut second] {
            prepare(part, &[row(&[0.2, 0.6])]).unwrap();
        }
        assert_eq!(first, second);
        assert_close(first.mean.get(), 0.5 * 0.1 + 0.5 * 0.4, 1e-12, "mean");
        assert_eq!(AbsolutePositionClip::new(STD).save(), Value::Null);
        assert!(first.load(&json!([1.0])).is_err());
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let message = |part: AbsolutePositionClip| part.validate().unwrap_err().to_string();
        let part = AbsolutePositionClip::new(SigmaSource::BatchStd { ema: Some(1.0) });
        assert_eq!(message(part), "sigma.ema = 1: allowed is in [0, 1)");
        let part = AbsolutePositionClip::new(SigmaSource::Fixed { value: -0.1 });
        assert_eq!(message(part), "sigma.value = -0.1: allowed is a finite number >= 0");
        let part = AbsolutePositionClip::new(FIXED);
        assert_eq!(message(AbsolutePositionClip { delta: 1.0, ..part }), "delta = 1: allowed is in (0, 1)");
        let upside_down = AbsolutePositionClip { floor: 0.2, cap: Some(0.1), ..part };
        assert!(message(upside_down).starts_with("floor = 0.2 with cap = 0.1: "));
        let stray = AbsolutePositionClip { centre_ema: Some(0.9), ..part };
        assert!(message(stray).starts_with("centre = \"none\": centre_ema averages"));
    }

    #[test]
    fn keeps_the_contract() {
        for sigma in [FIXED, STD, K3, SigmaSource::BatchStd { ema: Some(0.9) }] {
            for centre in [WindowCentre::None, WindowCentre::Gaussian, WindowCentre::Empirical] {
                check_schedule(AbsolutePositionClip { centre, ..AbsolutePositionClip::new(sigma) });
            }
        }
    }
}

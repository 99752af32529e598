//! The learning rate as a pure function of the step, so that a continued run needs no scheduler state.

use serde::{Deserialize, Serialize};

/// How the learning rate goes on after warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LearningRateDecay {
    /// Stays at its peak.
    #[default]
    Constant,
    /// Falls on a straight line to zero at the last step.
    Linear,
    /// Falls on half a cosine to zero at the last step.
    Cosine,
}

/// Peak, warm-up and decay of the learning rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearningRateSchedule {
    /// Highest learning rate.
    pub peak: f64,
    /// Optimizer steps over which it rises linearly from `peak / warmup_steps`.
    pub warmup_steps: usize,
    /// Optimizer steps of the whole run.
    pub total_steps: usize,
    /// What follows the warm-up.
    pub decay: LearningRateDecay,
}

impl LearningRateSchedule {
    /// Learning rate of optimizer step `step`, counted from 0.
    pub fn at(&self, step: usize) -> f64 {
        if step < self.warmup_steps {
            return self.peak * (step + 1) as f64 / self.warmup_steps as f64;
        }
        let span = self.total_steps.saturating_sub(self.warmup_steps).max(1) as f64;
        let progress = ((step - self.warmup_steps) as f64 / span).min(1.0);
        self.peak
            * match self.decay {
                LearningRateDecay::Constant => 1.0,
                LearningRateDecay::Linear => 1.0 - progress,
                LearningRateDecay::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(decay: LearningRateDecay) -> LearningRateSchedule {
        LearningRateSchedule { peak: 2.0, warmup_steps: 4, total_steps: 14, decay }
    }

    #[test]
    fn warm_up_rises_linearly_to_the_peak_and_never_starts_at_zero() {
        let rates: Vec<_> = (0..5).map(|step| schedule(LearningRateDecay::Constant).at(step)).collect();
        assert_eq!(rates, [0.5, 1.0, 1.5, 2.0, 2.0]);
    }

    #[test]
    fn linear_and_cosine_fall_to_zero_at_the_last_step() {
        let linear = schedule(LearningRateDecay::Linear);
        assert_eq!([linear.at(4), linear.at(9), linear.at(14)], [2.0, 1.0, 0.0]);
        let cosine = schedule(LearningRateDecay::Cosine);
        assert_eq!(cosine.at(4), 2.0);
        assert!((cosine.at(9) - 1.0).abs() < 1e-15 && cosine.at(14).abs() < 1e-15);
        assert_eq!(schedule(LearningRateDecay::Constant).at(1000), 2.0);
    }

    #[test]
    fn without_warm_up_the_first_step_has_the_peak() {
        let schedule = LearningRateSchedule { warmup_steps: 0, ..schedule(LearningRateDecay::Linear) };
        assert_eq!(schedule.at(0), 2.0);
    }
}

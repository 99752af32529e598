//! An objective of one's own: a prefix weight that forgets, in a window that halves.

use firebrick_core::{Bounds, ClipSchedule, ImportanceEstimator, ResponseTokens};

/// Weighs each prefix as TAPO does, but forgets: the influence of a token halves every `half_life` tokens.
#[derive(Debug)]
pub struct FadingPrefix {
    /// Tokens.
    pub half_life: f64,
}

impl ImportanceEstimator for FadingPrefix {
    fn log_weights(&self, response: &ResponseTokens<'_>, out: &mut [f64]) {
        let keep = 0.5f64.powf(1.0 / self.half_life);
        let (mut sum, mut mass) = (0.0, 0.0);
        for (log_weight, log_ratio) in out.iter_mut().zip(response.log_ratios()) {
            (sum, mass) = (keep * sum + log_ratio, keep * mass + 1.0);
            *log_weight = sum / mass;
        }
    }
}

/// A window of ± `width` at the first token that narrows to half of that.
#[derive(Debug)]
pub struct HalvingWindow {
    /// Distance of both bounds from 1 at the first token.
    pub width: f64,
}

impl ClipSchedule for HalvingWindow {
    fn bounds(&self, response: &ResponseTokens<'_>, out: &mut [Bounds]) {
        for (index, bounds) in out.iter_mut().enumerate() {
            let width = self.width * (0.5 + 0.5 / response.position(index));
            *bounds = Bounds::around_one(width, width);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_contract() {
        firebrick_testkit::check_estimator(FadingPrefix { half_life: 8.0 });
        firebrick_testkit::check_schedule(HalvingWindow { width: 0.2 });
    }
}

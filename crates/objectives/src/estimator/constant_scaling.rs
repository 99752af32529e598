//! Weights that only know how far the batch has drifted as a whole: a control.

use firebrick_core::{
    ImportanceEstimator, OptimizerBatch, Requirements, ResponseTokens, StateError, Stateful,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ConfigError, DriftKl,
    drift::{Tracked, token_mean, validate_decay},
};

const PART: &str = "the constant scaling";

/// What is scaled by the batch's drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScalingArm {
    /// The same weight κ everywhere. An optimizer that ignores the gradient's scale hardly sees it.
    Flat,
    /// The mean that a prefix mean has at each position under independent Gaussian drift: 1 at the first, κ far on.
    Matched,
    /// The token's own ratio, times κ.
    TokenTimes,
}

/// Weights made of one number per optimizer step, the drift K of the batch: what remains of a prefix mean when its
/// response-specific part is taken away.
///
/// ```text
/// κ = exp(−K)                      K = max(0, mean over all policy tokens of the batch of the estimate)
/// log w_t = −K                     arm `Flat`
///         = −K + K/t               arm `Matched`: −s²/2 + s²/(2t) with s² = 2K
///         = d_t − K                arm `TokenTimes`
/// ∂ log w_t / ∂ log π_θ(y_k) = 1 if k = t, else 0
/// ```
///
/// K is taken under the current policy over the whole optimizer batch before it is split, and optionally averaged over
/// steps; the average is part of the checkpoint. It is averaged before it is cut off at zero, so that a batch whose
/// estimate is negative by chance counts.
///
/// *Reference*: a control for the prefix mean of TAPO, 2026, arXiv:2610.13020; it is in no paper.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConstantScaling {
    /// What is scaled.
    pub arm: ScalingArm,
    /// How the drift is estimated; default k1.
    #[serde(default)]
    pub divergence: DriftKl,
    /// Decay of the average over optimizer steps, in [0, 1); default none: each step has its own batch's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ema: Option<f64>,
    #[serde(skip)]
    drift: Tracked,
}

impl ConstantScaling {
    /// Scaling by each batch's own drift.
    pub fn new(arm: ScalingArm, divergence: DriftKl) -> Self {
        Self { arm, divergence, ema: None, drift: Tracked::default() }
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// When the decay is not in [0, 1).
    pub fn validate(&self) -> Result<(), ConfigError> {
        validate_decay("ema", self.ema)
    }
}

impl ImportanceEstimator for ConstantScaling {
    /// # Panics
    /// When no optimizer batch was shown before.
    fn log_weights(&self, response: &ResponseTokens<'_>, out: &mut [f64]) {
        let drift = self.drift.get().max(0.0);
        for (index, (out, log_ratio)) in out.iter_mut().zip(response.log_ratios()).enumerate() {
            *out = match self.arm {
                ScalingArm::Flat => -drift,
                ScalingArm::Matched => drift / response.position(index) - drift,
                ScalingArm::TokenTimes => log_ratio - drift,
            };
        }
    }

    fn requirements(&self) -> Requirements {
        Requirements { batch_current_log_probs: true, ..Requirements::default() }
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }
}

impl Stateful for ConstantScaling {
    fn prepare(&mut self, batch: &OptimizerBatch<'_>) -> Result<(), StateError> {
        let divergence = self.divergence;
        self.drift.update(token_mean(batch, PART, |log_ratio| divergence.token(log_ratio))?, self.ema);
        Ok(())
    }

    fn save(&self) -> Value {
        self.drift.save(self.ema)
    }

    fn load(&mut self, state: &Value) -> Result<(), StateError> {
        self.drift.load(state, PART)
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_all_close, check_estimator};

    use super::*;
    use crate::drift::prepare;

    const ARMS: [ScalingArm; 3] = [ScalingArm::Flat, ScalingArm::Matched, ScalingArm::TokenTimes];

    fn response(log_ratios: &[f64]) -> TestResponse {
        TestResponse::from_log_ratios(log_ratios, &vec![1.0; log_ratios.len()])
    }

    fn log_weights(estimator: &ConstantScaling, response: &TestResponse) -> Vec<f64> {
        let mut out = vec![0.0; response.tokens().len()];
        estimator.log_weights(&response.tokens(), &mut out);
        out
    }

    /// d = [.1, −.3 | −.2, −.4]: K = (−.1 + .3 + .2 + .4)/4 = .2, so κ = e^−.2; matched at t = 2: −.2 + .1.
    #[test]
    fn the_arms_scale_by_the_mean_of_minus_d_over_all_tokens() {
        let rows = [response(&[0.1, -0.3]), response(&[-0.2, -0.4])];
        let expected = [[-0.2, -0.2], [0.0, -0.1], [-0.1, -0.5]];
        for (arm, expected) in ARMS.into_iter().zip(expected) {
            let mut estimator = ConstantScaling::new(arm, DriftKl::K1);
            prepare(&mut estimator, &rows).unwrap();
            assert_all_close(&log_weights(&estimator, &rows[0]), &expected, 1e-12, "log-weights");
        }
    }

    #[test]
    fn on_policy_every_weight_is_one() {
        for arm in ARMS {
            for divergence in [DriftKl::K1, DriftKl::K3] {
                let mut estimator = ConstantScaling::new(arm, divergence);
                prepare(&mut estimator, &[response(&[0.0; 3])]).unwrap();
                assert_eq!(log_weights(&estimator, &response(&[0.0; 3])), [0.0; 3]);
            }
        }
    }

    /// k1 of d = [.3] is −.3: without an average K = 0. With decay .5 after K = .5, (.5 − .3)/2 = .1 and not .25.
    #[test]
    fn a_negative_estimate_is_cut_off_after_the_average() {
        let mut plain = ConstantScaling::new(ScalingArm::Flat, DriftKl::K1);
        let mut averaged = ConstantScaling { ema: Some(0.5), ..plain };
        for estimator in [&mut plain, &mut averaged] {
            prepare(estimator, &[response(&[-0.5])]).unwrap();
            prepare(estimator, &[response(&[0.3])]).unwrap();
        }
        assert_eq!(log_weights(&plain, &response(&[0.0])), [0.0]);
        assert_all_close(&log_weights(&averaged, &response(&[0.0])), &[-0.1], 1e-12, "averaged");
    }

    #[test]
    fn a_restored_average_goes_on_where_it_was() {
        let mut first = ConstantScaling { ema: Some(0.9), ..ConstantScaling::new(ARMS[0], DriftKl::K3) };
        prepare(&mut first, &[response(&[0.7])]).unwrap();
        let mut second = ConstantScaling { ema: Some(0.9), ..ConstantScaling::new(ARMS[0], DriftKl::K3) };
        second.load(&first.save()).unwrap();
        for estimator in [&mut first, &mut second] {
            prepare(estimator, &[response(&[-0.2])]).unwrap();
        }
        assert_eq!(first, second);
        assert_eq!(ConstantScaling::new(ARMS[0], DriftKl::K1).save(), Value::Null);
    }

    #[test]
    fn keeps_the_contract() {
        for arm in ARMS {
            check_estimator(ConstantScaling::new(arm, DriftKl::K1));
            check_estimator(ConstantScaling { ema: Some(0.9), ..ConstantScaling::new(arm, DriftKl::K3) });
        }
    }
}

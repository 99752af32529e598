//! How far the current policy has moved from the anchor, over a whole optimizer batch.

use firebrick_core::{ExactSum, OptimizerBatch, ResponseTokens, StateError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ConfigError, config_error::require};

/// Estimate of the KL divergence KL(π_anchor ‖ π_θ) from sampled tokens (nats per token), with d = log π_θ − log π_anchor.
///
/// *Reference*: Schulman, "Approximating KL divergence", 2020.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftKl {
    /// The mean of −d. Unbiased; a batch may have a negative one.
    #[default]
    K1,
    /// The mean of exp(d) − 1 − d. Unbiased and never negative; large ratios weigh heavily.
    K3,
}

impl DriftKl {
    /// The estimate of one token.
    pub(crate) fn token(self, log_ratio: f64) -> f64 {
        match self {
            Self::K1 => -log_ratio,
            // exp_m1 keeps the digits that exp(d) − 1 would lose near d = 0.
            Self::K3 => log_ratio.exp_m1() - log_ratio,
        }
    }
}

/// Shows every response of the batch, under its current log-probs, to `visit`.
pub(crate) fn each_response(
    batch: &OptimizerBatch<'_>,
    part: &str,
    mut visit: impl FnMut(&ResponseTokens<'_>),
) -> Result<(), StateError> {
    let refused = |reason: String| StateError::Batch { part: part.to_owned(), reason };
    let current =
        batch.current.ok_or_else(|| refused("it needs the batch's current log-probs".to_owned()))?;
    if current.len() != batch.responses.len() {
        let (found, expected) = (current.len(), batch.responses.len());
        return Err(refused(format!("current log-probs of {found} responses for {expected}")));
    }
    for (context, current) in batch.responses.iter().zip(current) {
        visit(&ResponseTokens::new(context, current).map_err(|error| refused(error.to_string()))?);
    }
    Ok(())
}

/// Mean of a statistic of the log-ratio over all policy tokens of the batch: a token counts once, whatever its response.
/// The order of the responses does not change it.
pub(crate) fn token_mean(
    batch: &OptimizerBatch<'_>,
    part: &str,
    statistic: impl Fn(f64) -> f64,
) -> Result<f64, StateError> {
    let (mut sum, mut tokens) = (ExactSum::default(), 0);
    each_response(batch, part, |response| {
        sum.add(response.log_ratios().iter().map(|log_ratio| statistic(*log_ratio)).sum());
        tokens += response.len();
    })?;
    let mean = sum.value() / tokens as f64;
    if mean.is_finite() {
        return Ok(mean);
    }
    let reason = match tokens {
        0 => "the batch has no policy token".to_owned(),
        _ => format!("a mean over its log-ratios is {mean}"),
    };
    Err(StateError::Batch { part: part.to_owned(), reason })
}

/// A number per optimizer step, averaged over steps when there is a decay.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Tracked {
    value: Option<f64>,
}

impl Tracked {
    /// Takes the batch's own number: the average becomes decay · average + (1 − decay) · number, or the number itself
    /// in the first step and without a decay.
    pub(crate) fn update(&mut self, number: f64, decay: Option<f64>) {
        self.value = Some(match (self.value, decay) {
            (Some(average), Some(decay)) => decay * average + (1.0 - decay) * number,
            _ => number,
        });
    }

    /// The current value.
    ///
    /// # Panics
    /// Before the first batch was shown.
    pub(crate) fn get(self) -> f64 {
        self.value
            .expect("the optimizer batch is shown to a stateful part before its responses are evaluated")
    }

    /// What a checkpoint holds: null when nothing is carried from step to step.
    pub(crate) fn save(self, decay: Option<f64>) -> Value {
        decay.and(self.value).map_or(Value::Null, Value::from)
    }

    /// Takes back what [`Self::save`] returned; null changes nothing.
    pub(crate) fn load(&mut self, state: &Value, part: &str) -> Result<(), StateError> {
        match state {
            Value::Null => Ok(()),
            Value::Number(number) => {
                self.value = number.as_f64();
                Ok(())
            }
            other => {
                let reason = format!("it must be a number or null, found {other}");
                Err(StateError::Mismatch { part: part.to_owned(), reason })
            }
        }
    }
}

/// Refuses a decay that is not in [0, 1).
pub(crate) fn validate_decay(key: &str, decay: Option<f64>) -> Result<(), ConfigError> {
    let decay = decay.unwrap_or(0.0);
    require((0.0..1.0).contains(&decay), key, decay, "in [0, 1)")
}

/// Shows `responses` to a part as one optimizer batch.
#[cfg(test)]
pub(crate) fn prepare(
    part: &mut dyn firebrick_core::Stateful,
    responses: &[firebrick_testkit::TestResponse],
) -> Result<(), StateError> {
    let contexts: Vec<_> = responses.iter().map(|response| response.context()).collect();
    let current: Vec<_> = responses.iter().map(|response| response.current().clone()).collect();
    part.prepare(&OptimizerBatch { responses: &contexts, current: Some(&current) })
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_close};

    use super::*;

    fn mean(responses: &[TestResponse], statistic: impl Fn(f64) -> f64) -> Result<f64, StateError> {
        let contexts: Vec<_> = responses.iter().map(|response| response.context()).collect();
        let current: Vec<_> = responses.iter().map(|response| response.current().clone()).collect();
        let batch = OptimizerBatch { responses: &contexts, current: Some(&current) };
        token_mean(&batch, "the part", statistic)
    }

    fn response(log_ratios: &[f64]) -> TestResponse {
        TestResponse::from_log_ratios(log_ratios, &vec![1.0; log_ratios.len()])
    }

    /// (0.3 + 0.1 − 0.2 + 0.4)/4 = 0.15, where the mean of the rows' means would be (0.3 + 0.1)/2 = 0.2.
    #[test]
    fn a_mean_counts_every_token_once_in_whatever_order_the_rows_stand() {
        let mut rows = vec![response(&[0.3]), response(&[0.1, -0.2, 0.4])];
        let forwards = mean(&rows, |d| d).unwrap();
        assert_close(forwards, 0.15, 1e-14, "mean");
        rows.reverse();
        assert_eq!(mean(&rows, |d| d).unwrap(), forwards);
    }

    /// k1 of d = 0.1 is −0.1, k3 is 1.105171 − 1 − 0.1 = 0.005171.
    #[test]
    fn the_two_estimates_of_a_token_are_those_worked_by_hand() {
        assert_eq!(DriftKl::K1.token(0.1), -0.1);
        assert_close(DriftKl::K3.token(0.1), 0.005_170_918_075_647, 1e-10, "k3");
    }

    #[test]
    fn a_batch_without_tokens_numbers_or_current_log_probs_is_refused() {
        let message = |found: Result<f64, StateError>| found.unwrap_err().to_string();
        assert_eq!(
            message(mean(&[response(&[])], |d| d)),
            "the part cannot be prepared: the batch has no policy token"
        );
        assert_eq!(
            message(mean(&[response(&[f64::NAN])], |d| d)),
            "the part cannot be prepared: a mean over its log-ratios is NaN"
        );
        let batch = OptimizerBatch { responses: &[], current: None };
        assert_eq!(
            message(token_mean(&batch, "the part", |d| d)),
            "the part cannot be prepared: it needs the batch's current log-probs"
        );
    }

    /// 0.5 · (0.5 · 4 + 0.5 · 2) + 0.5 · 8 = 5.5.
    #[test]
    fn an_average_starts_at_the_first_number_and_forgets_by_its_decay() {
        let mut tracked = Tracked::default();
        for number in [4.0, 2.0, 8.0] {
            tracked.update(number, Some(0.5));
        }
        assert_eq!(tracked.get(), 5.5);
        let mut plain = Tracked::default();
        for number in [4.0, 2.0, 8.0] {
            plain.update(number, None);
        }
        assert_eq!(plain.get(), 8.0);
    }

    #[test]
    fn only_an_average_over_steps_is_saved() {
        let mut tracked = Tracked::default();
        assert_eq!(tracked.save(Some(0.5)), Value::Null);
        tracked.update(4.0, Some(0.5));
        assert_eq!((tracked.save(None), tracked.save(Some(0.5))), (Value::Null, Value::from(4.0)));
        let mut restored = Tracked::default();
        restored.load(&Value::from(4.0), "the part").unwrap();
        assert_eq!(restored, tracked);
        assert_eq!(
            restored.load(&Value::from("4"), "the part").unwrap_err().to_string(),
            "the stored state of the part cannot be restored: it must be a number or null, found \"4\""
        );
    }
}

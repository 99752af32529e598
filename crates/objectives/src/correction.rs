//! Rollout corrections: a second weight from the policy that sampled to the proximal policy, and rejection by it.

mod off_policy;
mod ratio_weight;
mod rejection;

pub use off_policy::off_policy_metrics;
pub use ratio_weight::{RatioLevel, RatioWeight};
pub use rejection::{RatioReduction, RatioStatistic, Rejection};

use firebrick_core::{
    Corrected, ExactSum, LOG_RATIO_LIMIT, OptimizerBatch, ResponseContext, RolloutCorrection, StateError,
    Stateful,
};
use serde::{Deserialize, Serialize};

use crate::ConfigError;

/// What becomes of rejected tokens in the denominator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectedDenominator {
    /// They are counted: a batch with many rejections takes a smaller step.
    #[default]
    Keep,
    /// They are not, nor is a response without any token left: the step is as large as without them.
    Shrink,
}

/// A correction for the gap between the policy that sampled and the proximal policy, ρ = π_old/π_roll.
///
/// ```text
/// J_t  ←  keep_t · weight_t · J_t          weight from `weight`, keep from its mask and all of `rejection`
/// ```
///
/// Both are constants for the gradient. It needs the proximal policy's log-probs, and with a weight the ratio of the
/// objective must be anchored there: `anchor = "proximal"`.
///
/// ```
/// use firebrick_objectives::ObjectiveConfig;
///
/// let config: ObjectiveConfig = r#"
///     type = "dapo"
///     anchor = "proximal"
///     [correction]
///     weight = { type = "truncate", level = "token", high = 2.0 }
///     rejection = [{ statistic = "ratio", reduction = "sequence_mean", low = 0.999, high = 1.001 }]
///     denominator = "shrink"
/// "#
/// .parse()?;
/// config.validate()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// *Reference*: Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025 (truncation);
/// Ling Team, "Every step evolves", 2025, arXiv:2510.18855 (mask).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CorrectionConfig {
    /// The weight; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<RatioWeight>,
    /// Rules that tokens or whole responses are rejected by; a token must pass all. Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rejection: Vec<Rejection>,
    /// Whether rejected tokens are counted; default `keep`.
    pub denominator: RejectedDenominator,
}

impl CorrectionConfig {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range; also when there is neither a weight nor a rejection.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if let Some(weight) = &self.weight {
            weight.validate().map_err(|error| error.within("weight"))?;
        }
        for rejection in &self.rejection {
            rejection.validate().map_err(|error| error.within("rejection"))?;
        }
        if self.weight.is_none() && self.rejection.is_empty() {
            return Err(ConfigError::Incompatible {
                key: "weight".to_owned(),
                choice: "none",
                reason: "a correction without weight and rejection corrects nothing and costs a forward pass; \
                         add one of them or remove the table",
            });
        }
        Ok(())
    }

    /// Refuses a weight beside a ratio that already starts at the policy that sampled. A rejection alone may stand there.
    pub(crate) fn validate_anchor(&self, behaviour: bool) -> Result<(), ConfigError> {
        if !behaviour || self.weight.is_none() {
            return Ok(());
        }
        Err(ConfigError::Incompatible {
            key: "anchor".to_owned(),
            choice: "behaviour",
            reason: "the ratio starts at the policy that sampled, so correction.weight would multiply by \
                     π_old/π_roll a second time; set anchor = \"proximal\" or remove correction.weight",
        })
    }

    /// The correction.
    pub fn build(&self) -> Box<dyn RolloutCorrection> {
        Box::new(RatioCorrection::new(self.clone()))
    }
}

/// The correction that a [`CorrectionConfig`] describes.
#[derive(Debug, Clone, PartialEq)]
pub struct RatioCorrection {
    config: CorrectionConfig,
    /// What every weight is divided by: the mean over the optimizer batch, or 1.
    mean_weight: f64,
}

impl RatioCorrection {
    /// A correction; with `batch_normalize` its weights are those of a mean of 1 until it has seen an optimizer batch.
    pub fn new(config: CorrectionConfig) -> Self {
        Self { config, mean_weight: 1.0 }
    }
}

impl RolloutCorrection for RatioCorrection {
    /// # Panics
    /// When the response has no proximal log-probs, which [`RolloutCorrection::requirements`] asks for.
    fn correct(&self, response: &ResponseContext, out: &mut [Corrected]) {
        out.fill(Corrected::default());
        let log_ratios = log_ratios(response);
        if let Some(weight) = &self.config.weight {
            weight.apply(&log_ratios, out);
            for token in out.iter_mut() {
                token.weight /= self.mean_weight;
            }
        }
        for rejection in &self.config.rejection {
            rejection.apply(&log_ratios, out);
        }
    }

    fn shrinks_denominator(&self) -> bool {
        self.config.denominator == RejectedDenominator::Shrink
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        let normalizes = self.config.weight.as_ref().is_some_and(RatioWeight::batch_normalize);
        if normalizes { Some(self) } else { None }
    }
}

impl Stateful for RatioCorrection {
    fn prepare(&mut self, batch: &OptimizerBatch<'_>) -> Result<(), StateError> {
        let Some(weight) = &self.config.weight else { return Ok(()) };
        let (mut sum, mut count) = (ExactSum::default(), 0);
        for response in batch.responses.iter().filter(|response| !response.is_empty()) {
            let mut tokens = vec![Corrected::default(); response.len()];
            weight.apply(&log_ratios(response), &mut tokens);
            if weight.level() == RatioLevel::SequenceProduct {
                tokens.truncate(1);
            }
            tokens.iter().for_each(|token| sum.add(token.weight));
            count += tokens.len();
        }
        let mean = sum.value() / count as f64;
        // Of no weight at all nothing is left to divide.
        self.mean_weight = if count == 0 || mean == 0.0 { 1.0 } else { mean };
        Ok(())
    }

    /// Null: the mean is formed anew at every step.
    fn save(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    fn load(&mut self, state: &serde_json::Value) -> Result<(), StateError> {
        if state.is_null() {
            return Ok(());
        }
        Err(StateError::Mismatch {
            part: "correction".to_owned(),
            reason: format!("expected null, found {state}"),
        })
    }
}

/// log ρ_t of every policy token (nats), clamped to ± [`LOG_RATIO_LIMIT`].
fn log_ratios(response: &ResponseContext) -> Vec<f64> {
    let proximal = response.proximal().expect("a rollout correction requires proximal log-probs");
    let pairs = proximal.iter().zip(response.behaviour());
    pairs.map(|(proximal, behaviour)| clamped(proximal - behaviour)).collect()
}

fn clamped(log_ratio: f64) -> f64 {
    log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Binding, LogProbs, Objective};
    use firebrick_testkit::{TestResponse, assert_all_close};

    use super::*;
    use crate::{Aggregation, Denominator, ObjectiveConfig};

    /// A response with these ratios π_old/π_roll, anchored at the proximal policy, whose current policy is the proximal one.
    fn response(ratios: &[f64], advantage: f64) -> TestResponse {
        let proximal: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let len = ratios.len();
        TestResponse::new(&vec![0.0; len], &proximal, &vec![advantage; len])
            .map_context(|context| context.anchored_at_proximal(LogProbs::new(proximal)).unwrap())
    }

    fn correction(text: &str) -> Box<dyn RolloutCorrection> {
        let config: CorrectionConfig = toml::from_str(text).unwrap();
        config.validate().unwrap();
        config.build()
    }

    fn objective(text: &str) -> impl Objective + use<> {
        let text = format!("type = 'dapo'\nanchor = 'proximal'\n[correction]\n{text}");
        let config: ObjectiveConfig = text.parse().unwrap();
        config.validate().unwrap();
        config.objective()
    }

    fn corrected(correction: &dyn RolloutCorrection, response: &TestResponse) -> Vec<(f64, bool)> {
        let mut out = vec![Corrected { weight: f64::NAN, keep: false }; response.context().len()];
        correction.correct(response.context(), &mut out);
        out.iter().map(|token| (token.weight, token.keep)).collect()
    }

    const EVERY_RULE: [&str; 5] = [
        "weight = { type = 'truncate' }",
        "weight = { type = 'mask', level = 'sequence_product' }",
        "weight = { type = 'truncate', batch_normalize = true }",
        "rejection = [{ statistic = 'ratio', reduction = 'sequence_mean', low = 0.999, high = 1.001 }]",
        "rejection = [{ statistic = 'k2', reduction = 'token', high = 0.0 }, \
         { statistic = 'k3', reduction = 'sequence_max', high = 0.0 }]",
    ];

    #[test]
    fn without_a_gap_every_weight_is_one_and_nothing_is_rejected() {
        let response = response(&[1.0, 1.0, 1.0], 1.0);
        for text in EVERY_RULE {
            let mut correction = correction(text);
            if let Some(state) = correction.stateful() {
                let batch = OptimizerBatch { responses: &[response.context()], current: None };
                state.prepare(&batch).unwrap();
                assert_eq!(state.save(), serde_json::Value::Null);
            }
            assert_eq!(corrected(correction.as_ref(), &response), [(1.0, true); 3], "{text}");
        }
    }

    /// Current = proximal, so the gate gives A; min(4, 2) = 2 and 0.5 multiply value and coefficient.
    #[test]
    fn the_weight_multiplies_value_and_coefficient() {
        let terms = objective("weight = { type = 'truncate', high = 2.0 }")
            .evaluate(&response(&[4.0, 0.5], 3.0).tokens(), 0.1);
        assert_all_close(&[terms.loss], &[-0.1 * 3.0 * 2.5], 1e-14, "loss");
        assert_all_close(&terms.coefficients, &[0.1 * 3.0 * 2.0, 0.1 * 3.0 * 0.5], 1e-14, "coefficients");
    }

    #[test]
    fn a_rejected_token_contributes_exactly_zero() {
        let terms = objective("weight = { type = 'mask', low = 0.5, high = 2.0 }")
            .evaluate(&response(&[4.0, 1.5, 0.25], 1.0).tokens(), 1.0);
        assert_all_close(&terms.coefficients, &[0.0, 1.5, 0.0], 1e-14, "coefficients");
        assert_eq!(terms.bindings, [Binding::Dropped, Binding::None, Binding::Dropped]);
    }

    /// Token weights 2, 2, 0.5 have the mean 1.5; per response 2 and 0.5 have the mean 1.25.
    #[test]
    fn batch_normalisation_divides_by_the_mean_over_tokens_or_responses() {
        let rows = [response(&[8.0, 4.0], 1.0), response(&[], 1.0), response(&[0.5], 1.0)];
        let contexts = [rows[2].context(), rows[1].context(), rows[0].context()];
        for (level, mean) in [("token", 1.5), ("sequence_product", 1.25)] {
            let mut correction = correction(&format!(
                "weight = {{ type = 'truncate', level = '{level}', batch_normalize = true }}"
            ));
            let state = correction.stateful().unwrap();
            state.prepare(&OptimizerBatch { responses: &contexts, current: None }).unwrap();
            assert_eq!(corrected(correction.as_ref(), &rows[0]), [(2.0 / mean, true); 2], "{level}");
            assert_eq!(corrected(correction.as_ref(), &rows[2]), [(0.5 / mean, true)], "{level}");
        }
    }

    #[test]
    fn a_batch_whose_every_weight_is_masked_is_not_divided_by_zero() {
        let rows = response(&[9.0], 1.0);
        let mut correction = correction("weight = { type = 'mask', batch_normalize = true }");
        let batch = OptimizerBatch { responses: &[rows.context()], current: None };
        let state = correction.stateful().unwrap();
        state.prepare(&batch).unwrap();
        state.load(&state.save()).unwrap();
        assert!(state.load(&serde_json::json!(2.0)).unwrap_err().to_string().contains("found 2.0"));
        assert_eq!(corrected(correction.as_ref(), &rows), [(0.0, false)]);
    }

    /// miles #2796: four tokens that pass and a response that is rejected as a whole. Shrunk, they divide by 4 tokens and one
    /// response; kept, by all 5 tokens and both.
    #[test]
    fn rejected_tokens_stay_in_the_denominator_or_leave_it_as_configured() {
        let rows = [response(&[1.0; 4], 1.0), response(&[3.0], 1.0)];
        let rule = "rejection = [{ statistic = 'ratio', reduction = 'token', low = 0.5, high = 2.0 }]";
        for (denominator, counts, weights) in
            [("keep", (5, 2), [1.0 / 5.0, 1.0 / 8.0]), ("shrink", (4, 1), [1.0 / 4.0, 1.0 / 4.0])]
        {
            let objective = objective(&format!("{rule}\ndenominator = '{denominator}'"));
            let lengths = rows.each_ref().map(|row| objective.counted_tokens(row.context()));
            let of = Denominator::of(lengths).unwrap();
            assert_eq!((of.tokens(), of.sequences()), counts);
            for (mode, weight) in
                [Aggregation::TokenMean, Aggregation::SeqMeanTokenMean].into_iter().zip(weights)
            {
                let [first, second] = [0, 1].map(|index: usize| {
                    let weight = mode.weight(&of, lengths[index]);
                    objective.evaluate(&rows[index].tokens(), weight).coefficients
                });
                assert_eq!((first, second), (vec![weight; 4], vec![0.0]), "{denominator} {mode:?}");
            }
        }
    }

    #[test]
    fn a_weight_beside_a_ratio_that_starts_at_the_behaviour_policy_is_refused() {
        let config = |text: &str| text.parse::<ObjectiveConfig>().unwrap().validate();
        let error = config("type = 'dapo'\ncorrection.weight = { type = 'truncate' }").unwrap_err();
        assert!(error.to_string().starts_with("anchor = \"behaviour\": the ratio starts at"), "{error}");
        assert!(error.to_string().contains("set anchor = \"proximal\""), "{error}");
        config("type = 'dapo'\nanchor = 'proximal'\ncorrection.weight = { type = 'truncate' }").unwrap();
        let rule = "{ statistic = 'k3', reduction = 'sequence_mean', high = 0.01 }";
        config(&format!("type = 'dapo'\ncorrection.rejection = [{rule}]")).unwrap();
    }

    #[test]
    fn a_correction_of_nothing_is_refused() {
        let error = CorrectionConfig::default().validate().unwrap_err();
        assert!(error.to_string().contains("add one of them or remove the table"), "{error}");
        assert!(toml::from_str::<CorrectionConfig>("weigth = 1").is_err());
    }

    #[test]
    fn a_config_survives_a_round_trip() {
        for text in EVERY_RULE {
            let config: CorrectionConfig = toml::from_str(text).unwrap();
            let written = toml::to_string(&config).unwrap();
            assert_eq!(toml::from_str::<CorrectionConfig>(&written).unwrap(), config, "{written}");
        }
    }
}

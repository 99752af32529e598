//! Unclipped weights, with a penalty on the few tokens that drive the entropy down most.

use firebrick_core::{
    Binding, Bounds, Gate, Gated, OptimizerBatch, Requirements, ResponseTokens, StateError, Stateful,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    TokenSelection,
    covariance::{BatchToken, at_least_one, batch_tokens, load_nothing},
};
use crate::{
    ConfigError,
    config_error::{require, require_width},
};

const NAME: &str = "covariance_kl";

/// Unclipped weights with a penalty on drift for the tokens whose advantage and log-prob vary together most.
///
/// ```text
/// cov_t = (A_t − mean A)(log π_θ(y_t) − mean log π_θ)      means over all policy tokens of the optimizer batch
/// J_t   = w_t A_t − coefficient · |log w_t|     for the max(1, ⌊fraction · N⌋) tokens with the largest cov_t
///       = w_t A_t                               otherwise
/// ```
///
/// At log w = 0 the penalty has no gradient, so in the first step on a rollout batch it does nothing. The window plays no
/// part.
///
/// *Reference*: KL-Cov: Cui et al., "The entropy mechanism of reinforcement learning for reasoning language models",
/// 2025, arXiv:2505.22617.
///
/// *Differs from the paper*: means and ranks are those of the optimizer batch, where the public implementations take each
/// micro-batch for itself. The paper's fraction depends on the model (0.002 for 7B, 2e-4 for 32B); the default is the
/// latter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CovarianceKl {
    /// Share of the batch's tokens that is penalised.
    pub fraction: f64,
    /// Coefficient of the penalty.
    pub coefficient: f64,
    /// The tokens chosen from the current optimizer batch.
    #[serde(skip)]
    pub selected: TokenSelection,
}

impl Default for CovarianceKl {
    /// The paper's: 2e-4 of the tokens, coefficient 1.
    fn default() -> Self {
        Self { fraction: 2e-4, coefficient: 1.0, selected: TokenSelection::default() }
    }
}

impl CovarianceKl {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When the share is not in (0, 1], or the coefficient negative or not finite.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let fraction = self.fraction;
        require(fraction > 0.0 && fraction <= 1.0, "fraction", fraction, "a number in (0, 1]")?;
        require_width("coefficient", self.coefficient)
    }
}

impl Gate for CovarianceKl {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], _: &[Bounds], out: &mut [Gated]) {
        let inputs = log_weights.iter().zip(response.advantages());
        for (out, (log_weight, advantage)) in out.iter_mut().zip(inputs) {
            let value = log_weight.exp() * advantage;
            *out = Gated { value, slope: value, binding: Binding::None };
        }
        for index in self.selected.in_response(response.context()) {
            let (out, log_weight) = (&mut out[*index], log_weights[*index]);
            if log_weight != 0.0 {
                out.value -= self.coefficient * log_weight.abs();
                out.slope -= self.coefficient * log_weight.signum();
            }
        }
    }

    fn requirements(&self) -> Requirements {
        Requirements { batch_current_log_probs: true, ..Requirements::default() }
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }
}

impl Stateful for CovarianceKl {
    fn prepare(&mut self, batch: &OptimizerBatch<'_>) -> Result<(), StateError> {
        let mut tokens = batch_tokens(NAME, batch)?;
        let count = at_least_one(self.fraction, tokens.len()).min(tokens.len());
        // The numbers of response and token make equal covariances rank alike in every order of the batch.
        let rank = |a: &BatchToken, b: &BatchToken| {
            b.covariance.total_cmp(&a.covariance).then((a.response, a.index).cmp(&(b.response, b.index)))
        };
        if count < tokens.len() {
            tokens.select_nth_unstable_by(count, rank);
        }
        self.selected = TokenSelection::of(&tokens[..count]);
        Ok(())
    }

    fn save(&self) -> Value {
        Value::Null
    }

    fn load(&mut self, state: &Value) -> Result<(), StateError> {
        load_nothing(NAME, state)
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::LogProbs;
    use firebrick_testkit::{TestResponse, assert_close, check_gate};

    use super::*;

    /// Covariances with mean A = 0 and mean log-prob −2: (2)(1) = 2, (1)(0) = 0, (−3)(−1) = 3.
    fn response() -> TestResponse {
        TestResponse::new(&[-1.1, -2.0, -2.7], &[-1.0, -2.0, -3.0], &[2.0, 1.0, -3.0])
    }

    fn gated(fraction: f64, response: &TestResponse) -> Vec<Gated> {
        let mut gate = CovarianceKl { fraction, coefficient: 0.5, ..CovarianceKl::default() };
        let current = [LogProbs::new(response.current().values().to_vec())];
        gate.prepare(&OptimizerBatch { responses: &[response.context()], current: Some(&current) }).unwrap();
        let tokens = response.tokens();
        let mut out = vec![Gated::default(); tokens.len()];
        gate.gate(&tokens, tokens.log_ratios(), &vec![Bounds::OPEN; tokens.len()], &mut out);
        out
    }

    /// The third token has log w = −0.3 and A = −3; the penalty is 0.5 · 0.3, its slope −0.5 · (−1).
    #[test]
    fn the_largest_covariance_is_pulled_back_and_the_rest_left_alone() {
        let out = gated(0.34, &response());
        let weight = -3.0 * (-0.3_f64).exp();
        assert_close(out[2].value, weight - 0.15, 1e-12, "value");
        assert_close(out[2].slope, weight + 0.5, 1e-12, "slope");
        assert_close(out[0].slope, 2.0 * 0.1_f64.exp(), 1e-12, "the second largest");
        assert_close(out[1].slope, 1.0, 1e-12, "no drift");
        let out = gated(0.67, &response());
        assert_close(out[0].slope, 2.0 * 0.1_f64.exp() - 0.5, 1e-12, "two are chosen");
    }

    #[test]
    fn without_drift_there_is_no_penalty() {
        let current = [-1.0, -2.0, -3.0];
        let out = gated(1.0, &TestResponse::new(&current, &current, &[2.0, 1.0, -3.0]));
        for (token, advantage) in out.iter().zip([2.0, 1.0, -3.0]) {
            assert_eq!((token.value, token.slope), (advantage, advantage));
        }
    }

    #[test]
    fn an_empty_batch_chooses_nothing() {
        let mut gate = CovarianceKl::default();
        gate.prepare(&OptimizerBatch { responses: &[], current: Some(&[]) }).unwrap();
        assert!(gate.selected.is_empty());
    }

    #[test]
    fn numbers_out_of_range_are_refused_with_their_key() {
        let error = CovarianceKl { fraction: 1.5, ..CovarianceKl::default() }.validate().unwrap_err();
        assert_eq!(error.to_string(), "fraction = 1.5: allowed is a number in (0, 1]");
        assert!(CovarianceKl { coefficient: -1.0, ..CovarianceKl::default() }.validate().is_err());
    }

    #[test]
    fn keeps_the_contract() {
        check_gate(CovarianceKl::default());
        check_gate(CovarianceKl { fraction: 0.02, coefficient: 0.5, ..CovarianceKl::default() });
    }
}

//! PPO's minimum, without a few random tokens that drive the entropy down.

use firebrick_core::{
    Binding, Bounds, Gate, Gated, OptimizerBatch, Requirements, ResponseTokens, StateError, Stateful,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    PpoMin, TokenSelection,
    covariance::{BatchToken, at_least_one, batch_tokens, load_nothing},
};
use crate::{
    ConfigError,
    config_error::{require, require_order},
};

const NAME: &str = "covariance_clip";

/// [`PpoMin`] without a random few of the tokens whose advantage and log-prob vary together.
///
/// ```text
/// cov_t = (A_t − mean A)(log π_θ(y_t) − mean log π_θ)      means over all policy tokens of the optimizer batch
/// J_t   = 0                                   for max(1, ⌊ratio · N⌋) random tokens with cov_low < cov_t < cov_high
///       = min(w A, clip(w, low, high) A)      otherwise
/// ```
///
/// The chosen tokens are [`Binding::Dropped`] and stay in every denominator. The draw depends on the responses' own seeds, so it
/// is the same however the batch is ordered or split.
///
/// *Reference*: Clip-Cov: Cui et al., "The entropy mechanism of reinforcement learning for reasoning language models",
/// 2025, arXiv:2505.22617.
///
/// *Differs from the paper*: the means are those of the optimizer batch, where the public implementations take each
/// micro-batch for itself. The draw is over all tokens with such a covariance; one that PPO clips as well counts towards
/// the number and stays clipped. In the paper's window (ratios up to 2) hardly any is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CovarianceClip {
    /// Covariance above which a token may be chosen.
    pub cov_low: f64,
    /// Covariance below which a token may be chosen.
    pub cov_high: f64,
    /// Share of the batch's tokens that is chosen.
    pub ratio: f64,
    /// The tokens chosen from the current optimizer batch.
    #[serde(skip)]
    pub selected: TokenSelection,
}

impl Default for CovarianceClip {
    /// The paper's: covariances in (1, 5), 2e-4 of the tokens.
    fn default() -> Self {
        Self { cov_low: 1.0, cov_high: 5.0, ratio: 2e-4, selected: TokenSelection::default() }
    }
}

impl CovarianceClip {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When the covariances are out of order, or the share is not in (0, 1].
    pub fn validate(&self) -> Result<(), ConfigError> {
        let fix = "no covariance lies between; lower cov_low or raise cov_high";
        require_order(("cov_low", self.cov_low), ("cov_high", self.cov_high), fix)?;
        require(self.ratio > 0.0 && self.ratio <= 1.0, "ratio", self.ratio, "a number in (0, 1]")
    }
}

impl Gate for CovarianceClip {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], bounds: &[Bounds], out: &mut [Gated]) {
        PpoMin::default().gate(response, log_weights, bounds, out);
        for index in self.selected.in_response(response.context()) {
            let out = &mut out[*index];
            if out.binding == Binding::None {
                *out = Gated { binding: Binding::Dropped, ..Gated::default() };
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

impl Stateful for CovarianceClip {
    fn prepare(&mut self, batch: &OptimizerBatch<'_>) -> Result<(), StateError> {
        let tokens = batch_tokens(NAME, batch)?;
        // One draw per token, from the response's own stream; the smallest draws of all candidates are chosen.
        let draws = batch.responses.iter().flat_map(|response| {
            let mut rng = ChaCha8Rng::seed_from_u64(response.seed());
            (0..response.len()).map(move |_| rng.random::<u64>())
        });
        let is_candidate =
            |token: &BatchToken| token.covariance > self.cov_low && token.covariance < self.cov_high;
        let mut candidates: Vec<(u64, &BatchToken)> =
            draws.zip(&tokens).filter(|(_, token)| is_candidate(token)).collect();
        candidates.sort_unstable_by_key(|(draw, token)| (*draw, token.response, token.index));
        candidates.truncate(at_least_one(self.ratio, tokens.len()));
        self.selected = TokenSelection::of(candidates.into_iter().map(|(_, token)| token));
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
    use firebrick_core::{LogProbs, ResponseContext};
    use firebrick_testkit::{TestResponse, check_gate};

    use super::*;

    /// 30 responses of 20 tokens; the covariance is positive at every second token.
    fn responses() -> Vec<TestResponse> {
        let response = |index: usize| {
            let current: Vec<f64> = (0..20).map(|token| if token % 2 == 0 { -1.0 } else { -3.0 }).collect();
            let advantages: Vec<f64> = current.iter().map(|log_prob| log_prob + 2.0).collect();
            let numbered =
                |context: ResponseContext| context.with_index(index).with_seed(1000 + index as u64);
            TestResponse::new(&current, &current, &advantages).map_context(numbered)
        };
        (0..30).map(response).collect()
    }

    fn prepared(mut gate: CovarianceClip, responses: &[TestResponse]) -> CovarianceClip {
        let contexts: Vec<_> = responses.iter().map(TestResponse::context).collect();
        let current: Vec<_> =
            responses.iter().map(|response| LogProbs::new(response.current().values().to_vec())).collect();
        gate.prepare(&OptimizerBatch { responses: &contexts, current: Some(&current) }).unwrap();
        gate
    }

    fn dropped(gate: &CovarianceClip, response: &TestResponse, window: Bounds) -> usize {
        let tokens = response.tokens();
        let mut out = vec![Gated::default(); tokens.len()];
        gate.gate(&tokens, tokens.log_ratios(), &vec![window; tokens.len()], &mut out);
        out.iter().filter(|token| token.binding == Binding::Dropped).count()
    }

    fn with(ratio: f64) -> CovarianceClip {
        // Mean A = 0, mean log-prob = −2: every covariance is (±1)(±1) = 1.
        CovarianceClip { cov_low: 0.5, cov_high: 1.5, ratio, ..CovarianceClip::default() }
    }

    #[test]
    fn the_share_of_all_tokens_is_dropped_and_at_least_one() {
        let responses = responses();
        for (ratio, expected) in [(0.05, 30), (1e-6, 1), (1.0, 600)] {
            let gate = prepared(with(ratio), &responses);
            let found: usize = responses.iter().map(|response| dropped(&gate, response, Bounds::OPEN)).sum();
            assert_eq!((found, gate.selected.len()), (expected, expected), "{ratio}");
        }
    }

    #[test]
    fn the_choice_depends_on_seeds_and_not_on_the_order_of_the_batch() {
        let mut responses = responses();
        let selected = prepared(with(0.05), &responses).selected;
        responses.reverse();
        assert_eq!(prepared(with(0.05), &responses).selected, selected);
        let reseed = |response: TestResponse| {
            response.map_context(|context| {
                let seed = context.seed() + 7;
                context.with_seed(seed)
            })
        };
        let reseeded: Vec<TestResponse> = responses.into_iter().map(reseed).collect();
        assert_ne!(prepared(with(0.05), &reseeded).selected, selected);
    }

    #[test]
    fn covariances_outside_the_range_are_never_chosen() {
        let gate = CovarianceClip { cov_low: 1.0, cov_high: 5.0, ratio: 1.0, ..CovarianceClip::default() };
        assert!(prepared(gate, &responses()).selected.is_empty(), "the range is open at 1");
    }

    /// With no candidate the gate is PPO; a token that PPO clips is not counted as dropped.
    #[test]
    fn a_token_that_the_window_stops_stays_clipped() {
        let number = |context: ResponseContext| context.with_index(0);
        let response = TestResponse::new(&[-3.0, -3.0], &[-1.0, -3.0], &[1.0, -1.0]).map_context(number);
        let gate = prepared(with(1.0), std::slice::from_ref(&response));
        assert_eq!(gate.selected.len(), 2);
        assert_eq!(dropped(&gate, &response, Bounds { low: 0.8, high: 1.2 }), 1);
    }

    #[test]
    fn numbers_out_of_range_are_refused_with_their_key() {
        let error = CovarianceClip { cov_low: 6.0, ..CovarianceClip::default() }.validate().unwrap_err();
        assert!(error.to_string().starts_with("cov_low = 6 with cov_high = 5"), "{error}");
        let error = with(0.0).validate().unwrap_err();
        assert_eq!(error.to_string(), "ratio = 0: allowed is a number in (0, 1]");
        assert!(CovarianceClip::default().validate().is_ok());
    }

    #[test]
    fn keeps_the_contract() {
        check_gate(CovarianceClip::default());
        check_gate(with(0.5));
    }
}

//! The product of a whole response's ratios.

use firebrick_core::{ImportanceEstimator, ResponseTokens};
use serde::{Deserialize, Serialize};

use crate::SequenceRoute;

/// Sequence importance ratio without normalisation: the exact ratio of the probabilities of the whole response.
///
/// ```text
/// log w_t = Σ_k d_k                                   for all t
/// ∂ log w_t / ∂ log π_θ(y_k) = 1                      route `Sequence`
///                            = 1 if k = t, else 0     route `Current`
/// ```
///
/// With tokens averaged over the response, route `Sequence` gives every token the coefficient w A, which is the gradient of
/// w A, and route `Current` the L-th part of it. Its logarithm grows with the length, so long responses leave any window, and
/// beyond ± [`firebrick_core::LOG_RATIO_LIMIT`] they have no gradient.
///
/// *Reference*: Ahmadian et al., "Back to basics: revisiting REINFORCE-style optimization for learning from human feedback in
/// LLMs", 2024, arXiv:2402.14740 (RLOO); the clipped ratio is that of public implementations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SequenceProduct {
    /// Which log-probs the gradient reaches.
    pub route: SequenceRoute,
}

impl ImportanceEstimator for SequenceProduct {
    fn log_weights(&self, response: &ResponseTokens<'_>, out: &mut [f64]) {
        out.fill(response.log_ratios().iter().sum());
    }

    fn pull_back(&self, _response: &ResponseTokens<'_>, upstream: &[f64], out: &mut [f64]) {
        match self.route {
            SequenceRoute::Sequence => out.fill(upstream.iter().sum()),
            SequenceRoute::Current => out.copy_from_slice(upstream),
        }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::Objective;
    use firebrick_testkit::{TestResponse, assert_all_close, assert_close, check_estimator};

    use super::*;
    use crate::{Composed, OpenWindow, PpoMin, TokenRatio};

    /// exp(0.1 − 0.2 + 0.3 + 0.05) = 1.284025, A = −2, a = 1/4.
    #[test]
    fn averaged_over_the_response_every_token_has_the_gradient_of_the_whole_weight() {
        let response = TestResponse::from_log_ratios(&[0.1, -0.2, 0.3, 0.05], &[-2.0; 4]);
        let terms = |route| {
            Composed::new(SequenceProduct { route }, OpenWindow, PpoMin::default())
                .evaluate(&response.tokens(), 0.25)
        };
        let whole = terms(SequenceRoute::Sequence);
        assert_close(whole.loss, 2.0 * 1.284_025_417, 1e-9, "loss");
        assert_all_close(&whole.coefficients, &[-2.0 * 1.284_025_417; 4], 1e-9, "sequence");
        let share = terms(SequenceRoute::Current);
        assert_all_close(&share.coefficients, &[-0.5 * 1.284_025_417; 4], 1e-9, "current");
    }

    #[test]
    fn on_one_token_it_is_the_token_ratio() {
        let response = TestResponse::from_log_ratios(&[0.37], &[1.0]);
        let (mut product, mut token) = ([0.0], [0.0]);
        SequenceProduct::default().log_weights(&response.tokens(), &mut product);
        TokenRatio.log_weights(&response.tokens(), &mut token);
        assert_eq!(product, token);
    }

    #[test]
    fn keeps_the_contract() {
        for route in [SequenceRoute::Sequence, SequenceRoute::Current] {
            check_estimator(SequenceProduct { route });
        }
    }
}

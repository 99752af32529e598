//! No importance weight.

use firebrick_core::{ImportanceEstimator, ResponseTokens};
use serde::{Deserialize, Serialize};

/// The weight 1 at every token: the plain policy gradient, which takes the batch for on-policy.
///
/// ```text
/// log w_t = 0
/// ∂ log w_t / ∂ log π_θ(y_k) = 1 if k = t, else 0
/// ```
///
/// With an open window each token has the coefficient A_t. Its logged value is A_t, where a score-function loss is
/// commonly written A_t · log π_θ(y_t); the gradient is the same. A token whose own log-ratio is saturated has no gradient
/// here either.
///
/// *Reference*: Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning", 1992;
/// as used by GPG, Chu et al., 2025, arXiv:2504.02546, and ReMax, Li et al., 2023, arXiv:2310.10505.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unweighted;

impl ImportanceEstimator for Unweighted {
    fn log_weights(&self, _response: &ResponseTokens<'_>, out: &mut [f64]) {
        out.fill(0.0);
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::Objective;
    use firebrick_testkit::{TestResponse, check_causality, check_estimator};

    use super::*;
    use crate::{Composed, OpenWindow, PpoMin};

    #[test]
    fn the_coefficient_is_the_advantage_however_far_the_policy_has_moved() {
        let response = TestResponse::from_log_ratios(&[0.1, -3.0, 5.0], &[1.5, -0.5, 2.0]);
        let objective = Composed::new(Unweighted, OpenWindow, PpoMin::default());
        let terms = objective.evaluate(&response.tokens(), 0.5);
        assert_eq!(terms.coefficients, [0.75, -0.25, 1.0]);
        assert_eq!(terms.loss, -1.5);
    }

    #[test]
    fn keeps_the_contract() {
        check_estimator(Unweighted);
        check_causality(&Unweighted);
    }
}

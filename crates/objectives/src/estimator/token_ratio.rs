//! The ratio of one token.

use firebrick_core::{ImportanceEstimator, ResponseTokens};
use serde::{Deserialize, Serialize};

/// Token importance ratio.
///
/// ```text
/// log w_t = d_t        d_t = log π_θ(y_t) − log π_anchor(y_t)
/// ```
///
/// *Reference*: Schulman et al., "Proximal policy optimization algorithms", 2017, arXiv:1707.06347.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRatio;

impl ImportanceEstimator for TokenRatio {
    fn log_weights(&self, response: &ResponseTokens<'_>, out: &mut [f64]) {
        out.copy_from_slice(response.log_ratios());
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, check_causality, check_estimator};

    use super::*;

    #[test]
    fn the_log_weight_is_the_log_ratio() {
        let response = TestResponse::from_log_ratios(&[0.1, -0.2], &[1.0, 1.0]);
        let mut out = [0.0; 2];
        TokenRatio.log_weights(&response.tokens(), &mut out);
        assert_eq!(out, [0.1, -0.2]);
    }

    #[test]
    fn keeps_the_contract() {
        check_estimator(TokenRatio);
        check_causality(&TokenRatio);
    }
}

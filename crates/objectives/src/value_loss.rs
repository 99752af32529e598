//! The clipped value loss of PPO.

use serde::{Deserialize, Serialize};

use crate::{ConfigError, config_error::require};

/// The clipped value loss of PPO, on the host.
///
/// ```text
/// loss = coefficient · a · Σ_t ½ max((V_t − U_t)², (clip(V_t, V_t^old − clip, V_t^old + clip) − U_t)²)
/// ```
///
/// V is the critic now, V^old at the start of the rollout batch, U the return; a is the aggregation weight.
///
/// *Reference*: Schulman et al., "Proximal policy optimization algorithms", 2017, arXiv:1707.06347; the clipping is
/// that of its public implementations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ValueLoss {
    /// How far a value may move from V^old before it has no gradient, in units of the reward; default 0.5.
    pub clip: f64,
    /// Weight beside the policy loss; default 0.5.
    pub coefficient: f64,
}

impl Default for ValueLoss {
    fn default() -> Self {
        Self { clip: 0.5, coefficient: 0.5 }
    }
}

/// What the value loss makes of one response.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ValueTerms {
    /// The response's share of the loss.
    pub loss: f64,
    /// Derivative of the loss with respect to each predicted value.
    pub gradient: Vec<f64>,
    /// Number of tokens whose loss is the clipped one.
    pub clipped: usize,
}

impl ValueLoss {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When the clip or the coefficient is not positive and finite.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (key, value) in [("clip", self.clip), ("coefficient", self.coefficient)] {
            require(value.is_finite() && value > 0.0, key, value, "a finite number > 0")?;
        }
        Ok(())
    }

    /// Loss and gradient of one response, whose every token has the aggregation weight `weight`. The slices hold one
    /// entry per policy token.
    pub fn evaluate(&self, values: &[f64], before: &[f64], returns: &[f64], weight: f64) -> ValueTerms {
        let mut terms = ValueTerms { gradient: Vec::with_capacity(values.len()), ..ValueTerms::default() };
        let scale = weight * self.coefficient;
        for ((value, before), target) in values.iter().zip(before).zip(returns) {
            let clipped = value.clamp(before - self.clip, before + self.clip);
            let (error, clipped_error) = (value - target, clipped - target);
            if clipped_error * clipped_error > error * error {
                terms.loss += scale * 0.5 * clipped_error * clipped_error;
                terms.gradient.push(0.0);
                terms.clipped += 1;
            } else {
                terms.loss += scale * 0.5 * error * error;
                terms.gradient.push(scale * error);
            }
        }
        terms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// V − U = 1 inside the clip: ½, gradient 1. V moved 2 towards U = 3 from 0, clipped to 0.5: (2.5)²/2, no gradient.
    #[test]
    fn the_worse_of_both_errors_counts() {
        let loss = ValueLoss { clip: 0.5, coefficient: 2.0 };
        let terms = loss.evaluate(&[1.25, 2.0], &[1.0, 0.0], &[0.25, 3.0], 0.5);
        assert_eq!(terms, ValueTerms { loss: 0.5 + 3.125, gradient: vec![1.0, 0.0], clipped: 1 });
    }

    #[test]
    fn numbers_that_are_not_positive_are_refused() {
        let error = ValueLoss { clip: 0.0, ..ValueLoss::default() }.validate().unwrap_err();
        assert_eq!(error.to_string(), "clip = 0: allowed is a finite number > 0");
        assert!(ValueLoss { coefficient: f64::NAN, ..ValueLoss::default() }.validate().is_err());
    }
}

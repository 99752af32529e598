//! The distribution that tokens are drawn from.

use serde::{Deserialize, Serialize};

use crate::TokenId;

/// How tokens are drawn: log-probs only mean something together with it.
///
/// Filters act on the distribution at `temperature`, in this order: top-k, top-p, min-p; what is left is renormalised.
/// A behaviour log-prob is the logarithm of that final distribution. A trainer must form its own log-probs from the
/// same distribution before it forms a ratio ([`Self::same_distribution`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SamplingSpec {
    /// Logits are divided by it; 0 is greedy decoding.
    pub temperature: f64,
    /// Keep the `k` most probable tokens; `None` keeps all.
    pub top_k: Option<usize>,
    /// Keep the smallest set of most probable tokens whose mass reaches `top_p`, in (0, 1]; 1 keeps all.
    pub top_p: f64,
    /// Keep tokens with at least `min_p` times the probability of the most probable one, in [0, 1); 0 keeps all.
    pub min_p: f64,
    /// Most tokens that are sampled.
    pub max_new_tokens: usize,
    /// Generation ends after one of these was sampled.
    pub stop_tokens: Vec<TokenId>,
}

impl Default for SamplingSpec {
    /// The model's own distribution, at most 128 new tokens, no stop token.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            max_new_tokens: 128,
            stop_tokens: Vec::new(),
        }
    }
}

impl SamplingSpec {
    /// Checks the ranges that the fields document.
    ///
    /// # Errors
    /// Names the field, its value and what is allowed.
    pub fn validate(&self) -> Result<(), SamplingError> {
        let error = |field, value: f64, allowed| Err(SamplingError::OutOfRange { field, value, allowed });
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return error("temperature", self.temperature, "a finite number, at least 0 (0 is greedy)");
        }
        if self.top_k == Some(0) {
            return error("top_k", 0.0, "at least 1; leave it out to keep all tokens");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return error("top_p", self.top_p, "in (0, 1]; 1 keeps all tokens");
        }
        if !(self.min_p >= 0.0 && self.min_p < 1.0) {
            return error("min_p", self.min_p, "in [0, 1); 0 keeps all tokens");
        }
        if self.max_new_tokens == 0 {
            return error("max_new_tokens", 0.0, "at least 1");
        }
        Ok(())
    }

    /// Whether every token of the vocabulary can be drawn, so that ratios need no replay of the kept set.
    pub fn has_full_support(&self) -> bool {
        self.top_k.is_none() && self.top_p >= 1.0 && self.min_p <= 0.0 && self.temperature > 0.0
    }

    /// Whether `other` draws from the same distribution (lengths and stop tokens may differ).
    pub fn same_distribution(&self, other: &Self) -> bool {
        self.temperature == other.temperature
            && self.top_k == other.top_k
            && self.top_p == other.top_p
            && self.min_p == other.min_p
    }
}

/// A sampling spec that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SamplingError {
    /// A field is out of its range.
    #[error("sampling.{field} = {value}: allowed is {allowed}")]
    OutOfRange {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: f64,
        /// What is allowed.
        allowed: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_field_is_named_with_its_value_and_range() {
        let spec = SamplingSpec { top_p: 0.0, ..SamplingSpec::default() };
        assert_eq!(
            spec.validate().unwrap_err().to_string(),
            "sampling.top_p = 0: allowed is in (0, 1]; 1 keeps all tokens"
        );
        assert!(SamplingSpec { temperature: f64::NAN, ..SamplingSpec::default() }.validate().is_err());
        assert!(SamplingSpec::default().validate().is_ok());
    }

    #[test]
    fn full_support_is_lost_by_each_filter() {
        let full = SamplingSpec::default();
        assert!(full.has_full_support());
        for spec in [
            SamplingSpec { top_k: Some(5), ..full.clone() },
            SamplingSpec { top_p: 0.9, ..full.clone() },
            SamplingSpec { min_p: 0.1, ..full.clone() },
            SamplingSpec { temperature: 0.0, ..full.clone() },
        ] {
            assert!(!spec.has_full_support());
            assert!(!spec.same_distribution(&full));
        }
    }
}

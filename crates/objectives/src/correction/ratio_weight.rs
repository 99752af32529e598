//! The importance weight from the policy that sampled to the proximal policy.

use firebrick_core::Corrected;
use serde::{Deserialize, Serialize};

use super::clamped;
use crate::{ConfigError, config_error::require};

/// Whose ratio a weight is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioLevel {
    /// Each token its own: ρ_t.
    #[default]
    Token,
    /// Every token the product over its response, Π_t ρ_t: the ratio of the probabilities of the whole response. (The
    /// sequence mean of GSPO is another number: its L-th root.)
    SequenceProduct,
}

/// A weight made of the ratio ρ = π_old/π_roll.
///
/// ```text
/// truncate:  max(low, min(ρ, high))
/// mask:      ρ · 1[low ≤ ρ ≤ high]                 a token outside is rejected
/// ```
///
/// With `batch_normalize` all weights are divided by their mean over the optimizer batch, masked ones included as zero: the
/// mean over tokens at level `token`, over responses at level `sequence_product`. log ρ_t and its sum over a response are
/// clamped to ± [`firebrick_core::LOG_RATIO_LIMIT`].
///
/// *Reference*: truncate: Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025, with
/// the default 2; mask: Ling Team, "Every step evolves", 2025, arXiv:2510.18855 (IcePop), with the defaults 0.5 and 5.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum RatioWeight {
    /// The ratio, cut to [low, high].
    Truncate {
        /// Whose ratio; default each token's.
        #[serde(default)]
        level: RatioLevel,
        /// Smallest weight, in [0, 1]; default 0.
        #[serde(default)]
        low: f64,
        /// Largest weight, at least 1; default 2.
        #[serde(default = "truncate_high")]
        high: f64,
        /// Whether weights are divided by their mean; default no.
        #[serde(default)]
        batch_normalize: bool,
    },
    /// The ratio inside [low, high]; tokens outside are rejected.
    Mask {
        /// Whose ratio; default each token's.
        #[serde(default)]
        level: RatioLevel,
        /// Smallest ratio that is kept, in [0, 1]; default 0.5.
        #[serde(default = "mask_low")]
        low: f64,
        /// Largest ratio that is kept, at least 1; default 5.
        #[serde(default = "mask_high")]
        high: f64,
        /// Whether weights are divided by their mean; default no.
        #[serde(default)]
        batch_normalize: bool,
    },
}

fn truncate_high() -> f64 {
    2.0
}

fn mask_low() -> f64 {
    0.5
}

fn mask_high() -> f64 {
    5.0
}

impl RatioWeight {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When the bounds do not lie on either side of 1, so that tokens without a gap would be changed.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (low, high) = self.bounds();
        validate_ratio_bounds(low, high)
    }

    /// Whose ratio it is.
    pub(super) fn level(&self) -> RatioLevel {
        match *self {
            Self::Truncate { level, .. } | Self::Mask { level, .. } => level,
        }
    }

    /// Whether it is divided by its mean.
    pub(super) fn batch_normalize(&self) -> bool {
        match *self {
            Self::Truncate { batch_normalize, .. } | Self::Mask { batch_normalize, .. } => batch_normalize,
        }
    }

    fn bounds(&self) -> (f64, f64) {
        match *self {
            Self::Truncate { low, high, .. } | Self::Mask { low, high, .. } => (low, high),
        }
    }

    /// Writes the weights, before they are divided by their mean, of a response with these log ρ_t.
    pub(super) fn apply(&self, log_ratios: &[f64], out: &mut [Corrected]) {
        match self.level() {
            RatioLevel::Token => {
                for (token, log_ratio) in out.iter_mut().zip(log_ratios) {
                    *token = self.corrected(*log_ratio);
                }
            }
            RatioLevel::SequenceProduct => out.fill(self.corrected(clamped(log_ratios.iter().sum()))),
        }
    }

    fn corrected(&self, log_ratio: f64) -> Corrected {
        let ratio = log_ratio.exp();
        match *self {
            Self::Truncate { low, high, .. } => Corrected { weight: ratio.clamp(low, high), keep: true },
            Self::Mask { low, high, .. } if low.ln() <= log_ratio && log_ratio <= high.ln() => {
                Corrected { weight: ratio, keep: true }
            }
            Self::Mask { .. } => Corrected { weight: 0.0, keep: false },
        }
    }
}

/// Refuses an interval of ratios that does not hold 1.
pub(super) fn validate_ratio_bounds(low: f64, high: f64) -> Result<(), ConfigError> {
    require((0.0..=1.0).contains(&low), "low", low, "in [0, 1]")?;
    require(high.is_finite() && high >= 1.0, "high", high, "a finite number >= 1")
}

#[cfg(test)]
mod tests {
    use firebrick_core::ImportanceEstimator;
    use firebrick_testkit::{TestResponse, assert_all_close};

    use super::*;
    use crate::SequenceMean;

    fn apply(text: &str, ratios: &[f64]) -> Vec<(f64, bool)> {
        let weight: RatioWeight = toml::from_str(text).unwrap();
        weight.validate().unwrap();
        let log_ratios: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let mut out = vec![Corrected::default(); ratios.len()];
        weight.apply(&log_ratios, &mut out);
        out.iter().map(|token| ((token.weight * 1e12).round() / 1e12, token.keep)).collect()
    }

    #[test]
    fn a_truncated_weight_stays_at_the_bound_and_a_masked_one_is_rejected() {
        let ratios = [0.25, 0.5, 1.5, 2.0, 4.0];
        assert_eq!(
            apply("type = 'truncate'\nlow = 0.5", &ratios),
            [(0.5, true), (0.5, true), (1.5, true), (2.0, true), (2.0, true)]
        );
        assert_eq!(
            apply("type = 'mask'\nhigh = 2.0", &ratios),
            [(0.0, false), (0.5, true), (1.5, true), (2.0, true), (0.0, false)]
        );
    }

    /// TRL #5814: the weight of a response is the product of its ratios, 1.5 · 0.5 · 2 = 1.5. Their geometric mean,
    /// 1.5^(1/3) = 1.144714, is the ratio that GSPO clips and no importance weight.
    #[test]
    fn a_response_is_weighed_by_the_product_where_gspo_clips_the_geometric_mean() {
        let ratios = [1.5, 0.5, 2.0];
        let found = apply("type = 'truncate'\nlevel = 'sequence_product'", &ratios);
        assert_eq!(found, [(1.5, true); 3]);
        let response = TestResponse::from_log_ratios(&ratios.map(f64::ln), &[1.0; 3]);
        let mut log_weights = [0.0; 3];
        SequenceMean::default().log_weights(&response.tokens(), &mut log_weights);
        assert_all_close(&log_weights.map(f64::exp), &[1.144_714_2; 3], 1e-7, "geometric mean");
    }

    #[test]
    fn one_ratio_far_outside_masks_the_whole_response_at_sequence_level() {
        let text = "type = 'mask'\nlevel = 'sequence_product'";
        assert_eq!(apply(text, &[1.0, 6.0, 1.0]), [(0.0, false); 3]);
        assert_eq!(apply(text, &[0.5, 6.0, 1.0]), [(3.0, true); 3]);
    }

    #[test]
    fn a_product_beyond_all_numbers_stays_finite() {
        let weight: RatioWeight =
            toml::from_str("type = 'truncate'\nlevel = 'sequence_product'\nhigh = 1e300").unwrap();
        let mut out = vec![Corrected::default(); 100];
        weight.apply(&[20.0; 100], &mut out);
        assert_eq!(out[0].weight, 20f64.exp());
    }

    #[test]
    fn bounds_that_exclude_one_are_refused() {
        let error = |text: &str| toml::from_str::<RatioWeight>(text).unwrap().validate().unwrap_err();
        assert_eq!(error("type = 'mask'\nlow = 1.5").to_string(), "low = 1.5: allowed is in [0, 1]");
        assert_eq!(
            error("type = 'truncate'\nhigh = 0.5").to_string(),
            "high = 0.5: allowed is a finite number >= 1"
        );
        assert!(toml::from_str::<RatioWeight>("type = 'mask'\ncap = 2.0").is_err());
    }
}

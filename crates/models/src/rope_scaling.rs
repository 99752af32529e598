//! How rotary angles are changed for contexts beyond those of pretraining.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};

use crate::{ModelError, config::require};

/// A change of the rotary frequencies, under the names of Hugging Face's `rope_scaling`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rope_type", rename_all = "snake_case", deny_unknown_fields)]
pub enum RopeScaling {
    /// All frequencies divided by `factor`.
    ///
    /// *Reference*: Chen et al., "Extending Context Window of Large Language Models via Positional Interpolation", 2023,
    /// arXiv:2306.15595.
    Linear {
        /// How much longer the context becomes.
        factor: f64,
    },
    /// Slow pairs are divided by `factor`, fast ones kept, those between blended.
    ///
    /// *Reference*: Grattafiori et al., "The Llama 3 Herd of Models", 2024, arXiv:2407.21783; the formula is that of the
    /// released models.
    Llama3 {
        /// How much longer the context becomes.
        factor: f64,
        /// Pairs that turn less often than this over the original context are slow.
        low_freq_factor: f64,
        /// Pairs that turn more often than this over the original context are fast.
        high_freq_factor: f64,
        /// The context of pretraining, in positions.
        original_max_position_embeddings: usize,
    },
    /// As [`Self::Llama3`] with a ramp over the pairs, and cosines and sines scaled, which sharpens attention.
    ///
    /// *Reference*: Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023, arXiv:2309.00071.
    Yarn {
        /// How much longer the context becomes.
        factor: f64,
        /// The context of pretraining, in positions.
        original_max_position_embeddings: usize,
        /// Pairs that turn more often than this over the original context are kept (default 32).
        #[serde(default = "default_beta_fast")]
        beta_fast: f64,
        /// Pairs that turn less often than this over the original context are divided (default 1).
        #[serde(default = "default_beta_slow")]
        beta_slow: f64,
        /// What cosines and sines are multiplied by; 0.1·ln(factor) + 1 when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attention_factor: Option<f64>,
        /// Whether the ends of the ramp are rounded to whole pairs (default: yes).
        #[serde(default = "yes")]
        truncate: bool,
    },
}

fn default_beta_fast() -> f64 {
    32.0
}

fn default_beta_slow() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

/// The angles per position of each pair, and what their cosines and sines are multiplied by.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RotaryFrequencies {
    /// Radians per position, one for each pair.
    pub(crate) per_position: Vec<f64>,
    /// 1 unless the scaling says otherwise.
    pub(crate) amplitude: f64,
}

impl RotaryFrequencies {
    /// θ^(−2i/E) for each pair i of a head of width E, changed as `scaling` says.
    pub(crate) fn new(head: usize, theta: f64, scaling: Option<&RopeScaling>) -> Self {
        let plain: Vec<f64> =
            (0..head / 2).map(|pair| theta.powf(-2.0 * pair as f64 / head as f64)).collect();
        match scaling {
            None => Self { per_position: plain, amplitude: 1.0 },
            Some(scaling) => scaling.apply(plain, head, theta),
        }
    }
}

impl RopeScaling {
    fn apply(&self, plain: Vec<f64>, head: usize, theta: f64) -> RotaryFrequencies {
        let mut amplitude = 1.0;
        let per_position = match *self {
            Self::Linear { factor } => plain.into_iter().map(|frequency| frequency / factor).collect(),
            Self::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } => {
                let kept_share = |frequency: f64| {
                    let turns = original_max_position_embeddings as f64 * frequency / TAU;
                    (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
                };
                plain.into_iter().map(|frequency| blended(frequency, factor, kept_share(frequency))).collect()
            }
            Self::Yarn {
                factor,
                original_max_position_embeddings,
                beta_fast,
                beta_slow,
                attention_factor,
                truncate,
            } => {
                amplitude = attention_factor.unwrap_or_else(|| yarn_magnitude(factor, 1.0));
                // The pair that turns `turns` times over the original context, as a real number.
                let pair_of = |turns: f64| {
                    let original = original_max_position_embeddings as f64;
                    head as f64 * (original / (turns * TAU)).ln() / (2.0 * theta.ln())
                };
                let (mut first, mut last) = (pair_of(beta_fast), pair_of(beta_slow));
                if truncate {
                    (first, last) = (first.floor(), last.ceil());
                }
                (first, last) = (first.max(0.0), last.min(head as f64 - 1.0));
                if first == last {
                    last += 0.001; // the ramp has a finite slope
                }
                let kept_share = |pair: usize| 1.0 - (pair as f64 - first) / (last - first);
                let pairs = plain.into_iter().enumerate();
                pairs.map(|(pair, frequency)| blended(frequency, factor, kept_share(pair))).collect()
            }
        };
        RotaryFrequencies { per_position, amplitude }
    }

    /// Checks every range.
    pub(crate) fn validate(&self) -> Result<(), ModelError> {
        let positive = |key, value: f64| {
            require(value.is_finite() && value > 0.0, key, value, "a finite number above 0")
        };
        match *self {
            Self::Linear { factor } => positive("rope_scaling.factor", factor),
            Self::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } => {
                positive("rope_scaling.factor", factor)?;
                positive("rope_scaling.low_freq_factor", low_freq_factor)?;
                require(
                    high_freq_factor.is_finite() && high_freq_factor > low_freq_factor,
                    "rope_scaling.high_freq_factor",
                    high_freq_factor,
                    format!("a finite number above low_freq_factor ({low_freq_factor})"),
                )?;
                original_positions(original_max_position_embeddings)
            }
            Self::Yarn {
                factor,
                original_max_position_embeddings,
                beta_fast,
                beta_slow,
                attention_factor,
                ..
            } => {
                positive("rope_scaling.factor", factor)?;
                positive("rope_scaling.beta_slow", beta_slow)?;
                require(
                    beta_fast.is_finite() && beta_fast >= beta_slow,
                    "rope_scaling.beta_fast",
                    beta_fast,
                    format!("a finite number, at least beta_slow ({beta_slow})"),
                )?;
                attention_factor.map_or(Ok(()), |value| positive("rope_scaling.attention_factor", value))?;
                original_positions(original_max_position_embeddings)
            }
        }
    }
}

fn original_positions(positions: usize) -> Result<(), ModelError> {
    require(positions > 0, "rope_scaling.original_max_position_embeddings", positions, "at least 1")
}

/// The frequency kept to a share in [0, 1], and divided by `factor` for the rest.
fn blended(frequency: f64, factor: f64, kept_share: f64) -> f64 {
    let kept_share = kept_share.clamp(0.0, 1.0);
    frequency * (kept_share + (1.0 - kept_share) / factor)
}

/// 0.1 · weight · ln(factor) + 1, at least 1.
pub(crate) fn yarn_magnitude(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frequencies(scaling: &RopeScaling) -> RotaryFrequencies {
        RotaryFrequencies::new(8, 10_000.0, Some(scaling))
    }

    #[test]
    fn linear_scaling_divides_every_frequency() {
        let scaled = frequencies(&RopeScaling::Linear { factor: 4.0 });
        assert_eq!(scaled.per_position, [0.25, 0.025, 0.0025, 0.00025]);
        assert_eq!(scaled.amplitude, 1.0);
    }

    /// Over 1,000 positions the pairs turn 159, 15.9, 1.59 and 0.159 times.
    #[test]
    fn llama3_keeps_fast_pairs_divides_slow_ones_and_blends_between() {
        let scaled = frequencies(&RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 1000,
        });
        assert_eq!(scaled.per_position[..2], [1.0, 0.1]);
        let kept = (1000.0 * 0.01 / TAU - 1.0) / 3.0;
        assert!((scaled.per_position[2] - 0.01 * (kept + (1.0 - kept) / 8.0)).abs() < 1e-15);
        assert_eq!(scaled.per_position[3], 0.001 / 8.0);
    }

    /// The ramp begins at pair ⌊0.697⌋ = 0, where a pair turns 32 times, and ends at ⌈2.202⌉ = 3, where it turns once.
    #[test]
    fn yarn_ramps_over_the_pairs_and_sharpens_attention() {
        let yarn = |attention_factor| RopeScaling::Yarn {
            factor: 4.0,
            original_max_position_embeddings: 1000,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor,
            truncate: true,
        };
        let scaled = frequencies(&yarn(None));
        for (pair, frequency) in scaled.per_position.iter().enumerate() {
            let kept = 1.0 - pair as f64 / 3.0;
            let expected = 10f64.powi(-(pair as i32)) * (kept + (1.0 - kept) / 4.0);
            assert!((frequency - expected).abs() < 1e-12, "pair {pair}: {frequency}, {expected}");
        }
        assert!((scaled.amplitude - (0.1 * 4f64.ln() + 1.0)).abs() < 1e-15);
        assert_eq!(frequencies(&yarn(Some(1.25))).amplitude, 1.25);
    }

    #[test]
    fn a_bad_number_is_named() {
        let message = |scaling: RopeScaling| scaling.validate().unwrap_err().to_string();
        assert!(message(RopeScaling::Linear { factor: 0.0 }).contains("rope_scaling.factor = 0"));
        let llama = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 4.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 8192,
        };
        assert!(message(llama).contains("above low_freq_factor (4)"));
    }
}

//! How token contributions become one loss: the one place that divides by numbers of tokens or sequences.

use serde::{Deserialize, Serialize};

use crate::{ConfigError, config_error::require};

/// Number of policy tokens and of responses in a whole optimizer batch, fixed before the batch is split.
///
/// Rows that are excluded from the loss are left out by the caller; tokens that a gate stops are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denominator {
    tokens: usize,
    sequences: usize,
}

impl Denominator {
    /// Counts the policy tokens and the responses that have at least one, from the lengths of all responses.
    ///
    /// # Errors
    /// [`EmptyBatch`] when no response has a policy token.
    pub fn of(lengths: impl IntoIterator<Item = usize>) -> Result<Self, EmptyBatch> {
        let mut counts = Self { tokens: 0, sequences: 0 };
        for len in lengths {
            counts.tokens += len;
            counts.sequences += usize::from(len > 0);
        }
        if counts.tokens == 0 { Err(EmptyBatch) } else { Ok(counts) }
    }

    /// As [`Self::of`], but counts the responses without a policy token too: they are zeros in every mean over responses. It is the
    /// rule of some other implementations, and no part of this crate uses it.
    ///
    /// # Errors
    /// [`EmptyBatch`] when no response has a policy token.
    pub fn counting_empty(lengths: impl IntoIterator<Item = usize>) -> Result<Self, EmptyBatch> {
        let mut sequences = 0;
        let counts = Self::of(lengths.into_iter().inspect(|_| sequences += 1))?;
        Ok(Self { sequences, ..counts })
    }

    /// Number of policy tokens, N_tok.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Number of responses, N_seq: those with at least one policy token, unless [`Self::counting_empty`] counted them.
    pub fn sequences(&self) -> usize {
        self.sequences
    }
}

/// An optimizer batch without a single policy token: there is no loss, and no optimizer step to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the optimizer batch has no policy token: skip the step, and find why all responses are excluded or empty"
)]
pub struct EmptyBatch;

/// How token contributions J are averaged into the objective. N_tok and N_seq are those of the whole
/// optimizer batch, L_i the number of policy tokens of response i.
///
/// *Reference*: the averages of Shao et al., 2024, arXiv:2402.03300 (sequence mean of token means); Yu et
/// al., 2025, arXiv:2503.14476 (token mean); Liu et al., "Understanding R1-Zero-like training", 2025,
/// arXiv:2503.20783 (sum over a constant); Yang et al., "DCPO", 2025, arXiv:2509.02333 (sum of token means).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "AggregationTable", into = "AggregationTable")]
pub enum Aggregation {
    /// (1/N_tok) Σ_i Σ_t J.
    TokenMean,
    /// Σ_i Σ_t J.
    TokenSum,
    /// (1/N_seq) Σ_i (1/L_i) Σ_t J.
    SeqMeanTokenMean,
    /// (1/N_seq) Σ_i Σ_t J.
    SeqMeanTokenSum,
    /// (1/(norm · N_seq)) Σ_i Σ_t J.
    SeqMeanTokenSumNorm {
        /// A constant, usually the limit on response tokens.
        norm: f64,
    },
    /// Σ_i (1/L_i) Σ_t J.
    SeqSumTokenMean,
}

impl Aggregation {
    /// Weight of each of the `response_len` policy tokens of a response; zero when there is none.
    pub fn weight(&self, denominator: &Denominator, response_len: usize) -> f64 {
        if response_len == 0 {
            return 0.0;
        }
        let tokens = denominator.tokens as f64;
        let sequences = denominator.sequences as f64;
        let len = response_len as f64;
        match *self {
            Self::TokenMean => 1.0 / tokens,
            Self::TokenSum => 1.0,
            Self::SeqMeanTokenMean => 1.0 / (sequences * len),
            Self::SeqMeanTokenSum => 1.0 / sequences,
            Self::SeqMeanTokenSumNorm { norm } => 1.0 / (norm * sequences),
            Self::SeqSumTokenMean => 1.0 / len,
        }
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// When the constant is not positive and finite.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match *self {
            Self::SeqMeanTokenSumNorm { norm } => {
                require(norm.is_finite() && norm > 0.0, "norm", norm, "a finite number > 0")
            }
            _ => Ok(()),
        }
    }
}

/// The form of [`Aggregation`] in a config file. A tagged enum would accept a stray `norm` silently.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AggregationTable {
    r#type: AggregationKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    norm: Option<f64>,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum AggregationKind {
    TokenMean,
    TokenSum,
    SeqMeanTokenMean,
    SeqMeanTokenSum,
    SeqMeanTokenSumNorm,
    SeqSumTokenMean,
}

#[derive(Debug, thiserror::Error)]
enum AggregationTableError {
    #[error("aggregation `seq_mean_token_sum_norm` needs `norm`, such as the limit on response tokens")]
    MissingNorm,
    #[error("`norm` belongs to aggregation `seq_mean_token_sum_norm` only; remove it or change `type`")]
    StrayNorm,
}

impl TryFrom<AggregationTable> for Aggregation {
    type Error = AggregationTableError;

    fn try_from(table: AggregationTable) -> Result<Self, Self::Error> {
        match (table.r#type, table.norm) {
            (AggregationKind::SeqMeanTokenSumNorm, Some(norm)) => Ok(Self::SeqMeanTokenSumNorm { norm }),
            (AggregationKind::SeqMeanTokenSumNorm, None) => Err(AggregationTableError::MissingNorm),
            (_, Some(_)) => Err(AggregationTableError::StrayNorm),
            (AggregationKind::TokenMean, None) => Ok(Self::TokenMean),
            (AggregationKind::TokenSum, None) => Ok(Self::TokenSum),
            (AggregationKind::SeqMeanTokenMean, None) => Ok(Self::SeqMeanTokenMean),
            (AggregationKind::SeqMeanTokenSum, None) => Ok(Self::SeqMeanTokenSum),
            (AggregationKind::SeqSumTokenMean, None) => Ok(Self::SeqSumTokenMean),
        }
    }
}

impl From<Aggregation> for AggregationTable {
    fn from(aggregation: Aggregation) -> Self {
        let table = |kind, norm| Self { r#type: kind, norm };
        match aggregation {
            Aggregation::TokenMean => table(AggregationKind::TokenMean, None),
            Aggregation::TokenSum => table(AggregationKind::TokenSum, None),
            Aggregation::SeqMeanTokenMean => table(AggregationKind::SeqMeanTokenMean, None),
            Aggregation::SeqMeanTokenSum => table(AggregationKind::SeqMeanTokenSum, None),
            Aggregation::SeqMeanTokenSumNorm { norm } => {
                table(AggregationKind::SeqMeanTokenSumNorm, Some(norm))
            }
            Aggregation::SeqSumTokenMean => table(AggregationKind::SeqSumTokenMean, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Aggregation; 6] = [
        Aggregation::TokenMean,
        Aggregation::TokenSum,
        Aggregation::SeqMeanTokenMean,
        Aggregation::SeqMeanTokenSum,
        Aggregation::SeqMeanTokenSumNorm { norm: 16.0 },
        Aggregation::SeqSumTokenMean,
    ];

    /// Lengths 4, 2, 0, 2: 8 tokens in 3 sequences.
    #[test]
    fn a_response_without_tokens_is_counted_on_request_only() {
        let lengths = [2, 0, 3];
        assert_eq!(Denominator::of(lengths).unwrap(), Denominator { tokens: 5, sequences: 2 });
        assert_eq!(Denominator::counting_empty(lengths).unwrap(), Denominator { tokens: 5, sequences: 3 });
        assert_eq!(Denominator::counting_empty([0, 0]), Err(EmptyBatch));
    }

    #[test]
    fn the_weights_are_those_worked_by_hand() {
        let denominator = Denominator::of([4, 2, 0, 2]).unwrap();
        let weights = ALL.map(|aggregation| aggregation.weight(&denominator, 4));
        assert_eq!(weights, [1.0 / 8.0, 1.0, 1.0 / 12.0, 1.0 / 3.0, 1.0 / 48.0, 1.0 / 4.0]);
    }

    /// miles #2796: four tokens and one fully masked sample divide by 4, not by 5.
    #[test]
    fn an_empty_response_is_counted_neither_as_a_token_nor_as_a_sequence() {
        let denominator = Denominator::of([4, 0]).unwrap();
        assert_eq!((denominator.tokens(), denominator.sequences()), (4, 1));
        for aggregation in ALL {
            assert_eq!(aggregation.weight(&denominator, 0), 0.0);
        }
    }

    #[test]
    fn a_batch_without_tokens_has_no_denominator() {
        assert_eq!(Denominator::of([0, 0]), Err(EmptyBatch));
        assert_eq!(Denominator::of([]), Err(EmptyBatch));
    }

    #[test]
    fn every_mode_survives_a_round_trip_through_json_and_toml() {
        for aggregation in ALL {
            let json = serde_json::to_string(&aggregation).unwrap();
            assert_eq!(serde_json::from_str::<Aggregation>(&json).unwrap(), aggregation, "{json}");
            let toml = toml::to_string(&aggregation).unwrap();
            assert_eq!(toml::from_str::<Aggregation>(&toml).unwrap(), aggregation, "{toml}");
        }
        assert_eq!(toml::to_string(&ALL[4]).unwrap(), "type = \"seq_mean_token_sum_norm\"\nnorm = 16.0\n");
    }

    #[test]
    fn a_missing_or_stray_norm_is_refused_with_the_fix() {
        let missing = toml::from_str::<Aggregation>("type = \"seq_mean_token_sum_norm\"").unwrap_err();
        assert!(missing.to_string().contains("needs `norm`"), "{missing}");
        let stray = toml::from_str::<Aggregation>("type = \"token_mean\"\nnorm = 4.0").unwrap_err();
        assert!(stray.to_string().contains("remove it or change `type`"), "{stray}");
        assert!(Aggregation::SeqMeanTokenSumNorm { norm: 0.0 }.validate().is_err());
    }
}

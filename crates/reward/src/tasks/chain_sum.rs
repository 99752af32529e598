//! Sums and differences of several numbers.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Fields, Generate, TaskError, check_order, check_range};

/// Settings of `chain_sum`: `12 + 7 - 30 =`, whose answer is `-11`.
///
/// The number of terms and the number of digits of a problem are drawn uniformly, then its terms and signs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChainSumConfig {
    /// Fewest terms, 1 to 64. Default 2.
    pub min_terms: u32,
    /// Most terms, 1 to 64. Default 6.
    pub max_terms: u32,
    /// Fewest decimal digits of a term, 1 to 12; terms of one digit include 0. Default 1.
    pub min_digits: u32,
    /// Most decimal digits of a term, 1 to 12. Default 4.
    pub max_digits: u32,
    /// Whether terms may be negative or shorter: they are then drawn between plus and minus the largest number of so many digits.
    /// Default false.
    pub allow_negation: bool,
}

impl Default for ChainSumConfig {
    fn default() -> Self {
        Self { min_terms: 2, max_terms: 6, min_digits: 1, max_digits: 4, allow_negation: false }
    }
}

impl ChainSumConfig {
    pub(super) fn validate(&self) -> Result<(), TaskError> {
        check_range("min_terms", self.min_terms, 1, 64)?;
        check_range("max_terms", self.max_terms, 1, 64)?;
        check_order(("min_terms", self.min_terms), ("max_terms", self.max_terms))?;
        check_range("min_digits", self.min_digits, 1, 12)?;
        check_range("max_digits", self.max_digits, 1, 12)?;
        check_order(("min_digits", self.min_digits), ("max_digits", self.max_digits))
    }

    pub(super) fn build(&self) -> Self {
        self.clone()
    }
}

impl Generate for ChainSumConfig {
    fn fields(&self, rng: &mut ChaCha8Rng) -> Fields {
        let terms = rng.random_range(self.min_terms..=self.max_terms);
        let digits = rng.random_range(self.min_digits..=self.max_digits);
        let high = 10i64.pow(digits) - 1;
        let low = match (self.allow_negation, digits) {
            (true, _) => -high,
            (false, 1) => 0,
            (false, digits) => 10i64.pow(digits - 1),
        };
        let mut sum = rng.random_range(low..=high);
        let mut text = sum.to_string();
        for _ in 1..terms {
            let plus = rng.random::<bool>();
            let term = rng.random_range(low..=high);
            sum += if plus { term } else { -term };
            text += &format!(" {} {term}", if plus { '+' } else { '-' });
        }
        Fields::new(format!("{text} ="), sum.to_string()).with("terms", terms).with("digits", digits)
    }
}

//! Greatest common divisors.

use num_integer::Integer;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Fields, Generate, TaskError, check_order, check_range};

/// Settings of `gcd`: `gcd(12, 18) =`, whose answer is `6`.
///
/// A common factor is drawn first, up to a quarter of the largest number, so that few answers are 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GcdConfig {
    /// Fewest numbers, 2 to 8. Default 2.
    pub min_numbers: u32,
    /// Most numbers, 2 to 8. Default 2.
    pub max_numbers: u32,
    /// Smallest number, 1 to 10¹². Default 1.
    pub min_value: i64,
    /// Largest number, 1 to 10¹². Default 1000.
    pub max_value: i64,
}

/// Largest number that may be asked for.
const MOST: i64 = 1_000_000_000_000;

impl Default for GcdConfig {
    fn default() -> Self {
        Self { min_numbers: 2, max_numbers: 2, min_value: 1, max_value: 1000 }
    }
}

impl GcdConfig {
    pub(super) fn validate(&self) -> Result<(), TaskError> {
        check_range("min_numbers", self.min_numbers, 2, 8)?;
        check_range("max_numbers", self.max_numbers, 2, 8)?;
        check_order(("min_numbers", self.min_numbers), ("max_numbers", self.max_numbers))?;
        check_range("min_value", self.min_value, 1, MOST)?;
        check_range("max_value", self.max_value, 1, MOST)?;
        check_order(("min_value", self.min_value), ("max_value", self.max_value))
    }

    pub(super) fn build(&self) -> Self {
        self.clone()
    }
}

impl Generate for GcdConfig {
    fn fields(&self, rng: &mut ChaCha8Rng) -> Fields {
        let count = rng.random_range(self.min_numbers..=self.max_numbers);
        let drawn = rng.random_range(1..=(self.max_value / 4).max(1));
        let multiples = |factor: i64| Integer::div_ceil(&self.min_value, &factor)..=self.max_value / factor;
        let factor = if multiples(drawn).is_empty() { 1 } else { drawn };
        let numbers: Vec<i64> = (0..count).map(|_| factor * rng.random_range(multiples(factor))).collect();
        let answer = numbers.iter().fold(0, |so_far: i64, number| so_far.gcd(number));
        let written: Vec<String> = numbers.iter().map(i64::to_string).collect();
        Fields::new(format!("gcd({}) =", written.join(", ")), answer.to_string()).with("numbers", numbers)
    }
}

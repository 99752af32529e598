//! Least common multiples.

use num_integer::Integer;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Fields, Generate, TaskError, check_order, check_range};

/// Settings of `lcm`: `lcm(12, 18) =`, whose answer is `36`.
///
/// The numbers are drawn uniformly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LcmConfig {
    /// Fewest numbers, 2 to 8. Default 2.
    pub min_numbers: u32,
    /// Most numbers, 2 to 8. Default 2.
    pub max_numbers: u32,
    /// Smallest number, 1 to 10⁶. Default 1.
    pub min_value: i64,
    /// Largest number, 1 to 10⁶; its power `max_numbers` may not exceed 9·10¹⁸. Default 100.
    pub max_value: i64,
}

impl Default for LcmConfig {
    fn default() -> Self {
        Self { min_numbers: 2, max_numbers: 2, min_value: 1, max_value: 100 }
    }
}

impl LcmConfig {
    pub(super) fn validate(&self) -> Result<(), TaskError> {
        check_range("min_numbers", self.min_numbers, 2, 8)?;
        check_range("max_numbers", self.max_numbers, 2, 8)?;
        check_order(("min_numbers", self.min_numbers), ("max_numbers", self.max_numbers))?;
        check_range("min_value", self.min_value, 1, 1_000_000)?;
        check_range("max_value", self.max_value, 1, 1_000_000)?;
        check_order(("min_value", self.min_value), ("max_value", self.max_value))?;
        if self.max_value.checked_pow(self.max_numbers).is_none() {
            let allowed =
                format!("less, so that its power max_numbers = {} stays below 9·10¹⁸", self.max_numbers);
            return Err(TaskError::setting("max_value", self.max_value, allowed));
        }
        Ok(())
    }

    pub(super) fn build(&self) -> Self {
        self.clone()
    }
}

impl Generate for LcmConfig {
    fn fields(&self, rng: &mut ChaCha8Rng) -> Fields {
        let count = rng.random_range(self.min_numbers..=self.max_numbers);
        let numbers: Vec<i64> =
            (0..count).map(|_| rng.random_range(self.min_value..=self.max_value)).collect();
        let answer = numbers.iter().fold(1, |so_far: i64, number| so_far.lcm(number));
        let written: Vec<String> = numbers.iter().map(i64::to_string).collect();
        Fields::new(format!("lcm({}) =", written.join(", ")), answer.to_string()).with("numbers", numbers)
    }
}

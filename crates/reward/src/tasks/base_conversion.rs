//! Numbers in other bases.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Fields, Generate, TaskError, check_order, check_range};

/// Settings of `base_conversion`: `Convert 255 from base 10 to base 16.`, whose answer is `ff`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BaseConversionConfig {
    /// Smallest base, 2 to 35. Default 2.
    pub min_base: u32,
    /// Largest base, above the smallest, at most 36. Default 16.
    pub max_base: u32,
    /// Smallest number, 0 to 10¹⁵. Default 0.
    pub min_value: u64,
    /// Largest number, 0 to 10¹⁵. Default 1000.
    pub max_value: u64,
}

impl Default for BaseConversionConfig {
    fn default() -> Self {
        Self { min_base: 2, max_base: 16, min_value: 0, max_value: 1000 }
    }
}

impl BaseConversionConfig {
    pub(super) fn validate(&self) -> Result<(), TaskError> {
        check_range("min_base", self.min_base, 2, 35)?;
        check_range("max_base", self.max_base, self.min_base + 1, 36)?;
        check_range("min_value", self.min_value, 0, 1_000_000_000_000_000)?;
        check_range("max_value", self.max_value, 0, 1_000_000_000_000_000)?;
        check_order(("min_value", self.min_value), ("max_value", self.max_value))
    }

    pub(super) fn build(&self) -> Self {
        self.clone()
    }
}

impl Generate for BaseConversionConfig {
    fn fields(&self, rng: &mut ChaCha8Rng) -> Fields {
        let value = rng.random_range(self.min_value..=self.max_value);
        let from = rng.random_range(self.min_base..=self.max_base);
        let other = rng.random_range(self.min_base..self.max_base);
        let to = if other < from { other } else { other + 1 }; // any base but `from`
        let prompt = format!("Convert {} from base {from} to base {to}.", in_base(value, from));
        Fields::new(prompt, in_base(value, to)).with("base", to).with("from_base", from)
    }
}

/// The digits of a number, the letters among them in lower case.
pub(super) fn in_base(mut value: u64, base: u32) -> String {
    let mut digits = Vec::new();
    loop {
        let digit = (value % u64::from(base)) as u32;
        digits.push(char::from_digit(digit, base).expect("a remainder is a digit"));
        value /= u64::from(base);
        if value == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

//! Fractions in lowest terms.

use num_integer::Integer;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Fields, Generate, TaskError, check_order, check_range};

/// Settings of `fraction_simplification`: `Simplify 12/18.`, whose answer is `2/3`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FractionSimplificationConfig {
    /// Smallest numerator and denominator before they are reduced, 1 to 10⁹. Default 1.
    pub min_value: i64,
    /// Largest numerator and denominator of the answer, 1 to 10⁹. Default 1000.
    pub max_value: i64,
    /// Smallest factor that numerator and denominator of the answer are multiplied by, 1 to 10⁶. Default 2.
    pub min_factor: i64,
    /// Largest factor, 1 to 10⁶. Default 100.
    pub max_factor: i64,
}

impl Default for FractionSimplificationConfig {
    fn default() -> Self {
        Self { min_value: 1, max_value: 1000, min_factor: 2, max_factor: 100 }
    }
}

impl FractionSimplificationConfig {
    pub(super) fn validate(&self) -> Result<(), TaskError> {
        check_range("min_value", self.min_value, 1, 1_000_000_000)?;
        check_range("max_value", self.max_value, 1, 1_000_000_000)?;
        check_order(("min_value", self.min_value), ("max_value", self.max_value))?;
        check_range("min_factor", self.min_factor, 1, 1_000_000)?;
        check_range("max_factor", self.max_factor, 1, 1_000_000)?;
        check_order(("min_factor", self.min_factor), ("max_factor", self.max_factor))
    }

    pub(super) fn build(&self) -> Self {
        self.clone()
    }
}

impl Generate for FractionSimplificationConfig {
    fn fields(&self, rng: &mut ChaCha8Rng) -> Fields {
        let a = rng.random_range(self.min_value..=self.max_value);
        let b = rng.random_range(self.min_value..=self.max_value);
        let factor = rng.random_range(self.min_factor..=self.max_factor);
        let common = a.gcd(&b);
        let (a, b) = (a / common, b / common);
        Fields::new(format!("Simplify {}/{}.", a * factor, b * factor), format!("{a}/{b}"))
            .with("factor", factor)
    }
}

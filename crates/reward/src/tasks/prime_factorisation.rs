//! Numbers as products of primes.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Fields, Generate, TaskError, check_order, check_range};

/// Settings of `prime_factorisation`: `Factorise 12.`, whose answer is `2 * 2 * 3`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PrimeFactorisationConfig {
    /// Smallest number, 2 to 10⁹. Default 2.
    pub min_value: u64,
    /// Largest number, 2 to 10⁹. Default 1000.
    pub max_value: u64,
}

impl Default for PrimeFactorisationConfig {
    fn default() -> Self {
        Self { min_value: 2, max_value: 1000 }
    }
}

impl PrimeFactorisationConfig {
    pub(super) fn validate(&self) -> Result<(), TaskError> {
        check_range("min_value", self.min_value, 2, 1_000_000_000)?;
        check_range("max_value", self.max_value, 2, 1_000_000_000)?;
        check_order(("min_value", self.min_value), ("max_value", self.max_value))
    }

    pub(super) fn build(&self) -> Self {
        self.clone()
    }
}

impl Generate for PrimeFactorisationConfig {
    fn fields(&self, rng: &mut ChaCha8Rng) -> Fields {
        let number = rng.random_range(self.min_value..=self.max_value);
        let factors: Vec<String> = prime_factors(number).iter().map(u64::to_string).collect();
        Fields::new(format!("Factorise {number}."), factors.join(" * ")).with("number", number)
    }
}

/// The prime factors of a number above 1, in ascending order.
fn prime_factors(mut number: u64) -> Vec<u64> {
    let mut factors = Vec::new();
    let mut candidate = 2;
    while candidate * candidate <= number {
        while number.is_multiple_of(candidate) {
            factors.push(candidate);
            number /= candidate;
        }
        candidate += 1;
    }
    if number > 1 {
        factors.push(number);
    }
    factors
}

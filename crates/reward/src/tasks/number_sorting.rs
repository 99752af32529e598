//! Numbers in order.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Fields, Generate, TaskError, check_order, check_range};

/// Settings of `number_sorting`: `Sort ascending: [3, -1.5, 2]`, whose answer is `[-1.5, 2, 3]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NumberSortingConfig {
    /// Fewest numbers, 1 to 1000. Default 3.
    pub min_numbers: u32,
    /// Most numbers, 1 to 1000. Default 10.
    pub max_numbers: u32,
    /// Fewest decimal places, 0 to 6; each number draws its own. Default 0.
    pub min_decimals: u32,
    /// Most decimal places, 0 to 6. Default 2.
    pub max_decimals: u32,
    /// Smallest number, −10⁹ or more. Default −100.
    pub min_value: i64,
    /// Largest number, at most 10⁹. Default 100.
    pub max_value: i64,
}

impl Default for NumberSortingConfig {
    fn default() -> Self {
        Self {
            min_numbers: 3,
            max_numbers: 10,
            min_decimals: 0,
            max_decimals: 2,
            min_value: -100,
            max_value: 100,
        }
    }
}

impl NumberSortingConfig {
    pub(super) fn validate(&self) -> Result<(), TaskError> {
        check_range("min_numbers", self.min_numbers, 1, 1000)?;
        check_range("max_numbers", self.max_numbers, 1, 1000)?;
        check_order(("min_numbers", self.min_numbers), ("max_numbers", self.max_numbers))?;
        check_range("min_decimals", self.min_decimals, 0, 6)?;
        check_range("max_decimals", self.max_decimals, 0, 6)?;
        check_order(("min_decimals", self.min_decimals), ("max_decimals", self.max_decimals))?;
        check_range("min_value", self.min_value, -1_000_000_000, 1_000_000_000)?;
        check_range("max_value", self.max_value, -1_000_000_000, 1_000_000_000)?;
        check_order(("min_value", self.min_value), ("max_value", self.max_value))
    }

    pub(super) fn build(&self) -> Self {
        self.clone()
    }
}

/// Units of a number: 10⁻⁶.
const UNIT_DECIMALS: u32 = 6;

impl Generate for NumberSortingConfig {
    fn fields(&self, rng: &mut ChaCha8Rng) -> Fields {
        let count = rng.random_range(self.min_numbers..=self.max_numbers);
        let mut numbers: Vec<(i64, String)> = (0..count)
            .map(|_| {
                let decimals = rng.random_range(self.min_decimals..=self.max_decimals);
                let scale = 10i64.pow(decimals);
                let scaled = rng.random_range(self.min_value * scale..=self.max_value * scale);
                (scaled * 10i64.pow(UNIT_DECIMALS - decimals), decimal(scaled, decimals))
            })
            .collect();
        let list = |numbers: &[(i64, String)]| {
            let written: Vec<&str> = numbers.iter().map(|(_, text)| text.as_str()).collect();
            format!("[{}]", written.join(", "))
        };
        let given = list(&numbers);
        let ascending = rng.random::<bool>();
        numbers.sort_by(|(a, _), (b, _)| if ascending { a.cmp(b) } else { b.cmp(a) });
        let direction = if ascending { "ascending" } else { "descending" };
        Fields::new(format!("Sort {direction}: {given}"), list(&numbers)).with("direction", direction)
    }
}

fn decimal(scaled: i64, decimals: u32) -> String {
    if decimals == 0 {
        return scaled.to_string();
    }
    let scale = 10u64.pow(decimals);
    let (whole, part) = (scaled.unsigned_abs() / scale, scaled.unsigned_abs() % scale);
    let sign = if scaled < 0 { "-" } else { "" };
    format!("{sign}{whole}.{part:0width$}", width = decimals as usize)
}

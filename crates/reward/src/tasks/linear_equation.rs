//! Equations of one unknown.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Fields, Generate, TaskError, check_order, check_range};

/// Settings of `linear_equation`: `3*x + 4 = 19`, whose answer is `5`.
///
/// The solution is a whole number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinearEquationConfig {
    /// Smallest size of the solution and of the constant on the left, 0 to 10⁹. Default 1.
    pub min_value: i64,
    /// Largest size of the solution and of the constant on the left, 0 to 10⁹. Default 20.
    pub max_value: i64,
    /// Smallest factor of the unknown, 1 to 10⁶. Default 2.
    pub min_factor: i64,
    /// Largest factor of the unknown, 1 to 10⁶. Default 10.
    pub max_factor: i64,
    /// Whether the solution and the constant may be negative. Default false: a constant may be subtracted, the solution is positive.
    pub allow_negation: bool,
    /// Whether the unknown stands on both sides. Default false.
    pub both_sides: bool,
}

impl Default for LinearEquationConfig {
    fn default() -> Self {
        Self {
            min_value: 1,
            max_value: 20,
            min_factor: 2,
            max_factor: 10,
            allow_negation: false,
            both_sides: false,
        }
    }
}

impl LinearEquationConfig {
    pub(super) fn validate(&self) -> Result<(), TaskError> {
        check_range("min_value", self.min_value, 0, 1_000_000_000)?;
        check_range("max_value", self.max_value, 0, 1_000_000_000)?;
        check_order(("min_value", self.min_value), ("max_value", self.max_value))?;
        check_range("min_factor", self.min_factor, 1, 1_000_000)?;
        check_range("max_factor", self.max_factor, 1, 1_000_000)?;
        check_order(("min_factor", self.min_factor), ("max_factor", self.max_factor))?;
        if self.both_sides && self.min_factor == self.max_factor {
            let allowed =
                format!("more than min_factor = {}, as the sides need two factors", self.min_factor);
            return Err(TaskError::setting("max_factor", self.max_factor, allowed));
        }
        Ok(())
    }

    pub(super) fn build(&self) -> Self {
        self.clone()
    }
}

impl Generate for LinearEquationConfig {
    fn fields(&self, rng: &mut ChaCha8Rng) -> Fields {
        let size = rng.random_range(self.min_value..=self.max_value);
        let solution = if self.allow_negation && rng.random::<bool>() { -size } else { size };
        let constant = rng.random_range(self.min_value..=self.max_value);
        let constant = if rng.random::<bool>() { -constant } else { constant };
        let left = rng.random_range(self.min_factor..=self.max_factor);
        let right = if self.both_sides {
            let other = rng.random_range(self.min_factor..self.max_factor);
            if other < left { other } else { other + 1 } // any factor but `left`
        } else {
            0
        };
        let rest = (left - right) * solution + constant;
        let right_side = if self.both_sides { side(right, rest) } else { rest.to_string() };
        let prompt = format!("{} = {right_side}", side(left, constant));
        Fields::new(prompt, solution.to_string()).with("variable", "x")
    }
}

/// `factor*x + constant`.
fn side(factor: i64, constant: i64) -> String {
    let product = if factor == 1 { "x".to_owned() } else { format!("{factor}*x") };
    match constant {
        0 => product,
        constant if constant < 0 => format!("{product} - {}", -constant),
        constant => format!("{product} + {constant}"),
    }
}

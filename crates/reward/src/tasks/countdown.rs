//! Reach a number with given numbers.

use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Fields, Generate, Operator, TaskError, check_order, check_range};

/// Settings of `countdown`: `Use 3, 7, 25 with + - * / and parentheses, each exactly once, to make 100.`, whose answer is
/// `(7 - 3) * 25`, as any other expression that does it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CountdownConfig {
    /// Fewest numbers, 2 to 16. Default 4.
    pub min_numbers: u32,
    /// Most numbers, 2 to 16. Default 6.
    pub max_numbers: u32,
    /// Smallest number, 1 to 10⁶. Default 1.
    pub min_value: i64,
    /// Largest number, 1 to 10⁶. Default 100.
    pub max_value: i64,
    /// Smallest target, 1 to 10⁹. Default 100.
    pub min_target: i64,
    /// Largest target, 1 to 10⁹. Default 999.
    pub max_target: i64,
    /// The operations of the reference; an answer may use all four. Default all four.
    pub operators: Vec<Operator>,
    /// Whether every number must be used; otherwise each at most once. Default true.
    pub use_all: bool,
}

impl Default for CountdownConfig {
    fn default() -> Self {
        Self {
            min_numbers: 4,
            max_numbers: 6,
            min_value: 1,
            max_value: 100,
            min_target: 100,
            max_target: 999,
            operators: Operator::ALL.to_vec(),
            use_all: true,
        }
    }
}

/// Expressions that `validate` tries: settings under which none of them meets the target's range are refused.
const TRIALS: usize = 2000;

/// Expressions that a problem tries. Where one in 2000 would do, all of these fail once in e⁵⁰⁰.
const ATTEMPTS: usize = 1_000_000;

impl CountdownConfig {
    pub(super) fn validate(&self) -> Result<(), TaskError> {
        check_range("min_numbers", self.min_numbers, 2, 16)?;
        check_range("max_numbers", self.max_numbers, 2, 16)?;
        check_order(("min_numbers", self.min_numbers), ("max_numbers", self.max_numbers))?;
        check_range("min_value", self.min_value, 1, 1_000_000)?;
        check_range("max_value", self.max_value, 1, 1_000_000)?;
        check_order(("min_value", self.min_value), ("max_value", self.max_value))?;
        check_range("min_target", self.min_target, 1, 1_000_000_000)?;
        check_range("max_target", self.max_target, 1, 1_000_000_000)?;
        check_order(("min_target", self.min_target), ("max_target", self.max_target))?;
        if self.operators.is_empty() {
            return Err(TaskError::setting("operators", "[]", "at least one of +, -, *, /"));
        }
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        if !(0..TRIALS).any(|_| self.attempt(&mut rng).is_some()) {
            let targets = format!("{}..={}", self.min_target, self.max_target);
            let allowed = format!("a range that the numbers reach: none of {TRIALS} expressions did");
            return Err(TaskError::setting("min_target..=max_target", targets, allowed));
        }
        Ok(())
    }

    pub(super) fn build(&self) -> Self {
        self.clone()
    }

    /// Numbers, and an expression of them whose value is in the target's range; `None` if the one that was drawn is not.
    fn attempt(&self, rng: &mut ChaCha8Rng) -> Option<(Vec<i64>, String, i64)> {
        let count = rng.random_range(self.min_numbers..=self.max_numbers);
        let numbers: Vec<i64> =
            (0..count).map(|_| rng.random_range(self.min_value..=self.max_value)).collect();
        let mut parts: Vec<Part> = numbers
            .iter()
            .map(|number| Part { value: *number, text: number.to_string(), is_number: true })
            .collect();
        while parts.len() > 1 {
            parts.shuffle(rng);
            let (right, left) = (parts.pop()?, parts.pop()?);
            let operator = self.operators[rng.random_range(0..self.operators.len())];
            parts.push(left.join(operator, right)?);
        }
        let Part { value, text, .. } = parts.pop()?;
        (self.min_target..=self.max_target).contains(&value).then_some((numbers, text, value))
    }
}

/// A part of an expression.
struct Part {
    value: i64,
    text: String,
    is_number: bool,
}

impl Part {
    /// `None` where the value is no whole number, or too large to be of use.
    fn join(self, operator: Operator, other: Self) -> Option<Self> {
        let value = match operator {
            Operator::Add => self.value.checked_add(other.value),
            Operator::Subtract => self.value.checked_sub(other.value),
            Operator::Multiply => self.value.checked_mul(other.value),
            Operator::Divide if self.value.checked_rem(other.value) == Some(0) => {
                self.value.checked_div(other.value)
            }
            Operator::Divide => None,
        }?;
        let dressed = |part: Self| if part.is_number { part.text } else { format!("({})", part.text) };
        let text = format!("{} {} {}", dressed(self), operator.sign(), dressed(other));
        Some(Self { value, text, is_number: false })
    }
}

impl Generate for CountdownConfig {
    fn fields(&self, rng: &mut ChaCha8Rng) -> Fields {
        let (numbers, text, target) = (0..ATTEMPTS)
            .find_map(|_| self.attempt(rng))
            .expect("`validate` has reached the target's range in far fewer attempts");
        let written: Vec<String> = numbers.iter().map(i64::to_string).collect();
        let often = if self.use_all { "exactly" } else { "at most" };
        let prompt = format!(
            "Use {} with + - * / and parentheses, each {often} once, to make {target}.",
            written.join(", ")
        );
        Fields::new(prompt, text)
            .with("numbers", numbers)
            .with("target", target)
            .with("use_all", self.use_all)
    }
}

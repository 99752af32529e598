//! Expressions with the four operations and parentheses.

use num_bigint::BigInt;
use num_traits::Zero;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Fields, Generate, TaskError, check_order, check_range};

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// `+`
    #[serde(rename = "+")]
    Add,
    /// `-`
    #[serde(rename = "-")]
    Subtract,
    /// `*`
    #[serde(rename = "*")]
    Multiply,
    /// `/`
    #[serde(rename = "/")]
    Divide,
}

impl Operator {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Add, Self::Subtract, Self::Multiply, Self::Divide];

    /// The sign.
    pub fn sign(self) -> char {
        match self {
            Self::Add => '+',
            Self::Subtract => '-',
            Self::Multiply => '*',
            Self::Divide => '/',
        }
    }

    fn precedence(self) -> u8 {
        match self {
            Self::Add | Self::Subtract => 1,
            Self::Multiply | Self::Divide => 2,
        }
    }
}

/// Settings of `arithmetic`: `12 * (7 - 3) / 4 =`, whose answer is `12`.
///
/// Every quotient is a whole number, so the answer is one. A divisor is a number from 2 to 99 that divides what stands before it, or 1
/// where there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArithmeticConfig {
    /// Fewest numbers in an expression, 1 to 32. Default 2.
    pub min_terms: u32,
    /// Most numbers in an expression, 1 to 32. Default 6.
    pub max_terms: u32,
    /// Fewest decimal digits of the longest number that may occur, 1 to 12. Default 1.
    pub min_digits: u32,
    /// Most decimal digits of a number, 1 to 12. Default 4.
    pub max_digits: u32,
    /// The operations. Default all four.
    pub operators: Vec<Operator>,
    /// Whether an expression has any shape, written with the parentheses that it needs, or is one chain without any. Default true.
    pub allow_parentheses: bool,
    /// Whether numbers may be negative; these stand in parentheses. Default false.
    pub allow_negation: bool,
}

impl Default for ArithmeticConfig {
    fn default() -> Self {
        Self {
            min_terms: 2,
            max_terms: 6,
            min_digits: 1,
            max_digits: 4,
            operators: Operator::ALL.to_vec(),
            allow_parentheses: true,
            allow_negation: false,
        }
    }
}

/// An expression with its value.
struct Expression {
    text: String,
    value: BigInt,
    /// The outermost operation; `None` for a number.
    operator: Option<Operator>,
}

impl ArithmeticConfig {
    pub(super) fn validate(&self) -> Result<(), TaskError> {
        check_range("min_terms", self.min_terms, 1, 32)?;
        check_range("max_terms", self.max_terms, 1, 32)?;
        check_order(("min_terms", self.min_terms), ("max_terms", self.max_terms))?;
        check_range("min_digits", self.min_digits, 1, 12)?;
        check_range("max_digits", self.max_digits, 1, 12)?;
        check_order(("min_digits", self.min_digits), ("max_digits", self.max_digits))?;
        if self.operators.is_empty() {
            return Err(TaskError::setting("operators", "[]", "at least one of +, -, *, /"));
        }
        Ok(())
    }

    pub(super) fn build(&self) -> Self {
        self.clone()
    }

    fn number(&self, high: i64, rng: &mut ChaCha8Rng) -> Expression {
        let low = if self.allow_negation { -high } else { 0 };
        let value = rng.random_range(low..=high);
        let text = if value < 0 { format!("({value})") } else { value.to_string() };
        Expression { text, value: value.into(), operator: None }
    }

    fn operator(&self, rng: &mut ChaCha8Rng) -> Operator {
        self.operators[rng.random_range(0..self.operators.len())]
    }

    /// An expression of any shape.
    fn tree(&self, terms: u32, high: i64, rng: &mut ChaCha8Rng) -> Expression {
        if terms == 1 {
            return self.number(high, rng);
        }
        let operator = self.operator(rng);
        if operator == Operator::Divide {
            let left = self.tree(terms - 1, high, rng);
            let right = divisor(&left.value, high, rng);
            return join(left, operator, right);
        }
        let of_left = rng.random_range(1..terms);
        let left = self.tree(of_left, high, rng);
        join(left, operator, self.tree(terms - of_left, high, rng))
    }

    /// An expression without parentheses around operations: products, added and subtracted.
    fn chain(&self, terms: u32, high: i64, rng: &mut ChaCha8Rng) -> Expression {
        let mut sum: Option<Expression> = None;
        let mut sign = Operator::Add;
        let mut product = self.number(high, rng);
        for _ in 1..terms {
            let operator = self.operator(rng);
            product = match operator {
                Operator::Divide => {
                    let right = divisor(&product.value, high, rng);
                    join(product, operator, right)
                }
                Operator::Multiply => join(product, operator, self.number(high, rng)),
                Operator::Add | Operator::Subtract => {
                    sum = Some(match sum {
                        Some(sum) => join(sum, sign, product),
                        None => product,
                    });
                    sign = operator;
                    self.number(high, rng)
                }
            };
        }
        match sum {
            Some(sum) => join(sum, sign, product),
            None => product,
        }
    }
}

impl Generate for ArithmeticConfig {
    fn fields(&self, rng: &mut ChaCha8Rng) -> Fields {
        let terms = rng.random_range(self.min_terms..=self.max_terms);
        let digits = rng.random_range(self.min_digits..=self.max_digits);
        let high = 10i64.pow(digits) - 1;
        let Expression { text, value, .. } =
            if self.allow_parentheses { self.tree(terms, high, rng) } else { self.chain(terms, high, rng) };
        Fields::new(format!("{text} ="), value.to_string()).with("terms", terms).with("digits", digits)
    }
}

/// Largest divisor, except where numbers are shorter.
const MOST_DIVISOR: i64 = 99;

/// A number above 1 that divides `value`, or 1 where there is none.
fn divisor(value: &BigInt, high: i64, rng: &mut ChaCha8Rng) -> Expression {
    let all: Vec<i64> = (2..=high.min(MOST_DIVISOR)).filter(|number| (value % number).is_zero()).collect();
    let found = if all.is_empty() { 1 } else { all[rng.random_range(0..all.len())] };
    Expression { text: found.to_string(), value: found.into(), operator: None }
}

/// Joins two expressions, each in parentheses if it needs them. A right operand needs them also where leaving them out would only
/// divide in another order.
fn join(left: Expression, operator: Operator, right: Expression) -> Expression {
    let weaker =
        |inner: &Expression| inner.operator.is_some_and(|inner| inner.precedence() < operator.precedence());
    let same = right.operator.is_some_and(|inner| inner.precedence() == operator.precedence());
    let open_right = weaker(&right)
        || (same && matches!(operator, Operator::Subtract | Operator::Divide))
        || (operator == Operator::Multiply && right.operator == Some(Operator::Divide));
    let dressed = |text: &str, open: bool| if open { format!("({text})") } else { text.to_owned() };
    let text = format!(
        "{} {} {}",
        dressed(&left.text, weaker(&left)),
        operator.sign(),
        dressed(&right.text, open_right)
    );
    let value = match operator {
        Operator::Add => left.value + right.value,
        Operator::Subtract => left.value - right.value,
        Operator::Multiply => left.value * right.value,
        Operator::Divide => left.value / right.value, // exact
    };
    Expression { text, value, operator: Some(operator) }
}

//! Exact values of expressions without variables.

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Pow, Signed, ToPrimitive, Zero};

use super::limits::{Budget, MAX_BITS, MAX_FACTORIAL, MAX_SERIES};
use super::tree::{Function, Node};

/// Values of the indices of series around an expression.
pub(crate) type Indices = Vec<(String, i64)>;

/// Returns the rational value of `node`; `None` if it has none, if finding it takes more than arithmetic, or if it is
/// larger than [`MAX_BITS`].
pub(crate) fn exact(node: &Node, budget: &Budget) -> Option<BigRational> {
    evaluate(node, &mut Vec::new(), budget)
}

fn evaluate(node: &Node, indices: &mut Indices, budget: &Budget) -> Option<BigRational> {
    budget.spend(1)?;
    match node {
        Node::Number { value, .. } => Some(value.clone()),
        Node::Symbol(name) => {
            let (_, value) = indices.iter().rev().find(|(index, _)| index == name)?;
            Some(BigRational::from_integer((*value).into()))
        }
        Node::Sum(terms) => terms.iter().try_fold(BigRational::zero(), |sum, term| {
            checked(sum + evaluate(term, indices, budget)?, budget)
        }),
        Node::Product(factors) => factors.iter().try_fold(BigRational::one(), |product, factor| {
            checked(product * evaluate(factor, indices, budget)?, budget)
        }),
        Node::Quotient(above, below) => {
            let (above, below) = (evaluate(above, indices, budget)?, evaluate(below, indices, budget)?);
            if below.is_zero() { None } else { checked(above / below, budget) }
        }
        Node::Ratio(parts) => match parts.as_slice() {
            [above, below] => {
                let (above, below) = (evaluate(above, indices, budget)?, evaluate(below, indices, budget)?);
                if below.is_zero() { None } else { checked(above / below, budget) }
            }
            _ => None,
        },
        Node::Negative(inner) => Some(-evaluate(inner, indices, budget)?),
        Node::Percent(inner) => {
            Some(evaluate(inner, indices, budget)? / BigRational::from_integer(100.into()))
        }
        Node::Degrees(inner) | Node::Quantity(inner, _) => evaluate(inner, indices, budget),
        Node::Power(base, exponent) => {
            let exponent = evaluate(exponent, indices, budget)?;
            power(evaluate(base, indices, budget)?, &exponent, budget)
        }
        Node::Function(function, arguments) => {
            let values = arguments
                .iter()
                .map(|argument| evaluate(argument, indices, budget))
                .collect::<Option<Vec<_>>>()?;
            apply(*function, &values, budget)
        }
        Node::Series { product, index, from, to, body } => {
            let from = integer(&evaluate(from, indices, budget)?)?.to_i64()?;
            let to = integer(&evaluate(to, indices, budget)?)?.to_i64()?;
            if to.checked_sub(from)? > MAX_SERIES {
                return None;
            }
            let mut total = if *product { BigRational::one() } else { BigRational::zero() };
            for value in from..=to {
                indices.push((index.clone(), value));
                let term = evaluate(body, indices, budget);
                indices.pop();
                total = checked(if *product { total * term? } else { total + term? }, budget)?;
            }
            Some(total)
        }
        _ => None,
    }
}

fn bits(value: &BigRational) -> u64 {
    value.numer().bits() + value.denom().bits()
}

/// `value`, paid for by its size.
fn checked(value: BigRational, budget: &Budget) -> Option<BigRational> {
    let bits = bits(&value);
    // Reducing a fraction takes time quadratic in its size.
    budget.spend(bits * bits / 20_000)?;
    (bits <= MAX_BITS).then_some(value)
}

fn integer(value: &BigRational) -> Option<BigInt> {
    value.is_integer().then(|| value.to_integer())
}

fn power(base: BigRational, exponent: &BigRational, budget: &Budget) -> Option<BigRational> {
    let Some(whole) = integer(exponent) else {
        // A root that comes out even: `4^{3/2}`.
        let root = nth_root(&base, &BigRational::from_integer(exponent.denom().clone()))?;
        return power(root, &BigRational::from_integer(exponent.numer().clone()), budget);
    };
    if base.is_zero() {
        return whole.is_positive().then(BigRational::zero);
    }
    if base.is_one() {
        return Some(base);
    }
    if (-&base).is_one() {
        return Some(if whole.is_even() { BigRational::one() } else { base });
    }
    let size = whole.abs().to_u64()?;
    if bits(&base).checked_mul(size)? > MAX_BITS {
        return None;
    }
    let raised = checked(Pow::pow(base, size), budget)?;
    Some(if whole.is_negative() { raised.recip() } else { raised })
}

/// The rational root of `degree` (a small whole number), real for odd degrees.
fn nth_root(value: &BigRational, degree: &BigRational) -> Option<BigRational> {
    let degree = integer(degree)?.to_u32().filter(|degree| (1..=64).contains(degree))?;
    if value.is_negative() && degree % 2 == 0 {
        return None;
    }
    let root = |number: &BigInt| {
        let root = number.nth_root(degree);
        (Pow::pow(&root, degree) == *number).then_some(root)
    };
    Some(BigRational::new(root(value.numer())?, root(value.denom())?))
}

fn apply(function: Function, values: &[BigRational], budget: &Budget) -> Option<BigRational> {
    match (function, values) {
        (Function::Root, [value, degree]) => nth_root(value, degree),
        (Function::Abs, [value]) => Some(value.abs()),
        (Function::Floor, [value]) => Some(value.floor()),
        (Function::Ceiling, [value]) => Some(value.ceil()),
        (Function::Factorial, [value]) => {
            let n = integer(value)?.to_u64().filter(|n| *n <= MAX_FACTORIAL)?;
            budget.spend(n)?;
            Some(BigRational::from_integer((2..=n).fold(BigInt::one(), |product, k| product * k)))
        }
        (Function::Binomial, [n, k]) => binomial(&integer(n)?, &integer(k)?, budget),
        (Function::Gcd, values) => {
            let whole = values.iter().map(integer).collect::<Option<Vec<_>>>()?;
            whole.into_iter().reduce(|a, b| a.gcd(&b)).map(BigRational::from_integer)
        }
        (Function::Lcm, values) => {
            let whole = values.iter().map(integer).collect::<Option<Vec<_>>>()?;
            let lcm = whole.into_iter().try_fold(BigInt::one(), |a, b| {
                let lcm = a.lcm(&b);
                (lcm.bits() <= MAX_BITS).then_some(lcm)
            })?;
            Some(BigRational::from_integer(lcm))
        }
        (Function::Max, values) => values.iter().max().cloned(),
        (Function::Min, values) => values.iter().min().cloned(),
        (Function::Log, [value, base]) => whole_logarithm(value, base),
        _ => None,
    }
}

fn binomial(n: &BigInt, k: &BigInt, budget: &Budget) -> Option<BigRational> {
    if n.is_negative() {
        return None;
    }
    if k.is_negative() || k > n {
        return Some(BigRational::zero());
    }
    let k = std::cmp::min(k.clone(), n - k).to_u64().filter(|k| *k <= MAX_FACTORIAL)?;
    if n.bits().checked_mul(k)? > MAX_BITS {
        return None;
    }
    budget.spend(k)?;
    let value = (0..k).fold(BigInt::one(), |value, i| value * (n - i) / (i + 1));
    Some(BigRational::from_integer(value))
}

/// The logarithm, if it is a whole number.
fn whole_logarithm(value: &BigRational, base: &BigRational) -> Option<BigRational> {
    if !value.is_positive() || !base.is_positive() || base.is_one() {
        return None;
    }
    let estimate = super::numeric::ln_rational(value)? / super::numeric::ln_rational(base)?;
    let whole = estimate.round();
    if (estimate - whole).abs() > 1e-9 || whole.abs() > 4_000.0 {
        return None;
    }
    let exponent = whole.to_i32()?;
    if bits(base) * u64::from(exponent.unsigned_abs()) > MAX_BITS {
        return None;
    }
    (Pow::pow(base.clone(), exponent) == *value).then(|| BigRational::from_integer(exponent.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::limits::MAX_STEPS;
    use crate::math::parser::parse;

    fn value(text: &str) -> Option<String> {
        exact(&parse(text)?, &Budget::new(MAX_STEPS)).map(|value| value.to_string())
    }

    #[test]
    fn arithmetic_is_exact() {
        for (text, expected) in [
            (r"2^{100}", "1267650600228229401496703205376"),
            (r"\frac{1}{1-\frac13}", "3/2"),
            (r"5!", "120"),
            (r"\binom{5}{2}", "10"),
            (r"\log_2 8", "3"),
            (r"\log_{10} 0.001", "-3"),
            (r"\sqrt{\frac{4}{9}}", "2/3"),
            (r"\sqrt[3]{-8}", "-2"),
            (r"8^{2/3}", "4"),
            (r"\lfloor -3.7 \rfloor", "-4"),
            (r"\sum_{k=1}^{10} k^2", "385"),
            (r"\prod_{i=1}^{5} i", "120"),
            (r"-3\frac12", "-7/2"),
            (r"0.1\overline{6}", "1/6"),
            (r"\gcd(12, 18)", "6"),
        ] {
            assert_eq!(value(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_has_no_rational_value_or_too_large_a_one_has_none() {
        for text in [
            r"\sqrt2",
            r"\frac10",
            r"0^{-1}",
            r"9^{9^{9^{9}}}",
            r"10^{10^{10}}",
            r"100000!",
            r"\binom{10^9}{5\cdot 10^8}",
            "x",
            r"\sum_{k=1}^{100000} k",
        ] {
            assert_eq!(value(text), None, "{text}");
        }
    }
}

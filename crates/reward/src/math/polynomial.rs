//! Normal forms of polynomials and rational functions, with exact coefficients.

use std::collections::BTreeMap;

use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::exact::exact;
use super::limits::{Budget, MAX_BITS, MAX_EXPONENT, MAX_TERMS};
use super::tree::{Constant, Node};

/// Exponents by name of the variable; none is zero.
type Monomial = BTreeMap<String, u32>;

#[derive(Debug, Clone, PartialEq)]
struct Polynomial {
    terms: BTreeMap<Monomial, BigRational>,
}

/// The imaginary unit as a variable; its square is replaced.
const IMAGINARY: &str = "#i";

/// Whether two expressions are the same rational function; `None` if one of them is none, or is too large. Variables,
/// π and e count as independent, so the answer is final either way.
pub(crate) fn same_rational_function(a: &Node, b: &Node, budget: &Budget) -> Option<bool> {
    let (a_above, a_below) = fraction(a, budget)?;
    let (b_above, b_below) = fraction(b, budget)?;
    Some(a_above.times(&b_below, budget)? == b_above.times(&a_below, budget)?)
}

impl Polynomial {
    fn constant(value: BigRational) -> Self {
        let mut terms = BTreeMap::new();
        if !value.is_zero() {
            terms.insert(Monomial::new(), value);
        }
        Self { terms }
    }

    fn one() -> Self {
        Self::constant(BigRational::one())
    }

    fn variable(name: &str) -> Self {
        Self { terms: BTreeMap::from([(Monomial::from([(name.to_owned(), 1)]), BigRational::one())]) }
    }

    fn plus(mut self, other: Self, budget: &Budget) -> Option<Self> {
        budget.spend(other.terms.len() as u64)?;
        for (monomial, coefficient) in other.terms {
            let sum = self.terms.remove(&monomial).unwrap_or_else(BigRational::zero) + coefficient;
            if !sum.is_zero() {
                self.terms.insert(monomial, sum);
            }
        }
        (self.terms.len() <= MAX_TERMS).then_some(self)
    }

    fn times(&self, other: &Self, budget: &Budget) -> Option<Self> {
        budget.spend((self.terms.len() * other.terms.len()) as u64 * 8)?;
        let mut product: BTreeMap<Monomial, BigRational> = BTreeMap::new();
        for (left, a) in &self.terms {
            for (right, b) in &other.terms {
                let mut monomial = left.clone();
                for (name, exponent) in right {
                    *monomial.entry(name.clone()).or_default() += exponent;
                }
                let mut coefficient = a * b;
                if let Some(power) = monomial.remove(IMAGINARY) {
                    if power % 4 >= 2 {
                        coefficient = -coefficient;
                    }
                    if power % 2 == 1 {
                        monomial.insert(IMAGINARY.to_owned(), 1);
                    }
                }
                let bits = coefficient.numer().bits() + coefficient.denom().bits();
                budget.spend(bits * bits / 20_000)?;
                if bits > MAX_BITS || monomial.values().any(|power| *power > 4 * MAX_EXPONENT) {
                    return None;
                }
                let sum = product.remove(&monomial).unwrap_or_else(BigRational::zero) + coefficient;
                if !sum.is_zero() {
                    product.insert(monomial, sum);
                }
            }
            if product.len() > MAX_TERMS {
                return None;
            }
        }
        Some(Self { terms: product })
    }

    fn raised(&self, exponent: u32, budget: &Budget) -> Option<Self> {
        (0..exponent).try_fold(Self::one(), |power, _| power.times(self, budget))
    }
}

/// Numerator and denominator.
fn fraction(node: &Node, budget: &Budget) -> Option<(Polynomial, Polynomial)> {
    budget.spend(1)?;
    match node {
        Node::Number { value, .. } => Some((Polynomial::constant(value.clone()), Polynomial::one())),
        Node::Symbol(name) => Some((Polynomial::variable(name), Polynomial::one())),
        Node::Constant(constant) => {
            let name = match constant {
                Constant::Pi => "#pi",
                Constant::E => "#e",
                Constant::I => IMAGINARY,
                Constant::Infinity => return None,
            };
            Some((Polynomial::variable(name), Polynomial::one()))
        }
        Node::Sum(terms) => {
            let mut sum = (Polynomial::constant(BigRational::zero()), Polynomial::one());
            for term in terms {
                let (above, below) = fraction(term, budget)?;
                sum = if below == sum.1 {
                    (sum.0.plus(above, budget)?, below)
                } else {
                    let crossed = sum.0.times(&below, budget)?.plus(above.times(&sum.1, budget)?, budget)?;
                    (crossed, sum.1.times(&below, budget)?)
                };
            }
            Some(sum)
        }
        Node::Product(factors) => {
            let mut product = (Polynomial::one(), Polynomial::one());
            for factor in factors {
                let (above, below) = fraction(factor, budget)?;
                product = (product.0.times(&above, budget)?, product.1.times(&below, budget)?);
            }
            Some(product)
        }
        Node::Quotient(above, below) => {
            let (above, below) = (fraction(above, budget)?, fraction(below, budget)?);
            if below.0.terms.is_empty() {
                return None;
            }
            Some((above.0.times(&below.1, budget)?, above.1.times(&below.0, budget)?))
        }
        Node::Negative(inner) => {
            let (above, below) = fraction(inner, budget)?;
            let minus = Polynomial::constant(-BigRational::one());
            Some((above.times(&minus, budget)?, below))
        }
        Node::Power(base, exponent) => {
            if let Some(value) = exact(node, budget) {
                return Some((Polynomial::constant(value), Polynomial::one()));
            }
            let exponent = exact(exponent, budget).filter(|exponent| exponent.is_integer())?.to_integer();
            let size = exponent.abs().to_u32().filter(|size| *size <= MAX_EXPONENT)?;
            let (above, below) = fraction(base, budget)?;
            let (above, below) = (above.raised(size, budget)?, below.raised(size, budget)?);
            match exponent.is_negative() {
                true if above.terms.is_empty() => None,
                true => Some((below, above)),
                false => Some((above, below)),
            }
        }
        Node::Degrees(inner) | Node::Quantity(inner, _) => fraction(inner, budget),
        // Anything else that is a number is a coefficient; anything that is not may depend on the variables.
        other => Some((Polynomial::constant(exact(other, budget)?), Polynomial::one())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::limits::MAX_STEPS;
    use crate::math::parser::parse;

    fn same(a: &str, b: &str) -> Option<bool> {
        same_rational_function(&parse(a).unwrap(), &parse(b).unwrap(), &Budget::new(MAX_STEPS))
    }

    #[test]
    fn polynomials_are_the_same_when_expanded() {
        assert_eq!(same("(x+1)^2", "x(x+2)+1"), Some(true));
        assert_eq!(same("(x+1)^2", "x^2+2x+2"), Some(false));
        assert_eq!(same(r"\frac{x^2-1}{x-1}", "x+1"), Some(true));
        assert_eq!(same("(2+i)^2", "3+4i"), Some(true));
        assert_eq!(same("(2+i)^2", "3-4i"), Some(false));
        assert_eq!(same("x^{-2}", r"\frac{1}{x\cdot x}"), Some(true));
        assert_eq!(same("0.5x", r"\frac x2"), Some(true));
        assert_eq!(same("0.333333x", r"\frac x3"), Some(false));
    }

    #[test]
    fn a_difference_far_below_rounding_is_seen() {
        assert_eq!(same(r"2^{100}\pi", r"(2^{100}+1)\pi"), Some(false));
    }

    #[test]
    fn what_is_no_rational_function_or_too_large_is_left_to_others() {
        for text in [r"\sin x", r"\sqrt x", "(x+y+z+w)^{40}", "x^{41}", "2^n", r"\frac{x}{0}"] {
            assert_eq!(same(text, text), None, "{text}");
        }
    }
}

//! Values of expressions at given points, in complex floating point, and the test of identities by them.

use num_complex::Complex64;
use num_rational::BigRational;
use num_traits::{Signed, ToPrimitive};

use super::limits::{Budget, MAX_SERIES};
use super::tree::{Constant, Function, Node};

/// Draws of a point until enough have been found where both sides have a value.
const DRAWS: u64 = 12;
/// Points at which an identity must hold.
const POINTS: usize = 5;
/// Largest relative difference that rounding may have caused.
const TOLERANCE: f64 = 1e-11;

/// Where variables have which value.
#[derive(Debug)]
pub(crate) struct Point<'a> {
    draw: u64,
    fixed: Vec<(String, f64)>,
    budget: &'a Budget,
    /// Largest term met, which bounds what cancellation can have lost.
    peak: f64,
}

impl<'a> Point<'a> {
    /// The point of a draw: each variable has a value that follows from its name alone.
    pub(crate) fn drawn(draw: u64, budget: &'a Budget) -> Self {
        Self { draw, fixed: Vec::new(), budget, peak: 0.0 }
    }

    /// Gives a variable a value.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: f64) -> Self {
        self.fixed.push((name.to_owned(), value));
        self
    }

    fn value_of(&self, name: &str) -> f64 {
        match self.fixed.iter().rev().find(|(fixed, _)| fixed == name) {
            Some((_, value)) => *value,
            None => drawn(name, self.draw),
        }
    }

    /// Largest difference that counts as rounding, between values of this magnitude.
    fn slack(&self, magnitude: f64) -> f64 {
        (TOLERANCE * magnitude).max(2e-14 * self.peak)
    }
}

/// A value for a name, between 0.25 and 2.75, negative in some draws. It follows from a hash (FNV-1a, mixed as in
/// SplitMix64), so that it is the same everywhere and needs no generator.
fn drawn(name: &str, draw: u64) -> f64 {
    let mut hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash = hash.wrapping_add(draw.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    let fraction = (hash >> 11) as f64 / (1_u64 << 53) as f64;
    let size = 0.25 + 2.5 * fraction;
    let negative = draw % 3 == 2 && hash & 1 == 1 || draw % 3 == 1 && hash & 3 == 3;
    if negative { -size } else { size }
}

/// Whether two expressions agree at points drawn for their variables. Points where one has no value are drawn again;
/// if too few are left, they do not agree.
pub(crate) fn agree(a: &Node, b: &Node, budget: &Budget) -> bool {
    let mut agreed = 0;
    let mut names = Vec::new();
    a.variables(&mut names);
    b.variables(&mut names);
    let wanted = if names.is_empty() { 1 } else { POINTS };
    for draw in 0..DRAWS {
        let mut point = Point::drawn(draw, budget);
        let (Some(left), Some(right)) = (value(a, &mut point), value(b, &mut point)) else {
            continue;
        };
        if (left - right).norm() > point.slack(left.norm().max(right.norm())) {
            return false;
        }
        agreed += 1;
        if agreed == wanted {
            return true;
        }
    }
    false
}

/// The constant factor between two expressions, `a = factor · b`, if there is one that is not zero.
pub(crate) fn factor_between(a: &Node, b: &Node, budget: &Budget) -> Option<f64> {
    let mut factor: Option<f64> = None;
    let mut agreed = 0;
    for draw in 0..DRAWS {
        let mut point = Point::drawn(draw, budget);
        let (Some(left), Some(right)) = (value(a, &mut point), value(b, &mut point)) else {
            continue;
        };
        let slack = point.slack(1.0).max(1e-13);
        if left.norm() <= slack || right.norm() <= slack {
            if (left.norm() <= slack) != (right.norm() <= slack) {
                return None;
            }
            continue;
        }
        let ratio = left / right;
        let error = point.slack(left.norm()) / left.norm() + point.slack(right.norm()) / right.norm();
        if ratio.im.abs() > error.max(1e-10) * ratio.norm() {
            return None;
        }
        if factor.is_some_and(|factor| (factor - ratio.re).abs() > error.max(1e-10) * factor.abs()) {
            return None;
        }
        factor = Some(ratio.re);
        agreed += 1;
        if agreed == POINTS {
            return factor;
        }
    }
    None
}

/// The real value of `node` with the given variables, others as drawn.
pub(crate) fn real_value(node: &Node, point: &mut Point<'_>) -> Option<f64> {
    let value = value(node, point)?;
    let is_real = value.im.abs() <= 1e-12 * value.norm().max(1.0);
    is_real.then_some(value.re)
}

/// The value of `node` at a point; `None` at poles, for infinity and where there is none.
pub(crate) fn value(node: &Node, point: &mut Point<'_>) -> Option<Complex64> {
    point.budget.spend(1)?;
    let result = match node {
        Node::Number { value, .. } => real(to_f64(value)?),
        Node::Symbol(name) => real(point.value_of(name)),
        Node::Apply(..) => real(point.value_of(&node.key())),
        Node::Constant(Constant::Pi) => real(std::f64::consts::PI),
        Node::Constant(Constant::E) => real(std::f64::consts::E),
        Node::Constant(Constant::I) => Complex64::I,
        Node::Sum(terms) => {
            let mut sum = real(0.0);
            for term in terms {
                let term = value(term, point)?;
                point.peak = point.peak.max(term.norm());
                sum += term;
            }
            sum
        }
        Node::Product(factors) => {
            let mut product = real(1.0);
            for factor in factors {
                product *= value(factor, point)?;
            }
            product
        }
        Node::Quotient(above, below) => {
            let (above, below) = (value(above, point)?, value(below, point)?);
            if below.norm() <= 1e-300 {
                return None;
            }
            above / below
        }
        Node::Ratio(parts) => match parts.as_slice() {
            [above, below] => {
                let (above, below) = (value(above, point)?, value(below, point)?);
                if below.norm() <= 1e-300 {
                    return None;
                }
                above / below
            }
            _ => return None,
        },
        Node::Power(base, exponent) => {
            let base_value = value(base, point)?;
            power(base_value, exponent, point)?
        }
        Node::Negative(inner) => -value(inner, point)?,
        Node::Percent(inner) => value(inner, point)? / 100.0,
        Node::Degrees(inner) | Node::Quantity(inner, _) => value(inner, point)?,
        Node::Function(function, arguments) => apply(*function, arguments, point)?,
        Node::Series { product, index, from, to, body } => {
            let ends = (real_value(from, point), real_value(to, point));
            match ends {
                (Some(from), Some(to)) if from.fract() == 0.0 && to.fract() == 0.0 => {
                    series(*product, index, (from, to), body, point)?
                }
                // Ends that depend on variables: the series is a value of its own, named by its form.
                _ => real(point.value_of(&node.key())),
            }
        }
        _ => return None,
    };
    (result.re.is_finite() && result.im.is_finite() && result.norm() < 1e280).then_some(result)
}

fn series(
    product: bool,
    index: &str,
    (from, to): (f64, f64),
    body: &Node,
    point: &mut Point<'_>,
) -> Option<Complex64> {
    if to - from > MAX_SERIES as f64 {
        return None;
    }
    let mut total = real(if product { 1.0 } else { 0.0 });
    let mut at = from;
    while at <= to {
        point.fixed.push((index.to_owned(), at));
        let term = value(body, point);
        point.fixed.pop();
        if product {
            total *= term?;
        } else {
            total += term?;
        }
        at += 1.0;
    }
    Some(total)
}

fn real(value: f64) -> Complex64 {
    Complex64::new(value, 0.0)
}

/// The nearest floating-point number; `None` beyond the range.
pub(crate) fn to_f64(value: &BigRational) -> Option<f64> {
    value.to_f64().filter(|value| value.is_finite())
}

/// The natural logarithm of a positive rational of any size.
pub(crate) fn ln_rational(value: &BigRational) -> Option<f64> {
    let ln = |number: &num_bigint::BigInt| {
        let shift = number.bits().saturating_sub(1_000);
        let head = (number >> shift).to_f64()?;
        Some(head.ln() + shift as f64 * std::f64::consts::LN_2)
    };
    if !value.is_positive() {
        return None;
    }
    Some(ln(value.numer())? - ln(value.denom())?)
}

fn power(base: Complex64, exponent: &Node, point: &mut Point<'_>) -> Option<Complex64> {
    // A negative zero would turn the principal branch.
    let base = if base.im == 0.0 { real(base.re) } else { base };
    let budget = point.budget;
    if let Some(fraction) = super::exact::exact(exponent, budget) {
        if fraction.is_integer() {
            let whole = fraction.to_integer().to_i32()?;
            if base.norm() == 0.0 {
                return (whole > 0).then(|| real(0.0));
            }
            return Some(base.powi(whole));
        }
        if base.norm() == 0.0 {
            return fraction.is_positive().then(|| real(0.0));
        }
        let odd_root = fraction.denom().bit(0);
        let exponent = to_f64(&fraction)?;
        if base.im == 0.0 && base.re < 0.0 && odd_root {
            // The real root, as school mathematics means it.
            let size = (-base.re).powf(exponent);
            return Some(real(if fraction.numer().bit(0) { -size } else { size }));
        }
        if base.im == 0.0 && base.re > 0.0 {
            return Some(real(base.re.powf(exponent)));
        }
        return Some(base.powf(exponent));
    }
    let exponent = value(exponent, point)?;
    if base.norm() == 0.0 {
        return (exponent.re > 0.0).then(|| real(0.0));
    }
    if base.im == 0.0 && base.re > 0.0 && exponent.im == 0.0 {
        return Some(real(base.re.powf(exponent.re)));
    }
    Some((base.ln() * exponent).exp())
}

fn apply(function: Function, arguments: &[Node], point: &mut Point<'_>) -> Option<Complex64> {
    let mut values = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let argument = value(argument, point)?;
        values.push(argument);
    }
    if function.takes_an_angle()
        && arguments.iter().any(|node| node.any(&|part| matches!(part, Node::Degrees(_))))
    {
        values.iter_mut().for_each(|value| *value *= std::f64::consts::PI / 180.0);
    }
    let first = *values.first()?;
    let away_from_zero = |below: Complex64| if below.norm() < 1e-12 { None } else { Some(below) };
    Some(match function {
        Function::Root => {
            return power(
                first,
                &Node::Quotient(Box::new(Node::integer(1)), Box::new(arguments.get(1)?.clone())),
                point,
            );
        }
        Function::Log => ln(first)? / away_from_zero(ln(*values.get(1)?)?)?,
        Function::Ln => ln(first)?,
        Function::Exp => first.exp(),
        Function::Sin => first.sin(),
        Function::Cos => first.cos(),
        Function::Tan => first.sin() / away_from_zero(first.cos())?,
        Function::Cot => first.cos() / away_from_zero(first.sin())?,
        Function::Sec => away_from_zero(first.cos())?.inv(),
        Function::Csc => away_from_zero(first.sin())?.inv(),
        Function::Asin => real_or(first, |x| x.abs() <= 1.0, f64::asin, Complex64::asin),
        Function::Acos => real_or(first, |x| x.abs() <= 1.0, f64::acos, Complex64::acos),
        Function::Atan => real_or(first, |_| true, f64::atan, Complex64::atan),
        Function::Sinh => first.sinh(),
        Function::Cosh => first.cosh(),
        Function::Tanh => first.tanh(),
        Function::Abs => real(first.norm()),
        Function::Floor => real(steady(first, f64::floor)?),
        Function::Ceiling => real(steady(first, f64::ceil)?),
        Function::Factorial => gamma(first + 1.0)?,
        Function::Binomial => {
            let k = *values.get(1)?;
            gamma(first + 1.0)? / away_from_zero(gamma(k + 1.0)? * gamma(first - k + 1.0)?)?
        }
        Function::Max => real(values.iter().map(|value| value.re).fold(f64::NEG_INFINITY, f64::max)),
        Function::Min => real(values.iter().map(|value| value.re).fold(f64::INFINITY, f64::min)),
        Function::Gcd | Function::Lcm | Function::Determinant => return None,
    })
}

fn real_or(
    x: Complex64,
    inside: fn(f64) -> bool,
    f: fn(f64) -> f64,
    g: fn(Complex64) -> Complex64,
) -> Complex64 {
    if x.im == 0.0 && inside(x.re) { real(f(x.re)) } else { g(x) }
}

/// A step function, unless the argument is so near a step that rounding decides.
fn steady(x: Complex64, step: fn(f64) -> f64) -> Option<f64> {
    let near = (x.re - x.re.round()).abs() < 1e-9 && x.re != x.re.round();
    (x.im == 0.0 && !near).then(|| step(x.re))
}

fn ln(x: Complex64) -> Option<Complex64> {
    (x.norm() > 1e-300).then(|| match x.im == 0.0 {
        true if x.re > 0.0 => real(x.re.ln()),
        true => Complex64::new((-x.re).ln(), std::f64::consts::PI),
        false => x.ln(),
    })
}

/// The gamma function by the approximation of Lanczos, with reflection on the left half-plane.
///
/// *Reference*: C. Lanczos, "A precision approximation of the gamma function", SIAM J. Numer. Anal. 1 (1964); the nine
/// coefficients for g = 7 are the widely printed ones.
fn gamma(z: Complex64) -> Option<Complex64> {
    const G: f64 = 7.0;
    const COEFFICIENTS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if z.re < 0.5 {
        let sine = (z * std::f64::consts::PI).sin();
        if sine.norm() < 1e-12 {
            return None;
        }
        return Some(std::f64::consts::PI / (sine * gamma(1.0 - z)?));
    }
    if z.re > 160.0 {
        return None;
    }
    let z = z - 1.0;
    let mut sum = real(COEFFICIENTS[0]);
    for (at, coefficient) in COEFFICIENTS.iter().enumerate().skip(1) {
        sum += *coefficient / (z + at as f64);
    }
    let t = z + G + 0.5;
    Some((2.0 * std::f64::consts::PI).sqrt() * ((z + 0.5) * t.ln()).exp() * (-t).exp() * sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::limits::MAX_STEPS;
    use crate::math::parser::parse;

    fn same(a: &str, b: &str) -> bool {
        agree(&parse(a).unwrap(), &parse(b).unwrap(), &Budget::new(MAX_STEPS))
    }

    #[test]
    fn identities_hold() {
        for (a, b) in [
            (r"\tan^2(y)+1", r"\sec^2(y)"),
            (r"2\sin x\cos x", r"\sin 2x"),
            (r"\sqrt{x^2}", r"|x|"),
            (r"\frac{1}{3\sqrt[3]{x}^2}", r"\frac{1}{3x^{2/3}}"),
            (r"e^{i\pi/2}", "i"),
            (r"\sqrt{5+2\sqrt6}", r"\sqrt2+\sqrt3"),
            (r"(n+1)!", r"(n+1)\cdot n!"),
            (r"\sin 30^\circ", r"\frac12"),
            (r"\binom{n}{2}", r"\frac{n(n-1)}{2}"),
            (r"f(x)+1", r"1+f(x)"),
        ] {
            assert!(same(a, b), "{a} {b}");
        }
    }

    #[test]
    fn near_identities_fail() {
        for (a, b) in [
            (r"\sqrt{x^2}", "x"),
            (r"\sin 2x", r"2\sin x"),
            (r"\pi", r"\frac{355}{113}"),
            (r"x", "y"),
            ("f(x)", "f(y)"),
            (r"\frac{x}{0}", r"\frac{x}{0}"),
        ] {
            assert!(!same(a, b), "{a} {b}");
        }
    }
}

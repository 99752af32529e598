//! Equality of numbers, expressions and words.

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Pow, Signed, Zero};

use super::exact::exact;
use super::limits::Budget;
use super::numeric::{Point, agree, real_value};
use super::polynomial::same_rational_function;
use super::tree::{Constant, Node};
use super::vocabulary::units_conflict;

/// How numbers are compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rounding {
    /// Decimals to which a number written as a decimal is compared.
    pub(crate) places: u32,
    /// Whether 100 times too much or too little is right as well.
    pub(crate) lenient_percent: bool,
}

/// Whether two expressions are equal, and the name of what decided.
pub(crate) fn equal(gold: &Node, pred: &Node, rounding: Rounding, budget: &Budget) -> (bool, &'static str) {
    if let (Some(a), Some(b)) = (unit(gold), unit(pred))
        && units_conflict(a, b)
    {
        return (false, "unit");
    }
    if let (Node::Quantity(a, _), Node::Quantity(b, _)) = (gold, pred) {
        return equal(a, b, rounding, budget);
    }
    let (gold, pred) = (bare(gold), bare(pred));
    if let Some(same) = words(gold, pred) {
        return (same, "text");
    }
    match (gold, pred) {
        (Node::Based { digits: a, base: m }, Node::Based { digits: b, base: n }) => {
            return (a == b && m == n, "base");
        }
        // The base may go unsaid, but the digits count.
        (Node::Based { digits, .. }, other) | (other, Node::Based { digits, .. }) => {
            let same = exact(other, budget).zip(digits.parse::<BigInt>().ok());
            return (same.is_some_and(|(value, digits)| value == BigRational::from_integer(digits)), "base");
        }
        (Node::Percent(a), Node::Percent(b)) => return equal(a, b, rounding, budget),
        (Node::Percent(a), b) => {
            let hundredth = value_equal(gold, b, rounding, budget).0;
            return (hundredth || value_equal(a, b, rounding, budget).0, "percent");
        }
        (a, Node::Percent(b)) => {
            let hundredth = value_equal(a, pred, rounding, budget).0;
            return (hundredth || value_equal(a, b, rounding, budget).0, "percent");
        }
        (Node::Ratio(a), Node::Ratio(b)) if a.len() == b.len() => {
            return (proportional(a, b, rounding, budget), "ratio");
        }
        _ => {}
    }
    let (same, rule) = value_equal(gold, pred, rounding, budget);
    if same || !rounding.lenient_percent {
        return (same, rule);
    }
    let percent = Node::Percent(Box::new(pred.clone()));
    let hundredfold = Node::Product(vec![Node::integer(100), pred.clone()]);
    let lenient = value_equal(gold, &percent, rounding, budget).0
        || value_equal(gold, &hundredfold, rounding, budget).0;
    (lenient, "percent")
}

/// The unit that a value is written with; the sign of degrees is one.
fn unit(node: &Node) -> Option<&str> {
    match node {
        Node::Quantity(_, unit) => Some(unit),
        Node::Degrees(_) => Some("°"),
        _ => None,
    }
}

/// `node` without unit and degree sign.
fn bare(node: &Node) -> &Node {
    match node {
        Node::Quantity(inner, _) | Node::Degrees(inner) => bare(inner),
        other => other,
    }
}

fn proportional(a: &[Node], b: &[Node], rounding: Rounding, budget: &Budget) -> bool {
    let (Some(a_first), Some(b_first)) = (a.first(), b.first()) else { return false };
    a.iter().zip(b).skip(1).all(|(a_part, b_part)| {
        let left = Node::Product(vec![a_first.clone(), b_part.clone()]);
        let right = Node::Product(vec![b_first.clone(), a_part.clone()]);
        // 12:00 and 1:00 have the same cross products.
        let zeros = [a_first, a_part, b_first, b_part]
            .into_iter()
            .any(|part| exact(part, budget).is_some_and(|x| x.is_zero()));
        if zeros {
            value_equal(a_first, b_first, rounding, budget).0
                && value_equal(a_part, b_part, rounding, budget).0
        } else {
            value_equal(&left, &right, rounding, budget).0
        }
    })
}

fn value_equal(a: &Node, b: &Node, rounding: Rounding, budget: &Budget) -> (bool, &'static str) {
    if let (Some(a), Some(b)) = (infinity(a), infinity(b)) {
        return (a == b, "infinity");
    }
    let values = (exact(a, budget), exact(b, budget));
    let decimals = (is_decimal(a), is_decimal(b));
    if let (Some(x), Some(y)) = &values {
        if x == y {
            return (true, "rational");
        }
        if !decimals.0 && !decimals.1 {
            return (false, "rational");
        }
        return (rounds_equal(x, y, rounding.places), "decimal");
    }
    match (values, decimals) {
        ((Some(literal), None), (true, _)) => {
            return (rounds_to(b, &literal, rounding.places, budget), "decimal");
        }
        ((None, Some(literal)), (_, true)) => {
            return (rounds_to(a, &literal, rounding.places, budget), "decimal");
        }
        _ => {}
    }
    if a.key() == b.key() {
        return (true, "structure");
    }
    match same_rational_function(a, b, budget) {
        Some(same) => (same, "polynomial"),
        None => (agree(a, b, budget), "numeric"),
    }
}

/// Written as one decimal.
fn is_decimal(node: &Node) -> bool {
    match node {
        Node::Number { decimal, .. } => *decimal,
        Node::Negative(inner) | Node::Percent(inner) => is_decimal(inner),
        _ => false,
    }
}

/// The sign of an infinity.
fn infinity(node: &Node) -> Option<bool> {
    match node {
        Node::Constant(Constant::Infinity) => Some(true),
        Node::Negative(inner) => infinity(inner).map(|positive| !positive),
        _ => None,
    }
}

/// Rounded to `places` decimals, halves to even, in units of the last place.
fn rounded(value: &BigRational, places: u32) -> BigInt {
    let scaled = value * BigRational::from_integer(Pow::pow(BigInt::from(10), places));
    let half = BigRational::new(BigInt::one(), BigInt::from(2));
    let below = scaled.floor().to_integer();
    let rest = scaled - BigRational::from_integer(below.clone());
    if rest > half || (rest == half && below.is_odd()) { below + 1 } else { below }
}

/// Equal when rounded. Numbers that round to zero must agree in their leading digits too, or every small number would
/// equal every other.
fn rounds_equal(a: &BigRational, b: &BigRational, places: u32) -> bool {
    let (x, y) = (rounded(a, places), rounded(b, places));
    if x != y {
        return false;
    }
    if !x.is_zero() {
        return true;
    }
    let larger = std::cmp::max(a.abs(), b.abs());
    let difference = (a - b).abs();
    difference * BigRational::from_integer(Pow::pow(BigInt::from(10), places)) <= larger
}

fn rounds_to(node: &Node, literal: &BigRational, places: u32, budget: &Budget) -> bool {
    let mut names = Vec::new();
    node.variables(&mut names);
    if !names.is_empty() {
        return false;
    }
    let mut point = Point::drawn(0, budget);
    let Some(value) = real_value(node, &mut point) else { return false };
    BigRational::from_float(value).is_some_and(|value| rounds_equal(&value, literal, places))
}

/// Compares words; `None` if at least one side is more than a name. A product of letters is a word too, as in `$odd$`.
fn words(a: &Node, b: &Node) -> Option<bool> {
    let is_name = |node: &Node| matches!(node, Node::Symbol(_));
    if !is_name(a) && !is_name(b) {
        return None;
    }
    let (a, b) = (word(a)?, word(b)?);
    Some(!a.is_empty() && a == b)
}

/// The letters of a word, without case, spaces and what is put around a choice.
fn word(node: &Node) -> Option<String> {
    match node {
        Node::Symbol(name) => Some(plain_words(name)),
        Node::Constant(Constant::E) => Some("e".into()),
        Node::Constant(Constant::I) => Some("i".into()),
        Node::Product(factors) => {
            let letters = factors
                .iter()
                .map(|factor| match factor {
                    Node::Symbol(_) | Node::Constant(Constant::E | Constant::I) => word(factor),
                    _ => None,
                })
                .collect::<Option<Vec<_>>>()?;
            Some(letters.concat())
        }
        _ => None,
    }
}

/// Words without case, spacing, quotes, brackets and a full stop.
fn plain_words(text: &str) -> String {
    let kept =
        text.chars().filter(|c| !c.is_whitespace() && !matches!(c, '(' | ')' | '.' | '"' | '`' | '*' | '$'));
    kept.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::limits::MAX_STEPS;
    use crate::math::parser::parse;

    fn same(a: &str, b: &str) -> bool {
        let rounding = Rounding { places: 6, lenient_percent: false };
        let (a, b) = (parse(a).unwrap(), parse(b).unwrap());
        equal(&a, &b, rounding, &Budget::new(MAX_STEPS)).0
    }

    #[test]
    fn decimals_are_compared_to_six_places() {
        assert!(same(r"\frac13", "0.333333"));
        assert!(!same(r"\frac13", "0.33333"));
        assert!(same(r"\sqrt{2}", "1.414214"));
        assert!(!same(r"\sqrt{2}", "1.41421"));
        assert!(!same("0.0000001", "0.0000002"));
        assert!(same("0.0000001", r"10^{-7}"));
        assert!(!same("0.0000001", "0"));
    }

    #[test]
    fn percentages_equal_their_hundredth_and_their_number() {
        assert!(same(r"28\%", "28") && same(r"28\%", "0.28") && same("0.28", r"28\%"));
        assert!(!same("0.28", "28") && !same(r"28\%", "2800") && !same(r"28\%", r"0.28\%"));
    }

    #[test]
    fn words_are_compared_without_case_and_brackets() {
        assert!(same(r"\text{East}", "east") && same(r"\text{(B)}", "B") && same("odd", r"\text{odd}"));
        assert!(!same(r"\text{east}", r"\text{west}") && !same(r"\text{dog}", "god"));
    }

    #[test]
    fn digits_in_a_base_are_no_decimal_value() {
        assert!(same("1101_2", "1101_{2}") && same("1101_2", "1101"));
        assert!(!same("1101_2", "13") && !same("1101_2", "1101_3"));
    }

    #[test]
    fn units_are_ignored_unless_they_contradict() {
        assert!(same(r"10\text{ cm}", "10") && same(r"10\text{ cm}", r"10\text{ centimeters}"));
        assert!(!same(r"10\text{ cm}", r"10\text{ m}"));
    }

    #[test]
    fn ratios_are_equal_in_proportion() {
        assert!(same("3:4", r"\frac34") && same("1:2:3", "2:4:6") && same("12:00", "12:00"));
        assert!(!same("3:4", "4:3") && !same("12:00", "1:00") && !same("1:2:3", "1:2:4"));
    }
}

//! The value of an expression of whole numbers, exactly.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::Zero;

/// Longest expression that is read, in bytes.
const MOST_BYTES: usize = 1024;

/// Most numbers in an expression: with it, sums of fractions stay cheap.
const MOST_NUMBERS: usize = 64;

/// Deepest nesting of parentheses and signs.
const MOST_DEPTH: usize = 64;

/// An expression that was read.
#[derive(Debug, PartialEq)]
pub(super) struct Evaluated {
    /// Its value.
    pub(super) value: BigRational,
    /// The whole numbers that stand in it, from left to right.
    pub(super) numbers: Vec<BigInt>,
}

/// Reads whole numbers without signs, `+ - * /`, signs and parentheses, with the usual precedence. `None` for anything else: other
/// characters, a division by zero, more than [`MOST_BYTES`] bytes, [`MOST_NUMBERS`] numbers or [`MOST_DEPTH`] levels.
///
/// Numerator and denominator are each hardly longer than the text, so the limits bound the time.
pub(super) fn evaluate(text: &str) -> Option<Evaluated> {
    if text.len() > MOST_BYTES {
        return None;
    }
    let mut reader = Reader { rest: text.as_bytes(), numbers: Vec::new() };
    let value = reader.sum(0)?;
    reader.skip_spaces();
    reader.rest.is_empty().then_some(Evaluated { value, numbers: reader.numbers })
}

struct Reader<'a> {
    rest: &'a [u8],
    numbers: Vec<BigInt>,
}

impl Reader<'_> {
    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    /// Takes the next byte if it is one of these.
    fn take(&mut self, wanted: &[u8]) -> Option<u8> {
        self.skip_spaces();
        let (&first, rest) = self.rest.split_first()?;
        wanted.contains(&first).then(|| {
            self.rest = rest;
            first
        })
    }

    fn sum(&mut self, depth: usize) -> Option<BigRational> {
        let mut value = self.product(depth)?;
        while let Some(sign) = self.take(b"+-") {
            let term = self.product(depth)?;
            if sign == b'+' {
                value += term;
            } else {
                value -= term;
            }
        }
        Some(value)
    }

    fn product(&mut self, depth: usize) -> Option<BigRational> {
        let mut value = self.factor(depth)?;
        while let Some(sign) = self.take(b"*/") {
            let factor = self.factor(depth)?;
            if sign == b'*' {
                value *= factor;
            } else if factor.is_zero() {
                return None;
            } else {
                value /= factor;
            }
        }
        Some(value)
    }

    fn factor(&mut self, depth: usize) -> Option<BigRational> {
        if depth > MOST_DEPTH {
            return None;
        }
        match self.take(b"+-(") {
            Some(b'+') => self.factor(depth + 1),
            Some(b'-') => Some(-self.factor(depth + 1)?),
            Some(_) => {
                let value = self.sum(depth + 1)?;
                self.take(b")")?;
                Some(value)
            }
            None => self.number(),
        }
    }

    fn number(&mut self) -> Option<BigRational> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        if self.numbers.len() == MOST_NUMBERS {
            return None;
        }
        let number = BigInt::parse_bytes(number, 10)?;
        self.rest = rest;
        self.numbers.push(number.clone());
        Some(BigRational::from(number))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(text: &str) -> Option<String> {
        Some(evaluate(text)?.value.to_string())
    }

    #[test]
    fn the_usual_precedence_holds_and_quotients_are_exact() {
        for (text, expected) in [
            ("1 + 2 * 3", "7"),
            ("(1+2)*3", "9"),
            ("8 - 3 - 2", "3"),
            ("7/2", "7/2"),
            ("1/3 + 1/6", "1/2"),
            ("2 / 3 / 4", "1/6"),
            ("-(-(4))", "4"),
            ("3 - -2", "5"),
            ("2*-3", "-6"),
            (" 12 ", "12"),
        ] {
            assert_eq!(value(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_expression_has_no_value() {
        for text in
            ["", "1 +", "(1", "1)", "1 2", "2**3", "2^3", "1.5", "x", "4/0", "4/(2-2)", "2(3)", "1 = 1", "٣"]
        {
            assert_eq!(evaluate(text), None, "{text}");
        }
        assert_eq!(evaluate(&"(".repeat(1000)), None);
        assert_eq!(evaluate(&format!("{}1", "-".repeat(1000))), None);
        assert_eq!(evaluate(&"1".repeat(MOST_BYTES + 1)), None);
        assert_eq!(value(&vec!["1"; 64].join("+")).as_deref(), Some("64"));
        assert_eq!(evaluate(&vec!["1"; 65].join("+")), None);
    }

    #[test]
    fn the_numbers_are_those_that_stand_in_the_text() {
        let numbers = evaluate("25 * (7 - 3) + 7").unwrap().numbers;
        assert_eq!(numbers, [25, 7, 3, 7].map(BigInt::from));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "[0-9+*/() -]{0,60}") {
            let _ = evaluate(&text);
        }
    }
}

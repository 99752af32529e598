//! Reading exact rational numbers.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Pow, Zero};

use crate::normal_text::normal_text;

/// Longest answer, in bytes of its normal form, that is read as a number. Longer ones are compared as text.
pub const MAX_NUMBER_BYTES: usize = 1024;

/// Returns the number that `answer` writes, or `None` if it is not one number written in a form below.
///
/// After an optional sign:
/// * a decimal: `12`, `1,234.50`, `1{,}234`, `1\,234`, `.5`; separators stand between groups of three, and
///   the first group does not start with a zero;
/// * a quotient of decimals: `3/4`, `\frac{3}{4}`, `\frac34`, with a sign above or below the bar if need be;
/// * a mixed number: `1 1/2`, `1\frac{1}{2}`, of whole numbers, the fraction below one.
///
/// Dollar signs, math delimiters, spacing commands and a full stop at the end are ignored. Not read:
/// percentages, powers of ten, units, products, sums, a quotient by zero, and anything longer than
/// [`MAX_NUMBER_BYTES`].
///
/// ```
/// use firebrick_reward::parse_rational;
///
/// assert_eq!(parse_rational("0.50"), parse_rational(r"\frac{1}{2}"));
/// assert_eq!(parse_rational("1/0"), None);
/// ```
pub fn parse_rational(answer: &str) -> Option<BigRational> {
    parse_normal(&normal_text(answer))
}

/// [`parse_rational`] of a text in normal form.
pub(crate) fn parse_normal(text: &str) -> Option<BigRational> {
    if text.len() > MAX_NUMBER_BYTES {
        return None;
    }
    let mut reader = Reader { rest: text };
    let number = reader.signed(Reader::magnitude)?;
    reader.rest.is_empty().then_some(number)
}

/// An unsigned decimal.
struct Decimal {
    value: BigRational,
    /// Written without a decimal point.
    is_whole: bool,
}

/// Reads numbers off the front of a text; on `None` the position is unspecified.
struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    /// Moves past `text` if it comes next.
    fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Moves past the digits that come next and returns them, at most `limit`.
    fn digits(&mut self, limit: usize) -> String {
        let digits: String = self.rest.chars().take(limit).take_while(char::is_ascii_digit).collect();
        self.rest = &self.rest[digits.len()..];
        digits
    }

    fn signed(&mut self, unsigned: fn(&mut Self) -> Option<BigRational>) -> Option<BigRational> {
        let negative = self.eat("-");
        if !negative {
            self.eat("+");
        }
        let magnitude = unsigned(self)?;
        Some(if negative { -magnitude } else { magnitude })
    }

    /// A decimal, a quotient or a mixed number.
    fn magnitude(&mut self) -> Option<BigRational> {
        if self.eat(r"\frac") {
            return self.fraction();
        }
        let first = self.decimal()?;
        if self.eat("/") {
            return quotient(first.value, self.signed(Self::plain_decimal)?);
        }
        let part = if self.eat(r"\frac") {
            self.fraction()?
        } else if self.eat(" ") {
            let above = self.whole()?;
            let below = if self.eat("/") { self.whole()? } else { return None };
            quotient(above, below)?
        } else {
            return Some(first.value);
        };
        let is_proper = part >= BigRational::zero() && part < BigRational::one();
        (first.is_whole && is_proper).then(|| first.value + part)
    }

    /// What follows `\frac`.
    fn fraction(&mut self) -> Option<BigRational> {
        let above = self.argument()?;
        let below = self.argument()?;
        quotient(above, below)
    }

    /// An argument of a LaTeX command: a signed decimal in braces, or one digit.
    fn argument(&mut self) -> Option<BigRational> {
        self.eat(" ");
        if self.eat("{") {
            let value = self.signed(Self::plain_decimal)?;
            return self.eat("}").then_some(value);
        }
        let digit: BigInt = self.digits(1).parse().ok()?;
        Some(BigRational::from(digit))
    }

    fn plain_decimal(&mut self) -> Option<BigRational> {
        self.decimal().map(|decimal| decimal.value)
    }

    fn whole(&mut self) -> Option<BigRational> {
        self.decimal().filter(|decimal| decimal.is_whole).map(|decimal| decimal.value)
    }

    fn decimal(&mut self) -> Option<Decimal> {
        let mut digits = self.digits(usize::MAX);
        let may_have_groups = (1..=3).contains(&digits.len()) && !digits.starts_with('0');
        while may_have_groups && self.eat(",") {
            let group = self.digits(usize::MAX);
            if group.len() != 3 {
                return None;
            }
            digits.push_str(&group);
        }
        let is_whole = !self.eat(".");
        if !is_whole {
            let places = self.digits(usize::MAX);
            if places.is_empty() {
                return None;
            }
            let mantissa: BigInt = (digits + &places).parse().ok()?;
            let scale = BigInt::from(10).pow(places.len());
            return Some(Decimal { value: BigRational::new(mantissa, scale), is_whole });
        }
        let whole: BigInt = digits.parse().ok()?; // fails when there is no digit
        Some(Decimal { value: BigRational::from(whole), is_whole })
    }
}

fn quotient(above: BigRational, below: BigRational) -> Option<BigRational> {
    (!below.is_zero()).then(|| above / below)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ratio(above: i64, below: i64) -> Option<BigRational> {
        Some(BigRational::new(above.into(), below.into()))
    }

    #[test]
    fn decimals_are_read_exactly() {
        assert_eq!(parse_rational("42"), ratio(42, 1));
        assert_eq!(parse_rational("-3"), ratio(-3, 1));
        assert_eq!(parse_rational("+3"), ratio(3, 1));
        assert_eq!(parse_rational("- 3"), ratio(-3, 1));
        assert_eq!(parse_rational("\u{2212}3"), ratio(-3, 1));
        assert_eq!(parse_rational("007"), ratio(7, 1));
        assert_eq!(parse_rational("-0"), ratio(0, 1));
        assert_eq!(parse_rational("0.1"), ratio(1, 10));
        assert_eq!(parse_rational(".50"), ratio(1, 2));
        assert_eq!(parse_rational("12."), ratio(12, 1));
    }

    #[test]
    fn thousands_are_read_in_groups_of_three_only() {
        assert_eq!(parse_rational("1,000"), ratio(1000, 1));
        assert_eq!(parse_rational("$200,000"), ratio(200_000, 1));
        assert_eq!(parse_rational("1,234,567.5"), ratio(2_469_135, 2));
        assert_eq!(parse_rational("12{,}345"), ratio(12_345, 1));
        assert_eq!(parse_rational(r"12\,345"), ratio(12_345, 1));
        for text in ["1,00", "123,45", "1234,567", "1,0000", "0,123", "32, 349", ",123", "1,,234", "1,234,"] {
            assert_eq!(parse_rational(text), None, "{text}");
        }
    }

    #[test]
    fn quotients_are_read_in_every_form() {
        for text in
            ["1/2", "2/4", "0.5/1", " 1 / 2 ", r"\frac{1}{2}", r"\dfrac{1}{2}", r"\tfrac12", r"\frac 1 2"]
        {
            assert_eq!(parse_rational(text), ratio(1, 2), "{text}");
        }
        for text in ["-1/2", "1/-2", r"-\frac{1}{2}", r"\frac{-1}{2}", r"$\frac{1}{-2}$", r"-\frac1{2}"] {
            assert_eq!(parse_rational(text), ratio(-1, 2), "{text}");
        }
        assert_eq!(parse_rational("-1/-2"), ratio(1, 2));
    }

    #[test]
    fn mixed_numbers_take_the_sign_as_a_whole() {
        assert_eq!(parse_rational("1 1/2"), ratio(3, 2));
        assert_eq!(parse_rational(r"-3\frac{1}{2}"), ratio(-7, 2));
        assert_eq!(parse_rational(r"3 \frac12"), ratio(7, 2));
        for text in [r"2\frac{3}{2}", "1.5 1/2", r"1.0\frac12", "1 1.0/2", "1 -1/2", "1 2", r"1\frac{-1}{2}"]
        {
            assert_eq!(parse_rational(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_not_one_number_is_not_read() {
        for text in [
            "",
            " ",
            "-",
            "+",
            ".",
            "--3",
            "+-3",
            "1/0",
            r"\frac{1}{0}",
            "0/0",
            r"\frac{1}",
            r"\frac",
            r"\frac{1}{2",
            "1/2/3",
            "28%",
            "1e5",
            "5 cm",
            "x=5",
            "3+4",
            "(3)",
            "NaN",
            "inf",
            "٣",
            "1 000",
            r"\frac{\frac12}{3}",
            "5./2",
        ] {
            assert_eq!(parse_rational(text), None, "{text}");
        }
    }

    #[test]
    fn huge_numbers_are_exact_up_to_the_limit() {
        let huge = "9".repeat(MAX_NUMBER_BYTES);
        assert_ne!(parse_rational(&huge), parse_rational(&format!("{}8", &huge[1..])));
        assert_eq!(parse_rational(&huge).map(|n| n.to_string()), Some(huge.clone()));
        assert_eq!(parse_rational(&format!("{huge}9")), None);
        let small = format!("0.{}1", "0".repeat(MAX_NUMBER_BYTES - 3));
        assert!(parse_rational(&small).is_some_and(|n| !n.is_zero()));
    }

    proptest! {
        #[test]
        fn every_integer_and_quotient_is_read_back(above in any::<i64>(), below in 1..i64::MAX) {
            prop_assert_eq!(parse_rational(&above.to_string()), ratio(above, 1));
            prop_assert_eq!(parse_rational(&format!("{above}/{below}")), ratio(above, below));
            let latex = format!("\\frac{{{above}}}{{{below}}}");
            prop_assert_eq!(parse_rational(&latex), ratio(above, below));
        }

        #[test]
        fn any_text_returns(text in any::<String>(), near in r"[-+0-9,./ {}\\frac]{0,30}") {
            let _ = parse_rational(&text);
            let _ = parse_rational(&near);
        }
    }
}

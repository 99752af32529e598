//! Decimal numbers as Python's `decimal.Decimal` reads and compares them.

use num_bigint::BigInt;
use num_traits::Zero;

/// More digits are no number: reading them takes time quadratic in their count.
const MAX_DIGITS: usize = 20_000;

/// A number as `Decimal(text)` reads it. NaN equals nothing.
#[derive(Debug, Clone)]
pub(crate) enum Decimal {
    /// `digits · 10^exponent`, without trailing zeros in the digits; zero is `0 · 10^0`.
    Finite {
        digits: String,
        negative: bool,
        exponent: BigInt,
    },
    Infinity {
        negative: bool,
    },
    NotANumber,
}

impl Decimal {
    /// Reads a token: a decimal with an optional exponent, `inf`, `infinity` or `nan`, in any case, underscores ignored.
    pub(crate) fn parse(token: &str) -> Option<Self> {
        if token.len() > MAX_DIGITS {
            return None;
        }
        let token = token.replace('_', "").to_ascii_lowercase();
        let (negative, rest) = match token.strip_prefix(['-', '+']) {
            Some(rest) => (token.starts_with('-'), rest),
            None => (false, token.as_str()),
        };
        if matches!(rest, "inf" | "infinity") {
            return Some(Self::Infinity { negative });
        }
        let payload = rest.strip_prefix("snan").or_else(|| rest.strip_prefix("nan"));
        if payload.is_some_and(|payload| payload.bytes().all(|byte| byte.is_ascii_digit())) {
            return Some(Self::NotANumber);
        }
        let (mantissa, exponent) = match rest.split_once('e') {
            Some((mantissa, exponent)) => (mantissa, signed_integer(exponent)?),
            None => (rest, BigInt::zero()),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !is_digits(fraction) || whole.len() + fraction.len() == 0 {
            return None;
        }
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        let kept = digits.trim_end_matches('0');
        if kept.is_empty() {
            return Some(Self::Finite { digits: "0".into(), negative: false, exponent: BigInt::zero() });
        }
        let exponent = exponent - fraction.len() + (digits.len() - kept.len());
        Some(Self::Finite { digits: kept.to_owned(), negative, exponent })
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Finite { digits, negative, exponent },
                Self::Finite { digits: digits_, negative: negative_, exponent: exponent_ },
            ) => digits == digits_ && negative == negative_ && exponent == exponent_,
            (Self::Infinity { negative }, Self::Infinity { negative: negative_ }) => negative == negative_,
            _ => false,
        }
    }
}

fn signed_integer(text: &str) -> Option<BigInt> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_integer.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn equal(a: &str, b: &str) -> bool {
        Decimal::parse(a).unwrap() == Decimal::parse(b).unwrap()
    }

    #[test]
    fn a_number_equals_every_way_to_write_it_and_no_other() {
        for text in ["1.5", "+1.50", "01.5", "15e-1", "0.15E+1", "150e-2", "1_5e-1"] {
            assert!(equal("1.5", text), "{text}");
        }
        for text in ["1.5000000000000000000001", "-1.5", "15", "1.4", "inf", "nan"] {
            assert!(!equal("1.5", text), "{text}");
        }
        assert!(equal("0", "-0.000") && equal("0e999999999999", ".0"));
        assert!(equal("1e999999999999", "10e999999999998") && !equal("1e999999999999", "1e999999999998"));
        assert!(equal("1200", "12e2") && equal("5.", "5") && equal("-.5", "-0.5"));
        assert!(equal("Infinity", "inf") && !equal("inf", "-inf") && !equal("nan", "nan"));
    }

    #[test]
    fn a_token_that_is_no_number_is_refused() {
        for text in [
            "", ".", "-", "e5", "1e", "1e+", "1e5.0", "--1", "1.2.3", "0x10", "1,000", "one", "infinit",
            "nanx",
        ] {
            assert!(Decimal::parse(text).is_none(), "{text}");
        }
        assert!(Decimal::parse(&"1".repeat(MAX_DIGITS + 1)).is_none());
    }
}

//! The forms in which answers are written: each function reads one, and returns `None` for any other text.

use num_bigint::{BigInt, BigUint};
use num_rational::BigRational;
use num_traits::{One, Pow};
use serde_json::Value;

use crate::rational::MAX_NUMBER_BYTES;

/// Largest size of a decimal exponent.
const MOST_EXPONENT: u32 = 400;

/// A decimal number: sign, digits with commas, a point, an exponent.
pub(super) fn decimal(text: &str) -> Option<BigRational> {
    if text.len() > MAX_NUMBER_BYTES {
        return None;
    }
    let text = text.trim().replace(',', "");
    let (negative, text) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text.as_str()),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{part}");
    if all.is_empty()
        || !all.bytes().all(|byte| byte.is_ascii_digit())
        || exponent.unsigned_abs() > MOST_EXPONENT
    {
        return None;
    }
    let digits = BigInt::parse_bytes(all.as_bytes(), 10)?;
    let shift = exponent - part.len() as i32;
    let scale: BigInt = Pow::pow(BigInt::from(10), shift.unsigned_abs());
    let value = if shift < 0 {
        BigRational::new(digits, scale)
    } else {
        BigRational::new(digits * scale, BigInt::one())
    };
    Some(if negative { -value } else { value })
}

/// A whole number in a base, with or without the prefix of that base.
pub(super) fn digits(text: &str, base: u32) -> Option<BigUint> {
    let text = text.trim().to_ascii_lowercase();
    let prefix = match base {
        2 => "0b",
        8 => "0o",
        16 => "0x",
        _ => "",
    };
    let text = text.strip_prefix(prefix).unwrap_or(&text);
    let is_number = text.len() <= MAX_NUMBER_BYTES && text.chars().all(|digit| digit.is_digit(base));
    is_number.then(|| BigUint::parse_bytes(text.as_bytes(), base))?
}

/// Numerator and denominator as they are written, not reduced.
pub(super) fn fraction(text: &str) -> Option<(BigInt, BigInt)> {
    if text.len() > MAX_NUMBER_BYTES {
        return None;
    }
    let text = text.trim().trim_matches('$').trim();
    let command = [r"\frac", r"\dfrac"].into_iter().find_map(|name| text.strip_prefix(name));
    let (a, b) = match command {
        Some(rest) => {
            let (a, rest) = rest.trim_start().strip_prefix('{')?.split_once('}')?;
            (a, rest.trim_start().strip_prefix('{')?.strip_suffix('}')?)
        }
        None => text.split_once('/')?,
    };
    Some((a.trim().parse().ok()?, b.trim().parse().ok()?))
}

/// A list of numbers, each quoted or not.
pub(super) fn list(text: &str) -> Option<Vec<BigRational>> {
    let items: Vec<Value> = serde_json::from_str(&text.replace('\'', "\"")).ok()?;
    let number = |item: Value| match item {
        Value::Number(number) => decimal(&number.to_string()),
        Value::String(number) => decimal(&number),
        _ => None,
    };
    items.into_iter().map(number).collect()
}

/// Most factors of a number below 2⁶⁴.
const MOST_FACTORS: usize = 64;

/// The factors in ascending order, powers multiplied out.
pub(super) fn factors(text: &str) -> Option<Vec<u64>> {
    if text.len() > MAX_NUMBER_BYTES {
        return None;
    }
    let text = text.replace("**", "^").replace(r"\times", "*").replace(['×', '·'], "*");
    let mut factors = Vec::new();
    for factor in text.split('*') {
        let (base, power) = factor.split_once('^').unwrap_or((factor, "1"));
        let base: u64 = base.trim().parse().ok()?;
        let power = power.trim().trim_start_matches('{').trim_end_matches('}');
        let power = power.parse::<usize>().ok().filter(|power| (1..=MOST_FACTORS).contains(power))?;
        factors.extend(std::iter::repeat_n(base, power));
    }
    factors.sort_unstable();
    Some(factors)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decimals_are_exact_and_bounded() {
        assert_eq!(decimal("0.1").map(|value| value.to_string()).as_deref(), Some("1/10"));
        assert_eq!(decimal("1e400").map(|value| value.to_string().len()), Some(401));
        for text in
            ["1e401", "1e-999999999999", "", "+", ".", "e5", "1.2.3", "0x10", "1/2", &"1".repeat(1025)]
        {
            assert_eq!(decimal(text), None, "{text}");
        }
    }

    #[test]
    fn no_factor_is_repeated_more_often_than_a_number_can_hold() {
        assert_eq!(factors("2^64").map(|factors| factors.len()), Some(64));
        assert_eq!(factors("2^65"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in any::<String>(), base in 2u32..=36) {
            let _ = (decimal(&text), digits(&text, base), fraction(&text), list(&text), factors(&text));
        }

        #[test]
        fn whole_numbers_are_read_back(value in any::<i64>(), base in 2u32..=36) {
            prop_assert_eq!(decimal(&value.to_string()), Some(BigRational::from(BigInt::from(value))));
            let written = BigUint::from(value.unsigned_abs()).to_str_radix(base);
            prop_assert_eq!(digits(&written, base), Some(BigUint::from(value.unsigned_abs())));
        }
    }
}

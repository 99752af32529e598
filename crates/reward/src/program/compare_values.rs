//! When a returned value is the expected one.

use std::collections::HashMap;

use num_bigint::BigInt;
use num_traits::{FromPrimitive, ToPrimitive};

use super::compare::{OutputComparison, is_close};
use super::value::Value;

impl OutputComparison {
    /// Whether a value is the expected one. What is expected comes from JSON: it holds no tuple, set or other key than text.
    pub(crate) fn accepts_value(self, found: &Value, expected: &Value) -> bool {
        match (found, expected) {
            (Value::List(found), Value::List(expected)) => self.accept_all(found, expected),
            (Value::Tuple(found), Value::List(expected)) => {
                self != Self::Exact && self.accept_all(found, expected)
            }
            (Value::Dict(found), Value::Dict(expected)) => self.accepts_dict(found, expected),
            (Value::Str(found), Value::Str(expected)) => found == expected,
            (Value::None, Value::None) => true,
            _ => self.accepts_number(found, expected),
        }
    }

    fn accept_all(self, found: &[Value], expected: &[Value]) -> bool {
        found.len() == expected.len()
            && found.iter().zip(expected).all(|(found, expected)| self.accepts_value(found, expected))
    }

    fn accepts_dict(self, found: &[(Value, Value)], expected: &[(Value, Value)]) -> bool {
        let key = |key: &Value| match key {
            Value::Str(text) => Some(text.clone()),
            Value::Int(integer) if self == Self::AppsLax => Some(integer.to_string()),
            _ => None,
        };
        let by_key = |entries: &[(Value, Value)]| -> Option<HashMap<String, Value>> {
            entries.iter().map(|(name, value)| Some((key(name)?, value.clone()))).collect()
        };
        let (Some(found), Some(expected)) = (by_key(found), by_key(expected)) else { return false };
        found.len() == expected.len()
            && expected.iter().all(|(key, expected)| {
                found.get(key).is_some_and(|found| self.accepts_value(found, expected))
            })
    }

    fn accepts_number(self, found: &Value, expected: &Value) -> bool {
        if self == Self::Exact {
            return match (found, expected) {
                (Value::Float(found), Value::Float(expected)) => {
                    found == expected || found.is_nan() && expected.is_nan()
                }
                _ => found == expected,
            };
        }
        let (Some(found), Some(expected)) = (number(found), number(expected)) else { return false };
        equal_numbers(&found, &expected)
            || self == Self::AppsLax
                && matches!((approximately(&found), approximately(&expected)), (Some(found), Some(expected)) if is_close(found, expected))
    }
}

/// A number of Python's tower that lies on the real line.
enum Number {
    Int(BigInt),
    Float(f64),
}

/// In Python a bool is an integer, and a complex number without imaginary part equals the real one.
fn number(value: &Value) -> Option<Number> {
    match value {
        Value::Bool(flag) => Some(Number::Int(BigInt::from(u8::from(*flag)))),
        Value::Int(integer) => Some(Number::Int(integer.clone())),
        Value::Float(float) => Some(Number::Float(*float)),
        Value::Complex(re, im) if *im == 0.0 => Some(Number::Float(*re)),
        _ => None,
    }
}

/// Python compares an integer with a float exactly, without rounding the integer.
fn equal_numbers(a: &Number, b: &Number) -> bool {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => a == b,
        (Number::Float(a), Number::Float(b)) => a == b,
        (Number::Int(integer), Number::Float(float)) | (Number::Float(float), Number::Int(integer)) => {
            float.fract() == 0.0 && BigInt::from_f64(*float).as_ref() == Some(integer)
        }
    }
}

fn approximately(number: &Number) -> Option<f64> {
    match number {
        Number::Int(integer) => integer.to_f64(),
        Number::Float(float) => Some(*float),
    }
}

#[cfg(test)]
mod tests {
    use super::super::json_text::parse_json;
    use super::*;

    /// Modes that accept, as L, E and A.
    fn accepting(found: &str, expected: &str) -> String {
        let found = Value::from_tagged(parse_json(found).unwrap()).unwrap();
        let expected = parse_json(expected).unwrap();
        let modes = [
            ("L", OutputComparison::LcbLinesDecimal),
            ("E", OutputComparison::Exact),
            ("A", OutputComparison::AppsLax),
        ];
        modes
            .iter()
            .filter(|(_, mode)| mode.accepts_value(&found, &expected))
            .map(|(name, _)| *name)
            .collect()
    }

    #[test]
    fn each_mode_accepts_its_own_pairs() {
        let table = [
            ("[1, [2]]", "[1, [2]]", "LEA"),
            (r#"{"t": [1, {"t": [2]}]}"#, "[1, [2]]", "LA"),
            ("1", "1.0", "LA"),
            ("true", "1", "LA"),
            (r#"{"c": [1.0, 0.0]}"#, "1", "LA"),
            ("0.30000000000000004", "0.3", "A"),
            ("NaN", "NaN", "E"),
            ("Infinity", "Infinity", "LEA"),
            ("9007199254740993", "9007199254740992.0", "A"),
            (r#"{"i": "0x20000000000000"}"#, "9007199254740992", "LEA"),
            (r#"{"d": [["b", 2], ["a", 1]]}"#, r#"{"a": 1, "b": 2}"#, "LEA"),
            (r#"{"d": [[1, 2]]}"#, r#"{"1": 2}"#, "A"),
            ("null", "null", "LEA"),
            (r#""x""#, r#""x""#, "LEA"),
        ];
        for (found, expected, modes) in table {
            assert_eq!(accepting(found, expected), modes, "{found} for {expected}");
        }
    }

    #[test]
    fn no_mode_accepts_what_differs() {
        let table = [
            ("[1, 2]", "[1]"),
            ("[2, 1]", "[1, 2]"),
            (r#"{"s": [1]}"#, "[1]"),
            (r#"{"r": [0, 1, 1]}"#, "[0]"),
            (r#""1""#, "1"),
            ("null", "0"),
            ("null", "false"),
            ("[]", "null"),
            (r#"{"b": "61"}"#, r#""a""#),
            (r#"{"d": [["a", 1], ["b", 2]]}"#, r#"{"a": 1}"#),
            (r#"{"d": []}"#, "[]"),
            ("NaN", "1"),
            ("Infinity", "1e308"),
            (r#"{"c": [1.0, 1.0]}"#, "1"),
        ];
        for (found, expected) in table {
            assert_eq!(accepting(found, expected), "", "{found} for {expected}");
        }
    }
}

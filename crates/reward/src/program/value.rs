//! Python's values, outside Python.

use num_bigint::BigInt;
use num_traits::Num;

/// A value of one of Python's own types.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(BigInt),
    Float(f64),
    Complex(f64, f64),
    Str(String),
    /// Bytes and bytearrays, in hexadecimal.
    Bytes(String),
    List(Vec<Value>),
    Tuple(Vec<Value>),
    /// Sets and frozensets, in any order.
    Set(Vec<Value>),
    Range(Vec<Value>),
    /// In the order of the dict, or of the JSON object; the last of equal keys counts.
    Dict(Vec<(Value, Value)>),
}

impl Value {
    /// Reads a value in the tagged form of `wire.py`, as JSON; `None` if it is none.
    pub(crate) fn from_tagged(json: Value) -> Option<Self> {
        match json {
            Self::List(items) => Some(Self::List(from_tagged_all(items)?)),
            Self::Dict(mut entries) => {
                let (Some((Self::Str(tag), body)), true) = (entries.pop(), entries.is_empty()) else {
                    return None;
                };
                from_tag(&tag, body)
            }
            plain => Some(plain),
        }
    }

    /// Writes the tagged form of a value that came from JSON.
    pub(crate) fn write_tagged(&self, out: &mut String) {
        match self {
            Self::None => out.push_str("null"),
            Self::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
            Self::Int(integer) if integer.bits() < 63 => out.push_str(&integer.to_string()),
            Self::Int(integer) => out.push_str(&format!("{{\"i\": \"{integer:#x}\"}}")),
            Self::Float(float) => out.push_str(&python_float(*float)),
            Self::Complex(re, im) => {
                out.push_str(&format!("{{\"c\": [{}, {}]}}", python_float(*re), python_float(*im)));
            }
            Self::Str(text) => out.push_str(&quoted(text)),
            Self::Bytes(hexadecimal) => out.push_str(&format!("{{\"b\": {}}}", quoted(hexadecimal))),
            Self::List(items) => write_items(items, out),
            Self::Tuple(items) => write_tag("t", items, out),
            Self::Set(items) => write_tag("s", items, out),
            Self::Range(items) => write_tag("r", items, out),
            Self::Dict(entries) => {
                out.push_str("{\"d\": [");
                for (index, (key, value)) in entries.iter().enumerate() {
                    out.push_str(if index == 0 { "[" } else { ", [" });
                    key.write_tagged(out);
                    out.push_str(", ");
                    value.write_tagged(out);
                    out.push(']');
                }
                out.push_str("]}");
            }
        }
    }

    /// The text, if it is one.
    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The items, if it is a list.
    pub(crate) fn as_list(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// What a JSON object has under `key`.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Dict(entries) => {
                entries.iter().rev().find(|(name, _)| name.as_str() == Some(key)).map(|(_, value)| value)
            }
            _ => None,
        }
    }
}

impl From<&serde_json::Value> for Value {
    /// Integers beyond 64 bits have become floats where `serde_json` read them.
    fn from(json: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        match json {
            Json::Null => Self::None,
            Json::Bool(flag) => Self::Bool(*flag),
            Json::Number(number) => match (number.as_i128(), number.as_f64()) {
                (Some(integer), _) => Self::Int(integer.into()),
                (None, float) => Self::Float(float.unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::Str(text.clone()),
            Json::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Json::Object(entries) => {
                let pairs = entries.iter().map(|(key, value)| (Self::Str(key.clone()), Self::from(value)));
                Self::Dict(pairs.collect())
            }
        }
    }
}

/// JSON text of a string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn python_float(float: f64) -> String {
    if float.is_nan() {
        "NaN".to_owned()
    } else if float.is_infinite() {
        if float > 0.0 { "Infinity".to_owned() } else { "-Infinity".to_owned() }
    } else {
        format!("{float:?}")
    }
}

fn write_items(items: &[Value], out: &mut String) {
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        item.write_tagged(out);
    }
    out.push(']');
}

fn write_tag(tag: &str, items: &[Value], out: &mut String) {
    out.push_str(&format!("{{\"{tag}\": "));
    write_items(items, out);
    out.push('}');
}

fn from_tagged_all(items: Vec<Value>) -> Option<Vec<Value>> {
    items.into_iter().map(Value::from_tagged).collect()
}

fn from_tag(tag: &str, body: Value) -> Option<Value> {
    Some(match (tag, body) {
        ("i", Value::Str(text)) => Value::Int(hexadecimal(&text)?),
        ("b" | "y", Value::Str(text)) => Value::Bytes(text),
        ("c", Value::List(parts)) => match parts[..] {
            [Value::Float(re), Value::Float(im)] => Value::Complex(re, im),
            _ => return None,
        },
        ("t", Value::List(items)) => Value::Tuple(from_tagged_all(items)?),
        ("s" | "z", Value::List(items)) => Value::Set(from_tagged_all(items)?),
        ("r", Value::List(items)) => Value::Range(from_tagged_all(items)?),
        ("d", Value::List(pairs)) => {
            let pair = |item| match item {
                Value::List(pair) => {
                    let [key, value] = <[Value; 2]>::try_from(pair).ok()?;
                    Some((Value::from_tagged(key)?, Value::from_tagged(value)?))
                }
                _ => None,
            };
            Value::Dict(pairs.into_iter().map(pair).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

/// Python's `hex`: `-0x1f`.
fn hexadecimal(text: &str) -> Option<BigInt> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let digits = digits.strip_prefix("0x")?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let magnitude = BigInt::from_str_radix(digits, 16).ok()?;
    Some(if negative { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::super::json_text::parse_json;
    use super::*;

    fn read(text: &str) -> Option<Value> {
        Value::from_tagged(parse_json(text)?)
    }

    #[test]
    fn every_tag_is_read() {
        let int = |n: i64| Value::Int(n.into());
        assert_eq!(
            read("[1, -2.5, null, true]"),
            Some(Value::List(vec![int(1), Value::Float(-2.5), Value::None, Value::Bool(true)]))
        );
        assert_eq!(read(r#"{"i": "-0xff"}"#), Some(int(-255)));
        assert_eq!(read(r#"{"c": [1.0, -0.5]}"#), Some(Value::Complex(1.0, -0.5)));
        assert_eq!(
            read(r#"{"t": [{"s": [1]}, {"z": []}]}"#),
            Some(Value::Tuple(vec![Value::Set(vec![int(1)]), Value::Set(vec![])]))
        );
        assert_eq!(
            read(r#"{"d": [[1, "a"], [{"t": []}, 2]]}"#),
            Some(Value::Dict(vec![(int(1), Value::Str("a".into())), (Value::Tuple(vec![]), int(2))]))
        );
        assert_eq!(read(r#"{"b": "00ff"}"#), Some(Value::Bytes("00ff".into())));
        assert_eq!(read(r#"{"r": [0, 3, 1]}"#), Some(Value::Range(vec![int(0), int(3), int(1)])));
    }

    #[test]
    fn what_is_no_tagged_value_is_refused() {
        for text in [
            "{}",
            r#"{"q": 1}"#,
            r#"{"i": "12"}"#,
            r#"{"i": "0x"}"#,
            r#"{"i": "0x+1"}"#,
            r#"{"i": 1}"#,
            r#"{"t": 1}"#,
            r#"{"d": [[1]]}"#,
            r#"{"c": [1, 2]}"#,
            r#"{"i": "0x1", "t": []}"#,
            r#"[{"q": 1}]"#,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_value_survives_being_written_and_read() {
        let text = r#"[null, true, 7, 123456789012345678901234567890, 1e300, 0.1, "é\"\n", {"k": [1, {"n": 2.0}]}, []]"#;
        let value = parse_json(text).unwrap();
        let mut written = String::new();
        value.write_tagged(&mut written);
        assert_eq!(read(&written), Some(value));
    }
}

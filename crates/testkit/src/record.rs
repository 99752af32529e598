//! JSON fixtures, read without a type of their own.

use std::{fs, path::Path};

use serde_json::{Map, Value};

/// A JSON object of a fixture. Its numbers may also be the strings `nan`, `inf` and `-inf`.
#[derive(Debug, Clone)]
pub struct Record(Map<String, Value>);

impl Record {
    /// A record of a JSON value.
    ///
    /// # Panics
    /// When it is no object.
    #[track_caller]
    pub fn new(value: Value) -> Self {
        match value {
            Value::Object(map) => Self(map),
            other => panic!("a record must be a JSON object, found {other}"),
        }
    }

    /// Reads a file that holds one object.
    ///
    /// # Panics
    /// When it cannot be read.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self::new(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    /// The value under `key`, unless it is absent or null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// The value under `key`.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn value(&self, key: &str) -> &Value {
        self.get(key).unwrap_or_else(|| panic!("the record has no {key:?}: {self:?}"))
    }

    /// The text under `key`.
    ///
    /// # Panics
    /// When it is no text.
    #[track_caller]
    pub fn text(&self, key: &str) -> &str {
        self.value(key).as_str().unwrap_or_else(|| panic!("{key:?} is no text"))
    }

    /// The number under `key`.
    ///
    /// # Panics
    /// When it is no number.
    #[track_caller]
    pub fn number(&self, key: &str) -> f64 {
        number(self.value(key))
    }

    /// The numbers under `key`: \[B\].
    ///
    /// # Panics
    /// When it is no list of numbers.
    #[track_caller]
    pub fn numbers(&self, key: &str) -> Vec<f64> {
        numbers(self.value(key))
    }

    /// The table under `key`, [B, T].
    ///
    /// # Panics
    /// When it is no list of lists of numbers.
    #[track_caller]
    pub fn table(&self, key: &str) -> Vec<Vec<f64>> {
        list(self.value(key)).iter().map(numbers).collect()
    }

    /// The record nested under `key`.
    ///
    /// # Panics
    /// When it is no object.
    #[track_caller]
    pub fn record(&self, key: &str) -> Self {
        Self::new(self.value(key).clone())
    }
}

/// The entries of the list `records` of a fixture file.
///
/// # Panics
/// When the file cannot be read or has no such list.
#[track_caller]
pub fn load_records(path: impl AsRef<Path>) -> Vec<Record> {
    list(Record::load(path).value("records")).iter().cloned().map(Record::new).collect()
}

#[track_caller]
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("expected a list, found {value}"))
}

#[track_caller]
fn numbers(value: &Value) -> Vec<f64> {
    list(value).iter().map(number).collect()
}

#[track_caller]
fn number(value: &Value) -> f64 {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "nan" => Some(f64::NAN),
            "inf" | "infinity" => Some(f64::INFINITY),
            "-inf" | "-infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
    .unwrap_or_else(|| panic!("expected a number, found {value}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_may_be_strings_that_json_has_no_number_for() {
        let record = Record::new(json!({ "row": [1, 2.5, "nan", "inf", "-inf"] }));
        let row = record.numbers("row");
        assert_eq!(row[..2], [1.0, 2.5]);
        assert!(row[2].is_nan());
        assert_eq!(row[3..], [f64::INFINITY, f64::NEG_INFINITY]);
    }

    #[test]
    #[should_panic(expected = "the record has no \"loss\"")]
    fn a_missing_key_is_named() {
        let _ = Record::new(json!({ "loss": null })).number("loss");
    }
}

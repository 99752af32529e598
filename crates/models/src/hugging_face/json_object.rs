//! A JSON object of which every key must be accounted for.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::ModelError;

/// An object whose keys are taken out one by one, so that what is left was looked at by nobody.
#[derive(Debug)]
pub(crate) struct JsonObject<'a> {
    path: &'a Path,
    /// Names of the objects around this one, each followed by a dot.
    prefix: &'static str,
    keys: Map<String, Value>,
}

impl<'a> JsonObject<'a> {
    pub(crate) fn new(path: &'a Path, keys: Map<String, Value>) -> Self {
        Self { path, prefix: "", keys }
    }

    /// The value of a key; `null` is as good as no key.
    pub(crate) fn take<T: DeserializeOwned>(
        &mut self,
        key: &str,
        allowed: &str,
    ) -> Result<Option<T>, ModelError> {
        match self.keys.remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match T::deserialize(&value) {
                Ok(taken) => Ok(Some(taken)),
                Err(_) => Err(self.refused(key, &value, format!("allowed is {allowed}"))),
            },
        }
    }

    pub(crate) fn number(&mut self, key: &str) -> Result<Option<f64>, ModelError> {
        self.take(key, "a number")
    }

    pub(crate) fn count(&mut self, key: &str) -> Result<Option<usize>, ModelError> {
        self.take(key, "a whole number, at least 0")
    }

    pub(crate) fn flag(&mut self, key: &str) -> Result<bool, ModelError> {
        Ok(self.take(key, "true or false")?.unwrap_or(false))
    }

    pub(crate) fn text(&mut self, key: &str) -> Result<Option<String>, ModelError> {
        self.take(key, "a string")
    }

    /// A key that a description cannot do without.
    pub(crate) fn required<T: DeserializeOwned>(
        &mut self,
        key: &str,
        allowed: &str,
    ) -> Result<T, ModelError> {
        let missing = self.error(key, "not given", format!("allowed is {allowed}"));
        self.take(key, allowed)?.ok_or(missing)
    }

    /// Takes an object out.
    pub(crate) fn object(
        &mut self,
        key: &'static str,
        prefix: &'static str,
    ) -> Result<Option<JsonObject<'a>>, ModelError> {
        let keys: Option<Map<String, Value>> = self.take(key, "an object")?;
        Ok(keys.map(|keys| JsonObject { path: self.path, prefix, keys }))
    }

    /// Takes a key out that may only have one of some values.
    pub(crate) fn only(&mut self, key: &str, allowed: &[Value], why: &str) -> Result<(), ModelError> {
        match self.keys.remove(key) {
            None | Some(Value::Null) => Ok(()),
            Some(value) if allowed.contains(&value) => Ok(()),
            Some(value) => {
                let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
                Err(self.refused(key, &value, format!("allowed is {}; {why}", allowed.join(" or "))))
            }
        }
    }

    /// Takes keys out that do not matter here.
    pub(crate) fn pass_by(&mut self, keys: &[&str]) {
        for key in keys {
            self.keys.remove(*key);
        }
    }

    /// Refuses what is left: a key that nobody looked at may change the model. Switches that are off change nothing.
    pub(crate) fn finish(self) -> Result<(), ModelError> {
        let is_on = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(object) => !object.is_empty(),
            _ => true,
        };
        match self.keys.iter().find(|(_, value)| is_on(value)) {
            None => Ok(()),
            Some((key, value)) => Err(self.refused(
                key,
                value,
                "the key is not known, so whether it changes the model cannot be told; take it out of the file if it does not".into(),
            )),
        }
    }

    pub(crate) fn refused(&self, key: &str, value: &Value, allowed: String) -> ModelError {
        let mut value = value.to_string();
        if value.chars().count() > 80 {
            value = value.chars().take(80).chain(['…']).collect();
        }
        self.error(key, &value, allowed)
    }

    pub(crate) fn error(&self, key: &str, value: &str, allowed: String) -> ModelError {
        ModelError::HuggingFace {
            path: self.path.into(),
            key: format!("{}{key}", self.prefix),
            value: value.into(),
            allowed,
        }
    }
}

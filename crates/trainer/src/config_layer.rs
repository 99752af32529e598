//! One layer of a run config, and the layers merged.

use config::{Config, Map, Source, Value, ValueKind};
use toml::Table;

use crate::RunConfigError;

/// The key that layers are merged under: `config` takes `a[1]` apart when it is a key of the outermost table.
const ROOT: &str = "root";

/// TOML with the name of where it comes from.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    origin: String,
    table: Table,
}

impl Layer {
    pub(crate) fn document(origin: String, text: &str) -> Result<Self, RunConfigError> {
        match text.parse() {
            Ok(table) => Ok(Self { origin, table }),
            Err(problem) => Err(RunConfigError::Syntax { origin, problem }),
        }
    }

    /// A single key, written `train.steps`; `None` when a part of it is empty. The value is TOML, or else a string.
    pub(crate) fn key(origin: String, key: &str, value: &str) -> Option<Self> {
        let value = value.trim().parse().unwrap_or_else(|_| toml::Value::String(value.to_owned()));
        let mut parts = key.rsplit('.').map(str::trim);
        if parts.clone().any(str::is_empty) {
            return None;
        }
        let single = |key: &str, value| Table::from_iter([(key.to_owned(), value)]);
        let innermost = single(parts.next()?, value);
        let table = parts.fold(innermost, |inner, key| single(key, toml::Value::Table(inner)));
        Some(Self { origin, table })
    }
}

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, config::ConfigError> {
        Ok(Map::from([(ROOT.to_owned(), from_toml(&self.origin, &toml::Value::Table(self.table.clone())))]))
    }
}

fn from_toml(origin: &String, value: &toml::Value) -> Value {
    let kind = match value {
        toml::Value::String(text) => ValueKind::String(text.clone()),
        toml::Value::Integer(number) => ValueKind::I64(*number),
        toml::Value::Float(number) => ValueKind::Float(*number),
        toml::Value::Boolean(truth) => ValueKind::Boolean(*truth),
        toml::Value::Datetime(time) => ValueKind::String(time.to_string()),
        toml::Value::Array(items) => {
            ValueKind::Array(items.iter().map(|item| from_toml(origin, item)).collect())
        }
        toml::Value::Table(table) => ValueKind::Table(
            table.iter().map(|(key, value)| (key.clone(), from_toml(origin, value))).collect(),
        ),
    };
    Value::new(Some(origin), kind)
}

fn into_toml(value: &Value) -> toml::Value {
    match &value.kind {
        ValueKind::String(text) => toml::Value::String(text.clone()),
        ValueKind::I64(number) => toml::Value::Integer(*number),
        ValueKind::Float(number) => toml::Value::Float(*number),
        ValueKind::Boolean(truth) => toml::Value::Boolean(*truth),
        ValueKind::Array(items) => toml::Value::Array(items.iter().map(into_toml).collect()),
        ValueKind::Table(table) => {
            toml::Value::Table(table.iter().map(|(key, value)| (key.clone(), into_toml(value))).collect())
        }
        other => unreachable!("{other:?} in layers of TOML"),
    }
}

/// Layers merged by the `config` crate: each value knows the layer that it comes from.
#[derive(Debug)]
pub(crate) struct Merged(Value);

impl Merged {
    /// Merges layers, later ones over earlier ones: tables key by key, everything else is replaced.
    pub(crate) fn of(layers: Vec<Layer>) -> Self {
        let builder = layers.into_iter().fold(Config::builder(), |builder, layer| builder.add_source(layer));
        let merged = builder.build().expect("a layer that has been read is collected without errors").cache;
        Self(
            table(&merged)
                .and_then(|table| table.get(ROOT))
                .cloned()
                .unwrap_or(Map::<_, Value>::new().into()),
        )
    }

    /// Leaves out everything but the value of `key`.
    pub(crate) fn keep(&mut self, key: &str) {
        if let ValueKind::Table(table) = &mut self.0.kind {
            table.retain(|other, _| other == key);
        }
    }

    /// The merged table.
    pub(crate) fn table(&self) -> Table {
        match into_toml(&self.0) {
            toml::Value::Table(table) => table,
            _ => unreachable!("every layer is a table"),
        }
    }

    /// Where the value of a key comes from; a table that is not empty comes from where its first value does.
    pub(crate) fn origin(&self, key: &str) -> Option<&str> {
        let mut value = key.split('.').try_fold(&self.0, |value, key| table(value)?.get(key))?;
        while value.origin().is_none() {
            value = table(value)?.iter().min_by_key(|(key, _)| *key)?.1;
        }
        value.origin()
    }
}

fn table(value: &Value) -> Option<&Map<String, Value>> {
    match &value.kind {
        ValueKind::Table(table) => Some(table),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(layers: &[(&str, &str)]) -> Merged {
        let layer = |&(origin, text): &(&str, &str)| Layer::document(origin.to_owned(), text).unwrap();
        Merged::of(layers.iter().map(layer).collect())
    }

    #[test]
    fn tables_merge_at_every_depth_and_everything_else_is_replaced() {
        let merged = merged(&[
            ("first", "a.b.kept = 1\na.b.replaced = 2\nlist = [1, 2, 3]\nscalar = 1\ntable = { key = 1 }"),
            ("second", "a.b.replaced = 'x'\na.new = 0.5\nlist = [9]\nscalar = { key = 1 }\ntable = true"),
        ]);
        let expected =
            "a.b.kept = 1\na.b.replaced = 'x'\na.new = 0.5\nlist = [9]\nscalar = { key = 1 }\ntable = true";
        assert_eq!(merged.table(), expected.parse::<Table>().unwrap());
    }

    #[test]
    fn every_value_knows_its_layer() {
        let merged = merged(&[("first", "a = { x = 1, y = 1 }"), ("second", "a.y = 2\nb = [1]")]);
        assert_eq!(merged.origin("a.x"), Some("first"));
        assert_eq!(merged.origin("a.y"), Some("second"));
        assert_eq!(merged.origin("b"), Some("second"));
        assert_eq!(merged.origin("a"), Some("first"));
        assert_eq!(merged.origin("a.z"), None);
    }

    #[test]
    fn every_toml_value_comes_back_and_keys_are_taken_as_they_are() {
        let text = "'a[1]' = -3\n'b.c' = 2.0\nd = [[true], { e = 'x' }]\ninfinite = inf\nempty = {}";
        assert_eq!(merged(&[("only", text)]).table(), text.parse::<Table>().unwrap());
        assert_eq!(merged(&[]).table(), Table::new());
    }

    #[test]
    fn a_single_key_holds_a_toml_value_or_else_a_string() {
        let value = |text: &str| {
            let layer = Layer::key("test".to_owned(), "a.b", text).unwrap();
            Merged::of(vec![layer]).table()["a"]["b"].clone()
        };
        assert_eq!(value("5"), toml::Value::Integer(5));
        assert_eq!(value(" 1e-4 "), toml::Value::Float(1e-4));
        assert_eq!(value("true"), toml::Value::Boolean(true));
        assert_eq!(value("\"5\""), toml::Value::String("5".into()));
        assert_eq!(value("[1, 2]"), toml::Value::Array(vec![1.into(), 2.into()]));
        assert_eq!(value("{ c = 1 }")["c"], toml::Value::Integer(1));
        for text in ["grpo", "runs/a-1", "", "1 2", "5\nc = 6", "2026-01-02"] {
            assert_eq!(value(text), toml::Value::String(text.into()), "{text}");
        }
    }

    #[test]
    fn a_single_key_has_no_empty_part() {
        for key in ["", ".", "a.", ".a", "a..b", " "] {
            assert!(Layer::key("test".to_owned(), key, "1").is_none(), "{key}");
        }
        assert!(Layer::key("test".to_owned(), "a", "1").is_some());
    }
}

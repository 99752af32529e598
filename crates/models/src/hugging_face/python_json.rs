//! The filter `tojson`: a value as Python's `json.dumps` writes it.

use std::fmt::Write;

use minijinja::{
    Error, ErrorKind, Value,
    value::{Kwargs, ValueKind},
};

/// How JSON is laid out.
struct Layout {
    ascii: bool,
    /// What one level is indented by; everything stands on one line without it.
    indent: Option<String>,
    between_items: String,
    after_key: String,
    sorted: bool,
}

/// The filter, with the arguments that transformers gives it: `ensure_ascii = false`, `indent = none`, `separators = none`
/// (`", "` and `": "`; no space before a line break) and `sort_keys = false`. Unlike the filter of Jinja it escapes nothing for
/// HTML.
pub(super) fn tojson(
    value: &Value,
    ascii: Option<bool>,
    indent: Option<Value>,
    separators: Option<Value>,
    named: Kwargs,
) -> Result<String, Error> {
    let ascii = match ascii {
        Some(ascii) => Some(ascii),
        None => named.get("ensure_ascii")?,
    };
    let indent: Option<Value> = match indent {
        Some(indent) => Some(indent),
        None => named.get("indent")?,
    };
    let separators: Option<Value> = match separators {
        Some(separators) => Some(separators),
        None => named.get("separators")?,
    };
    let sorted: Option<bool> = named.get("sort_keys")?;
    named.assert_all_used()?;

    let indent = match indent.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(i64::try_from(indent)?).unwrap_or(0)),
        }),
    };
    let (between_items, after_key) = match separators.filter(|separators| !separators.is_none()) {
        None => (if indent.is_some() { "," } else { ", " }.into(), ": ".into()),
        Some(pair) => (pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string()),
    };
    let layout = Layout {
        ascii: ascii.unwrap_or(false),
        indent,
        between_items,
        after_key,
        sorted: sorted.unwrap_or(false),
    };
    let mut out = String::new();
    layout.write(&mut out, value, 0)?;
    Ok(out)
}

fn refused(value: &Value) -> Error {
    Error::new(ErrorKind::BadSerialization, format!("a value of kind {} is no JSON", value.kind()))
}

impl Layout {
    fn write(&self, out: &mut String, value: &Value, level: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None | ValueKind::Bool | ValueKind::Number => out.push_str(&scalar(value)?),
            ValueKind::String => self.write_text(out, &value.to_string()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.write_all(out, ['[', ']'], &items, level, |out, item| self.write(out, item, level + 1))?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sorted {
                    keys.sort();
                }
                self.write_all(out, ['{', '}'], &keys, level, |out, key| {
                    match key.kind() {
                        ValueKind::String => self.write_text(out, &key.to_string()),
                        _ => self.write_text(out, &scalar(key)?),
                    }
                    out.push_str(&self.after_key);
                    self.write(out, &value.get_item(key)?, level + 1)
                })?;
            }
            _ => return Err(refused(value)),
        }
        Ok(())
    }

    fn write_all(
        &self,
        out: &mut String,
        [open, close]: [char; 2],
        items: &[Value],
        level: usize,
        write: impl Fn(&mut String, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let break_line = |out: &mut String, level: usize| {
            if let Some(indent) = &self.indent {
                out.push('\n');
                out.push_str(&indent.repeat(level));
            }
        };
        out.push(open);
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                out.push_str(&self.between_items);
            }
            break_line(out, level + 1);
            write(out, item)?;
        }
        if !items.is_empty() {
            break_line(out, level);
        }
        out.push(close);
        Ok(())
    }

    fn write_text(&self, out: &mut String, text: &str) {
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\x08' => out.push_str("\\b"),
                '\x0c' => out.push_str("\\f"),
                '\0'..='\x1f' => escape(out, character),
                '\x7f'.. if self.ascii && character != '\x7f' => escape(out, character),
                _ => out.push(character),
            }
        }
        out.push('"');
    }
}

/// Writes a character as one or two escaped halves of UTF-16.
fn escape(out: &mut String, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        // Writing to a string cannot fail.
        let _ = write!(out, "\\u{unit:04x}");
    }
}

fn scalar(value: &Value) -> Result<String, Error> {
    Ok(match value.kind() {
        ValueKind::None => "null".into(),
        ValueKind::Bool => if value.is_true() { "true" } else { "false" }.into(),
        ValueKind::Number if value.is_integer() => value.to_string(),
        ValueKind::Number => number(f64::try_from(value.clone())?),
        _ => return Err(refused(value)),
    })
}

/// A number that is not whole, as Python prints it.
fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        exponent @ -4..16 => {
            let plain = value.to_string();
            if exponent >= 0 && !plain.contains('.') { plain + ".0" } else { plain }
        }
        exponent => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
    }
}

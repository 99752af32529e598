//! Methods of Python's strings, where those of the template engine differ.

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{Kwargs, Tuple, from_args},
};
use minijinja_contrib::pycompat;

/// What Python takes for white space: Unicode's, and the four separators of ASCII.
fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\x1c'..='\x1f').contains(&character)
}

/// What ends a line for Python; a carriage return and a line feed together are one end.
fn ends_line(character: char) -> bool {
    matches!(character, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// A method of a value, as Python has it.
pub(super) fn call_method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return pycompat::unknown_method_callback(state, value, method, args);
    };
    match method {
        "strip" | "lstrip" | "rstrip" => {
            let (characters,): (Option<&str>,) = from_args(args)?;
            let (start, end) = (method != "rstrip", method != "lstrip");
            Ok(Value::from(strip(text, characters, start, end)))
        }
        "isspace" => {
            let () = from_args(args)?;
            Ok(Value::from(!text.is_empty() && text.chars().all(is_space)))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "split" | "rsplit" => {
            let (separator, most, named): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
            let separator = match separator {
                Some(separator) => Some(separator),
                None => named.get("sep")?,
            };
            let most = match most {
                Some(most) => Some(most),
                None => named.get("maxsplit")?,
            };
            named.assert_all_used()?;
            let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
            let from_the_end = method == "rsplit";
            let parts = match separator {
                None => split_at_spaces(text, most, from_the_end),
                Some("") => return Err(Error::new(ErrorKind::InvalidOperation, "empty separator")),
                Some(separator) => split_at(text, separator, most, from_the_end),
            };
            Ok(Value::from_iter(parts))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let found =
                if method == "partition" { text.split_once(separator) } else { text.rsplit_once(separator) };
            let parts = match found {
                Some((before, after)) => [before, separator, after],
                None if method == "partition" => [text, "", ""],
                None => ["", "", text],
            };
            Ok(Value::from(Tuple::from(parts.map(Value::from))))
        }
        "title" => {
            let () = from_args(args)?;
            Ok(Value::from(title(text)))
        }
        "splitlines" => {
            let (keep_ends,): (Option<bool>,) = from_args(args)?;
            Ok(Value::from_iter(lines(text, keep_ends.unwrap_or(false))))
        }
        _ => pycompat::unknown_method_callback(state, value, method, args),
    }
}

/// The filter `trim`, which is Python's `strip`.
pub(super) fn trim(value: &Value, characters: Option<String>) -> String {
    let text = value.to_string();
    strip(&text, characters.as_deref(), true, true).into()
}

fn strip<'a>(text: &'a str, characters: Option<&str>, start: bool, end: bool) -> &'a str {
    let stripped = |character: char| match characters {
        None => is_space(character),
        Some(characters) => characters.contains(character),
    };
    let text = if start { text.trim_start_matches(stripped) } else { text };
    if end { text.trim_end_matches(stripped) } else { text }
}

fn split_at<'a>(text: &'a str, separator: &str, most: usize, from_the_end: bool) -> Vec<&'a str> {
    let parts = most.saturating_add(1);
    if !from_the_end {
        return text.splitn(parts, separator).collect();
    }
    let mut split: Vec<&str> = text.rsplitn(parts, separator).collect();
    split.reverse();
    split
}

/// Splits at runs of white space; what is left after the most splits keeps the white space inside and on its far side.
fn split_at_spaces(text: &str, most: usize, from_the_end: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = strip(text, None, !from_the_end, from_the_end);
    while !rest.is_empty() {
        if parts.len() == most {
            parts.push(rest);
            break;
        }
        let (part, others) = if from_the_end {
            let start = rest.char_indices().rev().find(|(_, character)| is_space(*character));
            let start = start.map_or(0, |(start, character)| start + character.len_utf8());
            (&rest[start..], &rest[..start])
        } else {
            rest.split_at(rest.find(is_space).unwrap_or(rest.len()))
        };
        parts.push(part);
        rest = strip(others, None, !from_the_end, from_the_end);
    }
    if from_the_end {
        parts.reverse();
    }
    parts
}

/// Capitalises every run of letters with a case.
fn title(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut inside = false;
    for character in text.chars() {
        if inside {
            titled.extend(character.to_lowercase());
        } else {
            titled.extend(character.to_uppercase());
        }
        inside = character.is_lowercase() || character.is_uppercase();
    }
    titled
}

fn lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some((end, character)) = rest.char_indices().find(|(_, character)| ends_line(*character)) else {
            lines.push(rest);
            break;
        };
        let next = if rest[end..].starts_with("\r\n") { end + 2 } else { end + character.len_utf8() };
        lines.push(&rest[..if keep_ends { next } else { end }]);
        rest = &rest[next..];
    }
    lines
}

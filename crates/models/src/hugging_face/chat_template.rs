//! Chat templates, rendered as transformers renders them.

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use firebrick_core::{Message, TokenizerError};
use minijinja::{
    Environment, Error, ErrorKind,
    syntax::SyntaxConfig,
    value::{Kwargs, Value, ValueKind},
};
use minijinja_contrib::pycompat::unknown_method_callback;
use sha2::{Digest, Sha256};

const NAME: &str = "chat_template";

/// A Jinja template that turns messages into the text that a model is shown.
///
/// The environment is that of transformers' `apply_chat_template`: blocks are trimmed on both sides, `break` and `continue` work in
/// loops, there are `raise_exception`, `strftime_now`, `tojson` as Python's `json.dumps` writes it, the methods of Python's strings,
/// lists and dictionaries, and `generation` blocks, of which only the content is rendered.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    source: Arc<str>,
    environment: Environment<'static>,
}

impl ChatTemplate {
    /// A template from its text.
    ///
    /// # Errors
    /// [`TokenizerError::Build`] when it is no template.
    pub fn new(source: &str) -> Result<Self, TokenizerError> {
        let mut environment = Environment::new();
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        environment.set_syntax(syntax.build().expect("the syntax of Jinja with other whitespace"));
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_function("strftime_now", |format: String| -> Result<String, Error> {
            let mut text = String::new();
            let written = write!(text, "{}", chrono::Local::now().format(&format));
            let refused =
                |_| Error::new(ErrorKind::InvalidOperation, format!("{format:?} is no format of a date"));
            written.map(|()| text).map_err(refused)
        });
        environment.add_filter("tojson", to_json);
        let built = environment.add_template_owned(NAME, without_generation_tags(source));
        built.map_err(|error| TokenizerError::Build {
            reason: format!("chat template: {}", described(&error)),
        })?;
        Ok(Self { source: source.into(), environment })
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// SHA-256 of the template's text.
    pub fn sha256(&self) -> String {
        Sha256::digest(self.source.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Renders messages up to the point where the assistant answers. `special_tokens` are variables such as `bos_token`.
    ///
    /// # Errors
    /// [`TokenizerError::Chat`] when the template raises or cannot be evaluated.
    pub fn render(
        &self,
        messages: &[Message],
        special_tokens: &BTreeMap<String, String>,
    ) -> Result<String, TokenizerError> {
        let message = |message: &Message| {
            Value::from_pairs([("role", message.role.as_str()), ("content", message.content.as_str())])
        };
        let mut variables: Vec<(&str, Value)> = vec![
            ("messages", messages.iter().map(message).collect()),
            ("add_generation_prompt", true.into()),
            ("tools", ().into()),
            ("documents", ().into()),
        ];
        variables.extend(special_tokens.iter().map(|(name, token)| (name.as_str(), token.as_str().into())));
        self.environment
            .get_template(NAME)
            .and_then(|template| template.render(Value::from_pairs(variables)))
            .map_err(|error| TokenizerError::Chat { reason: described(&error) })
    }
}

/// An error without the place in minijinja's own words: what a template raises is meant for the user.
fn described(error: &Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{what} (line {line} of the template)"),
        None => what,
    }
}

/// The template without the tags around what an assistant said, which change no text. Their whitespace control stays.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else { break };
        let tag = &rest[start..start + length + 2];
        let inner = tag[2..tag.len() - 2].trim_matches(['-', '+']).trim();
        out.push_str(&rest[..start]);
        match inner {
            // A branch that is always taken renders the same, with the same whitespace control.
            "generation" => out.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => out.push_str(tag),
        }
        rest = &rest[start + length + 2..];
    }
    out + rest
}

/// Python's `json.dumps` with `ensure_ascii=False`.
fn to_json(value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let _: Option<bool> = options.get("ensure_ascii")?;
    let _: Option<Value> = options.get("separators")?;
    let sort_keys: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let mut out = String::new();
    write_json(&value, indent, sort_keys.unwrap_or(false), 0, &mut out)?;
    Ok(Value::from_safe_string(out))
}

fn write_json(
    value: &Value,
    indent: Option<usize>,
    sort_keys: bool,
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    let line = |depth: usize, out: &mut String| {
        if let Some(indent) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    };
    let separator = if indent.is_some() { "," } else { ", " };
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&value.to_string()),
        ValueKind::String => out.push_str(&quoted(value.as_str().unwrap_or_default())),
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if sort_keys {
                keys.sort();
            }
            out.push('{');
            for (index, key) in keys.iter().enumerate() {
                if index > 0 {
                    out.push_str(separator);
                }
                line(depth + 1, out);
                out.push_str(&quoted(&key.to_string()));
                out.push_str(": ");
                write_json(&value.get_item(key)?, indent, sort_keys, depth + 1, out)?;
            }
            if !keys.is_empty() {
                line(depth, out);
            }
            out.push('}');
        }
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            let mut count = 0;
            for item in value.try_iter()? {
                if count > 0 {
                    out.push_str(separator);
                }
                line(depth + 1, out);
                write_json(&item, indent, sort_keys, depth + 1, out)?;
                count += 1;
            }
            if count > 0 {
                line(depth, out);
            }
            out.push(']');
        }
        other => {
            let message = format!("a value of kind {other} is not JSON serializable");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    }
    Ok(())
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str, messages: &[Message]) -> Result<String, String> {
        let tokens = BTreeMap::from([("bos_token".to_owned(), "<s>".to_owned())]);
        ChatTemplate::new(source).unwrap().render(messages, &tokens).map_err(|error| error.to_string())
    }

    #[test]
    fn what_a_template_raises_is_the_reason_and_a_broken_one_is_refused() {
        let error = render("{% if true %}\n{{ raise_exception('roles must alternate') }}{% endif %}", &[])
            .unwrap_err();
        assert!(error.contains("roles must alternate") && error.contains("line 2"), "{error}");
        let error = ChatTemplate::new("{% if %}").unwrap_err().to_string();
        assert!(error.contains("chat template"), "{error}");
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        let chat = [Message::user("a \"é\" <b>\n'x'")];
        assert_eq!(
            render("{{ messages[0] | tojson }}", &chat).unwrap(),
            "{\"role\": \"user\", \"content\": \"a \\\"é\\\" <b>\\n'x'\"}"
        );
        assert_eq!(
            render("{{ {'a': [1, 2.5, true, none], 'b': {}} | tojson }}", &[]).unwrap(),
            "{\"a\": [1, 2.5, true, null], \"b\": {}}"
        );
        assert_eq!(
            render("{{ {'a': [1, []]} | tojson(indent=2) }}", &[]).unwrap(),
            "{\n  \"a\": [\n    1,\n    []\n  ]\n}"
        );
    }

    #[test]
    fn generation_blocks_are_rendered_as_their_content() {
        let source = "{% for m in messages %}\n{%- generation -%}\n  {{ m.content }}\n{% endgeneration %}\n{% endfor %}!";
        let plain = source.replace("endgeneration", "endif").replace("generation", "if true");
        let chat = [Message::user("x"), Message::user("y")];
        assert_eq!(render(source, &chat).unwrap(), render(&plain, &chat).unwrap());
    }

    #[test]
    fn values_print_as_python_prints_them() {
        assert_eq!(
            render("{{ true }} {{ none }} {{ 1.0 }} {{ [1, 'a'] }} {{ x }}|{{ bos_token }}", &[]).unwrap(),
            "True None 1.0 [1, 'a'] |<s>"
        );
        assert_eq!(render("{{ strftime_now('%Y') | length }}", &[]).unwrap(), "4");
    }

    #[test]
    fn the_hash_is_that_of_the_text() {
        let template = ChatTemplate::new("abc").unwrap();
        assert_eq!(template.sha256(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}

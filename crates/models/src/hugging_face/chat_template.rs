//! Chat templates in Jinja, rendered as transformers renders them.

use std::{
    error::Error as _,
    fmt::{self, Write},
    sync::Arc,
};

use firebrick_core::{Message, TokenizerError};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value, syntax::SyntaxConfig};
use sha2::{Digest, Sha256};

use super::{python_json, python_strings, special_tokens::SpecialTokens};

/// What errors call the template.
const NAME: &str = "chat template";

/// A chat template in Jinja.
///
/// It sees `messages` (each with `role` and `content`), `add_generation_prompt = true`, `tools = none`, `documents = none`, and
/// those of `bos_token`, `eos_token`, `pad_token` and `unk_token` that the tokenizer has. Blocks are trimmed as in transformers
/// (`trim_blocks`, `lstrip_blocks`), `break` and `continue` work, `raise_exception(text)` refuses the chat with that text,
/// `strftime_now(format)` writes the local date, and `tojson` writes what Python's `json.dumps` does.
///
/// # Differs from transformers
/// - The template runs in a Rust engine, not in Python: methods of strings, lists and dictionaries are those that templates
///   commonly use, and an unknown one is an error that names it.
/// - `isdigit`, `isnumeric` and `isalpha` of characters beyond ASCII follow Unicode's categories a little differently than Python
///   does.
/// - Numbers that are not whole are printed without an exponent (`tojson` writes them as Python does).
/// - A list or dictionary that is printed as it is, without `tojson`, shows separators and spaces beyond ASCII unescaped.
/// - `%` between a text and a value is an error; the filter `format` does the same.
/// - Special tokens with other names (`sep_token`, `cls_token`, `mask_token`) are undefined.
/// - `is sequence` holds for lists only; `generation` tags inside `raw` blocks are renamed too.
/// - Methods that change a list or a dictionary are an error, as in the sandbox of transformers.
#[derive(Clone)]
pub struct ChatTemplate {
    text: Arc<str>,
    environment: Arc<Environment<'static>>,
}

impl ChatTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// [`TokenizerError::Build`] when the text is not a template.
    pub fn new(text: &str) -> Result<Self, TokenizerError> {
        let build = |error: Error| TokenizerError::Build { reason: reason(&error) };
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(build)?;
        environment.set_syntax(syntax);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(python_strings::call_method);
        environment.add_filter("trim", python_strings::trim);
        environment.add_filter("tojson", python_json::tojson);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        // Line ends of other systems are those of Jinja.
        let plain = text.replace("\r\n", "\n").replace('\r', "\n");
        environment.add_template_owned(NAME, without_generation_tags(&plain)).map_err(build)?;
        Ok(Self { text: text.into(), environment: Arc::new(environment) })
    }

    /// The template's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// SHA-256 of the text in hexadecimal digits.
    pub fn sha256(&self) -> String {
        Sha256::digest(self.text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A chat as text, up to the point where the assistant answers.
    ///
    /// # Errors
    /// [`TokenizerError::Chat`] when the template refuses the chat or cannot be evaluated.
    pub fn render(
        &self,
        messages: &[Message],
        special_tokens: &SpecialTokens,
    ) -> Result<String, TokenizerError> {
        let messages = messages.iter().map(|message| {
            Value::from_pairs([("role", message.role.as_str()), ("content", message.content.as_str())])
        });
        let mut variables = vec![
            ("messages", Value::from_iter(messages)),
            ("add_generation_prompt", Value::from(true)),
            ("tools", Value::from(())),
            ("documents", Value::from(())),
        ];
        variables.extend(special_tokens.texts().map(|(key, text)| (key, Value::from(text))));
        let template = self.environment.get_template(NAME);
        let rendered = template.and_then(|template| template.render(Value::from_pairs(variables)));
        rendered.map_err(|error| TokenizerError::Chat { reason: reason(&error) })
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("text", &self.text).finish_non_exhaustive()
    }
}

impl PartialEq for ChatTemplate {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for ChatTemplate {}

/// The text that a template refuses a chat with.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(text: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, text.clone()).with_source(Raised(text)))
}

/// The text that a template refused a chat with, or else what the engine says of the error.
fn reason(error: &Error) -> String {
    let mut cause = error.source();
    while let Some(source) = cause {
        if let Some(Raised(text)) = source.downcast_ref() {
            return text.clone();
        }
        cause = source.source();
    }
    error.to_string()
}

fn strftime_now(format: &str) -> Result<String, Error> {
    let mut text = String::new();
    write!(text, "{}", chrono::Local::now().format(format)).map_err(|_| {
        Error::new(ErrorKind::InvalidOperation, format!("strftime_now({format:?}): no format of a date"))
    })?;
    Ok(text)
}

/// Renames the tags `generation` and `endgeneration`, which mark what the assistant wrote and render their content as it is, to
/// the tags of a scope, which do no more than that.
fn without_generation_tags(text: &str) -> String {
    let mut renamed = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{%") {
        renamed.push_str(before);
        renamed.push_str("{%");
        rest = after;
        if let Some((tag, after)) = rest.split_once("%}")
            && matches!(tag.trim_matches(['-', '+']).trim(), "generation" | "endgeneration")
        {
            renamed.push_str(&tag.replacen("generation", "with", 1));
            renamed.push_str("%}");
            rest = after;
        }
    }
    renamed.push_str(rest);
    renamed
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, path::PathBuf};

    use serde::Deserialize;

    use super::*;
    use crate::HuggingFaceTokenizer;

    /// What transformers makes of a chat: its text, or the error.
    #[derive(Debug, Deserialize)]
    struct Rendered {
        text: Option<String>,
        error: Option<String>,
    }

    #[derive(Deserialize)]
    struct Expected {
        chats: BTreeMap<String, BTreeMap<String, Rendered>>,
    }

    /// Python prints a dictionary with the line separator of Unicode escaped, the engine as it is.
    const DIFFERENT: [(&str, &str); 2] = [("controls", "awkward"), ("controls", "one line")];

    fn fixtures() -> PathBuf {
        [env!("CARGO_MANIFEST_DIR"), "tests", "text"].iter().collect()
    }

    fn render(text: &str) -> Result<String, TokenizerError> {
        ChatTemplate::new(text)?.render(&[Message::user("hot?")], &SpecialTokens::default())
    }

    #[test]
    fn chats_are_rendered_byte_for_byte_as_transformers_renders_them() {
        let folder = fixtures();
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        let chats: BTreeMap<String, Vec<Message>> = serde_json::from_str(&read("chats.json")).unwrap();
        let expected: Expected = serde_json::from_str(&read("byte_fallback/expected.json")).unwrap();
        let tokenizer = HuggingFaceTokenizer::load(folder.join("byte_fallback")).unwrap();
        let mut differences = Vec::new();
        let mut known = Vec::new();
        for (name, renderings) in &expected.chats {
            let template = ChatTemplate::new(&read(&format!("{name}.jinja"))).unwrap();
            for (label, expected) in renderings {
                let found = template.render(&chats[label], tokenizer.special_tokens());
                let same = match (&found, expected) {
                    (Ok(found), Rendered { text: Some(text), .. }) => found == text,
                    (Err(TokenizerError::Chat { reason }), Rendered { error: Some(error), .. }) => {
                        reason == error
                    }
                    _ => false,
                };
                if !same && DIFFERENT.contains(&(name.as_str(), label.as_str())) {
                    known.push((name.as_str(), label.as_str()));
                } else if !same {
                    differences.push(format!("{name}, {label}:\n  expected {expected:?}\n  found {found:?}"));
                }
            }
        }
        assert_eq!(expected.chats.len(), 6);
        assert_eq!(known, DIFFERENT);
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }

    #[test]
    fn a_template_refuses_a_chat_with_its_own_words() {
        let error = render("{% macro no() %}{{ raise_exception('only bricks') }}{% endmacro %}{{ no() }}");
        assert_eq!(error.unwrap_err().to_string(), "the chat cannot be rendered: only bricks");
    }

    #[test]
    fn what_is_no_template_and_what_cannot_be_evaluated_are_told_with_the_line() {
        let error = ChatTemplate::new("a\n{% for %}").unwrap_err().to_string();
        assert!(error.contains("syntax error") && error.contains("chat template:2"), "{error}");
        for text in ["\n{{ messages[0].content.explode() }}", "\n{{ messages | explode }}", "\n{{ a.b }}"] {
            let error = render(text).unwrap_err().to_string();
            assert!(error.contains("chat template:2"), "{error}");
        }
    }

    #[test]
    fn generation_tags_open_a_scope_and_print_their_content() {
        assert_eq!(render("a{%- generation -%} b {%- endgeneration +%} c").unwrap(), "ab c");
        assert_eq!(
            render("{{ 'generation' }}{% set generation = 1 %}{{ generation }}").unwrap(),
            "generation1"
        );
        assert!(render("{% generation %}").is_err());
    }

    #[test]
    fn the_date_is_written_in_the_format_that_is_asked_for() {
        assert_eq!(render("{{ strftime_now('%d %B %Y') | length >= 11 }}").unwrap(), "True");
        assert!(render("{{ strftime_now('%') }}").is_err());
    }

    #[test]
    fn the_digest_is_that_of_the_text() {
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(ChatTemplate::new("abc").unwrap().sha256(), digest);
    }
}

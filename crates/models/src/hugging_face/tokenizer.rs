//! Tokenizers of Hugging Face.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use firebrick_core::{Message, TokenId, Tokenizer, TokenizerError};
use serde_json::Value;

use super::ChatTemplate;
use crate::{ModelError, files};

const TOKENIZER: &str = "tokenizer.json";
const SETTINGS: &str = "tokenizer_config.json";
const SPECIAL_TOKENS: &str = "special_tokens_map.json";
const TEMPLATE: &str = "chat_template.jinja";
const GENERATION: &str = "generation_config.json";
const MODEL: &str = "config.json";

/// What belongs to a tokenizer and is written back as it was read.
const FILES: [&str; 9] = [
    TOKENIZER,
    SETTINGS,
    SPECIAL_TOKENS,
    TEMPLATE,
    GENERATION,
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
];

/// Special tokens that templates may name.
const NAMED: [&str; 4] = ["bos_token", "eos_token", "pad_token", "unk_token"];

/// The tokenizer of a model's folder, with its chat template and the tokens that end a response.
///
/// A chat is rendered by the template and tokenized without adding special tokens, as transformers' `apply_chat_template` does:
/// what begins a sequence stands once, where the template puts it. Without a template, as with base models, it is its messages one
/// after another, with the special tokens that the tokenizer adds to plain text.
#[derive(Debug, Clone)]
pub struct HuggingFaceTokenizer {
    tokenizer: Arc<tokenizers::Tokenizer>,
    template: Option<ChatTemplate>,
    /// Text of the special tokens by name.
    special: BTreeMap<String, String>,
    /// The token that ends a turn comes first.
    stop: Vec<TokenId>,
    files: Arc<BTreeMap<&'static str, Vec<u8>>>,
}

impl HuggingFaceTokenizer {
    /// Reads the tokenizer in a folder: `tokenizer.json`, and where they are there `tokenizer_config.json`,
    /// `special_tokens_map.json`, `chat_template.jinja`, `generation_config.json` and `config.json`.
    ///
    /// A response ends with the `eos_token_id` of `generation_config.json`, else of `config.json`, else with the `eos_token`.
    ///
    /// # Errors
    /// Names the file and what is wrong with it.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, ModelError> {
        let folder = folder.as_ref();
        let mut contents = BTreeMap::new();
        for name in FILES {
            let path = folder.join(name);
            if name == TOKENIZER || path.is_file() {
                contents.insert(name, files::read(&path)?);
            }
        }
        let build = |reason: String| ModelError::Tokenizer {
            path: folder.join(TOKENIZER),
            source: TokenizerError::Build { reason },
        };
        let mut tokenizer = tokenizers::Tokenizer::from_bytes(&contents[TOKENIZER])
            .map_err(|error| build(error.to_string()))?;
        // A data set is never cut or filled up behind the back of whoever asks for tokens.
        tokenizer.with_truncation(None).map_err(|error| build(error.to_string()))?;
        tokenizer.with_padding(None);

        let settings = Settings { folder, contents: &contents };
        let special = settings.special_tokens()?;
        let template = settings.template()?.map(|(path, text)| {
            ChatTemplate::new(&text).map_err(|source| ModelError::Tokenizer { path, source })
        });
        let eos = special.get("eos_token").and_then(|token| tokenizer.token_to_id(token));
        let mut stop = settings.eos_token_ids()?;
        match eos {
            Some(eos) if stop.is_empty() => stop.push(eos),
            Some(eos) if stop.contains(&eos) => {
                stop.retain(|token| *token != eos);
                stop.insert(0, eos);
            }
            _ => {}
        }
        if stop.is_empty() {
            return Err(build(format!(
                "no token ends a response: none of {GENERATION}, {MODEL}, {SETTINGS} and {SPECIAL_TOKENS} names an end-of-sequence token that the tokenizer has"
            )));
        }
        let template = template.transpose()?;
        Ok(Self { tokenizer: Arc::new(tokenizer), template, special, stop, files: Arc::new(contents) })
    }

    /// Replaces the chat template.
    ///
    /// # Errors
    /// When the text is no template.
    pub fn with_chat_template(self, text: &str) -> Result<Self, TokenizerError> {
        let mut files = (*self.files).clone();
        files.insert(TEMPLATE, text.as_bytes().to_vec());
        Ok(Self { template: Some(ChatTemplate::new(text)?), files: Arc::new(files), ..self })
    }

    /// SHA-256 of the chat template, if there is one.
    pub fn chat_template_sha256(&self) -> Option<String> {
        self.template.as_ref().map(ChatTemplate::sha256)
    }

    /// The token that begins a sequence, if there is one.
    pub fn bos_token(&self) -> Option<TokenId> {
        self.special_token("bos_token")
    }

    /// The token that ends a sequence, if the tokenizer names one; see also [`Tokenizer::stop_tokens`].
    pub fn eos_token(&self) -> Option<TokenId> {
        self.special_token("eos_token")
    }

    /// The token that fills rows up, if there is one.
    pub fn pad_token(&self) -> Option<TokenId> {
        self.special_token("pad_token")
    }

    fn special_token(&self, name: &str) -> Option<TokenId> {
        self.tokenizer.token_to_id(self.special.get(name)?)
    }

    /// The text that a chat becomes before it is tokenized; `None` without a template.
    ///
    /// # Errors
    /// When the template refuses the chat.
    pub fn render_chat(&self, messages: &[Message]) -> Result<Option<String>, TokenizerError> {
        self.template.as_ref().map(|template| template.render(messages, &self.special)).transpose()
    }

    /// Encodes plain text with the special tokens that the tokenizer puts around it.
    ///
    /// # Errors
    /// When the text cannot be tokenized.
    pub fn encode_with_special_tokens(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        self.tokens(text, true)
    }

    /// Writes the tokenizer's files as they were read, into a folder that exists.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), ModelError> {
        self.files.iter().try_for_each(|(name, bytes)| files::write(&folder.join(name), bytes))
    }

    fn tokens(&self, text: &str, special: bool) -> Result<Vec<TokenId>, TokenizerError> {
        let encoding = self.tokenizer.encode_fast(text, special);
        let encoding = encoding.map_err(|error| TokenizerError::Encode { reason: error.to_string() })?;
        Ok(encoding.get_ids().to_vec())
    }
}

impl Tokenizer for HuggingFaceTokenizer {
    fn encode(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        self.tokens(text, false)
    }

    fn decode(&self, tokens: &[TokenId]) -> String {
        // Fails for no tokens of a vocabulary; ids beyond it have no text.
        self.tokenizer.decode(tokens, true).unwrap_or_default()
    }

    fn encode_chat(&self, messages: &[Message]) -> Result<Vec<TokenId>, TokenizerError> {
        if messages.is_empty() {
            return Err(TokenizerError::Chat { reason: "it has no message".into() });
        }
        match self.render_chat(messages)? {
            Some(text) => self.tokens(&text, false),
            None => {
                let contents: Vec<&str> = messages.iter().map(|message| message.content.as_str()).collect();
                self.tokens(&contents.concat(), true)
            }
        }
    }

    fn vocab_size(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }

    fn stop_tokens(&self) -> &[TokenId] {
        &self.stop
    }
}

/// What stands beside a tokenizer's vocabulary.
struct Settings<'a> {
    folder: &'a Path,
    contents: &'a BTreeMap<&'static str, Vec<u8>>,
}

impl Settings<'_> {
    fn json(&self, name: &'static str) -> Result<Value, ModelError> {
        let path = self.folder.join(name);
        let own;
        let text = match self.contents.get(name) {
            Some(text) => text,
            None if name == MODEL && path.is_file() => {
                own = files::read(&path)?;
                &own
            }
            None => return Ok(Value::Null),
        };
        serde_json::from_slice(text).map_err(|source| ModelError::Json { path, source })
    }

    fn refused(&self, file: &str, key: &str, value: &Value, allowed: &str) -> ModelError {
        ModelError::HuggingFace {
            path: self.folder.join(file),
            key: key.into(),
            value: value.to_string(),
            allowed: format!("allowed is {allowed}"),
        }
    }

    /// Special tokens, each a text or an object with the text as `content`.
    fn special_tokens(&self) -> Result<BTreeMap<String, String>, ModelError> {
        let mut tokens = BTreeMap::new();
        for file in [SPECIAL_TOKENS, SETTINGS] {
            let settings = self.json(file)?;
            for name in NAMED {
                let value = match settings.get(name) {
                    None | Some(Value::Null) => continue,
                    Some(value) => value,
                };
                let text = value.as_str().or_else(|| value.get("content")?.as_str());
                let refused = || self.refused(file, name, value, "a string, or an object with `content`");
                tokens.insert(name.to_owned(), text.ok_or_else(refused)?.to_owned());
            }
        }
        Ok(tokens)
    }

    /// The chat template with the file that it stands in.
    fn template(&self) -> Result<Option<(PathBuf, String)>, ModelError> {
        if let Some(bytes) = self.contents.get(TEMPLATE) {
            let path = self.folder.join(TEMPLATE);
            return match String::from_utf8(bytes.clone()) {
                Ok(text) => Ok(Some((path, text))),
                Err(error) => {
                    let source = TokenizerError::Build { reason: error.to_string() };
                    Err(ModelError::Tokenizer { path, source })
                }
            };
        }
        let settings = self.json(SETTINGS)?;
        let value = match settings.get("chat_template") {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value,
        };
        let of_default = || {
            let named = value.as_array()?.iter().find(|entry| entry["name"] == "default")?;
            named["template"].as_str()
        };
        let allowed = "a string, or a list of {name, template} with one named \"default\"";
        let text = value.as_str().or_else(of_default);
        let text = text.ok_or_else(|| self.refused(SETTINGS, "chat_template", value, allowed))?;
        Ok(Some((self.folder.join(SETTINGS), text.to_owned())))
    }

    /// The ids that end a sequence, of the first file that names any.
    fn eos_token_ids(&self) -> Result<Vec<TokenId>, ModelError> {
        for file in [GENERATION, MODEL] {
            let settings = self.json(file)?;
            let value = match settings.get("eos_token_id") {
                None | Some(Value::Null) => continue,
                Some(value) => value,
            };
            let id = |value: &Value| value.as_u64().and_then(|id| TokenId::try_from(id).ok());
            let ids = match value {
                Value::Array(list) => list.iter().map(id).collect(),
                one => id(one).map(|id| vec![id]),
            };
            let refused = || self.refused(file, "eos_token_id", value, "an id or a list of ids");
            return ids.ok_or_else(refused);
        }
        Ok(Vec::new())
    }
}

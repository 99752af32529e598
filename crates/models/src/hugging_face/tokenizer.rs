//! A tokenizer as Hugging Face lays it out beside a model.

use std::{fmt, io, path::Path, sync::Arc};

use firebrick_core::{Message, TokenId, Tokenizer, TokenizerError};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{chat_template::ChatTemplate, json_object::JsonObject, special_tokens::SpecialTokens};
use crate::{ModelError, files};

const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const SPECIAL_TOKENS_MAP: &str = "special_tokens_map.json";
const CHAT_TEMPLATE: &str = "chat_template.jinja";
const GENERATION_CONFIG: &str = "generation_config.json";
const CONFIG: &str = "config.json";

/// Files that are kept and written back. The last four are read by other programs only.
const KEPT: [&str; 9] = [
    TOKENIZER,
    TOKENIZER_CONFIG,
    SPECIAL_TOKENS_MAP,
    CHAT_TEMPLATE,
    GENERATION_CONFIG,
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
];

/// The tokenizer of a pretrained model, with its chat template and its stop tokens.
///
/// A folder must hold `tokenizer.json`. The others are read where they exist:
///
/// | File | What is read |
/// |---|---|
/// | `tokenizer_config.json` | `bos_token`, `eos_token`, `pad_token`, `unk_token`, `chat_template` (a string, or a list of which `default` is taken) |
/// | `special_tokens_map.json` | the same four tokens, where the file above does not name them |
/// | `chat_template.jinja` | the chat template; goes before that of `tokenizer_config.json` |
/// | `generation_config.json` | `eos_token_id`, a number or a list: the stop tokens |
/// | `config.json` | `eos_token_id`, where the file above has none |
///
/// Without any `eos_token_id`, the end-of-sequence token is the only stop token.
///
/// # Differs from transformers
/// - `tokenizer.json` is taken at its word. `add_bos_token`, `add_eos_token`, `add_prefix_space`, `added_tokens_decoder` and
///   `split_special_tokens` of `tokenizer_config.json` are not read, and no class of transformers rebuilds the tokenizer. This
///   matters to files that contradict each other; the first two only where special tokens are added to plain text, which is
///   done for chats without a template.
/// - A special token that `tokenizer.json` does not know is an error; transformers adds it to the vocabulary.
/// - Truncation and padding of `tokenizer.json` are switched off.
/// - Decoding leaves spaces before punctuation as they are (`clean_up_tokenization_spaces` is not read).
#[derive(Clone)]
pub struct HuggingFaceTokenizer {
    inner: Arc<tokenizers::Tokenizer>,
    template: Option<ChatTemplate>,
    special: SpecialTokens,
    stop_tokens: Vec<TokenId>,
    vocab_size: usize,
    /// Names and bytes, in the order of `KEPT`.
    files: Arc<Vec<(&'static str, Vec<u8>)>>,
}

impl HuggingFaceTokenizer {
    /// Reads the tokenizer of a folder.
    ///
    /// # Errors
    /// When a file cannot be read or says what cannot be honoured, when a special token is not in the vocabulary, and when no
    /// file names a token that ends a response.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, ModelError> {
        let folder = folder.as_ref();
        let mut kept = Vec::new();
        for name in KEPT {
            if let Some(bytes) = read_if_there(&folder.join(name))? {
                kept.push((name, bytes));
            }
        }
        let bytes = |name| kept.iter().find(|file| file.0 == name).map(|file| file.1.as_slice());

        let path = folder.join(TOKENIZER);
        let Some(description) = bytes(TOKENIZER) else {
            return Err(ModelError::Read { path, source: io::ErrorKind::NotFound.into() });
        };
        let build =
            |reason| ModelError::Tokenizer { path: path.clone(), source: TokenizerError::Build { reason } };
        let mut inner =
            tokenizers::Tokenizer::from_bytes(description).map_err(|error| build(error.to_string()))?;
        inner.with_padding(None).with_truncation(None).map_err(|error| build(error.to_string()))?;

        let config_path = folder.join(TOKENIZER_CONFIG);
        let config = object(&config_path, bytes(TOKENIZER_CONFIG))?;
        let map_path = folder.join(SPECIAL_TOKENS_MAP);
        let map = object(&map_path, bytes(SPECIAL_TOKENS_MAP))?;
        let sources = [(config_path.as_path(), &config), (map_path.as_path(), &map)];
        let special = SpecialTokens::resolve(&sources, &mut inner)?;

        let template = match bytes(CHAT_TEMPLATE) {
            Some(text) => {
                let path = folder.join(CHAT_TEMPLATE);
                let refused = |source| ModelError::Tokenizer { path: path.clone(), source };
                let text = std::str::from_utf8(text)
                    .map_err(|error| refused(TokenizerError::Build { reason: error.to_string() }))?;
                Some(ChatTemplate::new(text).map_err(refused)?)
            }
            None => template_of_config(&config_path, config)?,
        };

        let stop_tokens = stop_tokens(folder, bytes(GENERATION_CONFIG), special.eos_id())?;
        let ids = inner.get_vocab(true);
        let vocab_size = ids.values().max().map_or(0, |id| *id as usize + 1);
        Ok(Self { inner: Arc::new(inner), template, special, stop_tokens, vocab_size, files: Arc::new(kept) })
    }

    /// The same tokenizer with another chat template, which [`save`](Self::save) writes to `chat_template.jinja`.
    ///
    /// # Errors
    /// When the text is not a template.
    pub fn with_chat_template(mut self, text: &str) -> Result<Self, ModelError> {
        let template = ChatTemplate::new(text).map_err(|source| ModelError::ChatTemplate { source })?;
        let mut kept = Vec::clone(&self.files);
        kept.retain(|file| file.0 != CHAT_TEMPLATE);
        kept.push((CHAT_TEMPLATE, text.into()));
        self.files = Arc::new(kept);
        self.template = Some(template);
        Ok(self)
    }

    /// The chat template, if there is one.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// SHA-256 of the chat template's text in hexadecimal digits, if there is one.
    pub fn chat_template_sha256(&self) -> Option<String> {
        self.template.as_ref().map(ChatTemplate::sha256)
    }

    /// The special tokens that the chat template sees.
    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }

    /// The token that begins a sequence, if one is named.
    pub fn bos_token(&self) -> Option<TokenId> {
        self.special.bos_id()
    }

    /// The token that ends a sequence, if one is named.
    pub fn eos_token(&self) -> Option<TokenId> {
        self.special.eos_id()
    }

    /// The token that fills up a batch, if one is named.
    pub fn pad_token(&self) -> Option<TokenId> {
        self.special.pad_id()
    }

    /// Encodes plain text with the special tokens that `tokenizer.json` adds to it, such as a beginning-of-sequence token.
    ///
    /// # Errors
    /// When the text holds something that the vocabulary cannot express.
    pub fn encode_with_special_tokens(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        self.ids(text, true)
    }

    /// Writes the files that the tokenizer was loaded from, byte for byte, and the chat template that it was given.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), ModelError> {
        self.files.iter().try_for_each(|(name, bytes)| files::write(&folder.join(name), bytes))
    }

    fn ids(&self, text: &str, add_special_tokens: bool) -> Result<Vec<TokenId>, TokenizerError> {
        let encoding = self.inner.encode_fast(text, add_special_tokens);
        let encoding = encoding.map_err(|error| TokenizerError::Encode { reason: error.to_string() })?;
        Ok(encoding.get_ids().to_vec())
    }
}

impl Tokenizer for HuggingFaceTokenizer {
    fn encode(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        self.ids(text, false)
    }

    /// Decodes tokens without special tokens; an id that no token has is left out, as transformers does. Tokens that the
    /// tokenizer's own decoder refuses become U+FFFD.
    fn decode(&self, tokens: &[TokenId]) -> String {
        self.inner.decode(tokens, true).unwrap_or_else(|_| char::REPLACEMENT_CHARACTER.into())
    }

    /// Renders a chat with the chat template, which writes special tokens itself: none is added to what it renders. Without a
    /// template, a chat is its messages one after another, with the special tokens that `tokenizer.json` adds before plain text; one that
    /// would end a response is left out, since the response is still to come.
    fn encode_chat(&self, messages: &[Message]) -> Result<Vec<TokenId>, TokenizerError> {
        if messages.is_empty() {
            return Err(TokenizerError::Chat { reason: "it has no message".into() });
        }
        match &self.template {
            Some(template) => self.ids(&template.render(messages, &self.special)?, false),
            None => {
                let text: String = messages.iter().map(|message| message.content.as_str()).collect();
                let mut ids = self.ids(&text, true)?;
                if ids.last().is_some_and(|last| self.stop_tokens.contains(last)) {
                    ids.pop();
                }
                Ok(ids)
            }
        }
    }

    /// The highest token id and 1, added tokens included.
    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn stop_tokens(&self) -> &[TokenId] {
        &self.stop_tokens
    }
}

impl fmt::Debug for HuggingFaceTokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: Vec<&str> = self.files.iter().map(|file| file.0).collect();
        f.debug_struct("HuggingFaceTokenizer")
            .field("files", &files)
            .field("special", &self.special)
            .field("stop_tokens", &self.stop_tokens)
            .field("vocab_size", &self.vocab_size)
            .finish_non_exhaustive()
    }
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, ModelError> {
    match files::read(path) {
        Err(ModelError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// The keys of a file; none when there is no file.
fn object(path: &Path, bytes: Option<&[u8]>) -> Result<Map<String, Value>, ModelError> {
    let parsed = bytes.map(serde_json::from_slice).transpose();
    Ok(parsed.map_err(|source| ModelError::Json { path: path.into(), source })?.unwrap_or_default())
}

fn value<T: DeserializeOwned>(
    path: &Path,
    keys: Map<String, Value>,
    key: &str,
    allowed: &str,
) -> Result<Option<T>, ModelError> {
    JsonObject::new(path, keys).take(key, allowed)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

fn template_of_config(path: &Path, config: Map<String, Value>) -> Result<Option<ChatTemplate>, ModelError> {
    let key = "chat_template";
    let allowed = "a string, or a list of objects with name and template";
    let text = match value(path, config, key, allowed)? {
        None => return Ok(None),
        Some(Templates::One(text)) => text,
        Some(Templates::Named(templates)) => {
            let names: Vec<&str> = templates.iter().map(|template| template.name.as_str()).collect();
            let refused = ModelError::HuggingFace {
                path: path.into(),
                key: key.into(),
                value: format!("templates named {}", names.join(", ")),
                allowed: "allowed is a list with one named default".into(),
            };
            let default = templates.into_iter().find(|template| template.name == "default");
            default.ok_or(refused)?.template
        }
    };
    let refused = |source| ModelError::Tokenizer { path: path.into(), source };
    ChatTemplate::new(&text).map(Some).map_err(refused)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Ids {
    One(TokenId),
    Many(Vec<TokenId>),
}

/// The tokens that end a response, each once, the end-of-sequence token first if it is among them.
fn stop_tokens(
    folder: &Path,
    generation_config: Option<&[u8]>,
    eos: Option<TokenId>,
) -> Result<Vec<TokenId>, ModelError> {
    let key = "eos_token_id";
    let named = |path: &Path, bytes: Option<&[u8]>| {
        let ids = value(path, object(path, bytes)?, key, "a token id, or a list of token ids")?;
        Ok::<_, ModelError>(match ids {
            None => Vec::new(),
            Some(Ids::One(id)) => vec![id],
            Some(Ids::Many(ids)) => ids,
        })
    };
    let mut found = named(&folder.join(GENERATION_CONFIG), generation_config)?;
    if found.is_empty() {
        let path = folder.join(CONFIG);
        found = named(&path, read_if_there(&path)?.as_deref())?;
    }
    if found.is_empty() {
        found.extend(eos);
    }
    if found.is_empty() {
        return Err(ModelError::HuggingFace {
            path: folder.into(),
            key: key.into(),
            value: "not given".into(),
            allowed: format!(
                "a token must end a response; looked at {key} of {GENERATION_CONFIG} and {CONFIG}, and at eos_token of \
                 {TOKENIZER_CONFIG} and {SPECIAL_TOKENS_MAP}"
            ),
        });
    }
    let mut stops: Vec<TokenId> = eos.filter(|eos| found.contains(eos)).into_iter().collect();
    for id in found {
        if !stops.contains(&id) {
            stops.push(id);
        }
    }
    Ok(stops)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, path::PathBuf};

    use serde_json::json;

    use super::*;

    const FOLDERS: [&str; 4] =
        ["byte_fallback", "byte_fallback_metaspace", "byte_level_begun", "byte_level_words"];

    /// What transformers says of a tokenizer.
    #[derive(Deserialize)]
    struct Expected {
        vocab_size: usize,
        bos: Option<TokenId>,
        eos: Option<TokenId>,
        pad: Option<TokenId>,
        texts: BTreeMap<String, Encoded>,
        own: BTreeMap<String, Rendered>,
    }

    #[derive(Deserialize)]
    struct Encoded {
        ids: Vec<TokenId>,
        begun: Vec<TokenId>,
        decoded: String,
    }

    #[derive(Deserialize)]
    struct Rendered {
        ids: Option<Vec<TokenId>>,
        error: Option<String>,
    }

    fn fixture(name: &str) -> PathBuf {
        [env!("CARGO_MANIFEST_DIR"), "tests", "text", name].iter().collect()
    }

    fn parsed<T: DeserializeOwned>(name: &str) -> T {
        serde_json::from_slice(&fs::read(fixture(name)).unwrap()).unwrap()
    }

    fn expected(folder: &str) -> Expected {
        parsed(&format!("{folder}/expected.json"))
    }

    /// A folder with the `tokenizer.json` of the fixture `byte_fallback` and these files.
    fn folder(files: &[(&str, Value)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(fixture("byte_fallback").join(TOKENIZER), folder.path().join(TOKENIZER)).unwrap();
        for (name, value) in files {
            fs::write(folder.path().join(name), value.to_string()).unwrap();
        }
        folder
    }

    fn refused(files: &[(&str, Value)]) -> String {
        HuggingFaceTokenizer::load(folder(files).path()).unwrap_err().to_string()
    }

    #[test]
    fn texts_become_the_tokens_of_transformers_and_come_back_as_it_decodes_them() {
        let texts: BTreeMap<String, String> = parsed("texts.json");
        let mut differences = Vec::new();
        for name in FOLDERS {
            let tokenizer = HuggingFaceTokenizer::load(fixture(name)).unwrap();
            for (label, expected) in &expected(name).texts {
                let text = &texts[label];
                let ids = tokenizer.encode(text).unwrap();
                let begun = tokenizer.encode_with_special_tokens(text).unwrap();
                let decoded = tokenizer.decode(&ids);
                if (&ids, &begun, &decoded) != (&expected.ids, &expected.begun, &expected.decoded) {
                    differences.push(format!("{name}, {label}: {text:?}\n  {ids:?}\n  {:?}", expected.ids));
                }
                assert_eq!(tokenizer.decode(&expected.begun), expected.decoded, "{name}, {label}");
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }

    #[test]
    fn chats_become_the_tokens_of_transformers_with_at_most_one_beginning() {
        let chats: BTreeMap<String, Vec<Message>> = parsed("chats.json");
        let mut refused = 0;
        for name in ["byte_fallback_metaspace", "byte_level_begun", "byte_level_words"] {
            let tokenizer = HuggingFaceTokenizer::load(fixture(name)).unwrap();
            for (label, expected) in expected(name).own {
                match (tokenizer.encode_chat(&chats[&label]), expected) {
                    (Ok(ids), Rendered { ids: Some(expected), .. }) => {
                        assert_eq!(ids, expected, "{name}, {label}");
                        if label == "turns" {
                            let begins = ids.iter().filter(|id| Some(**id) == tokenizer.bos_token()).count();
                            assert_eq!(begins, usize::from(tokenizer.bos_token().is_some()), "{name}");
                        }
                    }
                    (Err(TokenizerError::Chat { reason }), Rendered { error: Some(error), .. }) => {
                        assert_eq!(reason, error, "{name}, {label}");
                        refused += 1;
                    }
                    (found, expected) => panic!("{name}, {label}: {found:?}, but {:?}", expected.ids),
                }
            }
        }
        assert!(refused > 0);
    }

    #[test]
    fn special_tokens_have_the_ids_of_transformers() {
        for name in FOLDERS {
            let tokenizer = HuggingFaceTokenizer::load(fixture(name)).unwrap();
            let expected = expected(name);
            assert_eq!(tokenizer.vocab_size(), expected.vocab_size, "{name}");
            let special = [tokenizer.bos_token(), tokenizer.eos_token(), tokenizer.pad_token()];
            assert_eq!(special, [expected.bos, expected.eos, expected.pad], "{name}");
        }
    }

    #[test]
    fn a_chat_without_a_template_is_its_messages_after_the_beginning_of_a_sequence() {
        let tokenizer = HuggingFaceTokenizer::load(fixture("byte_fallback")).unwrap();
        assert_eq!(tokenizer.chat_template_sha256(), None);
        let chat = [Message::user("1 +"), Message::user(" 1")];
        let ids = tokenizer.encode_chat(&chat).unwrap();
        assert_eq!(ids[0], tokenizer.bos_token().unwrap());
        assert_eq!(ids[1..], tokenizer.encode("1 + 1").unwrap());
        assert!(tokenizer.encode_chat(&[]).is_err());
    }

    #[test]
    fn stop_tokens_are_those_of_the_first_file_that_names_any() {
        let eos = ("tokenizer_config.json", json!({"eos_token": "</s>"}));
        let stops = |files: &[(&str, Value)]| {
            HuggingFaceTokenizer::load(folder(files).path()).unwrap().stop_tokens().to_vec()
        };
        assert_eq!(stops(std::slice::from_ref(&eos)), [2]);
        let config = ("config.json", json!({"eos_token_id": 7, "vocab_size": 1}));
        assert_eq!(stops(&[eos.clone(), config.clone()]), [7]);
        let generation = ("generation_config.json", json!({"eos_token_id": [9, 2, 9, 8], "top_k": 1}));
        assert_eq!(stops(&[eos, config.clone(), generation]), [2, 9, 8]);
        assert_eq!(stops(&[config, ("generation_config.json", json!({"eos_token_id": null}))]), [7]);
    }

    #[test]
    fn no_stop_token_at_all_names_every_file_that_was_looked_at() {
        let error = refused(&[]);
        for name in [GENERATION_CONFIG, CONFIG, TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP] {
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_honoured_is_named_with_its_file() {
        let cases = [
            (TOKENIZER_CONFIG, json!({"eos_token": 3}), "eos_token = 3: allowed is a token's text"),
            (TOKENIZER_CONFIG, json!({"pad_token": "<none>"}), "pad_token = \"<none>\": the token is not in"),
            (SPECIAL_TOKENS_MAP, json!({"bos_token": []}), "bos_token = []: allowed is"),
            (TOKENIZER_CONFIG, json!({"chat_template": 1}), "chat_template = 1: allowed is a string"),
            (TOKENIZER_CONFIG, json!({"chat_template": [{"name": "a", "template": ""}]}), "named default"),
            (TOKENIZER_CONFIG, json!({"chat_template": "{% if %}"}), "syntax error"),
            (GENERATION_CONFIG, json!({"eos_token_id": "</s>"}), "allowed is a token id"),
            (CONFIG, json!({"eos_token_id": -1}), "eos_token_id = -1"),
            (CHAT_TEMPLATE, json!("{{"), "syntax error"),
            (TOKENIZER_CONFIG, json!([]), "not what was expected"),
            (TOKENIZER, json!({"model": 1}), "cannot be built"),
        ];
        for (name, value, expected) in cases {
            let error = refused(&[(name, value)]);
            assert!(error.contains(name) && error.contains(expected), "{name}: {error}");
        }
        let empty = tempfile::tempdir().unwrap();
        let error = HuggingFaceTokenizer::load(empty.path()).unwrap_err().to_string();
        assert!(error.contains(TOKENIZER), "{error}");
    }

    #[test]
    fn a_token_that_only_a_description_calls_special_is_left_out_when_decoding() {
        let tokenizer =
            |config| HuggingFaceTokenizer::load(folder(&[(TOKENIZER_CONFIG, config)]).path()).unwrap();
        let plain = tokenizer(json!({"eos_token": "</s>"}));
        let special = tokenizer(json!({"eos_token": "</s>", "pad_token": "<0x41>"}));
        assert_eq!(plain.decode(&[3 + 0x41, 3 + 0x42]), "AB");
        assert_eq!(special.decode(&[3 + 0x41, 3 + 0x42]), "B");
    }

    #[test]
    fn saving_writes_the_same_bytes_and_the_template_that_was_given() {
        for name in FOLDERS {
            let target = tempfile::tempdir().unwrap();
            let tokenizer = HuggingFaceTokenizer::load(fixture(name)).unwrap();
            tokenizer.save(target.path()).unwrap();
            for file in KEPT {
                let read = |folder: &Path| fs::read(folder.join(file)).ok();
                assert_eq!(read(target.path()), read(&fixture(name)), "{name}/{file}");
            }
        }
        let target = folder(&[(CONFIG, json!({"eos_token_id": 2}))]);
        let given = "{{ messages[-1].content }}!";
        let tokenizer = HuggingFaceTokenizer::load(fixture("byte_fallback_metaspace")).unwrap();
        let before = tokenizer.chat_template_sha256();
        let tokenizer = tokenizer.with_chat_template(given).unwrap();
        tokenizer.save(target.path()).unwrap();
        let again = HuggingFaceTokenizer::load(target.path()).unwrap();
        assert_eq!(again.chat_template().unwrap().text(), given);
        assert_eq!(again.chat_template_sha256(), tokenizer.chat_template_sha256());
        assert_ne!(again.chat_template_sha256(), before);
        let chat = [Message::user("hot")];
        assert_eq!(again.encode_chat(&chat).unwrap(), again.encode("hot!").unwrap());
        let error = again.with_chat_template("{% if %}").unwrap_err().to_string();
        assert!(error.contains("chat template"), "{error}");
    }
}

//! A tokenizer with one token for each character of an alphabet.

use std::{collections::HashMap, path::Path};

use firebrick_core::{Message, TokenId, Tokenizer, TokenizerError};
use serde::{Deserialize, Serialize};

use crate::{ModelError, files};

/// The token that ends a response.
const END: TokenId = 0;

/// Shown in place of an id that no character has, so that a bad id does not vanish from a decoded text.
const UNKNOWN: char = char::REPLACEMENT_CHARACTER;

/// Most characters of a text that an error quotes.
const QUOTED: usize = 60;

/// One token for each character of an alphabet, and the special token 0 that ends a sequence.
///
/// Character i of the alphabet, counted from 0, has id i + 1. A chat is rendered as its messages one after
/// another, with nothing in between: on the small problems that this tokenizer is for, the text is the whole
/// template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CharTokenizer {
    alphabet: Vec<char>,
    ids: HashMap<char, TokenId>,
}

/// What a tokenizer's file holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    alphabet: String,
}

impl CharTokenizer {
    /// A tokenizer of the characters of `alphabet`, in this order.
    ///
    /// # Errors
    /// [`TokenizerError::Build`] when the alphabet is empty or names a character twice.
    pub fn new(alphabet: &str) -> Result<Self, TokenizerError> {
        let build = |reason| Err(TokenizerError::Build { reason });
        if alphabet.is_empty() {
            return build("the alphabet is empty; name at least one character".into());
        }
        let alphabet: Vec<char> = alphabet.chars().collect();
        let mut ids = HashMap::with_capacity(alphabet.len());
        for (id, character) in (END + 1..).zip(&alphabet) {
            if ids.insert(*character, id).is_some() {
                return build(format!("the alphabet names {character:?} twice; name each character once"));
            }
        }
        Ok(Self { alphabet, ids })
    }

    /// The token that ends a sequence; also the only stop token.
    pub fn end_token(&self) -> TokenId {
        END
    }

    /// Reads a tokenizer from a JSON file.
    ///
    /// # Errors
    /// When the file cannot be read or describes no tokenizer.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = path.as_ref();
        let description: Description = files::read_json(path)?;
        Self::new(&description.alphabet).map_err(|source| ModelError::Tokenizer { path: path.into(), source })
    }

    /// Writes the tokenizer to a JSON file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), ModelError> {
        let description = Description { alphabet: self.alphabet.iter().collect() };
        files::write_json(path.as_ref(), &description)
    }
}

impl Tokenizer for CharTokenizer {
    fn encode(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        text.char_indices()
            .map(|(offset, character)| {
                self.ids.get(&character).copied().ok_or_else(|| TokenizerError::UnknownCharacter {
                    character,
                    offset,
                    text: text.chars().take(QUOTED).collect(),
                })
            })
            .collect()
    }

    /// Decodes tokens without the end token; an id beyond the alphabet becomes U+FFFD.
    fn decode(&self, tokens: &[TokenId]) -> String {
        let characters = tokens.iter().filter(|token| **token != END);
        characters.map(|token| self.alphabet.get(*token as usize - 1).copied().unwrap_or(UNKNOWN)).collect()
    }

    fn encode_chat(&self, messages: &[Message]) -> Result<Vec<TokenId>, TokenizerError> {
        if messages.is_empty() {
            return Err(TokenizerError::Chat { reason: "it has no message".into() });
        }
        let mut tokens = Vec::new();
        for message in messages {
            tokens.extend(self.encode(&message.content)?);
        }
        Ok(tokens)
    }

    fn vocab_size(&self) -> usize {
        self.alphabet.len() + 1
    }

    fn stop_tokens(&self) -> &[TokenId] {
        &[END]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digits() -> CharTokenizer {
        CharTokenizer::new("0123456789+=é").unwrap()
    }

    #[test]
    fn ids_follow_the_alphabet_and_zero_ends_a_sequence() {
        let tokenizer = digits();
        assert_eq!(tokenizer.encode("0+é").unwrap(), [1, 11, 13]);
        assert_eq!(tokenizer.vocab_size(), 14);
        assert_eq!(tokenizer.stop_tokens(), [tokenizer.end_token()]);
        assert_eq!(tokenizer.end_token(), 0);
    }

    #[test]
    fn decoding_leaves_the_end_token_out_and_shows_ids_that_no_character_has() {
        assert_eq!(digits().decode(&[2, 3, 0]), "12");
        assert_eq!(digits().decode(&[2, 14, 0, 3]), "1\u{fffd}2");
    }

    #[test]
    fn a_chat_is_its_messages_one_after_another() {
        let tokenizer = digits();
        let chat = [Message::user("1+"), Message::user("2=")];
        assert_eq!(tokenizer.encode_chat(&chat).unwrap(), tokenizer.encode("1+2=").unwrap());
        assert!(tokenizer.encode_chat(&[]).is_err());
    }

    #[test]
    fn an_unknown_character_is_named_with_its_place() {
        let error = digits().encode("é1x").unwrap_err().to_string();
        assert!(error.contains("'x'") && error.contains("byte 3"), "{error}");
    }

    #[test]
    fn an_empty_alphabet_and_a_repeated_character_are_refused() {
        assert!(CharTokenizer::new("").unwrap_err().to_string().contains("empty"));
        let error = CharTokenizer::new("aba").unwrap_err().to_string();
        assert!(error.contains("'a' twice"), "{error}");
    }

    #[test]
    fn a_stored_tokenizer_comes_back_and_a_bad_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        digits().save(&path).unwrap();
        assert_eq!(CharTokenizer::load(&path).unwrap(), digits());
        for text in [r#"{"alphabet": "11"}"#, r#"{"alphabt": "1"}"#, "{"] {
            std::fs::write(&path, text).unwrap();
            let error = CharTokenizer::load(&path).unwrap_err().to_string();
            assert!(error.contains("tokenizer.json"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(text in "[0-9+=é]{0,40}") {
            let tokenizer = digits();
            let tokens = tokenizer.encode(&text).unwrap();
            prop_assert_eq!(tokenizer.decode(&tokens), text);
        }
    }
}

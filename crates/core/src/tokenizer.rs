//! The contract of a tokenizer.

use std::fmt::Debug;

use crate::{Message, TokenId};

/// Text to tokens and back.
pub trait Tokenizer: Debug + Send + Sync {
    /// Encodes plain text, without adding special tokens.
    ///
    /// # Errors
    /// When the text holds something that the vocabulary cannot express.
    fn encode(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError>;

    /// Decodes tokens, leaving special tokens out.
    fn decode(&self, tokens: &[TokenId]) -> String;

    /// Renders a chat up to the point where the assistant answers, with at most one beginning-of-sequence token.
    ///
    /// # Errors
    /// When a message cannot be encoded.
    fn encode_chat(&self, messages: &[Message]) -> Result<Vec<TokenId>, TokenizerError>;

    /// Number of token ids.
    fn vocab_size(&self) -> usize;

    /// Tokens that end a response.
    fn stop_tokens(&self) -> &[TokenId];
}

impl<T: Tokenizer + ?Sized> Tokenizer for Box<T> {
    fn encode(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        (**self).encode(text)
    }
    fn decode(&self, tokens: &[TokenId]) -> String {
        (**self).decode(tokens)
    }
    fn encode_chat(&self, messages: &[Message]) -> Result<Vec<TokenId>, TokenizerError> {
        (**self).encode_chat(messages)
    }
    fn vocab_size(&self) -> usize {
        (**self).vocab_size()
    }
    fn stop_tokens(&self) -> &[TokenId] {
        (**self).stop_tokens()
    }
}

const _: Option<&dyn Tokenizer> = None; // object-safe

/// Text that cannot be tokenized.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A character is not in the vocabulary.
    #[error("character {character:?} at byte {offset} of {text:?} is not in the tokenizer's alphabet")]
    UnknownCharacter {
        /// The character.
        character: char,
        /// Where it stands.
        offset: usize,
        /// The text (its beginning).
        text: String,
    },
    /// A text cannot be expressed in the vocabulary.
    #[error("the text cannot be encoded: {reason}")]
    Encode {
        /// Why not.
        reason: String,
    },
    /// A chat has no message, or the template cannot render it.
    #[error("the chat cannot be rendered: {reason}")]
    Chat {
        /// Why not.
        reason: String,
    },
    /// The tokenizer's own description is wrong.
    #[error("the tokenizer cannot be built: {reason}")]
    Build {
        /// Why not.
        reason: String,
    },
}

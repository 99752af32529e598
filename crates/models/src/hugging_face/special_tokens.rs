//! The special tokens that a chat template and a batch need by name.

use std::path::Path;

use firebrick_core::TokenId;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokenizers::AddedToken;

use super::json_object::JsonObject;
use crate::ModelError;

/// Text and id of the special tokens with a name; each may be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    bos: Option<(String, TokenId)>,
    eos: Option<(String, TokenId)>,
    pad: Option<(String, TokenId)>,
    unk: Option<(String, TokenId)>,
}

/// A token as files write it: its text, or an object with it.
#[derive(Deserialize)]
#[serde(untagged)]
enum NamedToken {
    Text(String),
    Object { content: String },
}

impl SpecialTokens {
    /// Takes each token from the first source that has its key, and makes it special in the tokenizer.
    pub(super) fn resolve(
        sources: &[(&Path, &Map<String, Value>)],
        tokenizer: &mut tokenizers::Tokenizer,
    ) -> Result<Self, ModelError> {
        let mut token = |key: &str| {
            let Some((path, keys)) = sources.iter().find(|source| source.1.contains_key(key)) else {
                return Ok(None);
            };
            let named = keys.iter().filter(|entry| entry.0 == key);
            let named = named.map(|(key, value)| (key.clone(), value.clone())).collect();
            let mut object = JsonObject::new(path, named);
            let text = match object.take(key, "a token's text, or an object with it under content")? {
                None => return Ok(None),
                Some(NamedToken::Text(text) | NamedToken::Object { content: text }) => text,
            };
            let Some(id) = tokenizer.token_to_id(&text) else {
                let allowed = "the token is not in tokenizer.json; name one that is, or null for none".into();
                return Err(object.error(key, &format!("{text:?}"), allowed));
            };
            if !tokenizer.get_added_tokens_decoder().contains_key(&id) {
                tokenizer.add_special_tokens([AddedToken::from(text.as_str(), true)]).map_err(|error| {
                    object.error(key, &format!("{text:?}"), format!("the tokenizer refuses it: {error}"))
                })?;
            }
            Ok(Some((text, id)))
        };
        Ok(Self {
            bos: token("bos_token")?,
            eos: token("eos_token")?,
            pad: token("pad_token")?,
            unk: token("unk_token")?,
        })
    }

    /// Key and text of each token that there is, under the names that chat templates use.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("bos_token", &self.bos),
            ("eos_token", &self.eos),
            ("pad_token", &self.pad),
            ("unk_token", &self.unk),
        ];
        all.into_iter().filter_map(|(key, token)| Some((key, token.as_ref()?.0.as_str())))
    }

    pub(super) fn bos_id(&self) -> Option<TokenId> {
        self.bos.as_ref().map(|token| token.1)
    }

    pub(super) fn eos_id(&self) -> Option<TokenId> {
        self.eos.as_ref().map(|token| token.1)
    }

    pub(super) fn pad_id(&self) -> Option<TokenId> {
        self.pad.as_ref().map(|token| token.1)
    }
}

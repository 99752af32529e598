//! Problems that the policy is asked to solve.

use serde::{Deserialize, Serialize};

/// One message of a chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// A message of the user.
    pub fn user(content: impl Into<String>) -> Self {
        Self { role: "user".into(), content: content.into() }
    }
}

/// A problem with its reference answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Prompt {
    /// Identifies the problem in logs, errors and traces; unique within a data set.
    pub id: String,
    /// What the policy is shown.
    pub messages: Vec<Message>,
    /// The reference answer that a verifier compares with.
    pub answer: String,
    /// Where the problem comes from; may choose the verifier.
    pub data_source: String,
    /// Everything else that the data row held, passed through to verifiers.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl Prompt {
    /// A prompt of one user message.
    pub fn new(id: impl Into<String>, question: impl Into<String>, answer: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            messages: vec![Message::user(question)],
            answer: answer.into(),
            data_source: String::new(),
            extra: serde_json::Map::new(),
        }
    }

    /// Names the data set that the prompt comes from.
    #[must_use]
    pub fn with_data_source(mut self, data_source: impl Into<String>) -> Self {
        self.data_source = data_source.into();
        self
    }
}

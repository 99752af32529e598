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
    /// Privileged help, such as a hint or the beginning of a solution: a guided rollout samples with it appended to the last
    /// message, and trains without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guidance: Option<String>,
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
            guidance: None,
            data_source: String::new(),
            extra: serde_json::Map::new(),
        }
    }

    /// Adds privileged help for guided rollouts.
    #[must_use]
    pub fn with_guidance(mut self, guidance: impl Into<String>) -> Self {
        self.guidance = Some(guidance.into());
        self
    }

    /// The messages of a guided rollout: the guidance, if there is any, appended to the last of them.
    pub fn guided_messages(&self) -> Vec<Message> {
        let mut messages = self.messages.clone();
        if let (Some(last), Some(guidance)) = (messages.last_mut(), &self.guidance) {
            last.content.push_str(guidance);
        }
        messages
    }

    /// Names the data set that the prompt comes from.
    #[must_use]
    pub fn with_data_source(mut self, data_source: impl Into<String>) -> Self {
        self.data_source = data_source.into();
        self
    }
}

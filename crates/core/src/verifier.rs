//! The plug-in that scores completions.

use std::fmt::Debug;

use crate::{FinishReason, Prompt, TokenId, UnscoredReason, Verdict};

/// What a verifier is shown.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Sample<'a> {
    /// The problem, with its reference answer.
    pub prompt: &'a Prompt,
    /// The response as text, special tokens left out.
    pub text: &'a str,
    /// The response as tokens.
    pub tokens: &'a [TokenId],
    /// Why generation ended.
    pub finish_reason: FinishReason,
}

impl<'a> Sample<'a> {
    /// A sample of a response that ended by itself, for tests and for grading text that no policy of ours wrote.
    pub fn of_text(prompt: &'a Prompt, text: &'a str) -> Self {
        Self::new(prompt, text, &[], FinishReason::Stop)
    }

    /// A sample.
    pub fn new(
        prompt: &'a Prompt,
        text: &'a str,
        tokens: &'a [TokenId],
        finish_reason: FinishReason,
    ) -> Self {
        Self { prompt, text, tokens, finish_reason }
    }
}

/// Scores a completion against its problem.
///
/// A verifier is pure: the same sample has the same verdict. It must return in bounded time; what can hang belongs in
/// a process that can be killed. `Err` becomes an unscored completion with the error's message, never a zero.
pub trait RewardVerifier: Debug + Send + Sync {
    /// Returns the verdict on `sample`.
    ///
    /// # Errors
    /// When the verifier itself failed, which says nothing about the completion.
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError>;

    /// Whether completions of `prompt` can be graded at all. Asked of a data set before a run; the default accepts every problem.
    ///
    /// # Errors
    /// The reason with which every completion of the problem would be left unscored.
    fn check_reference(&self, prompt: &Prompt) -> Result<(), UnscoredReason> {
        let _ = prompt;
        Ok(())
    }

    /// Name in logs and metrics.
    fn name(&self) -> &str {
        "reward"
    }
}

impl<T: RewardVerifier + ?Sized> RewardVerifier for Box<T> {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        (**self).verify(sample)
    }

    fn check_reference(&self, prompt: &Prompt) -> Result<(), UnscoredReason> {
        (**self).check_reference(prompt)
    }

    fn name(&self) -> &str {
        (**self).name()
    }
}

const _: Option<&dyn RewardVerifier> = None; // object-safe

/// A failure of the verifier, not of the completion.
#[derive(Debug, thiserror::Error)]
#[error("the verifier failed: {message}")]
#[non_exhaustive]
pub struct VerifyError {
    /// What went wrong.
    pub message: String,
    /// The underlying error.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl VerifyError {
    /// An error with a message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// Keeps the underlying error.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

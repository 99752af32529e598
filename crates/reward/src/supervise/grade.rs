//! One verdict, whatever the verifier does.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use firebrick_core::{FinishReason, Prompt, RewardVerifier, Sample, TokenId, UnscoredReason, Verdict};

/// A sample that owns its text, to be sent to another thread.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OwnedSample {
    /// The problem, shared by its samples.
    pub prompt: Arc<Prompt>,
    /// The response as text, special tokens left out.
    pub text: String,
    /// The response as tokens.
    pub tokens: Vec<TokenId>,
    /// Why generation ended.
    pub finish_reason: FinishReason,
}

impl OwnedSample {
    /// A sample.
    pub fn new(
        prompt: Arc<Prompt>,
        text: impl Into<String>,
        tokens: impl Into<Vec<TokenId>>,
        finish_reason: FinishReason,
    ) -> Self {
        Self { prompt, text: text.into(), tokens: tokens.into(), finish_reason }
    }

    /// A sample of a response that ended by itself, without tokens.
    pub fn of_text(prompt: Arc<Prompt>, text: impl Into<String>) -> Self {
        Self::new(prompt, text, Vec::new(), FinishReason::Stop)
    }

    /// The sample as verifiers are shown it.
    pub fn sample(&self) -> Sample<'_> {
        Sample::new(&self.prompt, &self.text, &self.tokens, self.finish_reason)
    }
}

/// The verdict of `verifier` on `sample`, on this thread and without a time limit.
///
/// What the verifier does wrong leaves the completion unscored ([`UnscoredReason::VerifierError`]) with a message: an error, a
/// panic, a reward or a component that is not finite. A completion whose generation was aborted is unscored without being shown
/// to the verifier.
///
/// ```
/// use firebrick_core::{Prompt, Sample};
/// use firebrick_reward::{ExactAnswer, grade};
///
/// let prompt = Prompt::new("p1", "What is 2 + 2?", "4");
/// assert_eq!(grade(&ExactAnswer::default(), &Sample::of_text(&prompt, "#### 4")).reward(), Some(1.0));
/// ```
pub fn grade(verifier: &dyn RewardVerifier, sample: &Sample<'_>) -> Verdict {
    if sample.finish_reason == FinishReason::Aborted {
        return Verdict::Unscored(UnscoredReason::Aborted);
    }
    let failed = |message: String| Verdict::Unscored(UnscoredReason::VerifierError(message));
    // A verifier is pure, so a panic leaves nothing half done that the next call could see.
    let verdict = match catch_unwind(AssertUnwindSafe(|| verifier.verify(sample))) {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(error)) => return failed(error.to_string()),
        Err(panic) => return failed(format!("the verifier panicked: {}", said(&*panic))),
    };
    if let Verdict::Scored(score) = &verdict {
        if !score.reward.is_finite() {
            return failed(format!("the reward is {}, which is not finite", score.reward));
        }
        if let Some((name, value)) = score.components.iter().find(|(_, value)| !value.is_finite()) {
            return failed(format!("the component {name:?} of the reward is {value}, which is not finite"));
        }
    }
    verdict
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use firebrick_core::VerifyError;

    use super::*;

    /// Does what the response says.
    #[derive(Debug)]
    struct Obedient;

    impl RewardVerifier for Obedient {
        fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
            match sample.text {
                "error" => Err(VerifyError::new("down")),
                "panic" => panic!("no {}", sample.prompt.id),
                "bare panic" => std::panic::panic_any(7),
                "nan" => Ok(Verdict::scored(f64::NAN)),
                "component" => {
                    let mut score = firebrick_core::Score::new(1.0, None, "");
                    score.add_component("x", f64::INFINITY);
                    Ok(Verdict::Scored(score))
                }
                _ => Ok(Verdict::scored(1.0)),
            }
        }
    }

    #[test]
    fn what_a_verifier_does_wrong_is_an_unscored_completion_with_a_message() {
        let prompt = Arc::new(Prompt::new("p7", "q", "a"));
        for (text, message) in [
            ("error", "the verifier failed: down"),
            ("panic", "the verifier panicked: no p7"),
            ("bare panic", "the verifier panicked: without a message"),
            ("nan", "the reward is NaN, which is not finite"),
            ("component", "the component \"x\" of the reward is inf, which is not finite"),
        ] {
            let verdict = grade(&Obedient, &OwnedSample::of_text(prompt.clone(), text).sample());
            assert_eq!(verdict, Verdict::Unscored(UnscoredReason::VerifierError(message.into())));
        }
        let fine = OwnedSample::of_text(prompt.clone(), "fine");
        assert_eq!(grade(&Obedient, &fine.sample()), Verdict::scored(1.0));
        let aborted = OwnedSample::new(prompt, "panic", [], FinishReason::Aborted);
        assert_eq!(grade(&Obedient, &aborted.sample()), Verdict::Unscored(UnscoredReason::Aborted));
    }
}

//! What a verifier says of a completion.

use serde::Serialize;

/// Outcome of verification: a reward, or the reason why there is none.
///
/// An infrastructure fault is never a zero: an unscored completion enters no mean, no deviation and no loss.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The completion was graded.
    Scored(Score),
    /// The completion could not be graded.
    Unscored(UnscoredReason),
}

/// A grade, with what it rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Score {
    /// The reward; finite.
    pub reward: f64,
    /// The answer that was found in the completion; `None` means that extraction failed, which is counted apart
    /// from a wrong answer.
    pub extracted: Option<String>,
    /// Name of the rule that decided.
    pub rule: &'static str,
}

/// Why a completion has no reward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UnscoredReason {
    /// The verifier itself ran out of time.
    Timeout,
    /// The verifier failed.
    VerifierError(String),
    /// The reference answer cannot be understood, so no completion can be graded.
    BadReference(String),
    /// Generation was aborted.
    Aborted,
}

impl Verdict {
    /// A plain reward.
    pub fn scored(reward: f64) -> Self {
        Self::Scored(Score { reward, extracted: None, rule: "" })
    }

    /// A reward with the extracted answer and the deciding rule.
    pub fn graded(reward: f64, extracted: Option<String>, rule: &'static str) -> Self {
        Self::Scored(Score { reward, extracted, rule })
    }

    /// The reward, if there is one.
    pub fn reward(&self) -> Option<f64> {
        match self {
            Self::Scored(score) => Some(score.reward),
            Self::Unscored(_) => None,
        }
    }
}

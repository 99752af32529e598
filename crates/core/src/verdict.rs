//! What a verifier says of a completion.

use serde::{Serialize, Serializer};

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
    /// What the reward is made of, by name, where a verifier is composed of others: the reward of each part before its weight,
    /// and what each shaping added. They explain the reward and need not add up to it. Logged as `reward/<name>/mean`;
    /// serialised as a map, left out if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "as_map")]
    pub components: Vec<(String, f64)>,
}

impl Score {
    /// A score without components.
    pub fn new(reward: f64, extracted: Option<String>, rule: &'static str) -> Self {
        Self { reward, extracted, rule, components: Vec::new() }
    }

    /// Records a component; one that is there already under that name grows by it.
    pub fn add_component(&mut self, name: impl Into<String>, reward: f64) {
        let name = name.into();
        match self.components.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += reward,
            None => self.components.push((name, reward)),
        }
    }

    /// The component of that name.
    pub fn component(&self, name: &str) -> Option<f64> {
        self.components.iter().find(|(known, _)| known == name).map(|(_, reward)| *reward)
    }
}

fn as_map<S: Serializer>(components: &[(String, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(components.iter().map(|(name, reward)| (name, reward)))
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
    /// Generation was cut off at the limit on new tokens, and such completions are not to be graded.
    Truncated,
}

impl std::fmt::Display for UnscoredReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Timeout => write!(f, "the verifier ran out of time"),
            Self::VerifierError(message) | Self::BadReference(message) => write!(f, "{message}"),
            Self::Aborted => write!(f, "generation was aborted"),
            Self::Truncated => write!(f, "generation was cut off at the limit on new tokens"),
        }
    }
}

impl Verdict {
    /// A plain reward.
    pub fn scored(reward: f64) -> Self {
        Self::Scored(Score::new(reward, None, ""))
    }

    /// A reward with the extracted answer and the deciding rule.
    pub fn graded(reward: f64, extracted: Option<String>, rule: &'static str) -> Self {
        Self::Scored(Score::new(reward, extracted, rule))
    }

    /// The reward, if there is one.
    pub fn reward(&self) -> Option<f64> {
        match self {
            Self::Scored(score) => Some(score.reward),
            Self::Unscored(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_written_as_a_map_and_only_where_there_are_some() {
        let mut score = Score::new(1.5, Some("4".into()), "sum");
        let plain = serde_json::to_string(&score).unwrap();
        assert_eq!(plain, r#"{"reward":1.5,"extracted":"4","rule":"sum"}"#);
        score.add_component("math", 1.0);
        score.add_component("format", 0.5);
        let composed = serde_json::to_string(&score).unwrap();
        assert_eq!(
            composed,
            r#"{"reward":1.5,"extracted":"4","rule":"sum","components":{"math":1.0,"format":0.5}}"#
        );
    }

    #[test]
    fn components_of_one_name_add_up() {
        let mut score = Score::new(0.0, None, "");
        score.add_component("length", -0.5);
        score.add_component("length", -0.25);
        assert_eq!(score.component("length"), Some(-0.75));
        assert_eq!(score.components.len(), 1);
        assert_eq!(score.component("format"), None);
    }
}

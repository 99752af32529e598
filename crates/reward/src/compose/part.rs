//! A verifier with a name inside another one.

use firebrick_core::{RewardVerifier, Sample, Score, UnscoredReason, Verdict, VerifyError};

use crate::config::RewardConfigError;

/// A verifier inside a composed one.
#[derive(Debug)]
pub struct Part {
    /// What its reward is called in [`Score::components`] and so in metrics: not empty, without `/`, unique among its neighbours.
    pub name: String,
    /// What its reward is multiplied by; finite. In a [`crate::WeightedSum`] a part of weight 0 is recorded and does not count.
    pub weight: f64,
    /// The verifier.
    pub verifier: Box<dyn RewardVerifier>,
}

impl Part {
    /// A part.
    pub fn new(name: impl Into<String>, weight: f64, verifier: impl RewardVerifier + 'static) -> Self {
        Self { name: name.into(), weight, verifier: Box::new(verifier) }
    }
}

/// Refuses names that could not be told apart, or none at all.
pub(crate) fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), RewardConfigError> {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        let allowed = if name.is_empty() || name.contains('/') {
            Some("a name that is not empty and has no `/`")
        } else if seen.contains(&name) {
            Some("a name that no other part has")
        } else {
            None
        };
        if let Some(allowed) = allowed {
            let key = format!("parts[{}].name", seen.len());
            return Err(RewardConfigError::out_of_range(key, format!("{name:?}"), allowed));
        }
        seen.push(name);
    }
    if seen.is_empty() {
        return Err(RewardConfigError::out_of_range("parts", "[]", "at least one part"));
    }
    Ok(())
}

/// The score of the part `name`, or why it has none. Messages name the part.
pub(super) fn score_part(
    name: &str,
    verifier: &dyn RewardVerifier,
    sample: &Sample<'_>,
) -> Result<Result<Score, UnscoredReason>, VerifyError> {
    match verifier.verify(sample) {
        Ok(Verdict::Scored(score)) => Ok(Ok(score)),
        Ok(Verdict::Unscored(reason)) => Ok(Err(match reason {
            UnscoredReason::VerifierError(message) => {
                UnscoredReason::VerifierError(format!("{name}: {message}"))
            }
            UnscoredReason::BadReference(message) => {
                UnscoredReason::BadReference(format!("{name}: {message}"))
            }
            other => other,
        })),
        Err(mut error) => {
            error.message = format!("{name}: {}", error.message);
            Err(error)
        }
    }
}

/// Adds the reward of the part `name` to the components of `whole`, and its own components as `name/…`.
pub(super) fn record(whole: &mut Score, name: &str, part: &Score) {
    whole.add_component(name, part.reward);
    for (inner, reward) in &part.components {
        whole.add_component(format!("{name}/{inner}"), *reward);
    }
}

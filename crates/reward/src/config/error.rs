//! Settings that no verifier can be built from.

use crate::extraction::ExtractionMethod;
#[cfg(feature = "programs")]
use crate::program::ExecutorError;

/// A value that no verifier can be built from. Keys are paths from the table that was built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RewardConfigError {
    /// A value is out of range.
    #[error("{key} = {value}: allowed is {allowed}")]
    OutOfRange {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A reward is NaN or infinite.
    #[error("{key} = {value}: a reward must be finite")]
    NotFinite {
        /// The key.
        key: String,
        /// Its value.
        value: f64,
    },
    /// A right answer earns no more than a wrong one.
    #[error("{key} = {correct} must be above wrong_reward = {wrong}")]
    NoIncentive {
        /// The key of the reward of a right answer.
        key: String,
        /// Reward of a right answer.
        correct: f64,
        /// Reward of a wrong answer.
        wrong: f64,
    },
    /// A method of extraction is given twice.
    #[error("{key} names {method:?} twice: remove one")]
    RepeatedMethod {
        /// The key.
        key: String,
        /// The method.
        method: ExtractionMethod,
    },
    /// Data sources have no verifier.
    #[error("{} has no verifier for the data sources {}, and no default; known are {}",
        if key.is_empty() { "by_data_source" } else { key }, listed(sources), listed(known))]
    UnknownSources {
        /// The table that chooses by data source; empty if it is the one that was asked.
        key: String,
        /// The sources, each once, in the order of the data.
        sources: Vec<String>,
        /// The keys that are there.
        known: Vec<String>,
    },
    /// The executor of programs cannot be built.
    #[cfg(feature = "programs")]
    #[error("{key}: {source}")]
    Executor {
        /// The table that describes it.
        key: String,
        /// Why not.
        #[source]
        source: ExecutorError,
    },
}

impl RewardConfigError {
    pub(crate) fn out_of_range(key: impl Into<String>, value: impl ToString, allowed: &'static str) -> Self {
        Self::OutOfRange { key: key.into(), value: value.to_string(), allowed }
    }

    /// The same error, seen from the table that holds the failing part under `table`.
    #[must_use]
    pub fn within(mut self, table: &str) -> Self {
        *self.key_mut() = join(table, self.key());
        self
    }

    /// The key that is at fault, with the keys of the tables around it.
    pub fn key(&self) -> &str {
        match self {
            Self::OutOfRange { key, .. }
            | Self::NotFinite { key, .. }
            | Self::NoIncentive { key, .. }
            | Self::RepeatedMethod { key, .. }
            | Self::UnknownSources { key, .. } => key,
            #[cfg(feature = "programs")]
            Self::Executor { key, .. } => key,
        }
    }

    fn key_mut(&mut self) -> &mut String {
        match self {
            Self::OutOfRange { key, .. }
            | Self::NotFinite { key, .. }
            | Self::NoIncentive { key, .. }
            | Self::RepeatedMethod { key, .. }
            | Self::UnknownSources { key, .. } => key,
            #[cfg(feature = "programs")]
            Self::Executor { key, .. } => key,
        }
    }
}

/// Checks the rewards of right and wrong answers.
pub(crate) fn check_rewards(correct: f64, wrong: f64) -> Result<(), RewardConfigError> {
    for (key, value) in [("correct_reward", correct), ("wrong_reward", wrong)] {
        if !value.is_finite() {
            return Err(RewardConfigError::NotFinite { key: key.to_owned(), value });
        }
    }
    if correct <= wrong {
        return Err(RewardConfigError::NoIncentive { key: "correct_reward".to_owned(), correct, wrong });
    }
    Ok(())
}

/// Checks an order of methods of extraction.
pub(crate) fn check_methods(key: &str, order: &[ExtractionMethod]) -> Result<(), RewardConfigError> {
    if order.is_empty() {
        return Err(RewardConfigError::out_of_range(key, "[]", "at least one method, such as boxed"));
    }
    let repeated = order.iter().enumerate().find(|(index, method)| order[..*index].contains(method));
    match repeated {
        Some((_, &method)) => Err(RewardConfigError::RepeatedMethod { key: key.to_owned(), method }),
        None => Ok(()),
    }
}

fn join(table: &str, key: &str) -> String {
    match (table, key) {
        ("", path) | (path, "") => path.to_owned(),
        (table, key) => format!("{table}.{key}"),
    }
}

fn listed(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "),
    }
}

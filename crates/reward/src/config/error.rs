//! Settings that no verifier can be built from.

use std::error::Error;
use std::fmt;

use crate::extraction::ExtractionMethod;
#[cfg(feature = "programs")]
use crate::program::ExecutorError;

/// A value that no verifier can be built from: its key, and what is wrong with it.
#[derive(Debug)]
pub struct RewardConfigError {
    key: String,
    problem: RewardConfigProblem,
}

/// What is wrong with a value. Its text is what follows the key in that of [`RewardConfigError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RewardConfigProblem {
    /// It is out of range.
    #[error(" = {value}: allowed is {allowed}")]
    OutOfRange {
        /// The value.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A reward is NaN or infinite.
    #[error(" = {value}: a reward must be finite")]
    NotFinite {
        /// The reward.
        value: f64,
    },
    /// A right answer earns no more than a wrong one.
    #[error(" = {correct} must be above wrong_reward = {wrong}")]
    NoIncentive {
        /// Reward of a right answer, which is what the key names.
        correct: f64,
        /// Reward of a wrong answer.
        wrong: f64,
    },
    /// A method of extraction is given twice.
    #[error(" names {method:?} twice: remove one")]
    RepeatedMethod {
        /// The method.
        method: ExtractionMethod,
    },
    /// Data sources have no verifier in the table that the key names, which chooses by data source.
    #[error(
        " has no verifier for the data sources {}, and no default; known are {}",
        listed(sources),
        listed(known)
    )]
    UnknownSources {
        /// The sources, each once, in the order of the data.
        sources: Vec<String>,
        /// The keys that are there.
        known: Vec<String>,
    },
    /// The executor of programs that the key names cannot be built.
    #[cfg(feature = "programs")]
    #[error(": {source}")]
    Executor {
        /// Why not.
        #[source]
        source: ExecutorError,
    },
}

impl RewardConfigProblem {
    pub(crate) fn at(self, key: impl Into<String>) -> RewardConfigError {
        RewardConfigError { key: key.into(), problem: self }
    }
}

impl RewardConfigError {
    pub(crate) fn out_of_range(key: impl Into<String>, value: impl ToString, allowed: &'static str) -> Self {
        RewardConfigProblem::OutOfRange { value: value.to_string(), allowed }.at(key)
    }

    /// The same error, seen from the table that holds the failing part under `table`.
    #[must_use]
    pub fn within(mut self, table: &str) -> Self {
        self.key = join(table, &self.key);
        self
    }

    /// The key that is at fault, a path from the table that was built; empty if that is this table itself.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What is wrong with it.
    pub fn problem(&self) -> &RewardConfigProblem {
        &self.problem
    }
}

impl fmt::Display for RewardConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only a choice by data source is at fault as a whole.
        let key = if self.key.is_empty() { "by_data_source" } else { &self.key };
        write!(f, "{key}{}", self.problem)
    }
}

impl Error for RewardConfigError {
    /// The cause of the problem: the problem itself is in the text of this error.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.problem.source()
    }
}

/// Checks the rewards of right and wrong answers.
pub(crate) fn check_rewards(correct: f64, wrong: f64) -> Result<(), RewardConfigError> {
    for (key, value) in [("correct_reward", correct), ("wrong_reward", wrong)] {
        if !value.is_finite() {
            return Err(RewardConfigProblem::NotFinite { value }.at(key));
        }
    }
    if correct <= wrong {
        return Err(RewardConfigProblem::NoIncentive { correct, wrong }.at("correct_reward"));
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
        Some((_, &method)) => Err(RewardConfigProblem::RepeatedMethod { method }.at(key)),
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

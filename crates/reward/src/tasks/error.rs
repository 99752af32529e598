//! Why a task cannot be made.

use std::fmt::Display;

use super::TaskConfig;

/// A task that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// There is no task of this name.
    #[error("there is no task `{name}`: choose one of {}", TaskConfig::NAMES.join(", "))]
    UnknownTask {
        /// The name.
        name: String,
    },
    /// A setting that the task does not have, or of the wrong kind.
    #[error("settings of {task}")]
    Unreadable {
        /// The task.
        task: &'static str,
        /// Which, and what is allowed.
        #[source]
        source: serde_json::Error,
    },
    /// A setting is out of range.
    #[error("{key} = {value}: allowed is {allowed}")]
    Setting {
        /// Name of the setting.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// The task has too few different problems.
    #[error(
        "{task}: {asked} different problems were asked for, and {draws} draws gave {found}: widen the ranges of {settings}"
    )]
    Exhausted {
        /// The task.
        task: &'static str,
        /// Problems asked for.
        asked: usize,
        /// Different problems found.
        found: usize,
        /// Problems drawn.
        draws: u64,
        /// The settings, as JSON.
        settings: String,
    },
}

impl TaskError {
    pub(super) fn setting(key: &'static str, value: impl Display, allowed: impl Into<String>) -> Self {
        Self::Setting { key, value: value.to_string(), allowed: allowed.into() }
    }
}

/// Refuses a value outside `low..=high`.
pub(super) fn check_range<T: PartialOrd + Display>(
    key: &'static str,
    value: T,
    low: T,
    high: T,
) -> Result<(), TaskError> {
    if value < low || value > high {
        return Err(TaskError::setting(key, value, format!("{low} to {high}")));
    }
    Ok(())
}

/// Refuses a largest value below the smallest.
pub(super) fn check_order<T: PartialOrd + Display>(
    low: (&'static str, T),
    high: (&'static str, T),
) -> Result<(), TaskError> {
    if high.1 < low.1 {
        return Err(TaskError::setting(high.0, high.1, format!("{} = {} or more", low.0, low.1)));
    }
    Ok(())
}

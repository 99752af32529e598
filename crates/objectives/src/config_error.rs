//! A config value that no objective can be built from.

/// A config value outside its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number is out of range.
    #[error("{key} = {value}: allowed is {allowed}")]
    OutOfRange {
        /// The key, with the keys of the tables around it.
        key: String,
        /// Its value.
        value: f64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// Two numbers contradict each other.
    #[error("{key} = {value} with {other} = {other_value}: {fix}")]
    Conflict {
        /// The key, with the keys of the tables around it.
        key: String,
        /// Its value.
        value: f64,
        /// The other key.
        other: String,
        /// The other value.
        other_value: f64,
        /// What to do.
        fix: &'static str,
    },
    /// A choice that makes no sense beside the others.
    #[error("{key} = \"{choice}\": {reason}")]
    Incompatible {
        /// The key, with the keys of the tables around it.
        key: String,
        /// What was chosen.
        choice: &'static str,
        /// Why it makes no sense, and what to do.
        reason: &'static str,
    },
}

impl ConfigError {
    /// The same error, seen from the table that holds the failing part under `table`.
    #[must_use]
    pub fn within(mut self, table: &str) -> Self {
        match &mut self {
            Self::OutOfRange { key, .. } | Self::Incompatible { key, .. } => *key = format!("{table}.{key}"),
            Self::Conflict { key, other, .. } => {
                *key = format!("{table}.{key}");
                *other = format!("{table}.{other}");
            }
        }
        self
    }
}

/// Refuses `value` unless `holds`.
pub(crate) fn require(holds: bool, key: &str, value: f64, allowed: &'static str) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError::OutOfRange { key: key.to_owned(), value, allowed }) }
}

/// Refuses a width that is negative or not finite.
pub(crate) fn require_width(key: &str, value: f64) -> Result<(), ConfigError> {
    require(value.is_finite() && value >= 0.0, key, value, "a finite number >= 0")
}

/// Refuses `larger` when it is below `smaller`; both are (key, value).
pub(crate) fn require_order(
    smaller: (&str, f64),
    larger: (&str, f64),
    fix: &'static str,
) -> Result<(), ConfigError> {
    if smaller.1 <= larger.1 {
        return Ok(());
    }
    Err(ConfigError::Conflict {
        key: smaller.0.to_owned(),
        value: smaller.1,
        other: larger.0.to_owned(),
        other_value: larger.1,
        fix,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_whole_path_the_value_and_what_is_allowed() {
        let error = require_width("low", -0.5).unwrap_err().within("schedule").within("objective");
        assert_eq!(error.to_string(), "objective.schedule.low = -0.5: allowed is a finite number >= 0");
    }

    #[test]
    fn a_conflict_names_both_keys() {
        let error = require_order(("a", 2.0), ("b", 1.0), "lower a or raise b").unwrap_err().within("t");
        assert_eq!(error.to_string(), "t.a = 2 with t.b = 1: lower a or raise b");
    }

    #[test]
    fn nan_is_refused() {
        assert!(require_width("low", f64::NAN).is_err());
        assert!(require_order(("a", f64::NAN), ("b", 1.0), "").is_err());
    }
}

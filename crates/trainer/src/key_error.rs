//! A config's key that is unknown, missing or has a value that does not fit.

/// A key that a config does not have, lacks, or gives a value that does not fit. Keys are whole paths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// No such key.
    #[error("unknown key {key}; {}known are {}", did_you_mean(nearest), listed(known))]
    Unknown {
        /// The key.
        key: String,
        /// The known name that is most likely meant.
        nearest: Option<String>,
        /// The names that its table has.
        known: Vec<String>,
    },
    /// No such choice.
    #[error("{key} = {value:?} is unknown; {}known are {}", did_you_mean(nearest), listed(known))]
    UnknownValue {
        /// The key.
        key: String,
        /// What was chosen.
        value: String,
        /// The choice that is most likely meant.
        nearest: Option<String>,
        /// The choices.
        known: Vec<String>,
    },
    /// A key without a default is not given.
    #[error("missing key {key}; it has no default, since it is a choice of the run: give it a value")]
    Missing {
        /// The key.
        key: String,
    },
    /// A value of the wrong type.
    #[error("{key} = {value}: expected {expected}")]
    WrongType {
        /// The key.
        key: String,
        /// Its value, as TOML.
        value: String,
        /// What it should be.
        expected: String,
    },
    /// A value that its type refuses with a reason of its own.
    #[error("{key} = {value}: {reason}")]
    Refused {
        /// The key.
        key: String,
        /// Its value, as TOML.
        value: String,
        /// Why.
        reason: String,
    },
}

impl KeyError {
    /// The key, with the keys of the tables around it.
    pub fn key(&self) -> &str {
        match self {
            Self::Unknown { key, .. }
            | Self::UnknownValue { key, .. }
            | Self::Missing { key }
            | Self::WrongType { key, .. }
            | Self::Refused { key, .. } => key,
        }
    }
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("did you mean {name}? ")).unwrap_or_default()
}

fn listed(known: &[String]) -> String {
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}

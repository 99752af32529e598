//! What serde's messages say. serde has no typed errors for these, so they are read in this one place.

/// A message of serde, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SerdeMessage<'a> {
    /// A key that the table does not have.
    UnknownKey { name: &'a str, known: Vec<&'a str> },
    /// A choice that the enum does not have.
    UnknownValue { name: &'a str, known: Vec<&'a str> },
    /// A key without a default that is not given.
    Missing { name: &'a str },
    /// A value of the wrong type, or out of the type's range.
    Unfit { expected: &'a str },
    /// Anything else: the message of a type of ours.
    Other,
}

impl<'a> SerdeMessage<'a> {
    pub(crate) fn read(message: &'a str) -> Self {
        let quoted = |rest: &'a str| rest.split_once('`');
        if let Some((name, rest)) = message.strip_prefix("unknown field `").and_then(quoted) {
            Self::UnknownKey { name, known: names(rest) }
        } else if let Some((name, rest)) = message.strip_prefix("unknown variant `").and_then(quoted) {
            Self::UnknownValue { name, known: names(rest) }
        } else if let Some((name, _)) = message.strip_prefix("missing field `").and_then(quoted) {
            Self::Missing { name }
        } else if (message.starts_with("invalid type: ") || message.starts_with("invalid value: "))
            && let Some((_, expected)) = message.rsplit_once(", expected ")
        {
            Self::Unfit { expected }
        } else {
            Self::Other
        }
    }
}

/// The names between backticks: every second piece.
fn names(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, de::DeserializeOwned};

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read by serde")]
    struct One {
        alpha: usize,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read by serde")]
    struct Two {
        alpha: f64,
        beta: bool,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read by serde")]
    struct Three {
        alpha: f64,
        beta: bool,
        gamma: Choice,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Choice {
        Linear,
        Cosine,
    }

    #[derive(Debug, Deserialize)]
    #[serde(tag = "type", rename_all = "snake_case")]
    #[expect(dead_code, reason = "only read by serde")]
    enum Tagged {
        One(One),
        Two(Two),
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read by serde")]
    struct Holder<T> {
        key: T,
    }

    fn message<T: DeserializeOwned + std::fmt::Debug>(text: &str) -> String {
        let table: toml::Table = text.parse().unwrap();
        T::deserialize(toml::Value::Table(table)).unwrap_err().message().to_owned()
    }

    #[test]
    fn an_unknown_key_is_read_with_one_two_and_many_known_names() {
        let one = message::<One>("alfa = 1");
        assert_eq!(SerdeMessage::read(&one), SerdeMessage::UnknownKey { name: "alfa", known: vec!["alpha"] });
        let two = message::<Two>("alfa = 1");
        let known = vec!["alpha", "beta"];
        assert_eq!(SerdeMessage::read(&two), SerdeMessage::UnknownKey { name: "alfa", known });
        let three = message::<Three>("alfa = 1");
        let known = vec!["alpha", "beta", "gamma"];
        assert_eq!(SerdeMessage::read(&three), SerdeMessage::UnknownKey { name: "alfa", known });
    }

    #[test]
    fn an_unknown_choice_is_read_with_the_known_ones() {
        let plain = message::<Holder<Choice>>("key = 'liner'");
        let known = vec!["linear", "cosine"];
        assert_eq!(SerdeMessage::read(&plain), SerdeMessage::UnknownValue { name: "liner", known });
        let tagged = message::<Tagged>("type = 'on'");
        let known = vec!["one", "two"];
        assert_eq!(SerdeMessage::read(&tagged), SerdeMessage::UnknownValue { name: "on", known });
    }

    #[test]
    fn a_missing_key_is_read_inside_and_outside_of_a_tagged_table() {
        assert_eq!(SerdeMessage::read(&message::<One>("")), SerdeMessage::Missing { name: "alpha" });
        let tagged = message::<Tagged>("type = 'two'\nalpha = 1.0");
        assert_eq!(SerdeMessage::read(&tagged), SerdeMessage::Missing { name: "beta" });
        let untagged = message::<Tagged>("alpha = 1.0");
        assert_eq!(SerdeMessage::read(&untagged), SerdeMessage::Missing { name: "type" });
    }

    #[test]
    fn a_wrong_type_is_read_with_what_is_expected() {
        for (message, expected) in [
            (message::<One>("alpha = ', expected nothing'"), "usize"),
            (message::<One>("alpha = -1"), "usize"),
            (message::<One>("alpha = 1.5"), "usize"),
            (message::<Two>("alpha = []"), "f64"),
            (message::<Two>("alpha = 1\nbeta = 1"), "a boolean"),
            (message::<Holder<One>>("key = 1"), "struct One"),
            (message::<Holder<Tagged>>("key = 1"), "internally tagged enum Tagged"),
            (message::<Tagged>("type = 'one'\nalpha = 'x'"), "usize"),
            (message::<Holder<String>>("key = 1"), "a string"),
            (message::<Holder<std::path::PathBuf>>("key = 1"), "path string"),
            (message::<Holder<Vec<u32>>>("key = 1"), "a sequence"),
        ] {
            assert_eq!(SerdeMessage::read(&message), SerdeMessage::Unfit { expected }, "{message}");
        }
    }

    #[test]
    fn a_message_of_our_own_is_left_alone() {
        assert_eq!(SerdeMessage::read("token_mean takes no norm"), SerdeMessage::Other);
    }
}

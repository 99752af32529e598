//! Which column of a row is what.

use firebrick_core::Message;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::messages::{kind, messages_of};
use crate::KeyError;

pub(super) type Row = Map<String, Value>;

/// The columns of a data file: `[data.columns]`.
///
/// Each is a column's name, or a dotted path to a value inside a column, such as `reward_model.ground_truth`; a column whose whole
/// name is the text goes before a path. A key that is given holds for every row: the other forms are then not looked for, and
/// a row without that column is refused. What a key that is left out stands for is said at the key.
///
/// ```
/// # use firebrick_trainer::Columns;
/// let columns: Columns = toml::from_str(r#"
///     prompt = "question"
///     answer = "metadata.final_answer"
/// "#)?;
/// assert_eq!(columns.prompt.as_deref(), Some("question"));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Columns {
    /// The problem, text or messages. Left out: `prompt`, `question` or `problem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The reference answer, text or a number. Left out: `answer`, `reward_model.ground_truth` (verl), `reward_spec.ground_truth`
    /// (SkyRL), `ground_truth` or `solution` (TRL).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The id, text or a number, unique in its file. Left out: `id` or `extra_info.id`, else file and row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What [`Prompt::data_source`](firebrick_core::Prompt::data_source) is. Left out: `data_source`, else `env_class` (SkyRL), else
    /// empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_source: Option<String>,
    /// The messages of a worked solution, the last one the assistant's. Left out: `messages`, where the row has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<String>,
    /// The response of a worked solution, which then has its problem in the prompt's column; or the completion to grade. Text, or
    /// a message of the assistant in a list. Left out: `completion`, and `pred` in completions to grade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<String>,
}

impl Columns {
    /// Checks that every key names something, and that worked solutions have one form.
    ///
    /// # Errors
    /// Names the key, its value and what is allowed.
    pub fn validate(&self) -> Result<(), KeyError> {
        let refused = |key: &str, value: &str, reason: &str| {
            let (key, value) = (format!("data.columns.{key}"), format!("{value:?}"));
            Err(KeyError::Refused { key, value, reason: reason.to_owned() })
        };
        for (key, path) in [
            ("prompt", &self.prompt),
            ("answer", &self.answer),
            ("id", &self.id),
            ("data_source", &self.data_source),
            ("messages", &self.messages),
            ("completion", &self.completion),
        ] {
            if let Some(path) = path
                && path.split('.').any(|name| name.trim().is_empty())
            {
                let form = "must be a column's name or a dotted path, as in \"reward_model.ground_truth\"; leave the key out for the columns that are looked for without it";
                return refused(key, path, form);
            }
        }
        match (&self.messages, &self.completion) {
            (Some(messages), Some(_)) => refused(
                "messages",
                messages,
                "data.columns.completion is given too, but a worked solution has either messages or a prompt with a completion; keep one of the two keys",
            ),
            _ => Ok(()),
        }
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A key of the map with the places that are looked at when it is left out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Role {
    pub(super) key: &'static str,
    what: &'static str,
    places: &'static [&'static str],
}

pub(super) const PROMPT: Role =
    Role { key: "prompt", what: "prompt", places: &["prompt", "question", "problem"] };
pub(super) const ANSWER: Role = Role {
    key: "answer",
    what: "reference answer",
    places: &["answer", "reward_model.ground_truth", "reward_spec.ground_truth", "ground_truth", "solution"],
};

impl Role {
    /// The value of the row at the mapped column, or the only one at the places; with the path that it has.
    ///
    /// Values at several places must read the same: which one is meant is not guessed.
    pub(super) fn read<T: PartialEq>(
        self,
        row: &Row,
        mapped: Option<&str>,
        read: impl Fn(&Value, &str) -> Result<T, String>,
    ) -> Result<(T, String), String> {
        let Some((path, value)) = self.find(row, mapped)? else {
            return Err(format!(
                "no {}: the row needs {}, or data.columns.{} names its column; the row has {}",
                self.what,
                or_list(self.places),
                self.key,
                columns_of(row)
            ));
        };
        let first = read(value, path);
        if mapped.is_none() {
            for other in self.places.iter().filter(|place| **place != path) {
                let Some(value) = at(row, other).filter(|value| !value.is_null()) else { continue };
                let same = matches!((&first, read(value, other)), (Ok(first), Ok(other)) if *first == other);
                if !same {
                    return Err(two_that_differ(path, other, self.what, self.key));
                }
            }
        }
        Ok((first?, path.to_owned()))
    }

    /// Whether a value is at one of the places.
    pub(super) fn is_in(self, row: &Row) -> bool {
        self.places.iter().any(|place| at(row, place).is_some_and(|value| !value.is_null()))
    }

    /// The mapped value, or the first one that there is.
    fn find<'a>(self, row: &'a Row, mapped: Option<&'a str>) -> Result<Option<(&'a str, &'a Value)>, String> {
        if let Some(path) = mapped {
            return Ok(Some((path, required(row, path, self.key)?)));
        }
        let found = |place: &&'static str| Some((*place, at(row, place).filter(|value| !value.is_null())?));
        Ok(self.places.iter().find_map(found))
    }
}

/// Which of two columns is meant is the reader's to say.
pub(super) fn two_that_differ(first: &str, second: &str, what: &str, key: &str) -> String {
    format!(
        "`{first}` and `{second}` may both be the {what}, and differ: say which one is meant, as in data.columns.{key} = {first:?}"
    )
}

/// The value of a mapped column.
pub(super) fn required<'a>(row: &'a Row, path: &str, key: &str) -> Result<&'a Value, String> {
    match at(row, path) {
        Some(Value::Null) => Err(format!("data.columns.{key} = {path:?}, but that is null in this row")),
        Some(value) => Ok(value),
        None => Err(format!(
            "data.columns.{key} = {path:?}, but the row has no such column; it has {}",
            columns_of(row)
        )),
    }
}

/// The value at a column's name or a dotted path.
pub(super) fn at<'a>(row: &'a Row, path: &str) -> Option<&'a Value> {
    row.get(path).or_else(|| {
        let (first, rest) = path.split_once('.')?;
        at(row.get(first)?.as_object()?, rest)
    })
}

/// Takes out the value at a column's name or a dotted path.
pub(super) fn remove(row: &mut Row, path: &str) {
    if row.remove(path).is_none()
        && let Some((first, rest)) = path.split_once('.')
        && let Some(inner) = row.get_mut(first).and_then(Value::as_object_mut)
    {
        remove(inner, rest);
    }
}

/// Text, or a number as text.
pub(super) fn text_of(value: &Value, what: &str) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(format!("{what} must be text, found {}", kind(Some(other)))),
    }
}

pub(super) fn prompt_messages(row: &Row, columns: &Columns) -> Result<(Vec<Message>, String), String> {
    PROMPT.read(row, columns.prompt.as_deref(), messages_of)
}

/// The columns of a row, those inside of an object as paths.
pub(super) fn columns_of(row: &Row) -> String {
    let mut names = Vec::new();
    for (name, value) in row {
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                names.extend(inner.keys().map(|key| format!("`{name}.{key}`")));
            }
            _ => names.push(format!("`{name}`")),
        }
    }
    if names.is_empty() { "no columns".to_owned() } else { names.join(", ") }
}

fn or_list(places: &[&str]) -> String {
    let quoted: Vec<String> = places.iter().map(|place| format!("`{place}`")).collect();
    quoted.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(json: &str) -> Row {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_whole_name_goes_before_a_path_and_paths_go_down_as_far_as_they_say() {
        let mut row = row(r#"{"a.b":1,"a":{"b":2,"c":{"d":3}},"e":[1]}"#);
        assert_eq!(at(&row, "a.b"), Some(&1.into()));
        assert_eq!(at(&row, "a.c.d"), Some(&3.into()));
        assert_eq!((at(&row, "a.x"), at(&row, "e.0"), at(&row, "a.b.c")), (None, None, None));
        remove(&mut row, "a.b");
        remove(&mut row, "a.c.d");
        assert_eq!(Value::from(row), serde_json::json!({"a": {"b": 2, "c": {}}, "e": [1]}));
    }

    #[test]
    fn a_mapped_column_that_is_missing_is_named_with_those_that_exist() {
        let row = row(r#"{"question":"1+1=","meta":{"final":"2"},"empty":null,"none":{}}"#);
        let error = |path| ANSWER.read(&row, Some(path), text_of).unwrap_err();
        let message = error("gold");
        assert!(
            message.starts_with("data.columns.answer = \"gold\", but the row has no such column; it has")
        );
        for name in ["`question`", "`meta.final`", "`empty`", "`none`"] {
            assert!(message.contains(name), "{message}");
        }
        assert_eq!(error("empty"), "data.columns.answer = \"empty\", but that is null in this row");
        assert_eq!(
            ANSWER.read(&row, Some("meta.final"), text_of).unwrap(),
            ("2".to_owned(), "meta.final".to_owned())
        );
    }

    #[test]
    fn values_at_two_places_must_be_the_same() {
        let read = |json| ANSWER.read(&row(json), None, text_of);
        assert_eq!(read(r#"{"answer":4,"solution":"4","ground_truth":null}"#).unwrap().0, "4");
        for json in [
            r#"{"answer":"4","solution":"2+2=4"}"#,
            r#"{"answer":["4"],"solution":"4"}"#,
            r#"{"answer":"4","solution":{}}"#,
        ] {
            assert_eq!(
                read(json).unwrap_err(),
                "`answer` and `solution` may both be the reference answer, and differ: say which one is meant, as in data.columns.answer = \"answer\""
            );
        }
        let one = row(r#"{"answer":"4","solution":"2+2=4"}"#);
        assert_eq!(ANSWER.read(&one, Some("solution"), text_of).unwrap().0, "2+2=4");
    }

    #[test]
    fn a_key_that_names_nothing_and_two_forms_of_worked_solutions_are_refused() {
        for empty in ["", " ", "a.", ".a", "a..b"] {
            let columns = Columns { id: Some(empty.into()), ..Columns::default() };
            let error = columns.validate().unwrap_err();
            assert_eq!(error.key(), "data.columns.id");
            assert!(error.to_string().contains("a dotted path"), "{error}");
        }
        let some = |name: &str| Some(name.to_owned());
        let columns = Columns { messages: some("chat"), completion: some("response"), ..Columns::default() };
        let error = columns.validate().unwrap_err().to_string();
        assert!(error.starts_with("data.columns.messages = \"chat\": data.columns.completion"), "{error}");
        let columns = Columns { answer: some("a.b"), prompt: some("über uns"), ..Columns::default() };
        assert!(columns.validate().is_ok() && !columns.is_default());
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let error = toml::from_str::<Columns>("promt = 'q'").unwrap_err().to_string();
        assert!(error.contains("unknown field `promt`"), "{error}");
    }
}

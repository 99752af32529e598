//! A value read from a TOML table, with errors that name the whole path of the key.

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use toml::{Table, Value};

use crate::{KeyError, serde_message::SerdeMessage};

/// Reads a `T`.
///
/// # Errors
/// Names the first key that is unknown, missing or of the wrong type.
pub(crate) fn read_table<T: DeserializeOwned>(document: &Table) -> Result<T, KeyError> {
    let (path, message) = match attempt::<T>(document) {
        Ok(value) => return Ok(value),
        Err(problem) => problem,
    };
    let said = SerdeMessage::read(&message);
    if let SerdeMessage::Missing { name } = said {
        let mut path = table_that_lacks::<T>(document, &path, name);
        path.push(name.to_owned());
        return Err(KeyError::Missing { key: path.join(".") });
    }
    let path = narrowed::<T>(document, path, &message);
    let (key, value) = (path.join("."), at(document, &path).map(shown).unwrap_or_default());
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
    Err(match said {
        SerdeMessage::UnknownKey { name, known } => {
            KeyError::Unknown { key, nearest: nearest(name, &known), known: owned(known) }
        }
        SerdeMessage::UnknownValue { name, known } => {
            let nearest = nearest(name, &known);
            KeyError::UnknownValue { key, value: name.to_owned(), nearest, known: owned(known) }
        }
        SerdeMessage::Unfit { expected } => KeyError::WrongType { key, value, expected: in_words(expected) },
        SerdeMessage::Missing { .. } | SerdeMessage::Other => {
            KeyError::Refused { key, value, reason: message }
        }
    })
}

/// What the document holds, or where and why it cannot be read.
fn attempt<T: DeserializeOwned>(document: &Table) -> Result<T, (Vec<String>, String)> {
    serde_path_to_error::deserialize(Value::Table(document.clone())).map_err(|error| {
        // An item of a list is named by its list.
        let keys = error.path().iter().map_while(|segment| match segment {
            Segment::Map { key } => Some(key.clone()),
            _ => None,
        });
        (keys.collect(), error.inner().message().to_owned())
    })
}

/// The whole path of a problem whose known path may be too short.
///
/// serde reads a table that has a `type` into a buffer first, and there the path ends. The rest is found by leaving keys out:
/// a table is read key by key up to its first problem, so only without the key that has it something else is said.
fn narrowed<T: DeserializeOwned>(document: &Table, mut path: Vec<String>, message: &str) -> Vec<String> {
    while let Some(table) = table_at(document, &path) {
        // Without its `type` a table is not read at all, so that is left out last.
        let (tag, keys): (Vec<_>, Vec<_>) = table.keys().partition(|key| *key == "type");
        let guilty = keys.into_iter().chain(tag).find(|key| {
            let mut without = document.clone();
            edit(&mut without, &path, |table| table.remove(*key));
            !attempt::<T>(&without).is_err_and(|(_, other)| other == message)
        });
        match guilty {
            Some(key) => path.push(key.clone()),
            None => break,
        }
    }
    path
}

/// The table at `path`, or below it, that lacks `name`: the one where anything under that name is an answer.
fn table_that_lacks<T: DeserializeOwned>(document: &Table, path: &[String], name: &str) -> Vec<String> {
    let mut candidates = vec![path.to_vec()];
    while let Some(candidate) = candidates.pop() {
        let Some(table) = table_at(document, &candidate) else { continue };
        let mut with = document.clone();
        edit(&mut with, &candidate, |table| table.insert(name.to_owned(), Value::Boolean(true)));
        let no_answer = attempt::<T>(&with).is_err_and(|(_, message)| match SerdeMessage::read(&message) {
            SerdeMessage::Missing { name: other } | SerdeMessage::UnknownKey { name: other, .. } => {
                other == name
            }
            _ => false,
        });
        if !no_answer {
            return candidate;
        }
        candidates.extend(table.keys().map(|key| [&candidate[..], std::slice::from_ref(key)].concat()));
    }
    path.to_vec()
}

fn at<'a>(document: &'a Table, path: &[String]) -> Option<&'a Value> {
    let (last, tables) = path.split_last()?;
    table_at(document, tables)?.get(last)
}

fn table_at<'a>(document: &'a Table, path: &[String]) -> Option<&'a Table> {
    path.iter().try_fold(document, |table, key| table.get(key)?.as_table())
}

fn edit<R>(document: &mut Table, path: &[String], change: impl FnOnce(&mut Table) -> R) -> Option<R> {
    path.iter().try_fold(document, |table, key| table.get_mut(key)?.as_table_mut()).map(change)
}

/// The known name that is close enough to be meant: at most every third letter differs.
fn nearest(name: &str, known: &[&str]) -> Option<String> {
    let distance = |other: &&&str| strsim::damerau_levenshtein(name, other);
    let best = known.iter().min_by_key(distance)?;
    (3 * distance(&best) <= best.chars().count().max(3)).then(|| (*best).to_owned())
}

/// A value as TOML, a table shortened.
fn shown(value: &Value) -> String {
    match value {
        Value::Table(_) => "{..}".to_owned(),
        other => other.to_string(),
    }
}

/// serde names types of Rust.
fn in_words(expected: &str) -> String {
    match expected {
        "u32" | "u64" | "usize" => "a whole number, at least 0",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "path string" => "a path, as a string",
        "a map" => "a table",
        other if other.starts_with("struct ") || other.starts_with("internally tagged enum ") => "a table",
        other => other,
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use firebrick_objectives::ObjectiveConfig;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read by serde")]
    struct Holder {
        objective: ObjectiveConfig,
        #[serde(default)]
        sizes: Vec<usize>,
    }

    fn refused(text: &str) -> String {
        let document = text.parse().unwrap();
        read_table::<Holder>(&document).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_key_in_a_tagged_table_has_its_whole_path() {
        assert_eq!(
            refused(
                "[objective]\ntype = 'pnpo'\nschedule = { eps_minus = 0.1, eps_plus = 0.1, eps_pluss = 0.1 }"
            ),
            "unknown key objective.schedule.eps_pluss; did you mean eps_plus? known are eps_minus, eps_plus, interval"
        );
        assert_eq!(
            refused(
                "[objective]\ntype = 'tapo'\ngate.outer = { type = 'ratio_clamp', low = 0.5, hihg = 2.0 }"
            ),
            "unknown key objective.gate.outer.hihg; did you mean high? known are low, high"
        );
    }

    #[test]
    fn a_missing_key_in_a_tagged_table_has_its_whole_path() {
        let missing = |key: &str| {
            format!("missing key {key}; it has no default, since it is a choice of the run: give it a value")
        };
        assert_eq!(refused(""), missing("objective"));
        assert_eq!(refused("[objective]"), missing("objective.type"));
        let kl = "[objective]\ntype = 'dapo'\nadvantage = { type = 'group_normalized' }\nkl = { estimator = 'k3' }";
        assert_eq!(refused(kl), missing("objective.kl.coefficient"));
        let outer = "[objective]\ntype = 'tapo'\ngate.outer = { type = 'ratio_clamp', low = 0.5 }";
        assert_eq!(refused(outer), missing("objective.gate.outer.high"));
    }

    #[test]
    fn a_value_that_does_not_fit_in_a_tagged_table_has_its_whole_path() {
        assert_eq!(
            refused("[objective]\ntype = 'grpo'\nschedule.high = 0.3\nschedule.low = '0.2'"),
            "objective.schedule.low = \"0.2\": expected a number"
        );
        let error = refused("[objective]\ntype = 'grop'\nschedule.high = 0.3");
        let start = "objective.type = \"grop\" is unknown; did you mean grpo? known are grpo, ";
        assert!(error.starts_with(start), "{error}");
        assert_eq!(
            refused("[objective]\ntype = 'gspo'\nestimator.route = 'prefix'"),
            "objective.estimator.route = \"prefix\" is unknown; known are sequence, current"
        );
        assert_eq!(
            refused("[objective]\ntype = 'grpo'\naggregation = { norm = 3.0, type = 'token_mean' }"),
            "objective.aggregation.norm = 3.0: `norm` belongs to aggregation `seq_mean_token_sum_norm` only; remove it or change `type`"
        );
    }

    #[test]
    fn values_and_what_is_expected_are_in_the_words_of_a_config() {
        let base = "objective = { type = 'grpo' }\n";
        assert_eq!(refused("objective = 3"), "objective = 3: expected a table");
        assert_eq!(refused(&format!("{base}sizes = 3")), "sizes = 3: expected a list");
        let expected = "expected a whole number, at least 0";
        assert_eq!(refused(&format!("{base}sizes = [1, 2.5]")), format!("sizes = [1, 2.5]: {expected}"));
        assert_eq!(refused(&format!("{base}sizes = [-1]")), format!("sizes = [-1]: {expected}"));
    }

    #[test]
    fn a_name_is_suggested_only_when_it_is_close() {
        let known = ["group_size", "steps", "seed"];
        assert_eq!(nearest("group_sise", &known).as_deref(), Some("group_size"));
        assert_eq!(nearest("groupsize", &known).as_deref(), Some("group_size"));
        assert_eq!(nearest("step", &known).as_deref(), Some("steps"));
        assert_eq!(nearest("sdee", &known), None);
        assert_eq!(nearest("temperature", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}

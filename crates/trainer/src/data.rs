//! Problems and worked solutions from JSONL files.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use firebrick_core::{Message, Prompt};
use serde_json::{Map, Value};

/// A problem with the response that a warm start learns to give.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkedSolution {
    /// What the model is shown.
    pub messages: Vec<Message>,
    /// What it is to answer.
    pub response: String,
}

/// Reads problems, one JSON object a line; empty lines are skipped.
///
/// A row has `prompt` (a string, or a list of `{role, content}` messages) and the reference answer in `answer` or in
/// `reward_model.ground_truth`. `data_source` and `guidance` are kept; the id is `id`, `extra_info.id` or `FILE:LINE`; all other keys
/// go to [`Prompt::extra`].
///
/// # Errors
/// Names the file and the line of a row that cannot be read, and both lines of a duplicate id.
pub fn read_prompts(path: &Path) -> Result<Vec<Prompt>, DataError> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    read_rows(path, |line, row| {
        let prompt = prompt_of(row, &default_id(path, line))?;
        if let Some(first) = seen.insert(prompt.id.clone(), line) {
            return Err(format!("id `{}` was already used on line {first}; ids must be unique", prompt.id));
        }
        Ok(prompt)
    })
}

/// Reads worked solutions, one JSON object a line: `messages` whose last one is the assistant's, or `prompt` (a string
/// or messages) with `completion`.
///
/// # Errors
/// Names the file and the line of a row that cannot be read.
pub fn read_worked_solutions(path: &Path) -> Result<Vec<WorkedSolution>, DataError> {
    read_rows(path, |_, mut row| {
        if let Some(messages) = row.remove("messages") {
            let mut messages = messages_of(messages, "messages")?;
            match messages.pop() {
                Some(last) if last.role == "assistant" && !messages.is_empty() => {
                    Ok(WorkedSolution { messages, response: last.content })
                }
                _ => Err("`messages` must end with an assistant message that answers an earlier one".into()),
            }
        } else {
            let messages = messages_of(row.remove("prompt").unwrap_or(Value::Null), "prompt")?;
            match row.remove("completion") {
                Some(Value::String(response)) => Ok(WorkedSolution { messages, response }),
                other => Err(format!("`completion` must be a string, found {}", kind(other.as_ref()))),
            }
        }
    })
}

/// A problem with a completion to grade, or none.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRow {
    /// The problem; its messages are empty where the row has no `prompt`.
    pub prompt: Prompt,
    /// The completion.
    pub completion: Option<String>,
}

/// Reads completions to grade, one JSON object a line: the reference as in [`read_prompts`] or in `gold`, and the completion in
/// `completion` or `pred`, which may be left out. Ids may repeat, since a problem may have many completions.
///
/// # Errors
/// Names the file and the line of a row that cannot be read.
pub fn read_completions(path: &Path) -> Result<Vec<CompletionRow>, DataError> {
    read_rows(path, |line, mut row| {
        let mut either = |first: &str, second: &str| match (row.remove(first), row.remove(second)) {
            (Some(_), Some(_)) => Err(format!("the row has `{first}` and `{second}`: keep one")),
            (one, other) => Ok(one.or(other)),
        };
        let completion = match either("completion", "pred")? {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text),
            other => return Err(format!("the completion must be text, found {}", kind(other.as_ref()))),
        };
        if let Some(answer) = either("answer", "gold")? {
            row.insert("answer".to_owned(), answer);
        }
        row.entry("prompt").or_insert_with(|| Value::String(String::new()));
        Ok(CompletionRow { prompt: prompt_of(row, &default_id(path, line))?, completion })
    })
}

fn read_rows<T>(
    path: &Path,
    mut parse: impl FnMut(usize, Map<String, Value>) -> Result<T, String>,
) -> Result<Vec<T>, DataError> {
    let file =
        std::fs::File::open(path).map_err(|source| DataError::Open { path: path.to_owned(), source })?;
    let mut rows = Vec::new();
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let row_error = |reason: String| DataError::Row { path: path.to_owned(), line: index + 1, reason };
        let text = line.map_err(|error| row_error(error.to_string()))?;
        if text.trim().is_empty() {
            continue;
        }
        let row: Map<String, Value> = serde_json::from_str(&text).map_err(|error| {
            row_error(format!("not a JSON object ({error}); was the file cut off while it was written?"))
        })?;
        rows.push(parse(index + 1, row).map_err(row_error)?);
    }
    if rows.is_empty() {
        return Err(DataError::Empty { path: path.to_owned() });
    }
    Ok(rows)
}

fn default_id(path: &Path, line: usize) -> String {
    format!("{}:{line}", path.file_name().unwrap_or_default().to_string_lossy())
}

fn prompt_of(mut row: Map<String, Value>, default_id: &str) -> Result<Prompt, String> {
    let messages = messages_of(row.remove("prompt").unwrap_or(Value::Null), "prompt")?;
    let answer = match row.remove("answer") {
        Some(answer) => answer,
        None => row
            .get_mut("reward_model")
            .and_then(|model| model.as_object_mut())
            .and_then(|model| model.remove("ground_truth"))
            .ok_or("no reference answer: the row needs `answer` or `reward_model.ground_truth`")?,
    };
    let answer = match answer {
        Value::String(answer) => answer,
        Value::Number(answer) => answer.to_string(),
        other => return Err(format!("the reference answer must be text, found {}", kind(Some(&other)))),
    };
    let id = row
        .remove("id")
        .or_else(|| row.get("extra_info")?.get("id").cloned())
        .map_or_else(|| default_id.to_owned(), |id| id.as_str().map_or(id.to_string(), str::to_owned));
    let data_source = match row.remove("data_source") {
        Some(Value::String(source)) => source,
        _ => String::new(),
    };
    let guidance = match row.remove("guidance") {
        None | Some(Value::Null) => None,
        Some(Value::String(guidance)) => Some(guidance),
        other => return Err(format!("`guidance` must be a string, found {}", kind(other.as_ref()))),
    };
    let mut prompt = Prompt::new(id, "", answer).with_data_source(data_source);
    prompt.guidance = guidance;
    prompt.messages = messages;
    prompt.extra = row;
    Ok(prompt)
}

fn messages_of(value: Value, key: &str) -> Result<Vec<Message>, String> {
    match value {
        Value::String(text) => Ok(vec![Message::user(text)]),
        Value::Array(messages) if !messages.is_empty() => serde_json::from_value(Value::Array(messages))
            .map_err(|error| {
                format!("`{key}` must be a string or a list of {{role, content}} messages ({error})")
            }),
        other => Err(format!(
            "`{key}` must be a string or a list of {{role, content}} messages, found {}",
            kind(Some(&other))
        )),
    }
}

fn kind(value: Option<&Value>) -> &'static str {
    match value {
        None | Some(Value::Null) => "nothing",
        Some(Value::Bool(_)) => "a boolean",
        Some(Value::Number(_)) => "a number",
        Some(Value::String(_)) => "a string",
        Some(Value::Array(list)) if list.is_empty() => "an empty list",
        Some(Value::Array(_)) => "a list",
        Some(Value::Object(_)) => "an object",
    }
}

/// A data file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The file cannot be opened.
    #[error("data file {}: cannot be opened", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A row cannot be used.
    #[error("data file {}, line {line}: {reason}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no row.
    #[error("data file {}: no rows", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(lines: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(lines.as_bytes()).unwrap();
        file
    }

    #[test]
    fn reads_the_row_format_of_the_field_and_the_plain_one() {
        let file = file(concat!(
            r#"{"data_source":"sums","prompt":[{"role":"user","content":"1+1="}],"ability":"math","#,
            r#""reward_model":{"style":"rule","ground_truth":"2"},"extra_info":{"id":"a","index":0}}"#,
            "\n\n",
            r#"{"prompt":"2+2=","answer":4}"#,
        ));
        let prompts = read_prompts(file.path()).unwrap();
        assert_eq!(prompts[0].id, "a");
        assert_eq!((prompts[0].answer.as_str(), prompts[0].data_source.as_str()), ("2", "sums"));
        assert_eq!(prompts[0].extra["extra_info"]["index"], 0);
        assert_eq!(prompts[1].messages, [Message::user("2+2=")]);
        assert_eq!(prompts[1].answer, "4");
        assert!(prompts[1].id.ends_with(":3"), "{}", prompts[1].id);
    }

    #[test]
    fn a_truncated_line_is_named_with_its_file_and_number() {
        let file = file("{\"prompt\":\"1\",\"answer\":\"1\"}\n{\"prompt\":\"2\",\"ans");
        let error = read_prompts(file.path()).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("cut off"), "{error}");
    }

    #[test]
    fn a_duplicate_id_names_both_lines() {
        let row = r#"{"id":"x","prompt":"1","answer":"1"}"#;
        let error = read_prompts(file(&format!("{row}\n{row}\n")).path()).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("line 1") && error.contains("`x`"), "{error}");
    }

    #[test]
    fn a_row_without_an_answer_says_which_keys_are_looked_for() {
        let error = read_prompts(file(r#"{"prompt":"1"}"#).path()).unwrap_err().to_string();
        assert!(error.contains("`answer` or `reward_model.ground_truth`"), "{error}");
        assert!(read_prompts(file("").path()).unwrap_err().to_string().contains("no rows"));
        assert!(read_prompts(Path::new("/nowhere/x.jsonl")).is_err());
    }

    #[test]
    fn worked_solutions_come_as_messages_or_as_prompt_and_completion() {
        let file = file(concat!(
            r#"{"messages":[{"role":"user","content":"1+1="},{"role":"assistant","content":"2"}]}"#,
            "\n",
            r#"{"prompt":"2+2=","completion":"4"}"#,
        ));
        let rows = read_worked_solutions(file.path()).unwrap();
        assert_eq!((rows[0].messages[0].content.as_str(), rows[0].response.as_str()), ("1+1=", "2"));
        assert_eq!((rows[1].messages[0].content.as_str(), rows[1].response.as_str()), ("2+2=", "4"));
    }

    #[test]
    fn completions_come_with_a_reference_under_either_name_and_may_be_missing() {
        let lines = concat!(
            r#"{"gold":"$2$","pred":"it is 2","id":"a","config":{"precision":2}}"#,
            "\n",
            r#"{"answer":"4","completion":"4","id":"a","prompt":"2+2=","data_source":"sums"}"#,
            "\n",
            r#"{"reward_model":{"ground_truth":"5"}}"#,
        );
        let rows = read_completions(file(lines).path()).unwrap();
        assert_eq!((rows[0].prompt.answer.as_str(), rows[0].completion.as_deref()), ("$2$", Some("it is 2")));
        assert_eq!(
            (rows[0].prompt.id.as_str(), &rows[0].prompt.extra["config"]["precision"]),
            ("a", &2.into())
        );
        assert_eq!((rows[1].prompt.answer.as_str(), rows[1].prompt.data_source.as_str()), ("4", "sums"));
        assert_eq!((rows[2].prompt.answer.as_str(), rows[2].completion.as_deref()), ("5", None));
        let error = |row: &str| read_completions(file(row).path()).unwrap_err().to_string();
        assert!(error(r#"{"gold":"1","answer":"1","pred":"1"}"#).contains("`answer` and `gold`"));
        assert!(error(r#"{"gold":"1","pred":1}"#).contains("must be text, found a number"));
        assert!(error(r#"{"pred":"1"}"#).contains("no reference answer"));
    }

    #[test]
    fn messages_that_end_with_the_user_are_no_worked_solution() {
        let file = file(r#"{"messages":[{"role":"user","content":"1+1="}]}"#);
        let error = read_worked_solutions(file.path()).unwrap_err().to_string();
        assert!(error.contains("assistant"), "{error}");
    }
}

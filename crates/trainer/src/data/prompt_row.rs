//! A row as a problem, or as a completion to grade.

use firebrick_core::Prompt;
use serde_json::Value;

use super::{
    Columns, CompletionRow,
    messages::{kind, response_of},
    row_columns::{ANSWER, PROMPT, Row, at, prompt_messages, remove, required, text_of},
};

pub(super) fn prompt_of(mut row: Row, columns: &Columns, default_id: &str) -> Result<Prompt, String> {
    let (messages, prompt_path) = prompt_messages(&row, columns)?;
    let (answer, answer_path) =
        ANSWER.read(&row, columns.answer.as_deref(), |value, _| text_of(value, "the reference answer"))?;
    let id = match &columns.id {
        Some(path) => text_of(required(&row, path, "id")?, "the id")?,
        None => ["id", "extra_info.id"]
            .into_iter()
            .find_map(|path| at(&row, path).filter(|id| !id.is_null()))
            .map_or_else(|| default_id.to_owned(), |id| id.as_str().map_or(id.to_string(), str::to_owned)),
    };
    let data_source = match &columns.data_source {
        Some(path) => text_of(required(&row, path, "data_source")?, "the data source")?,
        None => ["data_source", "env_class"]
            .into_iter()
            .find_map(|name| row.get(name)?.as_str())
            .unwrap_or_default()
            .to_owned(),
    };
    let guidance = match row.remove("guidance") {
        None | Some(Value::Null) => None,
        Some(Value::String(guidance)) => Some(guidance),
        other => return Err(format!("`guidance` must be a string, found {}", kind(other.as_ref()))),
    };
    // What has become a part of the prompt leaves its row; what is inside of an object only if it is the prompt or the answer.
    for path in [&prompt_path, &answer_path] {
        remove(&mut row, path);
    }
    for name in
        [columns.id.as_deref().unwrap_or("id"), columns.data_source.as_deref().unwrap_or("data_source")]
    {
        row.remove(name);
    }
    let mut prompt = Prompt::new(id, "", answer).with_data_source(data_source);
    prompt.guidance = guidance;
    prompt.messages = messages;
    prompt.extra = row;
    Ok(prompt)
}

pub(super) fn completion_row(
    mut row: Row,
    columns: &Columns,
    default_id: &str,
) -> Result<CompletionRow, String> {
    let completion = match &columns.completion {
        // null is no completion; a column that is not there is no choice
        Some(path) if at(&row, path).is_some_and(Value::is_null) => None,
        Some(path) => Some(required(&row, path, "completion")?.clone()),
        None => either(&mut row, ["completion", "pred"], "completion")?,
    };
    if let Some(path) = &columns.completion {
        remove(&mut row, path);
    }
    let completion = match completion {
        None => None,
        Some(text @ (Value::String(_) | Value::Array(_))) => Some(response_of(&text, "completion")?),
        Some(other) => return Err(format!("the completion must be text, found {}", kind(Some(&other)))),
    };
    if columns.answer.is_none()
        && let Some(answer) = either(&mut row, ["answer", "gold"], "answer")?
    {
        row.insert("answer".to_owned(), answer);
    }
    if columns.prompt.is_none() && !PROMPT.is_in(&row) {
        row.insert("prompt".to_owned(), Value::String(String::new()));
    }
    Ok(CompletionRow { prompt: prompt_of(row, columns, default_id)?, completion })
}

/// Takes out the one of two columns that is there.
fn either(row: &mut Row, names: [&str; 2], key: &str) -> Result<Option<Value>, String> {
    match names.map(|name| row.remove(name).filter(|value| !value.is_null())) {
        [Some(_), Some(_)] => {
            let [first, second] = names;
            Err(format!(
                "the row has `{first}` and `{second}`: keep one, or say which one is meant, as in data.columns.{key} = {first:?}"
            ))
        }
        [one, other] => Ok(one.or(other)),
    }
}

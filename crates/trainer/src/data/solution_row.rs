//! A row as a worked solution.

use serde_json::Value;

use super::{
    Columns, WorkedSolution,
    messages::{messages_of, response_of},
    row_columns::{PROMPT, Row, at, columns_of, prompt_messages, required, two_that_differ},
};

pub(super) fn solution_of(row: &Row, columns: &Columns) -> Result<WorkedSolution, String> {
    if let Some(path) = &columns.messages {
        return of_messages(required(row, path, "messages")?, path);
    }
    if let Some(path) = &columns.completion {
        return of_completion(row, columns, required(row, path, "completion")?, path);
    }
    let given = |name| at(row, name).filter(|value| !value.is_null());
    match (given("messages"), given("completion")) {
        (Some(messages), Some(completion)) if PROMPT.is_in(row) => {
            let one = of_messages(messages, "messages");
            let other = of_completion(row, columns, completion, "completion");
            match (one, other) {
                (Ok(one), Ok(other)) if one == other => Ok(one),
                _ => Err(two_that_differ("messages", "completion", "worked solution", "messages")),
            }
        }
        (Some(messages), _) => of_messages(messages, "messages"),
        (None, Some(completion)) => of_completion(row, columns, completion, "completion"),
        (None, None) => Err(format!(
            "no worked solution: the row needs `messages`, or a prompt with `completion`, or data.columns.messages or data.columns.completion names its column; the row has {}",
            columns_of(row)
        )),
    }
}

fn of_messages(value: &Value, path: &str) -> Result<WorkedSolution, String> {
    let mut messages = messages_of(value, path)?;
    match messages.pop() {
        Some(last) if last.role == "assistant" && !messages.is_empty() => {
            Ok(WorkedSolution { messages, response: last.content })
        }
        _ => Err(format!("`{path}` must end with an assistant message that answers an earlier one")),
    }
}

fn of_completion(row: &Row, columns: &Columns, value: &Value, path: &str) -> Result<WorkedSolution, String> {
    Ok(WorkedSolution { messages: prompt_messages(row, columns)?.0, response: response_of(value, path)? })
}

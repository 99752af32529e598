//! Messages in a data file.

use firebrick_core::Message;
use serde_json::Value;

/// Text as a message of the user, or a list of messages.
pub(super) fn messages_of(value: &Value, key: &str) -> Result<Vec<Message>, String> {
    let form = "must be a string or a list of {role, content} messages";
    match value {
        Value::String(text) => Ok(vec![Message::user(text)]),
        Value::Array(messages) if !messages.is_empty() => {
            let read = |(index, message)| {
                serde::Deserialize::deserialize(message)
                    .map_err(|error| format!("`{key}` {form} (message {}: {error})", index + 1))
            };
            messages.iter().enumerate().map(read).collect()
        }
        other => Err(format!("`{key}` {form}, found {}", kind(Some(other)))),
    }
}

/// Text, or the text of the one message that a list holds, the assistant's.
pub(super) fn response_of(value: &Value, key: &str) -> Result<String, String> {
    let form = "must be a string or a list of one assistant message";
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Array(_) => match messages_of(value, key)?.as_slice() {
            [message] if message.role == "assistant" => Ok(message.content.clone()),
            [message] => Err(format!("`{key}` {form}, found one of role `{}`", message.role)),
            messages => Err(format!("`{key}` {form}, found {} messages", messages.len())),
        },
        other => Err(format!("`{key}` {form}, found {}", kind(Some(other)))),
    }
}

/// Puts a system prompt before messages that have none.
pub(super) fn with_system_prompt(messages: &mut Vec<Message>, system_prompt: Option<&str>) {
    if let Some(content) = system_prompt
        && messages.iter().all(|message| message.role != "system")
    {
        messages.insert(0, Message { role: "system".into(), content: content.into() });
    }
}

pub(super) fn kind(value: Option<&Value>) -> &'static str {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_that_is_none_is_named_by_its_number() {
        let error = messages_of(&json!([{"role": "user", "content": "1"}, {"role": "user"}]), "prompt");
        let error = error.unwrap_err();
        assert!(error.contains("`prompt` must be") && error.contains("message 2: missing field"), "{error}");
        assert!(messages_of(&json!([]), "prompt").unwrap_err().ends_with("found an empty list"));
        assert!(messages_of(&json!(true), "prompt").unwrap_err().ends_with("found a boolean"));
    }

    #[test]
    fn a_response_is_text_or_one_message_of_the_assistant() {
        let message = |role: &str| json!({"role": role, "content": "4"});
        assert_eq!(response_of(&json!("4"), "completion").unwrap(), "4");
        assert_eq!(response_of(&json!([message("assistant")]), "completion").unwrap(), "4");
        let error = |value| response_of(&value, "completion").unwrap_err();
        assert!(error(json!([message("user")])).ends_with("found one of role `user`"));
        assert!(error(json!([message("assistant"), message("tool")])).ends_with("found 2 messages"));
        assert!(error(json!(4)).ends_with("found a number"));
    }

    #[test]
    fn a_system_prompt_leaves_messages_with_one_alone() {
        let system = |content: &str| Message { role: "system".into(), content: content.into() };
        let mut messages = vec![Message::user("1+1=")];
        with_system_prompt(&mut messages, None);
        assert_eq!(messages.len(), 1);
        with_system_prompt(&mut messages, Some("Add."));
        assert_eq!(messages, [system("Add."), Message::user("1+1=")]);
        with_system_prompt(&mut messages, Some("Subtract."));
        assert_eq!(messages, [system("Add."), Message::user("1+1=")]);
    }
}

//! Every form of row, in both formats of file.

use std::io::Write;

use parquet::basic::{Compression, ZstdLevel};
use serde_json::{Value, json};

use super::{
    parquet_fixture::{VERL, parquet_file},
    *,
};

fn file(lines: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(lines.as_bytes()).unwrap();
    file
}

fn jsonl(rows: &[Value]) -> tempfile::NamedTempFile {
    file(&rows.iter().map(|row| format!("{row}\n")).collect::<String>())
}

fn zstd() -> Compression {
    Compression::ZSTD(ZstdLevel::default())
}

/// Columns from TOML.
fn reader(columns: &str) -> DataReader {
    DataReader::new(toml::from_str(columns).unwrap())
}

fn verl_rows() -> Vec<Value> {
    let row = |question: &str, truth: &str, index: u64| {
        json!({
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "system", "content": "Rechne – 計算"}, {"role": "user", "content": question}],
            "ability": if index == 17 { Value::Null } else { "math".into() },
            "reward_model": {"style": "rule", "ground_truth": truth},
            "extra_info": {"index": index, "split": "train"},
        })
    };
    vec![row("1+1=", "2", 16), row("½+½=", "1", 17), row("", "", 18)]
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
    assert_eq!((rows[0].prompt.id.as_str(), &rows[0].prompt.extra["config"]["precision"]), ("a", &2.into()));
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

#[test]
fn the_rows_of_verl_read_the_same_from_both_formats_and_every_compression() {
    let reader = reader("id = 'extra_info.index'");
    let expected = reader.prompts(jsonl(&verl_rows()).path()).unwrap();
    assert_eq!((expected[1].id.as_str(), expected[1].answer.as_str()), ("17", "1"));
    assert_eq!(expected[1].messages[1], Message::user("½+½="));
    assert_eq!(
        (&expected[1].extra["ability"], &expected[0].extra["ability"]),
        (&Value::Null, &"math".into())
    );
    assert_eq!(expected[1].extra["extra_info"]["index"], 17);
    assert!(expected[1].extra["reward_model"].get("ground_truth").is_none());
    for compression in
        [Compression::UNCOMPRESSED, Compression::SNAPPY, zstd(), Compression::GZIP(Default::default())]
    {
        let file = parquet_file(VERL, compression, &verl_rows());
        assert_eq!(reader.prompts(file.path()).unwrap(), expected, "{compression:?}");
    }
}

#[test]
fn a_file_that_another_writer_made_reads_the_same() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/verl.parquet"));
    let reader = reader("id = 'extra_info.index'");
    assert_eq!(reader.prompts(path).unwrap(), reader.prompts(&path.with_extension("jsonl")).unwrap());
}

#[test]
fn a_row_of_parquet_without_an_id_is_named_by_its_number() {
    let file = parquet_file(VERL, Compression::SNAPPY, &verl_rows());
    let prompts = read_prompts(file.path()).unwrap();
    assert!(prompts[2].id.ends_with(".parquet:3"), "{}", prompts[2].id);
}

#[test]
fn the_rows_of_trl_have_the_reference_in_solution_or_ground_truth() {
    let prompt = json!([{"role": "user", "content": "1+1="}]);
    let rows = [
        json!({"prompt": prompt, "solution": "2"}),
        json!({"prompt": "1+1=", "ground_truth": 2}),
        json!({"prompt": prompt, "solution": "2", "ground_truth": "2", "answer": null}),
    ];
    for prompt in read_prompts(jsonl(&rows).path()).unwrap() {
        assert_eq!((prompt.messages, prompt.answer.as_str()), (vec![Message::user("1+1=")], "2"));
    }
}

#[test]
fn the_rows_of_skyrl_have_their_environment_as_data_source() {
    let row = json!({
        "prompt": [{"role": "user", "content": "1+1="}],
        "env_class": "gsm8k",
        "reward_spec": {"method": "rule", "ground_truth": "2"},
    });
    let mut named = row.clone();
    named["data_source"] = "sums".into();
    let prompts = read_prompts(jsonl(&[row, named]).path()).unwrap();
    assert_eq!((prompts[0].answer.as_str(), prompts[0].data_source.as_str()), ("2", "gsm8k"));
    assert_eq!(prompts[0].extra["reward_spec"], json!({"method": "rule"}));
    assert_eq!((prompts[1].data_source.as_str(), &prompts[1].extra["env_class"]), ("sums", &"gsm8k".into()));
}

#[test]
fn plain_rows_have_a_question_or_a_problem_and_keep_their_answer_as_it_is() {
    let schema = "message schema { optional binary question (UTF8); optional binary problem (UTF8);
        optional binary answer (UTF8); }";
    let answer = "She eats 3 and 4.\n#### 7";
    let rows = [json!({"question": "3+4=", "answer": answer}), json!({"problem": "3+4=", "answer": answer})];
    for file in [jsonl(&rows), parquet_file(schema, zstd(), &rows)] {
        for prompt in read_prompts(file.path()).unwrap() {
            assert_eq!((prompt.messages, prompt.answer.as_str()), (vec![Message::user("3+4=")], answer));
        }
    }
}

#[test]
fn two_references_or_prompts_that_differ_are_refused_until_the_map_decides() {
    let row = json!({"problem": "1+1=", "question": "one and one", "solution": "1+1=2", "answer": "2"});
    let file = jsonl(&[row]);
    let error = |reader: &DataReader| reader.prompts(file.path()).unwrap_err().to_string();
    let message = error(&DataReader::default());
    assert!(
        message.contains("line 1: `question` and `problem` may both be the prompt, and differ"),
        "{message}"
    );
    let message = error(&reader("prompt = 'problem'"));
    assert!(message.contains("`answer` and `solution` may both be the reference answer"), "{message}");
    assert!(message.contains("data.columns.answer = \"answer\""), "{message}");
    let prompts = reader("prompt = 'problem'\nanswer = 'answer'").prompts(file.path()).unwrap();
    assert_eq!((prompts[0].messages[0].content.as_str(), prompts[0].answer.as_str()), ("1+1=", "2"));
    assert_eq!(
        Value::from(prompts[0].extra.clone()),
        json!({"question": "one and one", "solution": "1+1=2"})
    );
}

#[test]
fn a_mapped_column_that_a_row_lacks_names_the_row_and_the_columns_that_exist() {
    let file = parquet_file(VERL, Compression::SNAPPY, &verl_rows());
    let error = reader("answer = 'gold'").prompts(file.path()).unwrap_err().to_string();
    assert!(
        error.contains(".parquet, row 1: data.columns.answer = \"gold\", but the row has no such"),
        "{error}"
    );
    assert!(error.contains("`prompt`") && error.contains("`reward_model.ground_truth`"), "{error}");
    for key in ["prompt", "id", "data_source"] {
        let error = reader(&format!("{key} = 'gold'")).prompts(file.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("data.columns.{key} = \"gold\"")), "{error}");
    }
    for key in ["messages", "completion"] {
        let error = reader(&format!("{key} = 'gold'")).worked_solutions(file.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("data.columns.{key} = \"gold\"")), "{error}");
    }
    let error = reader("completion = 'gold'").completions(file.path()).unwrap_err().to_string();
    assert!(error.contains("data.columns.completion = \"gold\""), "{error}");
}

#[test]
fn a_file_that_is_cut_off_or_none_at_all_is_named_and_never_read_in_part() {
    let whole = parquet_file(VERL, Compression::SNAPPY, &verl_rows());
    let bytes = std::fs::read(whole.path()).unwrap();
    let cut = tempfile::Builder::new().suffix(".parquet").tempfile().unwrap();
    for length in (0..bytes.len()).step_by(13).chain([bytes.len() - 1]) {
        std::fs::write(cut.path(), &bytes[..length]).unwrap();
        let error = read_prompts(cut.path()).unwrap_err();
        assert!(matches!(&error, DataError::Parquet { rows: 0, .. }), "{length}: {error}");
        assert!(error.to_string().contains("cannot be read as Parquet; is the file whole?"), "{error}");
        assert!(std::error::Error::source(&error).is_some());
    }
    std::fs::write(cut.path(), "{\"prompt\":\"1+1=\",\"answer\":\"2\"}\n").unwrap();
    assert!(matches!(read_prompts(cut.path()), Err(DataError::Parquet { .. })));
}

#[test]
fn a_system_prompt_is_put_before_problems_and_worked_solutions_without_one() {
    let reader = DataReader::default().with_system_prompt("Add.");
    let mut rows = vec![json!({"prompt": "1+1=", "answer": "2", "completion": "2"})];
    let own = json!([{"role": "system", "content": "Own."}, {"role": "user", "content": "1+1="}]);
    rows.push(json!({"prompt": own, "answer": "2", "completion": "2"}));
    let file = jsonl(&rows);
    let first = |messages: &[Message]| (messages.len(), messages[0].content.clone());
    let prompts = reader.prompts(file.path()).unwrap();
    assert_eq!(
        [first(&prompts[0].messages), first(&prompts[1].messages)],
        [(2, "Add.".into()), (2, "Own.".into())]
    );
    let solutions = reader.worked_solutions(file.path()).unwrap();
    assert_eq!(
        [first(&solutions[0].messages), first(&solutions[1].messages)],
        [(2, "Add.".into()), (2, "Own.".into())]
    );
    assert_eq!(first(&reader.completions(file.path()).unwrap()[0].prompt.messages), (1, "1+1=".into()));
}

#[test]
fn worked_solutions_have_both_sides_as_messages_or_as_text_in_both_formats() {
    let list = "(LIST) { repeated group list { optional group element {
        optional binary role (UTF8); optional binary content (UTF8); } } }";
    let schema =
        format!("message schema {{ optional group prompt {list} optional group completion {list} }}");
    let message = |role: &str, content: &str| json!({"role": role, "content": content});
    let rows = [json!({"prompt": [message("user", "2+2=")], "completion": [message("assistant", "4")]})];
    let expected = [WorkedSolution { messages: vec![Message::user("2+2=")], response: "4".into() }];
    for file in [jsonl(&rows), parquet_file(&schema, zstd(), &rows)] {
        assert_eq!(read_worked_solutions(file.path()).unwrap(), expected);
    }
    let row = json!({"chat": {"turns": [message("user", "2+2="), message("assistant", "4")]}});
    assert_eq!(reader("messages = 'chat.turns'").worked_solutions(jsonl(&[row]).path()).unwrap(), expected);
    let row = json!({"question": "2+2=", "answer": "4"});
    let columns = "prompt = 'question'\ncompletion = 'answer'";
    assert_eq!(reader(columns).worked_solutions(jsonl(&[row]).path()).unwrap(), expected);
}

#[test]
fn a_worked_solution_in_two_forms_must_be_the_same_in_both() {
    let row = |completion: &str| {
        let messages = json!([{"role": "user", "content": "2+2="}, {"role": "assistant", "content": "4"}]);
        jsonl(&[json!({"messages": messages, "prompt": "2+2=", "completion": completion})])
    };
    assert_eq!(read_worked_solutions(row("4").path()).unwrap()[0].response, "4");
    let error = read_worked_solutions(row("5").path()).unwrap_err().to_string();
    assert!(
        error.contains("`messages` and `completion`") && error.contains("data.columns.messages"),
        "{error}"
    );
    assert_eq!(
        reader("completion = 'completion'").worked_solutions(row("5").path()).unwrap()[0].response,
        "5"
    );
    let error = read_worked_solutions(file(r#"{"text":"2+2=4"}"#).path()).unwrap_err().to_string();
    assert!(error.contains("needs `messages`") && error.ends_with("the row has `text`"), "{error}");
}

#[test]
fn completions_to_grade_come_from_parquet_and_from_mapped_columns() {
    let schema =
        "message schema { optional binary gold (UTF8); optional binary pred (UTF8); optional int32 id; }";
    let rows = [json!({"gold": "2", "pred": "it is 2", "id": 7}), json!({"gold": "2", "id": 7})];
    let expected = read_completions(jsonl(&rows).path()).unwrap();
    assert_eq!((expected[0].prompt.id.as_str(), expected[0].completion.as_deref()), ("7", Some("it is 2")));
    assert_eq!(expected[1].completion, None);
    let file = parquet_file(schema, Compression::SNAPPY, &rows);
    assert_eq!(read_completions(file.path()).unwrap(), expected);
    let mapped = reader("answer = 'gold'\ncompletion = 'pred'");
    assert_eq!(mapped.completions(file.path()).unwrap(), expected);
}

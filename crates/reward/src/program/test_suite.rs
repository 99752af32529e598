//! Reading the tests of a problem from its data row.

use std::collections::BTreeSet;

use firebrick_core::Prompt;

use super::assertion_tests::closed;
use super::json_text::parse_json;
use super::value::Value;

/// The tests that score, those that the problem shows left out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TestSuite {
    /// A program reads and prints.
    Stdin(Vec<StdinTest>),
    /// A function is called and returns.
    Calls { function: String, tests: Vec<CallTest> },
    /// Tests call a function and assert.
    Assertions(AssertionTests),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StdinTest {
    pub(crate) input: String,
    pub(crate) output: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallTest {
    pub(crate) arguments: Vec<Value>,
    /// The first is the expected value; APPS may wrap it in a list, and then what is inside is the second.
    pub(crate) expected: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AssertionTests {
    /// Run before the tests, in their process.
    pub(crate) setup: Vec<String>,
    /// What is asserted, each on its own.
    pub(crate) tests: Vec<String>,
    /// The function that `tests` are about, where the row names it.
    pub(crate) entry_point: Option<String>,
    /// Text that the candidate's program may go on from.
    pub(crate) stub: String,
}

/// Tests that cannot be used, with the key that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the tests cannot be used: {key} {problem}")]
pub(crate) struct UnusableTests {
    key: String,
    problem: String,
}

fn unusable<T>(key: impl Into<String>, problem: impl Into<String>) -> Result<T, UnusableTests> {
    Err(UnusableTests { key: key.into(), problem: problem.into() })
}

impl TestSuite {
    /// Reads the tests from the answer of a prompt, or from its column `column`.
    pub(crate) fn of_prompt(prompt: &Prompt, column: Option<&str>) -> Result<Self, UnusableTests> {
        let row = match column {
            None => match parse_json(&prompt.answer) {
                Some(row) => row,
                None => return unusable("`answer`", "is not JSON"),
            },
            Some(column) => match prompt.extra.get(column) {
                None => return unusable(format!("`{column}`"), "is missing"),
                Some(serde_json::Value::String(text)) => match parse_json(text) {
                    Some(row) => row,
                    None => return unusable(format!("`{column}`"), "is not JSON"),
                },
                Some(json) => Value::from(json),
            },
        };
        let named = |key: &str| prompt.extra.get(key).and_then(serde_json::Value::as_str).map(str::to_owned);
        let metadata = prompt.extra.get("metadata").map(|json| match json {
            serde_json::Value::String(text) => parse_json(text).unwrap_or(Value::None),
            json => Value::from(json),
        });
        let of_metadata = metadata.as_ref().and_then(|metadata| metadata.get("func_name")?.as_str());
        Self::of_row(&row, named("fn_name").or(of_metadata.map(str::to_owned)))
    }

    /// Reads the tests from a row in any of the field's forms; `function` is the one to call if the row names none.
    pub(crate) fn of_row(row: &Value, function: Option<String>) -> Result<Self, UnusableTests> {
        if let Some(tests) = row.as_list() {
            return of_list("", tests, function);
        }
        let own = match row.get("fn_name") {
            None | Some(Value::None) => function,
            Some(Value::Str(name)) => Some(name.clone()),
            Some(_) => return unusable("`fn_name`", "must be text"),
        };
        if let Some(Value::List(hidden)) = row.get("hidden") {
            return of_list("hidden", hidden, own);
        }
        if row.get("inputs").is_some() || row.get("outputs").is_some() {
            return of_columns(row, own);
        }
        if row.get("test_list").is_some() {
            return of_asserts(row);
        }
        if row.get("test").is_some() {
            return of_check(row);
        }
        unusable(
            "the row",
            "has none of `inputs` with `outputs`, `hidden`, `test`, `test_list`, and is no list",
        )
    }
}

/// LiveCodeBench: a list of `{input, output, testtype}`.
fn of_list(key: &str, tests: &[Value], function: Option<String>) -> Result<TestSuite, UnusableTests> {
    let place = |index: usize, field: &str| format!("`{key}[{index}].{field}`");
    let field = |index: usize, field: &str| match tests[index].get(field) {
        Some(Value::Str(text)) => Ok(text.as_str()),
        Some(_) => unusable(place(index, field), "must be text"),
        None => unusable(place(index, field), "is missing"),
    };
    if tests.is_empty() {
        return unusable(if key.is_empty() { "the list" } else { "`hidden`" }, "holds no test");
    }
    let kind = |index: usize| match tests[index].get("testtype").map(Value::as_str) {
        None => Ok(if function.is_some() { "functional" } else { "stdin" }),
        Some(Some(kind @ ("stdin" | "functional"))) => Ok(kind),
        Some(_) => unusable(place(index, "testtype"), "must be `stdin` or `functional`"),
    };
    let first = kind(0)?;
    for index in 1..tests.len() {
        if kind(index)? != first {
            return unusable(place(index, "testtype"), "differs from that of the first test");
        }
    }
    if first == "stdin" {
        let test = |index| {
            Ok(StdinTest {
                input: field(index, "input")?.to_owned(),
                output: field(index, "output")?.to_owned(),
            })
        };
        return Ok(TestSuite::Stdin((0..tests.len()).map(test).collect::<Result<_, _>>()?));
    }
    let Some(function) = function else {
        return unusable("`fn_name`", "is missing: functional tests need the function's name");
    };
    let test = |index| {
        Ok(CallTest {
            arguments: json_lines(field(index, "input")?, &place(index, "input"))?,
            expected: vec![json_text(field(index, "output")?, &place(index, "output"))?],
        })
    };
    Ok(TestSuite::Calls { function, tests: (0..tests.len()).map(test).collect::<Result<_, _>>()? })
}

/// APPS, TACO, PRIME and verl: `{inputs, outputs, fn_name}`.
fn of_columns(row: &Value, function: Option<String>) -> Result<TestSuite, UnusableTests> {
    let column = |key: &str| match row.get(key) {
        Some(Value::List(items)) => Ok(items.as_slice()),
        Some(_) => unusable(format!("`{key}`"), "must be a list"),
        None => unusable(format!("`{key}`"), "is missing"),
    };
    let (inputs, outputs) = (column("inputs")?, column("outputs")?);
    if inputs.len() != outputs.len() {
        return unusable("`outputs`", format!("has {} entries and `inputs` {}", outputs.len(), inputs.len()));
    }
    let scoring = scoring(row, inputs.len())?;
    match function {
        None => {
            let test = |&index: &usize| {
                Ok(StdinTest {
                    input: text_or_lines(&inputs[index], &format!("`inputs[{index}]`"))?,
                    output: text_or_lines(&outputs[index], &format!("`outputs[{index}]`"))?,
                })
            };
            Ok(TestSuite::Stdin(scoring.iter().map(test).collect::<Result<_, _>>()?))
        }
        Some(function) => {
            let test = |&index: &usize| call_test(&inputs[index], &outputs[index], index);
            Ok(TestSuite::Calls { function, tests: scoring.iter().map(test).collect::<Result<_, _>>()? })
        }
    }
}

fn call_test(input: &Value, output: &Value, index: usize) -> Result<CallTest, UnusableTests> {
    let arguments = match input {
        Value::Str(lines) => json_lines(lines, &format!("`inputs[{index}]`"))?,
        Value::List(arguments) => arguments.clone(),
        _ => {
            return unusable(
                format!("`inputs[{index}]`"),
                "must be text of a JSON value a line, or a list of arguments",
            );
        }
    };
    let expected = match (input, output) {
        (Value::Str(_), Value::Str(text)) => vec![json_text(text, &format!("`outputs[{index}]`"))?],
        (_, Value::List(items)) if items.len() == 1 => vec![output.clone(), items[0].clone()],
        _ => vec![output.clone()],
    };
    Ok(CallTest { arguments, expected })
}

/// Positions of the tests that score: all but those that `shown` counts or lists.
fn scoring(row: &Value, count: usize) -> Result<Vec<usize>, UnusableTests> {
    let position = |value: &Value| match value {
        Value::Int(integer) => usize::try_from(integer).ok(),
        _ => None,
    };
    let shown: BTreeSet<usize> = match row.get("shown") {
        None | Some(Value::None) => BTreeSet::new(),
        Some(Value::List(positions)) => {
            match positions.iter().map(|value| position(value).filter(|&at| at < count)).collect() {
                Some(shown) => shown,
                None => return unusable("`shown`", format!("must list positions below {count}")),
            }
        }
        Some(value) => match position(value) {
            Some(shown) if shown <= count => (0..shown).collect(),
            _ => {
                return unusable("`shown`", format!("must be a count up to {count}, or a list of positions"));
            }
        },
    };
    let scoring: Vec<usize> = (0..count).filter(|index| !shown.contains(index)).collect();
    if scoring.is_empty() {
        return unusable("the row", "holds no test that scores");
    }
    Ok(scoring)
}

/// MBPP: `{test_list, test_setup_code}`, or `test_imports` in its revised form.
fn of_asserts(row: &Value) -> Result<TestSuite, UnusableTests> {
    let tests = texts(row, "test_list")?;
    let scoring = scoring(row, tests.len())?;
    let mut setup = if row.get("test_imports").is_some() { texts(row, "test_imports")? } else { Vec::new() };
    match row.get("test_setup_code") {
        None | Some(Value::None) => {}
        Some(Value::Str(code)) => setup.push(code.clone()),
        Some(_) => return unusable("`test_setup_code`", "must be text"),
    }
    let tests = scoring.into_iter().map(|index| tests[index].clone()).collect();
    Ok(TestSuite::Assertions(AssertionTests { setup, tests, entry_point: None, stub: String::new() }))
}

/// HumanEval: `{test, entry_point, prompt}`.
fn of_check(row: &Value) -> Result<TestSuite, UnusableTests> {
    let text = |key: &str| match row.get(key) {
        Some(Value::Str(text)) => Ok(text.clone()),
        Some(_) => unusable(format!("`{key}`"), "must be text"),
        None => unusable(format!("`{key}`"), "is missing"),
    };
    let (test, entry_point) = (text("test")?, text("entry_point")?);
    let is_name = entry_point.chars().all(|c| c.is_alphanumeric() || c == '_')
        && entry_point.starts_with(|c: char| c.is_alphabetic() || c == '_');
    if !is_name {
        return unusable("`entry_point`", "must be the name of a function");
    }
    let stub = if row.get("prompt").is_some() { text("prompt")? } else { String::new() };
    Ok(TestSuite::Assertions(AssertionTests {
        setup: vec![closed(&stub), test],
        tests: vec![format!("check({entry_point})")],
        entry_point: Some(entry_point),
        stub,
    }))
}

fn texts(row: &Value, key: &str) -> Result<Vec<String>, UnusableTests> {
    let texts = row
        .get(key)
        .and_then(Value::as_list)
        .map(|items| items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>());
    match texts {
        Some(Some(texts)) => Ok(texts),
        _ => unusable(format!("`{key}`"), "must be a list of texts"),
    }
}

fn text_or_lines(value: &Value, place: &str) -> Result<String, UnusableTests> {
    let lines = match value {
        Value::Str(text) => return Ok(text.clone()),
        Value::List(items) => items.iter().map(Value::as_str).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    match lines {
        Some(lines) => Ok(lines.join("\n")),
        None => unusable(place, "must be text or a list of lines"),
    }
}

fn json_lines(text: &str, place: &str) -> Result<Vec<Value>, UnusableTests> {
    text.lines().filter(|line| !line.trim().is_empty()).map(|line| json_text(line, place)).collect()
}

fn json_text(text: &str, place: &str) -> Result<Value, UnusableTests> {
    parse_json(text).map_or_else(|| unusable(place, "is not JSON"), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(row: &str) -> Result<TestSuite, String> {
        TestSuite::of_row(&parse_json(row).unwrap(), None).map_err(|error| error.to_string())
    }

    fn stdin(tests: &[(&str, &str)]) -> Result<TestSuite, String> {
        let test =
            |(input, output): &(&str, &str)| StdinTest { input: (*input).into(), output: (*output).into() };
        Ok(TestSuite::Stdin(tests.iter().map(test).collect()))
    }

    #[test]
    fn columns_are_read_as_programs_or_as_calls() {
        assert_eq!(
            suite(r#"{"inputs": ["1\n", ["2", "3"]], "outputs": ["a", ["b", "c"]], "fn_name": null}"#),
            stdin(&[("1\n", "a"), ("2\n3", "b\nc")])
        );
        let int = |n: i64| Value::Int(n.into());
        let calls =
            suite(r#"{"inputs": ["[1]\n2\n", [3]], "outputs": ["5", [[6]]], "fn_name": "f"}"#).unwrap();
        let expected = vec![
            CallTest { arguments: vec![Value::List(vec![int(1)]), int(2)], expected: vec![int(5)] },
            CallTest {
                arguments: vec![int(3)],
                expected: vec![Value::List(vec![Value::List(vec![int(6)])]), Value::List(vec![int(6)])],
            },
        ];
        assert_eq!(calls, TestSuite::Calls { function: "f".into(), tests: expected });
    }

    #[test]
    fn shown_tests_do_not_score() {
        let row = |shown: &str| {
            suite(&format!(r#"{{"inputs": ["1", "2", "3"], "outputs": ["a", "b", "c"], "shown": {shown}}}"#))
        };
        assert_eq!(row("0"), stdin(&[("1", "a"), ("2", "b"), ("3", "c")]));
        assert_eq!(row("2"), stdin(&[("3", "c")]));
        assert_eq!(row("[1]"), stdin(&[("1", "a"), ("3", "c")]));
        assert!(row("3").unwrap_err().contains("no test that scores"));
        assert!(row("4").unwrap_err().contains("`shown` must be a count up to 3"));
        assert!(row("[3]").unwrap_err().contains("`shown` must list positions below 3"));
        assert_eq!(
            suite(r#"{"shown": [{"input": "1", "output": "a"}], "hidden": [{"input": "2", "output": "b"}]}"#),
            stdin(&[("2", "b")])
        );
    }

    #[test]
    fn lists_of_tests_are_read_with_the_function_of_the_row_or_its_metadata() {
        assert_eq!(suite(r#"[{"input": "1", "output": "2", "testtype": "stdin"}]"#), stdin(&[("1", "2")]));
        let mut prompt =
            Prompt::new("p", "?", r#"[{"input": "1\n\"a\"", "output": "2", "testtype": "functional"}]"#);
        let missing = TestSuite::of_prompt(&prompt, None).unwrap_err().to_string();
        assert!(missing.contains("`fn_name` is missing"), "{missing}");
        prompt.extra.insert("metadata".into(), serde_json::json!(r#"{"func_name": "g"}"#));
        let TestSuite::Calls { function, tests } = TestSuite::of_prompt(&prompt, None).unwrap() else {
            panic!()
        };
        assert_eq!((function.as_str(), tests[0].arguments.len()), ("g", 2));
    }

    #[test]
    fn assertions_are_read_with_what_runs_before_them() {
        let mbpp =
            suite(r#"{"test_list": ["assert f(1)", "assert f(2)"], "test_setup_code": "x = 1", "shown": 1}"#);
        let TestSuite::Assertions(tests) = mbpp.unwrap() else { panic!() };
        assert_eq!((tests.setup, tests.tests), (vec!["x = 1".to_owned()], vec!["assert f(2)".to_owned()]));
        let human_eval =
            suite(r#"{"test": "def check(c): pass", "entry_point": "f", "prompt": "def f():\n"}"#);
        let TestSuite::Assertions(tests) = human_eval.unwrap() else { panic!() };
        assert_eq!(tests.tests, ["check(f)"]);
        assert_eq!(tests.stub, "def f():\n");
    }

    #[test]
    fn tests_come_from_a_column_where_one_is_named() {
        let mut prompt = Prompt::new("p", "?", "");
        let read =
            |prompt: &Prompt| TestSuite::of_prompt(prompt, Some("tests")).map_err(|error| error.to_string());
        assert!(read(&prompt).unwrap_err().contains("`tests` is missing"));
        let row = serde_json::json!({"inputs": ["1"], "outputs": ["2"]});
        prompt.extra.insert("tests".into(), row.clone());
        assert_eq!(read(&prompt), stdin(&[("1", "2")]));
        prompt.extra.insert("tests".into(), serde_json::json!(row.to_string()));
        assert_eq!(read(&prompt), stdin(&[("1", "2")]));
    }

    #[test]
    fn unusable_rows_are_refused_by_key() {
        let table = [
            ("5", "the row has none of"),
            ("{}", "the row has none of"),
            ("[]", "the list holds no test"),
            (r#"{"inputs": ["1"]}"#, "`outputs` is missing"),
            (r#"{"inputs": 1, "outputs": []}"#, "`inputs` must be a list"),
            (r#"{"inputs": ["1"], "outputs": []}"#, "`outputs` has 0 entries and `inputs` 1"),
            (r#"{"inputs": [], "outputs": []}"#, "the row holds no test that scores"),
            (r#"{"inputs": [1], "outputs": ["1"]}"#, "`inputs[0]` must be text or a list of lines"),
            (r#"{"inputs": ["x"], "outputs": ["1"], "fn_name": "f"}"#, "`inputs[0]` is not JSON"),
            (r#"{"inputs": ["1"], "outputs": ["x"], "fn_name": "f"}"#, "`outputs[0]` is not JSON"),
            (
                r#"{"inputs": [7], "outputs": ["1"], "fn_name": "f"}"#,
                "`inputs[0]` must be text of a JSON value a line",
            ),
            (r#"{"inputs": [], "outputs": [], "fn_name": 3}"#, "`fn_name` must be text"),
            (r#"[{"input": "1"}]"#, "`[0].output` is missing"),
            (r#"[{"input": 1, "output": "1"}]"#, "`[0].input` must be text"),
            (
                r#"[{"input": "1", "output": "1", "testtype": "x"}]"#,
                "`[0].testtype` must be `stdin` or `functional`",
            ),
            (r#"{"test": "x"}"#, "`entry_point` is missing"),
            (r#"{"test": "x", "entry_point": "f()"}"#, "`entry_point` must be the name of a function"),
            (r#"{"test_list": "x"}"#, "`test_list` must be a list of texts"),
        ];
        for (row, problem) in table {
            let error = suite(row).unwrap_err();
            assert!(error.contains(problem), "{row}: {error}");
        }
    }
}

//! Grading files and making data sets.

use std::path::Path;

use serde_json::Value;

use crate::fixture::{config, fail, succeed};

fn write(folder: &Path, name: &str, rows: &[&str]) -> String {
    let path = folder.join(name);
    std::fs::write(&path, rows.join("\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn completions_are_graded_with_answer_and_rule_and_a_row_may_change_settings() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(
        folder.path(),
        "answers.jsonl",
        &[
            r#"{"id":"a","gold":"$\\frac{1}{2}$","pred":"It is \\boxed{0.5}."}"#,
            r#"{"answer":"3.14159","completion":"\\boxed{3.14}"}"#,
            r#"{"id":"c","gold":"3.14159","pred":"\\boxed{3.14}","config":{"precision":2}}"#,
            r#"{"id":"d","gold":"","pred":"\\boxed{7}"}"#,
            r#"{"id":"e","gold":"7","pred":""}"#,
        ],
    );
    let graded = rows(&succeed(&["grade", &file, "--json"]));
    let fields = |row: &Value| (row["id"].clone(), row["correct"].clone(), row["extracted"].clone());
    assert_eq!(fields(&graded[0]), ("a".into(), true.into(), "0.5".into()));
    assert_eq!(fields(&graded[1]), ("answers.jsonl:2".into(), false.into(), "3.14".into()));
    assert_eq!(fields(&graded[2]), ("c".into(), true.into(), "3.14".into()));
    assert_eq!(fields(&graded[3]), ("d".into(), false.into(), Value::Null));
    assert!(graded[3]["reason"].as_str().unwrap().contains("reference answer is empty"));
    assert_eq!((&graded[4]["rule"], &graded[4]["extracted"]), (&"no_answer".into(), &Value::Null));

    let text = succeed(&["grade", &file]);
    assert!(
        text.contains("5 completions: 2 correct, 2 wrong, 1 of which state no answer, 1 without a verdict")
    );
    assert!(text.contains("1 with a reference answer that cannot be graded\n  d: "), "{text}");
    let all = succeed(&["grade", &file, "--set", "precision=2", "--json"]);
    assert_eq!(rows(&all)[1]["correct"], true, "a setting of the command holds for all rows");
}

#[test]
fn of_a_data_set_the_references_that_cannot_be_graded_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(
        folder.path(),
        "problems.jsonl",
        &[r#"{"id":"good","prompt":"1+1=","answer":"2"}"#, r#"{"id":"bad","prompt":"1+2=","answer":" "}"#],
    );
    let text = succeed(&["grade", &file]);
    assert!(text.starts_with("2 problems: 1 with a reference"), "{text}");
    assert!(text.contains("  bad: the reference answer is empty"), "{text}");
    let json = rows(&succeed(&["grade", &file, "--json"]));
    assert_eq!((json.len(), &json[0]["id"], &json[0]["rule"]), (1, &"bad".into(), &"bad_reference".into()));
}

#[test]
fn verifiers_and_settings_that_do_not_exist_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "answers.jsonl", &[r#"{"gold":"1","pred":"1"}"#]);
    let error = fail(&["grade", &file, "--verifier", "math_verfy"]);
    assert!(error.contains("did you mean math_verify?"), "{error}");
    let error = fail(&["grade", &file, "--set", "precison=3"]);
    assert!(error.contains("--set reward.precison=3") && error.contains("precision"), "{error}");
    let error = fail(&["grade", &file, "--set", "precision=99"]);
    assert!(error.contains("reward.precision = 99"), "{error}");
    assert!(fail(&["grade", "nowhere.jsonl"]).contains("nowhere.jsonl"));
}

#[test]
fn generated_problems_are_the_same_for_a_seed_and_right_when_solved() {
    let folder = tempfile::tempdir().unwrap();
    let make = |arguments: &[&str]| succeed(&[&["data", "make"], arguments].concat());
    let gcd = ["gcd", "-n", "5", "--seed", "3", "--set", "max_value=50"];
    assert_eq!(make(&gcd), make(&gcd));
    let problems: Vec<String> = rows(&make(&gcd))
        .into_iter()
        .map(|mut row| {
            row["completion"] = row["answer"].clone();
            row.to_string()
        })
        .collect();
    let solved =
        write(folder.path(), "solved.jsonl", &problems.iter().map(String::as_str).collect::<Vec<_>>());
    let graded = rows(&succeed(&["grade", &solved, "--verifier", "task", "--json"]));
    assert!(graded.len() == 5 && graded.iter().all(|row| row["correct"] == true), "{graded:?}");

    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (train, held_out, solutions) = (path("train.jsonl"), path("held_out.jsonl"), path("sft.jsonl"));
    make(&[
        "program_synthesis",
        "-n",
        "4",
        "--out",
        &train,
        "--n-held-out",
        "2",
        "--held-out",
        &held_out,
        "--worked-solutions",
        &solutions,
        "--n-worked-solutions",
        "3",
    ]);
    let prompts = |path: &str| -> Vec<Value> {
        rows(&std::fs::read_to_string(path).unwrap()).iter().map(|row| row["prompt"].clone()).collect()
    };
    let sets = [prompts(&train), prompts(&held_out), prompts(&solutions)];
    assert_eq!(sets.each_ref().map(Vec::len), [4, 2, 3]);
    let mut all = sets.concat();
    all.sort_by_key(Value::to_string);
    all.dedup();
    assert_eq!(all.len(), 9, "no problem is in two files");

    assert!(fail(&["data", "make", "gdc", "-n", "1"]).contains("did you mean gcd?"));
    assert!(succeed(&["data", "tasks"]).lines().any(|task| task == "countdown"));
}

#[test]
fn a_run_pays_for_programs_that_were_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = config(folder.path(), "run", 2);
    // every digit is a program, and none reads or prints anything: only the empty output is what is expected of it
    let rows: Vec<String> = (0..10)
        .map(|digit| {
            let tests = serde_json::json!({"inputs": [""], "outputs": [if digit < 5 { "" } else { "5" }]});
            let row = serde_json::json!({"id": format!("p{digit}"), "prompt": format!("{digit}="),
                "answer": tests.to_string(), "completion": "1"});
            row.to_string()
        })
        .collect();
    std::fs::write(folder.path().join("data.jsonl"), rows.join("\n")).unwrap();
    let set = ["--set", "reward.type=code", "--set", "reward.extraction=whole_text"];
    succeed(&[&["train", path.to_str().unwrap()], &set[..]].concat());
    let metrics = rows_of(&folder.path().join("run/metrics.jsonl"));
    assert_eq!(metrics.len(), 2);
    assert!(metrics.iter().all(|step| step["frac_unscored"] == 0.0), "{metrics:?}");
    let rules: Vec<String> = rows_of(&folder.path().join("run/traces.jsonl"))
        .iter()
        .filter_map(|trace| trace["verdict"]["scored"]["rule"].as_str().map(str::to_owned))
        .collect();
    assert!(rules.iter().any(|rule| rule == "failed_tests" || rule == "passed"), "{rules:?}");
}

fn rows_of(path: &Path) -> Vec<Value> {
    rows(&std::fs::read_to_string(path).unwrap())
}

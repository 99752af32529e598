//! The committed files of chained sums are what their READMEs say.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::path::Path;

use firebrick_core::{Prompt, RewardVerifier, Sample};
use firebrick_examples::{ChainedSums, ChainedSumsSpec};
use firebrick_reward::ExactAnswer;
use serde_json::Value;

const FILES: [&str; 3] = ["train.jsonl", "heldout.jsonl", "sft.jsonl"];

/// What the README of a data set claims.
struct Claims {
    spec: ChainedSumsSpec,
    rows: [usize; 3],
    solution_characters: RangeInclusive<usize>,
    first_id: &'static str,
}

fn data_sets() -> [Claims; 1] {
    [Claims {
        spec: ChainedSumsSpec::CHAINED,
        rows: [2000, 256, 4000],
        solution_characters: 45..=73,
        first_id: "chained-sums-train-0",
    }]
}

fn text(spec: &ChainedSumsSpec, file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(spec.name).join(file);
    std::fs::read_to_string(path).expect("the data file is committed")
}

fn rows(spec: &ChainedSumsSpec, file: &str) -> Vec<Value> {
    text(spec, file).lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

fn string<'a>(row: &'a Value, pointer: &str) -> &'a str {
    row.pointer(pointer).and_then(Value::as_str).expect("the row has the field, as a string")
}

fn questions(spec: &ChainedSumsSpec, file: &str) -> Vec<String> {
    let pointer = if file == "sft.jsonl" { "/messages/0/content" } else { "/prompt/0/content" };
    rows(spec, file).iter().map(|row| string(row, pointer).to_owned()).collect()
}

/// The sum of a question such as `23+45-17=`, worked out character by character.
fn sum(question: &str) -> i64 {
    let (mut total, mut sign, mut term) = (0, 1, 0);
    for c in question.chars() {
        match c.to_digit(10) {
            Some(digit) => term = 10 * term + i64::from(digit),
            None => {
                total += sign * term;
                (sign, term) = (if c == '-' { -1 } else { 1 }, 0);
            }
        }
    }
    total
}

#[test]
fn generating_again_gives_the_committed_bytes() {
    for Claims { spec, .. } in data_sets() {
        for (file, content) in ChainedSums::generate(spec.clone()).files().unwrap() {
            let name = spec.name;
            assert!(content == text(&spec, file), "{name}/{file} differs: run generate_chained_sums");
        }
    }
}

#[test]
fn every_file_has_as_many_rows_as_its_readme_says() {
    for Claims { spec, rows: expected, .. } in data_sets() {
        assert_eq!(FILES.map(|file| rows(&spec, file).len()), expected, "{}", spec.name);
    }
}

#[test]
fn every_ground_truth_is_the_sum_of_its_question() {
    assert_eq!(sum("23+45-17+38="), 89);
    for Claims { spec, .. } in data_sets() {
        for row in ["train.jsonl", "heldout.jsonl"].iter().flat_map(|file| rows(&spec, file)) {
            let question = string(&row, "/prompt/0/content");
            assert_eq!(string(&row, "/reward_model/ground_truth"), sum(question).to_string(), "{question}");
        }
    }
}

#[test]
fn no_problem_is_in_two_files_or_twice_in_one() {
    for Claims { spec, rows, .. } in data_sets() {
        let mut seen = HashSet::new();
        for file in FILES {
            for question in questions(&spec, file) {
                assert!(seen.insert(question.clone()), "{question} in {file} is a repetition");
            }
        }
        assert_eq!(seen.len(), rows.iter().sum::<usize>());
    }
}

#[test]
fn ids_name_the_data_set_and_are_unique_over_all_files() {
    let mut seen = HashSet::new();
    for Claims { spec, first_id, .. } in data_sets() {
        for row in FILES.iter().flat_map(|file| rows(&spec, file)) {
            let id = string(&row, "/extra_info/id").to_owned();
            assert!(seen.insert(id.clone()), "{id}");
            assert_eq!(string(&row, "/data_source"), format!("firebrick/{}", spec.name));
        }
        assert_eq!(string(&rows(&spec, "train.jsonl")[0], "/extra_info/id"), first_id);
    }
}

#[test]
fn each_step_of_a_worked_solution_is_right_and_the_verifier_accepts_it() {
    for row in data_sets().iter().flat_map(|claims| rows(&claims.spec, "sft.jsonl")) {
        let (question, solution) = (string(&row, "/messages/0/content"), string(&row, "/messages/1/content"));
        let (steps, answer) = solution.rsplit_once('\n').expect("the answer follows at least one step");
        for step in steps.lines() {
            let (left, right) = step.split_once('=').expect("a step has an equals sign");
            assert_eq!(sum(&format!("{left}=")).to_string(), right, "{solution}");
        }
        assert_eq!(answer, format!("Answer: {}", sum(question)), "{solution}");
        let prompt = Prompt::new("p", question, sum(question).to_string());
        let verdict = ExactAnswer::default().verify(&Sample::of_text(&prompt, solution)).unwrap();
        assert_eq!(verdict.reward(), Some(1.0), "{question} {solution}");
    }
}

#[test]
fn worked_solutions_are_as_long_as_their_readme_says() {
    for Claims { spec, solution_characters, .. } in data_sets() {
        for row in rows(&spec, "sft.jsonl") {
            let solution = string(&row, "/messages/1/content");
            assert!(solution_characters.contains(&solution.len()), "{solution}");
        }
    }
}

//! The scores of reasoning-gym 0.1.25 (`tests/data/README.md`), row by row.

use std::collections::BTreeMap;

use firebrick_core::{Prompt, RewardVerifier, Sample};
use firebrick_reward::tasks::TaskVerifier;
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
struct Row {
    task: String,
    reference: String,
    extra: Value,
    kind: String,
    answer: Option<String>,
    score: Option<f64>,
}

fn rows() -> Vec<Row> {
    let text = include_str!("data/reasoning_gym.jsonl");
    text.lines().map(|line| serde_json::from_str(line).expect("a row of the fixtures")).collect()
}

/// Why a row is right here and not there, or the other way round; `None` where the two must agree.
fn reason(row: &Row) -> Option<&'static str> {
    match (row.task.as_str(), row.kind.as_str()) {
        ("arithmetic" | "gcd" | "lcm" | "linear_equation", "format") => {
            Some("a number is compared by value, not as text")
        }
        (_, "spaces") => Some("spaces around an answer do not count"),
        ("base_conversion", "case") => Some("the case of digits does not count"),
        ("base_conversion", "prefix") => Some("the prefix of the base that was asked for does not count"),
        ("number_sorting", "near") => Some("an item that is off by up to 1 is right there"),
        ("prime_factorisation", "star") => Some("factors may be joined by an asterisk"),
        _ => None,
    }
}

#[test]
fn a_score_of_one_there_is_a_right_answer_here() {
    let rows = rows();
    let mut differing: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for row in &rows {
        let source = format!("firebrick/{}", row.task);
        let mut prompt = Prompt::new("p", "?", &row.reference).with_data_source(source);
        prompt.extra.insert("extra".into(), row.extra.clone());
        let response = row.answer.as_deref().unwrap_or_default(); // no answer is an empty response
        let reward = TaskVerifier::default().verify(&Sample::of_text(&prompt, response)).unwrap().reward();
        let (here, there) = (reward == Some(1.0), row.score == Some(1.0));
        assert!(reward.is_some(), "{row:?}");
        if here != there {
            let reason = reason(row).unwrap_or_else(|| panic!("{here} here: {row:?}"));
            *differing.entry((&row.task, reason)).or_default() += 1;
        }
    }
    let count: usize = differing.values().sum();
    assert!(count * 100 <= rows.len() * 3, "{count} of {}: {differing:#?}", rows.len());
    assert_eq!((rows.len(), count), (1633, 28), "{differing:#?}");
}

#[test]
fn the_rows_hold_right_and_wrong_answers_of_every_task() {
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for row in rows() {
        let count = counts.entry(row.task).or_default();
        if row.score == Some(1.0) {
            count.0 += 1;
        } else {
            count.1 += 1;
        }
    }
    assert_eq!(counts.len(), 10);
    assert!(counts.values().all(|(right, wrong)| *right >= 12 && *wrong >= 100), "{counts:?}");
}

//! How chained sums are written to files: one JSON object a line, problems as verl has them.

use serde::Serialize;

use crate::{ChainedSum, ChainedSums, ChainedSumsSpec};

impl ChainedSums {
    /// The files: name and content, one JSON object a line.
    ///
    /// # Errors
    /// When a row cannot be written as JSON.
    pub fn files(&self) -> serde_json::Result<[(&'static str, String); 3]> {
        let spec = &self.spec;
        Ok([
            ("train.jsonl", lines(spec, "train", &self.train, ProblemRow::new)?),
            ("heldout.jsonl", lines(spec, "heldout", &self.heldout, ProblemRow::new)?),
            ("sft.jsonl", lines(spec, "sft", &self.sft, WorkedRow::new)?),
        ])
    }
}

fn lines<R: Serialize>(
    spec: &ChainedSumsSpec,
    split: &'static str,
    problems: &[ChainedSum],
    row: fn(String, ExtraInfo, &ChainedSum) -> R,
) -> serde_json::Result<String> {
    let mut text = String::new();
    for (index, problem) in problems.iter().enumerate() {
        let id = format!("{}-{split}-{index}", spec.name.replace('_', "-"));
        let row = row(format!("firebrick/{}", spec.name), ExtraInfo { split, index, id }, problem);
        text.push_str(&serde_json::to_string(&row)?);
        text.push('\n');
    }
    Ok(text)
}

/// A problem with its answer.
#[derive(Serialize)]
struct ProblemRow {
    data_source: String,
    prompt: [Message; 1],
    ability: &'static str,
    reward_model: RewardModel,
    extra_info: ExtraInfo,
}

/// A problem with its worked solution.
#[derive(Serialize)]
struct WorkedRow {
    messages: [Message; 2],
    data_source: String,
    extra_info: ExtraInfo,
}

#[derive(Serialize)]
struct Message {
    role: &'static str,
    content: String,
}

#[derive(Serialize)]
struct RewardModel {
    style: &'static str,
    ground_truth: String,
}

#[derive(Serialize)]
struct ExtraInfo {
    split: &'static str,
    index: usize,
    id: String,
}

impl ProblemRow {
    fn new(data_source: String, extra_info: ExtraInfo, problem: &ChainedSum) -> Self {
        let reward_model = RewardModel { style: "rule", ground_truth: problem.answer().to_string() };
        Self { data_source, prompt: [Message::user(problem)], ability: "math", reward_model, extra_info }
    }
}

impl WorkedRow {
    fn new(data_source: String, extra_info: ExtraInfo, problem: &ChainedSum) -> Self {
        let solution = Message { role: "assistant", content: problem.worked_solution() };
        Self { messages: [Message::user(problem), solution], data_source, extra_info }
    }
}

impl Message {
    fn user(problem: &ChainedSum) -> Self {
        Self { role: "user", content: problem.question() }
    }
}

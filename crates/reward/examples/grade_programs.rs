//! Grades programs: rows in, verdicts out.
//!
//! ```text
//! cargo run -p firebrick-reward --example grade_programs -- [CONFIG.json] < rows.jsonl
//! ```
//!
//! A row is `{"id": ..., "answer": ..., "completion": ...}`, its answer the tests, as text of JSON. For each row, in order, a line
//! `{"id": ..., "verdict": ...}` is printed. A fault of the executor leaves a row unscored; on more than half of the rows it is an
//! error. The config is that of the code verifier, as JSON; without one, programs run in the local sandbox under the default
//! limits. As many rows are graded at once as there are cores: some 100 ms a row and core.

use std::error::Error;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use firebrick_core::Prompt;
use firebrick_reward::program::CodeConfig;
use firebrick_reward::{Grader, GraderSettings, OwnedSample};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Row {
    id: String,
    answer: String,
    completion: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    let config: CodeConfig = match std::env::args().nth(1) {
        Some(path) => serde_json::from_str(&std::fs::read_to_string(path)?)?,
        None => CodeConfig::default(),
    };
    let grader = Grader::new(Arc::new(config.build()?), GraderSettings::default())?;
    let mut batch = grader.batch();
    let mut ids = Vec::new();
    for line in io::stdin().lines() {
        let row: Row = serde_json::from_str(&line?)?;
        let prompt = Arc::new(Prompt::new(&row.id, "", row.answer));
        batch.submit(OwnedSample::of_text(prompt, row.completion))?;
        ids.push(row.id);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    for (id, verdict) in ids.iter().zip(batch.collect()?) {
        writeln!(out, "{}", json!({"id": id, "verdict": verdict}))?;
    }
    out.flush()?;
    Ok(())
}

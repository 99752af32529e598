//! Grades programs: rows in, verdicts out.
//!
//! ```text
//! cargo run -p firebrick-reward --example grade_programs -- [CONFIG.json] < rows.jsonl
//! ```
//!
//! A row is `{"id": ..., "answer": ..., "completion": ...}`, its answer the tests, as text of JSON. For each row, in order, a line
//! `{"id": ..., "verdict": ...}` is printed; a fault of the executor is `{"error": ...}` there. The config is that of the code
//! verifier, as JSON; without one, programs run in the local sandbox under the default limits. As many rows are graded at once as
//! there are cores: some 100 ms a row and core.

use std::error::Error;
use std::io::{self, BufWriter, Write};
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use firebrick_core::{Prompt, RewardVerifier, Sample};
use firebrick_reward::program::{CodeConfig, CodeVerifier};
use serde::Deserialize;
use serde_json::{Value, json};

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
    let verifier = config.build()?;
    let rows: Vec<Row> = io::stdin()
        .lines()
        .map(|line| Ok(serde_json::from_str(&line?)?))
        .collect::<Result<_, Box<dyn Error>>>()?;
    let mut out = BufWriter::new(io::stdout().lock());
    for verdict in grade(&verifier, &rows) {
        writeln!(out, "{verdict}")?;
    }
    out.flush()?;
    Ok(())
}

fn grade(verifier: &CodeVerifier, rows: &[Row]) -> Vec<Value> {
    let next = AtomicUsize::new(0);
    let verdicts = Mutex::new(vec![Value::Null; rows.len()]);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                while let Some((index, row)) = take(&next, rows) {
                    let verdict = verdict(verifier, row);
                    verdicts.lock().expect("no thread panics with the lock")[index] = verdict;
                }
            });
        }
    });
    verdicts.into_inner().expect("no thread panics with the lock")
}

fn take<'a>(next: &AtomicUsize, rows: &'a [Row]) -> Option<(usize, &'a Row)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    rows.get(index).map(|row| (index, row))
}

fn verdict(verifier: &CodeVerifier, row: &Row) -> Value {
    let prompt = Prompt::new(&row.id, "", &row.answer);
    match verifier.verify(&Sample::of_text(&prompt, &row.completion)) {
        Ok(verdict) => json!({"id": row.id, "verdict": verdict}),
        Err(error) => json!({"id": row.id, "verdict": {"error": error.to_string()}}),
    }
}

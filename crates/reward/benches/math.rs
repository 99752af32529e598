//! Time per pair of the mathematics grader over the whole fixture: median, 99th percentile and slowest.
//!
//! `cargo bench -p firebrick-reward --bench math`

use std::hint::black_box;
use std::time::Instant;

use firebrick_reward::{MathConfig, MathVerifier};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    id: String,
    gold: String,
    pred: String,
    config: MathConfig,
}

const ROUNDS: usize = 5;

#[expect(clippy::print_stdout, reason = "a benchmark reports on standard output")]
fn main() {
    let text = include_str!("../tests/data/math_cases.jsonl");
    let cases: Vec<(Case, MathVerifier)> = text
        .lines()
        .map(|line| {
            let case: Case = serde_json::from_str(line).expect("the fixture can be read");
            let verifier = case.config.clone().build().expect("its settings can be used");
            (case, verifier)
        })
        .collect();
    // The best of several rounds, so that another process does not count.
    let mut times: Vec<(f64, &str)> = cases
        .iter()
        .map(|(case, verifier)| {
            let best = (0..ROUNDS).map(|_| {
                let start = Instant::now();
                black_box(verifier.grade(black_box(&case.gold), black_box(&case.pred)));
                start.elapsed().as_secs_f64() * 1e3
            });
            (best.fold(f64::INFINITY, f64::min), case.id.as_str())
        })
        .collect();
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("{} pairs, best of {ROUNDS} each", times.len());
    println!("median {:.4} ms, p99 {:.4} ms, max {:.4} ms ({})", at(0.5).0, at(0.99).0, at(1.0).0, at(1.0).1);
}

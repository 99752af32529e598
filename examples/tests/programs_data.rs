//! The data set of programs is what its README says.

use firebrick_core::RootSeed;
use firebrick_reward::tasks::{SplitBy, TaskConfig, TaskRow, make_split};

#[test]
fn the_committed_files_are_what_the_generator_makes() {
    let settings = serde_json::json!({
        "families": ["square", "modulo", "extremum"],
        "min_input": 0, "max_input": 12, "max_constant": 5, "max_divisor": 7,
    });
    let settings = settings.as_object().unwrap().clone();
    let config = TaskConfig::with_settings("program_synthesis", settings).unwrap();
    let split = make_split(&config, 14_000, 200, RootSeed(1), SplitBy::Prompt).unwrap();
    let (train, solved) = split.train.split_at(4_000);
    let json: fn(&TaskRow) -> String = TaskRow::to_json;
    for (name, rows, line) in [
        ("train.jsonl", train, json),
        ("heldout.jsonl", &split.held_out, json),
        ("sft.jsonl", solved, TaskRow::worked_solution_json),
    ] {
        let path = format!("{}/data/programs/{name}", env!("CARGO_MANIFEST_DIR"));
        let text: String = rows.iter().map(|row| line(row) + "\n").collect();
        assert!(std::fs::read_to_string(&path).unwrap() == text, "{path} differs");
    }
}

//! `firebrick bench step` and `bench scores` as their user calls them.

use std::process::{Command, Output};

use serde_json::{Value, json};

/// A decoder and a step that take milliseconds.
const TINY: &str = "--layers 1 --hidden 8 --heads 2 --kv-heads 1 --ffn 12 --vocab 10 --prompts 3 --completions 2 \
    --prompt-tokens 4 --new-tokens 5 --repetitions 2 --warmup 1 --threads 1";

fn bench(arguments: &str) -> Output {
    let words = arguments.split_whitespace();
    let mut command = Command::new(env!("CARGO_BIN_EXE_firebrick"));
    command.args(["bench", "step"]).args(words).output().expect("the command can be started")
}

fn refused(arguments: &str) -> String {
    let output = bench(arguments);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).expect("errors are text")
}

#[test]
fn a_step_generates_exactly_the_tokens_that_were_asked_for() {
    let output = bench(&format!(
        "{TINY} --json --objective tapo --micro-batch-tokens 20 --parallel-parts 1 --epochs 2 --recompute-activations"
    ));
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let shape = json!({
        "layers": 1, "hidden": 8, "heads": 2, "kv_heads": 1, "ffn": 12, "vocab": 10, "prompts": 3, "completions": 2,
        "prompt_tokens": 4, "new_tokens": 5,
    });
    assert_eq!(report["shape"], shape);
    // 80 of the embedding, 2·64 + 2·32 + 3·96 + 16 of the layer, 8 of the last norm.
    assert_eq!(report["parameters"], 584);
    assert_eq!(report["completions"], 6);
    assert_eq!(report["generated_tokens"], 30);
    assert_eq!(report["repetitions"], 2);
    assert_eq!(report["warmup"], 1);
    assert_eq!(report["threads"], 1);
    assert_eq!(report["micro_batch_tokens"], 20);
    assert_eq!((&report["parallel_parts"], &report["epochs"]), (&json!(1), &json!(2)));
    assert_eq!(report["recompute_activations"], true);
    assert_eq!((&report["device"], &report["objective"]), (&json!("cpu"), &json!("tapo")));
    assert!(report["log_prob_mismatch"].as_f64().unwrap() < 1e-5, "{report}");

    let seconds = report["seconds"].as_object().unwrap();
    let parts = ["forward_backward", "generate", "objective", "optimizer", "score", "total", "verify"];
    let mut names: Vec<&str> = seconds.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, parts);
    for (part, spread) in seconds {
        let [min, median, max] = ["min", "median", "max"].map(|name| spread[name].as_f64().unwrap());
        assert!(0.0 <= min && min <= median && median <= max, "{part}: {spread}");
    }
    assert!(report["generated_tokens_per_second"].as_f64().unwrap() > 0.0);
    if cfg!(target_os = "linux") {
        assert!(report["peak_resident_bytes"].as_u64().unwrap() > 1 << 20, "{report}");
    }
}

#[test]
fn the_table_names_every_part() {
    let output = bench(TINY);
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.starts_with(
        "dapo on cpu, 1 threads, 2 parts: 584 parameters, 6 completions and 30 new tokens a step\n"
    ));
    let parts = ["generate", "verify", "score", "objective", "forward_backward", "optimizer", "total"];
    for line in parts.into_iter().chain(cfg!(unix).then_some("CPU-seconds")) {
        assert_eq!(table.lines().filter(|row| row.starts_with(&format!("{line} "))).count(), 1, "{table}");
    }
}

#[test]
fn sizes_that_cannot_work_are_refused_by_name() {
    let cases = [
        ("--completions 1", "--completions = 1: allowed is at least 2"),
        ("--repetitions 0", "--repetitions = 0"),
        ("--prompt-tokens 0", "--prompt-tokens = 0"),
        ("--parallel-parts 0", "parallel_parts = 0"),
        ("--prompts 0", "prompts_per_step = 0"),
        ("--new-tokens 0", "max_new_tokens = 0"),
        ("--heads 6", "hidden_size = 128"),
        ("--objective grop", "`grpo`"),
        ("--device warp", "unknown device `warp`"),
    ];
    for (arguments, message) in cases {
        let error = refused(arguments);
        assert!(error.contains(message), "{arguments}: {error}");
    }
}

fn bench_scores(arguments: &str) -> Output {
    let words = arguments.split_whitespace();
    let mut command = Command::new(env!("CARGO_BIN_EXE_firebrick"));
    command.args(["bench", "scores"]).args(words).output().expect("the command can be started")
}

#[test]
fn log_probs_over_a_large_vocabulary_stay_far_below_all_logits() {
    let output = bench_scores("--tokens 2048 --vocab 32000 --hidden 8 --json");
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["logits_bytes"], 4 * 2048 * 32000);
    if cfg!(target_os = "linux") {
        let bytes = |name: &str| report[name].as_u64().unwrap();
        let grown = bytes("peak_bytes") - bytes("bytes_before");
        assert!(4 * grown < bytes("logits_bytes"), "{report}");
    }
    let output = bench_scores("--tokens 5 --vocab 7 --hidden 3 --chunk-tokens 2 --forward-only");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("log-probs of 5 tokens, 3 wide, vocabulary 7, on cpu: forward 0."), "{text}");
    let refused = bench_scores("--tokens 5 --vocab 7 --hidden 3 --chunk-tokens 0");
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--chunk-tokens = 0: allowed is at least 1"));
}

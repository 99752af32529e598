//! Code RL end to end on a CPU: a small decoder learns to write Python functions from examples of what they return.
//!
//! ```text
//! cargo run --release --example code                        the run of configs/code-cpu.toml
//! cargo run --release --example code -- --seed 2            another seed
//! cargo run --release --example code -- --control random    rewards by chance: nothing should be learned
//! ```
//!
//! A problem shows three calls, such as `f(3)=7 f(0)=1 f(5)=11`; the response is a program. Every reward is a real execution by the
//! machine's `python3` in the sandbox, on eight other calls that the policy never sees: to write the shown ones into the program
//! earns nothing. Prints held-out pass rates before and after, sample programs, and what verification costs of a step.

use firebrick_examples::{TrainingExample, train_and_report};
use firebrick_trainer::{Timings, keep_freed_memory};

#[expect(clippy::print_stdout, reason = "an example talks to its user")]
fn main() -> anyhow::Result<()> {
    keep_freed_memory();
    let config = TrainingExample::from_arguments().run_config("configs/code-cpu.toml")?;
    let summary = train_and_report(&config)?;
    let sum = |part: fn(&Timings) -> f64| summary.steps.iter().map(|step| part(&step.timings)).sum::<f64>();
    let (waited, total) = (sum(|timings| timings.verify), sum(Timings::total));
    println!("verification: {:.1} % of a step's time, after generation has ended", 100.0 * waited / total);
    Ok(())
}

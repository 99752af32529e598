//! Math RL end to end on a CPU: a small decoder learns chained sums.
//!
//! ```text
//! cargo run --release --example math                        the run of configs/math-cpu.toml
//! cargo run --release --example math -- --seed 2            another seed
//! cargo run --release --example math -- --control random    rewards by chance: nothing should be learned
//! cargo run --example math -- --steps 10                    less of it
//! ```
//!
//! Warm start on worked solutions, then TAPO with four passes over each rollout batch. Prints held-out accuracy before
//! and after with standard errors, and exits with an error when nothing was learned.

use firebrick_examples::{TrainingExample, train_and_report};
use firebrick_trainer::keep_freed_memory;

fn main() -> anyhow::Result<()> {
    keep_freed_memory();
    let config = TrainingExample::from_arguments().run_config("configs/math-cpu.toml")?;
    train_and_report(&config)?;
    Ok(())
}

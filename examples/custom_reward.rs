//! A user's own reward: one `impl` with one method.
//!
//! ```text
//! cargo run --release --example custom_reward
//! ```
//!
//! Takes seconds on a CPU and exits with an error when nothing was learned.

use std::path::Path;

use anyhow::ensure;
use burn::backend::{Autodiff, Flex};
use firebrick_core::{FinishReason, RewardVerifier, Sample, Verdict, VerifyError};
use firebrick_trainer::{Plan, RunConfig, RunOptions, run_plan};

/// Pays for a response of three tokens or more that ends by itself, and less the more it holds beside even digits.
#[derive(Debug)]
struct EvenDigits;

impl RewardVerifier for EvenDigits {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        let even = sample.text.chars().filter(|c| c.to_digit(10).is_some_and(|digit| digit % 2 == 0)).count();
        let ended = sample.finish_reason == FinishReason::Stop && sample.tokens.len() >= 3;
        let share = even as f64 / sample.text.chars().count().max(1) as f64;
        Ok(Verdict::scored(if ended { share } else { 0.0 }))
    }
}

#[expect(clippy::print_stdout, reason = "an example talks to its user")]
fn main() -> anyhow::Result<()> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut config = RunConfig::read(&root.join("configs/from-scratch.toml"))?.relative_to(root);
    config.run.directory.set_file_name("custom-reward");
    let plan = Plan::<Autodiff<Flex>>::new(config.train.clone(), config.objective.build(), EvenDigits)?;
    let summary = run_plan(&config, plan, &RunOptions::default(), Default::default())?;
    let (before, after) = (summary.before.avg_at_k, summary.after.avg_at_k);
    println!("responses of even digits: {before} before, {after} after");
    ensure!(after.value > before.value + 0.5, "nothing was learned");
    Ok(())
}

//! A user's own reward: partial credit for answers that come close.
//!
//! ```text
//! cargo run --release --example custom_reward
//! ```
//!
//! Learns short sums on a CPU and exits with an error when it does not.

use std::path::Path;

use anyhow::ensure;
use burn::backend::{Autodiff, Flex};
use firebrick_core::{RewardVerifier, Sample, UnscoredReason, Verdict, VerifyError};
use firebrick_reward::{ExtractionSpec, extract_answer};
use firebrick_trainer::{Plan, RunConfig, run_plan};

/// Pays 1 for the right number and less the further away it is, down to 0 at `width`.
#[derive(Debug)]
struct Closeness {
    width: f64,
}

impl RewardVerifier for Closeness {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        let Ok(reference) = sample.prompt.answer.parse::<f64>() else {
            return Ok(Verdict::Unscored(UnscoredReason::BadReference(sample.prompt.answer.clone())));
        };
        let found = extract_answer(sample.text, &ExtractionSpec::default());
        let number = found.as_ref().and_then(|answer| answer.text.parse::<f64>().ok());
        let reward = number.map_or(0.0, |number| (1.0 - (number - reference).abs() / self.width).max(0.0));
        Ok(Verdict::graded(reward, found.map(|answer| answer.text.to_owned()), "closeness"))
    }
}

#[expect(clippy::print_stderr, reason = "an example talks to its user")]
fn main() -> anyhow::Result<()> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut config = RunConfig::read(&root.join("configs/math-smoke.toml"))?.relative_to(root);
    config.run.directory.set_file_name("custom-reward");
    let reward = Closeness { width: 20.0 };
    let plan = Plan::<Autodiff<Flex>>::new(config.train.clone(), config.objective.build(), reward)?;
    let summary = run_plan(&config, plan, Default::default())?;
    let (before, after) = (summary.before.avg_at_k, summary.after.avg_at_k);
    eprintln!("held-out accuracy: {before} before, {after} after");
    ensure!(after.value > before.value + 0.1, "nothing was learned");
    Ok(())
}

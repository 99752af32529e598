//! A user's own objective: an importance estimator of eight lines, joined with parts of the framework.
//!
//! ```text
//! cargo run --release --example custom_objective
//! ```
//!
//! Takes seconds on a CPU and exits with an error when nothing was learned.

use std::path::Path;

use anyhow::ensure;
use burn::backend::{Autodiff, Flex};
use firebrick_core::{ImportanceEstimator, ResponseTokens};
use firebrick_examples::Sevens;
use firebrick_objectives::{Aggregation, Composed, ConstantClip, GroupNormalized, PpoMin, Recipe};
use firebrick_trainer::{Plan, RunConfig, RunOptions, run_plan};

/// Weighs each prefix as TAPO does, but forgets: the influence of a token halves every `half_life` tokens.
#[derive(Debug)]
struct FadingPrefix {
    half_life: f64,
}

impl ImportanceEstimator for FadingPrefix {
    fn log_weights(&self, response: &ResponseTokens<'_>, out: &mut [f64]) {
        let keep = 0.5f64.powf(1.0 / self.half_life);
        let (mut sum, mut mass) = (0.0, 0.0);
        for (log_weight, log_ratio) in out.iter_mut().zip(response.log_ratios()) {
            (sum, mass) = (keep * sum + log_ratio, keep * mass + 1.0);
            *log_weight = sum / mass;
        }
    }
}

#[expect(clippy::print_stdout, reason = "an example talks to its user")]
fn main() -> anyhow::Result<()> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut config = RunConfig::read(&root.join("configs/from-scratch.toml"))?.relative_to(root);
    config.run.directory.set_file_name("custom-objective");
    let (estimator, clip) = (FadingPrefix { half_life: 8.0 }, ConstantClip { low: 0.2, high: 0.2 });
    let objective = Composed::new(estimator, clip, PpoMin::default());
    let recipe = Recipe::new(objective, Aggregation::SeqMeanTokenMean, GroupNormalized::default());
    let plan = Plan::<Autodiff<Flex>>::new(config.train.clone(), recipe, Sevens)?;
    let summary = run_plan(&config, plan, &RunOptions::default(), Default::default())?;
    let (before, after) = (summary.before.avg_at_k, summary.after.avg_at_k);
    println!("responses that are four fifths sevens: {before} before, {after} after");
    ensure!(after.value > before.value + 0.5, "nothing was learned");
    Ok(())
}

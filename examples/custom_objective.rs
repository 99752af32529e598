//! A user's own objective: an importance estimator of eight lines and a window of four, from a package outside the workspace
//! (`consumers/own-objective/src/fading.rs`), joined with parts of the framework.
//!
//! ```text
//! cargo run --release --example custom_objective
//! ```
//!
//! Takes seconds on a CPU and exits with an error when nothing was learned.

use std::path::Path;

use anyhow::ensure;
use burn::backend::{Autodiff, Flex};
use firebrick_examples::Sevens;
use firebrick_objectives::{Aggregation, Composed, GroupNormalized, PpoMin, Recipe};
use firebrick_trainer::{Plan, RunConfig, RunOptions, run_plan};
use own_objective::{FadingPrefix, HalvingWindow};

#[expect(clippy::print_stdout, reason = "an example talks to its user")]
fn main() -> anyhow::Result<()> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut config = RunConfig::read(&root.join("configs/from-scratch.toml"))?.relative_to(root);
    config.run.directory.set_file_name("custom-objective");
    let (estimator, window) = (FadingPrefix { half_life: 8.0 }, HalvingWindow { width: 0.2 });
    let objective = Composed::new(estimator, window, PpoMin::default());
    let recipe = Recipe::new(objective, Aggregation::SeqMeanTokenMean, GroupNormalized::default());
    let plan = Plan::<Autodiff<Flex>>::new(config.train.clone(), recipe, Sevens)?;
    let summary = run_plan(&config, plan, &RunOptions::default(), Default::default())?;
    let (before, after) = (summary.before.avg_at_k, summary.after.avg_at_k);
    println!("responses that are four fifths sevens: {before} before, {after} after");
    ensure!(after.value > before.value + 0.5, "nothing was learned");
    Ok(())
}

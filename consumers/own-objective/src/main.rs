//! Trains with an objective of its own, and fails when nothing is learned.
//!
//! ```text
//! cargo run --manifest-path consumers/own-objective/Cargo.toml --features train
//! ```

use std::{error::Error, path::Path};

use burn::backend::{Autodiff, Flex};
use firebrick_core::{RewardVerifier, Sample, Verdict, VerifyError};
use firebrick_objectives::{Aggregation, Composed, GroupNormalized, PpoMin, Recipe};
use firebrick_trainer::{Plan, RunConfig, RunOptions, run_plan};
use own_objective::{FadingPrefix, HalvingWindow};

/// Pays the share of a response's characters that are sevens.
#[derive(Debug)]
struct Sevens;

impl RewardVerifier for Sevens {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        let sevens = sample.text.matches('7').count();
        Ok(Verdict::scored(sevens as f64 / sample.text.chars().count().max(1) as f64))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut config = RunConfig::read(&root.join("configs/from-scratch.toml"))?.relative_to(root);
    config.run.directory.set_file_name("own-objective");

    let objective =
        Composed::new(FadingPrefix { half_life: 8.0 }, HalvingWindow { width: 0.2 }, PpoMin::default());
    let recipe = Recipe::new(objective, Aggregation::SeqMeanTokenMean, GroupNormalized::default());

    let plan = Plan::<Autodiff<Flex>>::new(config.train.clone(), recipe, Sevens)?;
    let summary = run_plan(&config, plan, &RunOptions::default(), Default::default())?;
    let (before, after) = (summary.before.avg_at_k.value, summary.after.avg_at_k.value);
    println!("responses that are four fifths sevens: {before} before, {after} after");
    if after > before + 0.5 { Ok(()) } else { Err("nothing was learned".into()) }
}

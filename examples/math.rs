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

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use burn::backend::{Autodiff, Flex};
use clap::Parser;
use firebrick_core::RootSeed;
use firebrick_trainer::{Control, EvaluationReport, RunConfig, RunOptions, run};

#[derive(Parser)]
struct Arguments {
    /// The run's config.
    #[arg(long, default_value = "configs/math-cpu.toml")]
    config: PathBuf,
    /// Replaces the config's seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Replaces the number of rollout batches.
    #[arg(long)]
    steps: Option<usize>,
    /// Replaces the verdicts that are trained on.
    #[arg(long, value_parser = ["random"])]
    control: Option<String>,
    /// Replaces the run directory; an earlier run there is removed.
    #[arg(long)]
    run_dir: Option<PathBuf>,
}

#[expect(clippy::print_stdout, reason = "an example talks to its user")]
fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()),
        )
        .with_target(false)
        .init();
    let arguments = Arguments::parse();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the examples have a parent folder")?;
    let mut config = RunConfig::read(&root.join(&arguments.config))?.relative_to(root);
    config.run.overwrite = true;
    if let Some(seed) = arguments.seed {
        config.train.seed = RootSeed(seed);
    }
    if let Some(steps) = arguments.steps {
        config.train.steps = steps;
    }
    if arguments.control.is_some() {
        config.control = Control::Random;
        config.run.directory.set_file_name("math-control");
    }
    if let Some(directory) = arguments.run_dir {
        config.run.directory = directory;
    }

    let summary = run::<Autodiff<Flex>>(&config, &RunOptions::default(), Default::default())?;

    let line = |name: &str, report: &EvaluationReport| {
        let (k, pass) = report.pass_at.last().copied().unwrap_or((1, report.avg_at_k));
        println!(
            "held-out {name}: avg@{} {}, pass@{k} {pass} ({} problems)",
            report.k, report.avg_at_k, report.problems
        );
    };
    println!("\nwarm start: {} optimizer steps", summary.warm_start_steps);
    line("before RL", &summary.before);
    line("after RL ", &summary.after);
    for example in &summary.after.examples {
        println!(
            "\n{}\n{}\n  [answer {}, reward {:?}]",
            example.prompt, example.response, example.answer, example.reward
        );
    }
    println!("\nseconds: {:?}\nrun directory: {}", summary.seconds, config.run.directory.display());

    let gain = summary.after.avg_at_k.value - summary.before.avg_at_k.value;
    let noise = summary.before.avg_at_k.standard_error.hypot(summary.after.avg_at_k.standard_error);
    println!("gain: {gain:+.3} (standard error {noise:.3})");
    if config.control == Control::None && gain < 2.0 * noise {
        bail!("nothing was learned: the gain is below two standard errors");
    }
    Ok(())
}

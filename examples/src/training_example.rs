//! What the training examples have in common.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use burn::backend::{Autodiff, Flex};
use clap::Parser;
use firebrick_core::RootSeed;
use firebrick_trainer::{Control, EvaluationReport, RunConfig, RunOptions, RunSummary, run};

/// Arguments of a training example.
#[derive(Debug, Parser)]
pub struct TrainingExample {
    /// A config instead of the example's.
    #[arg(long)]
    config: Option<PathBuf>,
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

impl TrainingExample {
    /// Reads the arguments of the process and starts logging.
    pub fn from_arguments() -> Self {
        tracing_subscriber::fmt()
            .with_env_filter(
                tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()),
            )
            .with_target(false)
            .init();
        Self::parse()
    }

    /// The run: the config at `path`, relative to the repository, with what the arguments change.
    ///
    /// # Errors
    /// When the config cannot be used.
    pub fn run_config(&self, path: &str) -> anyhow::Result<RunConfig> {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the examples have a parent folder")?;
        let path = self.config.clone().unwrap_or_else(|| path.into());
        let mut config = RunConfig::read(&root.join(path))?.relative_to(root);
        config.run.overwrite = true;
        if let Some(seed) = self.seed {
            config.train.seed = RootSeed(seed);
        }
        if let Some(steps) = self.steps {
            config.train.steps = steps;
        }
        if self.control.is_some() {
            config.control = Control::Random;
            let name = config.run.directory.file_name().unwrap_or_default().to_string_lossy() + "-control";
            config.run.directory.set_file_name(name.into_owned());
        }
        if let Some(directory) = &self.run_dir {
            config.run.directory.clone_from(directory);
        }
        Ok(config)
    }
}

/// Trains, and prints held-out accuracy before and after with standard errors and sample completions.
///
/// # Errors
/// When the run fails, or it was trained on real verdicts and nothing was learned: the gain is below two standard errors.
#[expect(clippy::print_stdout, reason = "an example talks to its user")]
pub fn train_and_report(config: &RunConfig) -> anyhow::Result<RunSummary> {
    let summary = run::<Autodiff<Flex>>(config, &RunOptions::default(), Default::default())?;
    println!("\nwarm start: {} optimizer steps", summary.warm_start_steps);
    for (name, report) in [("before RL", &summary.before), ("after RL ", &summary.after)] {
        println!("held-out {name}: {} ({} problems)", figures(report), report.problems);
    }
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
    Ok(summary)
}

/// avg@k and pass@n.
fn figures(report: &EvaluationReport) -> String {
    let pass = report.pass_at.iter().skip(1).map(|(n, estimate)| format!(", pass@{n} {estimate}"));
    pass.fold(format!("avg@{} {}", report.k, report.avg_at_k), |text, pass| text + &pass)
}

//! `firebrick train`.

use std::path::PathBuf;

use burn::tensor::backend::AutodiffBackend;
use clap::Args;
use firebrick_core::RootSeed;
use firebrick_models::FusedOps;
use firebrick_trainer::{Control, RunConfig, RunSummary, run};

use crate::{
    backend::{DeviceTask, on_device},
    device::DeviceChoice,
};

/// Arguments of `firebrick train`.
#[derive(Debug, Args)]
pub(crate) struct TrainArguments {
    /// The run's config (TOML).
    config: PathBuf,
    /// `cpu`, `ndarray`, `cuda:N` or `wgpu`, as far as they are compiled in.
    #[arg(long, default_value = "cpu")]
    device: DeviceChoice,
    /// Replaces the config's seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Replaces the run directory.
    #[arg(long)]
    run_dir: Option<PathBuf>,
    /// Removes an earlier run in the run directory.
    #[arg(long)]
    overwrite: bool,
    /// Trains on rewards by chance instead of verdicts.
    #[arg(long, value_parser = ["random"])]
    control: Option<String>,
    /// Checks the config and prints it with all defaults, without running it.
    #[arg(long)]
    dry_run: bool,
}

#[expect(clippy::print_stdout, reason = "the command talks to its user")]
pub(crate) fn train(arguments: &TrainArguments) -> anyhow::Result<()> {
    let mut config = RunConfig::read(&arguments.config)?;
    if let Some(seed) = arguments.seed {
        config.train.seed = RootSeed(seed);
    }
    if let Some(directory) = &arguments.run_dir {
        config.run.directory = directory.clone();
    }
    config.run.overwrite |= arguments.overwrite;
    if arguments.control.is_some() {
        config.control = Control::Random;
    }
    config.validate()?;
    if arguments.dry_run {
        print!("{}", toml::to_string(&config)?);
        return Ok(());
    }
    let summary = on_device(arguments.device, Train(&config))?;
    for (name, report) in [("before", &summary.before), ("after", &summary.after)] {
        println!("held-out {name}: avg@{} {} ({} problems)", report.k, report.avg_at_k, report.problems);
    }
    println!("run directory: {}", config.run.directory.display());
    Ok(())
}

struct Train<'a>(&'a RunConfig);

impl DeviceTask for Train<'_> {
    type Output = RunSummary;

    fn run<B>(self, device: B::Device) -> anyhow::Result<RunSummary>
    where
        B: AutodiffBackend + FusedOps,
        B::InnerBackend: FusedOps,
    {
        Ok(run::<B>(self.0, device)?)
    }
}

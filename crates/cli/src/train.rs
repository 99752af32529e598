//! `firebrick train`.

use std::path::PathBuf;

use burn::{backend::Autodiff, tensor::backend::Backend};
use clap::Args;
use firebrick_core::RootSeed;
use firebrick_models::FusedOps;
use firebrick_trainer::{Control, RunConfig, RunSummary, run};

use crate::device::DeviceChoice;

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
    let summary = on_device(&config, arguments.device)?;
    for (name, report) in [("before", &summary.before), ("after", &summary.after)] {
        println!("held-out {name}: avg@{} {} ({} problems)", report.k, report.avg_at_k, report.problems);
    }
    println!("run directory: {}", config.run.directory.display());
    Ok(())
}

/// Runs the config on the chosen device, which is probed before any tensor exists.
fn on_device(config: &RunConfig, device: DeviceChoice) -> anyhow::Result<RunSummary> {
    device.probe()?;
    match device {
        #[cfg(feature = "flex")]
        DeviceChoice::Cpu => on::<burn::backend::Flex>(config, Default::default()),
        #[cfg(feature = "ndarray")]
        DeviceChoice::NdArray => on::<burn::backend::NdArray>(config, Default::default()),
        #[cfg(feature = "cuda")]
        DeviceChoice::Cuda(index) => {
            on::<burn::backend::Cuda>(config, burn::backend::cuda::CudaDevice::new(index))
        }
        #[cfg(feature = "wgpu")]
        DeviceChoice::Wgpu => on::<burn::backend::Wgpu>(config, Default::default()),
        #[cfg(not(all(feature = "flex", feature = "ndarray", feature = "cuda", feature = "wgpu")))]
        other => unreachable!("the probe refused {other}, which is not compiled in"),
    }
}

#[cfg_attr(
    not(any(feature = "flex", feature = "ndarray", feature = "cuda", feature = "wgpu")),
    expect(dead_code, reason = "no backend is compiled in")
)]
fn on<B: Backend + FusedOps>(config: &RunConfig, device: B::Device) -> anyhow::Result<RunSummary>
where
    Autodiff<B>: FusedOps + burn::tensor::backend::AutodiffBackend<InnerBackend = B, Device = B::Device>,
{
    Ok(run::<Autodiff<B>>(config, device)?)
}

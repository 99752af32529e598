//! `firebrick train` and `firebrick sft`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use burn::tensor::backend::AutodiffBackend;
use clap::Args;
use firebrick_core::RootSeed;
use firebrick_models::FusedOps;
use firebrick_trainer::{
    CheckpointError, ConfigLayers, Control, MemoryEstimate, ModelSection, RunConfig, RunError, RunOptions,
    RunSummary, StopSignal, fine_tune, inspect_data, run,
};

use crate::{
    backend::{DeviceTask, on_device},
    bench_report::peak_resident_bytes,
    device::DeviceChoice,
};

/// Arguments of `firebrick train`.
#[derive(Debug, Args)]
pub(crate) struct TrainArguments {
    #[command(flatten)]
    run: RunArguments,
    /// Goes on with the run in this directory from its latest checkpoint.
    #[arg(long, value_name = "RUN_DIRECTORY", conflicts_with_all = ["configs", "run_dir", "overwrite"])]
    resume: Option<PathBuf>,
    /// Trains on rewards by chance instead of verdicts.
    #[arg(long, value_parser = ["random"])]
    control: Option<String>,
}

/// Arguments of a run.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The run's config (TOML), and overlays over it: keys of later files win.
    #[arg(value_name = "CONFIG")]
    configs: Vec<PathBuf>,
    /// Replaces a key, such as `train.steps=5`. Wins over the files and over variables such as `FIREBRICK__TRAIN__STEPS=5`.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// `cpu`, `ndarray`, `cuda:N` or `wgpu`, as far as they are compiled in.
    #[arg(long, default_value = "cpu")]
    device: DeviceChoice,
    /// Replaces the config's seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Replaces the number of steps.
    #[arg(long)]
    steps: Option<usize>,
    /// Replaces the run directory.
    #[arg(long)]
    run_dir: Option<PathBuf>,
    /// Removes an earlier run in the run directory.
    #[arg(long)]
    overwrite: bool,
    /// Checks the config and prints it with all defaults, without running it.
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `firebrick sft`.
#[derive(Debug, Args)]
pub(crate) struct SftArguments {
    #[command(flatten)]
    run: RunArguments,
}

impl RunArguments {
    /// The config that files, environment and arguments make together.
    fn config(&self, files: &[PathBuf]) -> anyhow::Result<RunConfig> {
        anyhow::ensure!(!files.is_empty(), "name a config, or a run directory with --resume");
        // A name that is not UTF-8 is none of ours; a value that is not shows up in the error of its key.
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        });
        let layers = ConfigLayers::default().environment(variables);
        let layers = files.iter().fold(layers, |layers, path| layers.file(path));
        let mut config = self.set.iter().fold(layers, |layers, given| layers.set(given)).load()?;
        if let Some(seed) = self.seed {
            config.train.seed = RootSeed(seed);
        }
        if let Some(steps) = self.steps {
            config.train.steps = steps;
        }
        if let Some(directory) = &self.run_dir {
            config.run.directory = directory.clone();
        }
        config.run.overwrite |= self.overwrite;
        Ok(config)
    }
}

pub(crate) fn train(arguments: &TrainArguments) -> anyhow::Result<()> {
    let mut options = RunOptions { resume: arguments.resume.is_some(), ..RunOptions::default() };
    let mut config = match &arguments.resume {
        Some(directory) => {
            let path = directory.join("config.toml");
            anyhow::ensure!(
                path.is_file(),
                "{} holds no run to go on with: there is no config.toml in it",
                directory.display()
            );
            let mut config = arguments.run.config(&[path])?;
            config.run.directory.clone_from(directory); // it may have been moved
            config.run.overwrite = false;
            config
        }
        None => arguments.run.config(&arguments.run.configs)?,
    };
    if arguments.control.is_some() {
        config.control = Control::Random;
    }
    config.validate()?;
    if arguments.run.dry_run {
        return print_resolved(&config, arguments.run.device);
    }
    options.stop = stop_on_signals()?;
    arguments.run.device.probe()?;
    options.free_memory = arguments.run.device.free_memory();
    let summary =
        on_device(arguments.run.device, Train { config: &config, options: &options, work: Work::Train });
    report(&config, arguments.run.device, &with_hint(&config, summary)?);
    Ok(())
}

pub(crate) fn sft(arguments: &SftArguments) -> anyhow::Result<()> {
    let config = arguments.run.config(&arguments.run.configs)?;
    config.validate()?;
    if arguments.run.dry_run {
        return print_resolved(&config, arguments.run.device);
    }
    arguments.run.device.probe()?;
    let free_memory = arguments.run.device.free_memory();
    let options = RunOptions { resume: false, stop: stop_on_signals()?, free_memory };
    let task = Train { config: &config, options: &options, work: Work::FineTune };
    report(&config, arguments.run.device, &on_device(arguments.run.device, task)?);
    Ok(())
}

/// Prints the config with all defaults, and in comments, so that the whole output is a config again, what the run would take and what
/// the machine lacks for it.
#[expect(clippy::print_stdout, reason = "the command talks to its user")]
fn print_resolved(config: &RunConfig, device: DeviceChoice) -> anyhow::Result<()> {
    let mut lacking = Vec::new();
    let is_there = |path: &Path| path.exists();
    if let ModelSection::Pretrained(model) = &config.model
        && model.is_missing()
    {
        lacking.push(format!("the model folder {}", model.path.display()));
    }
    let files =
        [Some(&config.data.train), Some(&config.data.held_out), config.data.worked_solutions.as_ref()];
    lacking.extend(
        files
            .into_iter()
            .flatten()
            .filter(|path| !is_there(path))
            .map(|path| format!("the data file {}", path.display())),
    );
    // Without model or data the longest prompt is what the model has room for.
    let room = config.decoder()?.max_position_embeddings.saturating_sub(config.train.sampling.max_new_tokens);
    let data = if lacking.is_empty() { Some(inspect_data(config)?) } else { None };
    print!("{}", toml::to_string(config)?);
    println!();
    if let Some(data) = &data {
        println!(
            "# {} problems to train on ({} over-long), {} to evaluate on ({} over-long), {} worked solutions; the longest prompt has {} tokens.",
            data.train,
            data.over_long[0],
            data.held_out,
            data.over_long[1],
            data.worked_solutions,
            data.longest_prompt
        );
    }
    let longest = data.map_or(room, |data| data.longest_prompt);
    println!("# Memory of the tensors, estimated for prompts of at most {longest} tokens:");
    let estimate = MemoryEstimate::of(config, longest)?;
    for line in estimate.to_string().lines() {
        println!("# {line}");
    }
    match device.probe() {
        Err(error) => lacking.push(format!("the device ({error})")),
        Ok(()) => {
            if let Some(free) = device.free_memory() {
                println!("# {} MiB are free on {device}.", free >> 20);
                let more = estimate.total().saturating_sub(free);
                lacking.extend((more > 0).then(|| format!("{} MiB of memory", more.div_ceil(1 << 20))));
            }
        }
    }
    match lacking.is_empty() {
        true => println!("# Nothing is lacking on this machine."),
        false => println!("# This machine lacks {}.", lacking.join(", ")),
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the command talks to its user")]
fn report(config: &RunConfig, device: DeviceChoice, summary: &RunSummary) {
    for (name, report) in [("before", &summary.before), ("after", &summary.after)] {
        println!("held-out {name}: avg@{} {} ({} problems)", report.k, report.avg_at_k, report.problems);
    }
    let on_host = matches!(device, DeviceChoice::Cpu | DeviceChoice::NdArray);
    if let Some(peak) = peak_resident_bytes().filter(|_| on_host) {
        let (estimate, peak) = (summary.memory.total() >> 20, peak >> 20);
        println!("memory: {estimate} MiB estimated for the tensors, {peak} MiB resident at the peak");
    }
    println!("run directory: {}", config.run.directory.display());
}

/// Says how to go on where a run ended in the middle.
fn with_hint(config: &RunConfig, outcome: anyhow::Result<RunSummary>) -> anyhow::Result<RunSummary> {
    let directory = &config.run.directory;
    outcome.map_err(|error| {
        let in_the_middle = matches!(
            error.downcast_ref(),
            Some(
                RunError::Trainer(_)
                    | RunError::RunDirectory(_)
                    | RunError::Checkpoint(CheckpointError::Write { .. } | CheckpointError::Model(_))
            )
        );
        if in_the_middle && directory.join("checkpoints/latest").exists() {
            return error.context(format!(
                "the run ended early; go on from its latest checkpoint with `firebrick train --resume {}`",
                directory.display()
            ));
        }
        error
    })
}

/// The first SIGINT or SIGTERM asks the run to stop, a second one ends the process at once.
fn stop_on_signals() -> anyhow::Result<StopSignal> {
    use signal_hook::{
        consts::{SIGINT, SIGTERM},
        flag,
    };
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 128 + signal, asked.clone())
            .and_then(|_| flag::register(signal, asked.clone()))
            .context("signals cannot be caught")?;
    }
    Ok(StopSignal::from_flag(asked))
}

#[derive(Debug, Clone, Copy)]
enum Work {
    Train,
    FineTune,
}

struct Train<'a> {
    config: &'a RunConfig,
    options: &'a RunOptions,
    work: Work,
}

impl DeviceTask for Train<'_> {
    type Output = RunSummary;

    fn run<B>(self, device: B::Device) -> anyhow::Result<RunSummary>
    where
        B: AutodiffBackend + FusedOps,
        B::InnerBackend: FusedOps,
    {
        Ok(match self.work {
            Work::Train => run::<B>(self.config, self.options, device)?,
            Work::FineTune => fine_tune::<B>(self.config, self.options, device)?,
        })
    }
}

//! `firebrick eval`: accuracy of a model on held-out problems.

use std::path::PathBuf;

use anyhow::Context;
use burn::tensor::backend::AutodiffBackend;
use clap::Args;
use firebrick_core::{Prompt, RootSeed};
use firebrick_models::FusedOps;
use firebrick_trainer::{EvaluationReport, RunConfig, plan_of, read_prompts, trainer_of};

use crate::{
    backend::{DeviceTask, on_device},
    device::DeviceChoice,
    model_folder::model_folder,
};

/// Arguments of `firebrick eval`.
#[derive(Debug, Args)]
pub(crate) struct EvalArguments {
    /// The run directory, whose config says how to evaluate.
    run: PathBuf,
    /// The checkpoint (`step_20`, `latest`, `best`) instead of the final model.
    #[arg(long)]
    checkpoint: Option<String>,
    /// Problems (JSONL) instead of the config's held-out ones.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Completions per problem instead of the config's.
    #[arg(long)]
    samples: Option<usize>,
    /// Seed instead of the config's.
    #[arg(long)]
    seed: Option<u64>,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    /// `cpu`, `ndarray`, `cuda:N` or `wgpu`, as far as they are compiled in.
    #[arg(long, default_value = "cpu")]
    device: DeviceChoice,
}

#[expect(clippy::print_stdout, reason = "the command talks to its user")]
pub(crate) fn eval(arguments: &EvalArguments) -> anyhow::Result<()> {
    let mut config = RunConfig::read(&arguments.run.join("config.toml"))
        .with_context(|| format!("{} is no run directory", arguments.run.display()))?;
    config.run.initial_model = Some(model_folder(&arguments.run, arguments.checkpoint.as_deref())?);
    if let Some(samples) = arguments.samples {
        config.evaluation.samples = samples;
    }
    if let Some(seed) = arguments.seed {
        config.train.seed = RootSeed(seed);
    }
    if let Some(data) = &arguments.data {
        config.data.held_out.clone_from(data);
    }
    config.validate()?;
    let prompts = read_prompts(&config.data.held_out)?;
    let report = on_device(arguments.device, Evaluate { config: &config, prompts: &prompts })?;
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
        return Ok(());
    }
    println!("{} problems, {} completions each", report.problems, report.k);
    println!("avg@{}: {}", report.k, report.avg_at_k);
    for (n, estimate) in &report.pass_at {
        println!("pass@{n}: {estimate}");
    }
    println!(
        "mean length {:.1} tokens, {:.1} % truncated, {:.1} % without a verdict",
        report.mean_length,
        report.truncated * 100.0,
        report.unscored * 100.0
    );
    Ok(())
}

struct Evaluate<'a> {
    config: &'a RunConfig,
    prompts: &'a [Prompt],
}

impl DeviceTask for Evaluate<'_> {
    type Output = EvaluationReport;

    fn run<B>(self, device: B::Device) -> anyhow::Result<EvaluationReport>
    where
        B: AutodiffBackend + FusedOps,
        B::InnerBackend: FusedOps,
    {
        let mut trainer = trainer_of::<B>(self.config, plan_of(self.config)?, device)?;
        Ok(trainer.evaluate(self.prompts, &self.config.evaluation)?)
    }
}

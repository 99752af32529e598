//! `firebrick eval`: accuracy of a model on held-out problems.

use std::path::{Path, PathBuf};

use anyhow::Context;
use burn::tensor::backend::AutodiffBackend;
use clap::Args;
use firebrick_core::{Prompt, RootSeed};
use firebrick_models::FusedOps;
use firebrick_trainer::{EvaluationReport, RunConfig, plan_of, trainer_of};

use crate::{
    backend::{DeviceTask, on_device},
    device::DeviceChoice,
    eval_model::{EvalSettings, ModelEvaluation},
    grade::verifier_named,
    model_folder::model_folder,
};

/// Arguments of `firebrick eval`.
#[derive(Debug, Args)]
pub(crate) struct EvalArguments {
    /// The run directory, whose config says how to evaluate; with DATA a run directory or any model folder.
    run: PathBuf,
    /// Problems (JSONL or Parquet) to evaluate a model folder on, without a config.
    #[arg(value_name = "DATA")]
    data_file: Option<PathBuf>,
    /// The checkpoint (`step_20`, `latest`, `best`) instead of the final model.
    #[arg(long)]
    checkpoint: Option<String>,
    /// Problems instead of the config's held-out ones.
    #[arg(long, conflicts_with = "data_file")]
    data: Option<PathBuf>,
    /// Completions per problem; the config's, or 1, when left out.
    #[arg(long = "k", alias = "samples", value_name = "K")]
    samples: Option<usize>,
    /// Seed; the config's, or 0, when left out.
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    of_folder: FolderArguments,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    /// `cpu`, `ndarray`, `cuda:N` or `wgpu`, as far as they are compiled in.
    #[arg(long, default_value = "cpu")]
    device: DeviceChoice,
}

/// Arguments of an evaluation without a config.
#[derive(Debug, Args)]
struct FolderArguments {
    /// With DATA: a verifier with its defaults (`math_verify`, `gsm8k`, `code`, ...), or a config (`.toml`) whose table `reward` is used.
    #[arg(
        long,
        requires = "data_file",
        default_value_if("data_file", clap::builder::ArgPredicate::IsPresent, "math_verify")
    )]
    verifier: Option<String>,
    /// With DATA: where completions and report are written; an evaluation that was ended goes on there.
    #[arg(long, requires = "data_file", value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// With DATA: removes an earlier evaluation in the folder.
    #[arg(long, requires = "data_file")]
    overwrite: bool,
    /// With DATA: most new tokens.
    #[arg(long, default_value_t = 512)]
    max_new_tokens: usize,
    /// With DATA: 0 is greedy.
    #[arg(long, default_value_t = 1.0)]
    temperature: f64,
    /// With DATA: keeps the most probable tokens up to this mass.
    #[arg(long, default_value_t = 1.0)]
    top_p: f64,
    /// With DATA: a completion is correct when its reward is at least this.
    #[arg(long, default_value_t = 1.0)]
    success_reward: f64,
    /// With DATA: completions that are generated at once.
    #[arg(long, default_value_t = 64)]
    rows: usize,
}

fn eval_folder(arguments: &EvalArguments, data: &Path) -> anyhow::Result<()> {
    let model = model_folder(&arguments.run, arguments.checkpoint.as_deref())?;
    let of_folder = &arguments.of_folder;
    let verifier = of_folder.verifier.clone().unwrap_or_else(|| "math_verify".to_owned());
    let name = data.file_stem().unwrap_or_default().to_string_lossy();
    let out = of_folder.out.clone().unwrap_or_else(|| PathBuf::from(format!("eval-{name}")));
    ModelEvaluation {
        verifier: verifier_named(&verifier)?,
        settings: EvalSettings {
            model,
            data: data.to_owned(),
            verifier,
            k: arguments.samples.unwrap_or(1),
            success_reward: of_folder.success_reward,
            temperature: of_folder.temperature,
            top_p: of_folder.top_p,
            max_new_tokens: of_folder.max_new_tokens,
            seed: arguments.seed.unwrap_or(0),
        },
        out: &out,
        overwrite: of_folder.overwrite,
        rows: of_folder.rows,
        json: arguments.json,
    }
    .run(arguments.device)
}

#[expect(clippy::print_stdout, reason = "the command talks to its user")]
pub(crate) fn eval(arguments: &EvalArguments) -> anyhow::Result<()> {
    if let Some(data) = &arguments.data_file {
        return eval_folder(arguments, data);
    }
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
    let prompts = config.data.reader().prompts(&config.data.held_out)?;
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

//! `firebrick bench replay`: another look at a batch that was skipped.

use std::path::{Path, PathBuf};

use anyhow::Context;
use burn::tensor::backend::AutodiffBackend;
use clap::Args;
use firebrick_models::FusedOps;
use firebrick_trainer::{ReplayReport, RunConfig, plan_of, trainer_of};

use crate::{
    backend::{DeviceTask, on_device},
    device::DeviceChoice,
};

/// Arguments of `firebrick bench replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    /// The dump: a folder `dumps/step_N_update_K` of a run.
    dump: PathBuf,
    /// `cpu`, `ndarray`, `cuda:N` or `wgpu`, as far as they are compiled in.
    #[arg(long, default_value = "cpu")]
    device: DeviceChoice,
}

#[expect(clippy::print_stdout, reason = "the command talks to its user")]
pub(crate) fn replay(arguments: &ReplayArguments) -> anyhow::Result<()> {
    let config = RunConfig::read(&arguments.dump.join("config.toml"))
        .with_context(|| format!("{} is no dump of a run", arguments.dump.display()))?;
    let report = on_device(arguments.device, Replay { config: &config, dump: &arguments.dump })?;
    println!("recorded: {}", report.recorded);
    println!("now:      {}", report.fault.as_deref().unwrap_or("all numbers are finite"));
    println!("\n{:>6}  {:>10}  {:<14}  row alone", "tokens", "advantage", "loss");
    for row in &report.rows {
        let (loss, fault) = match &row.loss {
            Ok(loss) => (format!("{loss:.6e}"), String::new()),
            Err(fault) => ("not finite".to_owned(), format!(": {fault}")),
        };
        println!("{:>6}  {:>10.4}  {loss:<14}  {}{fault}", row.tokens, row.advantage, row.name);
    }
    Ok(())
}

struct Replay<'a> {
    config: &'a RunConfig,
    dump: &'a Path,
}

impl DeviceTask for Replay<'_> {
    type Output = ReplayReport;

    fn run<B>(self, device: B::Device) -> anyhow::Result<ReplayReport>
    where
        B: AutodiffBackend + FusedOps,
        B::InnerBackend: FusedOps,
    {
        let mut trainer = trainer_of::<B>(self.config, plan_of(self.config)?, device)?;
        Ok(trainer.replay(self.dump)?)
    }
}

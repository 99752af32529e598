//! `firebrick bench`.

use std::time::Instant;

use clap::{Args, Subcommand};

use crate::{
    bench_model::{ModelArguments, bench_model},
    bench_scores::{ScoresArguments, bench_scores},
    bench_step::{StepArguments, bench_step},
    replay::{ReplayArguments, replay},
};

/// Arguments of `firebrick bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Measures training steps of a decoder with random weights on random prompts.
    Step(StepArguments),
    /// Measures how fast a model from a folder reads, writes and learns.
    Model(ModelArguments),
    /// Measures time and memory of the log-probs of chosen tokens over a large vocabulary.
    Scores(ScoresArguments),
    /// Runs the batch of a skipped optimizer step again, as a whole and row by row.
    Replay(ReplayArguments),
}

/// Runs a benchmark in the process that began at `started`.
pub(crate) fn bench(arguments: &BenchArguments, started: Instant) -> anyhow::Result<()> {
    match &arguments.command {
        BenchCommand::Step(arguments) => bench_step(arguments, started),
        BenchCommand::Model(arguments) => bench_model(arguments),
        BenchCommand::Scores(arguments) => bench_scores(arguments),
        BenchCommand::Replay(arguments) => replay(arguments),
    }
}

//! The `firebrick` command.
//!
//! `firebrick train CONFIG` runs a config: warm start, evaluation, reinforcement learning, evaluation. Relative paths in the
//! config are relative to the working directory.

mod backend;
mod device;
mod train;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(version, about = "RL post-training of language models, as bricks that fit together")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a config.
    Train(train::TrainArguments),
}

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()),
        )
        .with_target(false)
        .init();
    match Arguments::parse().command {
        Command::Train(arguments) => train::train(&arguments),
    }
}

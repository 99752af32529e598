//! The `firebrick` command: `train`, `sft`, `eval`, `generate`, `grade`, `data`, `objectives`, `explain`, `bench`.
//!
//! Relative paths in a config are relative to the working directory.

mod backend;
mod bench;
mod bench_model;
mod bench_report;
mod bench_scores;
mod bench_step;
mod bench_task;
mod data;
mod device;
mod eval;
mod eval_model;
mod explain;
mod explain_plot;
mod generate;
mod grade;
mod model_folder;
mod objectives;
mod replay;
mod say;
mod train;

use std::{process::ExitCode, time::Instant};

use clap::{Parser, Subcommand};
use firebrick_trainer::{RunError, keep_freed_memory};

/// What shells report of a process that SIGINT ended.
const INTERRUPTED: u8 = 130;

#[derive(Debug, Parser)]
#[command(version, about = "RL post-training of language models, as bricks that fit together")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a config: warm start, reinforcement learning, evaluation; or goes on with a run.
    Train(train::TrainArguments),
    /// Fine-tunes a model on worked solutions only.
    Sft(train::SftArguments),
    /// Evaluates the model of a run on held-out problems, or any model folder on a data file.
    Eval(eval::EvalArguments),
    /// Prints completions of a prompt.
    Generate(generate::GenerateArguments),
    /// Grades completions, or finds the reference answers that cannot be graded.
    Grade(grade::GradeArguments),
    /// Makes data sets of generated problems.
    Data(data::DataArguments),
    /// Lists the published objectives with their parts.
    Objectives(objectives::ObjectivesArguments),
    /// Shows what an objective does with a response, token by token.
    Explain(explain::ExplainArguments),
    /// Measures how fast this machine is, or looks at a skipped batch again.
    Bench(bench::BenchArguments),
}

fn main() -> ExitCode {
    let started = Instant::now();
    keep_freed_memory();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()),
        )
        .with_target(false)
        .with_writer(std::io::stderr)
        .init();
    let outcome = match Arguments::parse().command {
        Command::Train(arguments) => train::train(&arguments),
        Command::Sft(arguments) => train::sft(&arguments),
        Command::Eval(arguments) => eval::eval(&arguments),
        Command::Generate(arguments) => generate::generate(&arguments),
        Command::Grade(arguments) => grade::grade(&arguments),
        Command::Data(arguments) => data::data(&arguments),
        Command::Objectives(arguments) => objectives::objectives(&arguments),
        Command::Explain(arguments) => explain::explain(&arguments),
        Command::Bench(arguments) => bench::bench(&arguments, started),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

#[expect(clippy::print_stderr, reason = "the command talks to its user")]
fn fail(error: &anyhow::Error) -> ExitCode {
    if let Some(stopped @ RunError::Stopped { .. }) = error.downcast_ref() {
        eprintln!("{stopped}");
        return ExitCode::from(INTERRUPTED);
    }
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

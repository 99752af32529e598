//! `firebrick data`: data sets of generated problems.

use std::{fmt::Write as _, path::PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use firebrick_core::RootSeed;
use firebrick_reward::tasks::{self, SplitBy, TaskConfig, TaskRow, TaskSplit};
use firebrick_trainer::ConfigLayers;

use crate::say::say;

/// Arguments of `firebrick data`.
#[derive(Debug, Args)]
pub(crate) struct DataArguments {
    #[command(subcommand)]
    command: DataCommand,
}

#[derive(Debug, Subcommand)]
enum DataCommand {
    /// Generates problems of a task as JSONL.
    Make(MakeArguments),
    /// Lists the tasks.
    Tasks,
}

#[derive(Debug, Args)]
struct MakeArguments {
    /// The task; `firebrick data tasks` lists them.
    task: String,
    /// How many problems.
    #[arg(long, short)]
    n: usize,
    /// Seed: the same one makes the same problems on every machine.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Replaces a setting of the task, such as `max_terms=6`.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The file to write; standard output when left out.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Writes a right response to each problem here, as `firebrick sft` reads them.
    #[arg(long)]
    worked_solutions: Option<PathBuf>,
    /// Writes right responses to so many other problems instead.
    #[arg(long, requires = "worked_solutions")]
    n_worked_solutions: Option<usize>,
    /// Makes held-out problems as well, whose worked solutions are none of those to train on, and writes them here.
    #[arg(long, requires = "n_held_out")]
    held_out: Option<PathBuf>,
    /// How many held-out problems.
    #[arg(long, requires = "held_out")]
    n_held_out: Option<usize>,
    /// Keeps held-out problems apart by their prompts only.
    #[arg(long, requires = "held_out")]
    split_by_prompt: bool,
}

pub(crate) fn data(arguments: &DataArguments) -> anyhow::Result<()> {
    match &arguments.command {
        DataCommand::Make(arguments) => make(arguments),
        DataCommand::Tasks => {
            say(&TaskConfig::names().iter().fold(String::new(), |text, name| text + name + "\n"))
        }
    }
}

fn make(arguments: &MakeArguments) -> anyhow::Result<()> {
    let task = task(arguments)?;
    let (n, seed) = (arguments.n, RootSeed(arguments.seed));
    let by = if arguments.split_by_prompt { SplitBy::Prompt } else { SplitBy::Solution };
    let n_others = arguments.n_worked_solutions.unwrap_or(0);
    let TaskSplit { mut train, held_out } = match arguments.n_held_out {
        Some(n_held_out) => tasks::make_split(&task, n + n_others, n_held_out, seed, by)?,
        None => TaskSplit { train: tasks::make(&task, n + n_others, seed)?, held_out: Vec::new() },
    };
    let others = train.split_off(n);
    let write = |path: &PathBuf, text: String| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    if let Some(path) = &arguments.worked_solutions {
        let solved = if arguments.n_worked_solutions.is_some() { &others } else { &train };
        write(path, lines(solved, TaskRow::worked_solution_json))?;
    }
    if let Some(path) = &arguments.held_out {
        write(path, lines(&held_out, TaskRow::to_json))?;
    }
    let text = lines(&train, TaskRow::to_json);
    match &arguments.out {
        Some(path) => write(path, text),
        None => say(&text),
    }
}

/// The task with its settings.
fn task(arguments: &MakeArguments) -> anyhow::Result<TaskConfig> {
    let named = format!("[task]\ntype = {}", toml::Value::from(arguments.task.as_str()));
    let layers = ConfigLayers::default().text("task", named);
    let layers = arguments.set.iter().fold(layers, |layers, set| layers.set(format!("task.{set}")));
    let task: TaskConfig = layers.load_table("task", |_| Ok(()))?;
    task.validate()?;
    Ok(task)
}

fn lines(rows: &[TaskRow], json: impl Fn(&TaskRow) -> String) -> String {
    rows.iter().fold(String::new(), |mut text, row| {
        let _ = writeln!(text, "{}", json(row)); // writing to a string does not fail
        text
    })
}

//! Sets of different problems.

use std::collections::HashSet;

use firebrick_core::{RootSeed, SeedStream};
use serde::{Deserialize, Serialize};

use super::{TaskConfig, TaskError, TaskRow};

/// Returns `n` problems of a task with different prompts, in the order of their indices.
///
/// # Errors
/// When the settings are out of range, or the task seems to have fewer than `n` different problems.
pub fn make(config: &TaskConfig, n: usize, seed: RootSeed) -> Result<Vec<TaskRow>, TaskError> {
    let [rows] = collect(config, [n], seed, |_| 0)?;
    Ok(rows)
}

/// What two sets of problems do not share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SplitBy {
    /// No prompt; a program may be asked for in both sets, by other examples.
    Prompt,
    /// No worked solution, so also no prompt: of programs, none of one set is asked for in the other; of other tasks, none of its
    /// answers.
    Solution,
}

/// Problems to train on and problems to evaluate with.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSplit {
    /// To train on.
    pub train: Vec<TaskRow>,
    /// To evaluate with.
    pub held_out: Vec<TaskRow>,
}

/// Returns two sets of problems with different prompts that share nothing of what `by` names.
///
/// Under [`SplitBy::Solution`] a solution belongs to one of the sets by chance, to `held_out` with the probability that is its part of
/// all rows, kept within 5 % and 50 %.
///
/// # Errors
/// When the settings are out of range, or the task seems to have too few different problems.
pub fn make_split(
    config: &TaskConfig,
    n_train: usize,
    n_held_out: usize,
    seed: RootSeed,
    by: SplitBy,
) -> Result<TaskSplit, TaskError> {
    let sizes = [n_held_out, n_train];
    let [held_out, train] = match by {
        SplitBy::Prompt => {
            let [mut rows] = collect(config, [n_train + n_held_out], seed, |_| 0)?;
            let train = rows.split_off(n_held_out);
            [rows, train]
        }
        SplitBy::Solution => {
            let part = (n_held_out as f64 / (n_train + n_held_out).max(1) as f64).clamp(0.05, 0.5);
            collect(config, sizes, seed, |row| {
                let solution: Vec<u64> = row.worked_solution().bytes().map(u64::from).collect();
                let draw = seed.seed(SeedStream::Problem, &solution) as f64 / u64::MAX as f64;
                usize::from(draw >= part)
            })?
        }
    };
    Ok(TaskSplit { train, held_out })
}

/// Fills sets of these sizes with problems of different prompts; `set_of` says where a problem may go.
fn collect<const SETS: usize>(
    config: &TaskConfig,
    sizes: [usize; SETS],
    seed: RootSeed,
    set_of: impl Fn(&TaskRow) -> usize,
) -> Result<[Vec<TaskRow>; SETS], TaskError> {
    let generator = config.build()?;
    let asked: usize = sizes.iter().sum();
    let mut sets = [const { Vec::new() }; SETS];
    let mut seen = HashSet::new();
    let (mut found, mut since, mut index) = (0, 0, 0);
    while found < asked {
        let row = generator.generate(seed, index);
        index += 1;
        let set = set_of(&row);
        if sets[set].len() < sizes[set] && seen.insert(row.prompt.clone()) {
            sets[set].push(row);
            (found, since) = (found + 1, 0);
            continue;
        }
        since += 1;
        // a space of exactly `found` + 1 equally likely problems shows its last one within so many draws but for once in e⁴
        if since > 1000 + 4 * found {
            let settings = serde_json::to_string(config).expect("settings are JSON");
            return Err(TaskError::Exhausted { task: config.name(), asked, found, draws: index, settings });
        }
    }
    Ok(sets)
}

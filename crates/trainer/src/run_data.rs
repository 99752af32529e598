//! The data of a run, read and checked against the model before a weight exists.

use std::{collections::BTreeMap, path::Path};

use firebrick_core::{Prompt, Tokenizer};
use serde::{Deserialize, Serialize};

use crate::{
    DataError, RunConfig, RunConfigError, RunError, TrainerError, WorkedSolution, checkpoint::sha256_of,
    run_tokenizer::RunTokenizer,
};

/// What happens to prompts that leave no room for the longest response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverLongPrompts {
    /// The run is refused.
    #[default]
    Error,
    /// They are left out, and counted.
    Drop,
    /// They are cut to their last tokens, and counted.
    TruncateLeft,
}

/// What the data of a run amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataSummary {
    /// Problems to train on.
    pub train: usize,
    /// Problems to evaluate on.
    pub held_out: usize,
    /// Worked solutions.
    pub worked_solutions: usize,
    /// Prompts that are dropped or truncated: of the training problems, of the held-out ones.
    pub over_long: [usize; 2],
    /// Tokens of the longest prompt.
    pub longest_prompt: usize,
}

/// Reads and checks the data of a run, as a run would.
///
/// # Errors
/// Names the file, the row and what is wrong with it.
pub fn inspect_data(config: &RunConfig) -> Result<DataSummary, RunError> {
    let data = RunData::read(config)?;
    Ok(DataSummary {
        train: data.train.len(),
        held_out: data.held_out.len(),
        worked_solutions: data.solutions.len(),
        over_long: data.over_long,
        longest_prompt: data.longest_prompt,
    })
}

/// Tokenizer, problems and worked solutions of a run.
#[derive(Debug)]
pub(crate) struct RunData {
    pub(crate) tokenizer: RunTokenizer,
    pub(crate) train: Vec<Prompt>,
    pub(crate) held_out: Vec<Prompt>,
    pub(crate) solutions: Vec<WorkedSolution>,
    /// Prompts that were dropped or are truncated: of the training problems, of the held-out ones.
    pub(crate) over_long: [usize; 2],
    /// Most tokens of a prompt.
    pub(crate) prompt_limit: usize,
    /// Tokens of the longest prompt.
    pub(crate) longest_prompt: usize,
    /// SHA-256 of each file, by its config key.
    pub(crate) digests: BTreeMap<String, String>,
}

impl RunData {
    pub(crate) fn read(config: &RunConfig) -> Result<Self, RunError> {
        let tokenizer = RunTokenizer::of(config)?;
        let positions = config.decoder()?.max_position_embeddings;
        let prompt_limit = positions.saturating_sub(config.train.sampling.max_new_tokens);
        let reader = config.data.reader();
        let mut train = reader.prompts(&config.data.train)?;
        let mut held_out = reader.prompts(&config.data.held_out)?;
        let (mut over_long, mut longest_prompt) = ([0; 2], 0);
        for (prompts, count) in [&mut train, &mut held_out].into_iter().zip(&mut over_long) {
            let (over, longest) = fit(prompts, config, &tokenizer, positions)?;
            *count = over;
            longest_prompt = longest_prompt.max(longest);
        }
        for (key, path, left) in [
            ("data.train", &config.data.train, train.len()),
            ("data.held_out", &config.data.held_out, held_out.len()),
        ] {
            if left == 0 {
                return Err(RunError::AllDropped { key, path: path.clone(), limit: prompt_limit });
            }
        }
        let sources: Vec<&str> =
            train.iter().chain(&held_out).map(|prompt| prompt.data_source.as_str()).collect();
        config
            .reward
            .check_sources(&sources)
            .map_err(|error| RunConfigError::from(error.within("reward")))?;
        let solutions = config.data.worked_solutions.as_deref();
        let solutions = solutions.map(|path| reader.worked_solutions(path)).transpose()?;
        let solutions = solutions.unwrap_or_default();
        check_solutions(&solutions, &tokenizer, positions)?;
        let mut digests = BTreeMap::new();
        let files = [
            ("data.train", Some(&config.data.train)),
            ("data.held_out", Some(&config.data.held_out)),
            ("data.worked_solutions", config.data.worked_solutions.as_ref()),
        ];
        for (key, path) in files.into_iter().filter_map(|(key, path)| Some((key, path?))) {
            digests.insert(key.to_owned(), digest(path)?);
        }
        digests.extend(
            tokenizer.chat_template_sha256().map(|digest| ("tokenizer.chat_template".into(), digest)),
        );
        if config.adapter()?.is_some() {
            // Frozen weights are not in the checkpoints: a continuation needs the same.
            let files = match (config.model.folder()?, &config.run.initial_model) {
                (Some(folder), _) => folder.weight_files()?,
                (None, Some(folder)) => vec![folder.join("model.safetensors")],
                (None, None) => Vec::new(),
            };
            for path in files {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                digests.insert(format!("the base model's {name}"), digest(&path)?);
            }
        }
        Ok(Self { tokenizer, train, held_out, solutions, over_long, prompt_limit, longest_prompt, digests })
    }
}

fn digest(path: &Path) -> Result<String, DataError> {
    sha256_of(path).map_err(|source| DataError::Open { path: path.to_owned(), source })
}

/// Applies the rule for over-long prompts; returns how many there were, and the tokens of the longest prompt that is left.
fn fit(
    prompts: &mut Vec<Prompt>,
    config: &RunConfig,
    tokenizer: &dyn Tokenizer,
    positions: usize,
) -> Result<(usize, usize), RunError> {
    let limit = positions.saturating_sub(config.train.sampling.max_new_tokens);
    let (mut over_long, mut longest) = (0, 0);
    let mut kept = Vec::with_capacity(prompts.len());
    for prompt in prompts.drain(..) {
        let failed = |source| TrainerError::Prompt { id: prompt.id.clone(), source };
        let messages =
            if config.objective.parts.guided_prompts { &prompt.guided_messages() } else { &prompt.messages };
        let tokens = tokenizer.encode_chat(messages).map_err(failed)?.len();
        let fits = tokens <= limit;
        over_long += usize::from(!fits);
        match config.data.over_long_prompts {
            OverLongPrompts::Drop if !fits && tokens > 0 => {}
            OverLongPrompts::TruncateLeft if tokens > 0 && limit > 0 => {
                longest = longest.max(tokens.min(limit));
                kept.push(prompt);
            }
            _ if fits && tokens > 0 => {
                longest = longest.max(tokens);
                kept.push(prompt);
            }
            _ => {
                return Err(RunError::PromptLength {
                    id: prompt.id,
                    tokens,
                    max_new: config.train.sampling.max_new_tokens,
                    limit: positions,
                });
            }
        }
    }
    *prompts = kept;
    Ok((over_long, longest))
}

/// Checks that every worked solution has a prompt and fits into the model's positions.
fn check_solutions(
    solutions: &[WorkedSolution],
    tokenizer: &dyn Tokenizer,
    limit: usize,
) -> Result<(), RunError> {
    for (index, solution) in solutions.iter().enumerate() {
        let failed = |source| TrainerError::WorkedSolution { index, source };
        let prompt = tokenizer.encode_chat(&solution.messages).map_err(failed)?.len();
        let response = tokenizer.encode(&solution.response).map_err(failed)?.len() + 1;
        if prompt == 0 || prompt + response > limit {
            return Err(RunError::SolutionLength { row: index + 1, prompt, response, limit });
        }
    }
    Ok(())
}

//! The batch of an optimizer step that met a number which is not finite, written down so that it can be looked at again.
//!
//! A dump is a folder: `model.safetensors`, `batch.safetensors` (tokens, log-probs and advantages of all rows, one after
//! another, with their lengths), `batch.json` (names of the rows, the fault, state of the plug-ins) and the run's `config.toml`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use burn::{
    module::Module,
    tensor::{TensorData, backend::Backend},
};
use firebrick_core::{Anchor, LogProbs, ResponseContext, TokenId, TopK};
use firebrick_models::{ModelError, load_tensors, save_safetensors, save_tensors};
use serde::{Deserialize, Serialize};

use crate::{Sequence, TrainerError, optimizer_batch::TrainRow};

pub(crate) const MODEL: &str = "model.safetensors";
const TENSORS: &str = "batch.safetensors";
const NAMES: &str = "batch.json";

/// State of the stateful parts, by name.
pub(crate) type Parts = BTreeMap<String, serde_json::Value>;

/// What JSON can hold of a batch.
#[derive(Debug, Serialize, Deserialize)]
struct Names {
    fault: String,
    rows: Vec<String>,
    max_response_len: Vec<usize>,
    anchor: Anchor,
    /// Tokens per position of the behaviour policy's most likely ones; 0 without.
    top_k: usize,
    parts: Parts,
}

/// Writes a dump.
pub(crate) fn write<B: Backend, M: Module<B>>(
    folder: &Path,
    model: &M,
    anchor: Anchor,
    rows: &[&TrainRow],
    parts: &Parts,
    fault: &TrainerError,
) -> Result<(), DumpError> {
    let io = |source| DumpError::Io { path: folder.to_owned(), source };
    fs::create_dir_all(folder).map_err(io)?;
    let names = Names {
        fault: fault.to_string(),
        rows: rows.iter().map(|row| row.name.clone()).collect(),
        max_response_len: rows.iter().map(|row| row.context.max_response_len()).collect(),
        anchor,
        top_k: rows.first().and_then(|row| row.context.top_k()).map_or(0, |top_k| top_k.k),
        parts: parts.clone(),
    };
    let text = serde_json::to_string_pretty(&names).map_err(|error| io(error.into()))?;
    fs::write(folder.join(NAMES), text + "\n").map_err(io)?;
    // Two levels up is the run directory, whose config says how to build the objective.
    if let Some(run) = folder.ancestors().nth(2) {
        let config = run.join("config.toml");
        if config.exists() {
            fs::copy(config, folder.join("config.toml")).map_err(io)?;
        }
    }
    save_tensors(&tensors(rows), folder.join(TENSORS))?;
    save_safetensors(model, folder.join(MODEL))?;
    Ok(())
}

fn tensors(rows: &[&TrainRow]) -> BTreeMap<String, TensorData> {
    let integers = |of: &dyn Fn(&TrainRow) -> Vec<i64>| {
        let values: Vec<i64> = rows.iter().flat_map(|row| of(row)).collect();
        let len = values.len();
        TensorData::new(values, [len])
    };
    let numbers = |of: &dyn Fn(&ResponseContext) -> Vec<f64>| {
        let values: Vec<f64> = rows.iter().flat_map(|row| of(&row.context)).collect();
        let len = values.len();
        TensorData::new(values, [len])
    };
    let wide = |values: &[usize]| values.iter().map(|value| *value as i64).collect::<Vec<i64>>();
    let mut out = BTreeMap::from([
        (
            "tokens".to_owned(),
            integers(&|row| row.sequence.tokens().iter().map(|token| i64::from(*token)).collect()),
        ),
        ("token_counts".to_owned(), integers(&|row| vec![row.sequence.len() as i64])),
        ("scored".to_owned(), integers(&|row| wide(row.sequence.scored()))),
        ("scored_counts".to_owned(), integers(&|row| vec![row.sequence.scored_len() as i64])),
        ("indices".to_owned(), integers(&|row| vec![row.context.index() as i64])),
        ("version_gaps".to_owned(), integers(&|row| gaps(&row.context))),
        ("groups".to_owned(), integers(&|row| vec![row.context.group() as i64])),
        ("seeds".to_owned(), integers(&|row| vec![row.context.seed().cast_signed()])),
        ("behaviour".to_owned(), numbers(&|context| context.behaviour().to_vec())),
        ("advantages".to_owned(), numbers(&|context| context.advantages().to_vec())),
    ]);
    if rows.iter().all(|row| row.context.proximal().is_some()) {
        let proximal = numbers(&|context| context.proximal().unwrap_or_default().to_vec());
        out.insert("proximal".to_owned(), proximal);
    }
    if let Some(top_k) = rows.iter().map(|row| row.context.top_k()).collect::<Option<Vec<_>>>() {
        let flat = |of: &dyn Fn(&TopK) -> Vec<i64>| {
            let values: Vec<i64> = top_k.iter().flat_map(|top_k| of(top_k)).collect();
            let len = values.len();
            TensorData::new(values, [len])
        };
        let tokens = flat(&|top_k| top_k.tokens.iter().map(|token| i64::from(*token)).collect());
        out.insert("top_k_tokens".to_owned(), tokens);
        let held = flat(&|top_k| top_k.holds_sampled.iter().map(|held| i64::from(*held)).collect());
        out.insert("top_k_holds_sampled".to_owned(), held);
        let log_probs =
            numbers(&|context| context.top_k().map(|top_k| top_k.log_probs.clone()).unwrap_or_default());
        out.insert("top_k_log_probs".to_owned(), log_probs);
    }
    if rows.iter().all(|row| row.context.reference().is_some()) {
        out.insert(
            "reference".to_owned(),
            numbers(&|context| context.reference().unwrap_or_default().to_vec()),
        );
    }
    out
}

fn gaps(context: &ResponseContext) -> Vec<i64> {
    (0..context.len()).map(|index| context.version_gap(index).cast_signed()).collect()
}

/// A dump as it was read.
#[derive(Debug)]
pub(crate) struct Dump {
    pub(crate) fault: String,
    pub(crate) rows: Vec<TrainRow>,
    pub(crate) parts: Parts,
}

/// Reads a dump.
pub(crate) fn read(folder: &Path) -> Result<Dump, DumpError> {
    let io = |source| DumpError::Io { path: folder.to_owned(), source };
    let text = fs::read(folder.join(NAMES)).map_err(io)?;
    let names: Names = serde_json::from_slice(&text).map_err(|error| io(error.into()))?;
    let tensors = load_tensors(folder.join(TENSORS))?;
    let torn = |name: &str| DumpError::Torn { path: folder.to_owned(), name: name.to_owned() };
    let integers = |name: &str| -> Result<std::vec::IntoIter<i64>, DumpError> {
        let values: Vec<i64> = tensors.get(name).ok_or_else(|| torn(name))?.iter::<i64>().collect();
        Ok(values.into_iter())
    };
    let numbers = |name: &str| -> Option<std::vec::IntoIter<f64>> {
        Some(tensors.get(name)?.iter::<f64>().collect::<Vec<f64>>().into_iter())
    };
    let mut tokens = integers("tokens")?;
    let mut scored = integers("scored")?;
    let (mut token_counts, mut scored_counts) = (integers("token_counts")?, integers("scored_counts")?);
    let (mut groups, mut seeds) = (integers("groups")?, integers("seeds")?);
    let mut behaviour = numbers("behaviour").ok_or_else(|| torn("behaviour"))?;
    let mut advantages = numbers("advantages").ok_or_else(|| torn("advantages"))?;
    let (mut indices, mut gaps) = (integers("indices")?, integers("version_gaps")?);
    let (mut proximal, mut reference) = (numbers("proximal"), numbers("reference"));
    let k = names.top_k;
    let mut top_k = match k {
        0 => None,
        _ => Some((
            integers("top_k_tokens")?,
            numbers("top_k_log_probs").ok_or_else(|| torn("top_k_log_probs"))?,
            integers("top_k_holds_sampled")?,
        )),
    };
    let mut rows = Vec::with_capacity(names.rows.len());
    for (name, max_len) in names.rows.into_iter().zip(names.max_response_len) {
        let (Some(count), Some(len), Some(group), Some(seed), Some(index)) =
            (token_counts.next(), scored_counts.next(), groups.next(), seeds.next(), indices.next())
        else {
            return Err(torn("token_counts"));
        };
        let len = len as usize;
        let ids: Vec<TokenId> = tokens.by_ref().take(count as usize).map(|token| token as TokenId).collect();
        let places: Vec<usize> = scored.by_ref().take(len).map(|place| place as usize).collect();
        let sequence = Sequence::from_parts(ids, places).ok_or_else(|| torn("scored"))?;
        let mut context = ResponseContext::new(
            LogProbs::new(behaviour.by_ref().take(len).collect()),
            advantages.by_ref().take(len).collect(),
        )?
        .with_version_gaps(gaps.by_ref().take(len).map(i64::cast_unsigned).collect())?
        .with_index(index as usize)
        .with_group(group as usize)
        .with_seed(seed.cast_unsigned())
        .with_max_response_len(max_len);
        if let Some(values) = &mut proximal {
            let proximal = LogProbs::new(values.by_ref().take(len).collect());
            context = match names.anchor {
                Anchor::Proximal => context.anchored_at_proximal(proximal)?,
                Anchor::Behaviour => context.with_proximal(proximal)?,
            };
        }
        if let Some(values) = &mut reference {
            context = context.with_reference(LogProbs::new(values.by_ref().take(len).collect()))?;
        }
        if let Some((tokens, log_probs, held)) = &mut top_k {
            context = context.with_top_k(TopK {
                k,
                tokens: tokens.by_ref().take(k * len).map(|token| token as TokenId).collect(),
                log_probs: log_probs.by_ref().take(k * len).collect(),
                holds_sampled: held.by_ref().take(len).map(|held| held != 0).collect(),
            })?;
        }
        rows.push(TrainRow { name, sequence, context, critic: None });
    }
    Ok(Dump { fault: names.fault, rows, parts: names.parts })
}

/// A dump that cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// A file cannot be written or read.
    #[error("dump {}", path.display())]
    Io {
        /// The dump.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A tensor is missing or has the wrong length.
    #[error("dump {}: tensor `{name}` is missing or too short", path.display())]
    Torn {
        /// The dump.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// Log-probs do not fit their response.
    #[error(transparent)]
    Response(#[from] firebrick_core::ResponseError),
    /// The weights cannot be written or read.
    #[error(transparent)]
    Model(#[from] ModelError),
}

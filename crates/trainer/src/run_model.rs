//! The model of a run: made or read, and written.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use burn::tensor::backend::{AutodiffBackend, Backend};
use firebrick_core::SeedStream;
use firebrick_models::{
    Decoder, DecoderConfig, FusedOps, LoraConfig, ModelError, load_safetensors, save_safetensors,
    save_trained,
};
use firebrick_rollout::EmbeddedEngine;

use crate::{
    ModelSection, Plan, RunConfig, RunConfigError, RunDirectoryError, RunError, Trainer,
    run_tokenizer::RunTokenizer,
};

/// Where the frozen weights of a model made from scratch are kept, which adapters refer to.
pub(crate) const BASE: &str = "base";

/// A trainer with the tokenizer and the model of a config: drawn from the seed, or with the weights that the config names.
///
/// # Errors
/// When the weights do not fit the model, or the model the tokenizer.
pub fn trainer_of<B>(
    config: &RunConfig,
    plan: Plan<B>,
    device: B::Device,
) -> Result<Trainer<B, Decoder<B>>, RunError>
where
    B: AutodiffBackend + FusedOps,
    B::InnerBackend: FusedOps,
{
    trainer_with(config, plan, RunTokenizer::of(config)?, device)
}

/// [`trainer_of`] with the config's tokenizer, which was read before.
pub(crate) fn trainer_with<B>(
    config: &RunConfig,
    plan: Plan<B>,
    tokenizer: RunTokenizer,
    device: B::Device,
) -> Result<Trainer<B, Decoder<B>>, RunError>
where
    B: AutodiffBackend + FusedOps,
    B::InnerBackend: FusedOps,
{
    let seed = |purpose| config.train.seed.seed(SeedStream::Initialisation, purpose);
    let mut model = match (config.model.folder()?, &config.model) {
        (Some(folder), _) => folder.load::<B>(&device)?,
        (None, ModelSection::Pretrained(model)) => {
            return Err(RunError::NoModel { path: model.path.clone() });
        }
        (None, ModelSection::Scratch(_)) => initial_model(config, seed(&[]), &device)?,
    };
    if let Some(lora) = &config.lora {
        model = model.with_lora(lora, seed(&[1])).map_err(RunConfigError::Lora)?;
    }
    let not_zero = |number| NonZeroUsize::new(number).unwrap_or(NonZeroUsize::MIN);
    let engine = EmbeddedEngine::<B::InnerBackend>::new(device.clone())
        .with_parts(not_zero(plan.settings.parallel_parts))
        .with_max_batch_rows(not_zero(plan.settings.engine_rows));
    Ok(Trainer::new(plan, model, tokenizer, engine, device)?)
}

/// A model made from scratch: drawn from the seed, or with the weights of an earlier run.
fn initial_model<B: AutodiffBackend + FusedOps>(
    config: &RunConfig,
    seed: u64,
    device: &B::Device,
) -> Result<Decoder<B>, RunError> {
    let decoder = config.decoder()?;
    let model = decoder.init::<B>(device, seed).map_err(RunConfigError::from)?;
    let Some(folder) = &config.run.initial_model else { return Ok(model) };
    let found = DecoderConfig::load(folder.join("config.json"))?;
    // A file says the width of a head even where it follows from the others.
    let explicit =
        |decoder: &DecoderConfig| DecoderConfig { head_dim: Some(decoder.head_size()), ..decoder.clone() };
    if explicit(&found) != explicit(&decoder) {
        return Err(RunConfigError::Combination {
            problem: format!("[model] is not the model of run.initial_model = {}", folder.display()),
            fix: "take [model] over from the config that made it",
        }
        .into());
    }
    Ok(load_safetensors(model, folder.join("model.safetensors"))?)
}

/// Writes a model into a folder of the run directory.
pub(crate) fn write_model<B: Backend>(
    config: &RunConfig,
    tokenizer: &RunTokenizer,
    model: &Decoder<B>,
    name: &str,
) -> Result<(), RunError> {
    let path = folder_in(&config.run.directory, name)?;
    save_safetensors(model, path.join("model.safetensors"))?;
    Ok(describe_model(config, tokenizer, &path)?)
}

/// Writes the adapter of a model into a folder of the run directory.
pub(crate) fn write_adapter<B: AutodiffBackend>(
    config: &RunConfig,
    tokenizer: &RunTokenizer,
    lora: &LoraConfig,
    model: &Decoder<B>,
    name: &str,
) -> Result<(), RunError> {
    let path = folder_in(&config.run.directory, name)?;
    save_trained(model, path.join("adapter_model.safetensors"))?;
    Ok(describe_adapter(config, tokenizer, lora, &path)?)
}

fn folder_in(directory: &Path, name: &str) -> Result<PathBuf, RunDirectoryError> {
    let path = directory.join(name);
    std::fs::create_dir_all(&path).map_err(|source| RunDirectoryError::Io { path: path.clone(), source })?;
    Ok(path)
}

/// Writes what stands beside the weights in a model directory.
pub(crate) fn describe_model(
    config: &RunConfig,
    tokenizer: &RunTokenizer,
    folder: &Path,
) -> Result<(), ModelError> {
    match config.model.folder()? {
        None => config.decoder()?.save(folder.join("config.json"))?,
        Some(opened) => opened.save_config(folder)?,
    }
    tokenizer.save(folder)
}

/// Writes what stands beside the weights of an adapter.
pub(crate) fn describe_adapter(
    config: &RunConfig,
    tokenizer: &RunTokenizer,
    lora: &LoraConfig,
    folder: &Path,
) -> Result<(), ModelError> {
    let base = match config.model.folder()? {
        Some(opened) => opened.base().to_owned(),
        None => config.run.directory.join(BASE),
    };
    lora.save(folder, &std::path::absolute(&base).unwrap_or(base))?;
    tokenizer.save(folder)
}

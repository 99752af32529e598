//! `firebrick bench model`: how fast a model from a folder reads, writes and learns.

use std::{path::PathBuf, time::Instant};

use anyhow::{Context, ensure};
use burn::{
    module::AutodiffModule,
    optim::{AdamWConfig, GradientsParams, Optimizer},
    tensor::backend::{AutodiffBackend, Backend},
};
use clap::Args;
use firebrick_core::{
    CausalLm, GenerationRequest, PolicyRef, RolloutEngine, RootSeed, SamplingSpec, ScoreOptions, SeedStream,
    TokenId,
};
use firebrick_models::{Decoder, FusedOps, LoraConfig, ModelFolder};
use firebrick_rollout::EmbeddedEngine;
use firebrick_trainer::{Sequence, score};
use serde::Serialize;

use crate::{
    backend::{DeviceTask, on_device},
    bench_report::peak_resident_bytes,
    device::DeviceChoice,
};

const SEED: RootSeed = RootSeed(1);

/// Arguments of `firebrick bench model`.
#[derive(Debug, Args)]
pub(crate) struct ModelArguments {
    /// The model's folder.
    model: PathBuf,
    /// Rows that are generated side by side.
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Tokens of each prompt.
    #[arg(long, default_value_t = 64)]
    prompt_tokens: usize,
    /// Tokens that are generated after each.
    #[arg(long, default_value_t = 64)]
    new_tokens: usize,
    /// Also measures a training step of an adapter of this rank beside all linear layers.
    #[arg(long)]
    lora_rank: Option<usize>,
    /// The adapter's alpha.
    #[arg(long, default_value_t = 32.0)]
    lora_alpha: f64,
    /// Rows of the training step.
    #[arg(long, default_value_t = 16)]
    train_batch: usize,
    /// Tokens of each, the first half of them a prompt.
    #[arg(long, default_value_t = 128)]
    train_tokens: usize,
    /// How often each part is measured after once without; the median counts.
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// Threads of the kernels.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    /// `cpu`, `ndarray`, `cuda:N` or `wgpu`, as far as they are compiled in.
    #[arg(long, default_value = "cpu")]
    device: DeviceChoice,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Measured {
    parameters: usize,
    load_s: f64,
    prefill_tokens_per_s: f64,
    decode_tokens_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    train_step_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_mib: Option<f64>,
}

#[expect(clippy::print_stdout, reason = "the command talks to its user")]
pub(crate) fn bench_model(arguments: &ModelArguments) -> anyhow::Result<()> {
    for (flag, value, least) in [
        ("batch", arguments.batch, 1),
        ("prompt-tokens", arguments.prompt_tokens, 1),
        ("new-tokens", arguments.new_tokens, 2),
        ("train-batch", arguments.train_batch, 1),
        ("train-tokens", arguments.train_tokens, 2),
        ("repetitions", arguments.repetitions, 1),
        ("threads", arguments.threads, 1),
    ] {
        ensure!(value >= least, "--{flag} = {value}: allowed is at least {least}");
    }
    rayon::ThreadPoolBuilder::new().num_threads(arguments.threads).build_global()?;
    let measured = on_device(arguments.device, Measure(arguments))?;
    if arguments.json {
        println!("{}", serde_json::to_string(&measured)?);
        return Ok(());
    }
    println!("{} parameters, loaded in {:.2} s", measured.parameters, measured.load_s);
    println!(
        "batch {}: {:.0} tokens/s read, {:.1} tokens/s written",
        arguments.batch, measured.prefill_tokens_per_s, measured.decode_tokens_per_s
    );
    if let Some(seconds) = measured.train_step_s {
        let ModelArguments { train_batch, train_tokens, .. } = arguments;
        println!("a training step of {train_batch} rows of {train_tokens} tokens: {seconds:.2} s");
    }
    if let Some(peak) = measured.peak_mib {
        println!("{peak:.0} MiB resident at the peak");
    }
    Ok(())
}

struct Measure<'a>(&'a ModelArguments);

impl DeviceTask for Measure<'_> {
    type Output = Measured;

    fn run<B>(self, device: B::Device) -> anyhow::Result<Measured>
    where
        B: AutodiffBackend + FusedOps,
        B::InnerBackend: FusedOps,
    {
        let arguments = self.0;
        let positions = (arguments.prompt_tokens + arguments.new_tokens).max(arguments.train_tokens);
        let folder = ModelFolder::open(&arguments.model)?.with_max_positions(positions);
        let clock = Instant::now();
        let model = folder.load::<B>(&device)?;
        B::sync(&device).context("waiting for the device")?;
        let load_s = clock.elapsed().as_secs_f64();
        let [prefill, whole] = [1, arguments.new_tokens]
            .map(|new_tokens| generation_seconds(arguments, &model.valid(), new_tokens, &device));
        let (prefill, whole) = (prefill?, whole?);
        let read = (arguments.batch * arguments.prompt_tokens) as f64;
        let written = (arguments.batch * (arguments.new_tokens - 1)) as f64;
        let train_step_s = match arguments.lora_rank {
            None => None,
            Some(rank) => {
                let model = model.merged().with_lora(&LoraConfig::new(rank, arguments.lora_alpha), SEED.0)?;
                Some(training_seconds(arguments, model, &device)?)
            }
        };
        Ok(Measured {
            parameters: folder.config().parameter_count(),
            load_s,
            prefill_tokens_per_s: read / prefill,
            decode_tokens_per_s: written / (whole - prefill),
            train_step_s,
            peak_mib: peak_resident_bytes().map(|bytes| bytes as f64 / f64::from(1 << 20)),
        })
    }
}

/// Random tokens of a row.
fn tokens(row: usize, count: usize, vocabulary: usize) -> Vec<TokenId> {
    let token = |position| SEED.seed(SeedStream::Data, &[row as u64, position]) % vocabulary as u64;
    (0..count as u64).map(|position| token(position) as TokenId).collect()
}

/// Seconds to read all prompts and write `new_tokens` after each, greedily.
fn generation_seconds<B: Backend + FusedOps>(
    arguments: &ModelArguments,
    model: &Decoder<B>,
    new_tokens: usize,
    device: &B::Device,
) -> anyhow::Result<f64> {
    let sampling = SamplingSpec { temperature: 0.0, max_new_tokens: new_tokens, ..SamplingSpec::default() };
    let request = |row| GenerationRequest {
        prompt: tokens(row, arguments.prompt_tokens, model.vocab_size()).into(),
        seed: row as u64,
    };
    let requests: Vec<GenerationRequest> = (0..arguments.batch).map(request).collect();
    let mut engine = EmbeddedEngine::new(device.clone());
    median_seconds(arguments.repetitions, || {
        engine.generate(PolicyRef { model, version: 0 }, &requests, &sampling)?;
        Ok(())
    })
}

/// Seconds of forward, backward and optimizer step on the second half of each row.
fn training_seconds<B>(
    arguments: &ModelArguments,
    model: Decoder<B>,
    device: &B::Device,
) -> anyhow::Result<f64>
where
    B: AutodiffBackend + FusedOps,
    B::InnerBackend: FusedOps,
{
    let vocabulary = model.vocab_size();
    let sequence = |row| {
        let tokens = tokens(row, arguments.train_tokens, vocabulary);
        let (prompt, response) = tokens.split_at(arguments.train_tokens / 2);
        Sequence::prompt_and_response(prompt, response)
    };
    let sequences: Vec<Sequence> = (0..arguments.train_batch).map(sequence).collect();
    let rows: Vec<&Sequence> = sequences.iter().collect();
    let mut optimizer = AdamWConfig::new().init();
    let mut model = Some(model);
    median_seconds(arguments.repetitions, || {
        let current = model.take().context("the step before gave the model back")?;
        let scores =
            score(&current, &rows, ScoreOptions::default(), device).context("there are responses")?;
        let gradients = GradientsParams::from_grads(scores.log_probs.mean().neg().backward(), &current);
        model = Some(optimizer.step(1e-5, current, gradients));
        B::sync(device).context("waiting for the device")
    })
}

/// The median over `repetitions` runs after one that is not counted.
fn median_seconds(repetitions: usize, mut run: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    run()?;
    let mut seconds = Vec::with_capacity(repetitions);
    for _ in 0..repetitions {
        let clock = Instant::now();
        run()?;
        seconds.push(clock.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[seconds.len() / 2])
}

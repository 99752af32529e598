//! `firebrick bench scores`: log-probs of chosen tokens from hidden states, the operation that a large vocabulary makes large.

use std::time::Instant;

use anyhow::{Context, ensure};
use burn::tensor::{Distribution, Int, Tensor, backend::AutodiffBackend};
use clap::Args;
use firebrick_core::{EntropyMode, ScoreOptions};
use firebrick_models::FusedOps;
use serde::Serialize;

use crate::{
    backend::{DeviceTask, on_device},
    bench_report::peak_resident_bytes,
    device::DeviceChoice,
};

/// Arguments of `firebrick bench scores`.
#[derive(Debug, Clone, Args, Serialize)]
pub(crate) struct ScoresArguments {
    /// Tokens whose log-probs are computed.
    #[arg(long, default_value_t = 8192)]
    tokens: usize,
    /// Token ids of the vocabulary.
    #[arg(long, default_value_t = 152_000)]
    vocab: usize,
    /// Width of the hidden states.
    #[arg(long, default_value_t = 64)]
    hidden: usize,
    /// Most tokens whose logits exist at once; a backend may take fewer.
    #[arg(long, default_value_t = ScoreOptions::default().chunk_tokens)]
    chunk_tokens: usize,
    /// Stops after the forward pass.
    #[arg(long)]
    forward_only: bool,
    /// Prints one JSON object instead of a sentence.
    #[arg(long)]
    json: bool,
    /// `cpu`, `ndarray`, `cuda:N` or `wgpu`, as far as they are compiled in.
    #[arg(long, default_value = "cpu")]
    #[serde(skip)]
    device: DeviceChoice,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Scores<'a> {
    device: String,
    #[serde(flatten)]
    arguments: &'a ScoresArguments,
    seconds: f64,
    /// Largest resident memory before the operation, with hidden states, head and targets in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_before: Option<u64>,
    /// Largest resident memory so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_bytes: Option<u64>,
    /// What the logits of all tokens would take.
    logits_bytes: u64,
}

#[expect(clippy::print_stdout, reason = "the command talks to its user")]
pub(crate) fn bench_scores(arguments: &ScoresArguments) -> anyhow::Result<()> {
    for (flag, value) in [
        ("tokens", arguments.tokens),
        ("vocab", arguments.vocab),
        ("hidden", arguments.hidden),
        ("chunk-tokens", arguments.chunk_tokens),
    ] {
        ensure!(value >= 1, "--{flag} = 0: allowed is at least 1");
    }
    let (seconds, bytes_before, peak_bytes) = on_device(arguments.device, Measure(arguments))?;
    let logits_bytes = 4 * arguments.tokens as u64 * arguments.vocab as u64;
    let device = arguments.device.to_string();
    let scores = Scores { device, arguments, seconds, bytes_before, peak_bytes, logits_bytes };
    if arguments.json {
        println!("{}", serde_json::to_string(&scores)?);
        return Ok(());
    }
    let pass = if arguments.forward_only { "forward" } else { "forward and backward" };
    let ScoresArguments { tokens, vocab, hidden, .. } = arguments;
    println!(
        "log-probs of {tokens} tokens, {hidden} wide, vocabulary {vocab}, on {}: {pass} {seconds:.2} s",
        scores.device
    );
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    if let (Some(before), Some(peak)) = (bytes_before, peak_bytes) {
        println!(
            "{:.0} MiB resident at the peak, {:.0} MiB of it before the operation; all logits would take {:.0} MiB",
            mebibytes(peak),
            mebibytes(before),
            mebibytes(logits_bytes)
        );
    }
    Ok(())
}

struct Measure<'a>(&'a ScoresArguments);

impl DeviceTask for Measure<'_> {
    /// Seconds, bytes before, bytes at the peak.
    type Output = (f64, Option<u64>, Option<u64>);

    fn run<B>(self, device: B::Device) -> anyhow::Result<Self::Output>
    where
        B: AutodiffBackend + FusedOps,
        B::InnerBackend: FusedOps,
    {
        let ScoresArguments { tokens, vocab, hidden, chunk_tokens, forward_only, .. } = *self.0;
        let random = |shape| Tensor::<B, 2>::random(shape, Distribution::Uniform(-0.1, 0.1), &device);
        let (states, head) = (random([tokens, hidden]), random([hidden, vocab]));
        let targets = Tensor::<B, 1, Int>::arange(0..tokens as i64, &device) % vocab as i64;
        let options =
            ScoreOptions { chunk_tokens, entropy: EntropyMode::Detached, ..ScoreOptions::default() };
        B::sync(&device).context("waiting for the device")?;
        let before = peak_resident_bytes();
        let clock = Instant::now();
        if forward_only {
            B::InnerBackend::token_scores(states.inner(), head.inner(), targets.inner(), options);
        } else {
            let (states, head) = (states.require_grad(), head.require_grad());
            let scores = B::token_scores(states.clone(), head.clone(), targets, options);
            let gradients = scores.log_probs.sum().backward();
            states.grad(&gradients).context("the hidden states have a gradient")?;
            head.grad(&gradients).context("the head has a gradient")?;
        }
        B::sync(&device).context("waiting for the device")?;
        Ok((clock.elapsed().as_secs_f64(), before, peak_resident_bytes()))
    }
}

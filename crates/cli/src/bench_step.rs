//! `firebrick bench step`: training steps of a fixed size, measured by part.

use std::{num::NonZeroUsize, time::Instant};

use anyhow::{Context, ensure};
use burn::tensor::backend::AutodiffBackend;
use clap::{Args, ValueEnum};
use firebrick_core::{Prompt, RootSeed, SamplingSpec, SeedStream};
use firebrick_models::{DecoderConfig, FusedOps};
use firebrick_objectives::ObjectiveConfig;
use firebrick_rollout::EmbeddedEngine;
use firebrick_trainer::{Plan, TrainSettings, Trainer};
use serde::Serialize;

use crate::{
    backend::{DeviceTask, on_device},
    bench_report::{BenchReport, Measured, MeasuredStep, cpu_seconds},
    bench_task::{Numbers, Parity},
    device::DeviceChoice,
};

/// Everything random in the benchmark follows from it.
const SEED: RootSeed = RootSeed(1);

/// Arguments of `firebrick bench step`.
#[derive(Debug, Args)]
pub(crate) struct StepArguments {
    /// The sizes that the flags below start from.
    #[arg(long, value_enum, default_value = "small")]
    shape: ShapeName,
    /// Measured steps.
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// Steps before them that are not measured. The very first one also compares the engine's log-probs with the trainer's.
    #[arg(long, default_value_t = 1)]
    warmup: usize,
    /// CPU threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// `cpu`, `ndarray`, `cuda:N` or `wgpu`, as far as they are compiled in.
    #[arg(long, default_value = "cpu")]
    device: DeviceChoice,
    /// The preset of the objective, by its `type` in a config.
    #[arg(long, default_value = "dapo")]
    objective: String,
    /// Most positions of a micro-batch; 0 never splits the batch.
    #[arg(long, default_value_t = 0)]
    micro_batch_tokens: usize,
    /// Computes the activations of each layer again in the backward pass, as `train.recompute_activations` in a config.
    #[arg(long)]
    recompute_activations: bool,
    /// Passes over each rollout batch, with one optimizer step each.
    #[arg(long, default_value_t = 1)]
    epochs: usize,
    /// Parts that are generated and trained on side by side, as `train.parallel_parts` in a config.
    #[arg(long, default_value_t = 2)]
    parallel_parts: usize,
    #[command(flatten)]
    sizes: SizeArguments,
}

/// Flags that replace single sizes of a shape.
#[derive(Debug, Args)]
struct SizeArguments {
    /// Layers of the decoder.
    #[arg(long)]
    layers: Option<usize>,
    /// Width of the residual stream.
    #[arg(long)]
    hidden: Option<usize>,
    /// Query heads.
    #[arg(long)]
    heads: Option<usize>,
    /// Heads of keys and values.
    #[arg(long)]
    kv_heads: Option<usize>,
    /// Width of the feed-forward layers.
    #[arg(long)]
    ffn: Option<usize>,
    /// Token ids.
    #[arg(long)]
    vocab: Option<usize>,
    /// Prompts of a step.
    #[arg(long)]
    prompts: Option<usize>,
    /// Completions of each prompt, at least 2.
    #[arg(long)]
    completions: Option<usize>,
    /// Tokens of each prompt.
    #[arg(long)]
    prompt_tokens: Option<usize>,
    /// Tokens of each completion: exactly as many are generated.
    #[arg(long)]
    new_tokens: Option<usize>,
}

/// A named shape.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ShapeName {
    /// 4 layers of width 128, 0.8 million parameters; 8 × 8 completions of 16 + 48 tokens.
    Small,
    /// 6 layers of width 256, 6 million parameters; 8 × 4 completions of 32 + 96 tokens.
    Large,
}

/// Sizes of the model and of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Shape {
    layers: usize,
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    ffn: usize,
    vocab: usize,
    pub(crate) prompts: usize,
    pub(crate) completions: usize,
    prompt_tokens: usize,
    new_tokens: usize,
}

impl Shape {
    fn named(name: ShapeName) -> Self {
        match name {
            ShapeName::Small => Self {
                layers: 4,
                hidden: 128,
                heads: 4,
                kv_heads: 2,
                ffn: 384,
                vocab: 256,
                prompts: 8,
                completions: 8,
                prompt_tokens: 16,
                new_tokens: 48,
            },
            ShapeName::Large => Self {
                layers: 6,
                hidden: 256,
                heads: 4,
                kv_heads: 4,
                ffn: 1024,
                vocab: 512,
                prompts: 8,
                completions: 4,
                prompt_tokens: 32,
                new_tokens: 96,
            },
        }
    }

    fn of(name: ShapeName, sizes: &SizeArguments) -> Self {
        let shape = Self::named(name);
        Self {
            layers: sizes.layers.unwrap_or(shape.layers),
            hidden: sizes.hidden.unwrap_or(shape.hidden),
            heads: sizes.heads.unwrap_or(shape.heads),
            kv_heads: sizes.kv_heads.unwrap_or(shape.kv_heads),
            ffn: sizes.ffn.unwrap_or(shape.ffn),
            vocab: sizes.vocab.unwrap_or(shape.vocab),
            prompts: sizes.prompts.unwrap_or(shape.prompts),
            completions: sizes.completions.unwrap_or(shape.completions),
            prompt_tokens: sizes.prompt_tokens.unwrap_or(shape.prompt_tokens),
            new_tokens: sizes.new_tokens.unwrap_or(shape.new_tokens),
        }
    }

    /// A decoder with a tied head.
    fn model(&self) -> DecoderConfig {
        DecoderConfig {
            vocab_size: self.vocab,
            hidden_size: self.hidden,
            intermediate_size: self.ffn,
            num_hidden_layers: self.layers,
            num_attention_heads: self.heads,
            num_key_value_heads: self.kv_heads,
            head_dim: None,
            max_position_embeddings: self.prompt_tokens.saturating_add(self.new_tokens),
            rope_theta: 10_000.0,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: true,
            attention_bias: false,
            attention_output_bias: false,
            mlp_bias: false,
            rope_scaling: None,
            qk_norm: false,
            initializer_range: 0.02,
        }
    }

    /// One optimizer step for each pass over a rollout batch.
    fn settings(&self, arguments: &StepArguments) -> TrainSettings {
        let steps = arguments.warmup + arguments.repetitions;
        let sampling = SamplingSpec { max_new_tokens: self.new_tokens, ..SamplingSpec::default() };
        TrainSettings {
            epochs: arguments.epochs,
            micro_batch_tokens: arguments.micro_batch_tokens,
            parallel_parts: arguments.parallel_parts,
            recompute_activations: arguments.recompute_activations,
            // How exact a device is, is reported; it does not end a measurement of time.
            parity_tolerance: 0.1,
            ..TrainSettings::new(SEED.0, steps, self.prompts, self.completions, sampling, 1e-4)
        }
    }

    /// Prompts of random tokens.
    fn random_prompts(&self) -> Vec<Prompt> {
        let token = |prompt, position| SEED.seed(SeedStream::Data, &[prompt, position]) % self.vocab as u64;
        let text = |prompt| {
            let tokens = (0..self.prompt_tokens as u64).map(|position| token(prompt, position).to_string());
            tokens.collect::<Vec<_>>().join(" ")
        };
        (0..self.prompts as u64).map(|prompt| Prompt::new(prompt.to_string(), text(prompt), "")).collect()
    }
}

#[expect(clippy::print_stdout, reason = "the command talks to its user")]
pub(crate) fn bench_step(arguments: &StepArguments, started: Instant) -> anyhow::Result<()> {
    let shape = Shape::of(arguments.shape, &arguments.sizes);
    ensure!(arguments.repetitions >= 1, "--repetitions = 0: allowed is at least 1");
    ensure!(arguments.threads >= 1, "--threads = 0: allowed is at least 1");
    ensure!(shape.prompt_tokens >= 1, "--prompt-tokens = 0: allowed is at least 1");
    ensure!(
        shape.completions >= 2,
        "--completions = {}: allowed is at least 2, since a completion is compared with others of its prompt",
        shape.completions
    );
    let model = shape.model();
    model.validate().context("the shape's decoder")?;
    let objective: ObjectiveConfig =
        serde_json::from_value(serde_json::json!({ "type": arguments.objective }))
            .with_context(|| format!("--objective {}", arguments.objective))?;
    let settings = shape.settings(arguments);
    settings.validate().context("the shape's step")?;
    rayon::ThreadPoolBuilder::new().num_threads(arguments.threads).build_global()?;

    let bench =
        StepBench { shape, model: model.clone(), settings, objective, warmup: arguments.warmup, started };
    let measured = on_device(arguments.device, bench)?;
    let report = BenchReport {
        device: arguments.device.to_string(),
        objective: &arguments.objective,
        parameters: model.parameter_count(),
        threads: arguments.threads,
        micro_batch_tokens: arguments.micro_batch_tokens,
        parallel_parts: arguments.parallel_parts,
        recompute_activations: arguments.recompute_activations,
        epochs: arguments.epochs,
        warmup: arguments.warmup,
        shape,
        measured,
    };
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!("{report}");
    }
    Ok(())
}

/// A benchmark whose sizes have been checked.
struct StepBench {
    shape: Shape,
    model: DecoderConfig,
    settings: TrainSettings,
    objective: ObjectiveConfig,
    warmup: usize,
    /// When the process began.
    started: Instant,
}

impl DeviceTask for StepBench {
    type Output = Measured;

    fn run<B>(self, device: B::Device) -> anyhow::Result<Measured>
    where
        B: AutodiffBackend + FusedOps,
        B::InnerBackend: FusedOps,
    {
        let Self { shape, model, settings, objective, warmup, started } = self;
        let (steps, parts) = (settings.steps, settings.parallel_parts);
        let plan = Plan::<B>::new(settings, objective.build(), Parity)?;
        let model = model.init::<B>(&device, SEED.seed(SeedStream::Initialisation, &[]))?;
        let parts = NonZeroUsize::new(parts).unwrap_or(NonZeroUsize::MIN);
        let engine = EmbeddedEngine::<B::InnerBackend>::new(device.clone()).with_parts(parts);
        let tokenizer = Numbers { vocab_size: shape.vocab };
        let mut trainer = Trainer::new(plan, model, tokenizer, engine, device.clone())?;
        let prompts = shape.random_prompts();

        let completions = shape.prompts * shape.completions;
        let mut first = None;
        let mut generated_tokens = 0;
        let mut measured = Vec::with_capacity(steps);
        for step in 0..steps {
            let clock = Instant::now();
            let cpu_before = cpu_seconds();
            let report = trainer.step(&prompts)?;
            B::sync(&device).context("waiting for the device")?;
            let seconds = clock.elapsed().as_secs_f64();
            let cpu_seconds = cpu_seconds().zip(cpu_before).map(|(after, before)| after - before);
            first.get_or_insert((started.elapsed().as_secs_f64(), report.metrics.get(MISMATCH)));
            if step >= warmup {
                let length = report.metrics.get(MEAN_LENGTH).context("a step measures its completions")?;
                generated_tokens = (length * completions as f64).round() as u64;
                measured.push(MeasuredStep { timings: report.timings, seconds, cpu_seconds });
            }
        }
        let (to_first_step, mismatch) = first.context("no step was run")?;
        Ok(Measured::new(&measured, completions, generated_tokens, to_first_step, mismatch))
    }
}

/// Metric of every step: tokens of a completion.
const MEAN_LENGTH: &str = "completions/mean_length";

/// Metric of the first step: how far the engine's log-probs are from the trainer's, in nats.
const MISMATCH: &str = "mismatch/abs_log_prob_mean";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shapes_have_the_sizes_that_their_help_promises() {
        let [small, large] = [ShapeName::Small, ShapeName::Large].map(Shape::named);
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            step: StepArguments,
        }
        let arguments = <Line as clap::Parser>::parse_from(["bench"]).step;
        let count = |shape: Shape| {
            shape.model().validate().unwrap();
            shape.settings(&arguments).validate().unwrap();
            shape.model().parameter_count()
        };
        assert_eq!(count(small), 820_352);
        assert_eq!(count(large), 6_425_856);
        assert_eq!(large.prompts * large.completions, 32);
        assert_eq!(large.prompt_tokens + large.new_tokens, 128);
    }

    #[test]
    fn random_prompts_are_of_the_asked_length_and_differ() {
        use firebrick_core::Tokenizer;
        let shape = Shape { vocab: 50, prompts: 5, prompt_tokens: 40, ..Shape::named(ShapeName::Small) };
        let tokenizer = Numbers { vocab_size: 50 };
        let prompts: Vec<Vec<u32>> = shape
            .random_prompts()
            .iter()
            .map(|prompt| tokenizer.encode_chat(&prompt.messages).unwrap())
            .collect();
        assert_eq!(prompts.len(), 5);
        assert!(prompts.iter().all(|tokens| tokens.len() == 40 && tokens.iter().all(|token| *token < 50)));
        assert_ne!(prompts[0], prompts[1]);
    }
}

//! `firebrick generate`: completions of a prompt.

use std::{io::Write, path::PathBuf, sync::Arc};

use anyhow::Context;
use burn::tensor::backend::{AutodiffBackend, Backend};
use clap::Args;
use firebrick_core::{
    Completion, GenerationRequest, Message, PolicyRef, RolloutEngine, RolloutError, RootSeed, SamplingSpec,
    SeedStream, TokenId, Tokenizer,
};
use firebrick_models::{FusedOps, ModelFolder};
use firebrick_rollout::EmbeddedEngine;

use crate::{
    backend::{DeviceTask, on_device},
    device::DeviceChoice,
    model_folder::{model_folder, tokenizer_in},
};

/// Arguments of `firebrick generate`.
#[derive(Debug, Args)]
pub(crate) struct GenerateArguments {
    /// A model folder, or a run directory.
    model: PathBuf,
    /// What the model is shown; may be given several times.
    #[arg(long, required = true)]
    prompt: Vec<String>,
    /// What the system message says.
    #[arg(long)]
    system: Option<String>,
    /// Feeds the prompt as it is, without a chat template.
    #[arg(long, conflicts_with = "system")]
    raw: bool,
    /// The checkpoint of the run (`step_20`, `latest`, `best`) instead of the final model.
    #[arg(long)]
    checkpoint: Option<String>,
    /// Completions per prompt.
    #[arg(long, default_value_t = 1)]
    samples: usize,
    /// 0 is greedy.
    #[arg(long, default_value_t = 1.0)]
    temperature: f64,
    /// Keeps the K most probable tokens.
    #[arg(long)]
    top_k: Option<usize>,
    /// Keeps the most probable tokens up to this mass.
    #[arg(long, default_value_t = 1.0)]
    top_p: f64,
    /// Most new tokens; what the model's positions leave when left out.
    #[arg(long)]
    max_new_tokens: Option<usize>,
    /// Most positions of the model that are used, which bounds the table of rotary angles.
    #[arg(long)]
    max_positions: Option<usize>,
    /// The seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Prints one JSON object per completion.
    #[arg(long)]
    json: bool,
    /// Puts the token ids of prompt and completion into the JSON.
    #[arg(long, requires = "json")]
    token_ids: bool,
    /// `cpu`, `ndarray`, `cuda:N` or `wgpu`, as far as they are compiled in.
    #[arg(long, default_value = "cpu")]
    device: DeviceChoice,
}

pub(crate) fn generate(arguments: &GenerateArguments) -> anyhow::Result<()> {
    on_device(arguments.device, Generate(arguments))
}

struct Generate<'a>(&'a GenerateArguments);

impl DeviceTask for Generate<'_> {
    type Output = ();

    fn run<B>(self, device: B::Device) -> anyhow::Result<()>
    where
        B: AutodiffBackend + FusedOps,
        B::InnerBackend: FusedOps,
    {
        complete::<B::InnerBackend>(self.0, device)
    }
}

fn complete<B: Backend + FusedOps>(arguments: &GenerateArguments, device: B::Device) -> anyhow::Result<()> {
    let path = model_folder(&arguments.model, arguments.checkpoint.as_deref())?;
    let tokenizer = tokenizer_in(&path)?;
    let mut folder = ModelFolder::open(&path)?;
    if let Some(positions) = arguments.max_positions {
        folder = folder.with_max_positions(positions);
    }
    let model = folder.load::<B>(&device)?.merged();
    let mut requests = Vec::new();
    let mut longest = 0;
    for (index, text) in arguments.prompt.iter().enumerate() {
        let mut messages: Vec<Message> = Vec::new();
        messages.extend(
            arguments.system.iter().map(|system| Message { role: "system".into(), content: system.clone() }),
        );
        messages.push(Message::user(text.clone()));
        let tokens = match arguments.raw {
            true => tokenizer.encode(text),
            false => tokenizer.encode_chat(&messages),
        };
        let tokens: Arc<[TokenId]> =
            tokens.with_context(|| format!("the prompt {text:?} cannot be tokenized"))?.into();
        longest = longest.max(tokens.len());
        requests.extend((0..arguments.samples).map(|sample| GenerationRequest {
            prompt: tokens.clone(),
            seed: RootSeed(arguments.seed).seed(SeedStream::Sampling, &[0, index as u64, sample as u64]),
        }));
    }
    let room = folder.config().max_position_embeddings.saturating_sub(longest);
    let sampling = SamplingSpec {
        temperature: arguments.temperature,
        top_k: arguments.top_k,
        top_p: arguments.top_p,
        max_new_tokens: arguments.max_new_tokens.unwrap_or(room),
        stop_tokens: tokenizer.stop_tokens().to_vec(),
        ..SamplingSpec::default()
    };
    let policy = PolicyRef { model: &model, version: 0 };
    let mut engine = EmbeddedEngine::new(device);
    if let ([request], false) = (&requests[..], arguments.json) {
        return stream(&arguments.prompt[0], tokenizer.as_ref(), |extended| {
            engine.stream(policy, request, &sampling, extended).map(drop)
        });
    }
    let completions = engine.generate(policy, &requests, &sampling)?;
    let prompts = arguments.prompt.iter().flat_map(|prompt| std::iter::repeat_n(prompt, arguments.samples));
    for ((prompt, request), completion) in prompts.zip(&requests).zip(completions) {
        print(arguments, tokenizer.as_ref(), prompt, request, &completion);
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the command talks to its user")]
fn print(
    arguments: &GenerateArguments,
    tokenizer: &dyn Tokenizer,
    prompt: &str,
    request: &GenerationRequest,
    completion: &Completion,
) {
    let text = tokenizer.decode(completion.response_tokens());
    if !arguments.json {
        println!("{prompt}{text}\n");
        return;
    }
    let mut row = serde_json::json!({
        "prompt": prompt, "completion": text, "finish_reason": completion.finish_reason(),
    });
    if arguments.token_ids {
        row["prompt_ids"] = serde_json::json!(request.prompt[..]);
        row["completion_ids"] = serde_json::json!(completion.response_tokens());
    }
    println!("{row}");
}

/// Prints a completion while it grows.
fn stream(
    prompt: &str,
    tokenizer: &dyn Tokenizer,
    generate: impl FnOnce(&mut dyn FnMut(&Completion)) -> Result<(), RolloutError>,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let mut failed = out.write_all(prompt.as_bytes()).and_then(|()| out.flush());
    let mut shown = 0;
    generate(&mut |completion| {
        let text = tokenizer.decode(completion.response_tokens());
        // A character whose bytes have not all come yet is shown when they have.
        let whole = text.trim_end_matches(char::REPLACEMENT_CHARACTER).len();
        let end = if completion.finish_reason().is_some() { text.len() } else { whole };
        if let (Ok(()), Some(new)) = (&failed, text.get(shown..end)) {
            failed = out.write_all(new.as_bytes()).and_then(|()| out.flush());
            shown = end;
        }
    })?;
    failed.and_then(|()| out.write_all(b"\n\n")).context("the completion cannot be printed")
}

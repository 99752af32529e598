//! `firebrick generate`: completions of a prompt.

use std::{path::PathBuf, sync::Arc};

use anyhow::Context;
use burn::tensor::backend::{AutodiffBackend, Backend};
use clap::Args;
use firebrick_core::{
    GenerationRequest, Message, PolicyRef, RolloutEngine, RootSeed, SamplingSpec, SeedStream, TokenId,
    Tokenizer,
};
use firebrick_models::{CharTokenizer, DecoderConfig, FusedOps, load_safetensors};
use firebrick_rollout::EmbeddedEngine;

use crate::{
    backend::{DeviceTask, on_device},
    device::DeviceChoice,
    model_folder::model_folder,
};

/// Arguments of `firebrick generate`.
#[derive(Debug, Args)]
pub(crate) struct GenerateArguments {
    /// A model folder, or a run directory.
    model: PathBuf,
    /// What the model is shown; may be given several times.
    #[arg(long, required = true)]
    prompt: Vec<String>,
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
    /// The seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Prints one JSON object per completion.
    #[arg(long)]
    json: bool,
    /// `cpu`, `ndarray`, `cuda:N` or `wgpu`, as far as they are compiled in.
    #[arg(long, default_value = "cpu")]
    device: DeviceChoice,
}

#[expect(clippy::print_stdout, reason = "the command talks to its user")]
pub(crate) fn generate(arguments: &GenerateArguments) -> anyhow::Result<()> {
    for (prompt, text, reason) in on_device(arguments.device, Generate(arguments))? {
        if arguments.json {
            let row = serde_json::json!({ "prompt": prompt, "completion": text, "finish_reason": reason });
            println!("{row}");
        } else {
            println!("{prompt}{text}\n");
        }
    }
    Ok(())
}

struct Generate<'a>(&'a GenerateArguments);

impl DeviceTask for Generate<'_> {
    /// Prompt, completion, and why it ended.
    type Output = Vec<(String, String, Option<firebrick_core::FinishReason>)>;

    fn run<B>(self, device: B::Device) -> anyhow::Result<Self::Output>
    where
        B: AutodiffBackend + FusedOps,
        B::InnerBackend: FusedOps,
    {
        complete::<B::InnerBackend>(self.0, device)
    }
}

fn complete<B: Backend + FusedOps>(
    arguments: &GenerateArguments,
    device: B::Device,
) -> anyhow::Result<<Generate<'static> as DeviceTask>::Output> {
    let folder = model_folder(&arguments.model, arguments.checkpoint.as_deref())?;
    let config = DecoderConfig::load(folder.join("config.json"))?;
    let tokenizer = CharTokenizer::load(folder.join("tokenizer.json"))?;
    let model = load_safetensors(config.init::<B>(&device, 0)?, folder.join("model.safetensors"))?;
    let mut requests = Vec::new();
    let mut longest = 0;
    for (index, text) in arguments.prompt.iter().enumerate() {
        let tokens: Arc<[TokenId]> = tokenizer
            .encode_chat(&[Message::user(text.clone())])
            .with_context(|| format!("the prompt {text:?} cannot be tokenized"))?
            .into();
        longest = longest.max(tokens.len());
        requests.extend((0..arguments.samples).map(|sample| GenerationRequest {
            prompt: tokens.clone(),
            seed: RootSeed(arguments.seed).seed(SeedStream::Sampling, &[0, index as u64, sample as u64]),
        }));
    }
    let room = config.max_position_embeddings.saturating_sub(longest);
    let sampling = SamplingSpec {
        temperature: arguments.temperature,
        top_k: arguments.top_k,
        top_p: arguments.top_p,
        max_new_tokens: arguments.max_new_tokens.unwrap_or(room),
        stop_tokens: tokenizer.stop_tokens().to_vec(),
        ..SamplingSpec::default()
    };
    let completions = EmbeddedEngine::new(device).generate(
        PolicyRef { model: &model, version: 0 },
        &requests,
        &sampling,
    )?;
    let prompts = arguments.prompt.iter().flat_map(|prompt| std::iter::repeat_n(prompt, arguments.samples));
    Ok(prompts
        .zip(completions)
        .map(|(prompt, completion)| {
            let text = tokenizer.decode(completion.response_tokens());
            (prompt.clone(), text, completion.finish_reason())
        })
        .collect())
}

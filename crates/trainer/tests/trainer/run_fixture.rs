//! A run as a config, small enough for a test: ten problems, four a step, so that epochs end within steps.

use std::path::Path;

use burn::{backend::Autodiff, tensor::backend::AutodiffBackend};
use firebrick_core::{Bounds, ClipSchedule, OptimizerBatch, ResponseTokens, StateError, Stateful};
use firebrick_models::FusedOps;
use firebrick_objectives::{Aggregation, Composed, GroupNormalized, PpoMin, PrefixMean, Recipe};
use firebrick_trainer::{Plan, RunConfig, RunError, RunOptions, RunSummary, run_plan};

use crate::fixture::{Echo, Flex, prompts};

/// A config that runs in `folder`, with the data that it names.
pub(crate) fn config(folder: &Path) -> RunConfig {
    let rows: Vec<String> = prompts()
        .iter()
        .map(|prompt| {
            serde_json::json!({
                "id": prompt.id, "prompt": prompt.messages[0].content, "answer": prompt.answer,
                "completion": prompt.answer,
            })
            .to_string()
        })
        .collect();
    std::fs::write(folder.join("data.jsonl"), rows.join("\n")).expect("the folder can be written");
    let text = r#"
        [run]
        directory = "run"
        [data]
        train = "data.jsonl"
        held_out = "data.jsonl"
        worked_solutions = "data.jsonl"
        [tokenizer]
        alphabet = "0123456789="
        [model]
        vocab_size = 12
        hidden_size = 16
        intermediate_size = 24
        num_hidden_layers = 2
        num_attention_heads = 2
        num_key_value_heads = 1
        max_position_embeddings = 32
        initializer_range = 0.3
        [warm_start]
        steps = 2
        batch_size = 4
        optimizer = { learning_rate = 1e-3 }
        [train]
        seed = 5
        steps = 8
        prompts_per_step = 4
        group_size = 4
        epochs = 2
        mini_batches = 2
        sampling = { max_new_tokens = 6 }
        optimizer = { learning_rate = 1e-2, weight_decay = 0.1 }
        [objective]
        type = "grpo"
        [evaluation]
        samples = 2
        every = 3
        success_reward = 0.3
        [checkpoints]
        every = 2
    "#;
    text.parse::<RunConfig>().expect("the config is valid").relative_to(folder)
}

/// A clip window that narrows with every optimizer step that it has seen: a plug-in whose state matters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Narrowing {
    seen: u32,
}

impl ClipSchedule for Narrowing {
    fn bounds(&self, _response: &ResponseTokens<'_>, out: &mut [Bounds]) {
        let eps = 0.2 / f64::from(1 + self.seen);
        out.fill(Bounds { low: 1.0 - eps, high: 1.0 + eps });
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }
}

impl Stateful for Narrowing {
    fn prepare(&mut self, _batch: &OptimizerBatch<'_>) -> Result<(), StateError> {
        self.seen += 1;
        Ok(())
    }

    fn save(&self) -> serde_json::Value {
        self.seen.into()
    }

    fn load(&mut self, state: &serde_json::Value) -> Result<(), StateError> {
        let seen = state.as_u64().and_then(|seen| u32::try_from(seen).ok());
        self.seen = seen.ok_or_else(|| StateError::Mismatch {
            part: "narrowing".into(),
            reason: format!("{state} is no count"),
        })?;
        Ok(())
    }
}

/// A plan with a stateful part.
pub(crate) fn plan<B: AutodiffBackend>(config: &RunConfig) -> Plan<B> {
    let objective = Composed::new(PrefixMean::default(), Narrowing::default(), PpoMin::default());
    let recipe = Recipe::new(objective, Aggregation::TokenMean, GroupNormalized::default());
    Plan::new(config.train.clone(), recipe, Echo::default()).expect("the plan is valid")
}

pub(crate) fn start(config: &RunConfig, options: &RunOptions) -> Result<RunSummary, RunError> {
    run_plan(config, plan::<Autodiff<Flex>>(config), options, Default::default())
}

pub(crate) fn resume(config: &RunConfig) -> Result<RunSummary, RunError> {
    start(config, &RunOptions { resume: true, ..RunOptions::default() })
}

/// The same on a backend of choice.
pub(crate) fn start_on<B>(config: &RunConfig, options: &RunOptions) -> Result<RunSummary, RunError>
where
    B: AutodiffBackend + FusedOps,
    B::InnerBackend: FusedOps,
{
    run_plan(config, plan::<B>(config), options, Default::default())
}

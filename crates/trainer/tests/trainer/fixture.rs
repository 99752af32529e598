//! A model, a task and plans that are small enough for a test.

use burn::tensor::backend::{AutodiffBackend, Backend};
use firebrick_core::{
    GenerationRequest, Prompt, RewardVerifier, RolloutEngine, Sample, SamplingSpec, Verdict, VerifyError,
};
use firebrick_models::{CharTokenizer, Decoder, DecoderConfig};
use firebrick_objectives::ObjectiveConfig;
use firebrick_rollout::EmbeddedEngine;
use firebrick_trainer::{Plan, TrainSettings, Trainer};

pub(crate) type Flex = burn::backend::Flex;
pub(crate) type NdArray = burn::backend::NdArray;

/// The presets of the framework with settings that clip something.
pub(crate) const PRESETS: [&str; 5] = [
    "type = \"grpo\"\nkl.coefficient = 0.0",
    r#"type = "dapo""#,
    r#"type = "gspo""#,
    r#"type = "tapo""#,
    "type = \"pnpo\"\nschedule.eps_minus = 0.05\nschedule.eps_plus = 0.05",
];

pub(crate) fn objective(text: &str) -> ObjectiveConfig {
    toml::from_str(text).expect("the preset is valid")
}

pub(crate) fn model_config() -> DecoderConfig {
    serde_json::from_value(serde_json::json!({
        "vocab_size": 12, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32,
        "initializer_range": 0.3,
    }))
    .expect("the config is valid")
}

pub(crate) fn model<B: Backend>(device: &B::Device) -> Decoder<B> {
    model_config().init(device, 11).expect("the config is valid")
}

pub(crate) fn tokenizer() -> CharTokenizer {
    CharTokenizer::new("0123456789=").expect("the alphabet is valid")
}

pub(crate) fn sampling() -> SamplingSpec {
    SamplingSpec { max_new_tokens: 6, stop_tokens: vec![0], ..SamplingSpec::default() }
}

pub(crate) fn settings() -> TrainSettings {
    TrainSettings::new(5, 3, 4, 4, sampling(), 1e-2)
}

pub(crate) fn prompts() -> Vec<Prompt> {
    (0..10).map(|digit| Prompt::new(format!("p{digit}"), format!("{digit}="), digit.to_string())).collect()
}

/// Pays the share of a response's characters that repeat the question's digit; unscored for the digits in `down`.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    pub(crate) down: Vec<char>,
}

impl RewardVerifier for Echo {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        if sample.prompt.answer.chars().any(|digit| self.down.contains(&digit)) {
            return Err(VerifyError::new("down"));
        }
        let hits = sample.text.matches(&sample.prompt.answer).count();
        Ok(Verdict::scored(hits as f64 / sample.tokens.len().max(1) as f64))
    }
}

pub(crate) fn trainer<B>(plan: Plan<B>) -> Trainer<B, Decoder<B>>
where
    B: AutodiffBackend + firebrick_models::FusedOps,
    B::InnerBackend: firebrick_models::FusedOps,
{
    let device = B::Device::default();
    let model = model(&device);
    let engine = EmbeddedEngine::<B::InnerBackend>::new(device.clone());
    Trainer::new(plan, model, tokenizer(), engine, device).expect("model and tokenizer fit")
}

pub(crate) fn plan<B: AutodiffBackend>(settings: TrainSettings, preset: &str) -> Plan<B> {
    Plan::new(settings, objective(preset).build(), Echo::default()).expect("the plan is valid")
}

/// Requests for every prompt of the task.
pub(crate) fn requests(samples: usize) -> Vec<GenerationRequest> {
    use firebrick_core::Tokenizer;
    let tokenizer = tokenizer();
    prompts()
        .iter()
        .enumerate()
        .flat_map(|(index, prompt)| {
            let tokens: std::sync::Arc<[u32]> =
                tokenizer.encode_chat(&prompt.messages).expect("the prompt is in the alphabet").into();
            (0..samples).map(move |sample| GenerationRequest {
                prompt: tokens.clone(),
                seed: (index * 100 + sample) as u64,
            })
        })
        .collect()
}

/// An engine that answers to another sampling spec than it was asked for.
#[derive(Debug)]
pub(crate) struct WrongTemperature<E>(pub(crate) E, pub(crate) f64);

impl<M, E: RolloutEngine<M>> RolloutEngine<M> for WrongTemperature<E> {
    fn generate(
        &mut self,
        policy: firebrick_core::PolicyRef<'_, M>,
        requests: &[GenerationRequest],
        sampling: &SamplingSpec,
    ) -> Result<Vec<firebrick_core::Completion>, firebrick_core::RolloutError> {
        let wrong = SamplingSpec { temperature: self.1, ..sampling.clone() };
        self.0.generate(policy, requests, &wrong)
    }
}

/// Runs a generic test on both CPU backends, and with the feature `cuda` on the GPU.
#[macro_export]
macro_rules! on_both_backends {
    ($($(#[$doc:meta])* fn $name:ident<$B:ident>() $body:block)*) => {$(
        mod $name {
            use super::*;

            fn check<$B>()
            where
                $B: burn::tensor::backend::Backend + firebrick_models::FusedOps,
                Autodiff<$B>: firebrick_models::FusedOps
                    + burn::tensor::backend::AutodiffBackend<InnerBackend = $B, Device = $B::Device>,
            $body

            $(#[$doc])*
            #[test]
            fn flex() {
                check::<$crate::fixture::Flex>();
            }

            $(#[$doc])*
            #[test]
            fn ndarray() {
                check::<$crate::fixture::NdArray>();
            }

            $(#[$doc])*
            #[cfg(feature = "cuda")]
            #[test]
            fn cuda() {
                check::<burn::backend::Cuda>();
            }
        }
    )*};
}

//! The probe before the first optimizer step.

use burn::{
    backend::Autodiff,
    module::Module,
    tensor::{Int, Tensor, backend::Backend},
};
use firebrick_core::{CausalLm, ScoreOptions, TokenScores};
use firebrick_models::{Decoder, FusedOps};
use firebrick_rollout::EmbeddedEngine;
use firebrick_trainer::{Trainer, TrainerError};

use crate::fixture::{PRESETS, WrongTemperature, model, plan, prompts, settings, tokenizer, trainer};

/// A decoder whose cached decoding turns the rotary angle of new tokens one position too far.
#[derive(Module, Debug)]
struct OffByOne<B: Backend> {
    inner: Decoder<B>,
}

impl<B: FusedOps> CausalLm<B> for OffByOne<B> {
    type Cache = <Decoder<B> as CausalLm<B>>::Cache;

    fn vocab_size(&self) -> usize {
        self.inner.vocab_size()
    }
    fn max_positions(&self) -> usize {
        self.inner.max_positions()
    }
    fn hidden(&self, tokens: Tensor<B, 2, Int>, positions: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        self.inner.hidden(tokens, positions)
    }
    fn logits(&self, hidden: Tensor<B, 2>) -> Tensor<B, 2> {
        self.inner.logits(hidden)
    }
    fn token_scores(
        &self,
        hidden: Tensor<B, 2>,
        targets: Tensor<B, 1, Int>,
        options: ScoreOptions,
    ) -> TokenScores<B> {
        self.inner.token_scores(hidden, targets, options)
    }
    fn new_cache(&self, left_padding: &[usize], device: &B::Device) -> Self::Cache {
        self.inner.new_cache(left_padding, device)
    }
    fn extend(
        &self,
        tokens: Tensor<B, 2, Int>,
        positions: Tensor<B, 2, Int>,
        cache: &mut Self::Cache,
    ) -> Tensor<B, 3> {
        let decoding = tokens.dims()[1] == 1;
        let positions = if decoding { positions.add_scalar(1) } else { positions };
        self.inner.extend(tokens, positions, cache)
    }
    fn retain_rows(&self, cache: &mut Self::Cache, rows: &[usize]) {
        self.inner.retain_rows(cache, rows);
    }
}

fn assert_refused(error: &TrainerError) {
    assert!(matches!(error, TrainerError::Parity { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("prompt `p") && text.contains("temperature") && text.contains("positions"),
        "{text}"
    );
}

crate::on_both_backends! {
    fn an_engine_that_agrees_passes<B>() {
        let mut trainer = trainer(plan::<Autodiff<B>>(settings(), PRESETS[3]));
        let report = trainer.step(&prompts()).unwrap();
        let worst = report.metrics.get("mismatch/abs_log_prob_max").unwrap();
        assert!(worst < 1e-5, "{worst}");
    }

    fn a_wrong_temperature_is_caught<B>() {
        let device: B::Device = Default::default();
        let engine = WrongTemperature(EmbeddedEngine::<B>::new(device.clone()), 0.9);
        let plan = plan::<Autodiff<B>>(settings(), PRESETS[3]);
        let mut trainer = Trainer::new(plan, model(&device), tokenizer(), engine, device).unwrap();
        assert_refused(&trainer.step(&prompts()).unwrap_err());
    }

    fn a_wrong_rotary_offset_is_caught<B>() {
        let device: B::Device = Default::default();
        let model = OffByOne { inner: model(&device) };
        let plan = plan::<Autodiff<B>>(settings(), PRESETS[3]);
        let engine = EmbeddedEngine::<B>::new(device.clone());
        let mut trainer = Trainer::new(plan, model, tokenizer(), engine, device).unwrap();
        assert_refused(&trainer.step(&prompts()).unwrap_err());
    }
}

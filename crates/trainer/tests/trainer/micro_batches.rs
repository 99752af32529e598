//! The loss and the weights after a step do not depend on how the optimizer batch was cut.

use burn::{backend::Autodiff, module::AutodiffModule};
use firebrick_core::{CausalLm, ScoreOptions};
use firebrick_objectives::{Aggregation, GroupNormalized};
use firebrick_trainer::{Plan, Sequence, TensorGrpo, TrainSettings, log_probs};

use crate::fixture::{Echo, PRESETS, plan, prompts, settings, trainer};

/// Log-probs of some sequences under a model: a fingerprint of its weights.
fn fingerprint<B: burn::tensor::backend::Backend, M: CausalLm<B>>(model: &M) -> Vec<f64> {
    let sequences: Vec<Sequence> =
        (1..9u32).map(|t| Sequence::prompt_and_response(&[t, 10], &[t, 3, 0])).collect();
    let sequences: Vec<&Sequence> = sequences.iter().collect();
    log_probs(model, &sequences, ScoreOptions::default(), None, &B::Device::default()).concat()
}

/// Largest difference.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// The large ε makes AdamW's update proportional to the gradient; with a small one it would blow the last bits of vanishing
/// gradients up to whole steps. One optimizer step, at ratio one: near a bound the last bits decide whether a token is clipped.
fn cut(tokens: usize, parts: usize) -> TrainSettings {
    let mut settings = TrainSettings { micro_batch_tokens: tokens, parallel_parts: parts, ..settings() };
    settings.optimizer.epsilon = 1.0;
    settings.optimizer.learning_rate = 1.0;
    settings
}

crate::on_both_backends! {
    /// As far as f32 and ndarray go: its vectorised reciprocal is good to 3e-4 only, and which entries it serves depends on the
    /// shape. A wrong denominator would be off by tens of percent; the objectives' own tests are exact.
    fn any_cut_of_a_batch_gives_the_same_loss_and_the_same_update<B>() {
        for preset in PRESETS {
            let outcome = |tokens, parts| {
                let mut trainer = trainer(plan::<Autodiff<B>>(cut(tokens, parts), preset));
                let report = trainer.step(&prompts()).unwrap();
                assert_eq!(report.optimizer_steps, 1);
                let loss = report.metrics.get("loss").unwrap();
                let norm = report.metrics.get("grad_norm").unwrap();
                (loss, norm, fingerprint(&trainer.model().valid()))
            };
            let (loss, norm, whole) = outcome(0, 1);
            let start = fingerprint(&crate::fixture::model::<B>(&Default::default()));
            assert!(norm > 1e-3 && apart(&start, &whole) > 0.01, "{preset}: there must be something to compare");
            for (tokens, parts) in [(1, 1), (20, 1), (50, 1), (0, 2), (50, 3), (0, 1000)] {
                let (cut_loss, cut_norm, cut) = outcome(tokens, parts);
                let case = format!("{preset}, {tokens} tokens, {parts} parts");
                assert!((loss - cut_loss).abs() < 1e-4, "{case}: {loss} {cut_loss}");
                assert!((norm - cut_norm).abs() < 1e-3 * norm, "{case}: {norm} {cut_norm}");
                assert!(apart(&whole, &cut) < 1e-3, "{case}: {}", apart(&whole, &cut));
            }
        }
    }

    /// The policy and a critic, whose losses go through the same forward pass.
    fn activations_that_are_computed_again_change_nothing_but_memory<B>() {
        let critic = "type = \"ppo\"\nkl.coefficient = 0.0";
        for preset in [PRESETS[0], critic] {
            let outcome = |recompute_activations| {
                let settings = TrainSettings { recompute_activations, ..cut(50, 1) };
                let mut trainer = trainer(plan::<Autodiff<B>>(settings, preset));
                trainer.step(&prompts()).unwrap(); // until then the critic's head, which starts at zero, lets no gradient through
                let report = trainer.step(&prompts()).unwrap();
                let norms = ["grad_norm", "critic_grad_norm"].map(|name| report.metrics.get(name));
                (norms, fingerprint(&trainer.model().valid()))
            };
            let ([kept, kept_critic], weights) = outcome(false);
            let ([again, again_critic], weights_again) = outcome(true);
            let close = |a: f64, b: f64| (a - b).abs() < 1e-3 * a && a > 1e-3;
            assert!(close(kept.unwrap(), again.unwrap()), "{preset}: {kept:?} {again:?}");
            assert_eq!(kept_critic.is_some(), preset == critic);
            if let (Some(kept), Some(again)) = (kept_critic, again_critic) {
                assert!(close(kept, again), "{preset}: {kept} {again}");
            }
            assert!(apart(&weights, &weights_again) < 1e-3, "{preset}: {}", apart(&weights, &weights_again));
        }
    }

    /// Threads end in any order; what they found is added up in theirs.
    fn parts_side_by_side_give_the_same_bits_each_time<B>() {
        let outcome = || {
            let mut trainer = trainer(plan::<Autodiff<B>>(cut(50, 3), PRESETS[0]));
            let losses = (0..3).map(|_| trainer.step(&prompts()).unwrap().metrics.get("loss").unwrap());
            (losses.collect::<Vec<_>>(), fingerprint(&trainer.model().valid()))
        };
        let first = outcome();
        for _ in 0..3 {
            assert_eq!(outcome(), first);
        }
    }

    fn grpo_trains_the_same_through_both_doors<B>() {
        let mut host = trainer(plan::<Autodiff<B>>(cut(40, 2), PRESETS[0]));
        let tensor = Plan::with_tensor_objective(
            cut(40, 2),
            TensorGrpo::default(),
            Aggregation::SeqMeanTokenMean,
            GroupNormalized::default(),
            Echo::default(),
        );
        let mut tensor = trainer::<Autodiff<B>>(tensor.unwrap());
        let (a, b) = (host.step(&prompts()).unwrap(), tensor.step(&prompts()).unwrap());
        for name in ["loss", "grad_norm"] {
            let (a, b) = (a.metrics.get(name).unwrap(), b.metrics.get(name).unwrap());
            assert!((a - b).abs() < 1e-5, "{name}: {a} {b}");
        }
    }
}

//! What is refused before a weight exists.

use burn::backend::Autodiff;
use firebrick_core::{
    AdvantageError, AdvantageEstimator, Advantages, Objective, Requirements, ResponseTerms, ResponseTokens,
    RewardBatch, SamplingSpec,
};
use firebrick_objectives::Recipe;
use firebrick_trainer::{Plan, PlanError, TrainSettings};

use crate::fixture::{Echo, Flex, PRESETS, objective, sampling, settings};

type TestPlan = Plan<Autodiff<Flex>>;

fn refused(settings: TrainSettings, recipe: Recipe) -> String {
    TestPlan::new(settings, recipe, Echo::default()).unwrap_err().to_string()
}

fn recipe() -> Recipe {
    objective(PRESETS[3]).build()
}

/// Needs what it is told to.
#[derive(Debug)]
struct Demanding(Requirements);

impl Objective for Demanding {
    fn evaluate(&self, response: &ResponseTokens<'_>, _weight: f64) -> ResponseTerms {
        ResponseTerms { coefficients: vec![0.0; response.len()], ..ResponseTerms::default() }
    }
    fn requirements(&self) -> Requirements {
        self.0
    }
}

#[derive(Debug)]
struct Pairwise;

impl AdvantageEstimator for Pairwise {
    fn advantages(&mut self, _batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        Ok(Vec::new().into())
    }
    fn requirements(&self) -> Requirements {
        Requirements { min_group_size: 2, ..Requirements::default() }
    }
}

#[test]
fn a_number_out_of_range_is_named_with_key_value_and_range() {
    let error = refused(TrainSettings { epochs: 0, ..settings() }, recipe());
    assert_eq!(error, "epochs = 0: allowed is a whole number, at least 1");
    let error = refused(TrainSettings { mini_batches: 5, ..settings() }, recipe());
    assert!(error.contains("mini_batches = 5") && error.contains("prompts_per_step"), "{error}");
    let mut bad = settings();
    bad.optimizer.beta_2 = 1.0;
    assert!(refused(bad, recipe()).contains("optimizer.beta_2 = 1"));
}

#[test]
fn sampling_that_would_bias_the_ratio_is_refused_with_the_fix() {
    let filters = [
        SamplingSpec { top_p: 0.9, ..sampling() },
        SamplingSpec { top_k: Some(4), ..sampling() },
        SamplingSpec { min_p: 0.1, ..sampling() },
        SamplingSpec { temperature: 0.0, ..sampling() },
    ];
    for sampling in filters {
        let error = refused(TrainSettings { sampling, ..settings() }, recipe());
        assert!(error.contains("ratio") && error.contains("set a temperature above 0"), "{error}");
    }
}

#[test]
fn a_weight_that_couples_rows_is_refused_when_micro_batches_may_part_them() {
    let couplings = [
        Requirements { whole_group: true, ..Requirements::default() },
        Requirements { whole_batch: true, ..Requirements::default() },
    ];
    for requirements in couplings {
        let coupled = || Recipe { objective: Box::new(Demanding(requirements)), ..recipe() };
        let error = refused(settings(), coupled());
        assert!(
            error.contains("micro_batch_tokens") && error.contains("set micro_batch_tokens = 0"),
            "{error}"
        );
        let whole = TrainSettings { micro_batch_tokens: 0, ..settings() };
        let error = refused(TrainSettings { parallel_parts: 2, ..whole.clone() }, coupled());
        assert!(error.contains("parallel_parts = 2") && error.contains("parallel_parts = 1"), "{error}");
        TestPlan::new(whole, coupled(), Echo::default()).unwrap();
    }
}

#[test]
fn advantages_that_compare_completions_need_a_group() {
    let pairwise = || Recipe { advantage: Box::new(Pairwise), ..recipe() };
    let error = refused(TrainSettings { group_size: 1, ..settings() }, pairwise());
    assert!(error.contains("group_size = 1") && error.contains("raise group_size"), "{error}");
    TestPlan::new(settings(), pairwise(), Echo::default()).unwrap();
}

#[test]
fn every_preset_makes_a_plan_and_errors_are_typed() {
    for preset in PRESETS {
        TestPlan::new(settings(), objective(preset).build(), Echo::default()).unwrap();
    }
    let error =
        TestPlan::new(TrainSettings { steps: 0, ..settings() }, recipe(), Echo::default()).unwrap_err();
    assert!(matches!(error, PlanError::OutOfRange { key: "steps", .. }));
}

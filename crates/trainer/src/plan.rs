//! What a run is composed of, checked before a weight exists.

use std::sync::Arc;

use burn::tensor::backend::AutodiffBackend;
use firebrick_core::{
    AdvantageEstimator, Anchor, EntropyMode, Objective, Requirements, ResponseContext, RewardVerifier,
    RootSeed, SamplingError, SamplingSpec, StateError, Stateful,
};
use firebrick_objectives::{Aggregation, KlTerm, Recipe, ValueLoss};
use firebrick_reward::GraderSettings;
use serde::{Deserialize, Serialize};

use crate::{DynamicSampling, OptimizerSettings, TensorObjective, dump::Parts};

/// Sizes and numbers of a run. What depends on the task has no default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainSettings {
    /// The one seed that all random streams are split from.
    pub seed: RootSeed,
    /// Rollout batches.
    pub steps: usize,
    /// Prompts of a rollout batch.
    pub prompts_per_step: usize,
    /// Completions per prompt, G.
    pub group_size: usize,
    /// Passes over a rollout batch.
    #[serde(default = "one")]
    pub epochs: usize,
    /// Optimizer steps per pass; the groups of the rollout batch are dealt out over them.
    #[serde(default = "one")]
    pub mini_batches: usize,
    /// Most positions of a micro-batch, padding included; 0 never splits an optimizer batch.
    #[serde(default = "default_micro_batch_tokens")]
    pub micro_batch_tokens: usize,
    /// Parts that a rollout batch is generated in and an optimizer batch is trained in side by side, each by a thread of its own
    /// and with its share of `micro_batch_tokens`. On a CPU this keeps more cores busy with a small model. Results depend on it in
    /// their last digits, never on the number of cores. Default 1.
    #[serde(default = "one")]
    pub parallel_parts: usize,
    /// Whether a backward pass computes the activations of each layer again from its input, instead of keeping those of all layers:
    /// less memory for a forward pass more.
    #[serde(default)]
    pub recompute_activations: bool,
    /// Replaces groups without variance by others; off when left out.
    #[serde(default)]
    pub dynamic_sampling: Option<DynamicSampling>,
    /// Most completions that are generated at once, which bounds the memory of their keys and values (default 512).
    #[serde(default = "default_engine_rows")]
    pub engine_rows: usize,
    /// The distribution that completions are drawn from.
    pub sampling: SamplingSpec,
    /// AdamW and its learning rate.
    pub optimizer: OptimizerSettings,
    /// Peak learning rate of the critic, for advantages that need one; default the policy's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critic_learning_rate: Option<f64>,
    /// Largest mean absolute difference (nats) between behaviour log-probs and those of a full forward pass that the probe
    /// before the first optimizer step accepts; a single token may differ by twenty times as much. Default 1e-5, for f32.
    #[serde(default = "default_parity_tolerance")]
    pub parity_tolerance: f64,
    /// Completions of each step that are written to the traces.
    #[serde(default = "default_traces_per_step")]
    pub traces_per_step: usize,
    /// How many of these hold every token with its log-probs, for `firebrick explain --from`.
    #[serde(default = "default_token_traces_per_step")]
    pub token_traces_per_step: usize,
}

fn one() -> usize {
    1
}
fn default_micro_batch_tokens() -> usize {
    8192
}
fn default_engine_rows() -> usize {
    512
}
fn default_parity_tolerance() -> f64 {
    1e-5
}
fn default_traces_per_step() -> usize {
    8
}

fn default_token_traces_per_step() -> usize {
    2
}

impl TrainSettings {
    /// Settings with one pass, one optimizer step per rollout batch and the field's optimizer.
    pub fn new(
        seed: u64,
        steps: usize,
        prompts_per_step: usize,
        group_size: usize,
        sampling: SamplingSpec,
        learning_rate: f64,
    ) -> Self {
        Self {
            seed: RootSeed(seed),
            steps,
            prompts_per_step,
            group_size,
            epochs: 1,
            mini_batches: 1,
            micro_batch_tokens: default_micro_batch_tokens(),
            parallel_parts: 1,
            recompute_activations: false,
            dynamic_sampling: None,
            engine_rows: default_engine_rows(),
            sampling,
            optimizer: OptimizerSettings::new(learning_rate),
            critic_learning_rate: None,
            parity_tolerance: default_parity_tolerance(),
            traces_per_step: default_traces_per_step(),
            token_traces_per_step: default_token_traces_per_step(),
        }
    }

    /// Optimizer steps of the whole run.
    pub fn optimizer_steps(&self) -> usize {
        self.steps * self.epochs * self.mini_batches
    }

    /// The critic's optimizer.
    pub(crate) fn critic_optimizer(&self) -> OptimizerSettings {
        let learning_rate = self.critic_learning_rate.unwrap_or(self.optimizer.learning_rate);
        OptimizerSettings { learning_rate, ..self.optimizer.clone() }
    }

    pub(crate) fn micro_batch_limit(&self) -> Option<usize> {
        (self.micro_batch_tokens > 0).then_some(self.micro_batch_tokens)
    }

    /// Each of the parts side by side gets the same share.
    pub(crate) fn micro_batch_limit_of_part(&self) -> Option<usize> {
        self.micro_batch_limit().map(|limit| limit / self.parallel_parts.max(1))
    }

    /// Checks every range.
    ///
    /// # Errors
    /// Names the key, its value and what is allowed.
    pub fn validate(&self) -> Result<(), PlanError> {
        let at_least_one = "a whole number, at least 1";
        let rounds = self.dynamic_sampling.map_or(1, |dynamic| dynamic.max_rounds);
        for (key, value) in [
            ("steps", self.steps),
            ("prompts_per_step", self.prompts_per_step),
            ("group_size", self.group_size),
            ("epochs", self.epochs),
            ("parallel_parts", self.parallel_parts),
            ("engine_rows", self.engine_rows),
            ("dynamic_sampling.max_rounds", rounds),
        ] {
            require(value >= 1, key, value as f64, at_least_one)?;
        }
        require(
            (1..=self.prompts_per_step).contains(&self.mini_batches),
            "mini_batches",
            self.mini_batches as f64,
            "1 to prompts_per_step, since a group is never split over optimizer steps",
        )?;
        self.optimizer.validate()?;
        if let Some(rate) = self.critic_learning_rate {
            require(
                rate.is_finite() && rate > 0.0,
                "critic_learning_rate",
                rate,
                "a finite number, above 0",
            )?;
        }
        require(self.parity_tolerance > 0.0, "parity_tolerance", self.parity_tolerance, "above 0")?;
        self.sampling.validate()?;
        if !self.sampling.has_full_support() {
            return Err(PlanError::Combination {
                problem: format!(
                    "sampling with temperature {}, top_k {:?}, top_p {}, min_p {} cannot be trained on: the ratio of a token would be biased by the probability mass that the filter removed",
                    self.sampling.temperature, self.sampling.top_k, self.sampling.top_p, self.sampling.min_p
                ),
                fix: "set a temperature above 0, top_p = 1, min_p = 0 and leave top_k out",
            });
        }
        Ok(())
    }
}

/// A policy loss: on the host, or in Burn tensors.
#[derive(Debug)]
pub(crate) enum PolicyLoss<B: AutodiffBackend> {
    Host(Box<dyn Objective>),
    Tensor(Box<dyn TensorObjective<B>>),
}

/// A composition that was found to work. [`crate::Trainer`] takes nothing else, so no weight is loaded for one that does not.
#[derive(Debug)]
pub struct Plan<B: AutodiffBackend> {
    pub(crate) settings: TrainSettings,
    pub(crate) loss: PolicyLoss<B>,
    pub(crate) aggregation: Aggregation,
    pub(crate) advantage: Box<dyn AdvantageEstimator>,
    pub(crate) anchor: Anchor,
    pub(crate) entropy_coefficient: f64,
    pub(crate) guided_prompts: bool,
    pub(crate) reward_kl: Option<KlTerm>,
    pub(crate) value_loss: Option<ValueLoss>,
    pub(crate) verifier: Arc<dyn RewardVerifier>,
    pub(crate) control: Option<Arc<dyn RewardVerifier>>,
    pub(crate) verification: GraderSettings,
    pub(crate) requirements: Requirements,
}

impl<B: AutodiffBackend> Plan<B> {
    /// Checks a recipe (an objective with its aggregation, advantages and anchor), a verifier and the settings together.
    ///
    /// # Errors
    /// When a number is out of range or the parts cannot work together; the message says what to change.
    pub fn new(
        settings: TrainSettings,
        recipe: Recipe,
        verifier: impl RewardVerifier + 'static,
    ) -> Result<Self, PlanError> {
        let requirements = recipe.requirements();
        let Recipe {
            objective,
            aggregation,
            advantage,
            anchor,
            entropy_coefficient,
            guided_prompts,
            reward_kl,
            value_loss,
        } = recipe;
        Self {
            settings,
            loss: PolicyLoss::Host(objective),
            aggregation,
            advantage,
            anchor,
            entropy_coefficient,
            guided_prompts,
            reward_kl,
            value_loss,
            verifier: Arc::new(verifier),
            control: None,
            verification: GraderSettings::default(),
            requirements,
        }
        .checked()
    }

    /// The same with an objective in Burn tensors.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_tensor_objective(
        settings: TrainSettings,
        objective: impl TensorObjective<B> + 'static,
        aggregation: Aggregation,
        advantage: impl AdvantageEstimator + 'static,
        verifier: impl RewardVerifier + 'static,
    ) -> Result<Self, PlanError> {
        Self {
            requirements: objective.requirements().union(advantage.requirements()),
            settings,
            loss: PolicyLoss::Tensor(Box::new(objective)),
            aggregation,
            advantage: Box::new(advantage),
            anchor: Anchor::Behaviour,
            entropy_coefficient: 0.0,
            guided_prompts: false,
            reward_kl: None,
            value_loss: None,
            verifier: Arc::new(verifier),
            control: None,
            verification: GraderSettings::default(),
        }
        .checked()
    }

    fn checked(self) -> Result<Self, PlanError> {
        let Self { settings, requirements, .. } = &self;
        settings.validate()?;
        if settings.group_size < requirements.min_group_size {
            return Err(PlanError::Combination {
                problem: format!(
                    "group_size = {}, but the advantages compare at least {} completions of a prompt",
                    settings.group_size, requirements.min_group_size
                ),
                fix: "raise group_size",
            });
        }
        let split = settings.micro_batch_tokens > 0 || settings.parallel_parts > 1;
        if (requirements.whole_group || requirements.whole_batch) && split {
            return Err(PlanError::Combination {
                problem: format!(
                    "the objective couples the rows of a {}, but micro_batch_tokens = {} and parallel_parts = {} may put them into different micro-batches",
                    if requirements.whole_batch { "batch" } else { "group" },
                    settings.micro_batch_tokens,
                    settings.parallel_parts
                ),
                fix: "set micro_batch_tokens = 0 and parallel_parts = 1",
            });
        }
        if let PolicyLoss::Tensor(objective) = &self.loss {
            let asked = objective.requirements();
            if asked.reference_log_probs
                || asked.proximal_log_probs
                || asked.batch_current_log_probs
                || asked.entropies
                || asked.top_k > 0
            {
                return Err(PlanError::Combination {
                    problem: "a tensor objective is given log-probs of the behaviour and the current policy only: \
                              none of a reference or proximal policy, of the whole batch or of the most likely \
                              tokens, and no entropies"
                        .into(),
                    fix: "write it as a host objective",
                });
            }
        }
        if requirements.values != self.value_loss.is_some() {
            return Err(PlanError::Combination {
                problem: if requirements.values {
                    "the advantages need a critic's values, but nothing trains a critic".into()
                } else {
                    "there is a value loss, but the advantages use no critic".into()
                },
                fix: "set the recipe's value_loss together with advantages such as gae, or neither",
            });
        }
        Ok(self)
    }

    /// Whether a forward pass has to give entropies: for the bonus, for the objective, or to be recorded.
    pub(crate) fn entropy_mode(&self, recorded: bool) -> EntropyMode {
        if self.entropy_coefficient > 0.0 {
            EntropyMode::Attached
        } else if recorded || self.requirements.entropies {
            EntropyMode::Detached
        } else {
            EntropyMode::Skip
        }
    }

    /// How many of a response's tokens enter the denominator.
    pub(crate) fn counted_tokens(&self, response: &ResponseContext) -> usize {
        match &self.loss {
            PolicyLoss::Host(objective) => objective.counted_tokens(response),
            PolicyLoss::Tensor(_) => response.len(),
        }
    }

    /// Replaces the verdicts that are trained on by those of `control`; evaluation keeps the verifier. This is how a
    /// control arm (random rewards) is run on otherwise the same plan.
    #[must_use]
    pub fn with_control_rewards(mut self, control: impl RewardVerifier + 'static) -> Self {
        self.control = Some(Arc::new(control));
        self
    }

    /// Sets on how many threads completions are verified, how long one may take, and how many faults of the verifier end the run.
    #[must_use]
    pub fn with_verification(mut self, settings: GraderSettings) -> Self {
        self.verification = settings;
        self
    }

    /// State of the stateful parts, by name.
    pub(crate) fn save_parts(&mut self) -> Parts {
        self.stateful_parts().into_iter().map(|(name, part)| (name, part.save())).collect()
    }

    /// Restores what [`Self::save_parts`] returned.
    pub(crate) fn load_parts(&mut self, parts: &Parts) -> Result<(), StateError> {
        let mut own = self.stateful_parts();
        let unknown = parts.keys().find(|name| own.iter().all(|(known, _)| known != *name));
        if let Some(name) = unknown {
            let reason = "the composition has no such stateful part".to_owned();
            return Err(StateError::Mismatch { part: name.clone(), reason });
        }
        for (name, part) in &mut own {
            let state = parts.get(name).ok_or_else(|| StateError::Mismatch {
                part: name.clone(),
                reason: "there is none".to_owned(),
            })?;
            part.load(state)?;
        }
        Ok(())
    }

    fn stateful_parts(&mut self) -> Vec<(String, &mut dyn Stateful)> {
        let mut parts: Vec<(String, &mut dyn Stateful)> = Vec::new();
        if let PolicyLoss::Host(objective) = &mut self.loss {
            let named = objective.stateful_parts().into_iter();
            parts.extend(named.map(|(name, part)| (format!("objective.{name}"), part)));
        }
        parts.extend(self.advantage.stateful().map(|part| ("advantage".to_owned(), part)));
        parts
    }

    /// The settings.
    pub fn settings(&self) -> &TrainSettings {
        &self.settings
    }
}

/// A plan that cannot work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A number is out of its range.
    #[error("{key} = {value}: allowed is {allowed}")]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// Its value.
        value: f64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The sampling spec is out of range.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// Parts or settings contradict each other.
    #[error("{problem}; {fix}")]
    Combination {
        /// What does not work.
        problem: String,
        /// What to change.
        fix: &'static str,
    },
}

impl PlanError {
    /// The key that is out of range.
    pub fn key(&self) -> Option<String> {
        match self {
            Self::OutOfRange { key, .. } => Some((*key).to_owned()),
            Self::Sampling(SamplingError::OutOfRange { field, .. }) => Some(format!("sampling.{field}")),
            _ => None,
        }
    }
}

/// Refuses `value` unless `holds`.
pub(crate) fn require(
    holds: bool,
    key: &'static str,
    value: f64,
    allowed: &'static str,
) -> Result<(), PlanError> {
    if holds { Ok(()) } else { Err(PlanError::OutOfRange { key, value, allowed }) }
}

//! Everything that turns rewards and log-probs into coefficients.

use firebrick_core::{AdvantageEstimator, Anchor, Objective, Requirements};

use crate::{Aggregation, KlTerm, ValueLoss};

/// A policy objective with what surrounds it: advantages before, aggregation after, and the anchor of its
/// ratio.
#[derive(Debug)]
pub struct Recipe {
    /// The objective.
    pub objective: Box<dyn Objective>,
    /// How token contributions are averaged.
    pub aggregation: Aggregation,
    /// How rewards become advantages.
    pub advantage: Box<dyn AdvantageEstimator>,
    /// Which policy the importance ratio compares the current one with.
    pub anchor: Anchor,
    /// Coefficient of the entropy bonus.
    pub entropy_coefficient: f64,
    /// Whether completions are sampled with each prompt's guidance and trained on without it.
    pub guided_prompts: bool,
    /// A KL penalty that is taken off the reward, token by token, before advantages are formed.
    pub reward_kl: Option<KlTerm>,
    /// Loss of the critic, when the advantages need one.
    pub value_loss: Option<ValueLoss>,
}

impl Recipe {
    /// An objective anchored at the behaviour policy, without entropy bonus, KL penalty in the reward or critic.
    pub fn new(
        objective: impl Objective + 'static,
        aggregation: Aggregation,
        advantage: impl AdvantageEstimator + 'static,
    ) -> Self {
        Self {
            objective: Box::new(objective),
            aggregation,
            advantage: Box::new(advantage),
            anchor: Anchor::default(),
            entropy_coefficient: 0.0,
            guided_prompts: false,
            reward_kl: None,
            value_loss: None,
        }
    }

    /// What all parts need together.
    pub fn requirements(&self) -> Requirements {
        let own = Requirements {
            reference_log_probs: self.reward_kl.is_some(),
            proximal_log_probs: self.anchor == Anchor::Proximal,
            ..Requirements::default()
        };
        self.objective.requirements().union(self.advantage.requirements()).union(own)
    }
}

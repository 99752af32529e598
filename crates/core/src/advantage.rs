//! The plug-in that turns rewards into advantages.

use std::{fmt::Debug, sync::Arc};

use crate::{Requirements, Stateful};

/// One completion as an advantage estimator sees it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RewardRow {
    /// Group of the row: rows of one prompt share it.
    pub group: usize,
    /// Id of the prompt, the same each time that the prompt is visited; empty when unknown.
    pub prompt: Arc<str>,
    /// The reward, or `None` when the row is unscored.
    pub reward: Option<f64>,
    /// Number of policy tokens.
    pub len: usize,
    /// What is taken off the reward at each policy token (a KL penalty in the reward); empty without one.
    pub penalties: Vec<f64>,
    /// Predicted value before each policy token; empty unless required ([`Requirements::values`]).
    pub values: Vec<f64>,
    /// Reward of the greedy completion of the prompt, when required ([`Requirements::greedy_baseline`]) and scored.
    pub greedy_reward: Option<f64>,
    /// Log-prob of each policy token under the learner at the start of the rollout batch (nats); empty unless required
    /// ([`Requirements::collision_probabilities`]).
    pub log_probs: Vec<f64>,
    /// Σ_v π(v)² at each policy token, of the same policy; empty unless required
    /// ([`Requirements::collision_probabilities`]).
    pub collision_probabilities: Vec<f64>,
    /// What each policy token's gradient is multiplied by beside its advantage, a truncated importance weight for example;
    /// empty where it is one.
    pub weights: Vec<f64>,
}

impl RewardRow {
    /// A row.
    pub fn new(group: usize, reward: Option<f64>, len: usize) -> Self {
        Self {
            group,
            prompt: Arc::from(""),
            reward,
            len,
            penalties: Vec::new(),
            values: Vec::new(),
            greedy_reward: None,
            log_probs: Vec::new(),
            collision_probabilities: Vec::new(),
            weights: Vec::new(),
        }
    }

    /// Names the prompt.
    #[must_use]
    pub fn with_prompt(mut self, id: impl Into<Arc<str>>) -> Self {
        self.prompt = id.into();
        self
    }

    /// Sets what is taken off the reward at each policy token.
    #[must_use]
    pub fn with_penalties(mut self, penalties: Vec<f64>) -> Self {
        self.penalties = penalties;
        self
    }

    /// Sets the predicted values.
    #[must_use]
    pub fn with_values(mut self, values: Vec<f64>) -> Self {
        self.values = values;
        self
    }

    /// Sets the reward of the greedy completion.
    #[must_use]
    pub fn with_greedy_reward(mut self, reward: Option<f64>) -> Self {
        self.greedy_reward = reward;
        self
    }

    /// Sets the log-probs of the policy tokens and the sums of squared probabilities at them.
    #[must_use]
    pub fn with_collision_probabilities(mut self, log_probs: Vec<f64>, collisions: Vec<f64>) -> Self {
        (self.log_probs, self.collision_probabilities) = (log_probs, collisions);
        self
    }

    /// Sets what each policy token's gradient is multiplied by.
    #[must_use]
    pub fn with_weights(mut self, weights: Vec<f64>) -> Self {
        self.weights = weights;
        self
    }

    /// The reward less all penalties: what an estimator of one number per response starts from.
    pub fn penalized_reward(&self) -> Option<f64> {
        self.reward.map(|reward| reward - self.penalties.iter().sum::<f64>())
    }

    /// One reward per policy token: the outcome at the last, less each token's penalty. `None` when unscored.
    pub fn token_rewards(&self) -> Option<Vec<f64>> {
        let reward = self.reward?;
        let mut tokens: Vec<f64> =
            (0..self.len).map(|index| -self.penalties.get(index).copied().unwrap_or(0.0)).collect();
        if let Some(last) = tokens.last_mut() {
            *last += reward;
        }
        Some(tokens)
    }
}

/// All completions of a rollout batch.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RewardBatch {
    /// The rows, in the order of the batch.
    pub rows: Vec<RewardRow>,
}

impl RewardBatch {
    /// Row indices of each group, in order of first appearance.
    pub fn groups(&self) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = Vec::new();
        let mut members: std::collections::HashMap<usize, Vec<usize>> = std::collections::HashMap::new();
        for (index, row) in self.rows.iter().enumerate() {
            members
                .entry(row.group)
                .or_insert_with(|| {
                    order.push(row.group);
                    Vec::new()
                })
                .push(index);
        }
        order.iter().filter_map(|group| members.remove(group)).collect()
    }
}

/// The advantage of one row.
#[derive(Debug, Clone, PartialEq)]
pub enum Advantage {
    /// The row is unscored: it takes no part in the loss or its denominator.
    Excluded,
    /// One number for every policy token of the response.
    Response(f64),
    /// One number per policy token.
    Tokens(Vec<f64>),
}

/// Advantages of a rollout batch, row by row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Advantages {
    /// One entry per row of the reward batch.
    pub rows: Vec<Advantage>,
    /// What the critic is trained towards at each policy token, row by row; empty without a critic.
    pub returns: Vec<Vec<f64>>,
}

impl From<Vec<Advantage>> for Advantages {
    /// Advantages without a critic.
    fn from(rows: Vec<Advantage>) -> Self {
        Self { rows, returns: Vec::new() }
    }
}

/// Turns the rewards of a rollout batch into advantages.
///
/// Unscored rows enter no mean and no deviation and come out as [`Advantage::Excluded`]. Rows of equal reward have
/// advantage exactly zero.
pub trait AdvantageEstimator: Debug + Send + Sync {
    /// Returns one advantage per row.
    ///
    /// # Errors
    /// When the rewards cannot be used (a reward that is not finite, a group that is too small).
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError>;

    /// What the estimator needs.
    fn requirements(&self) -> Requirements {
        Requirements::default()
    }

    /// The estimator's state, if it has one.
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        None
    }
}

impl<T: AdvantageEstimator + ?Sized> AdvantageEstimator for Box<T> {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        (**self).advantages(batch)
    }
    fn requirements(&self) -> Requirements {
        (**self).requirements()
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        (**self).stateful()
    }
}

const _: Option<&dyn AdvantageEstimator> = None; // object-safe

/// Rewards that no advantage can be formed from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdvantageError {
    /// A reward is NaN or infinite.
    #[error(
        "row {row} (group {group}): the reward is {reward}; rewards must be finite, and a failed verifier returns Unscored"
    )]
    NonFinite {
        /// Index of the row.
        row: usize,
        /// Its group.
        group: usize,
        /// The reward.
        reward: f64,
    },
    /// A row lacks what the estimator requires.
    #[error("row {row} (group {group}): {estimator} needs {missing}")]
    Missing {
        /// Index of the row.
        row: usize,
        /// Its group.
        group: usize,
        /// What is not there.
        missing: &'static str,
        /// Name of the estimator.
        estimator: &'static str,
    },
    /// A group has too few rows.
    #[error("group {group} has {found} rows; {estimator} needs at least {needed}")]
    GroupTooSmall {
        /// The group.
        group: usize,
        /// Rows in it.
        found: usize,
        /// Rows needed.
        needed: usize,
        /// Name of the estimator.
        estimator: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// verl #6310: an empty response has an outcome and no token for it to land on.
    #[test]
    fn the_reward_of_an_empty_response_lands_on_no_token() {
        let row = |len| RewardRow::new(0, Some(1.0), len);
        assert_eq!(row(0).token_rewards(), Some(vec![]));
        assert_eq!(row(0).penalized_reward(), Some(1.0));
        assert_eq!(row(2).with_penalties(vec![0.25, 0.5]).token_rewards(), Some(vec![-0.25, 0.5]));
        assert_eq!(RewardRow::new(0, None, 2).token_rewards(), None);
    }

    #[test]
    fn groups_keep_the_order_of_first_appearance() {
        let rows = [7, 3, 7, 3, 9].map(|group| RewardRow::new(group, Some(0.0), 1)).to_vec();
        assert_eq!(RewardBatch { rows }.groups(), [vec![0, 2], vec![1, 3], vec![4]]);
    }
}

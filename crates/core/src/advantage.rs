//! The plug-in that turns rewards into advantages.

use std::fmt::Debug;

use crate::{Requirements, Stateful};

/// One completion as an advantage estimator sees it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RewardRow {
    /// Group of the row: rows of one prompt share it.
    pub group: usize,
    /// The reward, or `None` when the row is unscored.
    pub reward: Option<f64>,
    /// Number of policy tokens.
    pub len: usize,
}

impl RewardRow {
    /// A row.
    pub fn new(group: usize, reward: Option<f64>, len: usize) -> Self {
        Self { group, reward, len }
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
#[derive(Debug, Clone, PartialEq)]
pub struct Advantages {
    /// One entry per row of the reward batch.
    pub rows: Vec<Advantage>,
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

    #[test]
    fn groups_keep_the_order_of_first_appearance() {
        let rows = [7, 3, 7, 3, 9].map(|group| RewardRow::new(group, Some(0.0), 1)).to_vec();
        assert_eq!(RewardBatch { rows }.groups(), [vec![0, 2], vec![1, 3], vec![4]]);
    }
}

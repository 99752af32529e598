//! When checkpoints are written and which are kept.

use serde::{Deserialize, Serialize};

use crate::{PlanError, plan::require};

/// When checkpoints are written and which are kept. The one to go on from is always kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointSettings {
    /// Steps between two checkpoints (default 10). There is also one before the first and one after the last step.
    pub every: usize,
    /// Most recent checkpoints that are kept (default 2).
    pub keep_last: usize,
    /// Checkpoints whose step is a multiple of this are kept for good; 0 (default) for none.
    pub keep_every: usize,
    /// Keeps the checkpoint that is best by a metric, too.
    pub best: Option<BestBy>,
}

impl Default for CheckpointSettings {
    fn default() -> Self {
        Self { every: 10, keep_last: 2, keep_every: 0, best: None }
    }
}

impl CheckpointSettings {
    /// Checks the ranges.
    ///
    /// # Errors
    /// Names the key, its value and what is allowed.
    pub fn validate(&self) -> Result<(), PlanError> {
        let at_least_one = "a whole number, at least 1";
        require(self.every >= 1, "every", self.every as f64, at_least_one)?;
        require(self.keep_last >= 1, "keep_last", self.keep_last as f64, at_least_one)
    }
}

/// What makes a checkpoint the best.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BestBy {
    /// Name of a metric of the step (`reward/mean`) or of the evaluation after it (`eval/avg@8`). Checkpoints of steps
    /// without it do not compete.
    pub metric: String,
    /// Whether more is better (default) or less.
    #[serde(default)]
    pub mode: Better,
}

/// Which of two values is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// The larger one.
    #[default]
    Max,
    /// The smaller one.
    Min,
}

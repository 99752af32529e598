//! Everything that turns rewards and log-probs into coefficients.

use firebrick_core::{AdvantageEstimator, Anchor, Objective, Requirements};

use crate::Aggregation;

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
}

impl Recipe {
    /// What objective and advantage estimator need together.
    pub fn requirements(&self) -> Requirements {
        self.objective.requirements().union(self.advantage.requirements())
    }
}

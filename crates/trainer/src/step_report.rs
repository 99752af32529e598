//! What a step did, and where its time went.

use firebrick_core::Metrics;
use firebrick_objectives::PositionReport;
use serde::Serialize;

/// What a step did.
#[derive(Debug, Clone)]
pub struct StepReport {
    /// The step, from 0.
    pub step: usize,
    /// Whether it trained.
    pub outcome: StepOutcome,
    /// Optimizer steps taken.
    pub optimizer_steps: usize,
    /// Everything that was measured, under the names that the field uses.
    pub metrics: Metrics,
    /// How importance weights behave by position.
    pub positions: PositionReport,
    /// Wall-clock seconds.
    pub timings: Timings,
}

/// Whether a step trained, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepOutcome {
    /// At least one optimizer step was taken.
    Trained,
    /// No completion was scored, or none has a token of the policy: there is nothing to divide by and no step to take.
    NothingToTrain,
    /// Every optimizer step met a number that is not finite and was skipped; the weights are those before.
    Skipped,
}

/// Wall-clock seconds of the parts of a step.
///
/// A device that computes in the background is waited for wherever its results are read; the backward pass of the last
/// micro-batch is counted where its gradients are, in `optimizer`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Timings {
    /// Generation.
    pub generate: f64,
    /// Waiting for verdicts after generation has ended; what is verified beside it costs nothing here.
    pub verify: f64,
    /// Advantages, and log-probs under the proximal and the reference policy.
    pub score: f64,
    /// The objective on the host.
    pub objective: f64,
    /// Forward and backward passes over all micro-batches.
    pub forward_backward: f64,
    /// Clipping and AdamW.
    pub optimizer: f64,
}

impl Timings {
    /// Seconds of all parts.
    pub fn total(&self) -> f64 {
        self.parts().iter().map(|(_, seconds)| seconds).sum()
    }

    /// The parts with their names, in the order of a step.
    pub fn parts(&self) -> [(&'static str, f64); 6] {
        [
            ("generate", self.generate),
            ("verify", self.verify),
            ("score", self.score),
            ("objective", self.objective),
            ("forward_backward", self.forward_backward),
            ("optimizer", self.optimizer),
        ]
    }
}

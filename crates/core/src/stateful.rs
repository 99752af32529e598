//! Parts that keep state or look at the whole optimizer batch.

use crate::OptimizerBatch;

/// What a part implements when it has state, or must see the optimizer batch before that is split into micro-batches.
/// A plug-in offers it through its `stateful` method.
pub trait Stateful {
    /// Looks at the whole optimizer batch; called once per optimizer step, before any micro-batch.
    ///
    /// # Errors
    /// When the batch cannot be used.
    fn prepare(&mut self, batch: &OptimizerBatch<'_>) -> Result<(), StateError> {
        let _ = batch;
        Ok(())
    }

    /// The state to store in a checkpoint.
    fn save(&self) -> serde_json::Value;

    /// Restores a state that [`Self::save`] returned.
    ///
    /// # Errors
    /// When the state is of another kind.
    fn load(&mut self, state: &serde_json::Value) -> Result<(), StateError>;
}

/// A state that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// A stored state does not fit.
    #[error("the stored state of {part} cannot be restored: {reason}")]
    Mismatch {
        /// The part.
        part: String,
        /// Why not.
        reason: String,
    },
    /// The optimizer batch lacks what the part needs.
    #[error("{part} cannot be prepared: {reason}")]
    Batch {
        /// The part.
        part: String,
        /// Why not.
        reason: String,
    },
}

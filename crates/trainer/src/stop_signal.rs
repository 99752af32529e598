//! The wish to stop, from outside.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Tells a run to stop after its current step. Clones share the wish, and a signal handler may hold the flag itself.
#[derive(Debug, Clone, Default)]
pub struct StopSignal(Arc<AtomicBool>);

impl StopSignal {
    /// A signal that is raised when `flag` becomes true.
    pub fn from_flag(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Asks the run to stop.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the run is asked to stop.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

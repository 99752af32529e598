//! What every implementation of a plug-in trait must hold to.

mod advantage;
mod estimator;
mod gate;
mod objective;
mod samples;
mod schedule;
mod verifier;

pub use advantage::check_advantage_estimator;
pub use estimator::{check_causality, check_estimator};
pub use gate::check_gate;
pub use objective::check_objective;
pub use schedule::check_schedule;
pub use verifier::check_verifier;

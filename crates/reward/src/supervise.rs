//! Verification beside generation, on threads that are watched.

mod grade;
mod grader;
mod slots;

pub use grade::{OwnedSample, grade};
pub use grader::{Grader, GraderError, GraderSettings, GradingBatch};

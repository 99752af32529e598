//! A checkpoint that cannot be written or used.

use std::{io, path::PathBuf};

/// A checkpoint that cannot be written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// It cannot be written. Earlier checkpoints are untouched.
    #[error("checkpoint {} cannot be written; earlier checkpoints are as they were", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It cannot be read.
    #[error("checkpoint {} cannot be read", path.display())]
    Read {
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It is not what was written.
    #[error("checkpoint {} is torn: {reason}", path.display())]
    Torn {
        /// The checkpoint.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// It was written by another version.
    #[error("checkpoint {} has format {found}; this version reads format {known}", path.display())]
    Format {
        /// The checkpoint.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The format of this version.
        known: u32,
    },
    /// It belongs to another run.
    #[error("checkpoint {} is of another run: {differences}", path.display())]
    Foreign {
        /// The checkpoint.
        path: PathBuf,
        /// The keys that differ, with both values.
        differences: String,
    },
    /// Its state does not fit the composition.
    #[error("checkpoint {}: {reason}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// Its weights do not fit the model, or cannot be written.
    #[error(transparent)]
    Model(#[from] firebrick_models::ModelError),
}

//! Generation: samples completions from a language model.
//!
//! [`EmbeddedEngine`] runs the model in the same process: the whole batch at once, with a cache of keys and
//! values, every completion from a random stream of its own. [`Distribution`] is the distribution that a
//! token is drawn from, on the host.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod batch;
mod distribution;
mod embedded;

pub use distribution::{BadLogits, Distribution, Draw};
pub use embedded::EmbeddedEngine;

//! An objective of one's own, in one file; `main.rs` trains with it.

mod fading;

pub use fading::{FadingPrefix, HalvingWindow};

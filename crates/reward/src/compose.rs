//! Verifiers made of verifiers.

mod gated;
mod part;
mod product;
mod weighted_sum;

pub use gated::Gated;
pub(crate) use gated::check_threshold;
pub use part::Part;
pub(crate) use part::check_names;
pub use product::Product;
pub use weighted_sum::WeightedSum;
pub(crate) use weighted_sum::check_parts;

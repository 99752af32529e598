//! Verifiers made of verifiers.

mod gated;
mod part;
mod product;
mod weighted_sum;

pub use gated::Gated;
pub use part::Part;
pub use product::Product;
pub use weighted_sum::WeightedSum;

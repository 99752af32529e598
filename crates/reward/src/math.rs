//! Equality of mathematical answers.
//!
//! An answer is read into a syntax tree; what it is (a number, an expression, a set, a relation, a matrix, words) decides
//! how it is compared. There is no computer algebra system: expressions are equal if their exact values are, or their
//! normal forms as rational functions, or their values at drawn points. All work is paid for from a budget, so that every
//! pair of texts has its verdict in bounded time, without a thread and without a clock.

mod compare;
mod config;
mod exact;
mod expression;
mod factor;
mod lexer;
mod limits;
mod matrix;
mod numeric;
mod parser;
mod plus_minus;
mod polynomial;
mod presets;
mod relation;
mod scalar;
mod sets;
mod tree;
mod verifier;
mod vocabulary;

pub use config::{MatchType, MathConfig, MathPreset};
pub use verifier::{Grade, MathVerifier};
pub(crate) use vocabulary::is_known_word;

/// Longest response that is read as an answer in whole.
pub(crate) const MAX_WHOLE_BYTES: usize = 400;

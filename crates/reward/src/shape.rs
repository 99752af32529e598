//! Verifiers that change the score of another one by how long the response is, or how it ended.

mod cosine_length;
mod length_penalty;
mod truncation_mask;

pub use cosine_length::{CosineLength, CosineRewards, cosine_length_reward};
pub use length_penalty::LengthPenalty;
pub use truncation_mask::TruncationMask;

use firebrick_core::Verdict;

/// The verdict with `change` added to its reward and recorded under `name`; without a reward it stays as it is.
pub(crate) fn shifted(mut verdict: Verdict, name: &str, change: f64) -> Verdict {
    if let Verdict::Scored(score) = &mut verdict {
        score.reward += change;
        score.add_component(name, change);
    }
    verdict
}

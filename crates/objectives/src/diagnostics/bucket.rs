//! Groups of positions, and what is counted in each.

use std::{iter, ops::Range};

use firebrick_core::{Binding, Bounds, LOG_RATIO_LIMIT};

use super::moments::Moments;

/// Positions up to here have a bucket each.
const EXACT: usize = 64;

/// Last position of the bucket after the one that ends at `end`: one more up to 64, then a quarter more, rounded down.
pub(super) fn next_end(end: usize) -> usize {
    if end < EXACT { end + 1 } else { end + end / 4 }
}

/// The bucket that holds position `len`.
pub(super) fn bucket_of(len: usize) -> usize {
    if len <= EXACT {
        return len.saturating_sub(1);
    }
    let ends = iter::successors(Some(EXACT), |end| Some(next_end(*end)));
    EXACT - 1 + ends.take_while(|end| *end < len).count()
}

/// Indices of the tokens of each bucket, for a response of `len` tokens.
pub(super) fn ranges(len: usize) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    iter::from_fn(move || {
        let end = next_end(start);
        let range = start..end.min(len);
        start = end;
        (!range.is_empty()).then_some(range)
    })
}

/// Moments of log-ratios (nats), which lie within ± [`LOG_RATIO_LIMIT`], cut to 6e-14.
pub(super) type LogRatios = Moments<44>;

/// Log prefix ratios of one bucket.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Prefixes {
    pub(super) moments: LogRatios,
    /// Σ 1/t in fixed point, for the same reason as [`Moments`].
    inverse_positions: i128,
}

/// One in the fixed point of 1/t.
const INVERSE_ONE: f64 = (1_u64 << 62) as f64;

impl Prefixes {
    /// Adds log R_t at position `t` (1-based).
    pub(super) fn add(&mut self, log_prefix_ratio: f64, t: f64) {
        self.moments.add(log_prefix_ratio);
        self.inverse_positions += i128::from((INVERSE_ONE / t) as i64);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.moments.merge(&other.moments);
        self.inverse_positions += other.inverse_positions;
    }

    /// Mean of 1/t over the tokens; of none, NaN.
    pub(super) fn inverse_position(&self) -> f64 {
        self.inverse_positions as f64 / self.moments.count() as f64 / INVERSE_ONE
    }
}

/// Tokens by what acted on them, in the order of [`Binding`].
pub(super) type Bindings = [u64; 6];

/// What an objective made of the tokens of one bucket.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Acted {
    /// Of tokens with a negative, no and a positive advantage.
    pub(super) bindings: [Bindings; 3],
    pub(super) weights: Weights,
    /// Tokens with a window, and those whose weight lies below and above it.
    pub(super) windowed: u64,
    pub(super) below: u64,
    pub(super) above: u64,
}

impl Acted {
    pub(super) fn add_bindings(&mut self, advantages: &[f64], bindings: &[Binding]) {
        for (advantage, binding) in advantages.iter().zip(bindings) {
            let sign = 1 + usize::from(*advantage > 0.0) - usize::from(*advantage < 0.0);
            self.bindings[sign][*binding as usize] += 1;
        }
    }

    pub(super) fn add_weights(&mut self, log_weights: &[f64]) {
        for log_weight in log_weights {
            self.weights.add(weight(*log_weight));
        }
    }

    /// Adds weights, and where each lies to its window.
    pub(super) fn add_windows(&mut self, log_weights: &[f64], windows: &[Bounds]) {
        for (log_weight, window) in log_weights.iter().zip(windows) {
            let weight = weight(*log_weight);
            self.weights.add(weight);
            self.below += u64::from(weight < window.low);
            self.above += u64::from(weight > window.high);
        }
        self.windowed += windows.len() as u64;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (own, other) in self.bindings.as_flattened_mut().iter_mut().zip(other.bindings.as_flattened()) {
            *own += other;
        }
        self.weights.merge(&other.weights);
        self.windowed += other.windowed;
        self.below += other.below;
        self.above += other.above;
    }
}

/// A weight as objectives take it: within e^±20, where [`Weights`] has room.
fn weight(log_weight: f64) -> f64 {
    log_weight.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
}

/// Importance weights. Their squares span 115 bits, too many for one fixed point with room for a billion of them: weights
/// below 1 (2^-29 at least) are cut to 2^-48, others (2^29 at most) to 2^-19, both to about 2e-6 of the weight or less.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weights {
    below_one: Moments<48>,
    others: Moments<19>,
}

impl Weights {
    fn add(&mut self, weight: f64) {
        if weight < 1.0 {
            self.below_one.add(weight);
        } else {
            self.others.add(weight);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.below_one.merge(&other.below_one);
        self.others.merge(&other.others);
    }

    /// Effective sample size as a share of the sample: (Σw)² / (n Σw²); `None` without weights.
    pub(super) fn effective_share(&self) -> Option<f64> {
        let count = self.below_one.count() + self.others.count();
        let sum = self.below_one.sum() + self.others.sum();
        let squares = self.below_one.squares() + self.others.squares();
        (count > 0).then(|| sum * sum / (count as f64 * squares))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 buckets of one position, then 65–80, 81–100, 101–125, 126–156 (125 + 31).
    #[test]
    fn buckets_are_single_positions_up_to_64_and_then_grow_by_a_quarter() {
        assert_eq!([1, 2, 63, 64].map(bucket_of), [0, 1, 62, 63]);
        assert_eq!(
            [65, 80, 81, 100, 101, 125, 126, 156, 157].map(bucket_of),
            [64, 64, 65, 65, 66, 66, 67, 67, 68]
        );
        assert_eq!([64, 80, 100, 125].map(next_end), [80, 100, 125, 156]);
    }

    #[test]
    fn the_tokens_of_a_response_fall_into_its_buckets_one_after_another() {
        assert_eq!(ranges(3).collect::<Vec<_>>(), [0..1, 1..2, 2..3]);
        assert_eq!(ranges(90).skip(63).collect::<Vec<_>>(), [63..64, 64..80, 80..90]);
        for len in [0, 1, 64, 65, 80, 81, 20_000] {
            assert_eq!(ranges(len).count(), if len == 0 { 0 } else { bucket_of(len) + 1 }, "{len}");
            assert_eq!(ranges(len).flatten().count(), len);
        }
    }

    /// Two weights a and b: (a + b)²/(2 (a² + b²)), which depends on b/a alone.
    #[test]
    fn the_effective_share_holds_over_the_whole_range_of_weights() {
        for scale in [-20.0, -10.0, -0.5, 0.0, 0.5, 10.0, 19.0] {
            let mut acted = Acted::default();
            acted.add_weights(&[scale, scale + 1.0]);
            let ratio = 1f64.exp();
            let expected = (1.0 + ratio).powi(2) / (2.0 * (1.0 + ratio * ratio));
            let found = acted.weights.effective_share().unwrap();
            assert!((found / expected - 1.0).abs() < 4e-6, "{found} at e^{scale}");
        }
        assert_eq!(Weights::default().effective_share(), None);
    }

    /// 2^30 weights at the limit and one at the other end.
    #[test]
    fn a_billion_weights_at_the_limit_have_room() {
        let mut acted = Acted::default();
        acted.add_weights(&[20.0, 1e9]);
        for _ in 0..29 {
            let half = acted;
            acted.merge(&half);
        }
        acted.add_weights(&[-20.0]);
        assert!((acted.weights.effective_share().unwrap() - 1.0).abs() < 1e-8);
    }

    #[test]
    fn a_million_positions_fit_into_a_hundred_or_so_buckets() {
        assert_eq!(bucket_of(1_000_000), 107);
    }
}

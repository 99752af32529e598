//! Groups of positions, and what is counted in each.

use firebrick_core::{Binding, Bounds, ExactSum};

use super::moments::Moments;

/// Positions up to here have a bucket each.
const EXACT: usize = 64;

/// Last position of the bucket after the one that ends at `end`: one more up to 64, then a quarter more, rounded down.
pub(super) fn next_end(end: usize) -> usize {
    if end < EXACT { end + 1 } else { end + end / 4 }
}

/// The bucket that holds position `len`.
pub(super) fn bucket_of(len: usize) -> usize {
    let ends = std::iter::successors(Some(1), |end| Some(next_end(*end)));
    ends.take_while(|end| *end < len).count()
}

/// Log prefix ratios of one bucket.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Prefixes {
    pub(super) moments: Moments,
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
#[derive(Debug, Clone, Default)]
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

    /// Adds weights, and where each lies to its window; `windows` is empty when there are none.
    pub(super) fn add_weights(&mut self, log_weights: &[f64], windows: &[Bounds]) {
        let (mut sum, mut squares) = (0.0, 0.0);
        let (mut below, mut above) = (0, 0);
        let mut windows = windows.iter();
        self.windowed += windows.len() as u64;
        for log_weight in log_weights {
            let weight = log_weight.exp();
            sum += weight;
            squares += weight * weight;
            let window = windows.next().unwrap_or(&Bounds::OPEN);
            below += u64::from(weight < window.low);
            above += u64::from(weight > window.high);
        }
        self.below += below;
        self.above += above;
        if !log_weights.is_empty() {
            self.weights.count += log_weights.len() as u64;
            self.weights.sum.add(sum);
            self.weights.squares.add(squares);
        }
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

/// Sums of importance weights. A weight has no limit that fixed point could rely on.
#[derive(Debug, Clone, Default)]
pub(super) struct Weights {
    count: u64,
    sum: ExactSum,
    squares: ExactSum,
}

impl Weights {
    pub(super) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum.merge(&other.sum);
        self.squares.merge(&other.squares);
    }

    /// Effective sample size as a share of the sample: (Σw)² / (n Σw²); `None` without weights or when all are zero.
    pub(super) fn effective_share(&self) -> Option<f64> {
        let (sum, squares) = (self.sum.value(), self.squares.value());
        let share = sum * sum / squares / self.count as f64;
        share.is_finite().then_some(share)
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
    fn a_million_positions_fit_into_a_hundred_or_so_buckets() {
        assert_eq!(bucket_of(1_000_000), 107);
    }
}

//! Mean and variance that no order of additions changes.

/// Count, sum and sum of squares of numbers in fixed point: each is cut to a multiple of 2^-BITS, towards zero, and the rest
/// is whole numbers. So adding and merging are exact, neither order nor grouping matters, and equal numbers have a variance
/// of exactly zero. There is room for 2^30 numbers of size 2^m when 2 (m + BITS) ≤ 97.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Moments<const BITS: u32> {
    count: u64,
    sum: i128,
    squares: i128,
}

impl<const BITS: u32> Moments<BITS> {
    const ONE: f64 = (1_u64 << BITS) as f64;

    /// Adds a number.
    pub(super) fn add(&mut self, value: f64) {
        let fixed = i128::from((value * Self::ONE) as i64);
        self.count += 1;
        self.sum += fixed;
        self.squares += fixed * fixed;
    }

    /// Adds the numbers of `other`.
    pub(super) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// How many numbers.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub(super) fn sum(&self) -> f64 {
        self.sum as f64 / Self::ONE
    }

    /// The sum of their squares.
    pub(super) fn squares(&self) -> f64 {
        self.squares as f64 / (Self::ONE * Self::ONE)
    }

    /// Their mean; of none, `None`.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum() / self.count as f64)
    }

    /// Their variance (ddof 0); of none, `None`.
    pub(super) fn variance(&self) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        // Around the integer next to the mean, where nothing cancels: Σ(x − m)² = Σx² − m (Σx + r) with r = Σx − n m.
        let count = i128::from(self.count);
        let (center, rest) = (self.sum / count, self.sum % count);
        let squares = self.squares - center * (self.sum + rest);
        let (count, rest) = (count as f64, rest as f64);
        Some(((squares as f64 - rest * rest / count) / count).max(0.0) / (Self::ONE * Self::ONE))
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::assert_close;

    use super::*;

    fn moments(values: &[f64]) -> Moments<44> {
        let mut moments = Moments::default();
        values.iter().for_each(|value| moments.add(*value));
        moments
    }

    /// Mean (1 + 2 + 6)/3 = 3, variance (4 + 1 + 9)/3.
    #[test]
    fn mean_and_variance_are_those_worked_by_hand() {
        let three = moments(&[1.0, 2.0, 6.0]);
        assert_eq!((three.count(), three.mean(), three.variance()), (3, Some(3.0), Some(14.0 / 3.0)));
        assert_eq!((moments(&[]).mean(), moments(&[]).variance()), (None, None));
    }

    #[test]
    fn a_small_spread_far_from_zero_keeps_its_digits() {
        let values = [-19.0 - 1e-7, -19.0 + 1e-7, -19.0 - 1e-7, -19.0 + 1e-7];
        assert_close(moments(&values).variance().unwrap() * 1e14, 1.0, 1e-5, "variance");
        assert_eq!(moments(&[0.1; 7]).variance(), Some(0.0));
    }

    #[test]
    fn a_billion_numbers_of_size_20_have_room() {
        let mut sum = moments(&[20.0, -20.0, 20.0, 20.0]);
        for _ in 0..28 {
            let half = sum;
            sum.merge(&half);
        }
        assert_eq!((sum.count(), sum.mean(), sum.variance()), (1 << 30, Some(10.0), Some(300.0)));
    }
}

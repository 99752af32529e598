//! Metrics as sums with denominators, merged exactly.

use std::collections::BTreeMap;

/// A sum of floating-point numbers without rounding error: the result does not depend on the order or the grouping of
/// the additions, so any split of a batch gives the same metrics to the last bit.
///
/// *Reference*: Shewchuk, "Adaptive precision floating-point arithmetic", 1997: the sum is kept as non-overlapping
/// partial sums.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExactSum {
    partials: Vec<f64>,
    /// Plain sum of the terms that are not finite.
    non_finite: Option<f64>,
}

impl ExactSum {
    /// Adds a number.
    pub fn add(&mut self, value: f64) {
        if !value.is_finite() {
            *self.non_finite.get_or_insert(0.0) += value;
            return;
        }
        let mut carry = value;
        let mut kept = 0;
        for index in 0..self.partials.len() {
            let (mut large, mut small) = (carry, self.partials[index]);
            if large.abs() < small.abs() {
                std::mem::swap(&mut large, &mut small);
            }
            let sum = large + small;
            let error = small - (sum - large);
            if error != 0.0 {
                self.partials[kept] = error;
                kept += 1;
            }
            carry = sum;
        }
        self.partials.truncate(kept);
        self.partials.push(carry);
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Self) {
        for partial in &other.partials {
            self.add(*partial);
        }
        if let Some(value) = other.non_finite {
            self.add(value);
        }
    }

    /// The sum, correctly rounded.
    pub fn value(&self) -> f64 {
        if let Some(value) = self.non_finite {
            return value;
        }
        let mut partials = self.partials.iter().rev().copied();
        let Some(mut sum) = partials.next() else { return 0.0 };
        let mut rest = 0.0;
        for partial in partials.by_ref() {
            let before = sum;
            sum = before + partial;
            rest = partial - (sum - before);
            if rest != 0.0 {
                break;
            }
        }
        // Round half to even needs the sign of what lies below the rounding error.
        if let Some(next) = partials.next()
            && ((rest < 0.0 && next < 0.0) || (rest > 0.0 && next > 0.0))
        {
            let twice = rest * 2.0;
            let rounded = sum + twice;
            if twice == rounded - sum {
                sum = rounded;
            }
        }
        sum
    }
}

impl FromIterator<f64> for ExactSum {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut sum = Self::default();
        values.into_iter().for_each(|value| sum.add(value));
        sum
    }
}

/// A metric in a form that merges.
#[derive(Debug, Clone, PartialEq)]
pub enum Metric {
    /// Σ value / Σ weight.
    Mean {
        /// Weighted sum of the values.
        sum: ExactSum,
        /// Sum of the weights.
        weight: ExactSum,
    },
    /// Σ value.
    Sum(ExactSum),
    /// The largest value.
    Max(f64),
    /// The smallest value.
    Min(f64),
}

impl Metric {
    /// The metric's value; `None` for a mean over nothing.
    pub fn value(&self) -> Option<f64> {
        match self {
            Self::Mean { sum, weight } => {
                let weight = weight.value();
                (weight != 0.0).then(|| sum.value() / weight)
            }
            Self::Sum(sum) => Some(sum.value()),
            Self::Max(value) | Self::Min(value) => Some(*value),
        }
    }
}

/// Named metrics. Recording the parts of a batch separately and merging them gives the same values as recording
/// the batch at once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    entries: BTreeMap<String, Metric>,
}

impl Metrics {
    /// Adds `sum` with denominator `weight` to the mean `name`.
    pub fn add_mean(&mut self, name: &str, sum: f64, weight: f64) {
        let metric = Metric::Mean { sum: ExactSum::from_iter([sum]), weight: ExactSum::from_iter([weight]) };
        self.record(name, &metric);
    }

    /// Adds to the total `name`.
    pub fn add_sum(&mut self, name: &str, value: f64) {
        self.record(name, &Metric::Sum(ExactSum::from_iter([value])));
    }

    /// Raises the maximum `name`.
    pub fn add_max(&mut self, name: &str, value: f64) {
        self.record(name, &Metric::Max(value));
    }

    /// Lowers the minimum `name`.
    pub fn add_min(&mut self, name: &str, value: f64) {
        self.record(name, &Metric::Min(value));
    }

    fn record(&mut self, name: &str, metric: &Metric) {
        match self.entries.get_mut(name) {
            None => {
                self.entries.insert(name.to_owned(), metric.clone());
            }
            Some(entry) => match (entry, metric) {
                (Metric::Mean { sum, weight }, Metric::Mean { sum: other_sum, weight: other_weight }) => {
                    sum.merge(other_sum);
                    weight.merge(other_weight);
                }
                (Metric::Sum(sum), Metric::Sum(other)) => sum.merge(other),
                (Metric::Max(value), Metric::Max(other)) => *value = value.max(*other),
                (Metric::Min(value), Metric::Min(other)) => *value = value.min(*other),
                _ => panic!("metric `{name}` was recorded in two different ways"),
            },
        }
    }

    /// Adds all metrics of `other`.
    ///
    /// # Panics
    /// When a name is of different kinds in the two.
    pub fn merge(&mut self, other: &Self) {
        for (name, metric) in &other.entries {
            self.record(name, metric);
        }
    }

    /// Value of `name`, if it was recorded.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.entries.get(name).and_then(Metric::value)
    }

    /// Names and values, sorted by name; means over nothing are left out.
    pub fn values(&self) -> impl Iterator<Item = (&str, f64)> + '_ {
        self.entries.iter().filter_map(|(name, metric)| Some((name.as_str(), metric.value()?)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// SkyRL #925: 100 tokens of mean 0.5 and 900 of mean 0.3 are 0.32 together, not 0.4.
    #[test]
    fn a_mean_of_parts_weighs_each_part_by_its_denominator() {
        let (mut a, mut b) = (Metrics::default(), Metrics::default());
        a.add_mean("loss", 50.0, 100.0);
        b.add_mean("loss", 270.0, 900.0);
        a.merge(&b);
        assert_eq!(a.get("loss"), Some(0.32));
        assert_eq!(a.get("nothing"), None);
    }

    #[test]
    fn cancelling_terms_leave_the_small_one() {
        let sum: ExactSum = [1e100, 1.0, -1e100].into_iter().collect();
        assert_eq!(sum.value(), 1.0);
        let tenths: ExactSum = std::iter::repeat_n(0.1, 10).collect();
        assert_eq!(tenths.value(), 1.0);
    }

    #[test]
    fn infinities_and_nan_are_kept() {
        let sum: ExactSum = [1.0, f64::INFINITY].into_iter().collect();
        assert_eq!(sum.value(), f64::INFINITY);
        let sum: ExactSum = [f64::NAN, 1.0].into_iter().collect();
        assert!(sum.value().is_nan());
    }

    proptest! {
        #[test]
        fn any_split_and_order_gives_the_same_bits(
            values in prop::collection::vec((-1e12f64..1e12, -30i32..30), 1..40),
            cut in 0usize..40,
            rotate in 0usize..40,
        ) {
            let values: Vec<f64> = values.iter().map(|(v, e)| v * 2f64.powi(*e)).collect();
            let mut whole = Metrics::default();
            for value in &values {
                whole.add_mean("m", *value, 1.0);
                whole.add_max("max", *value);
            }
            let mut shuffled = values.clone();
            let len = shuffled.len();
            shuffled.rotate_left(rotate % len);
            let (left, right) = shuffled.split_at(cut.min(len));
            let mut merged = Metrics::default();
            for part in [right, left] {
                let mut metrics = Metrics::default();
                for value in part {
                    metrics.add_mean("m", *value, 1.0);
                    metrics.add_max("max", *value);
                }
                merged.merge(&metrics);
            }
            prop_assert_eq!(whole.get("m").unwrap().to_bits(), merged.get("m").unwrap().to_bits());
            prop_assert_eq!(whole.get("max"), merged.get("max"));
        }
    }
}

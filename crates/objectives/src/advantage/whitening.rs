//! Mean and deviation over a whole batch.

use serde::{Deserialize, Serialize};

use super::std_spec::StdSpec;

/// How much a response counts in the mean and the deviation of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdvantageWeighting {
    /// As often as it has policy tokens: the statistics are over tokens.
    #[default]
    Token,
    /// Once.
    Sample,
}

/// Mean of values that stand for several each, given as (value, how many), and what deviations from it are divided by;
/// `None` when all are the same number or there is none. Two passes over `values`, no copy.
fn mean_and_divisor(values: impl Iterator<Item = (f64, usize)> + Clone, std: StdSpec) -> Option<(f64, f64)> {
    let counted = values.filter(|(_, count)| *count > 0);
    let (first, _) = counted.clone().next()?;
    if counted.clone().all(|(value, _)| value == first) {
        return None;
    }
    let (sum, number) = counted
        .clone()
        .fold((0.0, 0), |(sum, number), (value, count)| (sum + count as f64 * value, number + count));
    let mean = sum / number as f64;
    Some((mean, std.weighted_divisor(counted.map(|(value, count)| (value - mean, count)))))
}

/// Brings the values of all tokens to mean zero and deviation one, in place. Values that are all equal become zero.
pub(super) fn whiten_tokens(rows: &mut [Vec<f64>], std: StdSpec) {
    let statistics = mean_and_divisor(rows.iter().flatten().map(|value| (*value, 1)), std);
    for value in rows.iter_mut().flatten() {
        *value = statistics.map_or(0.0, |(mean, divisor)| (*value - mean) / divisor);
    }
}

/// Divides the values of responses, each of which counts `counts` times, by their deviation, after taking off their mean
/// if `recentre`; in place. Values that are all equal become zero.
pub(super) fn whiten_responses(values: &mut [f64], counts: &[usize], std: StdSpec, recentre: bool) {
    let statistics = mean_and_divisor(values.iter().copied().zip(counts.iter().copied()), std);
    for value in values {
        *value =
            statistics.map_or(0.0, |(mean, divisor)| (*value - if recentre { mean } else { 0.0 }) / divisor);
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::assert_all_close;

    use super::*;
    use crate::EpsPlacement;

    const EXACT: StdSpec = StdSpec { ddof: 0, eps: 0.0, placement: EpsPlacement::Add };

    /// 0, 0, 0, 4: mean 1, population variance (3 · 1 + 9) / 4 = 3.
    #[test]
    fn a_response_counts_as_often_as_it_is_told() {
        let root = 3_f64.sqrt();
        let mut tokens = vec![vec![0.0; 3], vec![], vec![4.0]];
        whiten_tokens(&mut tokens, EXACT);
        assert_all_close(&tokens.concat(), &[-1.0 / root, -1.0 / root, -1.0 / root, root], 1e-15, "tokens");
        let mut responses = [0.0, 4.0, 7.0];
        whiten_responses(&mut responses, &[3, 1, 0], EXACT, true);
        assert_all_close(&responses[..2], &[-1.0 / root, root], 1e-15, "responses");
        let mut scaled = [0.0, 4.0];
        whiten_responses(&mut scaled, &[3, 1], EXACT, false);
        assert_all_close(&scaled, &[0.0, 4.0 / root], 1e-15, "the mean stays");
    }

    #[test]
    fn equal_values_become_exactly_zero() {
        let mut tokens = vec![vec![0.1; 3], vec![0.1]];
        whiten_tokens(&mut tokens, StdSpec::WHITENING);
        assert_eq!(tokens.concat(), [0.0; 4]);
        let mut responses = [0.1, 0.1];
        whiten_responses(&mut responses, &[1, 2], EXACT, false);
        assert_eq!(responses, [0.0; 2]);
    }
}

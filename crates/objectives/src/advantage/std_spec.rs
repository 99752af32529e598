//! How numbers are divided by their standard deviation.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    ConfigError,
    config_error::{require, require_width},
};

/// Where ε keeps a small deviation from blowing an advantage up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EpsPlacement {
    /// std + ε.
    #[default]
    Add,
    /// √(variance + ε).
    InsideSqrt,
    /// max(std, ε).
    Floor,
}

/// How rewards are divided by their standard deviation.
///
/// *Differs from the paper*: DeepSeekMath (arXiv:2402.03300) names neither the degrees of freedom nor an ε.
/// The defaults, 1 and 1e-6 added to the deviation, are those of verl's GRPO.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StdSpec {
    /// Degrees of freedom subtracted from the number of rewards: 1 for the sample, 0 for the population
    /// deviation.
    pub ddof: u8,
    /// The small number ε, in units of the reward (of its square inside the root).
    pub eps: f64,
    /// Where it stands.
    pub placement: EpsPlacement,
}

impl Default for StdSpec {
    fn default() -> Self {
        Self { ddof: 1, eps: 1e-6, placement: EpsPlacement::Add }
    }
}

impl StdSpec {
    /// verl's for the advantages of a whole batch: the sample deviation with ε = 1e-8 inside the root.
    pub const WHITENING: Self = Self { ddof: 1, eps: 1e-8, placement: EpsPlacement::InsideSqrt };

    /// Checks the numbers.
    ///
    /// # Errors
    /// When `ddof` is not 0 or 1, or `eps` is negative or not finite.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require(self.ddof <= 1, "ddof", f64::from(self.ddof), "0 or 1")?;
        require_width("eps", self.eps)
    }

    /// What deviations from the mean are divided by. They are not all zero and number more than `ddof`.
    pub(super) fn divisor(&self, deviations: &[f64]) -> f64 {
        self.weighted_divisor(deviations.iter().map(|deviation| (*deviation, 1)))
    }

    /// The same of deviations that stand for several each, given as (deviation, how many).
    pub(super) fn weighted_divisor(&self, deviations: impl Iterator<Item = (f64, usize)> + Clone) -> f64 {
        // Scaled by the largest, so that squares neither overflow nor vanish.
        let largest = deviations
            .clone()
            .filter(|(_, count)| *count > 0)
            .fold(0.0_f64, |largest, (deviation, _)| largest.max(deviation.abs()));
        let (squares, number) = deviations.fold((0.0, 0), |(squares, number), (deviation, count)| {
            (squares + count as f64 * (deviation / largest).powi(2), number + count)
        });
        let std = largest * (squares / (number - usize::from(self.ddof)) as f64).sqrt();
        match self.placement {
            EpsPlacement::Add => std + self.eps,
            EpsPlacement::InsideSqrt => std.hypot(self.eps.sqrt()),
            EpsPlacement::Floor => std.max(self.eps),
        }
    }
}

/// A [`StdSpec`] of a config whose missing keys are those of [`StdSpec::WHITENING`].
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Whitening {
    ddof: u8,
    eps: f64,
    placement: EpsPlacement,
}

impl Default for Whitening {
    fn default() -> Self {
        let StdSpec { ddof, eps, placement } = StdSpec::WHITENING;
        Self { ddof, eps, placement }
    }
}

/// Reads the deviation of a whitening.
pub(super) fn whitening<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StdSpec, D::Error> {
    let Whitening { ddof, eps, placement } = Whitening::deserialize(deserializer)?;
    Ok(StdSpec { ddof, eps, placement })
}

/// Reads the deviation of a whitening that may be left out.
pub(super) fn optional_whitening<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<StdSpec>, D::Error> {
    whitening(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::assert_close;

    use super::*;

    #[test]
    fn degrees_of_freedom_beyond_one_are_refused() {
        let error = StdSpec { ddof: 2, ..StdSpec::default() }.validate().unwrap_err();
        assert_eq!(error.to_string(), "ddof = 2: allowed is 0 or 1");
        assert!(StdSpec { eps: f64::NAN, ..StdSpec::default() }.validate().is_err());
    }

    /// −1 twice and 2 once: squares 1 + 1 + 4 = 6, over 2 or 3.
    #[test]
    fn a_deviation_that_stands_for_several_counts_as_often() {
        for (ddof, variance) in [(1, 3.0_f64), (0, 2.0)] {
            let spec = StdSpec { ddof, eps: 0.0, placement: EpsPlacement::Add };
            let weighted = spec.weighted_divisor([(-1.0, 2), (2.0, 1), (1e9, 0)].into_iter());
            assert_close(weighted, variance.sqrt(), 1e-15, "weighted");
            assert_close(spec.divisor(&[-1.0, -1.0, 2.0]), variance.sqrt(), 1e-15, "one by one");
        }
    }
}

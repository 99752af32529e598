//! Deviations from the group's mean, weighed by how rare that mean is.

use firebrick_core::{AdvantageError, AdvantageEstimator, Advantages, Requirements, RewardBatch};
use serde::{Deserialize, Serialize};
use statrs::distribution::{Beta, Continuous};

use super::scored_rows::{ScoredGroup, per_response, scored_groups};
use crate::{ConfigError, config_error::require};

/// Largest factor, for means that the distribution makes all but impossible.
const MOST: f64 = 1e6;
/// Means whose deviation is below this (of rewards in [0, 1]) differ by rounding alone.
const LEAST_SPREAD: f64 = 1e-9;

/// Reward minus the group's mean, divided by the density of that mean under a Beta distribution (BNPO).
///
/// ```text
/// R′  = (R − low) / (high − low)
/// A_i = (R′_i − p_g) · min(1 / f(p_g; α, β), 1e6)          p_g: the group's mean of R′
/// m, v: mean and sample variance of p_g over the groups     s = m (1 − m) / v − 1
/// α   = max(1, 1 + s m / 3)        β = max(1, 1 + s (1 − m) / 3)
/// ```
///
/// A single group, or groups whose means are all the same, give α = β = 1, whose density is 1: Dr. GRPO. Mean and variance
/// are over groups with a scored row, unscored rows in none. A group of equal rewards has advantages of exactly zero. A reward
/// outside [low, high], penalties taken off, is an error.
///
/// *Reference*: Xiao et al., "BNPO: Beta normalization policy optimization", 2025, arXiv:2506.02864; the numbers are those
/// of its public code. (TRL and ms-swift use the name for an aggregation, which is something else.)
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BetaNormalized {
    /// Least reward that can be; default 0.
    pub low: f64,
    /// Greatest reward that can be; default 1.
    pub high: f64,
}

impl Default for BetaNormalized {
    fn default() -> Self {
        Self { low: 0.0, high: 1.0 }
    }
}

impl BetaNormalized {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When the bounds are not finite, or `high` is not above `low`.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require(self.low.is_finite(), "low", self.low, "a finite number")?;
        require(
            self.high.is_finite() && self.high > self.low,
            "high",
            self.high,
            "a finite number greater than low",
        )
    }

    /// Maps the rewards of a group to [0, 1].
    fn map(&self, group: &mut ScoredGroup) -> Result<(), AdvantageError> {
        for (row, reward) in group.rows.iter().zip(&mut group.rewards) {
            if !(self.low..=self.high).contains(reward) {
                return Err(AdvantageError::Missing {
                    row: *row,
                    group: group.group,
                    missing: "a reward between the keys low and high",
                    estimator: "beta_normalized",
                });
            }
            *reward = (*reward - self.low) / (self.high - self.low);
        }
        Ok(())
    }
}

/// The distribution of the groups' means; `None` for the flat one.
fn distribution(means: &[f64]) -> Option<Beta> {
    if means.len() < 2 {
        return None;
    }
    let mean = means.iter().sum::<f64>() / means.len() as f64;
    let variance = means.iter().map(|p| (p - mean).powi(2)).sum::<f64>() / (means.len() - 1) as f64;
    if variance < LEAST_SPREAD * LEAST_SPREAD {
        return None;
    }
    let scale = mean * (1.0 - mean) / variance - 1.0;
    let shape = |share: f64| (1.0 + scale * share / 3.0).max(1.0);
    let beta = Beta::new(shape(mean), shape(1.0 - mean));
    Some(beta.expect("shapes are at least 1, and finite since the variance has a least value"))
}

impl AdvantageEstimator for BetaNormalized {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        let mut groups = scored_groups(batch)?;
        groups.retain(|group| !group.rows.is_empty());
        groups.iter_mut().try_for_each(|group| self.map(group))?;
        let means: Vec<f64> = groups.iter().map(ScoredGroup::mean).collect();
        let distribution = distribution(&means);
        let mut advantages = Vec::with_capacity(batch.rows.len());
        for (group, mean) in groups.iter().zip(&means) {
            // Rounding may carry a mean of rewards within [0, 1] past the end.
            let density = distribution.as_ref().map_or(1.0, |beta| beta.pdf(mean.clamp(0.0, 1.0)));
            let factor = density.recip().clamp(0.0, MOST);
            advantages.extend(group.with(group.centred().into_iter().map(|value| value * factor).collect()));
        }
        Ok(per_response(batch, advantages))
    }

    /// Groups of at least two: a single completion has nothing to be compared with.
    fn requirements(&self) -> Requirements {
        Requirements { min_group_size: 2, ..Requirements::default() }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Advantage, RewardRow};
    use firebrick_testkit::{assert_all_close, check_advantage_estimator};

    use super::*;

    fn advantages(mut estimator: BetaNormalized, groups: &[&[f64]]) -> Vec<f64> {
        let rows = groups.iter().enumerate().flat_map(|(group, rewards)| {
            rewards.iter().map(move |reward| RewardRow::new(group, Some(*reward), 1))
        });
        let batch = RewardBatch { rows: rows.collect() };
        let number = |advantage| match advantage {
            Advantage::Response(advantage) => advantage,
            other => panic!("expected one number per response, found {other:?}"),
        };
        estimator.advantages(&batch).unwrap().rows.into_iter().map(number).collect()
    }

    /// Means ¼ and ¾: m = ½, v = 1/8, s = ¼ / ⅛ − 1 = 1, α = β = 1 + 1/6. The density is symmetric, so both groups have the
    /// factor 1 / f(¼; 7/6, 7/6) with f = (3/16)^{1/6} Γ(7/3) / Γ(7/6)² = 0.756543 · 1.190639 / 0.927719² = 1.046600.
    #[test]
    fn a_mean_that_is_common_counts_less() {
        let found = advantages(BetaNormalized::default(), &[&[1.0, 0.0, 0.0, 0.0], &[1.0, 1.0, 1.0, 0.0]]);
        let factor = 1.0 / 1.046_600;
        let (up, down) = (0.75 * factor, -0.25 * factor);
        assert_all_close(&found, &[up, down, down, down, -down, -down, -down, -up], 2e-6, "advantages");
    }

    #[test]
    fn bounds_map_rewards_to_the_unit_interval() {
        let found = advantages(
            BetaNormalized { low: -1.0, high: 3.0 },
            &[&[3.0, -1.0, -1.0, -1.0], &[3.0, 3.0, 3.0, -1.0]],
        );
        let unit = advantages(BetaNormalized::default(), &[&[1.0, 0.0, 0.0, 0.0], &[1.0, 1.0, 1.0, 0.0]]);
        assert_all_close(&found, &unit, 1e-15, "advantages");
    }

    /// The means of these groups differ in their last digit only.
    #[test]
    fn means_that_differ_by_rounding_are_the_same() {
        let groups: [&[f64]; 3] = [&[0.1, 0.2, 0.3], &[0.3, 0.2, 0.1], &[0.1, 0.3, 0.2]];
        assert_ne!((0.1 + 0.2) + 0.3, (0.3 + 0.2) + 0.1);
        let found = advantages(BetaNormalized::default(), &groups);
        assert_all_close(&found, &[-0.1, 0.0, 0.1, 0.1, 0.0, -0.1, -0.1, 0.1, 0.0], 1e-9, "Dr. GRPO");
    }

    /// Means 0 (with α > 1 of density 0) and ½, ½: the factor is capped, and times zero it is zero.
    #[test]
    fn a_mean_of_density_zero_has_a_finite_factor() {
        let found = advantages(BetaNormalized::default(), &[&[0.0, 0.0], &[1.0, 0.0], &[0.5, 0.5]]);
        assert_eq!((found[0], found[1], found[4], found[5]), (0.0, 0.0, 0.0, 0.0));
        assert!(found[2] > 0.0 && found[2].is_finite());
    }

    #[test]
    fn a_reward_outside_the_bounds_is_refused() {
        let rows = vec![RewardRow::new(3, Some(0.0), 1), RewardRow::new(3, Some(1.5), 1)];
        let error = BetaNormalized::default().advantages(&RewardBatch { rows }).unwrap_err();
        let text = "row 1 (group 3): beta_normalized needs a reward between the keys low and high";
        assert_eq!(error.to_string(), text);
        let error = BetaNormalized { low: 1.0, high: 1.0 }.validate().unwrap_err();
        assert_eq!(error.to_string(), "high = 1: allowed is a finite number greater than low");
    }

    #[test]
    fn keeps_the_contract() {
        check_advantage_estimator(BetaNormalized { low: -0.5, high: 2.5 });
    }
}

//! Advantages of the chance that one of k attempts is right.

use firebrick_core::{AdvantageError, AdvantageEstimator, Advantages, Requirements, RewardBatch};
use serde::{Deserialize, Serialize};

use super::scored_rows::{per_response, scored_groups};
use crate::{
    ConfigError,
    config_error::{require, require_width},
};

/// The mean advantage of a response over all sets of k responses that it belongs to, where a set is worth 1 if one of its
/// responses is right (Pass@k training), in closed form.
///
/// ```text
/// ρ     = 1 − C(n, k) / C(N, k)                     n of the N scored responses of the group are wrong
/// σ     = √(ρ (1 − ρ))
/// right : A = (1 − ρ) / (σ + ε)
/// wrong : A = (1 − ρ − C(n − 1, k − 1) / C(N − 1, k − 1)) / (σ + ε)
/// ```
///
/// They add up to zero over the group. With no right response, or fewer than k wrong ones, all are exactly zero. A response
/// is right when its reward, penalties taken off, is at least `threshold`: a reward that is not binary is made so. With k = 1
/// and binary rewards this is GRPO with the population deviation.
///
/// A group of fewer than k rows is an error; a group that unscored rows leave with fewer than k scored ones has advantages
/// of zero.
///
/// *Reference*: Chen et al., "Pass@k training for adaptively balancing exploration and exploitation of large reasoning
/// models", 2025, arXiv:2508.10751. ε is that of its public code.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassAtK {
    /// Number of attempts k, at least 1.
    pub k: usize,
    /// Least reward of a right response; default 0.5.
    #[serde(default = "half")]
    pub threshold: f64,
    /// The small number ε beside σ; default 1e-6.
    #[serde(default = "millionth")]
    pub eps: f64,
}

fn half() -> f64 {
    0.5
}

fn millionth() -> f64 {
    1e-6
}

impl PassAtK {
    /// With `k` attempts, a threshold of 0.5 and ε = 1e-6.
    pub fn new(k: usize) -> Self {
        Self { k, threshold: half(), eps: millionth() }
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require(self.k >= 1, "k", self.k as f64, "a whole number >= 1")?;
        require(self.threshold.is_finite(), "threshold", self.threshold, "a finite number")?;
        require_width("eps", self.eps)
    }

    /// Advantages of a right and a wrong response among `all`, of which `wrong` are wrong.
    fn right_and_wrong(&self, all: usize, wrong: usize) -> (f64, f64) {
        if all < self.k || wrong == all || wrong < self.k {
            return (0.0, 0.0);
        }
        // C(n, k) / C(N, k) = Π_{i<k} (n − i) / (N − i), whose factors after the first give C(n − 1, k − 1) / C(N − 1, k − 1).
        let factor = |i: usize| (wrong - i) as f64 / (all - i) as f64;
        let with_this: f64 = (1..self.k).map(factor).product();
        let all_wrong = factor(0) * with_this;
        let divisor = (all_wrong * (1.0 - all_wrong)).sqrt() + self.eps;
        (all_wrong / divisor, (all_wrong - with_this) / divisor)
    }
}

impl AdvantageEstimator for PassAtK {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        let groups = scored_groups(batch)?;
        let mut advantages = Vec::with_capacity(batch.rows.len());
        for group in &groups {
            group.require_size(self.k, "pass_at_k")?;
            let wrong = group.rewards.iter().filter(|reward| **reward < self.threshold).count();
            let (of_right, of_wrong) = self.right_and_wrong(group.rewards.len(), wrong);
            let of = |reward: &f64| if *reward < self.threshold { of_wrong } else { of_right };
            advantages.extend(group.with(group.rewards.iter().map(of).collect()));
        }
        Ok(per_response(batch, advantages))
    }

    /// Groups of at least k and at least two.
    fn requirements(&self) -> Requirements {
        Requirements { min_group_size: self.k.max(2), ..Requirements::default() }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Advantage, RewardRow};
    use firebrick_testkit::{assert_close, check_advantage_estimator};

    use super::*;

    /// N = 4, one right, k = 2: ρ = 1 − 3/6 = 1/2, σ = 1/2; a wrong one: 1/2 − C(2, 1)/C(3, 1) = −1/6.
    #[test]
    fn one_right_of_four_in_pairs() {
        let (right, wrong) = PassAtK { eps: 0.0, ..PassAtK::new(2) }.right_and_wrong(4, 3);
        assert_close(right, 1.0, 1e-15, "right");
        assert_close(wrong, -1.0 / 3.0, 1e-15, "wrong");
    }

    #[test]
    fn a_group_that_cannot_do_better_or_worse_has_exactly_zero() {
        for (all, wrong) in [(8, 8), (8, 0), (8, 3), (3, 2)] {
            assert_eq!(PassAtK::new(4).right_and_wrong(all, wrong), (0.0, 0.0), "{wrong} of {all}");
        }
    }

    /// C(2000, 1000) is far beyond any float; here C(1000, 500) / C(2000, 500) is about 1e-190.
    #[test]
    fn large_groups_do_not_overflow() {
        let (right, wrong) = PassAtK::new(500).right_and_wrong(2000, 1000);
        assert!(right > 0.0 && wrong < 0.0 && right.is_finite(), "{right} {wrong}");
        assert_close(right, -wrong, 1e-12, "as many right as wrong add up to zero");
    }

    #[test]
    fn rewards_are_right_from_the_threshold_on_and_unscored_rows_do_not_count() {
        let rewards = [Some(0.5), Some(0.49), None, Some(-1.0), Some(0.0)];
        let rows = rewards.map(|reward| RewardRow::new(0, reward, 1)).to_vec();
        let found = PassAtK { eps: 0.0, ..PassAtK::new(2) }.advantages(&RewardBatch { rows }).unwrap().rows;
        let numbers: Vec<Option<f64>> = found
            .iter()
            .map(|advantage| match advantage {
                Advantage::Response(value) => Some((value * 3.0).round()),
                _ => None,
            })
            .collect();
        assert_eq!(numbers, [Some(3.0), Some(-1.0), None, Some(-1.0), Some(-1.0)]);
    }

    #[test]
    fn a_group_smaller_than_k_is_refused() {
        let rows = vec![RewardRow::new(2, Some(1.0), 1); 3];
        let error = PassAtK::new(4).advantages(&RewardBatch { rows }).unwrap_err();
        assert_eq!(error.to_string(), "group 2 has 3 rows; pass_at_k needs at least 4");
        assert_eq!(
            PassAtK::new(0).validate().unwrap_err().to_string(),
            "k = 0: allowed is a whole number >= 1"
        );
    }

    #[test]
    fn keeps_the_contract() {
        for k in [1, 2, 4] {
            check_advantage_estimator(PassAtK::new(k));
        }
    }
}

//! The scored rows of a rollout batch, by group and by token.

use firebrick_core::{Advantage, AdvantageError, Advantages, RewardBatch};

use super::std_spec::StdSpec;

/// The scored rows of one group.
#[derive(Debug)]
pub(super) struct ScoredGroup {
    /// The group.
    pub(super) group: usize,
    /// Number of its rows, scored or not.
    pub(super) size: usize,
    /// Indices of its scored rows.
    pub(super) rows: Vec<usize>,
    /// Their rewards, penalties taken off; finite.
    pub(super) rewards: Vec<f64>,
}

impl ScoredGroup {
    /// Whether all rewards are the same number. By equality, not by a small deviation: the mean of three times 0.1 is
    /// not 0.1 in floating point. True of a group with no reward or a single one.
    pub(super) fn is_uniform(&self) -> bool {
        self.rewards.iter().all(|reward| *reward == self.rewards[0])
    }

    /// Mean of the rewards, of which there is at least one.
    pub(super) fn mean(&self) -> f64 {
        self.rewards.iter().sum::<f64>() / self.rewards.len() as f64
    }

    /// Rewards less their mean: exactly zero where all are equal.
    pub(super) fn centred(&self) -> Vec<f64> {
        if self.is_uniform() {
            return vec![0.0; self.rewards.len()];
        }
        let mean = self.mean();
        self.rewards.iter().map(|reward| reward - mean).collect()
    }

    /// Rewards less their mean, divided by their deviation if one is given: exactly zero where all are equal.
    pub(super) fn normalized(&self, std: Option<StdSpec>) -> Vec<f64> {
        let mut deviations = self.centred();
        if let Some(std) = std.filter(|_| !self.is_uniform()) {
            let divisor = std.divisor(&deviations);
            deviations.iter_mut().for_each(|deviation| *deviation /= divisor);
        }
        deviations
    }

    /// Row indices beside the advantages of the scored rows.
    pub(super) fn with(&self, advantages: Vec<f64>) -> impl Iterator<Item = (usize, f64)> {
        self.rows.iter().copied().zip(advantages)
    }

    /// Refuses a group of fewer than `needed` rows. Rows count whether they are scored or not, so that a verifier that
    /// fails on one row does not end a run.
    pub(super) fn require_size(&self, needed: usize, estimator: &'static str) -> Result<(), AdvantageError> {
        if self.size >= needed {
            return Ok(());
        }
        Err(AdvantageError::GroupTooSmall { group: self.group, found: self.size, needed, estimator })
    }
}

/// The scored rows of each group, groups in order of first appearance.
///
/// # Errors
/// When a reward is not finite.
pub(super) fn scored_groups(batch: &RewardBatch) -> Result<Vec<ScoredGroup>, AdvantageError> {
    let groups = batch.groups().into_iter();
    groups
        .map(|members| {
            let group = batch.rows[members[0]].group;
            let mut scored =
                ScoredGroup { group, size: members.len(), rows: Vec::new(), rewards: Vec::new() };
            for row in members {
                if let Some(reward) = finite_reward(batch, row)? {
                    scored.rows.push(row);
                    scored.rewards.push(reward);
                }
            }
            Ok(scored)
        })
        .collect()
}

/// The reward of a row, penalties taken off; `None` when it is unscored.
pub(super) fn finite_reward(batch: &RewardBatch, row: usize) -> Result<Option<f64>, AdvantageError> {
    match batch.rows[row].penalized_reward() {
        Some(reward) if !reward.is_finite() => {
            Err(AdvantageError::NonFinite { row, group: batch.rows[row].group, reward })
        }
        reward => Ok(reward),
    }
}

/// Indices of the scored rows with their rewards token by token.
///
/// # Errors
/// When a reward is not finite.
pub(super) fn token_rewards(batch: &RewardBatch) -> Result<(Vec<usize>, Vec<Vec<f64>>), AdvantageError> {
    let (mut indices, mut rewards) = (Vec::new(), Vec::new());
    for (index, row) in batch.rows.iter().enumerate() {
        let Some(tokens) = row.token_rewards() else { continue };
        // A response without a token still has an outcome that must be a number.
        let mut all = tokens.iter().chain(&row.reward);
        if let Some(reward) = all.find(|reward| !reward.is_finite()) {
            return Err(AdvantageError::NonFinite { row: index, group: row.group, reward: *reward });
        }
        indices.push(index);
        rewards.push(tokens);
    }
    Ok((indices, rewards))
}

/// Turns token rewards ρ into returns, in place: U_t = ρ_t + γ U_{t+1}.
pub(super) fn accumulate(rewards: &mut [f64], gamma: f64) {
    let mut next = 0.0;
    for reward in rewards.iter_mut().rev() {
        *reward += gamma * next;
        next = *reward;
    }
}

/// One advantage per response at the given row indices; the other rows are excluded.
pub(super) fn per_response(
    batch: &RewardBatch,
    advantages: impl IntoIterator<Item = (usize, f64)>,
) -> Advantages {
    let mut rows = vec![Advantage::Excluded; batch.rows.len()];
    for (row, advantage) in advantages {
        rows[row] = Advantage::Response(advantage);
    }
    rows.into()
}

/// One advantage per token at the given row indices; the other rows are excluded.
pub(super) fn per_token(batch: &RewardBatch, indices: &[usize], advantages: Vec<Vec<f64>>) -> Advantages {
    let mut rows = vec![Advantage::Excluded; batch.rows.len()];
    for (row, advantages) in indices.iter().zip(advantages) {
        rows[*row] = Advantage::Tokens(advantages);
    }
    rows.into()
}

#[cfg(test)]
mod tests {
    use firebrick_core::RewardRow;

    use super::*;

    #[test]
    fn a_group_keeps_its_size_when_rows_are_unscored() {
        let rows = [Some(1.0), None, Some(0.5)].map(|reward| RewardRow::new(3, reward, 1)).to_vec();
        let groups = scored_groups(&RewardBatch { rows }).unwrap();
        assert_eq!(
            (groups[0].size, &groups[0].rows[..], &groups[0].rewards[..]),
            (3, &[0, 2][..], &[1.0, 0.5][..])
        );
        let error = groups[0].require_size(4, "it").unwrap_err();
        assert_eq!(error.to_string(), "group 3 has 3 rows; it needs at least 4");
    }

    /// U_3 = 4, U_2 = 2 + 4/2 = 4, U_1 = 1 + 4/2 = 3.
    #[test]
    fn returns_discount_what_comes_later() {
        let mut tokens = [1.0, 2.0, 4.0];
        accumulate(&mut tokens, 0.5);
        assert_eq!(tokens, [3.0, 4.0, 4.0]);
    }

    #[test]
    fn a_penalty_that_is_not_finite_is_refused_by_token_and_by_response() {
        let row = RewardRow::new(1, Some(0.0), 2).with_penalties(vec![f64::NAN, 0.0]);
        let batch = RewardBatch { rows: vec![row] };
        for error in [token_rewards(&batch).unwrap_err(), scored_groups(&batch).unwrap_err()] {
            assert!(error.to_string().starts_with("row 0 (group 1): the reward is NaN"), "{error}");
        }
    }

    #[test]
    fn the_outcome_of_a_response_without_tokens_must_be_finite_too() {
        let batch = RewardBatch { rows: vec![RewardRow::new(0, Some(f64::INFINITY), 0)] };
        assert!(token_rewards(&batch).is_err());
    }
}

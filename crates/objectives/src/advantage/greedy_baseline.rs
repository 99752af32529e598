//! Advantages relative to the greedy completion.

use firebrick_core::{AdvantageError, AdvantageEstimator, Advantages, Requirements, RewardBatch};

use super::scored_rows::{accumulate, per_token, token_rewards};

/// The return at each token minus the reward of the prompt's greedy completion (ReMax).
///
/// ```text
/// U_t = Σ_{k ≥ t} ρ_k                 ρ_t: the outcome at the last token, less each token's penalty
/// A_t = U_t − R(greedy completion)
/// ```
///
/// It costs one more completion per prompt. No row is compared with another, so a group may have one row. A scored row
/// whose greedy completion has no score is an error. Equal rewards have advantages of zero where the greedy completion has
/// the same reward.
///
/// *Reference*: Li et al., "ReMax", 2023, arXiv:2310.10505.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GreedyBaseline;

impl AdvantageEstimator for GreedyBaseline {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        let (rows, mut tokens) = token_rewards(batch)?;
        for (index, tokens) in rows.iter().zip(&mut tokens) {
            let row = &batch.rows[*index];
            let missing = |missing| AdvantageError::Missing {
                row: *index,
                group: row.group,
                missing,
                estimator: "greedy_baseline",
            };
            let baseline = row.greedy_reward.ok_or_else(|| missing("the reward of the greedy completion"))?;
            if !baseline.is_finite() {
                return Err(missing("a finite reward of the greedy completion"));
            }
            accumulate(tokens, 1.0);
            tokens.iter_mut().for_each(|value| *value -= baseline);
        }
        Ok(per_token(batch, &rows, tokens))
    }

    /// A greedy completion of each prompt.
    fn requirements(&self) -> Requirements {
        Requirements { greedy_baseline: true, ..Requirements::default() }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Advantage, RewardRow};
    use firebrick_testkit::check_advantage_estimator;

    use super::*;

    /// ρ = [−0.5, 0, 2 − 0.25]: U = [1.25, 1.75, 1.75], less 1.
    #[test]
    fn the_return_is_measured_against_the_greedy_reward() {
        let row = RewardRow::new(0, Some(2.0), 3)
            .with_penalties(vec![0.5, 0.0, 0.25])
            .with_greedy_reward(Some(1.0));
        let unscored = RewardRow::new(0, None, 3);
        let found = GreedyBaseline.advantages(&RewardBatch { rows: vec![row, unscored] }).unwrap();
        assert_eq!(found.rows, [Advantage::Tokens(vec![0.25, 0.75, 0.75]), Advantage::Excluded]);
    }

    #[test]
    fn a_scored_row_without_a_greedy_reward_is_refused() {
        let of = |greedy| {
            let row = RewardRow::new(5, Some(1.0), 2).with_greedy_reward(greedy);
            GreedyBaseline.advantages(&RewardBatch { rows: vec![row] }).unwrap_err().to_string()
        };
        let text = "row 0 (group 5): greedy_baseline needs the reward of the greedy completion";
        assert_eq!(of(None), text);
        assert!(of(Some(f64::NAN)).ends_with("needs a finite reward of the greedy completion"));
    }

    #[test]
    fn keeps_the_contract() {
        assert!(GreedyBaseline.requirements().greedy_baseline);
        check_advantage_estimator(GreedyBaseline);
    }
}

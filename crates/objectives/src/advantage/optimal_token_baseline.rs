//! Advantages relative to the baseline of least variance at each token.

use firebrick_core::{AdvantageError, AdvantageEstimator, Advantages, Requirements, RewardBatch, RewardRow};
use serde::{Deserialize, Serialize};

use super::scored_rows::{accumulate, per_token, token_rewards};

/// The return at each token, less the group's returns at the same position weighted by how much gradient each response has
/// gathered until there.
///
/// ```text
/// U_t = Σ_{k ≥ t} ρ_k                                   ρ_t: the outcome at the last token, less each token's penalty
/// W_t = Σ_{k ≤ t} c_k² (1 − 2 π(y_k) + Σ_v π(v)²)       the squared gradients of log π(y_k) by the logits, added up
/// b_t = Σ_j U_{j,t} W_{j,t} / Σ_j W_{j,t}               over the scored responses of the group with a token t
/// A_t = U_t − b_t
/// ```
///
/// π is the learner at the start of the rollout batch, t the rank among policy tokens, c the [`RewardRow::weights`] (1 where there
/// are none). Weights that are all the same make b the mean of the returns. Where no response has a gradient (W = 0), b is that
/// mean. Returns that are all the same have advantages of exactly zero.
///
/// The tail of a response, which no other of the group reaches, has no other return to be compared with. By default its advantage
/// is zero, that of a response that is alone in its group too; `raw_tail` leaves the return there.
///
/// *Reference*: Li et al., "The Optimal Token Baseline", 2026, arXiv:2602.07078.
///
/// *Differs from the public implementation*: verl leaves the return in the tail by default, adds 1e-8 to the sum of the weights, and
/// always leaves the returns of a response that is alone in its group. Equal rewards then have advantages that are not zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimalTokenBaseline {
    /// Whether tokens that no other response of the group reaches keep their return; default false, which makes their advantage
    /// zero.
    pub raw_tail: bool,
}

impl OptimalTokenBaseline {
    /// The baseline at a position, from the return U and the gathered gradient W of each response that reaches it.
    fn baseline(self, reaching: &[(f64, f64)]) -> f64 {
        let [(first, _), others @ ..] = reaching else { return 0.0 };
        if others.is_empty() && self.raw_tail {
            return 0.0;
        }
        // By equality: a weighted mean of equal numbers is not that number in floating point.
        if others.iter().all(|(value, _)| value == first) {
            return *first;
        }
        let total: f64 = reaching.iter().map(|(_, energy)| energy).sum();
        if total > 0.0 {
            reaching.iter().map(|(value, energy)| value * energy).sum::<f64>() / total
        } else {
            reaching.iter().map(|(value, _)| value).sum::<f64>() / reaching.len() as f64
        }
    }
}

/// W at each policy token, or what is missing for it.
fn energies(row: &RewardRow) -> Result<Vec<f64>, &'static str> {
    if row.log_probs.len() != row.len || row.collision_probabilities.len() != row.len {
        return Err("one log-prob and one collision probability per policy token");
    }
    if !row.weights.is_empty() && row.weights.len() != row.len {
        return Err("one weight per policy token, or none");
    }
    let mut sum = 0.0;
    let energy = |index: usize| {
        let weight = row.weights.get(index).copied().unwrap_or(1.0);
        // At least (1 − π)², but for rounding.
        let norm = 1.0 - 2.0 * row.log_probs[index].exp() + row.collision_probabilities[index];
        sum += weight * weight * norm.max(0.0);
        // `max` drops a NaN.
        if norm.is_finite() && f64::is_finite(sum) {
            Ok(sum)
        } else {
            Err("finite probabilities and weights")
        }
    };
    (0..row.len).map(energy).collect()
}

impl AdvantageEstimator for OptimalTokenBaseline {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        let (rows, mut tokens) = token_rewards(batch)?;
        let mut gathered = Vec::with_capacity(rows.len());
        for (index, returns) in rows.iter().zip(&mut tokens) {
            accumulate(returns, 1.0);
            let row = &batch.rows[*index];
            let named = |missing| AdvantageError::Missing {
                row: *index,
                group: row.group,
                missing,
                estimator: "optimal_token_baseline",
            };
            gathered.push(energies(row).map_err(named)?);
        }
        let mut scored = vec![None; batch.rows.len()];
        for (place, row) in rows.iter().enumerate() {
            scored[*row] = Some(place);
        }
        for group in batch.groups() {
            let members: Vec<usize> = group.into_iter().filter_map(|row| scored[row]).collect();
            let longest = members.iter().map(|place| tokens[*place].len()).max().unwrap_or(0);
            let mut reaching = Vec::with_capacity(members.len());
            for t in 0..longest {
                reaching.clear();
                let at = |values: &[Vec<f64>], place: usize| values[place].get(t).copied();
                reaching.extend(
                    members.iter().filter_map(|place| at(&tokens, *place).zip(at(&gathered, *place))),
                );
                let baseline = self.baseline(&reaching);
                for place in &members {
                    if let Some(value) = tokens[*place].get_mut(t) {
                        *value -= baseline;
                    }
                }
            }
        }
        Ok(per_token(batch, &rows, tokens))
    }

    /// Sums of squared probabilities, and groups of at least two: a single completion has nothing to be compared with.
    fn requirements(&self) -> Requirements {
        Requirements { collision_probabilities: true, min_group_size: 2, ..Requirements::default() }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::Advantage;
    use firebrick_testkit::{assert_all_close, check_advantage_estimator};

    use super::*;

    /// A row whose tokens have the probability ½ and the given squared gradients: Σπ² is as much.
    fn row(reward: Option<f64>, norms: &[f64]) -> RewardRow {
        RewardRow::new(0, reward, norms.len())
            .with_collision_probabilities(vec![0.5_f64.ln(); norms.len()], norms.to_vec())
    }

    fn advantages(estimator: OptimalTokenBaseline, rows: Vec<RewardRow>) -> Vec<Advantage> {
        let mut estimator = estimator;
        estimator.advantages(&RewardBatch { rows }).unwrap().rows
    }

    fn tokens(advantage: &Advantage) -> &[f64] {
        let Advantage::Tokens(tokens) = advantage else { panic!("one number per token: {advantage:?}") };
        tokens
    }

    /// W = [0.25, 1] and [0.75, 1]; U = [1, 1] and [0, 0]: b_1 = 0.25/1 = 0.25, b_2 = 1/2.
    #[test]
    fn a_response_weighs_by_the_gradient_that_it_has_gathered() {
        let rows = vec![row(Some(1.0), &[0.25, 0.75]), row(None, &[9.0]), row(Some(0.0), &[0.75, 0.25])];
        let found = advantages(OptimalTokenBaseline::default(), rows);
        assert_all_close(tokens(&found[0]), &[0.75, 0.5], 1e-14, "first");
        assert_eq!(found[1], Advantage::Excluded);
        assert_all_close(tokens(&found[2]), &[-0.25, -0.5], 1e-14, "last");
    }

    /// c = 2 and 1 at equal norms: b = 4/5 · 1.
    #[test]
    fn weights_of_the_gradient_enter_squared() {
        let rows = vec![row(Some(1.0), &[0.5]).with_weights(vec![2.0]), row(Some(0.0), &[0.5])];
        let found = advantages(OptimalTokenBaseline::default(), rows);
        assert_all_close(&[tokens(&found[0])[0], tokens(&found[1])[0]], &[0.2, -0.8], 1e-14, "advantages");
    }

    /// ρ = [−0.5, 1]: U = [0.5, 1] against [0]; equal norms, so b_1 = 0.25.
    #[test]
    fn the_tail_is_zero_or_keeps_its_return() {
        let rows = vec![row(Some(1.0), &[0.5; 2]).with_penalties(vec![0.5, 0.0]), row(Some(0.0), &[0.5])];
        let zero = advantages(OptimalTokenBaseline::default(), rows.clone());
        assert_all_close(tokens(&zero[0]), &[0.25, 0.0], 1e-14, "zero tail");
        let raw = advantages(OptimalTokenBaseline { raw_tail: true }, rows.clone());
        assert_all_close(tokens(&raw[0]), &[0.25, 1.0], 1e-14, "raw tail");
        let lone = rows[..1].to_vec();
        assert_eq!(tokens(&advantages(OptimalTokenBaseline::default(), lone)[0]), [0.0, 0.0]);
    }

    #[test]
    fn equal_weights_and_certain_tokens_both_give_the_mean() {
        for norm in [0.3, 0.0] {
            let rows = vec![row(Some(1.0), &[norm]), row(Some(0.0), &[norm]), row(Some(0.5), &[norm])];
            let found = advantages(OptimalTokenBaseline::default(), rows);
            let found: Vec<f64> = found.iter().map(|row| tokens(row)[0]).collect();
            assert_all_close(&found, &[0.5, -0.5, 0.0], 1e-14, "less the mean");
        }
    }

    #[test]
    fn probabilities_that_are_missing_or_not_finite_are_refused() {
        let of = |row: RewardRow| {
            OptimalTokenBaseline::default()
                .advantages(&RewardBatch { rows: vec![row] })
                .unwrap_err()
                .to_string()
        };
        let text = "row 0 (group 0): optimal_token_baseline needs ";
        let missing = "one log-prob and one collision probability per policy token";
        assert_eq!(of(RewardRow::new(0, Some(1.0), 2)), format!("{text}{missing}"));
        assert!(of(row(Some(1.0), &[f64::NAN])).ends_with("finite probabilities and weights"));
        let weighted = row(Some(1.0), &[0.5]).with_weights(vec![1.0; 2]);
        assert!(of(weighted).ends_with("one weight per policy token, or none"));
    }

    #[test]
    fn keeps_the_contract() {
        check_advantage_estimator(OptimalTokenBaseline::default());
    }
}

//! Advantages relative to all that was ever sampled for the prompt.

use std::collections::{BTreeMap, HashMap};

use firebrick_core::{
    AdvantageError, AdvantageEstimator, Advantages, Requirements, RewardBatch, StateError, Stateful,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::scored_rows::{ScoredGroup, finite_reward, per_response};

const NAME: &str = "smooth_standardized";

/// What is known of the rewards of a prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct History {
    /// Number of visits.
    visits: u64,
    /// Mean of all rewards.
    mean: f64,
    /// Variance of all rewards.
    variance: f64,
}

impl History {
    /// With one more visit, of this mean and variance.
    fn after(self, mean: f64, variance: f64) -> Self {
        let visits = self.visits + 1;
        let (before, i) = (self.visits as f64, visits as f64);
        let shift = mean - self.mean;
        // As increments, so that visits of equal numbers change nothing, not even by rounding.
        let spread = variance - self.variance + (before / i) * shift * shift;
        Self { visits, mean: self.mean + shift / i, variance: (self.variance + spread / i).max(0.0) }
    }
}

/// Rewards standardised by the visit and by the prompt's whole history, mixed by the number of visits (the smooth advantage
/// standardisation of DCPO).
///
/// ```text
/// m, s²                                          mean and variance of visit i, with `ddof` degrees of freedom less
/// M_i = M_{i−1} + (m − M_{i−1}) / i              S²_i = ((i − 1) S²_{i−1} + s² + (i − 1)/i (m − M_{i−1})²) / i
/// A_new = (R − m) / s                            A_all = (R − M_i) / S_i               0 where the deviation is 0
/// Ã_new = (i − 1)/i A_new + 1/i A_all            Ã_all = 1/i A_new + (i − 1)/i A_all
/// A     = the one of smaller magnitude, Ã_all of equals
/// ```
///
/// A prompt is recognised by its id ([`firebrick_core::RewardRow::prompt`]), which every scored row needs; all its scored rows
/// in a batch are one visit, and a batch without any is none. The first visit is plain standardisation. A later visit of
/// equal rewards has advantages of zero only if all rewards ever seen were the same: that is the point of it. There is no ε.
///
/// The history is state, saved with the checkpoint. A batch that is refused leaves it as it was.
///
/// *Reference*: Yang et al., "DCPO: Dynamic clipping policy optimization", 2025, arXiv:2509.02333.
///
/// *Differs from the paper*: nothing by default. The update of S² pools exactly for `ddof = 0`; the public code feeds it
/// sample variances, `ddof = 1`, which is the default here.
#[derive(Debug, Clone, PartialEq)]
pub struct SmoothStandardized {
    ddof: u8,
    prompts: BTreeMap<String, History>,
}

impl SmoothStandardized {
    /// Without history. `ddof` is 0 or 1.
    pub fn new(ddof: u8) -> Self {
        Self { ddof, prompts: BTreeMap::new() }
    }

    /// The history after a visit of these rewards, and their advantages.
    fn visit(&self, history: History, visit: &ScoredGroup) -> (History, Vec<f64>) {
        // Equal rewards have that mean exactly.
        let mean = if visit.is_uniform() { visit.rewards[0] } else { visit.mean() };
        let squares: f64 = visit.rewards.iter().map(|reward| (reward - mean).powi(2)).sum();
        let freedom = visit.rewards.len().saturating_sub(usize::from(self.ddof)).max(1);
        let variance = squares / freedom as f64;
        let after = history.after(mean, variance);
        let i = after.visits as f64;
        let advantage = |reward: &f64| {
            let new = standardized(*reward, mean, variance);
            let all = standardized(*reward, after.mean, after.variance);
            let smooth_new = (i - 1.0) / i * new + all / i;
            let smooth_all = new / i + (i - 1.0) / i * all;
            if smooth_new.abs() < smooth_all.abs() { smooth_new } else { smooth_all }
        };
        (after, visit.rewards.iter().map(advantage).collect())
    }
}

fn standardized(reward: f64, mean: f64, variance: f64) -> f64 {
    if variance > 0.0 { (reward - mean) / variance.sqrt() } else { 0.0 }
}

/// The scored rows of each prompt.
fn visits(batch: &RewardBatch) -> Result<Vec<(&str, ScoredGroup)>, AdvantageError> {
    let mut visits: Vec<(&str, ScoredGroup)> = Vec::new();
    let mut of_prompt: HashMap<&str, usize> = HashMap::new();
    for (index, row) in batch.rows.iter().enumerate() {
        let Some(reward) = finite_reward(batch, index)? else { continue };
        if row.prompt.is_empty() {
            let (group, missing) = (row.group, "the id of the prompt");
            return Err(AdvantageError::Missing { row: index, group, missing, estimator: NAME });
        }
        let visit = *of_prompt.entry(&row.prompt).or_insert_with(|| {
            let empty = ScoredGroup { group: row.group, size: 0, rows: Vec::new(), rewards: Vec::new() };
            visits.push((&row.prompt, empty));
            visits.len() - 1
        });
        let (_, visit) = &mut visits[visit];
        visit.size += 1;
        visit.rows.push(index);
        visit.rewards.push(reward);
    }
    Ok(visits)
}

impl AdvantageEstimator for SmoothStandardized {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        let mut advantages = Vec::with_capacity(batch.rows.len());
        for (prompt, visit) in visits(batch)? {
            let history = self.prompts.get(prompt).copied().unwrap_or_default();
            let (after, values) = self.visit(history, &visit);
            self.prompts.insert(prompt.to_owned(), after);
            advantages.extend(visit.with(values).collect::<Vec<_>>());
        }
        Ok(per_response(batch, advantages))
    }

    /// Groups of at least two: a first visit of a single completion has nothing to be compared with.
    fn requirements(&self) -> Requirements {
        Requirements { min_group_size: 2, ..Requirements::default() }
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }
}

impl Stateful for SmoothStandardized {
    fn save(&self) -> Value {
        serde_json::json!(self.prompts)
    }

    fn load(&mut self, state: &Value) -> Result<(), StateError> {
        let mismatch = |reason: String| StateError::Mismatch { part: NAME.to_owned(), reason };
        let prompts = BTreeMap::<String, History>::deserialize(state)
            .map_err(|error| mismatch(format!("it is no history of prompts: {error}")))?;
        for (prompt, history) in &prompts {
            let finite = history.mean.is_finite() && history.variance.is_finite();
            if history.visits == 0 || !finite || history.variance < 0.0 {
                return Err(mismatch(format!("the history of prompt {prompt:?} is {history:?}")));
            }
        }
        self.prompts = prompts;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Advantage, RewardRow};
    use firebrick_testkit::{assert_all_close, check_advantage_estimator};

    use super::*;

    fn visit(estimator: &mut SmoothStandardized, rewards: &[f64]) -> Vec<f64> {
        let row = |reward: &f64| RewardRow::new(0, Some(*reward), 1).with_prompt("p");
        let batch = RewardBatch { rows: rewards.iter().map(row).collect() };
        let number = |advantage| match advantage {
            Advantage::Response(advantage) => advantage,
            other => panic!("expected one number per response, found {other:?}"),
        };
        estimator.advantages(&batch).unwrap().rows.into_iter().map(number).collect()
    }

    /// Visit 1: m = ½, s² = 1/3. Visit 2: m = ¼, s² = ¼; M = 3/8, S² = (1/3 + 1/4 + ½ · 1/16)/2 = 59/192. The right one:
    /// A_new = ¾ / ½ = 3/2, A_all = ⅝ / 0.554339 = 1.127470, half of both 1.313735.
    #[test]
    fn a_second_visit_mixes_both_in_halves() {
        let mut estimator = SmoothStandardized::new(1);
        let root = 0.75_f64.sqrt();
        let first = visit(&mut estimator, &[1.0, 1.0, 0.0, 0.0]);
        assert_all_close(&first, &[root, root, -root, -root], 1e-14, "visit 1");
        let second = visit(&mut estimator, &[1.0, 0.0, 0.0, 0.0]);
        let wrong = -0.588_241;
        assert_all_close(&second, &[1.313_735, wrong, wrong, wrong], 1e-6, "visit 2");
        let History { visits, mean, variance } = estimator.prompts["p"];
        assert_eq!((visits, mean), (2, 0.375));
        assert_all_close(&[variance], &[59.0 / 192.0], 1e-14, "variance");
    }

    /// Visits 1 and 2 of M = 0.5, S² = 1/3; visit 3 all right: M = 2/3, S² = (2/3 + 0 + 2/3 · 1/4)/3 = 5/18;
    /// A_all = (1/3)/√(5/18) = 0.632456, A_new = 0; A_all/3 = 0.210819 is the smaller.
    #[test]
    fn equal_rewards_still_count_against_a_mixed_history() {
        let mut estimator = SmoothStandardized::new(1);
        let state = serde_json::json!({ "p": { "visits": 2, "mean": 0.5, "variance": 1.0 / 3.0 } });
        estimator.load(&state).unwrap();
        let third = 1.0 / 9.0 / (5.0_f64 / 18.0).sqrt();
        assert_all_close(&visit(&mut estimator, &[1.0; 4]), &[third; 4], 1e-14, "visit 3");
    }

    #[test]
    fn rewards_that_were_never_different_have_exactly_zero() {
        let mut estimator = SmoothStandardized::new(1);
        for number in [4, 3, 7, 1, 2] {
            assert_eq!(visit(&mut estimator, &vec![0.1; number]), vec![0.0; number]);
        }
    }

    /// With the population variance, pooling equal visits gives mean and variance of all rewards together: [1,1,0,0,1,0,0,0]
    /// has mean 3/8 and variance 3/8 · 5/8.
    #[test]
    fn population_variances_pool_exactly() {
        let mut estimator = SmoothStandardized::new(0);
        visit(&mut estimator, &[1.0, 1.0, 0.0, 0.0]);
        visit(&mut estimator, &[1.0, 0.0, 0.0, 0.0]);
        assert_all_close(&[estimator.prompts["p"].variance], &[15.0 / 64.0], 1e-14, "variance");
    }

    #[test]
    fn a_refused_batch_leaves_the_history_alone() {
        let mut estimator = SmoothStandardized::new(1);
        visit(&mut estimator, &[1.0, 0.0]);
        let before = estimator.clone();
        let rows = vec![RewardRow::new(0, Some(1.0), 1).with_prompt("p"), RewardRow::new(1, Some(1.0), 1)];
        let error = estimator.advantages(&RewardBatch { rows }).unwrap_err();
        assert_eq!(error.to_string(), "row 1 (group 1): smooth_standardized needs the id of the prompt");
        assert_eq!(estimator, before);
    }

    #[test]
    fn an_unscored_visit_is_no_visit() {
        let mut estimator = SmoothStandardized::new(1);
        let rows = vec![RewardRow::new(0, None, 1).with_prompt("p"), RewardRow::new(1, None, 1)];
        let found = estimator.advantages(&RewardBatch { rows }).unwrap().rows;
        assert_eq!(found, [Advantage::Excluded, Advantage::Excluded]);
        assert_eq!(estimator, SmoothStandardized::new(1));
    }

    #[test]
    fn a_restored_history_continues_to_the_last_bit() {
        let mut estimator = SmoothStandardized::new(1);
        visit(&mut estimator, &[0.1, 0.7, 0.3]);
        let text = estimator.save().to_string();
        let mut restored = SmoothStandardized::new(1);
        restored.load(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(visit(&mut restored, &[0.9, 0.2]), visit(&mut estimator, &[0.9, 0.2]));
        for broken in ["null", "[1]", r#"{"p":{"visits":0,"mean":0.0,"variance":0.0}}"#] {
            assert!(restored.load(&serde_json::from_str(broken).unwrap()).is_err(), "{broken}");
        }
    }

    #[test]
    fn keeps_the_contract() {
        check_advantage_estimator(SmoothStandardized::new(1));
        check_advantage_estimator(SmoothStandardized::new(0));
    }
}

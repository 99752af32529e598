//! Advantages relative to the mean of the others.

use firebrick_core::{AdvantageError, AdvantageEstimator, Advantages, Requirements, RewardBatch};

use super::scored_rows::{per_response, scored_groups};

/// Reward minus the mean reward of the group's other responses (RLOO).
///
/// ```text
/// A_i = R_i − mean_{j ≠ i} R_j = G/(G − 1) (R_i − mean_g)
/// ```
///
/// G counts the scored rows. The baseline of a response does not depend on its own reward, which leaves the gradient
/// unbiased. A group of a single row is an error; a group that unscored rows leave with a single scored one has the
/// advantage zero.
///
/// *Reference*: Kool, van Hoof, Welling, "Buy 4 REINFORCE samples, get a baseline for free!", 2019; for language models:
/// Ahmadian et al., "Back to basics", 2024, arXiv:2402.14740.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeaveOneOut;

impl AdvantageEstimator for LeaveOneOut {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        let groups = scored_groups(batch)?;
        let mut advantages = Vec::with_capacity(batch.rows.len());
        for group in &groups {
            group.require_size(2, "leave_one_out")?;
            let mut deviations = group.centred();
            if deviations.len() > 1 {
                let factor = deviations.len() as f64 / (deviations.len() - 1) as f64;
                deviations.iter_mut().for_each(|deviation| *deviation *= factor);
            }
            advantages.extend(group.with(deviations));
        }
        Ok(per_response(batch, advantages))
    }

    /// Groups of at least two.
    fn requirements(&self) -> Requirements {
        Requirements { min_group_size: 2, ..Requirements::default() }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Advantage, RewardRow};
    use firebrick_testkit::check_advantage_estimator;

    use super::*;

    fn group(rewards: &[Option<f64>]) -> Result<Vec<Advantage>, AdvantageError> {
        let rows = rewards.iter().map(|reward| RewardRow::new(7, *reward, 3)).collect();
        Ok(LeaveOneOut.advantages(&RewardBatch { rows })?.rows)
    }

    /// The others' means: 0 for the first, 1/2 for the second and third: 1 − 0, 0 − 1/2, 0 − 1/2.
    #[test]
    fn a_response_is_compared_with_the_others_alone() {
        let found = group(&[Some(1.0), Some(0.0), None, Some(0.0)]).unwrap();
        let [first, other] = [1.0, -0.5].map(Advantage::Response);
        assert_eq!(found, [first, other.clone(), Advantage::Excluded, other]);
    }

    #[test]
    fn a_group_of_one_is_refused_and_one_left_by_a_failed_verifier_is_not() {
        let error = group(&[Some(1.0)]).unwrap_err();
        assert_eq!(error.to_string(), "group 7 has 1 rows; leave_one_out needs at least 2");
        assert_eq!(group(&[Some(1.0), None]).unwrap(), [Advantage::Response(0.0), Advantage::Excluded]);
    }

    #[test]
    fn keeps_the_contract() {
        check_advantage_estimator(LeaveOneOut);
    }
}

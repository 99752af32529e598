//! Advantages relative to a critic.

use firebrick_core::{AdvantageError, AdvantageEstimator, Advantages, Requirements, RewardBatch};
use serde::{Deserialize, Serialize};

use super::{
    scored_rows::{per_token, token_rewards},
    std_spec::{StdSpec, optional_whitening},
    whitening::whiten_tokens,
};
use crate::{ConfigError, config_error::require};

/// Generalized advantage estimation: sums of the critic's one-step errors (PPO).
///
/// ```text
/// δ_t = ρ_t + γ V_{t+1} − V_t          V = 0 after the last token
/// A_t = δ_t + γ λ A_{t+1}
/// returns U_t = A_t + V_t              what the critic is trained towards
/// ```
///
/// ρ is the outcome at the last policy token, less each token's penalty. Tokens that the policy did not sample are no
/// steps: γ and λ act once per policy token. With `whiten`, the advantages (not the returns) are then brought to mean zero
/// and deviation one over all policy tokens of the scored rows of the batch. Unscored rows have no returns. Equal rewards
/// have advantages of zero where the critic predicts them.
///
/// *Reference*: Schulman et al., "High-dimensional continuous control using generalized advantage estimation", 2015,
/// arXiv:1506.02438.
///
/// *Differs from the paper*: which has no default for γ and λ; 1 and 1 are verl's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gae {
    /// Discount γ per policy token, from 0 to 1; default 1.
    pub gamma: f64,
    /// Decay λ per policy token, from 0 (one step) to 1 (the whole return); default 1.
    pub lambda: f64,
    /// How advantages are divided by their deviation over the batch, after their mean is taken off; default not at all. Missing
    /// keys are those of [`StdSpec::WHITENING`], so `whiten = {}` is what verl does.
    #[serde(deserialize_with = "optional_whitening", skip_serializing_if = "Option::is_none")]
    pub whiten: Option<StdSpec>,
}

impl Default for Gae {
    fn default() -> Self {
        Self { gamma: 1.0, lambda: 1.0, whiten: None }
    }
}

impl Gae {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (key, value) in [("gamma", self.gamma), ("lambda", self.lambda)] {
            require((0.0..=1.0).contains(&value), key, value, "a number from 0 to 1")?;
        }
        self.whiten.map_or(Ok(()), |std| std.validate()).map_err(|error| error.within("whiten"))
    }

    /// Turns token rewards into advantages, in place.
    fn accumulate(&self, rewards: &mut [f64], values: &[f64]) {
        let (mut next_value, mut next) = (0.0, 0.0);
        for (reward, value) in rewards.iter_mut().zip(values).rev() {
            let error = *reward + self.gamma * next_value - value;
            *reward = error + self.gamma * self.lambda * next;
            (next_value, next) = (*value, *reward);
        }
    }
}

impl AdvantageEstimator for Gae {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        let (rows, mut tokens) = token_rewards(batch)?;
        let mut returns = vec![Vec::new(); batch.rows.len()];
        for (index, tokens) in rows.iter().zip(&mut tokens) {
            let row = &batch.rows[*index];
            let missing = |missing| AdvantageError::Missing {
                row: *index,
                group: row.group,
                missing,
                estimator: "gae",
            };
            if row.values.len() != row.len {
                return Err(missing("one predicted value per policy token"));
            }
            if !row.values.iter().all(|value| value.is_finite()) {
                return Err(missing("finite predicted values"));
            }
            self.accumulate(tokens, &row.values);
            returns[*index] =
                tokens.iter().zip(&row.values).map(|(advantage, value)| advantage + value).collect();
        }
        if let Some(std) = self.whiten {
            whiten_tokens(&mut tokens, std);
        }
        Ok(Advantages { returns, ..per_token(batch, &rows, tokens) })
    }

    /// A critic.
    fn requirements(&self) -> Requirements {
        Requirements { values: true, ..Requirements::default() }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Advantage, RewardRow};
    use firebrick_testkit::{assert_all_close, check_advantage_estimator};

    use super::*;

    fn one(estimator: Gae, row: RewardRow) -> (Vec<f64>, Vec<f64>) {
        let mut estimator = estimator;
        let Advantages { rows, returns } = estimator.advantages(&RewardBatch { rows: vec![row] }).unwrap();
        let [Advantage::Tokens(advantages)] = &rows[..] else { panic!("one number per token: {rows:?}") };
        (advantages.clone(), returns[0].clone())
    }

    /// ρ = [−0.5, 0, 4], V = [1, 2, 3], γ = λ = ½: δ = [−0.5 + 1 − 1, 0 + 1.5 − 2, 4 − 3] = [−0.5, −0.5, 1];
    /// A_3 = 1, A_2 = −0.5 + ¼ = −0.25, A_1 = −0.5 − 1/16.
    #[test]
    fn errors_of_the_critic_add_up_backwards() {
        let row = RewardRow::new(0, Some(4.0), 3)
            .with_penalties(vec![0.5, 0.0, 0.0])
            .with_values(vec![1.0, 2.0, 3.0]);
        let (advantages, returns) = one(Gae { gamma: 0.5, lambda: 0.5, whiten: None }, row);
        assert_eq!(advantages, [-0.5625, -0.25, 1.0]);
        assert_eq!(returns, [0.4375, 1.75, 4.0]);
    }

    /// Advantages −1 and 1 (deviation √2 with one degree of freedom less), returns as before.
    #[test]
    fn returns_are_those_before_whitening() {
        let row = RewardRow::new(0, Some(3.0), 2).with_values(vec![4.0, 2.0]);
        let whiten = Some(StdSpec { eps: 0.0, ..StdSpec::WHITENING });
        let (advantages, returns) = one(Gae { whiten, ..Gae::default() }, row);
        let half = 0.5_f64.sqrt();
        assert_all_close(&advantages, &[-half, half], 1e-15, "advantages");
        assert_eq!(returns, [3.0, 3.0]);
    }

    #[test]
    fn unscored_rows_have_neither_advantages_nor_returns_nor_need_values() {
        let rows = vec![RewardRow::new(0, None, 2), RewardRow::new(0, Some(1.0), 1).with_values(vec![0.5])];
        let found = Gae::default().advantages(&RewardBatch { rows }).unwrap();
        assert_eq!(found.rows, [Advantage::Excluded, Advantage::Tokens(vec![0.5])]);
        assert_eq!(found.returns, [vec![], vec![1.0]]);
    }

    #[test]
    fn values_that_are_missing_or_not_finite_are_refused() {
        let of = |values: Vec<f64>| {
            let row = RewardRow::new(0, Some(1.0), 2).with_values(values);
            Gae::default().advantages(&RewardBatch { rows: vec![row] }).unwrap_err().to_string()
        };
        assert_eq!(of(vec![]), "row 0 (group 0): gae needs one predicted value per policy token");
        assert_eq!(of(vec![0.0, f64::NAN]), "row 0 (group 0): gae needs finite predicted values");
    }

    #[test]
    fn an_empty_table_whitens_as_verl_does() {
        assert_eq!(toml::from_str::<Gae>("whiten = {}").unwrap().whiten, Some(StdSpec::WHITENING));
        assert_eq!(toml::from_str::<Gae>("").unwrap(), Gae::default());
        let error = Gae { lambda: -0.5, ..Gae::default() }.validate().unwrap_err();
        assert_eq!(error.to_string(), "lambda = -0.5: allowed is a number from 0 to 1");
    }

    #[test]
    fn keeps_the_contract() {
        check_advantage_estimator(Gae::default());
        check_advantage_estimator(Gae { gamma: 1.0, lambda: 0.95, whiten: Some(StdSpec::WHITENING) });
    }
}

//! Returns, brought to mean zero and deviation one over the batch.

use firebrick_core::{AdvantageError, AdvantageEstimator, Advantages, RewardBatch};
use serde::{Deserialize, Serialize};

use super::{
    scored_rows::{accumulate, per_token, token_rewards},
    std_spec::{StdSpec, whitening},
    whitening::whiten_tokens,
};
use crate::{ConfigError, config_error::require};

/// The return at each token, whitened over all tokens of the batch, without a baseline per prompt (REINFORCE++).
///
/// ```text
/// U_t = ρ_t + γ U_{t+1}                ρ_t: the outcome at the last token, less each token's penalty
/// A_t = (U_t − mean U) / std U         over all policy tokens of the scored rows of the whole batch
/// ```
///
/// A long response counts more in mean and deviation than a short one; unscored rows and responses without a policy token
/// do not count. A group of equal rewards has advantages of zero only where all returns of the batch are equal.
///
/// *Reference*: Hu et al., "REINFORCE++", 2025, arXiv:2501.03262.
///
/// *Differs from the paper*: which leaves open degrees of freedom and ε; 1 and 1e-8 inside the root are verl's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReinforcePlusPlus {
    /// Discount γ per policy token, from 0 to 1; default 1.
    pub gamma: f64,
    /// How returns are divided by their deviation; default [`StdSpec::WHITENING`], also key by key.
    #[serde(deserialize_with = "whitening")]
    pub std: StdSpec,
}

impl Default for ReinforcePlusPlus {
    fn default() -> Self {
        Self { gamma: 1.0, std: StdSpec::WHITENING }
    }
}

impl ReinforcePlusPlus {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require((0.0..=1.0).contains(&self.gamma), "gamma", self.gamma, "a number from 0 to 1")?;
        self.std.validate().map_err(|error| error.within("std"))
    }
}

impl AdvantageEstimator for ReinforcePlusPlus {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        let (rows, mut tokens) = token_rewards(batch)?;
        tokens.iter_mut().for_each(|tokens| accumulate(tokens, self.gamma));
        whiten_tokens(&mut tokens, self.std);
        Ok(per_token(batch, &rows, tokens))
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Advantage, RewardRow};
    use firebrick_testkit::{assert_all_close, check_advantage_estimator};

    use super::*;
    use crate::EpsPlacement;

    fn tokens(estimator: ReinforcePlusPlus, rows: Vec<RewardRow>) -> Vec<Vec<f64>> {
        let number = |advantage| match advantage {
            Advantage::Tokens(advantages) => advantages,
            other => panic!("expected one number per token, found {other:?}"),
        };
        let mut estimator = estimator;
        estimator.advantages(&RewardBatch { rows }).unwrap().rows.into_iter().map(number).collect()
    }

    fn exact(gamma: f64) -> ReinforcePlusPlus {
        ReinforcePlusPlus { gamma, std: StdSpec { ddof: 0, eps: 0.0, placement: EpsPlacement::Add } }
    }

    /// Returns 1, 1, 1 and 5: mean 2, population variance (3 · 1 + 9) / 4 = 3.
    #[test]
    fn the_outcome_reaches_every_token_of_a_response() {
        let rows = vec![RewardRow::new(0, Some(1.0), 3), RewardRow::new(1, Some(5.0), 1)];
        let found = tokens(exact(1.0), rows).concat();
        let root = 3_f64.sqrt();
        assert_all_close(&found, &[-1.0 / root, -1.0 / root, -1.0 / root, root], 1e-15, "advantages");
    }

    /// ρ = [−1, 4]: U = [−1 + 4/2, 4] = [1, 4], mean 2.5, deviation 1.5.
    #[test]
    fn penalties_act_at_their_token_and_what_is_later_is_discounted() {
        let row = RewardRow::new(0, Some(4.0), 2).with_penalties(vec![1.0, 0.0]);
        assert_all_close(&tokens(exact(0.5), vec![row])[0], &[-1.0, 1.0], 1e-15, "advantages");
    }

    #[test]
    fn missing_keys_of_the_deviation_are_those_of_whitening() {
        let found: ReinforcePlusPlus = toml::from_str("std = { ddof = 0 }").unwrap();
        assert_eq!(found.std, StdSpec { ddof: 0, ..StdSpec::WHITENING });
        assert!(toml::from_str::<ReinforcePlusPlus>("std = { scope = 'batch' }").is_err());
        let error = ReinforcePlusPlus { gamma: 1.5, ..Default::default() }.validate().unwrap_err();
        assert_eq!(error.to_string(), "gamma = 1.5: allowed is a number from 0 to 1");
    }

    #[test]
    fn keeps_the_contract() {
        check_advantage_estimator(ReinforcePlusPlus::default());
        check_advantage_estimator(exact(1.0));
    }
}

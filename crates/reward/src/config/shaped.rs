//! Settings of verifiers that change the score of another one.

use firebrick_core::RewardVerifier;
use serde::{Deserialize, Serialize};

use super::{RewardConfig, RewardConfigError};
use crate::overlong::OverlongPenalty;
use crate::shape::{CosineLength, CosineRewards, LengthPenalty, TruncationMask};

type Inner = Box<dyn RewardVerifier>;

fn inner(config: &RewardConfig) -> Result<Inner, RewardConfigError> {
    config.assemble().map_err(|error| error.within("verifier"))
}

fn require_positive(key: &'static str, value: f64) -> Result<(), RewardConfigError> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(RewardConfigError::out_of_range(key, value, "a finite number above 0"))
}

/// Settings of [`OverlongPenalty`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverlongConfig {
    /// The verifier.
    pub verifier: Box<RewardConfig>,
    /// Tokens that a response may have.
    pub max_len: usize,
    /// Tokens before that limit over which the punishment grows; at most `max_len`.
    pub buffer: usize,
    /// What the punishment is multiplied by; above 0. Default 1, as in DAPO.
    #[serde(default = "one")]
    pub weight: f64,
}

fn one() -> f64 {
    1.0
}

impl OverlongConfig {
    pub(super) fn check_own(&self) -> Result<(), RewardConfigError> {
        let Self { max_len, buffer, weight, .. } = *self;
        if max_len == 0 {
            return Err(RewardConfigError::out_of_range("max_len", max_len, "a number above 0"));
        }
        if buffer > max_len {
            return Err(RewardConfigError::out_of_range("buffer", buffer, "a number up to max_len"));
        }
        require_positive("weight", weight)
    }

    pub(super) fn assemble(&self) -> Result<OverlongPenalty<Inner>, RewardConfigError> {
        let Self { max_len, buffer, weight, .. } = *self;
        Ok(OverlongPenalty { inner: inner(&self.verifier)?, max_len, buffer, weight })
    }
}

/// Settings of [`LengthPenalty`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LengthPenaltyConfig {
    /// The verifier.
    pub verifier: Box<RewardConfig>,
    /// Tokens that a response may have at no cost.
    pub target: usize,
    /// What each further token costs; above 0.
    pub per_token: f64,
    /// What a response may lose at most; above 0.
    pub most: f64,
}

impl LengthPenaltyConfig {
    pub(super) fn check_own(&self) -> Result<(), RewardConfigError> {
        require_positive("per_token", self.per_token)?;
        require_positive("most", self.most)
    }

    pub(super) fn assemble(&self) -> Result<LengthPenalty<Inner>, RewardConfigError> {
        let Self { target, per_token, most, .. } = *self;
        Ok(LengthPenalty { inner: inner(&self.verifier)?, target, per_token, most })
    }
}

/// Settings of [`CosineLength`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CosineLengthConfig {
    /// The verifier that says whether a response is right.
    pub verifier: Box<RewardConfig>,
    /// The rewards.
    pub rewards: CosineRewards,
}

impl CosineLengthConfig {
    pub(super) fn check_own(&self) -> Result<(), RewardConfigError> {
        let rewards = self.rewards;
        if rewards.max_len == 0 {
            return Err(RewardConfigError::out_of_range("rewards.max_len", 0, "a number above 0"));
        }
        for (key, value) in [
            ("rewards.right_from", rewards.right_from),
            ("rewards.right_short", rewards.right_short),
            ("rewards.right_long", rewards.right_long),
            ("rewards.wrong_short", rewards.wrong_short),
            ("rewards.wrong_long", rewards.wrong_long),
            ("rewards.exceeded", rewards.exceeded),
        ] {
            if !value.is_finite() {
                return Err(RewardConfigError::out_of_range(key, value, "a finite number"));
            }
        }
        let least_right = rewards.right_short.min(rewards.right_long);
        if least_right < rewards.wrong_short.max(rewards.wrong_long) {
            let allowed = "rewards of right responses at or above those of wrong ones";
            return Err(RewardConfigError::out_of_range("rewards.right_long", rewards.right_long, allowed));
        }
        Ok(())
    }

    pub(super) fn assemble(&self) -> Result<CosineLength<Inner>, RewardConfigError> {
        Ok(CosineLength { inner: inner(&self.verifier)?, rewards: self.rewards })
    }
}

/// Settings of [`TruncationMask`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TruncationMaskConfig {
    /// The verifier.
    pub verifier: Box<RewardConfig>,
}

impl TruncationMaskConfig {
    pub(super) fn assemble(&self) -> Result<TruncationMask<Inner>, RewardConfigError> {
        Ok(TruncationMask { inner: inner(&self.verifier)? })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::config::refusal;

    fn refused(mut config: serde_json::Value) -> String {
        config["verifier"] = json!({"type": "exact_answer"});
        refusal(&serde_json::from_value(config).unwrap())
    }

    #[test]
    fn values_out_of_range_are_refused_by_key() {
        let overlong = |max_len, buffer, weight| {
            refused(json!({"type": "overlong", "max_len": max_len, "buffer": buffer, "weight": weight}))
        };
        assert_eq!(overlong(0, 0, 1.0), "max_len = 0: allowed is a number above 0");
        assert_eq!(overlong(10, 11, 1.0), "buffer = 11: allowed is a number up to max_len");
        assert_eq!(overlong(10, 5, -1.0), "weight = -1: allowed is a finite number above 0");
        let length = |per_token, most| {
            refused(json!({"type": "length", "target": 5, "per_token": per_token, "most": most}))
        };
        assert_eq!(length(0.0, 1.0), "per_token = 0: allowed is a finite number above 0");
        assert_eq!(length(0.5, -1.0), "most = -1: allowed is a finite number above 0");
        let cosine = |max_len, wrong_long| {
            refused(json!({"type": "cosine_length", "rewards": {"max_len": max_len, "right_from": 1.0,
                "right_short": 2.0, "right_long": 1.0, "wrong_short": -1.0, "wrong_long": wrong_long,
                "exceeded": -2.0}}))
        };
        assert_eq!(cosine(0, 0.0), "rewards.max_len = 0: allowed is a number above 0");
        assert!(cosine(10, 1.5).starts_with("rewards.right_long = 1: allowed is"));
    }
}

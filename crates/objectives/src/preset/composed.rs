//! A recipe of any parts.

use firebrick_core::{Anchor, ClipSchedule, Gate, ImportanceEstimator};
use serde::{Deserialize, Serialize};

use super::validate_surroundings;
use crate::{
    AdvantageConfig, Aggregation, Composed, ConfigError, EstimatorConfig, GateConfig, KlTerm, PrefixMean,
    PrefixRoute, Recipe, ScheduleConfig, SequenceMean, SequenceRoute,
};

/// Any parts of this crate together. Only `kl` and `anchor` have a default: nothing here is a paper's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComposedConfig {
    /// How the gap between the policies is weighed.
    pub estimator: EstimatorConfig,
    /// How far a weight may go at each position.
    pub schedule: ScheduleConfig,
    /// What happens at a bound.
    pub gate: GateConfig,
    /// KL penalty towards the reference policy; default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kl: Option<KlTerm>,
    /// How token contributions are averaged.
    pub aggregation: Aggregation,
    /// How rewards become advantages.
    pub advantage: AdvantageConfig,
    /// Which policy the ratio compares the current one with; default the one that sampled the tokens.
    #[serde(default)]
    pub anchor: Anchor,
}

impl ComposedConfig {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range, or an estimator's route that the gate cannot use.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_route()?;
        self.schedule.validate().map_err(|error| error.within("schedule"))?;
        self.gate.validate().map_err(|error| error.within("gate"))?;
        validate_surroundings(self.kl.as_ref(), &self.aggregation, &self.advantage)
    }

    /// A mask's slope belongs to the current token's log-prob, so it must not be spread over others.
    fn validate_route(&self) -> Result<(), ConfigError> {
        let choice = match (&self.gate, &self.estimator) {
            (
                GateConfig::HardMask(_),
                EstimatorConfig::SequenceMean(SequenceMean { route: SequenceRoute::Sequence }),
            ) => "sequence",
            (
                GateConfig::HardMask(_),
                EstimatorConfig::PrefixMean(PrefixMean { route: PrefixRoute::FullPrefix }),
            ) => "full_prefix",
            _ => return Ok(()),
        };
        let key = "estimator.route".to_owned();
        let reason =
            "gate hard_mask detaches the weight, so there is no gradient through it; set route = \"current\"";
        Err(ConfigError::Incompatible { key, choice, reason })
    }

    /// The objective alone.
    pub fn objective(&self) -> Composed<Box<dyn ImportanceEstimator>, Box<dyn ClipSchedule>, Box<dyn Gate>> {
        Composed::new(self.estimator.build(), self.schedule.build(), self.gate.build()).with_kl(self.kl)
    }

    /// The recipe.
    pub fn build(&self) -> Recipe {
        Recipe {
            objective: Box::new(self.objective()),
            aggregation: self.aggregation,
            advantage: self.advantage.build(),
            anchor: self.anchor,
        }
    }
}

//! A policy objective as configuration.

use std::str::FromStr;

use firebrick_core::{Anchor, ClipSchedule, Gate, ImportanceEstimator};
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use toml::{Table, Value};

use crate::{
    AdvantageConfig, Aggregation, Composed, ConfigError, CorrectionConfig, EstimatorConfig, GateConfig,
    KlTerm, Preset, Recipe, ScheduleConfig, ValueLoss,
    config_error::{require, require_width},
    preset::NAMES,
};

/// A policy objective: a preset, chosen by `type`, and every part that it is made of.
///
/// In a config a `type` alone is the published objective. Single keys of a part, whole parts, or both change it: a table
/// that names its own `type` replaces the preset's part, one that does not changes single keys. Unknown keys are refused.
/// The type `composed` starts from nothing and names every part.
///
/// ```
/// use firebrick_objectives::ObjectiveConfig;
///
/// let config: ObjectiveConfig = r#"
///     type = "dapo"
///     schedule.high = 0.3
///     advantage = { type = "group_centered" }
/// "#
/// .parse()?;
/// config.validate()?;
/// let recipe = config.build();
///
/// let wrong: ObjectiveConfig = "type = 'dapo'\nschedule.low = -0.2".parse()?;
/// assert_eq!(
///     wrong.validate().unwrap_err().to_string(),
///     "schedule.low = -0.2: allowed is a finite number >= 0"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ObjectiveConfig {
    /// The preset that the parts started from, or `composed`.
    pub r#type: String,
    /// The parts.
    #[serde(flatten)]
    pub parts: Parts,
}

/// The parts of an objective and what surrounds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parts {
    /// Which policy the ratio compares the current one with; default the one that sampled the tokens.
    #[serde(default)]
    pub anchor: Anchor,
    /// Coefficient of the entropy bonus (the loss falls by coefficient · entropy in nats, per token); default none.
    #[serde(default)]
    pub entropy_coefficient: f64,
    /// Whether completions are sampled with each prompt's guidance and trained on without it, so that the ratio compares two
    /// contexts; default no.
    #[serde(default)]
    pub guided_prompts: bool,
    /// How the gap between the policies is weighed.
    pub estimator: EstimatorConfig,
    /// How far a weight may go at each position.
    pub schedule: ScheduleConfig,
    /// What happens at a bound.
    pub gate: GateConfig,
    /// How token contributions are averaged.
    pub aggregation: Aggregation,
    /// How rewards become advantages.
    pub advantage: AdvantageConfig,
    /// KL penalty towards the reference policy; default none. A coefficient of zero switches a preset's off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kl: Option<KlTerm>,
    /// Correction from the policy that sampled to the proximal policy; default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction: Option<CorrectionConfig>,
    /// Loss of the critic, for advantages that need one; default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_loss: Option<ValueLoss>,
}

impl ObjectiveConfig {
    /// The preset of this name, as published.
    ///
    /// # Errors
    /// When there is no such preset, or it has keys without a default.
    pub fn preset(name: &str) -> Result<Self, toml::de::Error> {
        Self::deserialize(Value::Table(Table::from_iter([("type".to_owned(), Value::from(name))])))
    }

    /// Checks the numbers, and the parts against each other.
    ///
    /// # Errors
    /// Names the first key that is out of range, its value and what is allowed.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Parts { estimator, schedule, gate, aggregation, advantage, kl, correction, value_loss, .. } =
            &self.parts;
        require_width("entropy_coefficient", self.parts.entropy_coefficient)?;
        estimator.validate().map_err(|error| error.within("estimator"))?;
        schedule.validate().map_err(|error| error.within("schedule"))?;
        gate.validate().map_err(|error| error.within("gate"))?;
        aggregation.validate().map_err(|error| error.within("aggregation"))?;
        advantage.validate().map_err(|error| error.within("advantage"))?;
        kl.as_ref().map_or(Ok(()), KlTerm::validate).map_err(|error| error.within("kl"))?;
        correction
            .as_ref()
            .map_or(Ok(()), CorrectionConfig::validate)
            .map_err(|error| error.within("correction"))?;
        value_loss
            .as_ref()
            .map_or(Ok(()), ValueLoss::validate)
            .map_err(|error| error.within("value_loss"))?;
        self.validate_routes()?;
        if let Some(correction) = correction {
            let behaviour = self.parts.anchor == Anchor::Behaviour;
            correction.validate_anchor(behaviour)?;
        }
        let values = advantage.build().requirements().values;
        require(
            values == value_loss.is_some(),
            "value_loss",
            f64::from(u8::from(value_loss.is_some())),
            if values {
                "a table such as value_loss = {}, since the advantages need a critic that learns"
            } else {
                "no such table, since these advantages use no critic; remove it"
            },
        )
    }

    /// Which gradients can reach which tokens.
    fn validate_routes(&self) -> Result<(), ConfigError> {
        let Parts { estimator, gate, advantage, .. } = &self.parts;
        let per_token = advantage.is_per_token();
        if let Some(choice) = estimator.spreading_route() {
            let reason = if gate.build().is_score_function() {
                "the gate detaches the weight, so there is no gradient through it; set route = \"current\""
            } else if per_token && estimator.needs_one_advantage() {
                "a weight of the whole response with a gradient through all its tokens is undefined when the \
                 advantage differs from token to token; set route = \"current\" or choose advantages per response"
            } else {
                return Ok(());
            };
            return Err(ConfigError::Incompatible { key: "estimator.route".to_owned(), choice, reason });
        }
        if per_token && gate.needs_one_advantage() {
            let reason =
                "it looks at the sign of the response's one advantage; choose advantages per response";
            return Err(ConfigError::Incompatible {
                key: "gate.type".to_owned(),
                choice: gate.name(),
                reason,
            });
        }
        Ok(())
    }

    /// What a run should be told of its objective, for responses of at most `max_response_len` tokens.
    pub fn remarks(&self, max_response_len: usize) -> Vec<String> {
        match &self.parts.schedule {
            ScheduleConfig::AbsolutePosition(clip) => clip.remark(max_response_len).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// The objective alone. Call [`Self::validate`] first: a config that it refuses builds one that makes no sense.
    pub fn objective(&self) -> Composed<Box<dyn ImportanceEstimator>, Box<dyn ClipSchedule>, Box<dyn Gate>> {
        let Parts { estimator, schedule, gate, kl, correction, .. } = &self.parts;
        Composed::new(estimator.build(), schedule.build(), gate.build())
            .with_kl(kl.filter(|kl| kl.is_in_loss()))
            .with_correction(correction.as_ref().map(CorrectionConfig::build))
    }

    /// The recipe. Call [`Self::validate`] first.
    pub fn build(&self) -> Recipe {
        Recipe {
            anchor: self.parts.anchor,
            entropy_coefficient: self.parts.entropy_coefficient,
            guided_prompts: self.parts.guided_prompts,
            reward_kl: self.parts.kl.filter(|kl| kl.is_in_reward()),
            value_loss: self.parts.value_loss,
            ..Recipe::new(self.objective(), self.parts.aggregation, self.parts.advantage.build())
        }
    }
}

impl<'de> Deserialize<'de> for ObjectiveConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut table = Table::deserialize(deserializer)?;
        let name = match table.remove("type") {
            Some(Value::String(name)) => name,
            Some(other) => {
                let kind = serde::de::Unexpected::Other(other.type_str());
                return Err(D::Error::invalid_type(kind, &"a string"));
            }
            None => return Err(D::Error::missing_field("type")),
        };
        let preset = Preset::find(&name);
        let table = match preset {
            Some(preset) => preset.with(table),
            None if name == "composed" => table,
            None => return Err(D::Error::unknown_variant(&name, NAMES)),
        };
        let missing =
            preset.and_then(|preset| preset.missing(&table).map(|(key, reason)| (key.to_owned(), reason)));
        let parts = Parts::deserialize(Value::Table(table));
        match (parts, missing) {
            // A key that is wrong is said before one that is missing.
            (Err(error), _)
                if ["unknown ", "invalid "].iter().any(|start| error.message().starts_with(start)) =>
            {
                Err(D::Error::custom(error.message()))
            }
            (_, Some((key, reason))) => {
                Err(D::Error::custom(format_args!("{name} has no default for {key}: {reason}")))
            }
            (parts, None) => {
                let parts = parts.map_err(|error| D::Error::custom(error.message()))?;
                Ok(Self { r#type: name, parts })
            }
        }
    }
}

impl FromStr for ObjectiveConfig {
    type Err = toml::de::Error;

    /// Reads TOML.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        toml::from_str(text)
    }
}

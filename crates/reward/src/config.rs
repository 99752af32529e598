//! A verifier as configuration.

mod composed;
mod error;
mod preset;
mod shaped;

use firebrick_core::{RewardVerifier, RootSeed};
use serde::{Deserialize, Serialize};

pub use composed::{
    ByDataSourceConfig, FactorConfig, GatedConfig, PartConfig, ProductConfig, WeightedSumConfig,
};
pub use error::{RewardConfigError, RewardConfigProblem};
pub(crate) use error::{check_methods, check_rewards};
pub use preset::SourcePreset;
pub use shaped::{CosineLengthConfig, LengthPenaltyConfig, OverlongConfig, TruncationMaskConfig};

use crate::exact_answer::ExactAnswerConfig;
use crate::format_reward::FormatConfig;
use crate::math::{MathConfig, MathPreset};
#[cfg(feature = "programs")]
use crate::program::CodeConfig;
use crate::random_reward::RandomReward;
use crate::tasks::TaskVerifierConfig;

/// Every verifier by its name. Verifiers within verifiers are tables of the same kind:
///
/// ```toml
/// type = "sum"
///
/// [[parts]]
/// name = "answer"
/// weight = 1.0
/// verifier = { type = "exact_answer" }
///
/// [[parts]]
/// name = "format"
/// weight = 0.25
/// verifier = { type = "format", think_tags = true }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RewardConfig {
    /// Exact equality of the extracted answer: [`crate::ExactAnswer`].
    ExactAnswer(ExactAnswerConfig),
    /// Mathematical equality: [`crate::MathVerifier`] in the manner of math-verify.
    MathVerify(MathConfig),
    /// Mathematical equality in the manner of DAPO's grader: the line `Answer:`, 1 and −1.
    Dapo(MathConfig),
    /// Mathematical equality in the manner of GSM8K's graders: the number behind `####`.
    Gsm8k(MathConfig),
    /// Mathematical equality in the manner of PRIME's grader.
    Prime(MathConfig),
    /// Tests of programs: [`crate::program::CodeVerifier`].
    #[cfg(feature = "programs")]
    Code(CodeConfig),
    /// Answers to generated problems: [`crate::tasks::TaskVerifier`].
    Task(TaskVerifierConfig),
    /// The form of the response: [`crate::FormatReward`].
    Format(FormatConfig),
    /// A coin: [`crate::RandomReward`].
    Random(RandomConfig),
    /// A weighted sum: [`crate::WeightedSum`].
    Sum(WeightedSumConfig),
    /// A product: [`crate::Product`].
    Product(ProductConfig),
    /// One verifier behind another: [`crate::Gated`].
    Gated(GatedConfig),
    /// A verifier for each data set: [`crate::ByDataSource`].
    ByDataSource(ByDataSourceConfig),
    /// DAPO's soft punishment near the length limit: [`crate::OverlongPenalty`].
    Overlong(OverlongConfig),
    /// A cost for each token beyond a target: [`crate::LengthPenalty`].
    Length(LengthPenaltyConfig),
    /// A reward that follows a cosine of the length: [`crate::CosineLength`].
    CosineLength(CosineLengthConfig),
    /// Truncated responses are left out: [`crate::TruncationMask`].
    TruncationMask(TruncationMaskConfig),
}

impl Default for RewardConfig {
    fn default() -> Self {
        Self::ExactAnswer(ExactAnswerConfig::default())
    }
}

/// Settings of [`RandomReward`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomConfig {
    /// Probability of the reward 1; 0 otherwise.
    pub probability: f64,
    /// Seed of the coin.
    pub seed: u64,
}

impl RandomConfig {
    fn validate(&self) -> Result<(), RewardConfigError> {
        if (0.0..=1.0).contains(&self.probability) {
            return Ok(());
        }
        Err(RewardConfigError::out_of_range("probability", self.probability, "0 to 1"))
    }
}

impl RewardConfig {
    /// Checks this verifier and all that it is made of. Nothing is started and no file is looked at: whether the machine has what
    /// an executor of programs needs shows when it is built.
    ///
    /// # Errors
    /// Names the key, with the keys of the tables around it, its value and what is allowed.
    pub fn validate(&self) -> Result<(), RewardConfigError> {
        match self {
            Self::ExactAnswer(config) => config.validate(),
            Self::MathVerify(config) => with_preset(config, MathPreset::MathVerify).validate(),
            Self::Dapo(config) => with_preset(config, MathPreset::Dapo).validate(),
            Self::Gsm8k(config) => with_preset(config, MathPreset::Gsm8k).validate(),
            Self::Prime(config) => with_preset(config, MathPreset::Prime).validate(),
            #[cfg(feature = "programs")]
            Self::Code(config) => config.validate(),
            Self::Task(config) => config.validate(),
            Self::Format(config) => config.validate(),
            Self::Random(config) => config.validate(),
            Self::Sum(config) => config.check_own(),
            Self::Product(config) => config.check_own(),
            Self::Gated(config) => config.check_own(),
            Self::ByDataSource(config) => config.validate(),
            Self::Overlong(config) => config.check_own(),
            Self::Length(config) => config.check_own(),
            Self::CosineLength(config) => config.check_own(),
            Self::TruncationMask(_) => Ok(()),
        }?;
        for (key, inner) in self.inner() {
            inner.validate().map_err(|error| error.within(&key))?;
        }
        Ok(())
    }

    /// Builds the verifier with all that it is made of, once all of it is valid.
    ///
    /// # Errors
    /// As [`Self::validate`], and when an executor cannot be built.
    pub fn build(&self) -> Result<Box<dyn RewardVerifier>, RewardConfigError> {
        self.validate()?;
        self.assemble()
    }

    /// Builds what is valid.
    fn assemble(&self) -> Result<Box<dyn RewardVerifier>, RewardConfigError> {
        Ok(match self {
            Self::ExactAnswer(config) => Box::new(config.clone().build()?),
            Self::MathVerify(config) => Box::new(with_preset(config, MathPreset::MathVerify).build()?),
            Self::Dapo(config) => Box::new(with_preset(config, MathPreset::Dapo).build()?),
            Self::Gsm8k(config) => Box::new(with_preset(config, MathPreset::Gsm8k).build()?),
            Self::Prime(config) => Box::new(with_preset(config, MathPreset::Prime).build()?),
            #[cfg(feature = "programs")]
            Self::Code(config) => Box::new(config.clone().build()?),
            Self::Task(config) => Box::new(config.clone().build()?),
            Self::Format(config) => Box::new(config.clone().build()?),
            Self::Random(config) => Box::new(RandomReward::new(RootSeed(config.seed), config.probability)),
            Self::Sum(config) => Box::new(config.assemble()?),
            Self::Product(config) => Box::new(config.assemble()?),
            Self::Gated(config) => Box::new(config.assemble()?),
            Self::ByDataSource(config) => Box::new(config.assemble()?),
            Self::Overlong(config) => Box::new(config.assemble()?),
            Self::Length(config) => Box::new(config.assemble()?),
            Self::CosineLength(config) => Box::new(config.assemble()?),
            Self::TruncationMask(config) => Box::new(config.assemble()?),
        })
    }

    /// Whether every one of the data sources of a data set has a verifier.
    ///
    /// # Errors
    /// [`RewardConfigProblem::UnknownSources`] with those that have none, each once, for the first [`ByDataSourceConfig`] that lacks
    /// some.
    pub fn check_sources(&self, sources: &[&str]) -> Result<(), RewardConfigError> {
        if let Self::ByDataSource(config) = self {
            return config.check_sources(sources);
        }
        for (key, inner) in self.inner() {
            inner.check_sources(sources).map_err(|error| error.within(&key))?;
        }
        Ok(())
    }

    /// The verifiers that this one asks whatever the data source is, with their keys.
    fn inner(&self) -> Vec<(String, &Self)> {
        match self {
            #[cfg(feature = "programs")]
            Self::Code(_) => Vec::new(),
            Self::ExactAnswer(_)
            | Self::MathVerify(_)
            | Self::Dapo(_)
            | Self::Gsm8k(_)
            | Self::Prime(_)
            | Self::Task(_)
            | Self::Format(_)
            | Self::Random(_)
            | Self::ByDataSource(_) => Vec::new(),
            Self::Sum(config) => composed::keyed(config.parts.iter().map(|part| &part.verifier)),
            Self::Product(config) => composed::keyed(config.parts.iter().map(|part| &part.verifier)),
            Self::Gated(config) => {
                vec![("gate".to_owned(), &*config.gate), ("verifier".to_owned(), &*config.verifier)]
            }
            Self::Overlong(config) => composed::single(&config.verifier),
            Self::Length(config) => composed::single(&config.verifier),
            Self::CosineLength(config) => composed::single(&config.verifier),
            Self::TruncationMask(config) => composed::single(&config.verifier),
        }
    }
}

fn with_preset(config: &MathConfig, preset: MathPreset) -> MathConfig {
    MathConfig { preset, ..config.clone() }
}

/// What validating says, which building says too.
#[cfg(test)]
pub(crate) fn refusal(config: &RewardConfig) -> String {
    let refusal = config.validate().unwrap_err().to_string();
    assert_eq!(config.build().unwrap_err().to_string(), refusal);
    refusal
}

#[cfg(test)]
mod tests {
    use firebrick_core::{FinishReason, Prompt, Sample};
    use serde_json::json;

    use super::*;

    fn read(json: serde_json::Value) -> RewardConfig {
        serde_json::from_value(json).unwrap()
    }

    fn reward(config: &RewardConfig, source: &str, text: &str) -> Option<f64> {
        let prompt = Prompt::new("p", "?", "4").with_data_source(source);
        let tokens = vec![0; text.len()];
        let verifier = config.build().unwrap();
        verifier.verify(&Sample::new(&prompt, text, &tokens, FinishReason::Stop)).unwrap().reward()
    }

    fn sum_in_by_source(probability: f64) -> serde_json::Value {
        json!({"type": "by_data_source", "sources": {"a*": {"type": "sum", "parts": [
            {"name": "x", "weight": 1, "verifier": {"type": "exact_answer"}},
            {"name": "y", "weight": 0.5, "verifier": {"type": "random", "probability": probability, "seed": 1}},
        ]}}})
    }

    #[test]
    fn a_reference_that_cannot_be_graded_is_found_through_every_verifier_around() {
        let exact = json!({"type": "exact_answer"});
        let part = json!({"name": "a", "weight": 1.0, "verifier": exact});
        for config in [
            json!({"type": "sum", "parts": [part]}),
            json!({"type": "product", "parts": [{"name": "a", "verifier": exact}]}),
            json!({"type": "gated", "gate": {"type": "format", "has_answer": true}, "threshold": 1.0, "verifier": exact}),
            json!({"type": "by_data_source", "sources": {"s": exact}}),
            json!({"type": "overlong", "max_len": 8, "buffer": 4, "verifier": exact}),
            json!({"type": "length", "target": 4, "per_token": 0.125, "most": 1.0, "verifier": exact}),
            json!({"type": "truncation_mask", "verifier": exact}),
        ] {
            let verifier = read(config.clone()).build().unwrap();
            let check =
                |answer: &str| verifier.check_reference(&Prompt::new("p", "?", answer).with_data_source("s"));
            assert_eq!(check("4"), Ok(()), "{config}");
            assert!(check(" ").is_err(), "{config}");
        }
        let unrouted = read(json!({"type": "by_data_source", "sources": {"s": exact}})).build().unwrap();
        assert!(unrouted.check_reference(&Prompt::new("p", "?", "4")).is_err());
        let recorded_only = read(json!({"type": "sum", "parts": [
            {"name": "f", "weight": 1.0, "verifier": {"type": "format", "has_answer": true}},
            {"name": "a", "weight": 0.0, "verifier": exact},
        ]}));
        assert!(recorded_only.build().unwrap().check_reference(&Prompt::new("p", "?", " ")).is_ok());
    }

    #[test]
    fn every_verifier_is_built_by_name_and_pays() {
        let exact = json!({"type": "exact_answer"});
        let format = json!({"type": "format", "has_answer": true});
        let right = "#### 4"; // six tokens
        for (config, expected) in [
            (exact.clone(), 1.0),
            (format.clone(), 1.0),
            (json!({"type": "random", "probability": 1, "seed": 3}), 1.0),
            (
                json!({"type": "sum", "parts": [
                    {"name": "a", "weight": 1.0, "verifier": exact}, {"name": "f", "weight": 0.25, "verifier": format}
                ]}),
                1.25,
            ),
            (
                json!({"type": "product", "parts": [
                    {"name": "a", "verifier": exact}, {"name": "f", "verifier": format}
                ]}),
                1.0,
            ),
            (json!({"type": "gated", "gate": format, "threshold": 1.0, "verifier": exact}), 1.0),
            (json!({"type": "by_data_source", "sources": {"s": exact}}), 1.0),
            (json!({"type": "overlong", "max_len": 8, "buffer": 4, "verifier": exact}), 0.5), // 1 − 2/4
            (
                json!({"type": "length", "target": 4, "per_token": 0.125, "most": 1.0, "verifier": exact}),
                0.75,
            ),
            (
                json!({"type": "cosine_length", "verifier": exact, "rewards": {"max_len": 12, "right_from": 1.0,
                    "right_short": 2.0, "right_long": 1.0, "wrong_short": -1.0, "wrong_long": 0.0, "exceeded": -2.0}}),
                1.5,
            ),
            (json!({"type": "truncation_mask", "verifier": exact}), 1.0),
        ] {
            assert_eq!(reward(&read(config.clone()), "s", right), Some(expected), "{config}");
        }
    }

    #[test]
    fn a_config_survives_being_written() {
        let config = read(sum_in_by_source(0.5));
        assert_eq!(read(serde_json::to_value(&config).unwrap()), config);
        assert_eq!(read(json!({"type": "exact_answer"})), RewardConfig::default());
    }

    #[test]
    fn unknown_keys_and_types_are_refused_at_every_depth() {
        for (broken, named) in [
            (json!({"type": "exact"}), "exact"),
            (json!({"type": "random", "probability": 1, "seed": 3, "bias": 1}), "bias"),
            (json!({"type": "truncation_mask", "verifier": {"type": "exact_answer", "rewrd": 1}}), "rewrd"),
            (
                json!({"type": "sum", "parts": [{"name": "a", "wight": 1, "verifier": {"type": "exact_answer"}}]}),
                "wight",
            ),
        ] {
            let error = serde_json::from_value::<RewardConfig>(broken).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn an_error_carries_the_whole_path_of_its_key() {
        let config = read(sum_in_by_source(1.5));
        assert!(refusal(&config).starts_with("sources.\"a*\".parts[1]"));
        let error = config.build().unwrap_err().within("reward");
        assert_eq!(
            error.to_string(),
            "reward.sources.\"a*\".parts[1].verifier.probability = 1.5: allowed is 0 to 1"
        );
        assert_eq!(error.key(), "reward.sources.\"a*\".parts[1].verifier.probability");
        let wrapped =
            json!({"type": "truncation_mask", "verifier": {"type": "exact_answer", "wrong_reward": 1.0}});
        let error = read(wrapped).build().unwrap_err().within("reward");
        assert_eq!(error.key(), "reward.verifier.correct_reward");
        assert_eq!(error.to_string(), "reward.verifier.correct_reward = 1 must be above wrong_reward = 1");
    }

    #[test]
    fn sources_without_a_verifier_are_listed_once_with_the_table_that_lacks_them() {
        let config = read(json!({"type": "truncation_mask", "verifier": sum_in_by_source(0.5)}));
        assert!(config.check_sources(&["a", "a1", "a1"]).is_ok());
        let error = config.check_sources(&["b", "a1", "c", "b"]).unwrap_err().within("reward");
        assert_eq!(error.key(), "reward.verifier");
        assert_eq!(
            error.to_string(),
            "reward.verifier has no verifier for the data sources \"b\", \"c\", and no default; known are \"a*\""
        );
        assert!(RewardConfig::default().check_sources(&["anything"]).is_ok());
    }

    #[test]
    fn a_choice_within_a_choice_is_asked_only_for_the_sources_that_reach_it() {
        let inner = json!({"type": "by_data_source", "sources": {"a1": {"type": "exact_answer"}}});
        let outer =
            json!({"type": "by_data_source", "sources": {"a*": inner}, "default": {"type": "exact_answer"}});
        let config = read(outer);
        assert!(config.check_sources(&["a1", "b"]).is_ok());
        let error = config.check_sources(&["a1", "a2", "b"]).unwrap_err();
        assert_eq!(error.key(), "sources.\"a*\"");
        assert!(
            matches!(error.problem(), RewardConfigProblem::UnknownSources { sources, .. } if sources == &["a2"])
        );
    }
}

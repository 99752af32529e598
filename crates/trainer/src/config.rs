//! A run as a file.

use std::path::{Path, PathBuf};

use firebrick_core::RewardVerifier;
use firebrick_models::{DecoderConfig, LoraConfig, ModelError};
use firebrick_objectives::{ConfigError, ObjectiveConfig};
use firebrick_reward::{GraderError, GraderSettings, RewardConfig, RewardConfigError};
use serde::{Deserialize, Serialize};

use crate::{
    CheckpointSettings, Columns, ConfigLayers, DataReader, EvaluationSettings, KeyError, ModelSection,
    OverLongPrompts, PlanError, TrainSettings, WarmStartSettings, run_tokenizer::RunTokenizer,
};

/// Everything that describes a run. Unknown keys are refused; what depends on the task has no default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Where the run is written.
    pub run: RunSection,
    /// Problems and worked solutions.
    pub data: DataSection,
    /// The tokenizer of a model made from scratch, or changes to that of a pretrained one.
    #[serde(default)]
    pub tokenizer: TokenizerSection,
    /// The model: made from scratch, or read from a folder.
    pub model: ModelSection,
    /// A low-rank adapter, which is then all that is trained; all weights are when left out.
    #[serde(default)]
    pub lora: Option<LoraConfig>,
    /// Supervised fine-tuning before reinforcement learning.
    #[serde(default)]
    pub warm_start: Option<WarmStartSettings>,
    /// The loop.
    pub train: TrainSettings,
    /// The policy objective with its aggregation and advantages.
    pub objective: ObjectiveConfig,
    /// The verifier.
    #[serde(default)]
    pub reward: RewardConfig,
    /// How completions are verified: threads, deadlines, and how many faults of the verifier stop the run.
    #[serde(default)]
    pub verification: GraderSettings,
    /// Evaluation before and after.
    pub evaluation: EvaluationSettings,
    /// When checkpoints are written and which are kept.
    #[serde(default)]
    pub checkpoints: CheckpointSettings,
    /// What the verdicts are replaced by in training.
    #[serde(default)]
    pub control: Control,
}

/// Where a run is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSection {
    /// The run directory.
    pub directory: PathBuf,
    /// Whether an earlier run there is removed; otherwise it is refused.
    #[serde(default)]
    pub overwrite: bool,
    /// Whether a run is refused whose tensors are estimated not to fit into the device's free memory (default: yes).
    #[serde(default = "yes")]
    pub check_memory: bool,
    /// A folder with `config.json` and `model.safetensors` of an earlier run, whose weights take the place of random ones.
    #[serde(default)]
    pub initial_model: Option<PathBuf>,
}

fn yes() -> bool {
    true
}

/// Files of a run, JSONL or, where a name ends in `.parquet`, Parquet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSection {
    /// Problems to train on.
    pub train: PathBuf,
    /// Problems to evaluate on.
    pub held_out: PathBuf,
    /// Worked solutions of the warm start.
    #[serde(default)]
    pub worked_solutions: Option<PathBuf>,
    /// What happens to prompts that leave no room for the longest response.
    #[serde(default)]
    pub over_long_prompts: OverLongPrompts,
    /// The system message of problems and worked solutions that have none; they are left as they are without it.
    #[serde(default)]
    pub system_prompt: Option<String>,
    /// Which columns of all these files are what; the forms of the field are read without it.
    #[serde(default, skip_serializing_if = "Columns::is_default")]
    pub columns: Columns,
}

impl DataSection {
    /// The reader of these files.
    pub fn reader(&self) -> DataReader {
        let reader = DataReader::new(self.columns.clone());
        match &self.system_prompt {
            Some(system_prompt) => reader.with_system_prompt(system_prompt),
            None => reader,
        }
    }

    fn validate(&self) -> Result<(), KeyError> {
        if self.system_prompt.as_ref().is_some_and(|text| text.trim().is_empty()) {
            return Err(KeyError::Refused {
                key: "data.system_prompt".into(),
                value: format!("{:?}", self.system_prompt.as_deref().unwrap_or_default()),
                reason: "must be a text; leave the key out for no system message".into(),
            });
        }
        self.columns.validate()
    }
}

/// The tokenizer of a run. A pretrained model brings its own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerSection {
    /// The characters of a model made from scratch; their ids are 1, 2, ... in this order, 0 ends a response.
    #[serde(default)]
    pub alphabet: Option<String>,
    /// A file with a chat template (Jinja) in the place of the pretrained tokenizer's.
    #[serde(default)]
    pub chat_template: Option<PathBuf>,
}

/// Control arms: the same run, trained on rewards that mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// The real verdicts.
    #[default]
    None,
    /// A fair coin.
    Random,
}

impl RunConfig {
    /// Reads a config from one file: [`ConfigLayers`] with nothing else.
    ///
    /// # Errors
    /// Names the file, and the key that is unknown, missing or out of range.
    pub fn read(path: &Path) -> Result<Self, RunConfigError> {
        ConfigLayers::default().file(path).load()
    }

    /// Takes relative data paths and the run directory as relative to `base`.
    #[must_use]
    pub fn relative_to(mut self, base: &Path) -> Self {
        let paths = [&mut self.run.directory, &mut self.data.train, &mut self.data.held_out];
        if let ModelSection::Pretrained(model) = &mut self.model {
            model.path = base.join(&model.path);
        }
        let optional =
            [&mut self.data.worked_solutions, &mut self.run.initial_model, &mut self.tokenizer.chat_template];
        for path in paths.into_iter().chain(optional.into_iter().flatten()) {
            *path = base.join(&*path);
        }
        self
    }

    /// Checks every part and all parts together, without reading data, making a weight or starting a sandbox.
    ///
    /// # Errors
    /// Names what does not fit.
    pub fn validate(&self) -> Result<(), RunConfigError> {
        let within = |section| move |error| RunConfigError::Plan { section, error };
        self.train.validate().map_err(within("train"))?;
        self.evaluation.validate().map_err(within("evaluation"))?;
        self.warm_start.as_ref().map_or(Ok(()), WarmStartSettings::validate).map_err(within("warm_start"))?;
        self.checkpoints.validate().map_err(within("checkpoints"))?;
        self.objective.validate().map_err(|error| error.within("objective"))?;
        self.data.validate()?;
        self.validate_model()?;
        self.reward.validate().map_err(|error| error.within("reward"))?;
        self.verification.validate()?;
        if self.warm_start.is_some() && self.data.worked_solutions.is_none() {
            return Err(RunConfigError::Combination {
                problem: "[warm_start] is given but data.worked_solutions is not".into(),
                fix: "name the file of worked solutions, or leave [warm_start] out",
            });
        }
        if let Some(best) = &self.checkpoints.best
            && best.metric.starts_with("eval/")
            && self.evaluation.every == 0
        {
            return Err(RunConfigError::Combination {
                problem: format!(
                    "checkpoints.best.metric = {:?} but evaluation.every = 0: no step is evaluated",
                    best.metric
                ),
                fix: "set evaluation.every to a multiple of checkpoints.every",
            });
        }
        Ok(())
    }

    fn validate_model(&self) -> Result<(), RunConfigError> {
        let decoder = self.model.decoder()?;
        decoder.validate()?;
        self.lora.as_ref().map_or(Ok(()), LoraConfig::validate).map_err(RunConfigError::Lora)?;
        let combination = |problem: String, fix| Err(RunConfigError::Combination { problem, fix });
        if let ModelSection::Pretrained(model) = &self.model {
            if model.is_missing() {
                return Ok(()); // there is nothing more to look at; a run is refused when it opens the folder
            }
            if self.run.initial_model.is_some() {
                return combination(
                    "run.initial_model is given beside model.path".into(),
                    "keep one of the two",
                );
            }
            if self.lora.is_some() && self.model.folder()?.is_some_and(|folder| folder.lora().is_some()) {
                return combination(
                    format!(
                        "[lora] is given, and model.path = {} is an adapter already",
                        model.path.display()
                    ),
                    "leave [lora] out to train that adapter on, or merge it into its base model first",
                );
            }
        }
        match &self.model {
            ModelSection::Scratch(_) => RunTokenizer::of(self).map(drop),
            // Megabytes, which are read with the data.
            ModelSection::Pretrained(_) => RunTokenizer::check(self),
        }
    }

    /// What describes the adapter that is trained, if one is: `[lora]`, or that of a folder with an adapter.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn adapter(&self) -> Result<Option<LoraConfig>, ModelError> {
        Ok(match &self.lora {
            Some(lora) => Some(lora.clone()),
            None => self.model.folder()?.and_then(|folder| folder.lora().cloned()),
        })
    }

    /// What describes the decoder.
    ///
    /// # Errors
    /// When the folder of a pretrained model cannot be read.
    pub fn decoder(&self) -> Result<DecoderConfig, ModelError> {
        self.model.decoder()
    }

    pub(crate) fn verifier(&self) -> Result<Box<dyn RewardVerifier>, RunConfigError> {
        Ok(self.reward.build().map_err(|error| error.within("reward"))?)
    }
}

impl std::str::FromStr for RunConfig {
    type Err = RunConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        ConfigLayers::default().text("config text", text).load()
    }
}

/// A config that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunConfigError {
    /// The file cannot be read.
    #[error("config {}: cannot be read", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A layer is not TOML.
    #[error("{origin}: {problem}")]
    Syntax {
        /// The layer.
        origin: String,
        /// What is wrong, with the line.
        problem: toml::de::Error,
    },
    /// A single key is not given as `key=value`.
    #[error("--set {given}: the form is --set key=value, as in --set train.steps=5")]
    SetForm {
        /// What is given.
        given: String,
    },
    /// An environment variable names no key.
    #[error(
        "environment variable {variable}: the form is FIREBRICK__TABLE__KEY, as in FIREBRICK__TRAIN__STEPS"
    )]
    VariableForm {
        /// The variable.
        variable: String,
    },
    /// A key or value of a layer cannot be used.
    #[error("{origin}: {problem}")]
    In {
        /// The layer: a file, an environment variable or a single key.
        origin: String,
        /// What cannot be used.
        problem: Box<RunConfigError>,
    },
    /// A key is unknown, missing or of the wrong type.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A number of `[train]`, `[evaluation]` or `[warm_start]` is out of range, or its parts contradict each other.
    #[error("{section}.{error}")]
    Plan {
        /// The section.
        section: &'static str,
        /// What is wrong in it.
        error: PlanError,
    },
    /// `[objective]` is out of range.
    #[error(transparent)]
    Objective(#[from] ConfigError),
    /// `[model]` is out of range, or its folder cannot be used.
    #[error("{table}{0}", table = table_of(.0))]
    Model(#[from] ModelError),
    /// `[lora]` is out of range.
    #[error("lora.{0}")]
    Lora(#[source] ModelError),
    /// The tokenizer cannot be built.
    #[error("tokenizer.alphabet: {0}")]
    Tokenizer(#[from] firebrick_core::TokenizerError),
    /// `[reward]` cannot be used: a value is out of range, or the machine lacks what the verifier needs.
    #[error(transparent)]
    Reward(#[from] RewardConfigError),
    /// `[verification]` is out of range.
    #[error("verification.{0}")]
    Verification(#[from] GraderError),
    /// Sections contradict each other.
    #[error("{problem}; {fix}")]
    Combination {
        /// What does not fit.
        problem: String,
        /// What to change.
        fix: &'static str,
    },
}

/// The table of a key, where the error names one of a config rather than a file.
fn table_of(error: &ModelError) -> &'static str {
    if matches!(error, ModelError::Config { .. }) { "model." } else { "" }
}

impl RunConfigError {
    /// The key that is at fault, with the keys of the tables around it, where it is a single one.
    pub fn key(&self) -> Option<String> {
        match self {
            Self::In { problem, .. } => problem.key(),
            Self::Key(error) => Some(error.key().to_owned()),
            Self::Plan { section, error } => error.key().map(|key| format!("{section}.{key}")),
            Self::Objective(
                ConfigError::OutOfRange { key, .. }
                | ConfigError::Conflict { key, .. }
                | ConfigError::Incompatible { key, .. },
            ) => Some(key.clone()),
            Self::Model(ModelError::Config { key, .. }) => Some(format!("model.{key}")),
            Self::Lora(ModelError::Config { key, .. }) => Some(format!("lora.{key}")),
            Self::Tokenizer(_) => Some("tokenizer.alphabet".into()),
            Self::Reward(error) => Some(error.key().to_owned()),
            Self::Verification(GraderError::OutOfRange { key, .. }) => Some(format!("verification.{key}")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_layers::tests::BASE;

    fn set(key_and_value: &str) -> Result<RunConfig, RunConfigError> {
        ConfigLayers::default().text("base", BASE).set(key_and_value).load()
    }

    #[test]
    fn columns_and_system_prompt_reach_the_reader_and_come_back_from_the_resolved_config() {
        let plain = BASE.parse::<RunConfig>().unwrap();
        assert_eq!(plain.data.reader(), DataReader::default());
        assert!(!toml::to_string(&plain).unwrap().contains("columns"));
        let mapped = set("data.columns.answer=reward_model.ground_truth").unwrap();
        let columns = Columns { answer: Some("reward_model.ground_truth".into()), ..Columns::default() };
        assert_eq!(mapped.data.reader(), DataReader::new(columns));
        assert_eq!(toml::to_string(&mapped).unwrap().parse::<RunConfig>().unwrap(), mapped);
        let prompted = set("data.system_prompt=Add.").unwrap();
        assert_eq!(prompted.data.reader(), DataReader::default().with_system_prompt("Add."));
    }

    #[test]
    fn a_data_key_that_says_nothing_or_is_unknown_is_refused_by_name() {
        for (given, start) in [
            ("data.system_prompt=\"\"", "data.system_prompt = \"\": must be a text"),
            ("data.columns.id=a..b", "data.columns.id = \"a..b\": must be a column's name"),
            ("data.columns.promt=q", "unknown key data.columns.promt; did you mean prompt?"),
        ] {
            let error = set(given).unwrap_err().to_string();
            assert!(error.starts_with(&format!("--set {given}: {start}")), "{error}");
        }
    }
}

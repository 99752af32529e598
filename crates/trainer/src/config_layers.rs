//! A run config from layers: files, environment, single keys.

use std::{collections::BTreeMap, path::PathBuf};

use firebrick_objectives::ObjectiveConfig;
use firebrick_reward::RewardConfig;
use serde::de::DeserializeOwned;

use crate::{
    KeyError, RunConfig, RunConfigError,
    config_layer::{Layer, Merged},
    read_table::read_table,
};

/// What an environment variable that is a key begins with; the same text separates the keys of its path.
const PREFIX: &str = "FIREBRICK__";
const SEPARATOR: &str = "__";

/// The layers of a run config. Later ones win: files and texts in the order they are named, then environment variables, then
/// single keys.
///
/// Tables are merged key by key, everything else is replaced, lists too. So an overlay that changes the `type` of a table keeps
/// the table's other keys, and is refused when the new type does not have them.
///
/// The value of an environment variable or a single key is read as TOML (`5`, `1e-4`, `true`, `[1, 2]`, `{ type = "grpo" }`);
/// what is no TOML value is a string, so `objective.type=grpo` needs no quotes, and `run.directory="1"` forces a string.
///
/// ```
/// use firebrick_trainer::ConfigLayers;
///
/// let base = r#"
///     run = { directory = "runs/example" }
///     data = { train = "train.jsonl", held_out = "heldout.jsonl" }
///     tokenizer = { alphabet = "0123456789+=" }
///     evaluation = { samples = 4 }
///     [model]
///     vocab_size = 16
///     hidden_size = 32
///     intermediate_size = 64
///     num_hidden_layers = 2
///     num_attention_heads = 2
///     num_key_value_heads = 2
///     max_position_embeddings = 32
///     [train]
///     seed = 1
///     steps = 10
///     prompts_per_step = 8
///     group_size = 8
///     sampling = { max_new_tokens = 8 }
///     optimizer = { learning_rate = 1e-3 }
///     [objective]
///     type = "tapo"
/// "#;
/// let layers = ConfigLayers::default()
///     .text("base", base)
///     .environment([("FIREBRICK__TRAIN__STEPS".to_owned(), "20".to_owned())])
///     .set("objective.type=grpo");
/// assert_eq!(layers.load()?.train.steps, 20);
/// assert_eq!(
///     layers.set("train.step=5").load().unwrap_err().to_string().split(';').next(),
///     Some("--set train.step=5: unknown key train.step")
/// );
/// # Ok::<(), firebrick_trainer::RunConfigError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct ConfigLayers {
    documents: Vec<Document>,
    variables: Vec<(String, String)>,
    keys: Vec<String>,
}

#[derive(Debug, Clone)]
enum Document {
    File(PathBuf),
    Text { name: String, toml: String },
}

impl ConfigLayers {
    /// Adds a TOML file.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.documents.push(Document::File(path.into()));
        self
    }

    /// Adds TOML; errors call it `name`.
    #[must_use]
    pub fn text(mut self, name: impl Into<String>, toml: impl Into<String>) -> Self {
        self.documents.push(Document::Text { name: name.into(), toml: toml.into() });
        self
    }

    /// Adds environment variables; those that do not begin with `FIREBRICK__` are left out. `FIREBRICK__TRAIN__STEPS` is
    /// `train.steps`.
    #[must_use]
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.variables.extend(variables.into_iter().filter(|(name, _)| name.starts_with(PREFIX)));
        self.variables.sort(); // the environment has no order
        self
    }

    /// Adds a single `key=value`, the key with its tables: `train.steps=5`.
    #[must_use]
    pub fn set(mut self, key_and_value: impl Into<String>) -> Self {
        self.keys.push(key_and_value.into());
        self
    }

    /// Merges the layers, reads them as a config and validates it.
    ///
    /// # Errors
    /// Names the layer that cannot be read or that has a key or value which cannot be used, with the key.
    pub fn load(&self) -> Result<RunConfig, RunConfigError> {
        Self::load_merged(&Merged::of(self.read()?), RunConfig::validate)
    }

    /// Merges the layers and reads nothing but their `objective`.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_objective(&self) -> Result<ObjectiveConfig, RunConfigError> {
        self.load_table("objective", |objective: &ObjectiveConfig| {
            Ok(objective.validate().map_err(|error| error.within("objective"))?)
        })
    }

    /// Merges the layers and reads nothing but their `reward`.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_reward(&self) -> Result<RewardConfig, RunConfigError> {
        self.load_table("reward", |reward: &RewardConfig| {
            Ok(reward.validate().map_err(|error| error.within("reward"))?)
        })
    }

    /// Merges the layers and reads nothing but their table `key`, then has it checked by `validate`.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_table<T: DeserializeOwned>(
        &self,
        key: &str,
        validate: impl Fn(&T) -> Result<(), RunConfigError>,
    ) -> Result<T, RunConfigError> {
        let mut merged = Merged::of(self.read()?);
        merged.keep(key);
        let mut only =
            Self::load_merged(&merged, |only: &BTreeMap<String, T>| only.get(key).map_or(Ok(()), &validate))?;
        only.remove(key).ok_or_else(|| KeyError::Missing { key: key.to_owned() }.into())
    }

    fn load_merged<T: DeserializeOwned>(
        merged: &Merged,
        validate: impl Fn(&T) -> Result<(), RunConfigError>,
    ) -> Result<T, RunConfigError> {
        // Read from TOML again: `config` itself would turn 2.7 into 3 and "yes" into 1.
        let config: Result<T, _> = read_table(&merged.table()).map_err(RunConfigError::from);
        config.and_then(|config| validate(&config).map(|()| config)).map_err(|problem| {
            match problem.key().and_then(|key| merged.origin(&key)) {
                Some(origin) => RunConfigError::In { origin: origin.to_owned(), problem: Box::new(problem) },
                None => problem,
            }
        })
    }

    fn read(&self) -> Result<Vec<Layer>, RunConfigError> {
        let documents = self.documents.iter().map(|document| match document {
            Document::File(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| RunConfigError::Open { path: path.clone(), source })?;
                Layer::document(format!("config {}", path.display()), &text)
            }
            Document::Text { name, toml } => Layer::document(name.clone(), toml),
        });
        let variables = self.variables.iter().map(|(name, value)| {
            let key = name[PREFIX.len()..].to_lowercase().replace(SEPARATOR, ".");
            Layer::key(format!("environment variable {name}"), &key, value)
                .ok_or_else(|| RunConfigError::VariableForm { variable: name.clone() })
        });
        let keys = self.keys.iter().map(|given| {
            let parts = given.split_once('=');
            parts
                .and_then(|(key, value)| Layer::key(format!("--set {given}"), key, value))
                .ok_or_else(|| RunConfigError::SetForm { given: given.clone() })
        });
        documents.chain(variables).chain(keys).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A config with nothing but what has no default.
    pub(crate) const BASE: &str = r#"
        run = { directory = "runs/test" }
        data = { train = "train.jsonl", held_out = "heldout.jsonl" }
        tokenizer = { alphabet = "0123456789+=" }
        objective = { type = "tapo" }
        evaluation = { samples = 4 }

        [model]
        vocab_size = 16
        hidden_size = 32
        intermediate_size = 64
        num_hidden_layers = 2
        num_attention_heads = 2
        num_key_value_heads = 2
        max_position_embeddings = 32

        [train]
        seed = 1
        steps = 10
        prompts_per_step = 8
        group_size = 8
        sampling = { max_new_tokens = 8, stop_tokens = [1, 2] }
        optimizer = { learning_rate = 1e-3 }
    "#;

    const TRAIN_KEYS: &str = "seed, steps, prompts_per_step, group_size, epochs, mini_batches, micro_batch_tokens, parallel_parts, recompute_activations, dynamic_sampling, engine_rows, sampling, optimizer, critic_learning_rate, parity_tolerance, traces_per_step, token_traces_per_step";

    fn base() -> ConfigLayers {
        ConfigLayers::default().text("base", BASE)
    }

    fn refused(layers: ConfigLayers) -> String {
        layers.load().unwrap_err().to_string()
    }

    fn variable(name: &str, value: &str) -> [(String, String); 1] {
        [(name.to_owned(), value.to_owned())]
    }

    #[test]
    fn later_files_win_over_earlier_ones_the_environment_over_files_and_single_keys_over_all() {
        let steps = |layers: &ConfigLayers| layers.load().unwrap().train.steps;
        let layers = base();
        assert_eq!(steps(&layers), 10);
        // The single key comes first, to show that the kind of a layer decides and not the order of the calls.
        let layers = ConfigLayers::default().set("train.steps=50").text("base", BASE);
        assert_eq!(steps(&layers), 50);
        let layers = base().text("overlay", "train.steps = 20");
        assert_eq!(steps(&layers), 20);
        let layers =
            base().environment(variable("FIREBRICK__TRAIN__STEPS", "30")).text("overlay", "train.steps = 20");
        assert_eq!(steps(&layers), 30);
        let layers = layers.set("train.steps=40");
        assert_eq!(steps(&layers), 40);
        assert_eq!(steps(&layers.set("train.steps=41")), 41);
    }

    #[test]
    fn an_overlay_replaces_lists_and_leaves_the_other_keys_of_a_table() {
        let overlay = "[train.sampling]\nstop_tokens = [7]\n[train.optimizer]\nbeta_2 = 0.95";
        let train = base().text("overlay", overlay).load().unwrap().train;
        assert_eq!((train.sampling.stop_tokens, train.sampling.max_new_tokens), (vec![7], 8));
        assert_eq!((train.optimizer.beta_2, train.optimizer.learning_rate), (0.95, 1e-3));
    }

    #[test]
    fn environment_and_single_keys_are_typed_by_toml_and_strings_need_no_quotes() {
        let config = base()
            .environment(variable("FIREBRICK__OBJECTIVE__SCHEDULE__HIGH", "0.28"))
            .environment(variable("FIREBRICK_TRAIN_STEPS", "not one of ours"))
            .environment(variable("FIREBRICK__RUN__OVERWRITE", "true"))
            .set("objective.type=grpo")
            .set("objective.kl={ estimator = \"k1\", coefficient = 0.04 }")
            .set("train.sampling.stop_tokens=[3, 4]")
            .set("train.optimizer.learning_rate=1e-4")
            .set("run.directory=runs/a=b")
            .set("tokenizer.alphabet=\"0123\"")
            .load()
            .unwrap();
        let objective = "type = 'grpo'\nschedule.high = 0.28\nkl.estimator = 'k1'";
        assert_eq!(config.objective, toml::from_str(objective).unwrap());
        assert_eq!(config.train.sampling.stop_tokens, [3, 4]);
        assert_eq!(config.train.optimizer.learning_rate, 1e-4);
        assert_eq!(config.run.directory, PathBuf::from("runs/a=b"));
        assert_eq!(config.tokenizer.alphabet.as_deref(), Some("0123"));
        assert!(config.run.overwrite);
    }

    #[test]
    fn an_unknown_key_names_its_layer_its_path_and_the_known_keys() {
        assert_eq!(
            refused(base().text("overlay", "[train]\ngroup_sise = 4")),
            format!("overlay: unknown key train.group_sise; did you mean group_size? known are {TRAIN_KEYS}")
        );
        assert_eq!(
            refused(base().environment(variable("FIREBRICK__TRAIN__STEP", "4"))),
            format!(
                "environment variable FIREBRICK__TRAIN__STEP: unknown key train.step; did you mean steps? known are {TRAIN_KEYS}"
            )
        );
        assert_eq!(
            refused(base().set("train.temperature=1.0")),
            format!("--set train.temperature=1.0: unknown key train.temperature; known are {TRAIN_KEYS}")
        );
        assert_eq!(
            refused(base().text("overlay", "[trian]\nsteps = 5")),
            "overlay: unknown key trian; did you mean train? known are run, data, tokenizer, model, lora, warm_start, train, objective, reward, verification, evaluation, checkpoints, control"
        );
        assert_eq!(
            refused(base().set("objective.schedule.eps_maxx=0.3").set("objective.gate.dual_clip=3.0"))
                .split_once(", eps_"),
            Some((
                "--set objective.schedule.eps_maxx=0.3: unknown key objective.schedule.eps_maxx; did you mean eps_max? known are eps_max",
                "min_low, eps_min_high, power, horizon, space"
            ))
        );
        assert_eq!(
            refused(base().set("reward.type=exact_answer").set("reward.extraction.oder=[]")),
            "--set reward.extraction.oder=[]: unknown key reward.extraction.oder; did you mean order? known are order"
        );
    }

    #[test]
    fn a_new_type_of_a_table_does_not_take_the_keys_of_the_old_one() {
        let layers = base()
            .text("first", "objective.schedule.eps_max = 0.3")
            .text("second", "objective.type = 'grpo'");
        let error = refused(layers);
        assert!(error.starts_with("first: unknown key objective.schedule.eps_max; known are low"), "{error}");
    }

    #[test]
    fn an_unknown_choice_names_the_known_ones() {
        assert_eq!(
            refused(base().set("train.optimizer.decay=liner")),
            "--set train.optimizer.decay=liner: train.optimizer.decay = \"liner\" is unknown; did you mean linear? known are constant, linear, cosine"
        );
        let error = refused(base().set("objective.type=policy_gradient"));
        let start = "--set objective.type=policy_gradient: objective.type = \"policy_gradient\" is unknown; known are grpo, ";
        assert!(error.starts_with(start) && error.ends_with(", composed"), "{error}");
    }

    #[test]
    fn a_missing_key_has_its_whole_path() {
        let missing = |key: &str| {
            format!("missing key {key}; it has no default, since it is a choice of the run: give it a value")
        };
        let without = |line: &str| refused(ConfigLayers::default().text("base", BASE.replace(line, "")));
        assert_eq!(without("steps = 10"), missing("train.steps"));
        assert_eq!(without("learning_rate = 1e-3"), missing("train.optimizer.learning_rate"));
        assert_eq!(without("evaluation = { samples = 4 }"), missing("evaluation"));
        assert_eq!(
            refused(base().set("objective.type=pnpo")),
            "--set objective.type=pnpo: objective.type = \"pnpo\": pnpo has no default for schedule.eps_minus: the paper does not publish it; try 3e-4, 0.01 or 0.2"
        );
        assert_eq!(refused(ConfigLayers::default()), missing("run"));
    }

    #[test]
    fn a_wrong_type_names_layer_key_value_and_what_is_expected() {
        for (given, expected) in [
            ("train.steps=2.5", "train.steps = 2.5: expected a whole number, at least 0"),
            ("train.steps=many", "train.steps = \"many\": expected a whole number, at least 0"),
            ("run.overwrite=yes", "run.overwrite = \"yes\": expected true or false"),
            ("tokenizer.alphabet=123", "tokenizer.alphabet = 123: expected a string"),
            ("objective.schedule.eps_max=\"0.3\"", "objective.schedule.eps_max = \"0.3\": expected a number"),
            ("train=5", "train = 5: expected a table"),
        ] {
            assert_eq!(refused(base().set(given)), format!("--set {given}: {expected}"));
        }
    }

    #[test]
    fn a_number_out_of_range_names_its_layer_and_its_whole_key() {
        let warm = r#"
            data.worked_solutions = "sft.jsonl"
            [warm_start]
            steps = 5
            batch_size = 2
            optimizer = { learning_rate = 1e-3 }
        "#;
        for (given, start) in [
            ("train.steps=0", "train.steps = 0: allowed is a whole number, at least 1"),
            ("train.sampling.top_p=0.0", "train.sampling.top_p = 0: allowed is in (0, 1]"),
            ("train.optimizer.beta_1=1.0", "train.optimizer.beta_1 = 1: allowed is in [0, 1)"),
            ("warm_start.optimizer.beta_2=2", "warm_start.optimizer.beta_2 = 2: allowed is in [0, 1)"),
            ("warm_start.probe_every=0", "warm_start.probe_every = 0: allowed is a whole number"),
            ("warm_start.stop_at_accuracy=30", "warm_start.stop_at_accuracy = 30: allowed is a share"),
            ("evaluation.samples=0", "evaluation.samples = 0: allowed is a whole number"),
            ("model.hidden_size=0", "model.hidden_size = 0: allowed is at least 1"),
            ("objective.schedule.eps_max=-1.0", "objective.schedule.eps_max = -1: allowed is"),
            ("reward={ type = \"exact_answer\", wrong_reward = nan }", "reward.wrong_reward = NaN: "),
            ("tokenizer.alphabet=aa", "tokenizer.alphabet: the tokenizer cannot be built"),
        ] {
            let error = refused(base().text("warm", warm).set(given));
            assert!(error.starts_with(&format!("--set {given}: {start}")), "{error}");
        }
    }

    #[test]
    fn a_single_key_or_variable_of_another_form_is_refused_with_the_form() {
        for given in ["train.steps", "=5", "train.=5", ""] {
            assert_eq!(
                refused(base().set(given)),
                format!("--set {given}: the form is --set key=value, as in --set train.steps=5")
            );
        }
        for name in ["FIREBRICK__", "FIREBRICK__TRAIN__", "FIREBRICK__TRAIN____STEPS"] {
            assert_eq!(
                refused(base().environment(variable(name, "5"))),
                format!(
                    "environment variable {name}: the form is FIREBRICK__TABLE__KEY, as in FIREBRICK__TRAIN__STEPS"
                )
            );
        }
    }

    #[test]
    fn a_file_that_is_missing_or_no_toml_is_named_with_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("broken.toml");
        assert_eq!(refused(base().file(&path)), format!("config {}: cannot be read", path.display()));
        std::fs::write(&path, "[train]\nsteps = = 3\n").unwrap();
        let error = refused(base().file(&path));
        assert!(error.starts_with(&format!("config {}: ", path.display())), "{error}");
        assert!(error.contains("line 2, column 9"), "{error}");
        std::fs::write(&path, "[train]\nsteps = 3\n").unwrap();
        assert_eq!(base().file(&path).load().unwrap().train.steps, 3);
    }
}

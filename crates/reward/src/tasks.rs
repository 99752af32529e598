//! Problems with exact answers, generated from a seed: as many as are wanted, the same ones on every machine.
//!
//! ```
//! use firebrick_core::RootSeed;
//! use firebrick_reward::tasks::{TaskConfig, make};
//!
//! let config: TaskConfig = "program_synthesis".parse()?;
//! let rows = make(&config, 2, RootSeed(7))?;
//! assert_eq!(rows[0].data_source, "firebrick/program_synthesis");
//! assert_ne!(rows[0].prompt, rows[1].prompt);
//! # Ok::<(), firebrick_reward::tasks::TaskError>(())
//! ```
//!
//! The names of settings, where a task has a counterpart there, are those of reasoning-gym.

use std::{collections::BTreeMap, fmt::Debug, str::FromStr};

use firebrick_core::{Prompt, RootSeed, SeedStream};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

mod answer_forms;
mod arithmetic;
mod base_conversion;
mod chain_sum;
mod countdown;
mod error;
mod expression;
mod fraction_simplification;
mod gcd;
mod lcm;
mod linear_equation;
mod make;
mod number_sorting;
mod prime_factorisation;
mod program_synthesis;
mod verifier;
mod word_problem;

use error::{check_order, check_range};

pub use arithmetic::{ArithmeticConfig, Operator};
pub use base_conversion::BaseConversionConfig;
pub use chain_sum::ChainSumConfig;
pub use countdown::CountdownConfig;
pub use error::TaskError;
pub use fraction_simplification::FractionSimplificationConfig;
pub use gcd::GcdConfig;
pub use lcm::LcmConfig;
pub use linear_equation::LinearEquationConfig;
pub use make::{SplitBy, TaskSplit, make, make_split};
pub use number_sorting::NumberSortingConfig;
pub use prime_factorisation::PrimeFactorisationConfig;
pub use program_synthesis::{ProgramFamily, ProgramSynthesisConfig};
pub use verifier::{TaskVerifier, TaskVerifierConfig};
pub use word_problem::WordProblemConfig;

/// A problem, as a row of a data file.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TaskRow {
    /// `TASK-SEED-INDEX`, unique among the problems of all tasks and seeds.
    pub id: String,
    /// What the policy is shown.
    pub prompt: String,
    /// The reference answer.
    pub answer: String,
    /// `firebrick/TASK`.
    pub data_source: String,
    /// What else scoring needs, and what describes the problem.
    pub extra: Map<String, Value>,
}

impl TaskRow {
    /// The row as one line of JSON, without a line feed: `id`, `prompt`, `answer`, `data_source`, `extra`.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts and JSON values are JSON")
    }

    /// A response that is right: the source of the reference program where the task asks for one, otherwise the answer.
    pub fn worked_solution(&self) -> &str {
        self.extra.get("solution").and_then(Value::as_str).unwrap_or(&self.answer)
    }

    /// The row of a warm start, as one line of JSON without a line feed: `prompt` and `completion`.
    pub fn worked_solution_json(&self) -> String {
        #[derive(Serialize)]
        struct Row<'a> {
            prompt: &'a str,
            completion: &'a str,
        }
        let row = Row { prompt: &self.prompt, completion: self.worked_solution() };
        serde_json::to_string(&row).expect("texts are JSON")
    }

    /// The prompt that the trainer reads from [`Self::to_json`].
    pub fn to_prompt(&self) -> Prompt {
        let mut prompt =
            Prompt::new(&self.id, &self.prompt, &self.answer).with_data_source(&self.data_source);
        prompt.extra.insert("extra".into(), Value::Object(self.extra.clone()));
        prompt
    }
}

/// What a generator decides of a row.
#[derive(Debug)]
struct Fields {
    prompt: String,
    answer: String,
    extra: BTreeMap<&'static str, Value>, // sorted, so that rows are the same bytes under every feature of serde_json
}

impl Fields {
    fn new(prompt: impl Into<String>, answer: impl Into<String>) -> Self {
        Self { prompt: prompt.into(), answer: answer.into(), extra: BTreeMap::new() }
    }

    fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.extra.insert(key, value.into());
        self
    }
}

/// What makes the problems of one task: pure in the state of the generator of random numbers.
trait Generate: Debug + Send + Sync {
    fn fields(&self, rng: &mut ChaCha8Rng) -> Fields;
}

/// Declares the tasks: variant, name, number of its random stream (never reused), settings.
macro_rules! tasks {
    ($($(#[$doc:meta])* $variant:ident($config:ty), $name:literal, $stream:literal;)*) => {
        /// A task with its settings; `type` is its name.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "type", rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum TaskConfig {
            $($(#[$doc])* $variant($config),)*
        }

        impl TaskConfig {
            /// The names of all tasks.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// The name of the task.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)* }
            }

            /// Index of the task's random stream.
            fn stream(&self) -> u64 {
                match self { $(Self::$variant(_) => $stream,)* }
            }

            /// Checks the settings.
            ///
            /// # Errors
            /// Names the key, its value and what is allowed.
            pub fn validate(&self) -> Result<(), TaskError> {
                match self { $(Self::$variant(config) => config.validate(),)* }
            }

            fn generator(&self) -> Box<dyn Generate> {
                match self { $(Self::$variant(config) => Box::new(config.build()),)* }
            }
        }

        impl FromStr for TaskConfig {
            type Err = TaskError;

            /// The task of this name, with its defaults.
            fn from_str(name: &str) -> Result<Self, TaskError> {
                match name {
                    $($name => Ok(Self::$variant(Default::default())),)*
                    _ => Err(TaskError::UnknownTask { name: name.to_owned() }),
                }
            }
        }
    };
}

tasks! {
    /// Sums and differences of several numbers.
    ChainSum(ChainSumConfig), "chain_sum", 1;
    /// Expressions with the four operations and parentheses.
    Arithmetic(ArithmeticConfig), "arithmetic", 2;
    /// Greatest common divisors.
    Gcd(GcdConfig), "gcd", 3;
    /// Least common multiples.
    Lcm(LcmConfig), "lcm", 4;
    /// Numbers in other bases.
    BaseConversion(BaseConversionConfig), "base_conversion", 5;
    /// Fractions in lowest terms.
    FractionSimplification(FractionSimplificationConfig), "fraction_simplification", 6;
    /// Equations of one unknown.
    LinearEquation(LinearEquationConfig), "linear_equation", 7;
    /// Reach a number with given numbers.
    Countdown(CountdownConfig), "countdown", 8;
    /// Numbers in order.
    NumberSorting(NumberSortingConfig), "number_sorting", 9;
    /// Numbers as products of primes.
    PrimeFactorisation(PrimeFactorisationConfig), "prime_factorisation", 10;
    /// Write a Python function from examples of what it returns.
    ProgramSynthesis(ProgramSynthesisConfig), "program_synthesis", 11;
    /// Little stories with numbers.
    WordProblem(WordProblemConfig), "word_problem", 12;
}

impl TaskConfig {
    /// The names of all tasks.
    pub fn names() -> &'static [&'static str] {
        Self::NAMES
    }

    /// The task of this name, with these settings and defaults for the rest.
    ///
    /// # Errors
    /// When there is no such task or setting, or a value is of the wrong kind or out of range.
    pub fn with_settings(name: &str, settings: Map<String, Value>) -> Result<Self, TaskError> {
        let task = name.parse::<Self>()?.name();
        let mut table = settings;
        table.insert("type".into(), task.into());
        let config: Self = serde_json::from_value(Value::Object(table))
            .map_err(|source| TaskError::Unreadable { task, source })?;
        config.validate()?;
        Ok(config)
    }

    /// What generates the problems of this task.
    ///
    /// # Errors
    /// When the settings are out of range ([`Self::validate`]).
    pub fn build(&self) -> Result<TaskGenerator, TaskError> {
        self.validate()?;
        Ok(TaskGenerator { name: self.name(), stream: self.stream(), generator: self.generator() })
    }
}

/// Generates the problems of one task.
#[derive(Debug)]
pub struct TaskGenerator {
    name: &'static str,
    stream: u64,
    generator: Box<dyn Generate>,
}

impl TaskGenerator {
    /// Problem number `index` of the seed: the same arguments give the same bytes on every machine. Problems with different indices may
    /// ask the same.
    pub fn generate(&self, seed: RootSeed, index: u64) -> TaskRow {
        let mut rng = seed.rng(SeedStream::Problem, &[self.stream, index]);
        let fields = self.generator.fields(&mut rng);
        TaskRow {
            id: format!("{}-{}-{index}", self.name, seed.0),
            prompt: fields.prompt,
            answer: fields.answer,
            data_source: format!("{DATA_SOURCE_PREFIX}{}", self.name),
            extra: fields.extra.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        }
    }
}

/// What the data sources of all tasks begin with.
const DATA_SOURCE_PREFIX: &str = "firebrick/";

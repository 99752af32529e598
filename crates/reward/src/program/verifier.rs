//! The verifier of programs.

use std::sync::Arc;

use firebrick_core::{FinishReason, Prompt, RewardVerifier, Sample, UnscoredReason, Verdict, VerifyError};
use serde::{Deserialize, Serialize};

use super::assertion_tests::{AssertionOutcome, run_assertion_tests};
use super::call_tests::run_call_tests;
use super::case_result::CaseResult;
use super::code_block::{CodeBlock, extract_code};
use super::compare::OutputComparison;
use super::executor::{Executor, ExecutorError, Limits};
use super::executor_config::ExecutorConfig;
use super::stdin_tests::{StdinSettings, run_stdin_tests};
use super::test_suite::TestSuite;
use crate::config::{RewardConfigError, RewardConfigProblem, check_rewards};

/// Most tests of a program that may run at once.
const MOST_PARALLEL: usize = 256;

/// What the results on the tests are worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ProgramScore {
    /// All or nothing: the right reward if every test is passed. The first failure ends the run. The default.
    All {},
    /// The passed share of the tests, between the wrong and the right reward.
    Fraction {
        /// Only so many tests count, from the first that scores; all if not given. Graders of the APPS line take 10.
        #[serde(default)]
        first: Option<usize>,
    },
}

impl Default for ProgramScore {
    fn default() -> Self {
        Self::All {}
    }
}

/// Settings of [`CodeVerifier`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CodeConfig {
    /// Where programs run. Default: the local sandbox.
    pub executor: ExecutorConfig,
    /// What a program may use: for each test if it reads and prints, for all tests together if it is called.
    pub limits: Limits,
    /// Column of the data row that holds the tests; the answer if not given.
    pub tests_column: Option<String>,
    /// How the program is found in the response.
    pub extraction: CodeBlock,
    /// When an output is the expected one.
    pub comparison: OutputComparison,
    /// What the results are worth.
    pub score: ProgramScore,
    /// How many tests of one program run at once, if it reads and prints. Default 1, at most 256.
    pub parallel_tests: usize,
    /// Reward of a program that passes. Default 1.
    pub correct_reward: f64,
    /// Reward of one that does not, and of no program. Default 0.
    pub wrong_reward: f64,
}

impl Default for CodeConfig {
    fn default() -> Self {
        Self {
            executor: ExecutorConfig::default(),
            limits: Limits::default(),
            tests_column: None,
            extraction: CodeBlock::default(),
            comparison: OutputComparison::default(),
            score: ProgramScore::default(),
            parallel_tests: 1,
            correct_reward: 1.0,
            wrong_reward: 0.0,
        }
    }
}

impl CodeConfig {
    /// Checks the settings, those of the executor included. No program is run, and the machine is not looked at.
    ///
    /// # Errors
    /// When a reward is not finite, a right program does not earn more than a wrong one, or a number is out of range.
    pub fn validate(&self) -> Result<(), RewardConfigError> {
        self.check_own()?;
        self.executor.validate().map_err(|error| refused(error).within("executor"))
    }

    /// Checks all but the executor.
    fn check_own(&self) -> Result<(), RewardConfigError> {
        check_rewards(self.correct_reward, self.wrong_reward)?;
        let refuse =
            |key: &str, value: String, allowed| Err(RewardConfigError::out_of_range(key, value, allowed));
        if !(1..=MOST_PARALLEL).contains(&self.parallel_tests) {
            return refuse("parallel_tests", self.parallel_tests.to_string(), "1 to 256");
        }
        if self.score == (ProgramScore::Fraction { first: Some(0) }) {
            return refuse("score.first", "0".to_owned(), "at least 1");
        }
        self.limits.validate().map_err(refused)
    }

    /// Builds the verifier with the executor that is configured.
    ///
    /// # Errors
    /// As [`Self::validate`], and when the executor cannot be built.
    pub fn build(self) -> Result<CodeVerifier, RewardConfigError> {
        self.validate()?;
        let executor = self.executor.build().map_err(|error| refused(error).within("executor"))?;
        Ok(CodeVerifier { config: self, executor })
    }

    /// Builds the verifier with an executor of one's own; the configured one is not looked at.
    ///
    /// # Errors
    /// As [`Self::validate`].
    pub fn build_with(self, executor: Arc<dyn Executor>) -> Result<CodeVerifier, RewardConfigError> {
        self.check_own()?;
        Ok(CodeVerifier { config: self, executor })
    }
}

/// What an executor refuses, by the key that it names, if any.
fn refused(error: ExecutorError) -> RewardConfigError {
    match error {
        ExecutorError::OutOfRange { key, value, allowed } => {
            RewardConfigError::out_of_range(key, value, allowed)
        }
        source => RewardConfigProblem::Executor { source }.at(""),
    }
}

/// Rewards a response whose program passes the tests of its problem.
///
/// The tests are JSON, in the prompt's answer or in [`CodeConfig::tests_column`], in one of these forms:
///
/// ```text
/// {"inputs": [...], "outputs": [...]}                    a run a test: reads the input, prints the output
/// {"inputs": [...], "outputs": [...], "fn_name": "f"}    a call a test: each input a line of JSON an argument,
///                                                        or a list of the arguments (APPS, TACO, PRIME, verl)
/// [{"input", "output", "testtype": "stdin" | "functional"}, ...]      LiveCodeBench; the function is `fn_name`
///                                                        or `metadata.func_name` of the row
/// {"hidden": [...], "shown": [...], "fn_name": "f"}      the same; only the hidden ones score
/// {"test", "entry_point", "prompt"}                      HumanEval: `check(candidate)` asserts
/// {"test_list": ["assert ..."], "test_setup_code"}       MBPP
/// ```
///
/// `"shown": n`, or a list of positions, beside `inputs` or `test_list` says which tests the problem shows: they are not run, so
/// that nothing is earned by repeating what was shown.
///
/// * **What is expected never enters the program's process.** What it prints or returns is compared in this process. Tests that
///   assert run in a process of their own, where calls of the program are relayed: values travel as JSON of Python's own types,
///   exceptions as the one of the same name, containers that were changed in place are changed alike.
/// * The rule of the score is `passed`, or what the first failure was: `failed_tests`, `runtime_error` (an exception, another
///   exit code than 0, a signal, an early end), `time_limit`, `output_limit`. A response without a program earns the wrong reward
///   under `no_answer`, with nothing extracted.
/// * Tests that cannot be read, or do not run, leave the completion unscored, whatever it says; a fault of the executor is an
///   error.
/// * A program for calls is a function or a method of a class `Solution`, made anew for each call, with the usual modules
///   imported. One for HumanEval stands behind the prompt, which it may go on from or replace.
///
/// Not carried between processes: functions, iterators and objects of classes of the program's own, as arguments or results; the
/// identity of objects. Tests that pass such arguments leave the completion unscored; a program that returns one fails.
///
/// *Reference*: Chen et al., "Evaluating Large Language Models Trained on Code", 2021, arXiv:2107.03374 (HumanEval); Austin et
/// al., "Program Synthesis with Large Language Models", 2021, arXiv:2108.07732 (MBPP). *Differs*: there, tests and program share a
/// process.
#[derive(Debug, Clone)]
pub struct CodeVerifier {
    config: CodeConfig,
    executor: Arc<dyn Executor>,
}

impl CodeVerifier {
    /// The settings.
    pub fn config(&self) -> &CodeConfig {
        &self.config
    }

    fn run(&self, code: &str, suite: TestSuite) -> Result<Result<Vec<CaseResult>, String>, ExecutorError> {
        let (executor, config) = (&*self.executor, &self.config);
        let first = match config.score {
            ProgramScore::All {} => usize::MAX,
            ProgramScore::Fraction { first } => first.unwrap_or(usize::MAX),
        };
        match suite {
            TestSuite::Stdin(mut tests) => {
                tests.truncate(first);
                let settings = StdinSettings {
                    limits: &config.limits,
                    comparison: config.comparison,
                    parallel: config.parallel_tests,
                    stop_early: config.score == ProgramScore::All {},
                };
                run_stdin_tests(executor, code, &tests, settings).map(Ok)
            }
            TestSuite::Calls { function, mut tests } => {
                tests.truncate(first);
                run_call_tests(executor, code, &function, &tests, &config.limits, config.comparison).map(Ok)
            }
            TestSuite::Assertions(mut suite) => {
                suite.tests.truncate(first);
                Ok(match run_assertion_tests(executor, code, &suite, &config.limits)? {
                    AssertionOutcome::Ran(results) => Ok(results),
                    AssertionOutcome::Unusable(problem) => Err(problem),
                })
            }
        }
    }

    fn tests(&self, prompt: &Prompt) -> Result<TestSuite, UnscoredReason> {
        TestSuite::of_prompt(prompt, self.config.tests_column.as_deref())
            .map_err(|error| UnscoredReason::BadReference(error.to_string()))
    }

    fn score(&self, results: &[CaseResult]) -> (f64, &'static str) {
        let (right, wrong) = (self.config.correct_reward, self.config.wrong_reward);
        let failure = results.iter().find(|result| **result != CaseResult::Passed);
        let rule = failure.map_or(CaseResult::Passed.rule(), |result| result.rule());
        let reward = match (failure, self.config.score) {
            (None, _) => right,
            (Some(_), ProgramScore::All {}) => wrong,
            (Some(_), ProgramScore::Fraction { .. }) => {
                let passed = results.iter().filter(|result| **result == CaseResult::Passed).count();
                wrong + (right - wrong) * passed as f64 / results.len() as f64
            }
        };
        (reward, rule)
    }
}

impl RewardVerifier for CodeVerifier {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        if sample.finish_reason == FinishReason::Aborted {
            return Ok(Verdict::Unscored(UnscoredReason::Aborted));
        }
        let suite = match self.tests(sample.prompt) {
            Ok(suite) => suite,
            Err(reason) => return Ok(Verdict::Unscored(reason)),
        };
        let Some(code) = extract_code(sample.text, self.config.extraction) else {
            return Ok(Verdict::graded(self.config.wrong_reward, None, "no_answer"));
        };
        match self.run(code, suite) {
            Ok(Ok(results)) => {
                let (reward, rule) = self.score(&results);
                Ok(Verdict::graded(reward, Some(code.to_owned()), rule))
            }
            Ok(Err(problem)) => Ok(Verdict::Unscored(UnscoredReason::BadReference(problem))),
            Err(error) => Err(VerifyError::new(error.to_string()).with_source(error)),
        }
    }

    fn check_reference(&self, prompt: &Prompt) -> Result<(), UnscoredReason> {
        self.tests(prompt).map(drop)
    }

    fn name(&self) -> &str {
        "code"
    }
}

#[cfg(test)]
mod tests {
    use super::super::executor::{Job, Outcome, Session};
    use super::super::sandbox_config::LocalSandboxConfig;
    use super::*;
    use crate::config::{RewardConfig, refusal};

    /// An executor that is down.
    #[derive(Debug)]
    struct Down;

    impl Executor for Down {
        fn run(&self, _job: &Job) -> Result<Outcome, ExecutorError> {
            Err(ExecutorError::Failed { executor: "down", what: "it is down".into(), source: None })
        }

        fn open(&self, job: &Job) -> Result<Box<dyn Session>, ExecutorError> {
            Err(self.run(job).unwrap_err())
        }

        fn name(&self) -> &'static str {
            "down"
        }
    }

    fn verify(answer: &str, response: &str, reason: FinishReason) -> Result<Verdict, VerifyError> {
        let verifier = CodeConfig::default().build_with(Arc::new(Down)).unwrap();
        verifier.verify(&Sample::new(&Prompt::new("p", "?", answer), response, &[], reason))
    }

    const STDIN: &str = r#"{"inputs": ["1"], "outputs": ["1"]}"#;

    #[test]
    fn a_fault_of_the_executor_is_an_error_and_never_a_zero() {
        for answer in [
            STDIN,
            r#"{"inputs": ["1"], "outputs": ["1"], "fn_name": "f"}"#,
            r#"{"test_list": ["assert f(1)"]}"#,
        ] {
            let error = verify(answer, "```python\nx\n```", FinishReason::Stop).unwrap_err();
            assert!(error.to_string().contains("it is down"), "{error}");
        }
    }

    #[test]
    fn what_needs_no_run_is_decided_without_one() {
        assert_eq!(
            verify(STDIN, "no program", FinishReason::Stop).unwrap(),
            Verdict::graded(0.0, None, "no_answer")
        );
        let aborted = verify(STDIN, "```\nx\n```", FinishReason::Aborted).unwrap();
        assert_eq!(aborted, Verdict::Unscored(UnscoredReason::Aborted));
        for response in ["```\nx\n```", "no program"] {
            let Ok(Verdict::Unscored(UnscoredReason::BadReference(message))) =
                verify(r#"{"inputs": ["1"]}"#, response, FinishReason::Stop)
            else {
                panic!("{response}");
            };
            assert_eq!(message, "the tests cannot be used: `outputs` is missing");
        }
    }

    #[test]
    fn the_reward_is_all_or_nothing_or_the_passed_share() {
        use CaseResult::{Passed, TimeLimit, Wrong};
        let score = |score, results: &[CaseResult]| {
            let config = CodeConfig { score, wrong_reward: -1.0, ..CodeConfig::default() };
            config.build_with(Arc::new(Down)).unwrap().score(results)
        };
        let fraction = ProgramScore::Fraction { first: None };
        assert_eq!(score(ProgramScore::All {}, &[Passed, TimeLimit, Wrong]), (-1.0, "time_limit"));
        assert_eq!(score(ProgramScore::All {}, &[Passed, Passed]), (1.0, "passed"));
        assert_eq!(score(fraction, &[Passed, Wrong, TimeLimit, Passed]), (0.0, "failed_tests")); // −1 + 2 · 2/4
        assert_eq!(score(fraction, &[Passed]), (1.0, "passed"));
    }

    #[test]
    fn unusable_settings_are_refused_by_name() {
        let error = |change: fn(&mut CodeConfig)| {
            let mut config = CodeConfig::default();
            change(&mut config);
            let text = refusal(&RewardConfig::Code(config.clone()));
            assert_eq!(config.build_with(Arc::new(Down)).unwrap_err().to_string(), text);
            text
        };
        assert_eq!(error(|c| c.wrong_reward = f64::NAN), "wrong_reward = NaN: a reward must be finite");
        assert_eq!(error(|c| c.wrong_reward = 1.0), "correct_reward = 1 must be above wrong_reward = 1");
        assert_eq!(error(|c| c.parallel_tests = 0), "parallel_tests = 0: allowed is 1 to 256");
        assert_eq!(
            error(|c| c.score = ProgramScore::Fraction { first: Some(0) }),
            "score.first = 0: allowed is at least 1"
        );
        assert_eq!(
            error(|c| c.limits.wall_seconds = f64::NAN),
            "limits.wall_seconds = NaN: allowed is above 0 and at most 86400"
        );
        assert_eq!(error(|c| c.limits.output_kib = 0), "limits.output_kib = 0: allowed is 1 to 1048576");
    }

    #[test]
    fn settings_of_the_executor_are_refused_by_name_where_it_is_used() {
        let local = LocalSandboxConfig { slots: Some(0), ..LocalSandboxConfig::default() };
        let config = CodeConfig { executor: ExecutorConfig::Local(local), ..CodeConfig::default() };
        let text = refusal(&RewardConfig::Code(config.clone()));
        assert_eq!(text, "executor.slots = 0: allowed is 1 to 256");
        assert!(config.build_with(Arc::new(Down)).is_ok());
    }

    #[test]
    fn settings_are_read_from_text_and_unknown_keys_refused() {
        let config: CodeConfig = serde_json::from_str(
            r#"{"score": {"type": "fraction", "first": 10}, "comparison": "apps_lax", "extraction": "first",
                "limits": {"cpu_seconds": 2.0}, "tests_column": "tests"}"#,
        )
        .unwrap();
        assert_eq!(config.score, ProgramScore::Fraction { first: Some(10) });
        assert_eq!((config.comparison, config.extraction), (OutputComparison::AppsLax, CodeBlock::First));
        assert_eq!((config.limits.cpu_seconds, config.limits.memory_mib), (2.0, 512));
        for text in
            [r#"{"compare": "exact"}"#, r#"{"score": {"type": "all", "first": 1}}"#, r#"{"score": "all"}"#]
        {
            assert!(serde_json::from_str::<CodeConfig>(text).is_err(), "{text}");
        }
    }
}

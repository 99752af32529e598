//! The verifier of generated problems.

use firebrick_core::{FinishReason, Prompt, RewardVerifier, Sample, UnscoredReason, Verdict, VerifyError};
use num_bigint::{BigInt, BigUint};
use num_rational::BigRational;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    DATA_SOURCE_PREFIX,
    answer_forms::{decimal, digits, factors, fraction, list},
    expression::evaluate,
};
use crate::config::{RewardConfigError, check_methods, check_rewards};
use crate::extraction::{ExtractionSpec, extract_answer};

/// Settings of [`TaskVerifier`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskVerifierConfig {
    /// How the answer is found in the response.
    pub extraction: ExtractionSpec,
    /// Whether a response in which it is not found is the answer itself: all of it, or what follows its last `</think>`. Default true.
    pub bare: bool,
    /// Reward of a right answer. Default 1.
    pub correct_reward: f64,
    /// Reward of a wrong answer and of none. Default 0.
    pub wrong_reward: f64,
}

impl Default for TaskVerifierConfig {
    fn default() -> Self {
        Self { extraction: ExtractionSpec::default(), bare: true, correct_reward: 1.0, wrong_reward: 0.0 }
    }
}

impl TaskVerifierConfig {
    /// Checks the settings.
    ///
    /// # Errors
    /// When a reward is not finite, a right answer does not earn more than a wrong one, or the extraction order is empty or names
    /// a method twice.
    pub fn validate(&self) -> Result<(), RewardConfigError> {
        check_rewards(self.correct_reward, self.wrong_reward)?;
        check_methods("extraction.order", &self.extraction.order)
    }

    /// Builds the verifier.
    ///
    /// # Errors
    /// As [`Self::validate`].
    pub fn build(self) -> Result<TaskVerifier, RewardConfigError> {
        self.validate()?;
        Ok(TaskVerifier { config: self })
    }
}

/// Scores answers to generated problems, by the rule of the task that the prompt's data source names.
///
/// | task | an answer is right when |
/// |---|---|
/// | `chain_sum`, `arithmetic`, `gcd`, `lcm`, `linear_equation`, `word_problem` | it is a decimal number of the reference's value: `1,000`, `+1000.0`, `1e3`; of an equation also `x = 5` |
/// | `base_conversion` | it has the reference's value in the base that was asked for; case, `0b`, `0o` and `0x` do not matter |
/// | `fraction_simplification` | numerator and denominator are those of the reference, as `a/b`, `\frac{a}{b}` or `\dfrac{a}{b}`; an equal fraction that is not reduced is wrong |
/// | `countdown` | it is an expression whose value is the target, exactly, with each number as often as it is given, or at most as often where `use_all` is false |
/// | `number_sorting` | it is a list in square brackets of the reference's values in their order, quoted or not |
/// | `prime_factorisation` | it names the reference's factors, in any order, joined by `*`, `×`, `·` or `\times`, powers as `2^3` or `2**3` |
///
/// The rule of the score is the task's name, or `no_answer`. `program_synthesis` is scored by running programs, elsewhere: here its
/// completions, like those of any other data source, are an error and so unscored. So is a completion whose row lacks what scoring
/// needs, or whose reference breaks the task's form.
///
/// *Reference*: the scores of reasoning-gym 0.1.25, where its score is 1; its partial credits are wrong answers here.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskVerifier {
    config: TaskVerifierConfig,
}

impl TaskVerifier {
    /// The settings.
    pub fn config(&self) -> &TaskVerifierConfig {
        &self.config
    }

    fn answer<'a>(&self, response: &'a str) -> Option<&'a str> {
        if let Some(found) = extract_answer(response, &self.config.extraction) {
            return Some(found.text);
        }
        let said = response.rsplit("</think>").next().unwrap_or(response).trim();
        (self.config.bare && !said.is_empty()).then_some(said)
    }
}

impl RewardVerifier for TaskVerifier {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        if sample.finish_reason == FinishReason::Aborted {
            return Ok(Verdict::Unscored(UnscoredReason::Aborted));
        }
        let (rule, reference) = match reference(sample.prompt) {
            Ok(known) => known,
            Err(reason) => return Ok(Verdict::Unscored(reason)),
        };
        let wrong = self.config.wrong_reward;
        let Some(answer) = self.answer(sample.text) else {
            return Ok(Verdict::graded(wrong, None, "no_answer"));
        };
        let reward = if reference.accepts(answer) { self.config.correct_reward } else { wrong };
        Ok(Verdict::graded(reward, Some(answer.to_owned()), rule.name))
    }

    fn check_reference(&self, prompt: &Prompt) -> Result<(), UnscoredReason> {
        reference(prompt).map(drop)
    }

    fn name(&self) -> &str {
        "task"
    }
}

/// The rule of a problem and what answers are compared with.
fn reference(prompt: &Prompt) -> Result<(Rule, Reference), UnscoredReason> {
    let source = prompt.data_source.as_str();
    let read = Rule::of(source)
        .ok_or_else(|| format!("`{source}` is no data source that this verifier knows a rule for"))
        .and_then(|rule| Ok((rule, Reference::read(rule, prompt)?)));
    read.map_err(UnscoredReason::BadReference)
}

/// How the answers of a task are compared.
#[derive(Debug, Clone, Copy)]
struct Rule {
    name: &'static str,
    kind: RuleKind,
}

#[derive(Debug, Clone, Copy)]
enum RuleKind {
    Number,
    Digits,
    Fraction,
    Countdown,
    List,
    Factors,
}

impl Rule {
    const ALL: [Self; 11] = [
        Self { name: "chain_sum", kind: RuleKind::Number },
        Self { name: "arithmetic", kind: RuleKind::Number },
        Self { name: "gcd", kind: RuleKind::Number },
        Self { name: "lcm", kind: RuleKind::Number },
        Self { name: "linear_equation", kind: RuleKind::Number },
        Self { name: "word_problem", kind: RuleKind::Number },
        Self { name: "base_conversion", kind: RuleKind::Digits },
        Self { name: "fraction_simplification", kind: RuleKind::Fraction },
        Self { name: "countdown", kind: RuleKind::Countdown },
        Self { name: "number_sorting", kind: RuleKind::List },
        Self { name: "prime_factorisation", kind: RuleKind::Factors },
    ];

    fn of(data_source: &str) -> Option<Self> {
        let task = data_source.strip_prefix(DATA_SOURCE_PREFIX)?;
        Self::ALL.into_iter().find(|rule| rule.name == task)
    }
}

/// What an answer is compared with.
enum Reference {
    Number { value: BigRational, variable: Option<String> },
    Digits { value: BigUint, base: u32 },
    Fraction(BigInt, BigInt),
    Countdown { numbers: Vec<BigInt>, target: BigInt, use_all: bool },
    List(Vec<BigRational>),
    Factors(Vec<u64>),
}

impl Reference {
    /// # Errors
    /// What is wrong with the row.
    fn read(rule: Rule, prompt: &Prompt) -> Result<Self, String> {
        let answer = prompt.answer.trim();
        let bad = |form: &str| format!("the reference answer `{answer}` is not {form}");
        let lacking = |key: &str| format!("the row has no usable `extra.{key}`");
        match rule.kind {
            RuleKind::Number => {
                let value = decimal(answer).ok_or_else(|| bad("a decimal number"))?;
                let variable = extra(prompt, "variable").and_then(Value::as_str).map(str::to_owned);
                Ok(Self::Number { value, variable })
            }
            RuleKind::Digits => {
                let base =
                    extra(prompt, "base").and_then(Value::as_u64).filter(|base| (2..=36).contains(base));
                let base = base.ok_or_else(|| lacking("base"))? as u32;
                let value = digits(answer, base).ok_or_else(|| bad(&format!("a number in base {base}")))?;
                Ok(Self::Digits { value, base })
            }
            RuleKind::Fraction => {
                let (a, b) = fraction(answer).ok_or_else(|| bad("a fraction"))?;
                if b == BigInt::ZERO || *BigRational::new(a.clone(), b.clone()).denom() != b {
                    return Err(bad("a fraction in lowest terms"));
                }
                Ok(Self::Fraction(a, b))
            }
            RuleKind::Countdown => {
                let numbers = extra(prompt, "numbers").and_then(Value::as_array);
                let numbers: Option<Vec<BigInt>> =
                    numbers.and_then(|list| list.iter().map(|n| n.as_i64().map(BigInt::from)).collect());
                let target = extra(prompt, "target").and_then(Value::as_i64);
                let use_all = extra(prompt, "use_all").and_then(Value::as_bool).unwrap_or(true);
                let mut numbers = numbers.ok_or_else(|| lacking("numbers"))?;
                numbers.sort_unstable();
                let target = target.ok_or_else(|| lacking("target"))?.into();
                Ok(Self::Countdown { numbers, target, use_all })
            }
            RuleKind::List => list(answer).map(Self::List).ok_or_else(|| bad("a list of numbers")),
            RuleKind::Factors => {
                factors(answer).map(Self::Factors).ok_or_else(|| bad("a product of whole numbers"))
            }
        }
    }

    fn accepts(&self, answer: &str) -> bool {
        match self {
            Self::Number { value, variable } => {
                let named = variable.as_ref().and_then(|name| answer.strip_prefix(name.as_str()));
                let bare = named.and_then(|rest| rest.trim_start().strip_prefix('=')).unwrap_or(answer);
                decimal(bare).as_ref() == Some(value)
            }
            Self::Digits { value, base } => digits(answer, *base).as_ref() == Some(value),
            Self::Fraction(a, b) => {
                fraction(answer).is_some_and(|(numerator, denominator)| numerator == *a && denominator == *b)
            }
            Self::Countdown { numbers, target, use_all } => {
                let Some(mut said) = evaluate(answer) else { return false };
                said.numbers.sort_unstable();
                let allowed =
                    if *use_all { said.numbers == *numbers } else { is_part_of(&said.numbers, numbers) };
                allowed && said.value == BigRational::from(target.clone())
            }
            Self::List(items) => list(answer).as_ref() == Some(items),
            Self::Factors(wanted) => factors(answer).as_ref() == Some(wanted),
        }
    }
}

/// What a row holds beside the answer: in its `extra`, where the writer of rows puts it, or at its top.
fn extra<'a>(prompt: &'a Prompt, key: &str) -> Option<&'a Value> {
    let nested = prompt.extra.get("extra").and_then(|extra| extra.get(key));
    nested.or_else(|| prompt.extra.get(key))
}

/// Whether a sorted list can be made of a sorted list by leaving items out.
fn is_part_of(part: &[BigInt], whole: &[BigInt]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|item| whole.any(|other| other == item))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{RewardConfig, refusal};

    fn reward(task: &str, answer: &str, extra: &str, response: &str) -> Option<f64> {
        let mut prompt = Prompt::new("p", "?", answer).with_data_source(format!("firebrick/{task}"));
        prompt.extra.insert("extra".into(), serde_json::from_str(extra).unwrap());
        TaskVerifier::default().verify(&Sample::of_text(&prompt, response)).unwrap().reward()
    }

    #[track_caller]
    fn table(task: &str, answer: &str, extra: &str, right: &[&str], wrong: &[&str]) {
        for response in right {
            assert_eq!(reward(task, answer, extra, response), Some(1.0), "{response}");
        }
        for response in wrong {
            assert_eq!(reward(task, answer, extra, response), Some(0.0), "{response}");
        }
    }

    #[test]
    fn numbers_are_compared_by_value() {
        let right = [
            "1000",
            "+1,000.00",
            "1e3",
            " 1000 ",
            "Answer: 1000.",
            r"So \boxed{1000}",
            "<think>7</think>1000",
        ];
        table("lcm", "1000", "{}", &right, &["-1000", "1000.5", "2000/2", "x = 1000", "1000 it is", "", "."]);
        table("chain_sum", "-0.5", "{}", &["-.5", "-5e-1"], &["0.5", "-5e-999999999", "--0.5"]);
        table(
            "linear_equation",
            "5",
            r#"{"variable": "x"}"#,
            &["5", "x = 5", "x=5.0"],
            &["y = 5", "x 5", "x = 6"],
        );
    }

    #[test]
    fn digits_are_compared_in_the_base_that_was_asked_for() {
        table(
            "base_conversion",
            "ff",
            r#"{"base": 16}"#,
            &["ff", "FF", "0xFF"],
            &["255", "fg", "0x", "f_f", "-ff"],
        );
        table("base_conversion", "101", r#"{"base": 2}"#, &["101", "0b101"], &["0x101", "102", "5"]);
        table("base_conversion", "b1", r#"{"base": 12}"#, &["b1", "0b1"], &["1"]); // 0b1 is b1 there: no prefix
    }

    #[test]
    fn fractions_must_be_reduced() {
        let right = ["2/3", " 2 / 3", r"$\frac{2}{3}$", r"\boxed{\dfrac{2}{3}}", r"\frac {2} {3}"];
        table(
            "fraction_simplification",
            "2/3",
            "{}",
            &right,
            &["4/6", "-2/3", "3/2", "0.667", r"\frac{2}{3", "2/3/1"],
        );
    }

    #[test]
    fn countdown_is_decided_by_value_and_by_the_numbers_used() {
        let extra = r#"{"numbers": [3, 7, 25, 7], "target": 107}"#;
        let right = ["(7 - 3) * 25 + 7", "7+25*(7-3)", "Answer: 7 + 25 * (7 - 3)", "-(-7) - 25*(3-7)"];
        let wrong =
            ["107", "100 + 7", "(7 - 3) * 25 + 7 + 0", "(7-3)*25", "7 + 25*(7-3) = 107", "7 + 25*(7-4)"];
        table("countdown", "", extra, &right, &wrong);
        let some = r#"{"numbers": [3, 7, 25, 7], "target": 100, "use_all": false}"#;
        table("countdown", "", some, &["(7-3)*25"], &["25*3 + 25", "25*4", "100"]);
        let halves = r#"{"numbers": [1, 3, 3], "target": 1}"#;
        table("countdown", "", halves, &["1/3*3", "3*(1/3)", "3 * 1 / 3"], &["3/1/3 + 0"]);
    }

    #[test]
    fn lists_are_compared_item_by_item() {
        let right = ["[-1.5, 2, 3]", "['-1.5', '2', '3.0']", r#"["-1.50","2","3"]"#];
        let wrong = [
            "-1.5, 2, 3",
            "[3, 2, -1.5]",
            "[-1.5, 2]",
            "[-1.5, 2, 3, 3]",
            "[-1.5, 2, 3.01]",
            "[[-1.5], 2, 3]",
        ];
        table("number_sorting", "[-1.5, 2, 3]", "{}", &right, &wrong);
    }

    #[test]
    fn factors_may_stand_in_any_order_and_as_powers() {
        let right = ["2 * 2 * 3", "3×2×2", "2^2 * 3", r"2**2 \times 3", "3 · 2^{2}"];
        let wrong = [
            "12",
            "4 * 3",
            "1 * 2 * 2 * 3",
            "2 * 3",
            "2^2^1 * 3",
            "2 2 3",
            "2^0 * 3",
            "2^99999999999 * 3",
            "*",
        ];
        table("prime_factorisation", "2 * 2 * 3", "{}", &right, &wrong);
    }

    #[test]
    fn an_empty_response_is_counted_apart_and_marks_may_be_demanded() {
        let prompt = Prompt::new("p", "?", "4").with_data_source("firebrick/gcd");
        let verdict = |config: TaskVerifierConfig, text| {
            config.build().unwrap().verify(&Sample::of_text(&prompt, text)).unwrap()
        };
        let none = Verdict::graded(0.0, None, "no_answer");
        assert_eq!(verdict(TaskVerifierConfig::default(), " \n"), none);
        let marked = TaskVerifierConfig { bare: false, ..Default::default() };
        assert_eq!(verdict(marked.clone(), "4"), none);
        assert_eq!(verdict(marked, "#### 4"), Verdict::graded(1.0, Some("4".into()), "gcd"));
    }

    #[test]
    fn what_is_no_fault_of_the_completion_is_unscored() {
        for (task, answer, extra) in [
            ("gcd", "four", "{}"),
            ("base_conversion", "ff", "{}"),
            ("base_conversion", "ff", r#"{"base": 10}"#),
            ("fraction_simplification", "4/6", "{}"),
            ("fraction_simplification", "1/0", "{}"),
            ("countdown", "", r#"{"numbers": [1, "2"], "target": 3}"#),
            ("countdown", "", r#"{"numbers": [1, 2]}"#),
            ("number_sorting", "1, 2", "{}"),
            ("prime_factorisation", "two", "{}"),
        ] {
            assert_eq!(reward(task, answer, extra, "4"), None, "{task} {answer}");
        }
        let prompt = Prompt::new("p", "?", "4").with_data_source("firebrick/program_synthesis");
        let reason = TaskVerifier::default().check_reference(&prompt).unwrap_err();
        assert!(reason.to_string().contains("`firebrick/program_synthesis`"), "{reason}");
        let verdict = TaskVerifier::default().verify(&Sample::of_text(&prompt, "4")).unwrap();
        assert_eq!(verdict, Verdict::Unscored(reason));
        let aborted = Sample::new(&prompt, "4", &[], FinishReason::Aborted);
        assert_eq!(
            TaskVerifier::default().verify(&aborted).unwrap(),
            Verdict::Unscored(UnscoredReason::Aborted)
        );
    }

    #[test]
    fn unusable_rewards_are_refused_by_name() {
        let error = |config: TaskVerifierConfig| refusal(&RewardConfig::Task(config));
        assert_eq!(
            error(TaskVerifierConfig { wrong_reward: 1.0, ..Default::default() }),
            "correct_reward = 1 must be above wrong_reward = 1"
        );
        assert_eq!(
            error(TaskVerifierConfig { correct_reward: f64::INFINITY, ..Default::default() }),
            "correct_reward = inf: a reward must be finite"
        );
    }
}

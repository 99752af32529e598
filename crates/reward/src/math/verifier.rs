//! The verifier of mathematical answers.

use firebrick_core::{FinishReason, Prompt, RewardVerifier, Sample, UnscoredReason, Verdict, VerifyError};

use super::compare::{Rules, compare_answers};
use super::config::{MathConfig, MathPreset};
use super::limits::{Budget, MAX_ANSWER_BYTES, MAX_STEPS};
use super::parser::parse;
use super::presets::{same_number, same_text};
use super::scalar::Rounding;
use super::tree::{Joint, Node};
use crate::extraction::{Candidate, ExtractionMethod, Reading, candidates, is_wordless, said};
use crate::normal_text::normal_text;

/// Outcome of grading one completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grade {
    /// Whether the answer is the reference.
    pub correct: bool,
    /// The answer as it stands in the completion; `None` if none was found.
    pub extracted: Option<String>,
    /// Name of the rule that decided: `no_answer` if there is no answer, `bad_reference` if the reference cannot be used,
    /// or the kind of comparison, such as `rational`, `polynomial`, `set` or `text`.
    pub rule: &'static str,
}

/// Rewards a response whose answer means the same as the reference.
///
/// * The answer and the reference are read by the same extractor; a reference may also be bare.
/// * Numbers are compared exactly, or to `precision` decimals where one is written with a decimal point; expressions as
///   rational functions with exact coefficients, or by their values at drawn points; sets without order, tuples and
///   intervals in order, matrices entry by entry, equations up to a factor, words without case.
/// * The reference's form counts in few places: a percentage accepts its number (`28\%` accepts 28 and 0.28), a name
///   accepts its value and a value its name (`5` and `x = 5`), an inequality accepts the set of its solutions, and the
///   set the inequality only with `allow_set_relation_comp`.
/// * A reference that says nothing leaves the completion unscored.
///
/// The verifier is pure and total. Its time is linear in the length of the response, and bounded for the comparison, by
/// construction: lengths, depths, exponents, digits and evaluations have limits, beyond which answers are equal only if
/// they are written alike.
///
/// ```
/// use firebrick_reward::MathConfig;
///
/// let verifier = MathConfig::default().build()?;
/// assert!(verifier.grade(r"\frac{1}{2}", r"So the answer is $\boxed{0.5}$.").correct);
/// assert!(verifier.compare("(x+1)^2", "x^2+2x+1").correct);
/// assert!(!verifier.compare("(x+1)^2", "x^2+1").correct);
/// # Ok::<(), firebrick_reward::RewardConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct MathVerifier {
    config: MathConfig,
    order: Vec<ExtractionMethod>,
}

/// An answer that was found: as written, and as mathematics if it is any.
struct Found {
    text: String,
    node: Option<Node>,
}

impl MathVerifier {
    pub(crate) fn new(config: MathConfig, order: Vec<ExtractionMethod>) -> Self {
        Self { config, order }
    }

    /// The settings.
    pub fn config(&self) -> &MathConfig {
        &self.config
    }

    /// Grades a completion: finds its answer and that of `gold`, and compares them.
    pub fn grade(&self, gold: &str, completion: &str) -> Grade {
        let Some(gold) = self.reference(gold) else {
            return Grade { correct: false, extracted: None, rule: "bad_reference" };
        };
        match self.answer(completion) {
            Some(pred) => self.judge(&gold, &pred),
            None => Grade { correct: false, extracted: None, rule: "no_answer" },
        }
    }

    /// Compares two bare answers, without looking for them in a text.
    pub fn compare(&self, gold: &str, pred: &str) -> Grade {
        let Some(gold) = bare(gold) else {
            return Grade { correct: false, extracted: None, rule: "bad_reference" };
        };
        match bare(pred) {
            Some(pred) => self.judge(&gold, &pred),
            None => Grade { correct: false, extracted: None, rule: "no_answer" },
        }
    }

    /// Checks that a reference says something that completions can be compared with.
    ///
    /// # Errors
    /// [`UnscoredReason::BadReference`] if it is empty or pure markup, or if it is prose of several lines, or too long,
    /// and states no answer.
    pub fn check_reference(&self, gold: &str) -> Result<(), UnscoredReason> {
        if self.reference(gold).is_some() {
            return Ok(());
        }
        let problem = if gold.trim().is_empty() {
            "is empty".to_owned()
        } else if gold.len() > MAX_ANSWER_BYTES {
            format!("has {} bytes and states no answer; the limit is {MAX_ANSWER_BYTES}", gold.len())
        } else {
            "states no answer: give the answer alone or in \\boxed{}".to_owned()
        };
        Err(UnscoredReason::BadReference(format!("the reference answer {problem}")))
    }

    /// The answer of a reference: bare mathematics as a whole, or what the extractor finds, or words.
    fn reference(&self, gold: &str) -> Option<Found> {
        let trimmed = gold.trim();
        let marked =
            ["\\boxed", "\\fbox", "$", "\\(", "\\[", "####"].iter().any(|mark| trimmed.contains(mark));
        if !marked && !trimmed.contains('\n') && is_wordless(trimmed) {
            if let Some(found) = self.first(trimmed, &[ExtractionMethod::Whole]) {
                return Some(found);
            }
            if let Some(found) = bare(trimmed) {
                return Some(found);
            }
        }
        if self.config.preset != MathPreset::MathVerify && !marked {
            // The order of these presets finds nothing in a bare reference.
            return self.answer(gold).or_else(|| short(trimmed).and_then(bare));
        }
        match self.answer(gold) {
            Some(found) => Some(found),
            None => short(trimmed).and_then(bare),
        }
    }

    /// The answer of a completion.
    fn answer(&self, completion: &str) -> Option<Found> {
        let found = self.first(completion, &self.order);
        if found.is_some() || self.config.preset != MathPreset::MathVerify || self.config.extraction.is_some()
        {
            return found;
        }
        // A response that is nothing but a word.
        let only = said(completion).trim().trim_matches('*');
        (only.len() <= 40 && !only.contains(char::is_whitespace)).then(|| bare(only)).flatten()
    }

    /// The first candidate that is mathematics, by the methods in order; if there is none, the first at all.
    fn first(&self, text: &str, order: &[ExtractionMethod]) -> Option<Found> {
        let said = said(text);
        let mut fallback: Option<Found> = None;
        let mut at = 0;
        while let Some(&method) = order.get(at) {
            let mut found = candidates(said, method);
            at += 1;
            // Formulas and plain numbers next to each other in the order are one pool: the last one counts.
            if method == ExtractionMethod::Latex && order.get(at) == Some(&ExtractionMethod::Expression) {
                found.extend(candidates(said, ExtractionMethod::Expression));
                found.sort_by_key(|candidate| std::cmp::Reverse(candidate.end));
                at += 1;
            }
            for candidate in found {
                let from_hashes =
                    method == ExtractionMethod::Hashes && self.config.preset == MathPreset::MathVerify;
                match read(&candidate, from_hashes) {
                    Some(found) if found.node.is_some() => return Some(found),
                    Some(found) => fallback = fallback.or(Some(found)),
                    None => {}
                }
            }
        }
        fallback
    }

    fn judge(&self, gold: &Found, pred: &Found) -> Grade {
        let (correct, rule) = self.equal(gold, pred);
        Grade { correct, extracted: Some(pred.text.clone()), rule }
    }

    fn equal(&self, gold: &Found, pred: &Found) -> (bool, &'static str) {
        match self.config.preset {
            MathPreset::Gsm8k => return (same_number(&gold.text, &pred.text), "gsm8k"),
            MathPreset::Dapo => return (same_text(&gold.text, &pred.text), "dapo"),
            MathPreset::MathVerify | MathPreset::Prime => {}
        }
        self.equal_within(gold, pred, &Budget::new(MAX_STEPS))
    }

    fn equal_within(&self, gold: &Found, pred: &Found, budget: &Budget) -> (bool, &'static str) {
        let rules = Rules {
            rounding: Rounding {
                places: self.config.precision.unwrap_or(6),
                lenient_percent: self.config.preset == MathPreset::Prime,
            },
            strict: self.config.strict.unwrap_or(true),
            set_relation: self.config.allow_set_relation_comp.unwrap_or(false),
        };
        if same_word(&gold.text, &pred.text) {
            return (true, "text");
        }
        match (&gold.node, &pred.node) {
            (Some(gold), Some(pred)) => compare_answers(gold, pred, &rules, budget),
            _ => {
                let (gold, pred) = (written(&gold.text), written(&pred.text));
                (!gold.is_empty() && gold == pred, "text")
            }
        }
    }
}

/// Whether both are the same word but for case. One or two letters are names, whose case may matter.
fn same_word(a: &str, b: &str) -> bool {
    let (a, b) = (normal_text(a), normal_text(b));
    a.len() > 2 && a.chars().all(|c| c.is_ascii_alphabetic()) && a.eq_ignore_ascii_case(&b)
}

/// The text of an answer without dress, spaces and case.
fn written(text: &str) -> String {
    let text = normal_text(text);
    text.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase).collect()
}

/// Whether a text holds a letter or digit besides the names of commands.
fn holds_content(text: &str) -> bool {
    let mut in_command = false;
    text.chars().any(|c| {
        in_command = c == '\\' || (in_command && c.is_ascii_alphabetic());
        !in_command && c.is_alphanumeric()
    })
}

/// An answer that stands alone; `None` if nothing is left of it without markup.
fn bare(text: &str) -> Option<Found> {
    if written(text).is_empty() {
        return None;
    }
    let node = parse(text).filter(says_something);
    (node.is_some() || holds_content(text)).then(|| Found { text: text.trim().to_owned(), node })
}

/// A text short enough to be an answer in words.
fn short(text: &str) -> Option<&str> {
    (text.len() <= MAX_ANSWER_BYTES && !text.contains('\n')).then_some(text)
}

/// Whether a tree holds anything: the empty set does, empty parentheses do not.
fn says_something(node: &Node) -> bool {
    match node {
        Node::Symbol(name) => name.chars().any(|c| !c.is_whitespace() && c != '\\'),
        _ => true,
    }
}

/// What joins formulas that stand one after another in `text`.
fn joint_of(text: &str) -> Joint {
    let said =
        |word: &str| text.split(|c: char| !c.is_alphabetic()).any(|other| other.eq_ignore_ascii_case(word));
    match (said("and"), said("or")) {
        (true, _) => Joint::And,
        (false, true) => Joint::Or,
        (false, false) => Joint::Unsaid,
    }
}

/// Reads a candidate. With `numeric`, words are no answer: a heading may begin with the mark.
fn read(candidate: &Candidate<'_>, numeric: bool) -> Option<Found> {
    let node = match &candidate.reading {
        Reading::Number(digits) => parse(digits),
        Reading::Pieces(pieces) => match pieces.as_slice() {
            [piece] => parse(piece),
            pieces => pieces
                .iter()
                .map(|piece| parse(piece))
                .collect::<Option<Vec<_>>>()
                .map(|items| Node::List { items, joint: joint_of(candidate.span) }),
        },
        Reading::Words(_) if numeric => return None,
        Reading::Words(words) if is_wordless(words) => parse(words),
        Reading::Words(words) => Some(Node::symbol(*words)),
    };
    let node = node.filter(says_something);
    let node = match node {
        Some(inner) if candidate.percent => Some(Node::Percent(Box::new(inner))),
        other => other,
    };
    if node.is_none() && !holds_content(candidate.span) {
        return None;
    }
    Some(Found { text: candidate.span.to_owned(), node })
}

impl RewardVerifier for MathVerifier {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        if sample.finish_reason == FinishReason::Aborted {
            return Ok(Verdict::Unscored(UnscoredReason::Aborted));
        }
        if let Err(reason) = self.check_reference(&sample.prompt.answer) {
            return Ok(Verdict::Unscored(reason));
        }
        let grade = self.grade(&sample.prompt.answer, sample.text);
        let (correct, wrong) = self.config.rewards();
        Ok(Verdict::graded(if grade.correct { correct } else { wrong }, grade.extracted, grade.rule))
    }

    fn check_reference(&self, prompt: &Prompt) -> Result<(), UnscoredReason> {
        self.check_reference(&prompt.answer)
    }

    fn name(&self) -> &str {
        self.config.preset.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::limits::MAX_NODES;

    fn verifier() -> MathVerifier {
        MathConfig::default().build().unwrap()
    }

    fn verdict(config: MathConfig, response: &str, reference: &str) -> Verdict {
        let prompt = Prompt::new("p", "?", reference);
        config.build().unwrap().verify(&Sample::of_text(&prompt, response)).unwrap()
    }

    fn reward(response: &str, reference: &str) -> Option<f64> {
        verdict(MathConfig::default(), response, reference).reward()
    }

    /// slime #543, ms-swift #10147, tinker-cookbook #903, OpenRLHF #1285.
    #[test]
    fn boxes_are_graded_by_the_last_one_whole() {
        assert_eq!(reward(r"Answer: \boxed{5}", "5"), Some(1.0));
        assert_eq!(reward(r"\boxed{\frac{1}{2}}", "1/3"), Some(0.0));
        assert_eq!(reward(r"\boxed{\frac{1}{2}}", "1/2"), Some(1.0));
        assert_eq!(reward(r"First \boxed{5}, but that is wrong, so \boxed{7}", "7"), Some(1.0));
        assert_eq!(reward(r"First \boxed{7}, but that is wrong, so \boxed{5}", "7"), Some(0.0));
        assert_eq!(reward(r"\fbox{42}", "42"), Some(1.0));
    }

    /// verl #7274, open-instruct #1530, opencompass #2343.
    #[test]
    fn position_sign_and_currency_are_graded_right() {
        assert_eq!(reward(&format!("#### 42\n{}", "y".repeat(500)), "42"), Some(1.0));
        assert_eq!(reward("#### -3", "3"), Some(0.0));
        assert_eq!(reward("#### -3", "-3"), Some(1.0));
        assert_eq!(reward("Answer: $200,000", "200000"), Some(1.0));
    }

    #[test]
    fn no_answer_is_wrong_under_a_rule_of_its_own() {
        for response in ["", "I give up and go home.", r"\boxed{}", r"<think>\boxed{4}</think>", r"$ $"] {
            let verdict = verdict(MathConfig::default(), response, "4");
            assert_eq!(verdict, Verdict::graded(0.0, None, "no_answer"), "{response}");
        }
        let wrong = verdict(MathConfig::default(), r"\boxed{5}", "4");
        assert_eq!(wrong, Verdict::graded(0.0, Some("5".into()), "rational"));
    }

    #[test]
    fn a_reference_that_says_nothing_leaves_the_completion_unscored() {
        for reference in ["", "  ", "$$", r"\left\right", "...", "first\nsecond"] {
            let verdict = verdict(MathConfig::default(), r"\boxed{4}", reference);
            let Verdict::Unscored(UnscoredReason::BadReference(message)) = &verdict else {
                panic!("{reference:?}: {verdict:?}");
            };
            assert!(message.starts_with("the reference answer "), "{message}");
            assert_eq!(verifier().grade(reference, r"\boxed{4}").rule, "bad_reference");
        }
        let prompt = Prompt::new("p", "?", "4");
        let aborted = Sample::new(&prompt, r"\boxed{4}", &[], FinishReason::Aborted);
        assert_eq!(verifier().verify(&aborted).unwrap(), Verdict::Unscored(UnscoredReason::Aborted));
    }

    #[test]
    fn presets_grade_as_the_graders_they_are_named_for() {
        let grade = |preset, response: &str, reference: &str| {
            verdict(MathConfig::preset(preset), response, reference).reward()
        };
        let long = format!("It costs $1,250.\n#### 1,250\n{}", "and so on ".repeat(100));
        assert_eq!(grade(MathPreset::Gsm8k, &long, "work\n#### 1250"), Some(1.0));
        assert_eq!(grade(MathPreset::Gsm8k, "so 17 and then 18.", "18"), Some(1.0));
        assert_eq!(grade(MathPreset::Gsm8k, "so 18 and then 17.", "18"), Some(0.0));
        assert_eq!(grade(MathPreset::Dapo, "Answer: 34", "34"), Some(1.0));
        assert_eq!(grade(MathPreset::Dapo, r"so \boxed{\frac12}", r"\dfrac{1}{2}"), Some(1.0));
        assert_eq!(grade(MathPreset::Dapo, "Answer: 0.5", r"\frac12"), Some(-1.0));
        assert_eq!(grade(MathPreset::Dapo, "no idea", "34"), Some(-1.0));
        assert_eq!(grade(MathPreset::Prime, r"\boxed{0.28}", "28"), Some(1.0));
        assert_eq!(grade(MathPreset::Prime, r"\boxed{(x+1)^2}", "x^2+2x+1"), Some(1.0));
        assert_eq!(grade(MathPreset::Prime, r"\boxed{(2,1)}", "(1,2)"), Some(0.0));
    }

    /// Lengths, depths, powers and factorials beyond all limits: equal to themselves at most, and decided in few steps.
    #[test]
    fn hostile_answers_are_decided_within_the_budget() {
        let n = 100_000;
        let hostile = [
            "(".repeat(n),
            "{".repeat(n),
            r"\frac".repeat(n),
            format!("{}1{}", "(".repeat(n), ")".repeat(n)),
            format!("{}1{}", "(".repeat(2_000), ")".repeat(2_000)),
            format!("{}x{}", r"\sqrt{".repeat(1_000), "}".repeat(1_000)),
            "-".repeat(16_000) + "1",
            "|".repeat(5_000),
            r"9^{9^{9^{9}}}".into(),
            "9^9^9^9".into(),
            r"10^{10^{10}}".into(),
            "1e999999999".into(),
            "100000!".into(),
            "5!!!!!!!!!".into(),
            r"\binom{10^9}{5\cdot10^8}".into(),
            r"\sum_{k=1}^{1000}\sum_{j=1}^{1000}\sum_{i=1}^{1000} ijk".into(),
            r"(a+b+c+d+e+f+g)^{40}".into(),
            format!("({})^{{40}}", (0..300).map(|k| format!("x_{{{k}}}")).collect::<Vec<_>>().join("+")),
            format!("0.{}1", "0".repeat(5_000)),
            "9".repeat(15_000),
            r"\frac{1}{".repeat(30) + "x+" + &"}".repeat(30),
            vec![r"\frac{12345678901234567890}{98765432109876543211}"; 200].join("+"),
            vec!["x"; 8_000].join(","),
            r"\pm 1 ".repeat(1_000),
            "f(x".repeat(2_000),
            "f(x".repeat(38) + &")".repeat(38),
            "P(x".repeat(38),
        ];
        let verifier = verifier();
        for (at, text) in hostile.iter().enumerate() {
            for other in ["1", "x", text] {
                let (Some(a), Some(b)) = (bare(text), bare(other)) else { continue };
                let budget = Budget::new(MAX_STEPS);
                let (equal, _) = verifier.equal_within(&a, &b, &budget);
                assert_eq!(equal, other == text, "{at}: {other:.20}");
                assert!(budget.spent() <= MAX_STEPS);
            }
            let graded = verifier.grade("1", &format!(r"\boxed{{{text}}}"));
            assert!(!graded.correct, "{at}");
        }
        assert!(parse(&"(".repeat(n)).is_none() && parse(&"x+".repeat(MAX_NODES)).is_none());
    }
}

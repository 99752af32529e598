//! Finding the answer in a response.

mod boxes;
mod candidates;
mod environments;
mod marks;
mod plain;

use serde::{Deserialize, Serialize};

use boxes::last_box;
pub(crate) use candidates::{Candidate, Reading, candidates, is_wordless};
use marks::{answer_marks, hash_marks, last_marked};

/// Where an answer may stand in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExtractionMethod {
    /// In a `\boxed{…}` or `\fbox{…}`: the last one that is closed and not empty. Braces may nest, and `\{`
    /// and `\}` do not count; of boxes within boxes the one that opens last is taken. `\\boxed{…}`, which
    /// comes of escaping twice, is read as a box.
    Boxed,
    /// After `####`, up to the end of the line: the last such mark with something behind it.
    Hashes,
    /// After `Answer:` in any case, up to the end of the line: the last such mark with something behind it.
    AnswerLine,
    /// Between "final answer is" and "I hope", as in "The final answer is $5$. I hope it is correct.": the last such.
    ClosingStatement,
    /// After "final answer … is", in any case: formulas or a number that follow at once.
    FinalAnswer,
    /// After the word "answer", in any case: formulas that begin within 60 bytes, or else a number or a word.
    AnswerWord,
    /// The whole response, if it is one line of mathematics without prose.
    Whole,
    /// In `$…$`, `$$…$$`, `\(…\)` or `\[…\]`: the last formula, with those that a comma, "and" or "or" joins to it.
    Latex,
    /// A number, or arithmetic with numbers, in plain text: the last one.
    Expression,
}

/// How answers are extracted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExtractionSpec {
    /// The methods to try, in order; the first that finds an answer decides. Default: box, hashes, answer
    /// line.
    pub order: Vec<ExtractionMethod>,
}

impl Default for ExtractionSpec {
    fn default() -> Self {
        Self { order: vec![ExtractionMethod::Boxed, ExtractionMethod::Hashes, ExtractionMethod::AnswerLine] }
    }
}

/// An answer as it stands in the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extracted<'a> {
    /// The answer, without surrounding white space; never empty.
    pub text: &'a str,
    /// The method that found it.
    pub method: ExtractionMethod,
}

/// Returns the answer of a response, or `None` if it states none in a form that `spec` looks for.
///
/// Only what follows the last `</think>` counts, where there is one: a reasoner answers after it has thought.
/// All of that is searched, not a window at its end. An empty or unterminated box is no answer. Emphasis
/// (`*`) around what follows a mark, and full stops behind it, are left out; if it holds a box, the box's
/// content is the answer under every method.
///
/// Takes time linear in the length of the response, on any input.
///
/// ```
/// use firebrick_reward::{ExtractionSpec, extract_answer};
///
/// let spec = ExtractionSpec::default();
/// let found = extract_answer(r"So \boxed{5}, no: \boxed{\frac{1}{2}}.", &spec).map(|answer| answer.text);
/// assert_eq!(found, Some(r"\frac{1}{2}"));
/// assert_eq!(extract_answer("I do not know.", &spec), None);
/// ```
pub fn extract_answer<'a>(response: &'a str, spec: &ExtractionSpec) -> Option<Extracted<'a>> {
    let said = said(response);
    spec.order.iter().find_map(|&method| {
        let text = match method {
            ExtractionMethod::Boxed => last_box(said),
            ExtractionMethod::Hashes => last_marked(said, hash_marks),
            ExtractionMethod::AnswerLine => last_marked(said, answer_marks),
            other => candidates(said, other).into_iter().next().map(|candidate| candidate.span),
        };
        text.map(|text| Extracted { text, method })
    })
}

/// What follows the thought.
pub(crate) fn said(response: &str) -> &str {
    match response.rfind(END_OF_THOUGHT) {
        Some(at) => &response[at + END_OF_THOUGHT.len()..],
        None => response,
    }
}

const END_OF_THOUGHT: &str = "</think>";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(response: &str) -> Option<&str> {
        extract_answer(response, &ExtractionSpec::default()).map(|answer| answer.text)
    }

    fn found_by(method: ExtractionMethod, response: &str) -> Option<&str> {
        extract_answer(response, &ExtractionSpec { order: vec![method] }).map(|answer| answer.text)
    }

    #[test]
    fn the_last_closed_box_wins_and_its_braces_may_nest() {
        assert_eq!(found(r"\boxed{5} then \boxed{7}"), Some("7"));
        assert_eq!(found(r"\boxed{\frac{1}{2}}"), Some(r"\frac{1}{2}"));
        assert_eq!(found(r"\boxed{\frac{a}{b_{n+1}}} and } or {"), Some(r"\frac{a}{b_{n+1}}"));
        assert_eq!(found(r"\fbox{42}"), Some("42"));
        assert_eq!(found(r"\boxed {42}"), Some("42"));
        assert_eq!(found(r"{ stray \boxed{42}"), Some("42"));
        assert_eq!(found(r"\boxed{\{1, 2\}}"), Some(r"\{1, 2\}"));
        assert_eq!(found(r"\boxed{\left\{ x \right.}"), Some(r"\left\{ x \right."));
        assert_eq!(found(r"\boxed{1 \\}"), Some(r"1 \\"));
    }

    #[test]
    fn a_doubled_box_is_opened_twice() {
        assert_eq!(found(r"\boxed{\boxed{5}}"), Some("5"));
        assert_eq!(found(r"\\boxed{004}"), Some("004"));
        assert_eq!(found_by(ExtractionMethod::AnswerLine, r"Answer: \boxed{5}"), Some("5"));
        assert_eq!(found_by(ExtractionMethod::Hashes, r"#### $\boxed{5}$"), Some("5"));
    }

    #[test]
    fn an_empty_or_unterminated_box_is_no_answer() {
        assert_eq!(found(r"\boxed{}"), None);
        assert_eq!(found(r"\boxed{ }"), None);
        assert_eq!(found(r"\boxed{5"), None);
        assert_eq!(found(r"\boxed{\frac{1}{2}"), None);
        assert_eq!(found(r"\boxed"), None);
        assert_eq!(found(r"\boxed{7} hence \boxed{"), Some("7"));
        assert_eq!(found("\\boxed{}\n#### 3"), Some("3"));
        assert_eq!(found("\\boxed{5\nAnswer: 4"), Some("4"));
    }

    #[test]
    fn the_last_hash_mark_with_something_behind_it_wins() {
        assert_eq!(found("#### 1\n#### -3\n####\n"), Some("-3"));
        assert_eq!(found("it is #### 42\r\nbye"), Some("42"));
        assert_eq!(found("##### 5"), None);
        assert_eq!(found("### 5"), None);
    }

    #[test]
    fn the_answer_line_is_found_in_any_case_and_dress() {
        assert_eq!(found("Answer: 3\nanswer: 4\n"), Some("4"));
        assert_eq!(found("The FINAL ANSWER : 5."), Some("5"));
        assert_eq!(found("**Answer:** 6"), Some("6"));
        assert_eq!(found("**Answer**: **6**"), Some("6"));
        assert_eq!(found("Answer: 1 answer: 2"), Some("2"));
        assert_eq!(found("Answer: 1\nAnswer: "), Some("1"));
        assert_eq!(found("reanswer: 1"), None);
        assert_eq!(found("the answer is 5"), None);
    }

    #[test]
    fn the_order_of_the_methods_is_the_callers() {
        let response = "Answer: 1\n#### 2\n\\boxed{3}";
        assert_eq!(found(response), Some("3"));
        let spec = ExtractionSpec { order: vec![ExtractionMethod::AnswerLine, ExtractionMethod::Boxed] };
        let answer = extract_answer(response, &spec);
        assert_eq!(answer, Some(Extracted { text: "1", method: ExtractionMethod::AnswerLine }));
        assert_eq!(extract_answer(response, &ExtractionSpec { order: vec![] }), None);
    }

    #[test]
    fn only_what_follows_the_thought_counts() {
        assert_eq!(found(r"<think>\boxed{1}</think> so \boxed{2}"), Some("2"));
        assert_eq!(found(r"<think>a</think>\boxed{1}</think> Answer: 2"), Some("2"));
        assert_eq!(found(r"<think>\boxed{1}</think> so it is"), None);
        assert_eq!(found(r"<think>\boxed{1}"), Some("1"));
    }

    #[test]
    fn an_answer_far_from_the_end_is_found() {
        assert_eq!(found(&format!("#### 42\n{}", "x".repeat(500))), Some("42"));
        assert_eq!(found(&format!("\\boxed{{42}}{}", " and so on".repeat(1000))), Some("42"));
    }

    /// Anything worse than linear would take minutes here.
    #[test]
    fn hostile_text_of_a_megabyte_is_read_once() {
        let n = 1_000_000;
        assert_eq!(found(&"{".repeat(n)), None);
        assert_eq!(found(&"\\".repeat(n)), None);
        assert_eq!(found(&format!("\\boxed{{1}}{}", "\\boxed{".repeat(n / 7))), Some("1"));
        assert_eq!(found(&format!("\\boxed{}", " ".repeat(n))), None);
        assert_eq!(found(&"answer ".repeat(n / 7)), None);
        assert_eq!(found(&"answer:".repeat(n / 7)).map(|text| text.len()), Some(7));
        assert_eq!(found(&"#### ".repeat(n / 5)), Some("####"));
    }

    #[test]
    fn a_hundred_thousand_nested_braces_overflow_no_stack() {
        let depth = 100_000;
        let inner = format!("{}1{}", "{".repeat(depth), "}".repeat(depth));
        assert_eq!(found(&format!("\\boxed{{{inner}}}")), Some(inner.as_str()));
        let boxes = format!("{}1{}", "\\boxed{".repeat(depth), "}".repeat(depth));
        assert_eq!(found(&boxes), Some("1"));
    }

    proptest! {
        #[test]
        fn any_text_yields_a_trimmed_piece_of_itself_or_nothing(text in any::<String>()) {
            if let Some(answer) = extract_answer(&text, &ExtractionSpec::default()) {
                prop_assert!(!answer.text.is_empty() && text.contains(answer.text));
            }
        }

        #[test]
        fn any_mix_of_marks_yields_a_trimmed_piece_of_itself_or_nothing(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "\\boxed{", "\\fbox{", "{", "}", "\\", "####",
                     "Answer:", "</think>", "\n", " ", "5", "é", "*", ".",
                ]),
                0..40,
            ),
        ) {
            let text = parts.concat();
            if let Some(answer) = extract_answer(&text, &ExtractionSpec::default()) {
                prop_assert!(!answer.text.is_empty() && text.contains(answer.text));
                prop_assert_eq!(answer.text.trim(), answer.text);
            }
        }
    }
}

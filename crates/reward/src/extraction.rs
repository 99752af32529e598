//! Finding the answer in a response.

use serde::{Deserialize, Serialize};

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
    let said = match response.rfind(END_OF_THOUGHT) {
        Some(at) => &response[at + END_OF_THOUGHT.len()..],
        None => response,
    };
    spec.order.iter().find_map(|&method| {
        let text = match method {
            ExtractionMethod::Boxed => last_box(said),
            ExtractionMethod::Hashes => last_marked(said, hash_marks),
            ExtractionMethod::AnswerLine => last_marked(said, answer_marks),
        };
        text.map(|text| Extracted { text, method })
    })
}

const END_OF_THOUGHT: &str = "</think>";

/// Content of the closed, non-empty box that opens last.
fn last_box(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let mut open: Vec<Brace> = Vec::new();
    let mut last: Option<(usize, usize)> = None;
    let mut at = 0;
    while at < bytes.len() {
        if let Some(length) = box_opening(&text[at..]) {
            at += length;
            open.push(Brace::Box(at));
            continue;
        }
        match bytes[at] {
            b'\\' => at += escape_length(&text[at..]),
            b'{' => {
                open.push(Brace::Plain);
                at += 1;
            }
            b'}' => {
                if let Some(Brace::Box(start)) = open.pop() {
                    let is_later = last.is_none_or(|(found, _)| start > found);
                    if is_later && !text[start..at].trim().is_empty() {
                        last = Some((start, at));
                    }
                }
                at += 1;
            }
            _ => at += next_char(text, at),
        }
    }
    last.map(|(start, end)| text[start..end].trim())
}

/// An open brace.
enum Brace {
    /// Of a box whose content starts here.
    Box(usize),
    /// Any other.
    Plain,
}

/// Length of the command and brace that open a box, if `text` starts with one.
fn box_opening(text: &str) -> Option<usize> {
    let name = [r"\boxed", r"\fbox"].into_iter().find(|name| text.starts_with(name))?;
    let argument = text[name.len()..].trim_start_matches(' ');
    argument.starts_with('{').then(|| text.len() - argument.len() + 1)
}

/// Length of what a backslash starts: an escaped brace or backslash is skipped with it, unless the second
/// backslash opens a box.
fn escape_length(text: &str) -> usize {
    match text.as_bytes().get(1) {
        Some(b'{' | b'}') => 2,
        Some(b'\\') if box_opening(&text[1..]).is_none() => 2,
        _ => 1,
    }
}

fn next_char(text: &str, at: usize) -> usize {
    text[at..].chars().next().map_or(1, char::len_utf8)
}

/// What follows the last mark that has something behind it on its line. `marks` lists where the marks of a
/// line end.
fn last_marked(text: &str, marks: fn(&str) -> Vec<usize>) -> Option<&str> {
    text.lines().rev().find_map(|line| {
        marks(line).into_iter().rev().find_map(|end| {
            let stated = bare(&line[end..]);
            let stated = last_box(stated).unwrap_or(stated);
            (!stated.is_empty()).then_some(stated)
        })
    })
}

/// `text` without white space and emphasis around it and without full stops behind it.
fn bare(text: &str) -> &str {
    let ornament = |c: char| c.is_whitespace() || c == '*';
    text.trim_start_matches(ornament).trim_end_matches(|c| ornament(c) || c == '.')
}

/// Ends of the runs of exactly four `#`.
fn hash_marks(line: &str) -> Vec<usize> {
    let bytes = line.as_bytes();
    let is_hash = |at: usize| bytes.get(at) == Some(&b'#');
    (0..bytes.len())
        .filter(|&at| is_hash(at) && (at == 0 || !is_hash(at - 1)))
        .filter(|&at| (at..at + 4).all(is_hash) && !is_hash(at + 4))
        .map(|at| at + 4)
        .collect()
}

/// Ends of the occurrences of the word `answer` with a colon; emphasis may stand between the two.
fn answer_marks(line: &str) -> Vec<usize> {
    const WORD: &[u8] = b"answer";
    let bytes = line.as_bytes();
    let mut ends = Vec::new();
    for (at, window) in bytes.windows(WORD.len()).enumerate() {
        let inside_a_word = at > 0 && bytes[at - 1].is_ascii_alphanumeric();
        if inside_a_word || !window.eq_ignore_ascii_case(WORD) {
            continue;
        }
        let mut end = at + WORD.len();
        while matches!(bytes.get(end), Some(b' ' | b'\t' | b'*')) {
            end += 1;
        }
        if bytes.get(end) == Some(&b':') {
            ends.push(end + 1);
        }
    }
    ends
}

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

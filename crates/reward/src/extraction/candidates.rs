//! What may be the answer, by each method, the likeliest first.

use super::ExtractionMethod;
use super::boxes::{boxes, last_group};
use super::environments::{Formulas, formulas, percent_after};
use super::marks::{answer_marks, bare, hash_marks};
use super::plain::{Plain, leading, plain, whole_number};

/// Most candidates of one method.
const MOST: usize = 6;
/// How far behind the word "answer" a formula may begin, in bytes.
const NEAR: usize = 60;
/// How far behind "final answer" its "is" may stand, in bytes.
const NEAR_IS: usize = 100;
/// Longest statement of an answer in words, in bytes.
const MOST_WORDS: usize = 80;

/// Something that may be the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate<'a> {
    /// From its first to its last byte, as it stands in the response.
    pub(crate) span: &'a str,
    pub(crate) reading: Reading<'a>,
    /// Whether a percent sign or word stands behind it.
    pub(crate) percent: bool,
    /// Where it ends in the response.
    pub(crate) end: usize,
}

/// How a candidate is to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reading<'a> {
    /// LaTeX or plain mathematics; several pieces are the items of one list.
    Pieces(Vec<&'a str>),
    /// A number in plain digits.
    Number(String),
    /// Words, unless they are mathematics.
    Words(&'a str),
}

/// The candidates of one method. Takes time linear in the length of `said`.
pub(crate) fn candidates(said: &str, method: ExtractionMethod) -> Vec<Candidate<'_>> {
    match method {
        ExtractionMethod::Boxed => boxed(said).into_iter().collect(),
        ExtractionMethod::Hashes => marked(said, hash_marks),
        ExtractionMethod::AnswerLine => marked(said, answer_marks),
        ExtractionMethod::ClosingStatement => closing(said),
        ExtractionMethod::FinalAnswer => final_answer(said),
        ExtractionMethod::AnswerWord => answer_word(said),
        ExtractionMethod::Whole => whole(said).into_iter().collect(),
        ExtractionMethod::Latex => {
            formulas(said).into_iter().rev().take(MOST).map(|found| of_formulas(said, 0, &found)).collect()
        }
        ExtractionMethod::Expression => {
            plain(said).into_iter().rev().take(MOST).map(|found| of_plain(said, 0, &found)).collect()
        }
    }
}

fn boxed(said: &str) -> Option<Candidate<'_>> {
    let group = last_group(said);
    let (first, last) = (group.first()?, group.last()?);
    let behind = &said[last.end..];
    let closed = behind.trim_start_matches(['$', ')', '\\', ']', ' ', '}']);
    let percent =
        percent_after(&behind[behind.len() - closed.len()..]).is_some() || behind.starts_with("\\%");
    let contents: Vec<&str> = group.iter().map(|found| found.content).collect();
    let span = if contents.len() == 1 { last.content } else { &said[first.start..last.end] };
    Some(Candidate { span, reading: Reading::Pieces(contents), percent, end: last.end })
}

/// Formulas; where they hold boxes, these are the answer.
fn of_formulas<'a>(text: &'a str, offset: usize, found: &Formulas<'a>) -> Candidate<'a> {
    let mut pieces = Vec::new();
    for content in &found.contents {
        let inner = boxes(content);
        if inner.is_empty() {
            pieces.push(content.trim());
        } else {
            pieces.extend(inner.into_iter().map(|found| found.content));
        }
    }
    let span = match pieces.as_slice() {
        [piece] => piece,
        _ => &text[found.start..found.end],
    };
    Candidate { span, reading: Reading::Pieces(pieces), percent: found.percent, end: offset + found.end }
}

fn of_plain<'a>(text: &'a str, offset: usize, found: &Plain<'a>) -> Candidate<'a> {
    let reading = match &found.number {
        Some(number) => Reading::Number(number.clone()),
        None => Reading::Pieces(vec![found.text]),
    };
    Candidate {
        span: text[found.start..found.end].trim_end(),
        reading,
        percent: found.percent,
        end: offset + found.end,
    }
}

fn of_words(text: &str, offset: usize) -> Option<Candidate<'_>> {
    let words = bare(text);
    let fits = !words.is_empty() && words.len() <= MOST_WORDS;
    fits.then(|| Candidate {
        span: words,
        reading: Reading::Words(words),
        percent: false,
        end: offset + text.len(),
    })
}

/// What a line states: a formula near its start, or what follows its last equals sign, or a number, or words.
fn stated(text: &str, offset: usize) -> Option<Candidate<'_>> {
    let near = formulas(text).into_iter().next().filter(|found| found.start <= NEAR);
    if let Some(found) = near {
        return Some(of_formulas(text, offset, &found));
    }
    if is_wordless(bare(text)) {
        let words = bare(text);
        if let Some(number) = whole_number(words) {
            return Some(of_plain(words, offset, &number));
        }
        return Some(Candidate {
            span: words,
            reading: Reading::Pieces(vec![words]),
            percent: false,
            end: offset + text.len(),
        });
    }
    let value = text.rfind('=').map_or(text, |at| &text[at..]);
    match plain(value).into_iter().next().filter(|found| found.start <= NEAR) {
        Some(found) => Some(of_plain(value, offset, &found)),
        None => of_words(text, offset),
    }
}

/// Statements behind marks, the last mark first. One whose line ends behind it marks the next line.
fn marked(said: &str, marks: fn(&str) -> Vec<usize>) -> Vec<Candidate<'_>> {
    const MOST_STATED: usize = 2_000;
    let mut found = Vec::new();
    let mut examined = 0;
    let mut next: Option<&str> = None;
    let mut offset = said.len();
    for line in said.split('\n').rev() {
        offset = offset.saturating_sub(line.len());
        for end in marks(line).into_iter().rev() {
            let rest = &line[end..];
            let candidate = match (bare(rest).is_empty(), next) {
                (false, _) => stated(&rest[..floor(rest, MOST_STATED)], offset + end),
                (true, Some(next)) => stated(&next[..floor(next, MOST_STATED)], offset + line.len()),
                (true, None) => None,
            };
            found.extend(candidate);
            examined += 1;
            if examined >= MOST {
                return found;
            }
        }
        if !bare(line).is_empty() {
            next = Some(line);
        }
        offset = offset.saturating_sub(1);
    }
    found
}

/// The last places where `phrase`, in lower case, stands in any case, from the right.
fn places<'a>(lower: &'a str, phrase: &'a str) -> impl Iterator<Item = usize> + 'a {
    lower.rmatch_indices(phrase).map(move |(at, _)| at + phrase.len()).take(MOST)
}

fn closing(said: &str) -> Vec<Candidate<'_>> {
    const MOST_CLOSING: usize = 600;
    let lower = said.to_ascii_lowercase();
    let places: Vec<usize> = places(&lower, "final answer is").collect();
    places
        .into_iter()
        .filter_map(|start| {
            let window = floor(said, start + MOST_CLOSING);
            let length = lower[start..window].find("i hope")?;
            let text = said[start..start + length].trim_start_matches([':', ' ', '*']).trim_end();
            let text = text.trim_end_matches('.');
            if text.is_empty() || text.contains('\n') && !text.contains("$$") && !text.contains("\\[") {
                return None;
            }
            if let Some(found) = formulas(text).into_iter().next().filter(|found| found.start == 0) {
                return Some(of_formulas(text, start, &found));
            }
            if let Some(number) = whole_number(text) {
                return Some(of_plain(text, start, &number));
            }
            boxes(text).pop().map_or_else(
                || {
                    Some(Candidate {
                        span: text,
                        reading: Reading::Words(text),
                        percent: false,
                        end: start + length,
                    })
                },
                |_| None,
            )
        })
        .collect()
}

fn final_answer(said: &str) -> Vec<Candidate<'_>> {
    let lower = said.to_ascii_lowercase();
    let places: Vec<usize> = places(&lower, "final answer").collect();
    places
        .into_iter()
        .filter_map(|start| {
            let window = floor(said, start + NEAR_IS);
            lower[start..window].match_indices("is").find_map(|(at, _)| {
                let at = start + at;
                if !lower[..at].ends_with(char::is_whitespace) {
                    return None;
                }
                let end = floor(said, at + 2 + 2_000);
                let text = said[at + 2..end].trim_start_matches([':', ' ', '*', '\n']);
                let offset = end - text.len();
                if let Some(found) = first_formula(text).filter(|found| found.start == 0) {
                    return Some(of_formulas(text, offset, &found));
                }
                let follows_a_letter = said[at + 2..].starts_with(|c: char| c.is_alphanumeric());
                leading(text).filter(|_| !follows_a_letter).map(|found| of_plain(text, offset, &found))
            })
        })
        .collect()
}

fn first_formula(text: &str) -> Option<Formulas<'_>> {
    text.starts_with(['$', '\\']).then(|| formulas(text).into_iter().next()).flatten()
}

fn answer_word(said: &str) -> Vec<Candidate<'_>> {
    let lower = said.to_ascii_lowercase();
    let places: Vec<usize> = places(&lower, "answer").collect();
    places
        .into_iter()
        .filter_map(|start| {
            let end = floor(said, start + 1_000);
            let text = &said[start..end];
            if let Some(found) = formulas(text).into_iter().next().filter(|found| found.start <= NEAR) {
                return Some(of_formulas(text, start, &found));
            }
            let line = text.lines().next().unwrap_or("");
            let line = line.get(..floor(line, NEAR_IS)).unwrap_or("");
            let value = line.rfind('=').map_or(line, |at| &line[at..]);
            if let Some(found) = plain(value).into_iter().next().filter(|found| found.start <= NEAR) {
                return Some(of_plain(value, start, &found));
            }
            let words = line.trim_start().strip_prefix("is")?;
            of_words(words.trim_start_matches(':').split(['.', '\n']).next()?, start)
        })
        .collect()
}

fn whole(said: &str) -> Option<Candidate<'_>> {
    const MOST_WHOLE: usize = crate::math::MAX_WHOLE_BYTES;
    let text = said.trim().trim_matches('*');
    if text.is_empty() || text.len() > MOST_WHOLE || text.contains('\n') || !formulas(text).is_empty() {
        return None;
    }
    if let Some(number) = whole_number(text) {
        return Some(of_plain(text, 0, &number));
    }
    is_wordless(text).then(|| Candidate {
        span: text,
        reading: Reading::Pieces(vec![text]),
        percent: false,
        end: said.len(),
    })
}

/// Whether a text holds no prose: no word but names of functions, units and pairs of letters that are no English word.
pub(crate) fn is_wordless(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_alphabetic()) {
        let is_command = rest[..at].ends_with('\\');
        let word = &rest[at..];
        let length = word.find(|c: char| !c.is_alphabetic()).unwrap_or(word.len());
        let (word, after) = word.split_at(length);
        rest = after;
        if is_command {
            // The words of `\text{…}` are part of the answer.
            if (word.starts_with("text")
                || word.starts_with("math")
                || word == "mbox"
                || word == "operatorname")
                && let Some(inner) = after.strip_prefix('{').and_then(|inner| inner.find('}'))
            {
                rest = &after[inner + 2..];
            }
            continue;
        }
        let short = word.chars().count() <= 2 && !ENGLISH_PAIRS.contains(&word.to_ascii_lowercase().as_str());
        if !short && !crate::math::is_known_word(word) {
            return false;
        }
    }
    true
}

const ENGLISH_PAIRS: [&str; 24] = [
    "is", "it", "an", "of", "to", "no", "so", "we", "my", "he", "by", "be", "at", "as", "on", "if", "do",
    "go", "up", "us", "me", "am", "ok", "hi",
];

/// The largest boundary of a character that is not beyond `at`.
fn floor(text: &str, at: usize) -> usize {
    if at >= text.len() { text.len() } else { text.floor_char_boundary(at) }
}

//! Comparisons by text, as the simpler public graders make them.

use crate::rational::parse_rational;

/// Whether two answers of the gsm8k kind are the same number, or else the same text.
pub(super) fn same_number(gold: &str, pred: &str) -> bool {
    let (gold, pred) = (plain(gold), plain(pred));
    match (parse_rational(&gold), parse_rational(&pred)) {
        (Some(a), Some(b)) => a == b,
        _ => !gold.is_empty() && gold == pred,
    }
}

/// Without currency, spaces and a full stop.
fn plain(text: &str) -> String {
    let kept =
        text.chars().filter(|c| !c.is_whitespace() && !matches!(c, '$' | '€' | '£' | '%' | '*' | '\\'));
    kept.collect::<String>().trim_end_matches('.').to_owned()
}

/// Whether two answers are the same text once normalised, as in DAPO's reward.
///
/// *Reference*: Lewkowycz et al., "Solving quantitative reasoning problems with language models", 2022,
/// arXiv:2206.14858, appendix on normalisation.
pub(super) fn same_text(gold: &str, pred: &str) -> bool {
    let (gold, pred) = (normalised(gold), normalised(pred));
    !gold.is_empty() && gold == pred
}

/// What is dropped wherever it stands.
const DROPPED: [&str; 18] = [
    "\\left",
    "\\right",
    "\\!",
    "\\,",
    "\\;",
    "\\quad",
    "\\displaystyle",
    "\\$",
    "$",
    "\\%",
    "%",
    "^\\circ",
    "^{\\circ}",
    "\\text{}",
    "\\ ",
    "\"",
    "dollars",
    "degrees",
];

/// Commands whose argument is kept.
const WRAPPERS: [&str; 6] = ["\\boxed", "\\text", "\\textbf", "\\mathrm", "\\mbox", "\\overline"];

fn normalised(answer: &str) -> String {
    let value = match answer.rsplit_once('=') {
        Some((before, value)) if !before.ends_with(['<', '>', '!', '\\']) => value,
        _ => answer,
    };
    let mut text = value.trim().trim_end_matches('.').to_owned();
    for dropped in DROPPED {
        text = text.replace(dropped, "");
    }
    for fraction in ["\\dfrac", "\\tfrac", "\\cfrac"] {
        text = text.replace(fraction, "\\frac");
    }
    for wrapper in WRAPPERS {
        text = unwrapped(&text, wrapper);
    }
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let text = short_arguments(&text, "\\frac", 2);
    let text = short_arguments(&text, "\\sqrt", 1);
    without_group_commas(&text)
}

/// `content` for `command{content}`; braces that do not close are left alone.
fn unwrapped(text: &str, command: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(command) {
        out.push_str(&rest[..at]);
        let after = &rest[at + command.len()..];
        let close = after.strip_prefix('{').and_then(|inner| {
            let mut depth = 1_usize;
            inner.char_indices().find_map(|(at, c)| {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                (depth == 0).then_some(at)
            })
        });
        match close {
            Some(close) => {
                out.push_str(&after[1..=close]);
                rest = &after[close + 2..];
            }
            None => {
                out.push_str(command);
                rest = after;
            }
        }
    }
    out + rest
}

/// `\frac{1}{2}` for `\frac12`.
fn short_arguments(text: &str, command: &str, count: usize) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(command) {
        out.push_str(&rest[..at + command.len()]);
        rest = &rest[at + command.len()..];
        for _ in 0..count {
            match rest.chars().next() {
                Some(c) if c.is_ascii_alphanumeric() => {
                    out.push_str(&format!("{{{c}}}"));
                    rest = &rest[1..];
                }
                Some('{') => {
                    let end = rest.find('}').map_or(rest.len(), |at| at + 1);
                    out.push_str(&rest[..end]);
                    rest = &rest[end..];
                }
                _ => break,
            }
        }
    }
    out + rest
}

/// `12345` for `12,345`, if that is all.
fn without_group_commas(text: &str) -> String {
    let bare = text.replace("{,}", ",");
    let is_number =
        bare.contains(',') && bare.bytes().all(|b| b.is_ascii_digit() || matches!(b, b',' | b'.' | b'-'));
    match parse_rational(&bare) {
        Some(_) if is_number => bare.replace(',', ""),
        _ => bare,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_same_without_commas_and_currency() {
        assert!(same_number("1,000", "$1000.") && same_number("18", "18.0"));
        assert!(!same_number("18", "-18") && !same_number("18", "81") && !same_number("", ""));
    }

    #[test]
    fn texts_are_the_same_without_dress_and_only_then() {
        for (a, b) in [
            (r"\frac12", r"\dfrac{1}{2}"),
            ("12,345", "12345"),
            (r"x = 5", "5"),
            (r"\text{east}", "east"),
            (r"10\%", "10"),
            (r"\left( 1, 2 \right)", "(1,2)"),
        ] {
            assert!(same_text(a, b), "{a} {b}");
        }
        for (a, b) in [("0.5", r"\frac12"), ("(1,2)", "(2,1)"), ("-3", "3"), ("", ""), ("$", "$")] {
            assert!(!same_text(a, b), "{a} {b}");
        }
    }
}

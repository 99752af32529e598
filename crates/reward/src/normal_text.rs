//! The normal form of an answer's text.

/// Returns `answer` without what LaTeX and prose put around a value and without changing the value:
/// * dropped: `$`, `\$`, `\(`, `\)`, `\[`, `\]`, `\!`, `\left`, `\right`, and full stops at the end;
/// * `{,}`, and `\,` between digits, become a comma (a thousands separator); other spacing commands become a
///   space;
/// * `\dfrac`, `\tfrac` and `\cfrac` become `\frac`, and the minus sign U+2212 becomes `-`;
/// * white space becomes one space between a letter, digit or comma and a letter or digit, and vanishes
///   elsewhere.
///
/// Signs, case, units and everything else are kept. Takes time linear in the length.
pub(crate) fn normal_text(answer: &str) -> String {
    let plain = without_markup(answer);
    let mut text = String::with_capacity(plain.len());
    let mut words = plain.split_whitespace();
    if let Some(first) = words.next() {
        text.push_str(first);
    }
    for word in words {
        if text.ends_with(parts_words) && word.starts_with(char::is_alphanumeric) {
            text.push(' ');
        }
        text.push_str(word);
    }
    text.truncate(text.trim_end_matches('.').len());
    text
}

/// Whether a space behind `c` means something: `1 1/2` is not `11/2`, and `3, 400` is not `3,400`.
fn parts_words(c: char) -> bool {
    c.is_alphanumeric() || c == ','
}

/// Replaces the commands and signs of [`MARKUP`].
fn without_markup(answer: &str) -> String {
    let mut plain = String::with_capacity(answer.len());
    let mut rest = answer;
    while let Some(next) = rest.chars().next() {
        let (from, to) = match MARKUP.iter().find(|(from, _)| is_command(rest, from)) {
            Some((from, to)) => (from.len(), *to),
            None => (next.len_utf8(), &rest[..next.len_utf8()]),
        };
        let follows = &rest[from..];
        let between_digits = plain.ends_with(|c: char| c.is_ascii_digit())
            && follows.starts_with(|c: char| c.is_ascii_digit());
        match &rest[..from] {
            r"\," if between_digits => plain.push(','),
            _ => plain.push_str(to),
        }
        // `\!` takes back the space that follows it.
        rest = if &rest[..from] == r"\!" { follows.trim_start() } else { follows };
    }
    plain
}

/// Whether `text` starts with `command`, and, if that ends in a letter, goes on with something else.
fn is_command(text: &str, command: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphabetic());
    text.strip_prefix(command)
        .is_some_and(|rest| !(command.ends_with(|c: char| c.is_ascii_alphabetic()) && goes_on(rest)))
}

/// What is replaced by what.
const MARKUP: &[(&str, &str)] = &[
    (r"\\", r"\\"), // a line break: what follows is not escaped by its second half
    ("$", ""),
    (r"\$", ""),
    (r"\(", ""),
    (r"\)", ""),
    (r"\[", ""),
    (r"\]", ""),
    (r"\!", ""),
    (r"\left", ""),
    (r"\right", ""),
    ("{,}", ","),
    (r"\,", " "),
    (r"\;", " "),
    (r"\:", " "),
    (r"\ ", " "),
    ("~", " "),
    (r"\dfrac", r"\frac"),
    (r"\tfrac", r"\frac"),
    (r"\cfrac", r"\frac"),
    ("\u{2212}", "-"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_around_a_value_is_dropped() {
        assert_eq!(normal_text(r" $\left( 3 , \dfrac{1}{2} \right)$. "), r"(3,\frac{1}{2})");
        assert_eq!(normal_text(r"\(12\)."), "12");
        assert_eq!(normal_text(r"-\$5"), "-5");
        assert_eq!(normal_text("\u{2212}5"), "-5");
        assert_eq!(normal_text(r"\frac {1} {2}"), r"\frac{1}{2}");
        assert_eq!(normal_text("x  =\t3"), "x=3");
    }

    #[test]
    fn separators_of_thousands_become_commas() {
        assert_eq!(normal_text("12{,}345"), "12,345");
        assert_eq!(normal_text(r"12\,345"), "12,345");
        assert_eq!(normal_text(r"32,\! 349"), "32,349");
        assert_eq!(normal_text(r"2\,\text{cm}"), r"2\text{cm}");
    }

    #[test]
    fn a_space_that_separates_values_is_kept() {
        assert_eq!(normal_text("1  1/2"), "1 1/2");
        assert_eq!(normal_text("3, 4"), "3, 4");
        assert_eq!(normal_text("two words"), "two words");
    }

    #[test]
    fn longer_commands_are_left_alone() {
        assert_eq!(normal_text(r"\leftarrow"), r"\leftarrow");
        assert_eq!(normal_text(r"\frac\rightarrow"), r"\frac\rightarrow");
        assert_eq!(normal_text(r"1\\[2]"), r"1\\[2]");
    }

    #[test]
    fn nothing_is_left_of_pure_markup() {
        for text in ["", "  ", "$$", "...", r"\left\right", r"\[ \]"] {
            assert_eq!(normal_text(text), "");
        }
    }
}

//! When an output is the expected one.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::decimal::Decimal;

/// How outputs are compared: what a program prints with the expected text, and what a function returns with the expected value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputComparison {
    /// As LiveCodeBench does; the default.
    ///
    /// *Printed*: as many lines, white space around the text and around each line left out; each line equal, or else made of
    /// equal numbers (`1.50 2` is `1.5 2.0`), compared exactly as decimals. *Returned*: `==` of Python, where a tuple is a list.
    ///
    /// *Reference*: Jain et al., "LiveCodeBench", 2024, arXiv:2403.07974, and its public grader. *Differs*: a tuple is a list at
    /// every depth, not only outermost.
    #[default]
    LcbLinesDecimal,
    /// *Printed*: the same text, line ends as `\n` and those at the end left out. *Returned*: the same types and values; `1` is
    /// not `1.0`, a tuple is no list, NaN is NaN.
    Exact,
    /// As the graders that descend from APPS do, which accept much. *Printed*: one of: the same lines; the same but for blank
    /// lines; the same words but for numbers that are close; the same set of lines, each as a set of words or of numbers to three
    /// places. *Returned*: as in `lcb_lines_decimal`, with numbers that are close and with integer keys that are expected as text.
    ///
    /// Numbers are close when they differ by at most 10⁻⁸ + 10⁻⁵ · |expected|.
    ///
    /// *Reference*: Hendrycks et al., "Measuring Coding Challenge Competence With APPS", 2021, arXiv:2105.09938, and its public
    /// grader, with the tolerances of NumPy's `allclose`.
    AppsLax,
}

impl OutputComparison {
    /// Whether what was printed is what was expected.
    pub(crate) fn accepts_text(self, printed: &str, expected: &str) -> bool {
        match self {
            Self::Exact => ending_dropped(printed) == ending_dropped(expected),
            Self::LcbLinesDecimal => {
                let (printed, expected) = (lines(printed), lines(expected));
                printed.len() == expected.len()
                    && printed.iter().zip(&expected).all(|(printed, expected)| same_line(printed, expected))
            }
            Self::AppsLax => lax(printed, expected),
        }
    }
}

fn ending_dropped(text: &str) -> String {
    text.replace("\r\n", "\n").trim_end_matches('\n').to_owned()
}

fn lines(text: &str) -> Vec<&str> {
    text.trim().split('\n').map(str::trim).collect()
}

fn same_line(printed: &str, expected: &str) -> bool {
    let decimals = |line: &str| line.split_whitespace().map(Decimal::parse).collect::<Option<Vec<_>>>();
    printed == expected
        || decimals(expected)
            .is_some_and(|expected| decimals(printed).is_some_and(|printed| printed == expected))
}

fn lax(printed: &str, expected: &str) -> bool {
    let (printed, expected) = (lines(printed), lines(expected));
    if printed == expected {
        return true;
    }
    let filled = |lines: Vec<&str>| -> Vec<String> {
        lines.into_iter().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    let (printed, expected) = (filled(printed), filled(expected));
    if printed == expected {
        return true;
    }
    let words = |lines: &[String]| -> Vec<Vec<String>> {
        lines.iter().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let (printed, expected) = (words(&printed), words(&expected));
    let is_close = printed.len() == expected.len()
        && printed.iter().zip(&expected).all(|(printed, expected)| {
            printed.len() == expected.len()
                && printed.iter().zip(expected).all(|(printed, expected)| close_words(printed, expected))
        });
    is_close || sets(&printed) == sets(&expected) || {
        let (printed, expected) = (rounded_sets(&printed), rounded_sets(&expected));
        printed.is_some() && printed == expected
    }
}

fn close_words(printed: &str, expected: &str) -> bool {
    let number = |word: &str| word.parse::<f64>().ok();
    printed == expected
        || number(expected)
            .is_some_and(|expected| number(printed).is_some_and(|printed| is_close(printed, expected)))
}

/// Whether a number is within the lax tolerance of the expected one.
pub(crate) fn is_close(found: f64, expected: f64) -> bool {
    found == expected || (found - expected).abs() <= 1e-8 + 1e-5 * expected.abs() && expected.is_finite()
}

fn sets(lines: &[Vec<String>]) -> BTreeSet<BTreeSet<&str>> {
    lines.iter().map(|words| words.iter().map(String::as_str).collect()).collect()
}

fn rounded_sets(lines: &[Vec<String>]) -> Option<BTreeSet<BTreeSet<String>>> {
    let rounded = |word: &String| {
        let number = word.parse::<f64>().ok().filter(|number| number.is_finite())?;
        Some(format!("{:.3}", number + 0.0)) // adding zero takes the sign of −0 away
    };
    lines.iter().map(|words| words.iter().map(rounded).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::OutputComparison::{AppsLax, Exact, LcbLinesDecimal};

    #[test]
    fn lines_are_equal_as_text_or_as_decimals() {
        let equal = |printed, expected| LcbLinesDecimal.accepts_text(printed, expected);
        assert!(equal("1 2\n3\n", "1 2\n3"));
        assert!(equal("\n  1.50 2 \r\nyes\n\n", "1.5 2.0\nyes"));
        assert!(equal("0.1", "1e-1") && equal("", "") && equal("\n", ""));
        assert!(equal("1  2", "1 2"), "two spaces between numbers");
        assert!(!equal("a  b", "a b"), "and between words");
        assert!(!equal("1\n\n2", "1\n2") && !equal("1 2", "1\n2") && !equal("2 1", "1 2"));
        assert!(!equal("0.30000000000000004", "0.3") && !equal("1", "") && !equal("Yes", "yes"));
        assert!(!equal("1 yes", "1.0 yes"), "numbers count only where all of the line is numbers");
    }

    #[test]
    fn exact_means_the_same_text_but_for_its_end() {
        assert!(Exact.accepts_text("a b\r\nc\n\n", "a b\nc"));
        assert!(!Exact.accepts_text("a b ", "a b") && !Exact.accepts_text("\na", "a"));
        assert!(!Exact.accepts_text("1.0", "1"));
    }

    #[test]
    fn lax_accepts_what_the_graders_of_its_line_accept() {
        let equal = |printed, expected| AppsLax.accepts_text(printed, expected);
        assert!(equal("1\n\n2", "1\n2"), "blank lines");
        assert!(equal("3.14159265 x", "3.14159 x"), "close numbers");
        assert!(equal("2\n1", "1\n2") && equal("b a", "a b") && equal("1 1 2", "1 2"), "sets");
        assert!(equal("0.3331 1\n0", "0\n1.0 0.3334"), "sets of numbers to three places");
        assert!(
            !equal("1\n2\n3", "1\n2") && !equal("3.15", "3.14") && !equal("a", "b") && !equal("inf", "1")
        );
        assert!(!equal("nan", "1") && !equal("1", "nan") && !equal("", "1") && !equal("1", ""));
        assert!(!equal("1", "inf") && equal("inf", "inf"));
    }
}

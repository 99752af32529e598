//! Exact equality of answers.

use num_rational::BigRational;

use crate::normal_text::normal_text;
use crate::rational::parse_normal;

/// An answer in the form in which it is compared.
///
/// Equality is reflexive, symmetric and transitive: two answers are equal if both are numbers of the same
/// value, or else if their texts are the same but for spacing and LaTeX dress. The text is compared with its
/// case: `x` is not `X`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    text: String,
    value: Option<BigRational>,
}

/// What two answers were compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EqualityRule {
    /// Both are numbers: their exact values.
    Rational,
    /// At least one is not a number: their normal texts.
    Text,
}

impl EqualityRule {
    /// `rational` or `text`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rational => "rational",
            Self::Text => "text",
        }
    }
}

/// Outcome of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Comparison {
    /// Whether the answers are equal.
    pub equal: bool,
    /// What they were compared by.
    pub rule: EqualityRule,
}

impl Answer {
    /// Reads an answer; `None` if nothing is left of it without white space and markup. So two answers that
    /// say nothing are never equal.
    ///
    /// ```
    /// use firebrick_reward::Answer;
    ///
    /// let half = Answer::parse(r"$\frac{1}{2}$").expect("not empty");
    /// assert!(half.compare(&Answer::parse("0.5").expect("not empty")).equal);
    /// assert_eq!(Answer::parse("$ $"), None);
    /// ```
    pub fn parse(answer: &str) -> Option<Self> {
        let text = normal_text(answer);
        if text.is_empty() {
            return None;
        }
        let value = parse_normal(&text);
        Some(Self { text, value })
    }

    /// The text without white space and markup.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The value, if the answer is a number ([`crate::parse_rational`]).
    pub fn value(&self) -> Option<&BigRational> {
        self.value.as_ref()
    }

    /// Whether the two are equal, and by which rule that was decided.
    pub fn compare(&self, other: &Self) -> Comparison {
        match (&self.value, &other.value) {
            (Some(a), Some(b)) => Comparison { equal: a == b, rule: EqualityRule::Rational },
            _ => Comparison { equal: self.text == other.text, rule: EqualityRule::Text },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn compare(a: &str, b: &str) -> Comparison {
        Answer::parse(a).unwrap().compare(&Answer::parse(b).unwrap())
    }

    #[test]
    fn numbers_are_compared_by_value() {
        for (a, b) in
            [("5", "5.0"), ("1/2", r"\frac{2}{4}"), ("$200,000", "200000"), ("-0", "0"), ("42.", "42")]
        {
            assert_eq!(compare(a, b), Comparison { equal: true, rule: EqualityRule::Rational }, "{a} {b}");
        }
        for (a, b) in
            [("-3", "3"), (r"\frac{1}{2}", "1/3"), ("0.333", "1/3"), ("1,000", "1"), ("1 1/2", "11/2")]
        {
            assert_eq!(compare(a, b), Comparison { equal: false, rule: EqualityRule::Rational }, "{a} {b}");
        }
    }

    #[test]
    fn a_difference_in_the_last_of_many_digits_counts() {
        let digits = "1234567890".repeat(50);
        assert!(compare(&format!("{digits}1"), &format!("{digits}1.0")).equal);
        assert!(!compare(&format!("{digits}1"), &format!("{digits}2")).equal);
    }

    #[test]
    fn everything_else_is_compared_as_text() {
        for (a, b) in [("x = 5", "x=5"), (r"\left(1,2\right)", "(1,2)"), ("28%", "28 %"), ("1/0", "1/0")] {
            assert_eq!(compare(a, b), Comparison { equal: true, rule: EqualityRule::Text }, "{a} {b}");
        }
        for (a, b) in [("x", "X"), ("28%", "28"), ("5 cm", "5"), ("1/0", "2/0"), ("32, 349", "32349")] {
            assert_eq!(compare(a, b), Comparison { equal: false, rule: EqualityRule::Text }, "{a} {b}");
        }
    }

    #[test]
    fn an_answer_that_says_nothing_is_none() {
        for text in ["", " \n", "$$", "..", r"\(\)"] {
            assert_eq!(Answer::parse(text), None, "{text}");
        }
    }

    fn answers() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            r"-?[0-9]{1,2}(\.[05]{1,2})?",
            r"-?[0-9]/[0-9]",
            r"\\frac\{[0-9]\}\{[0-9]\}",
            "[a-c ]{0,3}"
        ]
    }

    /// Numbers of which many are equal.
    fn close_numbers() -> impl Strategy<Value = String> {
        r"-?[0-2](/[12]|\.0|\.5)?"
    }

    proptest! {
        #[test]
        fn comparison_is_reflexive_and_symmetric(a in answers(), b in answers()) {
            if let Some(a) = Answer::parse(&a) {
                prop_assert!(a.compare(&a).equal);
                if let Some(b) = Answer::parse(&b) {
                    prop_assert_eq!(a.compare(&b), b.compare(&a));
                }
            }
        }

        #[test]
        fn comparison_is_transitive(a in close_numbers(), b in close_numbers(), c in close_numbers()) {
            if compare(&a, &b).equal && compare(&b, &c).equal {
                prop_assert!(compare(&a, &c).equal);
            }
        }
    }
}

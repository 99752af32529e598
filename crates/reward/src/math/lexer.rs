//! From LaTeX and plain text to tokens.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::Pow;

use super::limits::MAX_DIGITS;
use super::vocabulary::{is_dropped, is_transparent, plain_word, sign_of_char, sign_of_command};

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    /// Digits with at most one point.
    Number(String),
    /// A number whose decimals repeat.
    Repeating(BigRational),
    Letter(char),
    /// A command without its backslash, or a known word.
    Command(String),
    /// The content of `\text{…}`, trimmed.
    Text(String),
    /// A sign; brackets of sets are `⦃` and `⦄`.
    Sign(char),
    Space,
    /// `\\`.
    Row,
}

/// Returns the tokens of `text`. Takes time linear in the length.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut lexer = Lexer { text, at: 0, found: Vec::new(), brackets: 0 };
    lexer.run();
    lexer.found
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    found: Vec<Token>,
    /// Open round, square and set brackets: within them a comma between digits separates.
    brackets: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn push(&mut self, token: Token) {
        match &token {
            Token::Sign('(' | '[' | '⦃') => self.brackets += 1,
            Token::Sign(')' | ']' | '⦄') => self.brackets = self.brackets.saturating_sub(1),
            Token::Space if matches!(self.found.last(), None | Some(Token::Space)) => return,
            _ => {}
        }
        self.found.push(token);
    }

    fn run(&mut self) {
        while let Some(next) = self.rest().chars().next() {
            match next {
                '\\' => self.command(),
                '0'..='9' => self.number(),
                '.' if self.rest()[1..].starts_with(|c: char| c.is_ascii_digit()) => self.number(),
                'a'..='z' | 'A'..='Z' => self.word(),
                _ => {
                    self.at += next.len_utf8();
                    self.sign(next);
                }
            }
        }
    }

    fn sign(&mut self, sign: char) {
        match sign {
            '$' | '"' | '€' | '£' | '¥' | '₹' | '\u{200b}' => {}
            c if c.is_whitespace() => self.push(Token::Space),
            '~' => self.push(Token::Space),
            '²' | '³' | '¹' | '⁴' | '⁵' | '⁶' | '⁷' | '⁸' | '⁹' | '⁰' => {
                let digit = "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().position(|c| c == sign).unwrap_or(0);
                self.push(Token::Sign('^'));
                self.push(Token::Number(digit.to_string()));
            }
            '!' if self.rest().starts_with('=') && !self.follows_a_value() => {
                self.at += 1;
                self.push(Token::Sign('≠'));
            }
            '<' | '>' if self.rest().starts_with('=') => {
                self.at += 1;
                self.push(Token::Sign(if sign == '<' { '≤' } else { '≥' }));
            }
            ':' if self.rest().starts_with('=') => {
                self.at += 1;
                self.push(Token::Sign('='));
            }
            '*' if self.rest().starts_with('*') => {
                self.at += 1;
                self.push(Token::Sign('^'));
            }
            _ => match sign_of_char(sign) {
                Some(command) if command.len() > 1 && command.is_ascii() => {
                    self.push(Token::Command(command.to_owned()));
                }
                Some(other) => other.chars().for_each(|c| self.push(Token::Sign(c))),
                None => self.push(Token::Sign(sign)),
            },
        }
    }

    /// Whether a factorial may stand here: `5!=120`, but `x != 5`.
    fn follows_a_value(&self) -> bool {
        matches!(self.found.last(), Some(Token::Number(_) | Token::Sign(')')))
    }

    /// A run of letters: a known word, or one letter after another.
    fn word(&mut self) {
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let word = &rest[..length];
        self.at += length;
        match plain_word(word) {
            Some(sign) if sign.len() > 1 && sign.is_ascii() => self.push(Token::Command(sign.to_owned())),
            Some(sign) => sign.chars().for_each(|c| self.push(Token::Sign(c))),
            None => word.chars().for_each(|letter| self.push(Token::Letter(letter))),
        }
    }

    fn command(&mut self) {
        let after = &self.rest()[1..];
        let length = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        if length == 0 {
            let Some(escaped) = after.chars().next() else {
                self.at += 1;
                return;
            };
            // Escaped twice: `\\frac`. A row of a matrix ends before a space, a sign or a digit.
            let doubled = escaped == '\\'
                && after[1..].starts_with(|c: char| c.is_ascii_alphabetic())
                && !self.text.contains(r"\begin")
                || (escaped == '\\' && after[1..].starts_with(['{', '}']) && !self.text.contains(r"\begin"));
            if doubled {
                self.at += 1;
                return;
            }
            self.at += 1 + escaped.len_utf8();
            match escaped {
                '\\' => self.push(Token::Row),
                '{' => self.push(Token::Sign('⦃')),
                '}' => self.push(Token::Sign('⦄')),
                '|' => self.push(Token::Sign('‖')),
                '%' => self.push(Token::Sign('%')),
                ',' | ';' | ':' | ' ' | '>' | '\n' | '\t' => self.push(Token::Space),
                '!' => {
                    let rest = self.rest();
                    self.at += rest.len() - rest.trim_start().len();
                }
                '(' | ')' | '[' | ']' | '$' | '"' | '/' => {}
                other => self.sign(other),
            }
            return;
        }
        let name = &after[..length];
        self.at += 1 + length;
        match name {
            "left" | "right" | "mleft" | "mright" => {
                if self.rest().starts_with('.') {
                    self.at += 1;
                }
            }
            "text" | "textbf" | "textit" | "textrm" | "textnormal" | "textsf" | "texttt" | "mbox"
            | "hbox" | "mathrm" | "operatorname" | "mathsf" | "emph" => self.text_argument(name),
            "mathbb" => match self.braced() {
                Some("R") => self.push(Token::Command("reals".into())),
                Some(other) => self.push(Token::Text(format!("mathbb {other}"))),
                None => {}
            },
            "begin" | "end" => match self.braced() {
                Some(kind) => {
                    let kind = kind.trim_end_matches('*').to_owned();
                    self.push(Token::Command(format!("{name}:{kind}")));
                    if name == "begin" && kind == "array" {
                        self.braced();
                    }
                }
                None => self.push(Token::Command(name.to_owned())),
            },
            "not" => match self.rest().trim_start() {
                rest if rest.starts_with('=') => {
                    self.at = self.text.len() - rest.len() + 1;
                    self.push(Token::Sign('≠'));
                }
                _ => self.push(Token::Command("not".into())),
            },
            _ if is_dropped(name) || is_transparent(name) => self.push(Token::Space),
            _ => {
                if let Some(glued) = name.strip_prefix("qquad").or_else(|| name.strip_prefix("quad")) {
                    self.push(Token::Space);
                    glued.chars().for_each(|letter| self.push(Token::Letter(letter)));
                } else if let Some(sign) = sign_of_command(name) {
                    self.push(Token::Sign(sign));
                } else {
                    self.push(Token::Command(name.to_owned()));
                }
            }
        }
    }

    /// The content of the braces that come next; `None` if none do or they do not close.
    fn braced(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let inner = rest.trim_start().strip_prefix('{')?;
        let start = rest.len() - inner.len();
        let mut depth = 1;
        for (at, c) in inner.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.at += start + at + 1;
                return Some(&inner[..at]);
            }
        }
        None
    }

    fn text_argument(&mut self, name: &str) {
        let Some(content) = self.braced() else { return };
        let content = content.trim().trim_matches('$').trim();
        if content.is_empty() {
            return self.push(Token::Space);
        }
        if self.found.len() > super::limits::MAX_NODES {
            return;
        }
        // A number in words' dress is a number: `\text{4}`, `\text{100 square inches}`.
        let numeric =
            content.trim_start_matches(['-', '$', '\\', '.']).starts_with(|c: char| c.is_ascii_digit());
        if numeric {
            let (number, words) = match content.find(|c: char| c.is_ascii_alphabetic()) {
                Some(at) if !content.contains('\\') => content.split_at(at),
                _ => (content, ""),
            };
            tokens(number).into_iter().for_each(|token| self.push(token));
            if !words.is_empty() {
                self.words(words.trim());
            }
            return;
        }
        let mut letters = content.chars();
        if let (Some(letter), None) = (letters.next(), letters.next()) {
            let upright_constant = name == "mathrm" && matches!(letter, 'e' | 'i' | 'd' | 'T' | 'C' | 'P');
            if upright_constant {
                return self.push(Token::Letter(letter));
            }
        }
        self.words(content);
    }

    fn words(&mut self, content: &str) {
        let lower = content.to_ascii_lowercase();
        match plain_word(&lower) {
            Some(sign) if sign.len() > 1 && sign.is_ascii() => self.push(Token::Command(sign.to_owned())),
            Some(sign) => sign.chars().for_each(|c| self.push(Token::Sign(c))),
            None => self.push(Token::Text(content.to_owned())),
        }
    }

    /// Digits, grouped or not, with decimals that may repeat and an exponent.
    fn number(&mut self) {
        let mut digits = self.digits();
        if let Some((length, group)) = self.next_group(digits.len()) {
            digits.push_str(&group);
            self.at += length;
            while let Some((length, group)) = self.next_group(3) {
                digits.push_str(&group);
                self.at += length;
            }
        }
        if let Some(repeating) = self.repeating(&digits) {
            return self.push(Token::Repeating(repeating));
        }
        let rest = self.rest();
        let decimals = rest.strip_prefix('.').or_else(|| rest.strip_prefix("{.}"));
        if let Some(decimals) = decimals.filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            self.at = self.text.len() - decimals.len();
            digits.push('.');
            let places = self.digits();
            digits.push_str(&places);
            if let Some(repeating) = self.repeating(&digits) {
                return self.push(Token::Repeating(repeating));
            }
        } else if let Some(decimals) = rest.strip_prefix("{,}") {
            // Not three digits, so a decimal comma.
            if decimals.starts_with(|c: char| c.is_ascii_digit()) {
                self.at += 3;
                digits.push('.');
                let places = self.digits();
                digits.push_str(&places);
            }
        } else if rest.starts_with('.') && !rest.starts_with("..") {
            self.at += 1; // `12.`
        }
        self.push(Token::Number(digits));
        self.exponent();
    }

    /// `e5` of `1e5`.
    fn exponent(&mut self) {
        let rest = self.rest();
        let Some(power) = rest.strip_prefix(['e', 'E']) else { return };
        let unsigned = power.strip_prefix(['+', '-']).unwrap_or(power);
        let length = unsigned.find(|c: char| !c.is_ascii_digit()).unwrap_or(unsigned.len());
        let ends = !unsigned[length..].starts_with(|c: char| c.is_ascii_alphabetic() || c == '^');
        if length == 0 || !ends {
            return;
        }
        let negative = power.starts_with('-');
        self.at += rest.len() - unsigned.len() + length;
        self.push(Token::Sign('*'));
        self.push(Token::Number("10".into()));
        self.push(Token::Sign('^'));
        self.push(Token::Sign('{'));
        if negative {
            self.push(Token::Sign('-'));
        }
        self.push(Token::Number(unsigned[..length].to_owned()));
        self.push(Token::Sign('}'));
    }

    fn digits(&mut self) -> String {
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        self.at += length;
        rest[..length].to_owned()
    }

    /// Length and digits of the group of three that continues a number after a separator of thousands, where
    /// `before` digits stand before it.
    fn next_group(&self, before: usize) -> Option<(usize, String)> {
        if !(1..=3).contains(&before) {
            return None;
        }
        let rest = self.rest();
        if let Some((length, group)) = braced_comma(rest) {
            return Some((length, group.to_owned()));
        }
        let separators = [",\\!", "\\,", "\\ ", "\\!", ",", "\u{202f}", "\u{2009}"];
        let separator = separators.into_iter().find(|separator| rest.starts_with(separator))?;
        if separator == "," && self.brackets > 0 {
            return None;
        }
        let group = if separator.contains('!') {
            rest[separator.len()..].trim_start()
        } else {
            &rest[separator.len()..]
        };
        let is_digit = |at: usize| group.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
        if !(0..3).all(is_digit) || is_digit(3) {
            return None;
        }
        // `1,100,25` is a list.
        if separator == "," {
            let mut tail = &group[3..];
            while let Some(next) = tail.strip_prefix(',') {
                let length = next.find(|c: char| !c.is_ascii_digit()).unwrap_or(next.len());
                match length {
                    0 => break,
                    3 => tail = &next[3..],
                    _ => return None,
                }
            }
        }
        Some((rest.len() - group.len() + 3, group[..3].to_owned()))
    }

    /// The number that `digits` begin, if its decimals go on with a period in a bar, dots or brackets.
    fn repeating(&mut self, digits: &str) -> Option<BigRational> {
        let rest = self.rest();
        let after_point = if digits.contains('.') { rest } else { rest.strip_prefix('.')? };
        let bars = ["\\overline", "\\bar", "\\dot", "\\overset{.}"];
        let inner = bars.iter().find_map(|bar| after_point.strip_prefix(bar))?.trim_start();
        let (period, tail) = match inner.strip_prefix('{') {
            Some(inner) => inner.split_once('}')?,
            None => (inner.get(..1)?, inner.get(1..)?),
        };
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !plain(period) || period.len() + digits.len() > MAX_DIGITS {
            return None;
        }
        let (whole, places) = digits.split_once('.').unwrap_or((digits, ""));
        self.at = self.text.len() - tail.len();
        let integer = |text: &str| -> BigInt { text.parse().unwrap_or_default() };
        let scale = BigInt::from(10).pow(places.len());
        let nines = BigInt::from(10).pow(period.len()) - 1;
        let head = BigRational::new(integer(&format!("{whole}{places}")), scale.clone());
        Some(head + BigRational::new(integer(period), scale * nines))
    }
}

/// Length and digits of a group of three behind a comma in braces, with any spaces.
fn braced_comma(rest: &str) -> Option<(usize, &str)> {
    let inner = rest.trim_start_matches(' ').strip_prefix('{')?.trim_start_matches(' ').strip_prefix(',')?;
    let group = inner.trim_start_matches(' ').strip_prefix('}')?.trim_start_matches(' ');
    let digits = group.bytes().take_while(u8::is_ascii_digit).count();
    (digits == 3).then(|| (rest.len() - group.len() + 3, &group[..3]))
}

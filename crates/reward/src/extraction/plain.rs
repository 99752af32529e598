//! Numbers and arithmetic in plain text.

use super::environments::percent_after;

/// A number, or an expression of numbers, as it stands in prose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plain<'a> {
    pub(super) start: usize,
    pub(super) end: usize,
    /// As written.
    pub(super) text: &'a str,
    /// With a decimal point and without separators of thousands; `None` for an expression.
    pub(super) number: Option<String>,
    pub(super) percent: bool,
}

const CURRENCY: &[char] = &['$', '€', '£', '¥', '₹', '₽', '₪', '₩', '฿'];

/// The numbers and expressions of a text from left to right: each begins the text, or stands behind white space, `=` or
/// a sign of currency. Takes time linear in the length.
pub(super) fn plain(text: &str) -> Vec<Plain<'_>> {
    let mut found = Vec::new();
    let mut may_start = true;
    let mut at = 0;
    while at < text.len() {
        if may_start {
            let start = at + opening(&text[at..]);
            let next = expression(text, start).or_else(|| number(text, start));
            if let Some(next) = next {
                at = next.end;
                may_start = false;
                found.push(next);
                continue;
            }
        }
        let Some(c) = text[at..].chars().next() else { break };
        may_start = c.is_whitespace() || c == '=';
        at += c.len_utf8();
    }
    found
}

/// The number that is the whole of `text`.
pub(super) fn whole_number(text: &str) -> Option<Plain<'_>> {
    let start = opening(text);
    let found = number(text, start)?;
    let rest = text[found.end..].trim_end_matches(['.', '$', ' ', '€', '%']);
    rest.is_empty().then_some(found)
}

/// The number or expression at the very start of `text`.
pub(super) fn leading(text: &str) -> Option<Plain<'_>> {
    let start = opening(text);
    expression(text, start).or_else(|| number(text, start))
}

/// Length of emphasis and currency before a number.
fn opening(text: &str) -> usize {
    let rest = text.strip_prefix("**").unwrap_or(text);
    let rest = rest.strip_prefix('\\').filter(|rest| rest.starts_with('$')).unwrap_or(rest);
    let rest = rest.strip_prefix(CURRENCY).unwrap_or(rest);
    text.len() - rest.len()
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// A number at `start`: groups of three, a decimal point or comma, or digits alone.
fn number(text: &str, start: usize) -> Option<Plain<'_>> {
    let rest = &text[start..];
    let (negative, unsigned) = match rest.strip_prefix('-').or_else(|| rest.strip_prefix('\u{2212}')) {
        Some(unsigned) => (true, unsigned),
        None => (false, rest),
    };
    let mut length = digits(unsigned);
    let mut value = unsigned[..length].to_owned();
    let mut grouped = false;
    if (1..=3).contains(&length) && !unsigned.starts_with('0') {
        while let Some(group) = unsigned[length..].strip_prefix([',', ' ']) {
            if digits(group) != 3 {
                break;
            }
            value.push_str(&group[..3]);
            length += 4;
            grouped = true;
        }
    }
    let point = if grouped || length == 0 { &['.'][..] } else { &['.', ','][..] };
    if let Some(places) = unsigned[length..].strip_prefix(point) {
        let count = digits(places);
        if count > 0 {
            value.push('.');
            value.push_str(&places[..count]);
            length += 1 + count;
        }
    }
    if length == 0 {
        return None;
    }
    let end = start + rest.len() - unsigned.len() + length;
    let percent = percent_after(&text[end..]);
    let number = if negative { format!("-{value}") } else { value };
    Some(Plain {
        start,
        end: end + percent.unwrap_or(0),
        text: &text[start..end],
        number: Some(number),
        percent: percent.is_some(),
    })
}

/// Longest expression in bytes.
const MOST_EXPRESSION: usize = 200;

/// Arithmetic at `start`: digits with at least one operator, ending before punctuation or white space.
fn expression(text: &str, start: usize) -> Option<Plain<'_>> {
    let rest = &text[start..];
    let first = rest.trim_start_matches(['-', '(']);
    if !first.starts_with(|c: char| c.is_ascii_digit()) || rest.len() - first.len() > 3 {
        return None;
    }
    let is_part = |c: char| {
        c.is_ascii_digit() || matches!(c, '.' | ' ' | '+' | '-' | '*' | '/' | '^' | '(' | ')' | '×' | '÷')
    };
    let run = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
    if run > MOST_EXPRESSION {
        return None;
    }
    let run = rest[..run].trim_end_matches(|c: char| !(c.is_ascii_digit() || c == ')'));
    let operators = |c: char| matches!(c, '+' | '-' | '*' | '/' | '^' | '×' | '÷');
    let signed = run.trim_start_matches(['-', '(']);
    if !signed.contains(operators) {
        return None;
    }
    let after = &rest[run.len()..];
    let ends = after.is_empty()
        || after
            .starts_with(|c: char| c.is_whitespace() || matches!(c, '.' | ',' | ':' | ')' | '$' | '*' | '%'));
    if !ends {
        return None;
    }
    let end = start + run.len();
    let percent = percent_after(after);
    Some(Plain {
        start,
        end: end + percent.unwrap_or(0),
        text: run,
        number: None,
        percent: percent.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(text: &str) -> Option<String> {
        plain(text).pop().map(|found| found.number.unwrap_or_else(|| found.text.to_owned()))
    }

    #[test]
    fn numbers_in_prose_are_read_with_their_separators() {
        for (text, expected) in [
            ("it is 12, not 13.", "13"),
            ("1 000", "1000"),
            ("1000,99", "1000.99"),
            ("$1,000.99", "1000.99"),
            ("which is 1,000.99€", "1000.99"),
            ("it's 1,000.99m²", "1000.99"),
            ("0,111", "0.111"),
            (".4", ".4"),
            ("x=-5", "-5"),
            ("The probability is 1/2", "1/2"),
            ("is 2 + 3 apples", "2 + 3"),
            ("earns \\$18.", "18"),
        ] {
            assert_eq!(last(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(last("XDY2K"), None);
        assert!(plain("28 percent")[0].percent);
    }
}

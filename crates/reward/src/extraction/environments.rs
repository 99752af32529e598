//! Formulas between math delimiters.

/// A formula, or several that a separator joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Formulas<'a> {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) contents: Vec<&'a str>,
    /// Whether the last one is a percentage by the word behind it.
    pub(super) percent: bool,
}

/// Most formulas of one answer.
const MOST_JOINED: usize = 16;

/// The formulas of a text from left to right, joined where only a comma, "and" or "or" stands between. Takes time linear
/// in the length.
pub(super) fn formulas(text: &str) -> Vec<Formulas<'_>> {
    let mut found: Vec<Formulas<'_>> = Vec::new();
    let mut finder = Finder { text, exhausted: [0; 4], line_end: 0 };
    let mut at = 0;
    while let Some((start, end, content)) = finder.next(at) {
        let (percent, end) = match percent_after(&text[end..]) {
            Some(length) => (true, end + length),
            None => (false, end),
        };
        at = end;
        match found.last_mut() {
            Some(last) if last.contents.len() < MOST_JOINED && is_separator(&text[last.end..start]) => {
                last.contents.push(content);
                last.end = end;
                last.percent = percent;
            }
            _ => found.push(Formulas { start, end, contents: vec![content], percent }),
        }
    }
    found
}

/// Length of a percent sign or word, with the spaces before it.
pub(super) fn percent_after(text: &str) -> Option<usize> {
    let sign = text.trim_start_matches([' ', '\t', '\n']);
    let skipped = text.len() - sign.len();
    ["\\%", "%", "percentage", "percent", "Percent", "pct"]
        .into_iter()
        .find(|word| sign.starts_with(word))
        .map(|word| skipped + word.len())
}

fn is_separator(between: &str) -> bool {
    if between.len() > 24 {
        return false;
    }
    matches!(
        between.trim(),
        "," | "and" | "or" | ", and" | ", or" | ",and" | ",or" | "\\text{ and }" | "\\text{ or }"
    )
}

struct Finder<'a> {
    text: &'a str,
    /// For each kind, up to where no closing delimiter was found, so that no stretch is searched twice.
    exhausted: [usize; 4],
    /// End of the line that was looked at last.
    line_end: usize,
}

impl<'a> Finder<'a> {
    /// Start, end and content of the next formula from `from` on.
    fn next(&mut self, from: usize) -> Option<(usize, usize, &'a str)> {
        let bytes = self.text.as_bytes();
        let mut at = from;
        while at < bytes.len() {
            let found = match bytes[at] {
                b'\\' => match bytes.get(at + 1) {
                    Some(b'(') => self.closed(at, 2, "\\)", 0, true),
                    Some(b'[') => self.closed(at, 2, "\\]", 1, false),
                    Some(_) => {
                        // An escaped sign opens nothing.
                        at += 1 + self.text[at + 1..].chars().next().map_or(1, char::len_utf8);
                        continue;
                    }
                    None => None,
                },
                b'$' if bytes.get(at + 1) == Some(&b'$') => self.closed(at, 2, "$$", 2, false),
                b'$' if at == 0 || !bytes[at - 1].is_ascii_digit() => self.closed(at, 1, "$", 3, true),
                _ => None,
            };
            if found.is_some() {
                return found;
            }
            at += 1;
        }
        None
    }

    fn line_end_from(&mut self, at: usize) -> usize {
        if at > self.line_end || self.line_end == 0 {
            self.line_end = self.text[at..].find('\n').map_or(self.text.len(), |found| at + found);
        }
        self.line_end
    }

    fn closed(
        &mut self,
        start: usize,
        opening: usize,
        close: &str,
        kind: usize,
        one_line: bool,
    ) -> Option<(usize, usize, &'a str)> {
        let content = start + opening;
        if content < self.exhausted[kind] {
            return None;
        }
        let limit = if one_line { self.line_end_from(content) } else { self.text.len() };
        let mut at = content;
        while let Some(found) = self.text[at..limit].find(close) {
            let end = at + found;
            let escaped = close.starts_with('$') && self.text[..end].ends_with('\\');
            if !escaped && !self.text[content..end].trim().is_empty() {
                return Some((start, end + close.len(), &self.text[content..end]));
            }
            if !escaped {
                return None;
            }
            at = end + close.len();
        }
        self.exhausted[kind] = limit;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(text: &str) -> Vec<Vec<&str>> {
        formulas(text).into_iter().map(|found| found.contents.into_iter().map(str::trim).collect()).collect()
    }

    #[test]
    fn formulas_are_found_in_every_delimiter() {
        assert_eq!(contents(r"a $1$ b \(2\) c $$3$$ d \[4\]"), [["1"], ["2"], ["3"], ["4"]]);
        assert_eq!(contents("$$\n1\n$$ \\[\n2\n\\]"), [["1"], ["2"]]);
        assert_eq!(contents(r"costs \$5 or $x$"), [["x"]]);
        assert!(contents("$\n1\n$").is_empty());
        assert!(contents("$10 and more").is_empty());
    }

    #[test]
    fn formulas_with_a_separator_between_are_one_answer() {
        assert_eq!(contents("$1$, $2$ and $3$ but $4$"), [vec!["1", "2", "3"], vec!["4"]]);
        assert!(formulas("$28$ percent")[0].percent);
    }

    #[test]
    fn a_megabyte_of_delimiters_is_searched_once() {
        for piece in ["\\(", "\\[", "$$", "$ ", "$\n", "\\$", "1$"] {
            let _ = formulas(&piece.repeat(1_000_000 / piece.len()));
        }
    }
}

//! Boxes: `\boxed{…}` and `\fbox{…}`.

/// A closed box that is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Boxed<'a> {
    /// Where its command starts and behind its closing brace.
    pub(super) start: usize,
    pub(super) end: usize,
    /// Its content, trimmed.
    pub(super) content: &'a str,
}

/// Content of the closed, non-empty box that opens last.
pub(super) fn last_box(text: &str) -> Option<&str> {
    boxes(text).into_iter().max_by_key(|found| found.start).map(|found| found.content)
}

/// All closed boxes that are not empty, in the order in which they close. Takes time linear in the length.
pub(super) fn boxes(text: &str) -> Vec<Boxed<'_>> {
    let bytes = text.as_bytes();
    let mut open: Vec<Brace> = Vec::new();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if let Some(length) = box_opening(&text[at..]) {
            open.push(Brace::Box { command: at, content: at + length });
            at += length;
            continue;
        }
        match bytes[at] {
            b'\\' => at += escape_length(&text[at..]),
            b'{' => {
                open.push(Brace::Plain);
                at += 1;
            }
            b'}' => {
                if let Some(Brace::Box { command, content }) = open.pop() {
                    let inner = text[content..at].trim();
                    if !inner.is_empty() {
                        found.push(Boxed { start: command, end: at + 1, content: inner });
                    }
                }
                at += 1;
            }
            _ => at += next_char(text, at),
        }
    }
    found
}

/// An open brace.
enum Brace {
    /// Of a box: where its command and its content start.
    Box { command: usize, content: usize },
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

/// Farthest apart that two boxes of one answer may be, in bytes.
const MOST_BETWEEN: usize = 70;

/// The boxes that state the answer: the last one, and those before it that a separator joins to it.
pub(super) fn last_group(text: &str) -> Vec<Boxed<'_>> {
    let mut all = boxes(text);
    all.sort_by_key(|found| found.start);
    let Some(last) = all.pop() else { return Vec::new() };
    let mut group = vec![last];
    while let (Some(before), Some(next)) = (all.pop(), group.last()) {
        if before.end > next.start {
            continue; // a box around the next one
        }
        if !joins(&text[before.end..next.start]) {
            break;
        }
        group.push(before);
    }
    group.reverse();
    group.dedup_by_key(|found| found.content);
    group
}

/// Whether what stands between two boxes makes them one answer: next to nothing, or a separator and no more words than
/// name the parts.
fn joins(between: &str) -> bool {
    if between.len() > MOST_BETWEEN {
        return false;
    }
    let mut separated = between.contains([',', ';', '&']);
    let mut words = 0;
    let mut rest = between;
    while let Some(at) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        let is_command = rest[..at].ends_with('\\');
        let word = &rest[at..];
        let length = word.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(word.len());
        match &word[..length] {
            "and" | "or" => separated = true,
            "text" | "quad" | "qquad" | "mathrm" | "textbf" if is_command => {}
            "for" | "part" | "the" | "as" | "well" | "also" | "respectively" => {}
            _ if length == 1 || is_command => {}
            _ => words += 1,
        }
        rest = &word[length..];
    }
    let bare =
        between.chars().filter(|c| !c.is_whitespace() && !matches!(c, '$' | '\\' | '(' | ')' | '[' | ']'));
    words == 0 && (separated || bare.count() == 0)
}

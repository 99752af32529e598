//! Marks before an answer: `####` and `Answer:`.

use super::boxes::last_box;

/// What follows the last mark that has something behind it on its line. `marks` lists where the marks of a
/// line end.
pub(super) fn last_marked(text: &str, marks: fn(&str) -> Vec<usize>) -> Option<&str> {
    text.lines().rev().find_map(|line| {
        marks(line).into_iter().rev().find_map(|end| {
            let stated = bare(&line[end..]);
            let stated = last_box(stated).unwrap_or(stated);
            (!stated.is_empty()).then_some(stated)
        })
    })
}

/// `text` without white space and emphasis around it and without full stops behind it.
pub(super) fn bare(text: &str) -> &str {
    let ornament = |c: char| c.is_whitespace() || c == '*';
    text.trim_start_matches(ornament).trim_end_matches(|c| ornament(c) || c == '.')
}

/// Ends of the runs of exactly four `#`.
pub(super) fn hash_marks(line: &str) -> Vec<usize> {
    let bytes = line.as_bytes();
    let is_hash = |at: usize| bytes.get(at) == Some(&b'#');
    (0..bytes.len())
        .filter(|&at| is_hash(at) && (at == 0 || !is_hash(at - 1)))
        .filter(|&at| (at..at + 4).all(is_hash) && !is_hash(at + 4))
        .map(|at| at + 4)
        .collect()
}

/// Ends of the occurrences of the word `answer` with a colon; emphasis may stand between the two.
pub(super) fn answer_marks(line: &str) -> Vec<usize> {
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

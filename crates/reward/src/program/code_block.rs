//! Finding the program in a response.

use serde::{Deserialize, Serialize};

/// Which part of a response is the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodeBlock {
    /// The last fenced block marked as Python; where none is, the last block without a mark. The default.
    #[default]
    Last,
    /// The first fenced block marked as Python; where none is, the first block without a mark.
    First,
    /// Everything, fences included: for models that go on with a program instead of chatting.
    WholeText,
}

/// Returns the program of a response, or `None` if it holds none where `block` looks.
///
/// Only what follows the last `</think>` counts, where there is one. A fence is a line that begins with three or more backticks
/// or tildes; it is closed by a line of at least as many and nothing else. A block that is not closed goes on to the end of the
/// response. Marks of Python are `python`, `python3` and `py`, in any case; a block with another mark is no program. Blank blocks
/// do not count.
///
/// Takes time linear in the length of the response, on any input.
///
/// ````
/// use firebrick_reward::program::{CodeBlock, extract_code};
///
/// let response = "So:\n```python\nprint(1)\n```\nIt prints\n```\n1\n```";
/// assert_eq!(extract_code(response, CodeBlock::Last), Some("print(1)\n"));
/// assert_eq!(extract_code("print(1)", CodeBlock::Last), None);
/// assert_eq!(extract_code("print(1)", CodeBlock::WholeText), Some("print(1)"));
/// ````
pub fn extract_code(response: &str, block: CodeBlock) -> Option<&str> {
    let said = match response.rfind(END_OF_THOUGHT) {
        Some(at) => &response[at + END_OF_THOUGHT.len()..],
        None => response,
    };
    let mut chosen: [Option<&str>; 2] = [None, None]; // marked as Python, without a mark
    match block {
        CodeBlock::WholeText => chosen[0] = Some(said).filter(|text| !text.trim().is_empty()),
        CodeBlock::Last => each_block(said, |mark, code| chosen[mark] = Some(code)),
        CodeBlock::First => each_block(said, |mark, code| chosen[mark] = chosen[mark].or(Some(code))),
    }
    chosen[0].or(chosen[1])
}

const END_OF_THOUGHT: &str = "</think>";

/// Calls `found` with the blocks in order: 0 and the text of one marked as Python, 1 and the text of one without a mark.
fn each_block<'a>(text: &'a str, mut found: impl FnMut(usize, &'a str)) {
    let mut report = |mark: Option<usize>, code: &'a str| {
        if let Some(mark) = mark.filter(|_| !code.trim().is_empty()) {
            found(mark, code);
        }
    };
    let mut open: Option<Open> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        match (fence(line), &open) {
            (Some(fence), None) => {
                open = Some(Open {
                    symbol: fence.symbol,
                    count: fence.count,
                    mark: mark(fence.info),
                    start: end,
                });
            }
            (Some(fence), Some(block))
                if fence.symbol == block.symbol && fence.count >= block.count && fence.info.is_empty() =>
            {
                report(block.mark, &text[block.start..at]);
                open = None;
            }
            _ => {}
        }
        at = end;
    }
    if let Some(block) = open {
        report(block.mark, &text[block.start..]);
    }
}

/// A block whose end is not yet found.
struct Open {
    symbol: char,
    count: usize,
    mark: Option<usize>,
    start: usize,
}

/// A line that opens or closes a block.
struct Fence<'a> {
    symbol: char,
    count: usize,
    info: &'a str,
}

fn fence(line: &str) -> Option<Fence<'_>> {
    let line = line.trim();
    let symbol = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let info = line.trim_start_matches(symbol);
    let count = line.len() - info.len();
    // Inline code may span a line: backticks behind the mark open no block.
    (count >= 3 && !(symbol == '`' && info.contains('`'))).then_some(Fence {
        symbol,
        count,
        info: info.trim(),
    })
}

/// 0 for a mark of Python, 1 for none, `None` for that of another language.
fn mark(info: &str) -> Option<usize> {
    let Some(word) =
        info.split(|c: char| c.is_whitespace() || c == ',').next().filter(|word| !word.is_empty())
    else {
        return Some(1);
    };
    ["python", "python3", "py"].iter().any(|name| word.eq_ignore_ascii_case(name)).then_some(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn last(response: &str) -> Option<&str> {
        extract_code(response, CodeBlock::Last)
    }

    #[test]
    fn the_last_block_marked_as_python_wins_over_any_without_a_mark() {
        assert_eq!(last("```python\na\n```\n```py\nb\n```\n"), Some("b\n"));
        assert_eq!(last("```Python3 title=x\na\n```\nout:\n```\n1\n```"), Some("a\n"));
        assert_eq!(last("```\na\n```\n```text\nb\n```"), Some("a\n"));
        assert_eq!(last("```\na\n```\n```\nb\n```"), Some("b\n"));
        assert_eq!(last("```bash\nls\n```"), None);
    }

    #[test]
    fn the_first_block_is_taken_where_that_is_asked_for() {
        let response = "```\n0\n```\n```python\na\n```\n```python\nb\n```";
        assert_eq!(extract_code(response, CodeBlock::First), Some("a\n"));
        assert_eq!(extract_code("```\n0\n```\n```\n1\n```", CodeBlock::First), Some("0\n"));
    }

    #[test]
    fn a_block_that_is_cut_off_goes_on_to_the_end() {
        assert_eq!(last("```python\na\nb"), Some("a\nb"));
        assert_eq!(last("```python\na\n```\nand\n```python\nb"), Some("b"));
    }

    #[test]
    fn nothing_is_a_program_without_a_block_or_in_a_blank_one() {
        for response in ["", "print(1)", "``` ```", "```python", "```python\n \n```", "`a`", "``\na\n``"] {
            assert_eq!(last(response), None, "{response}");
        }
        assert_eq!(last("```python\na\n```\n```python\n\n```"), Some("a\n"), "a blank block hides none");
        assert_eq!(extract_code(" \n", CodeBlock::WholeText), None);
    }

    #[test]
    fn a_longer_fence_holds_shorter_ones() {
        assert_eq!(last("````python\n```\na\n```\n````"), Some("```\na\n```\n"));
        assert_eq!(last("~~~python\n```\n~~~"), Some("```\n"));
        assert_eq!(last("```python\ns = '''\n```x\n'''\n```"), Some("s = '''\n```x\n'''\n"));
    }

    #[test]
    fn only_what_follows_the_thought_counts() {
        assert_eq!(last("<think>```python\na\n```</think>\n```python\nb\n```"), Some("b\n"));
        assert_eq!(last("<think>\n```python\na\n```\n</think> no"), None);
        assert_eq!(extract_code("<think>a</think>    return 1", CodeBlock::WholeText), Some("    return 1"));
    }

    #[test]
    fn indentation_and_line_ends_are_kept() {
        assert_eq!(last("  ```python\r\n    return 1\r\n  ```\r\n"), Some("    return 1\r\n"));
    }

    /// Anything worse than linear would take minutes here.
    #[test]
    fn hostile_text_of_a_megabyte_is_read_once() {
        let n = 1_000_000;
        assert_eq!(last(&"`".repeat(n)), None);
        assert_eq!(last(&"```\n".repeat(n / 4)), None);
        assert_eq!(last(&"```python\n".repeat(n / 10)).map(str::len), Some(n - 10));
        assert_eq!(last(&"</think>".repeat(n / 8)), None);
    }

    proptest! {
        #[test]
        fn any_mix_of_marks_yields_a_piece_of_itself_that_is_not_blank(
            parts in prop::collection::vec(
                prop::sample::select(vec!["```", "````", "~~~", "python", "\n", "\r\n", " ", "é", "x", "</think>"]),
                0..40,
            ),
        ) {
            let text = parts.concat();
            for block in [CodeBlock::Last, CodeBlock::First, CodeBlock::WholeText] {
                if let Some(code) = extract_code(&text, block) {
                    prop_assert!(text.contains(code) && !code.trim().is_empty());
                }
            }
        }
    }
}

//! The Python side of the harness, and what is sent to it first.

use super::value::quoted;

/// Holds the candidate's program and calls it.
pub(crate) const CANDIDATE: &str = concat!(include_str!("wire.py"), "\n\n", include_str!("runner.py"));

/// Holds the tests that assert.
pub(crate) const TESTS: &str = concat!(include_str!("wire.py"), "\n\n", include_str!("assertions.py"));

/// What [`CANDIDATE`] reads first: the program, and the calls if all are known. None of them means that they follow, a line each.
///
/// JSON, and but for names an expression of Python: characters beyond ASCII stand for themselves, since Python does not know pairs of
/// surrogates.
pub(crate) fn candidate_setup(nonce: &str, code: &str, calls: Option<&[String]>) -> String {
    // Programs for calls rely on the imports that the sites of their problems make for them; those for assertions must not.
    let (prelude, calls) = match calls {
        Some(calls) => (true, format!("[{}]", calls.join(", "))),
        None => (false, "null".to_owned()),
    };
    format!(
        "{{\"nonce\": {}, \"code\": {}, \"prelude\": {prelude}, \"changes\": {}, \"calls\": {calls}}}",
        quoted(nonce),
        quoted(code),
        !prelude,
    )
}

/// A message: what stands behind the nonce and the word `kind` on a line; `None` for any other line.
pub(crate) fn message<'a>(line: &'a str, nonce: &str) -> Option<(&'a str, &'a str)> {
    line.strip_prefix(nonce)?.strip_prefix(' ')?.split_once(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_begin_with_the_nonce_are_messages() {
        assert_eq!(message("abc 0 {\"v\": 1}", "abc"), Some(("0", "{\"v\": 1}")));
        for line in ["", "abc", "abc 0", "abd 0 x", " abc 0 x", "abcd 0 x"] {
            assert_eq!(message(line, "abc"), None, "{line}");
        }
    }

    #[test]
    fn the_setup_is_json_whatever_the_program_holds() {
        let code = "print('\"\\n\u{2028}')\n";
        let setup = candidate_setup("n", code, Some(&["{}".to_owned()]));
        let json: serde_json::Value = serde_json::from_str(&setup).unwrap();
        assert_eq!(json["code"], code);
        assert_eq!(json["calls"], serde_json::json!([{}]));
        assert!(!setup.contains('\n'));
    }
}

//! Tests that call a function and compare what it returns: one process for all calls.

use super::case_result::CaseResult;
use super::compare::OutputComparison;
use super::executor::{Executor, ExecutorError, Job, Limits, Outcome, ProgramExit};
use super::json_text::parse_json;
use super::nonce::nonce;
use super::runner::{CANDIDATE, candidate_setup, message};
use super::test_suite::CallTest;
use super::value::{Value, quoted};

/// Calls `function` once a test, in order, and judges what it returned.
///
/// The process of the program is given the arguments only. Its messages may be forged by the program, which gains nothing: they
/// say what was returned, and what is expected never leaves this process.
pub(crate) fn run_call_tests(
    executor: &dyn Executor,
    code: &str,
    function: &str,
    tests: &[CallTest],
    limits: &Limits,
    comparison: OutputComparison,
) -> Result<Vec<CaseResult>, ExecutorError> {
    let nonce = nonce();
    let calls: Vec<String> = tests.iter().map(|test| call(function, &test.arguments)).collect();
    let mut setup = candidate_setup(&nonce, code, Some(&calls));
    setup.push('\n');
    let job = Job::new(CANDIDATE).with_stdin(setup).with_limits(limits.clone());
    Ok(judge(&executor.run(&job)?, &nonce, tests, comparison))
}

/// The message that asks for a call.
fn call(function: &str, arguments: &[Value]) -> String {
    let mut given = String::new();
    Value::List(arguments.to_vec()).write_tagged(&mut given);
    format!("{{\"f\": {}, \"a\": {given}, \"k\": {{}}}}", quoted(function))
}

fn judge(
    outcome: &Outcome,
    nonce: &str,
    tests: &[CallTest],
    comparison: OutputComparison,
) -> Vec<CaseResult> {
    let text = String::from_utf8_lossy(&outcome.stdout);
    // What was cut off at a limit is no reply.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut replies = complete.lines().filter_map(|line| message(line, nonce));
    let mut results = Vec::with_capacity(tests.len());
    for (index, test) in tests.iter().enumerate() {
        match replies.next() {
            Some((number, body)) if number == index.to_string() => {
                results.push(judge_reply(body, test, comparison))
            }
            // Out of order: the runner sends no such message, so nothing behind it is believed.
            Some(_) => break,
            None => break,
        }
    }
    // A call that the program did not live to answer fails for the reason of its end.
    let missing = match outcome.exit {
        ProgramExit::Code(0) => CaseResult::RuntimeError,
        exit => CaseResult::of_early_exit(exit),
    };
    results.resize(tests.len(), missing);
    results
}

fn judge_reply(body: &str, test: &CallTest, comparison: OutputComparison) -> CaseResult {
    let Some(reply) = parse_json(body) else { return CaseResult::RuntimeError };
    let Some(value) = reply.get("v").cloned().and_then(Value::from_tagged) else {
        return CaseResult::RuntimeError;
    };
    if test.expected.iter().any(|expected| comparison.accepts_value(&value, expected)) {
        CaseResult::Passed
    } else {
        CaseResult::Wrong
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::CaseResult::{OutputLimit, Passed, RuntimeError, TimeLimit, Wrong};
    use super::*;

    fn judged(exit: ProgramExit, stdout: &str) -> Vec<CaseResult> {
        let expecting = |n: i64| CallTest { arguments: vec![], expected: vec![Value::Int(n.into())] };
        let tests = [expecting(1), expecting(2), expecting(3)];
        let outcome = Outcome::new(exit, stdout.as_bytes().to_vec(), Vec::new(), Duration::ZERO);
        judge(&outcome, "N", &tests, OutputComparison::default())
    }

    #[test]
    fn replies_are_judged_in_order_and_noise_is_skipped() {
        let text =
            "noise\nN 0 {\"v\": 1}\n\nM 1 {\"v\": 9}\nN 1 {\"v\": 3}\nN 2 {\"e\": [\"ValueError\", \"\"]}\n";
        assert_eq!(judged(ProgramExit::Code(0), text), [Passed, Wrong, RuntimeError]);
    }

    #[test]
    fn nothing_behind_a_message_out_of_order_is_believed() {
        let text = "N 0 {\"v\": 1}\nN 0 {\"v\": 1}\nN 1 {\"v\": 2}\nN 2 {\"v\": 3}\n";
        assert_eq!(judged(ProgramExit::Code(0), text), [Passed, RuntimeError, RuntimeError]);
    }

    #[test]
    fn calls_without_a_reply_fail_for_the_reason_of_the_end() {
        assert_eq!(judged(ProgramExit::TimeLimit, "N 0 {\"v\": 1}\n"), [Passed, TimeLimit, TimeLimit]);
        assert_eq!(
            judged(ProgramExit::OutputLimit, "N 0 {\"v\": 1}\nN 1 {\"v\": 2"),
            [Passed, OutputLimit, OutputLimit]
        );
        assert_eq!(judged(ProgramExit::Code(0), ""), [RuntimeError; 3]);
        assert_eq!(judged(ProgramExit::Signal(9), "N 0 {\"v\""), [RuntimeError; 3]);
    }

    #[test]
    fn a_broken_reply_fails_its_call_alone() {
        let text = "N 0 {\"v\": {\"q\": 1}}\nN 1 [\nN 2 {\"v\": 3}\n";
        assert_eq!(judged(ProgramExit::Code(0), text), [RuntimeError, RuntimeError, Passed]);
    }
}

//! Tests that assert: they run in one process, what they call in another.

use super::case_result::CaseResult;
use super::executor::{Executor, ExecutorError, Job, Limits, ProgramExit, Session};
use super::nonce::nonce;
use super::runner::{CANDIDATE, TESTS, candidate_setup, message};
use super::test_suite::AssertionTests;
use super::value::quoted;

/// What came of the tests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AssertionOutcome {
    /// A result a test.
    Ran(Vec<CaseResult>),
    /// The tests themselves cannot be run, whatever the program.
    Unusable(String),
}

/// Runs the tests in a process of their own and relays their calls to that of the candidate's program.
///
/// The program never shares a process with the tests: it is given the calls, and gives back values, which are rebuilt in the
/// tests' process as values of Python's own types. What the tests find is reported by their process, under a nonce of its own.
pub(crate) fn run_assertion_tests(
    executor: &dyn Executor,
    code: &str,
    suite: &AssertionTests,
    limits: &Limits,
) -> Result<AssertionOutcome, ExecutorError> {
    let (tests_nonce, program_nonce) = (nonce(), nonce());
    let program = complete_program(code, suite);
    let setup = tests_setup(&tests_nonce, suite);
    let first = |line: String| format!("{line}\n");
    let tests_job = Job::new(TESTS).with_stdin(first(setup)).with_limits(tests_limits(limits));
    let program_job = Job::new(CANDIDATE)
        .with_stdin(first(candidate_setup(&program_nonce, &program, None)))
        .with_limits(limits.clone());
    let [tests, program] = executor.open_pair(&tests_job, &program_job)?;
    Relay {
        tests,
        tests_nonce,
        program,
        program_nonce,
        calls: 0,
        results: Vec::new(),
        count: suite.tests.len(),
    }
    .run()
}

/// The program behind what the problem gave: it may go on where that ends, or define everything anew and rely on its imports.
fn complete_program(code: &str, suite: &AssertionTests) -> String {
    if suite.stub.is_empty() {
        return code.to_owned();
    }
    // Python takes these in front of everything else only.
    let is_future = |line: &&str| line.starts_with("from __future__ import ") && !line.contains('(');
    let futures: String = code.lines().filter(is_future).map(|line| format!("{line}\n")).collect();
    let rest: String = code.split_inclusive('\n').filter(|line| !is_future(line)).collect();
    let goes_on =
        rest.lines().find(|line| !line.trim().is_empty()).is_some_and(|line| line.starts_with([' ', '\t']));
    let stub = if goes_on { with_line_break(&suite.stub) } else { closed(&suite.stub) };
    format!("{futures}{stub}{rest}")
}

fn with_line_break(stub: &str) -> String {
    if stub.ends_with('\n') { stub.to_owned() } else { format!("{stub}\n") }
}

/// A stub that stands by itself: a function without a body, not even a docstring, is given one.
pub(crate) fn closed(stub: &str) -> String {
    let body = if stub.trim_end().ends_with(':') { "    pass\n" } else { "" };
    with_line_break(stub) + body
}

fn tests_setup(nonce: &str, suite: &AssertionTests) -> String {
    let list = |texts: &[String]| texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", ");
    let entry_point = suite.entry_point.as_ref().map_or("null".to_owned(), |name| quoted(name));
    format!(
        "{{\"nonce\": {}, \"setup\": [{}], \"tests\": [{}], \"entry_point\": {entry_point}}}",
        quoted(nonce),
        list(&suite.setup),
        list(&suite.tests),
    )
}

/// The tests wait for the program, so they are given longer than it: its own limits are the ones to bind. They also see all that
/// it returns, hence the output.
fn tests_limits(limits: &Limits) -> Limits {
    Limits {
        cpu_seconds: limits.cpu_seconds + 5.0,
        wall_seconds: limits.wall_seconds + limits.cpu_seconds + 10.0,
        output_kib: limits.output_kib.saturating_mul(4),
        memory_mib: limits.memory_mib.max(512),
        ..limits.clone()
    }
}

struct Relay {
    tests: Box<dyn Session>,
    tests_nonce: String,
    program: Box<dyn Session>,
    program_nonce: String,
    calls: u64,
    results: Vec<CaseResult>,
    /// Number of tests.
    count: usize,
}

impl Relay {
    fn run(mut self) -> Result<AssertionOutcome, ExecutorError> {
        loop {
            let Some(line) = self.tests.receive()? else { return self.tests_ended() };
            let Some((kind, body)) = message(&line, &self.tests_nonce) else { continue };
            match kind {
                "call" => match self.relay(body)? {
                    Some(reply) => self.tests.send(&reply)?,
                    None => return self.program_ended(),
                },
                "result" => self.results.push(match body {
                    "\"passed\"" => CaseResult::Passed,
                    "\"failed\"" => CaseResult::Wrong,
                    _ => CaseResult::RuntimeError,
                }),
                "done" => return Ok(self.done()),
                "unsupported" => {
                    return Ok(AssertionOutcome::Unusable(format!(
                        "the tests pass {body}, which cannot be sent"
                    )));
                }
                _ => return Ok(AssertionOutcome::Unusable(format!("the tests do not run: {body}"))),
            }
        }
    }

    /// The program's reply to a call; `None` when it ended first.
    fn relay(&mut self, call: &str) -> Result<Option<String>, ExecutorError> {
        let number = self.calls.to_string();
        self.calls += 1;
        self.program.send(&format!("{number} {call}"))?;
        while let Some(line) = self.program.receive()? {
            match message(&line, &self.program_nonce) {
                Some((found, body)) if found == number => return Ok(Some(body.to_owned())),
                _ => {} // noise, or a reply to no call
            }
        }
        Ok(None)
    }

    fn done(self) -> AssertionOutcome {
        if self.calls == 0 {
            return AssertionOutcome::Unusable("the tests call nothing of the program".to_owned());
        }
        self.filled(CaseResult::RuntimeError)
    }

    fn program_ended(self) -> Result<AssertionOutcome, ExecutorError> {
        let Self { program, tests, results, count, .. } = self;
        drop(tests);
        let exit = program.finish()?.exit;
        Ok(filled(results, count, CaseResult::of_early_exit(exit)))
    }

    /// The tests end early only when what the program returned made them: too much, or a loop that never ends.
    fn tests_ended(self) -> Result<AssertionOutcome, ExecutorError> {
        let Self { tests, program, results, count, calls, .. } = self;
        drop(program);
        let outcome = tests.finish()?;
        if calls == 0 {
            let end = match outcome.exit {
                ProgramExit::TimeLimit => "run out of time".to_owned(),
                ProgramExit::OutputLimit => "print too much".to_owned(),
                ProgramExit::Code(code) => format!("end with exit code {code}"),
                ProgramExit::Signal(signal) => format!("end by signal {signal}"),
            };
            let said = String::from_utf8_lossy(&outcome.stderr);
            let last = said.lines().last().unwrap_or_default();
            return Ok(AssertionOutcome::Unusable(format!(
                "the tests {end} before they call the program: {last}"
            )));
        }
        Ok(filled(results, count, CaseResult::of_early_exit(outcome.exit)))
    }

    fn filled(self, missing: CaseResult) -> AssertionOutcome {
        filled(self.results, self.count, missing)
    }
}

fn filled(mut results: Vec<CaseResult>, count: usize, missing: CaseResult) -> AssertionOutcome {
    results.resize(count, missing);
    AssertionOutcome::Ran(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(stub: &str, code: &str) -> String {
        let suite = AssertionTests { setup: vec![], tests: vec![], entry_point: None, stub: stub.to_owned() };
        complete_program(code, &suite)
    }

    #[test]
    fn a_program_follows_what_the_problem_gave() {
        let stub = "def f(x):\n    'x'";
        assert_eq!(completed(stub, "    return x"), format!("{stub}\n    return x"));
        assert_eq!(completed(stub, "def f(x): return x"), format!("{stub}\ndef f(x): return x"));
        assert_eq!(completed("", "x = 1"), "x = 1");
    }

    #[test]
    fn a_stub_without_a_body_is_closed_before_a_program_that_defines_everything_anew() {
        let stub = "def f(x):\n";
        assert_eq!(completed(stub, "    return x"), "def f(x):\n    return x");
        assert_eq!(completed(stub, "def f(x): return x"), "def f(x):\n    pass\ndef f(x): return x");
    }

    #[test]
    fn imports_from_the_future_come_first() {
        let code = "from __future__ import annotations\nx = 1\n";
        assert_eq!(completed("y = 2\n", code), "from __future__ import annotations\ny = 2\nx = 1\n");
    }
}

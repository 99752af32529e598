//! Tests that a program reads and answers by printing: one run each.

use std::thread;

use super::case_result::CaseResult;
use super::compare::OutputComparison;
use super::executor::{Executor, ExecutorError, Job, Limits, Outcome, ProgramExit};
use super::test_suite::StdinTest;

/// Runs the tests in order, `parallel` at a time, and stops behind the first that is not passed if `stop_early`.
///
/// A test is passed when the program ends by itself with exit code 0 and printed what is expected. The expected text stays in
/// this process.
pub(crate) fn run_stdin_tests(
    executor: &dyn Executor,
    code: &str,
    tests: &[StdinTest],
    settings: StdinSettings<'_>,
) -> Result<Vec<CaseResult>, ExecutorError> {
    let mut results = Vec::with_capacity(tests.len());
    for wave in tests.chunks(settings.parallel) {
        let run = |test: &StdinTest| -> Result<CaseResult, ExecutorError> {
            let job = Job::new(code).with_stdin(test.input.as_bytes()).with_limits(settings.limits.clone());
            Ok(judge(&executor.run(&job)?, &test.output, settings.comparison))
        };
        let outcomes: Vec<_> = if let [test] = wave {
            vec![run(test)]
        } else {
            thread::scope(|scope| {
                let running: Vec<_> = wave.iter().map(|test| scope.spawn(|| run(test))).collect();
                running
                    .into_iter()
                    .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                    .collect()
            })
        };
        // In the order of the tests, so that the verdict does not depend on which ends first.
        for outcome in outcomes {
            let result = outcome?;
            results.push(result);
            if settings.stop_early && result != CaseResult::Passed {
                return Ok(results);
            }
        }
    }
    Ok(results)
}

/// How the tests are run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StdinSettings<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) comparison: OutputComparison,
    pub(crate) parallel: usize,
    pub(crate) stop_early: bool,
}

fn judge(outcome: &Outcome, expected: &str, comparison: OutputComparison) -> CaseResult {
    if outcome.exit != ProgramExit::Code(0) {
        return CaseResult::of_early_exit(outcome.exit);
    }
    match std::str::from_utf8(&outcome.stdout) {
        Ok(printed) if comparison.accepts_text(printed, expected) => CaseResult::Passed,
        _ => CaseResult::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn judged(exit: ProgramExit, stdout: &[u8], expected: &str) -> CaseResult {
        let outcome = Outcome::new(exit, stdout.to_vec(), Vec::new(), Duration::ZERO);
        judge(&outcome, expected, OutputComparison::default())
    }

    #[test]
    fn the_exit_counts_before_what_was_printed() {
        assert_eq!(judged(ProgramExit::Code(0), b"1\n", "1"), CaseResult::Passed);
        assert_eq!(judged(ProgramExit::Code(0), b"2\n", "1"), CaseResult::Wrong);
        assert_eq!(judged(ProgramExit::Code(0), b"\xff", "\u{fffd}"), CaseResult::Wrong);
        assert_eq!(judged(ProgramExit::Code(1), b"1\n", "1"), CaseResult::RuntimeError);
        assert_eq!(judged(ProgramExit::Code(1), b"", ""), CaseResult::RuntimeError);
        assert_eq!(judged(ProgramExit::Signal(11), b"1\n", "1"), CaseResult::RuntimeError);
        assert_eq!(judged(ProgramExit::TimeLimit, b"1\n", "1"), CaseResult::TimeLimit);
        assert_eq!(judged(ProgramExit::OutputLimit, b"1\n", "1"), CaseResult::OutputLimit);
    }
}

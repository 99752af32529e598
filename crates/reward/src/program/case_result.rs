//! How a program did on one test.

use super::executor::ProgramExit;

/// How a program did on one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaseResult {
    Passed,
    /// It gave another output than the expected one, or an assertion failed.
    Wrong,
    /// It raised, ended early or with an exit code other than 0, or a signal ended it.
    RuntimeError,
    TimeLimit,
    OutputLimit,
}

impl CaseResult {
    /// What a program that ended before it was done, or with its end still to be judged, has come to.
    pub(crate) fn of_early_exit(exit: ProgramExit) -> Self {
        match exit {
            ProgramExit::TimeLimit => Self::TimeLimit,
            ProgramExit::OutputLimit => Self::OutputLimit,
            ProgramExit::Code(_) | ProgramExit::Signal(_) => Self::RuntimeError,
        }
    }

    /// The rule of a score that this result decides.
    pub(crate) fn rule(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Wrong => "failed_tests",
            Self::RuntimeError => "runtime_error",
            Self::TimeLimit => "time_limit",
            Self::OutputLimit => "output_limit",
        }
    }
}

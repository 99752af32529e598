//! What runs untrusted programs.

use std::{fmt::Debug, time::Duration};

use serde::{Deserialize, Serialize};

/// What one program may use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Processor time, in seconds; above 0, at most 86400. Default 5.
    pub cpu_seconds: f64,
    /// Time from start to end, in seconds, waiting included; above 0, at most 86400. Default 10.
    pub wall_seconds: f64,
    /// Memory, in MiB; 32 to 1048576. Default 512.
    pub memory_mib: u64,
    /// Processes, the program's own included; 1 to 1024. Default 1: it cannot start another.
    pub processes: u64,
    /// Size of a file that it writes, in MiB; up to 1048576. Default 16.
    pub file_mib: u64,
    /// Bytes of standard output and of standard error that are read, in KiB, 1 to 1048576; a program that writes more is stopped.
    /// Default 1024.
    pub output_kib: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu_seconds: 5.0,
            wall_seconds: 10.0,
            memory_mib: 512,
            processes: 1,
            file_mib: 16,
            output_kib: 1024,
        }
    }
}

impl Limits {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`ExecutorError::OutOfRange`], naming the key within the table `limits`.
    pub fn validate(&self) -> Result<(), ExecutorError> {
        let seconds = [("limits.cpu_seconds", self.cpu_seconds), ("limits.wall_seconds", self.wall_seconds)];
        for (key, value) in seconds {
            if !(value > 0.0 && value <= 86_400.0) {
                return Err(ExecutorError::out_of_range(key, value, "above 0 and at most 86400"));
            }
        }
        for (key, value, range, allowed) in [
            ("limits.memory_mib", self.memory_mib, 32..=1 << 20, "32 to 1048576"),
            ("limits.processes", self.processes, 1..=1024, "1 to 1024"),
            ("limits.file_mib", self.file_mib, 0..=1 << 20, "0 to 1048576"),
            ("limits.output_kib", self.output_kib, 1..=1 << 20, "1 to 1048576"),
        ] {
            if !range.contains(&value) {
                return Err(ExecutorError::out_of_range(key, value, allowed));
            }
        }
        Ok(())
    }
}

/// A Python program to run.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Job {
    /// The source text.
    pub program: String,
    /// What it reads from standard input.
    pub stdin: Vec<u8>,
    /// What it may use.
    pub limits: Limits,
}

impl Job {
    /// A program without input, under the default limits.
    pub fn new(program: impl Into<String>) -> Self {
        Self { program: program.into(), stdin: Vec::new(), limits: Limits::default() }
    }

    /// Gives it something to read.
    #[must_use]
    pub fn with_stdin(mut self, stdin: impl Into<Vec<u8>>) -> Self {
        self.stdin = stdin.into();
        self
    }

    /// Sets what it may use.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramExit {
    /// It ended by itself with this exit code.
    Code(i32),
    /// A signal that is no limit of ours ended it.
    Signal(i32),
    /// It used up its processor time or its wall time.
    TimeLimit,
    /// It wrote more than may be read.
    OutputLimit,
}

/// What a program left.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// How it ended.
    pub exit: ProgramExit,
    /// Standard output, at most as long as the limit.
    pub stdout: Vec<u8>,
    /// Standard error, at most as long as the limit.
    pub stderr: Vec<u8>,
    /// Seconds from start to end.
    pub wall: Duration,
}

impl Outcome {
    /// An outcome.
    pub fn new(exit: ProgramExit, stdout: Vec<u8>, stderr: Vec<u8>, wall: Duration) -> Self {
        Self { exit, stdout, stderr, wall }
    }
}

/// Runs Python programs that nobody trusts, each apart from every other and from this process.
///
/// An executor knows nothing of tests and verdicts: expected outputs never enter it, so that a program cannot read them. `Err` is a
/// fault of the executor and says nothing about the program; what the program does wrong is an [`Outcome`].
pub trait Executor: Debug + Send + Sync {
    /// Runs a program from start to end.
    ///
    /// # Errors
    /// When the program could not be run.
    fn run(&self, job: &Job) -> Result<Outcome, ExecutorError>;

    /// Starts a program that is talked to while it runs, line by line over its standard input and output. [`Job::stdin`] is
    /// sent first and the input stays open.
    ///
    /// # Errors
    /// When the program could not be started, or the executor cannot do this.
    fn open(&self, job: &Job) -> Result<Box<dyn Session>, ExecutorError>;

    /// Starts two programs that are talked to in turn. An executor that runs a bounded number at once must take both places
    /// together: if each of several callers held one place and waited for its second, none would ever get it.
    ///
    /// # Errors
    /// As [`Self::open`].
    fn open_pair(&self, first: &Job, second: &Job) -> Result<[Box<dyn Session>; 2], ExecutorError> {
        Ok([self.open(first)?, self.open(second)?])
    }

    /// Name in errors and logs.
    fn name(&self) -> &'static str;
}

const _: Option<&dyn Executor> = None; // object-safe

/// A running program.
///
/// Dropping it kills what is left of the program and waits for that.
pub trait Session: Debug + Send {
    /// Sends a line; a line break is added. A program that no longer reads is not an error: it shows in [`Self::receive`].
    ///
    /// # Errors
    /// On a fault of the executor.
    fn send(&mut self, line: &str) -> Result<(), ExecutorError>;

    /// The next line that the program writes, without its line break; `None` when it ended, or was stopped at a limit, before
    /// one was complete.
    ///
    /// # Errors
    /// On a fault of the executor.
    fn receive(&mut self) -> Result<Option<String>, ExecutorError>;

    /// Closes the input, waits for the end within the limits, and returns what is left: the standard output is what
    /// [`Self::receive`] has not returned.
    ///
    /// # Errors
    /// On a fault of the executor.
    fn finish(self: Box<Self>) -> Result<Outcome, ExecutorError>;
}

/// A fault of an executor, never of a program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecutorError {
    /// The machine lacks what the executor needs.
    #[error("the {executor} executor cannot be used here: {missing}; {fix}")]
    Unavailable {
        /// The executor.
        executor: &'static str,
        /// What is missing.
        missing: String,
        /// What to do.
        fix: String,
    },
    /// The executor cannot do what is asked of it.
    #[error("the {executor} executor cannot {what}; {fix}")]
    Unsupported {
        /// The executor.
        executor: &'static str,
        /// What it cannot do.
        what: String,
        /// What to do.
        fix: String,
    },
    /// A setting is out of range.
    #[error("{key} = {value}: allowed is {allowed}")]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// Starting or watching a program failed.
    #[error("the {executor} executor failed: {what}")]
    Failed {
        /// The executor.
        executor: &'static str,
        /// What went wrong.
        what: String,
        /// Why.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

impl ExecutorError {
    pub(crate) fn out_of_range(key: &'static str, value: impl ToString, allowed: &'static str) -> Self {
        Self::OutOfRange { key, value: value.to_string(), allowed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_out_of_range_is_named_with_what_is_allowed() {
        let refusal = |change: fn(&mut Limits)| {
            let mut limits = Limits::default();
            change(&mut limits);
            limits.validate().unwrap_err().to_string()
        };
        assert_eq!(
            refusal(|limits| limits.cpu_seconds = f64::NAN),
            "limits.cpu_seconds = NaN: allowed is above 0 and at most 86400"
        );
        assert_eq!(
            refusal(|limits| limits.memory_mib = 1),
            "limits.memory_mib = 1: allowed is 32 to 1048576"
        );
        assert_eq!(refusal(|limits| limits.processes = 0), "limits.processes = 0: allowed is 1 to 1024");
        assert!(Limits::default().validate().is_ok());
    }
}

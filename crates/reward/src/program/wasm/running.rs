//! The outside: a program that runs, its pipes and its end.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use super::watch::{TICK, Watch};
use super::{NAME, failed};
use crate::program::{ExecutorError, Outcome, ProgramExit, Session};

/// How long a program that has to stop may take to do so: what the host does for it is not interrupted.
const PATIENCE: Duration = Duration::from_secs(10);

/// Writes what is sent until nothing more can come or nobody can read, then closes the pipe.
pub(crate) fn feed(mut pipe: PipeWriter, lines: &Receiver<Vec<u8>>) {
    while let Ok(bytes) = lines.recv() {
        if pipe.write_all(&bytes).is_err() {
            break;
        }
    }
}

/// Passes on what is read, at most `cap` bytes; what is beyond stops the program, and is read on so that its last write ends.
pub(crate) fn pass_on(mut pipe: PipeReader, cap: u64, watch: &Watch, sender: &Sender<Vec<u8>>) {
    let mut room = usize::try_from(cap).unwrap_or(usize::MAX);
    let mut piece = vec![0; 65_536];
    while let Ok(count @ 1..) = pipe.read(&mut piece) {
        let kept = count.min(room);
        room -= kept;
        if kept < count {
            watch.stop_writing();
        }
        if kept > 0 && sender.send(piece[..kept].to_vec()).is_err() {
            watch.abandon();
        }
    }
}

/// A program that runs. Dropping it stops the program.
pub(crate) struct Running {
    /// Hanging up closes the program's input.
    input: Option<Sender<Vec<u8>>>,
    output: Receiver<Vec<u8>>,
    errors: Receiver<Vec<u8>>,
    end: Receiver<wasmtime::Result<ProgramExit>>,
    watch: Arc<Watch>,
    /// What it has written, of which so many bytes have been handed out.
    written: Vec<u8>,
    taken: usize,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Running").field("watch", &self.watch).finish_non_exhaustive()
    }
}

impl Running {
    pub(crate) fn new(
        input: Sender<Vec<u8>>,
        [output, errors]: [Receiver<Vec<u8>>; 2],
        end: Receiver<wasmtime::Result<ProgramExit>>,
        watch: Arc<Watch>,
    ) -> Self {
        Self { input: Some(input), output, errors, end, watch, written: Vec::new(), taken: 0 }
    }

    /// Takes in a piece of the output; false at its end, and when the program has to stop.
    fn more(&mut self) -> bool {
        loop {
            // In short waits, as too much output or processor time stops the program without a word.
            match self.output.recv_timeout(self.watch.left().min(TICK)) {
                Ok(piece) => {
                    self.written.extend(piece);
                    return true;
                }
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) if self.watch.is_over() => return false,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Closes the input and waits for the end.
    pub(crate) fn end(mut self) -> Result<Outcome, ExecutorError> {
        self.input = None;
        while self.more() {}
        let exit = match self.end.recv_timeout(self.watch.left() + PATIENCE) {
            Ok(Ok(exit)) => exit,
            Ok(Err(error)) => return Err(failed("Python cannot be started", format!("{error:#}"))),
            Err(RecvTimeoutError::Timeout) => return Err(fault("a program cannot be stopped")),
            Err(RecvTimeoutError::Disconnected) => return Err(fault("the thread of a program panicked")),
        };
        let wall = self.watch.elapsed();
        // The pipes are closed, so this ends with what is in them.
        self.written.extend(self.output.iter().flatten());
        let errors = self.errors.iter().flatten().collect();
        let exit = match exit {
            _ if self.watch.was_too_much() => ProgramExit::OutputLimit,
            ProgramExit::Signal(_) if self.watch.was_too_late() => ProgramExit::TimeLimit,
            exit => exit,
        };
        let mut written = std::mem::take(&mut self.written);
        written.drain(..self.taken);
        Ok(Outcome::new(exit, written, errors, wall))
    }
}

impl Session for Running {
    fn send(&mut self, line: &str) -> Result<(), ExecutorError> {
        if let Some(input) = &self.input {
            let _ = input.send(format!("{line}\n").into_bytes()); // it may have ended
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<String>, ExecutorError> {
        let mut seen = self.taken;
        loop {
            let new = self.written.get(seen..).unwrap_or_default();
            if let Some(at) = new.iter().position(|byte| *byte == b'\n') {
                let end = seen + at;
                let line = self.written.get(self.taken..end).unwrap_or_default();
                let line = String::from_utf8_lossy(line).into_owned();
                self.taken = end + 1;
                return Ok(Some(line));
            }
            seen = self.written.len();
            if !self.more() {
                return Ok(None);
            }
        }
    }

    fn finish(self: Box<Self>) -> Result<Outcome, ExecutorError> {
        self.end()
    }
}

impl Drop for Running {
    /// Stops the program at its next tick. Its input ends, so it does not wait there.
    fn drop(&mut self) {
        self.watch.abandon();
        self.input = None;
        let _ = self.end.recv_timeout(PATIENCE);
    }
}

fn fault(what: &str) -> ExecutorError {
    ExecutorError::Failed { executor: NAME, what: what.to_owned(), source: None }
}

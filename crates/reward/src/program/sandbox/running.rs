//! A program that runs: its pipes, its limits, its end.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use super::{Core, process::Process, work_dir::WorkDir};
use crate::program::{ExecutorError, Limits, Outcome, ProgramExit, Session, slots::Slot};

/// How often the size of the directory is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A program with all that belongs to it. Dropping it kills the program, waits for that, removes its directory and frees its
/// slot, in this order, which is the order of the fields.
#[derive(Debug)]
pub(crate) struct Running {
    process: Process,
    stdin: Option<File>,
    /// What is still to be written, from `sent` on.
    pending: Vec<u8>,
    sent: usize,
    close_when_sent: bool,
    stdout: Capture,
    stderr: Capture,
    begun: Instant,
    looked: Instant,
    wall: Duration,
    cpu: Duration,
    stopped: Option<ProgramExit>,
    ended: Option<Outcome>,
    /// Bytes of standard output that a session has handed out.
    taken: usize,
    dir: WorkDir,
    _slot: Slot,
    core: Arc<Core>,
}

impl Running {
    #[expect(clippy::too_many_arguments, reason = "called once, with what was made for this program")]
    pub(crate) fn new(
        core: Arc<Core>,
        slot: Slot,
        dir: WorkDir,
        process: Process,
        [stdin, stdout, stderr]: [OwnedFd; 3],
        begun: Instant,
        limits: &Limits,
        input: Vec<u8>,
    ) -> io::Result<Self> {
        for fd in [&stdin, &stdout, &stderr] {
            fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let most = usize::try_from(limits.output_kib << 10).unwrap_or(usize::MAX);
        Ok(Self {
            process,
            stdin: Some(stdin.into()),
            pending: input,
            sent: 0,
            close_when_sent: false,
            stdout: Capture::new(stdout, most),
            stderr: Capture::new(stderr, most),
            begun,
            looked: begun,
            wall: Duration::from_secs_f64(limits.wall_seconds),
            cpu: Duration::from_secs_f64(limits.cpu_seconds),
            stopped: None,
            ended: None,
            taken: 0,
            dir,
            _slot: slot,
            core,
        })
    }

    /// Closes the input behind what is to be sent, and waits for the end.
    pub(crate) fn finish(mut self) -> Result<Outcome, ExecutorError> {
        self.close_when_sent = true;
        while self.ended.is_none() {
            self.step(LOOK)?;
        }
        let mut outcome = self.ended.take().ok_or_else(|| self.core.failed("watching a program", None))?;
        outcome.stdout.drain(..self.taken.min(outcome.stdout.len()));
        Ok(outcome)
    }

    /// Waits for something to happen, for `most` at most, and deals with it.
    fn step(&mut self, most: Duration) -> Result<(), ExecutorError> {
        self.step_raw(most).map_err(|error| self.core.failed("watching a program", Some(error.into())))
    }

    fn step_raw(&mut self, most: Duration) -> io::Result<()> {
        if self.ended.is_some() {
            return Ok(());
        }
        self.write_some()?;
        let left = self.wall.saturating_sub(self.begun.elapsed());
        // Rounded up, or the last millisecond would be spent turning in circles.
        let millis = most.min(left).as_micros().div_ceil(1000).min(60_000) as u16;
        let mut fds = vec![PollFd::new(self.process.pidfd(), PollFlags::POLLIN)];
        for capture in [&self.stdout, &self.stderr] {
            fds.extend(capture.pipe.as_ref().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
        }
        if self.sent < self.pending.len() {
            fds.extend(self.stdin.as_ref().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)));
        }
        match poll(&mut fds, PollTimeout::from(millis)) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ended = fds.first().and_then(PollFd::any).unwrap_or(false);
        self.stdout.read_some()?;
        self.stderr.read_some()?;

        if ended {
            return self.end();
        }
        let stop = if self.stdout.over || self.stderr.over {
            Some(ProgramExit::OutputLimit)
        } else if self.begun.elapsed() >= self.wall {
            Some(ProgramExit::TimeLimit)
        } else if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            // The kernel's word for a file that is too large, here for all of them together.
            self.dir.is_over(self.core.disk_bytes).then_some(ProgramExit::Signal(libc::SIGXFSZ))
        } else {
            None
        };
        if stop.is_some() {
            self.stopped = stop;
            self.process.kill();
            return self.end();
        }
        Ok(())
    }

    /// Reaps the program and reads what it left in the pipes.
    fn end(&mut self) -> io::Result<()> {
        let ended = self.process.wait()?;
        let wall = self.begun.elapsed();
        self.stdin = None;
        // Nobody is left who could write, so this ends with the pipes' contents.
        self.stdout.read_some()?;
        self.stderr.read_some()?;
        let exit = if let Some(stopped) = self.stopped {
            stopped
        } else if self.stdout.over || self.stderr.over {
            ProgramExit::OutputLimit
        } else if ended.cpu > self.cpu {
            ProgramExit::TimeLimit
        } else {
            self.core.exit(ended)
        };
        let stdout = std::mem::take(&mut self.stdout.bytes);
        let stderr = std::mem::take(&mut self.stderr.bytes);
        self.ended = Some(Outcome::new(exit, stdout, stderr, wall));
        Ok(())
    }

    /// Writes what the pipe takes. A program that does not read is no fault.
    fn write_some(&mut self) -> io::Result<()> {
        while let (Some(pipe), true) = (&mut self.stdin, self.sent < self.pending.len()) {
            match pipe.write(self.pending.get(self.sent..).unwrap_or_default()) {
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.stdin = None,
                Err(error) => return Err(error),
            }
        }
        self.pending.clear();
        self.sent = 0;
        if self.close_when_sent {
            self.stdin = None;
        }
        Ok(())
    }

    fn output(&self) -> &[u8] {
        self.ended.as_ref().map_or(&self.stdout.bytes, |outcome| &outcome.stdout)
    }
}

impl Session for Running {
    fn send(&mut self, line: &str) -> Result<(), ExecutorError> {
        self.pending.extend(line.as_bytes());
        self.pending.push(b'\n');
        self.step(Duration::ZERO)
    }

    fn receive(&mut self) -> Result<Option<String>, ExecutorError> {
        let mut seen = self.taken;
        loop {
            let output = self.output();
            let new = output.get(seen..).unwrap_or_default();
            if let Some(at) = new.iter().position(|byte| *byte == b'\n') {
                let line = output.get(self.taken..seen + at).unwrap_or_default();
                let line = String::from_utf8_lossy(line).into_owned();
                self.taken = seen + at + 1;
                return Ok(Some(line));
            }
            seen = output.len();
            if self.ended.is_some() || self.stdout.pipe.is_none() {
                return Ok(None);
            }
            self.step(LOOK)?;
        }
    }

    fn finish(self: Box<Self>) -> Result<Outcome, ExecutorError> {
        Running::finish(*self)
    }
}

/// The reading end of a pipe and what came out of it.
#[derive(Debug)]
struct Capture {
    /// `None` once all writers have closed it.
    pipe: Option<File>,
    bytes: Vec<u8>,
    most: usize,
    over: bool,
}

impl Capture {
    fn new(pipe: OwnedFd, most: usize) -> Self {
        Self { pipe: Some(pipe.into()), bytes: Vec::new(), most, over: false }
    }

    /// Reads what is there, up to the limit.
    fn read_some(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        while let (Some(pipe), false) = (&mut self.pipe, self.over) {
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    let room = self.most - self.bytes.len();
                    self.over = count > room;
                    self.bytes.extend(buffer.iter().take(count.min(room)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

//! A child process, held by a descriptor instead of its number.
#![expect(
    unsafe_code,
    reason = "signals by descriptor and the use of resources at the end have no safe wrapper"
)]

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use nix::libc;

/// A process that is ours to end and to reap. Dropping it does both.
#[derive(Debug)]
pub(crate) struct Process {
    pidfd: OwnedFd,
    ended: Option<Ended>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    /// Its exit code, if it ended by itself.
    pub(crate) code: Option<i32>,
    /// The signal that ended it otherwise.
    pub(crate) signal: i32,
    /// Processor time of the process and of those that it waited for.
    pub(crate) cpu: Duration,
}

impl Process {
    pub(crate) fn new(pidfd: OwnedFd) -> Self {
        Self { pidfd, ended: None }
    }

    /// Readable once the process has ended.
    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Kills it, and with the first process of a namespace all that are in there. One that has ended is left alone: the
    /// descriptor, unlike a number, never means another process.
    pub(crate) fn kill(&self) {
        // SAFETY: takes numbers and a null pointer. It fails only when the process is gone.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.pidfd.as_raw_fd(),
                libc::SIGKILL,
                std::ptr::null::<u8>(),
                0_u32,
            );
        }
    }

    /// Waits for the end. The first process of a namespace ends only after all others in there.
    pub(crate) fn wait(&mut self) -> io::Result<Ended> {
        if let Some(ended) = self.ended {
            return Ok(ended);
        }
        loop {
            // SAFETY: both structures are plain numbers, for which zero is a value, and the kernel fills them.
            let (result, info, usage) = unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                let mut usage: libc::rusage = std::mem::zeroed();
                let result = libc::syscall(
                    libc::SYS_waitid,
                    libc::P_PIDFD,
                    self.pidfd.as_raw_fd(),
                    &raw mut info,
                    libc::WEXITED | libc::__WALL,
                    &raw mut usage,
                );
                (result, info, usage)
            };
            if result == 0 {
                // SAFETY: `waitid` has filled in the fields of a child that ended.
                let status = unsafe { info.si_status() };
                let exited = info.si_code == libc::CLD_EXITED;
                let ended = Ended {
                    code: exited.then_some(status),
                    signal: if exited { 0 } else { status },
                    cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
                };
                self.ended = Some(ended);
                return Ok(ended);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if let Err(error) = self.wait() {
            tracing::warn!(%error, "a program could not be waited for");
        }
    }
}

fn duration(time: libc::timeval) -> Duration {
    let (seconds, micros) = (time.tv_sec, time.tv_usec);
    Duration::from_secs(seconds.try_into().unwrap_or(0))
        + Duration::from_micros(micros.try_into().unwrap_or(0))
}

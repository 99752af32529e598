//! When a program has to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::program::Limits;

/// How often a running program is asked whether its time is up.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// When a program has to stop, and why it was.
#[derive(Debug)]
pub(crate) struct Watch {
    begun: Instant,
    wall: Duration,
    cpu: Duration,
    too_late: AtomicBool,
    too_much: AtomicBool,
    dropped: AtomicBool,
}

impl Watch {
    /// The program begins now. The limits are in range.
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            begun: Instant::now(),
            wall: Duration::from_secs_f64(limits.wall_seconds),
            cpu: Duration::from_secs_f64(limits.cpu_seconds),
            too_late: AtomicBool::new(false),
            too_much: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
        }
    }

    /// Whether it has to stop. Asked on its own thread, whose processor time is the program's.
    pub(crate) fn is_over_inside(&self) -> bool {
        if thread_cpu_time().is_some_and(|used| used >= self.cpu) {
            self.too_late.store(true, Ordering::Relaxed);
        }
        self.is_over()
    }

    /// Whether it has to stop, asked on any other thread.
    pub(crate) fn is_over(&self) -> bool {
        if self.left().is_zero() {
            self.too_late.store(true, Ordering::Relaxed);
        }
        [&self.too_late, &self.too_much, &self.dropped].iter().any(|flag| flag.load(Ordering::Relaxed))
    }

    /// It has written more than may be read.
    pub(crate) fn stop_writing(&self) {
        self.too_much.store(true, Ordering::Relaxed);
    }

    /// Nobody waits for it any more.
    pub(crate) fn abandon(&self) {
        self.dropped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn was_too_late(&self) -> bool {
        self.too_late.load(Ordering::Relaxed)
    }

    pub(crate) fn was_too_much(&self) -> bool {
        self.too_much.load(Ordering::Relaxed)
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Wall time that is left.
    pub(crate) fn left(&self) -> Duration {
        self.wall.saturating_sub(self.elapsed())
    }
}

/// Processor time of this thread; `None` where it is not known.
#[cfg(target_os = "linux")]
fn thread_cpu_time() -> Option<Duration> {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok().map(Duration::from)
}

#[cfg(not(target_os = "linux"))]
fn thread_cpu_time() -> Option<Duration> {
    None
}

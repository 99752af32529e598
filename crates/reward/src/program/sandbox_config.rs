//! Settings of the executors that shut a process in. They can be read on every system; building one takes Linux.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ExecutorError;

/// Most programs that run at once.
pub(crate) const MAX_SLOTS: usize = 256;

/// Settings of the local sandbox, the executor `local`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LocalSandboxConfig {
    /// The Python 3 that runs programs. Default: the first of `PATH` that the user whom programs run as can use.
    pub python: Option<PathBuf>,
    /// Programs that run at once, 1 to 256; more wait. Default: one a processor core, and two at least.
    pub slots: Option<usize>,
    /// Seconds that a program waits for a slot before that is a fault of the executor; 0 to 1000000. Default 600.
    pub slot_wait_seconds: f64,
    /// Where programs have their directories. Default: the system's directory for temporary files.
    pub directory: Option<PathBuf>,
    /// Size of all files that a program has at once, in MiB. It is looked at every 20 ms; one that has more is stopped and ends
    /// as by the signal SIGXFSZ. Default 64.
    pub disk_mib: u64,
    /// Runs programs even where the kernel has no Landlock: they can then read what their user can. Default false.
    pub without_landlock: bool,
    /// Runs programs even where the kernel has no seccomp: they can then open connections and start processes. Default false.
    pub without_seccomp: bool,
}

impl Default for LocalSandboxConfig {
    fn default() -> Self {
        Self {
            python: None,
            slots: None,
            slot_wait_seconds: 600.0,
            directory: None,
            disk_mib: 64,
            without_landlock: false,
            without_seccomp: false,
        }
    }
}

/// Settings of the executor `bubblewrap`, which mean what they do in [`LocalSandboxConfig`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BubblewrapConfig {
    /// The Python 3 that runs programs. Default: the first of `PATH` that can be used.
    pub python: Option<PathBuf>,
    /// Programs that run at once, 1 to 256. Default: one a processor core, and two at least.
    pub slots: Option<usize>,
    /// Seconds that a program waits for a slot. Default 600.
    pub slot_wait_seconds: f64,
    /// Where programs have their directories. Default: the system's directory for temporary files.
    pub directory: Option<PathBuf>,
    /// Size of all files that a program has at once, in MiB. Default 64.
    pub disk_mib: u64,
}

impl Default for BubblewrapConfig {
    fn default() -> Self {
        Self { python: None, slots: None, slot_wait_seconds: 600.0, directory: None, disk_mib: 64 }
    }
}

/// The settings that both have.
#[derive(Debug)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "what is not checked is read where a sandbox is built")
)]
pub(crate) struct Settings<'a> {
    pub(crate) python: Option<&'a Path>,
    pub(crate) slots: Option<usize>,
    pub(crate) slot_wait_seconds: f64,
    pub(crate) directory: Option<&'a Path>,
    pub(crate) disk_mib: u64,
}

impl Settings<'_> {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`ExecutorError::OutOfRange`], naming the key.
    pub(crate) fn validate(&self) -> Result<(), ExecutorError> {
        check_slots(self.slots, self.slot_wait_seconds)
    }
}

/// Checks the settings of how many programs run at once.
///
/// # Errors
/// [`ExecutorError::OutOfRange`], naming the key.
pub(crate) fn check_slots(slots: Option<usize>, wait_seconds: f64) -> Result<(), ExecutorError> {
    if let Some(slots) = slots.filter(|slots| !(1..=MAX_SLOTS).contains(slots)) {
        return Err(ExecutorError::out_of_range("slots", slots, "1 to 256"));
    }
    if !(0.0..=1e6).contains(&wait_seconds) {
        return Err(ExecutorError::out_of_range("slot_wait_seconds", wait_seconds, "0 to 1000000"));
    }
    Ok(())
}

impl<'a> From<&'a LocalSandboxConfig> for Settings<'a> {
    fn from(config: &'a LocalSandboxConfig) -> Self {
        Self {
            python: config.python.as_deref(),
            slots: config.slots,
            slot_wait_seconds: config.slot_wait_seconds,
            directory: config.directory.as_deref(),
            disk_mib: config.disk_mib,
        }
    }
}

impl<'a> From<&'a BubblewrapConfig> for Settings<'a> {
    fn from(config: &'a BubblewrapConfig) -> Self {
        Self {
            python: config.python.as_deref(),
            slots: config.slots,
            slot_wait_seconds: config.slot_wait_seconds,
            directory: config.directory.as_deref(),
            disk_mib: config.disk_mib,
        }
    }
}

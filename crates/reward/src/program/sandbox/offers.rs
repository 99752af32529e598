//! What the machine has, and what is missing for a sandbox.

use std::path::{Path, PathBuf};

use super::launch::{self, Namespace};
use crate::program::ExecutorError;

/// What a machine offers to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offers {
    /// Newest version of Landlock; 0 where it is missing or switched off.
    pub landlock_abi: u32,
    /// Whether filters of system calls are there.
    pub seccomp: bool,
    /// Whether a process can have a namespace of process numbers of its own.
    pub pid_namespace: bool,
    /// The first `bwrap` of `PATH`.
    pub bubblewrap: Option<PathBuf>,
}

impl Offers {
    /// Asks the kernel, and looks through `PATH`. It starts one process, which ends at once.
    pub fn of_this_machine() -> Self {
        Self {
            landlock_abi: launch::landlock_version(),
            seccomp: launch::has_seccomp(),
            pid_namespace: launch::can_enter(own_namespace()),
            bubblewrap: on_path("bwrap").next(),
        }
    }

    /// Whether a local sandbox can isolate programs here.
    ///
    /// # Errors
    /// [`ExecutorError::Unavailable`], naming what is missing and what to do.
    pub fn check_local(&self, without_landlock: bool, without_seccomp: bool) -> Result<(), ExecutorError> {
        if self.landlock_abi == 0 && !without_landlock {
            return Err(unavailable(
                "local",
                "the kernel has no Landlock, so a program could read every file that its user can",
                "use Linux 5.13 or newer with `landlock` among its security modules (`lsm=` on the kernel's command line), \
                 or set `without_landlock = true` to run programs without this protection",
            ));
        }
        if !self.seccomp && !without_seccomp {
            return Err(unavailable(
                "local",
                "the kernel has no seccomp filters, so a program could open connections and start processes",
                "use a kernel with CONFIG_SECCOMP_FILTER, or set `without_seccomp = true` to run programs without this \
                 protection",
            ));
        }
        Ok(())
    }

    /// The program that the bubblewrap sandbox runs in.
    ///
    /// # Errors
    /// [`ExecutorError::Unavailable`], naming what is missing and what to do.
    pub fn check_bubblewrap(&self) -> Result<&Path, ExecutorError> {
        let Some(bwrap) = &self.bubblewrap else {
            return Err(unavailable(
                "bubblewrap",
                "there is no `bwrap` in PATH",
                "install bubblewrap, or use the local sandbox",
            ));
        };
        if !self.seccomp {
            return Err(unavailable(
                "bubblewrap",
                "the kernel has no seccomp filters",
                "use a kernel with CONFIG_SECCOMP_FILTER",
            ));
        }
        self.check_namespace("bubblewrap")?;
        Ok(bwrap)
    }

    /// Whether programs that start processes can be contained here.
    ///
    /// # Errors
    /// [`ExecutorError::Unavailable`], naming what is missing and what to do.
    pub fn check_namespace(&self, executor: &'static str) -> Result<(), ExecutorError> {
        if self.pid_namespace {
            return Ok(());
        }
        Err(unavailable(
            executor,
            "a process cannot have a namespace of process numbers here, without which processes that a program starts \
             could outlive it",
            "allow user namespaces (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns), or give \
             the container the right to make them; the local sandbox with `limits.processes = 1` does without",
        ))
    }
}

/// The namespace that we can enter by who we are: root needs none of users.
pub(crate) fn own_namespace() -> Namespace {
    if nix::unistd::geteuid().is_root() { Namespace::Pid } else { Namespace::UserPid }
}

/// The files of this name in the directories of `PATH`.
pub(crate) fn on_path(name: &str) -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found: Vec<_> =
        std::env::split_paths(&path).map(|dir| dir.join(name)).filter(|file| file.is_file()).collect();
    found.into_iter()
}

/// A refusal.
pub(crate) fn unavailable(
    executor: &'static str,
    missing: impl Into<String>,
    fix: impl Into<String>,
) -> ExecutorError {
    ExecutorError::Unavailable { executor, missing: missing.into(), fix: fix.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Offers {
        Offers {
            landlock_abi: 1,
            seccomp: true,
            pid_namespace: true,
            bubblewrap: Some("/usr/bin/bwrap".into()),
        }
    }

    fn refusal<T: std::fmt::Debug>(result: Result<T, ExecutorError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn without_landlock_a_program_runs_only_if_the_config_says_so() {
        let offers = Offers { landlock_abi: 0, ..all() };
        let text = refusal(offers.check_local(false, false));
        assert!(text.contains("no Landlock") && text.contains("without_landlock = true"), "{text}");
        assert!(
            refusal(offers.check_local(false, true)).contains("no Landlock"),
            "the other key is no leave"
        );
        assert!(offers.check_local(true, false).is_ok());
        assert!(all().check_local(false, false).is_ok());
    }

    #[test]
    fn without_seccomp_a_program_runs_only_if_the_config_says_so() {
        let offers = Offers { seccomp: false, ..all() };
        let text = refusal(offers.check_local(true, false));
        assert!(text.contains("no seccomp") && text.contains("without_seccomp = true"), "{text}");
        assert!(offers.check_local(false, true).is_ok());
        assert!(refusal(offers.check_bubblewrap()).contains("no seccomp"), "bubblewrap has no such key");
    }

    #[test]
    fn what_bubblewrap_and_processes_need_is_named() {
        let text = refusal(Offers { bubblewrap: None, ..all() }.check_bubblewrap());
        assert!(text.contains("no `bwrap`") && text.contains("install bubblewrap"), "{text}");
        let offers = Offers { pid_namespace: false, ..all() };
        assert!(refusal(offers.check_bubblewrap()).contains("namespace"));
        let text = refusal(offers.check_namespace("local"));
        assert!(text.contains("outlive") && text.contains("limits.processes = 1"), "{text}");
        assert_eq!(all().check_bubblewrap().unwrap(), Path::new("/usr/bin/bwrap"));
    }
}

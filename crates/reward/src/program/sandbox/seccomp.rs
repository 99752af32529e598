//! Which system calls a program can make.
//!
//! A list of what is allowed: a call that is not on it, newer ones included, fails with `ENOSYS`, as if the kernel did not have
//! it, which is what the C library expects before it falls back. What is left out on purpose:
//!
//! - `socket` and all that makes, binds or connects one. A pair of connected stream sockets stays, for event loops; a pair of
//!   datagram sockets does not, since it could send to any named socket of the machine.
//! - Calls that reach other processes: `ptrace`, `process_vm_*`, `pidfd_*`, `kcmp`, `prlimit64` of another, signals to others,
//!   and `F_SETOWN` with `F_SETSIG` of `fcntl`, a signal by a detour.
//! - Calls on paths that Landlock does not see: `chmod`, `chown`, `utime`, extended attributes, `truncate`, opening read-only
//!   with `O_TRUNC`.
//! - What outlives a program: System V and POSIX queues and shared memory; `memfd_create`, whose memory no limit counts.
//! - Kernel surface: `io_uring_*`, `bpf`, `perf_event_open`, `userfaultfd`, `keyctl`, `mount`, `unshare`, `setns`, `chroot`,
//!   `personality`, `open_by_handle_at`, modules, `ioctl` but for a few, namespaces in `clone`, and `clone3`, whose flags a
//!   filter cannot read.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Stands in the filter for the number of the process, which is known only after the fork. Larger than any number of a process.
const OWN_PID: u32 = 0x7a5a_1357;

/// A filter in the form that the kernel takes.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    /// The instructions.
    pub(crate) program: BpfProgram,
    /// Instructions whose constant the child replaces by its own number.
    pub(crate) pid_at: Vec<usize>,
}

impl Filter {
    /// The filter of a program that may start processes or may not, and that may send signals to every process that it can
    /// name, which is for a namespace of its own, or to itself only.
    pub(crate) fn new(processes: bool, signals: bool) -> Result<Self, BackendError> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
            ALWAYS.iter().map(|call| (*call, Vec::new())).collect();
        #[cfg(target_arch = "x86_64")]
        rules.extend(X86_64.iter().map(|call| (*call, Vec::new())));
        conditional(&mut rules)?;
        if signals {
            let free = [libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill];
            rules.extend(free.map(|call| (call, Vec::new())));
        } else {
            for call in [libc::SYS_kill, libc::SYS_tgkill] {
                rules.insert(call, vec![rule(&[(0, SeccompCmpOp::Eq, u64::from(OWN_PID))])?]);
            }
        }
        if processes {
            rules.extend([libc::SYS_setsid, libc::SYS_setpgid].map(|call| (call, Vec::new())));
            #[cfg(target_arch = "x86_64")]
            rules.extend([libc::SYS_fork, libc::SYS_vfork].map(|call| (call, Vec::new())));
            rules.insert(libc::SYS_clone, vec![rule(&[(0, masked(NAMESPACES), 0)])?]);
        } else {
            let thread = libc::CLONE_THREAD as u64;
            rules.insert(libc::SYS_clone, vec![rule(&[(0, masked(NAMESPACES | thread), thread)])?]);
        }
        let filter = SeccompFilter::new(
            rules,
            SeccompAction::Errno(libc::ENOSYS as u32),
            SeccompAction::Allow,
            std::env::consts::ARCH.try_into()?,
        )?;
        let program: BpfProgram = filter.try_into()?;
        let pid_at =
            program.iter().enumerate().filter(|(_, step)| step.k == OWN_PID).map(|(at, _)| at).collect();
        Ok(Self { program, pid_at })
    }

    /// The instructions as bytes, for a program that loads them from a file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.program.len() * 8);
        for step in &self.program {
            bytes.extend(step.code.to_ne_bytes());
            bytes.extend([step.jt, step.jf]);
            bytes.extend(step.k.to_ne_bytes());
        }
        bytes
    }
}

/// New namespaces, and a child that would be ours instead of the caller's.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_PARENT
    | libc::CLONE_PTRACE) as u64;

fn masked(mask: u64) -> SeccompCmpOp {
    SeccompCmpOp::MaskedEq(mask)
}

/// All of the conditions on arguments: (index, comparison, value).
fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, BackendError> {
    let conditions: Result<Vec<_>, _> = conditions
        .iter()
        .map(|(index, compare, value)| {
            SeccompCondition::new(*index, SeccompCmpArgLen::Dword, compare.clone(), *value)
        })
        .collect();
    SeccompRule::new(conditions?)
}

/// Calls that are allowed with some arguments only.
fn conditional(rules: &mut BTreeMap<i64, Vec<SeccompRule>>) -> Result<(), BackendError> {
    let mut one_of = |call: i64, index: u8, values: &[u64]| -> Result<(), BackendError> {
        let found: Result<Vec<_>, _> =
            values.iter().map(|value| rule(&[(index, SeccompCmpOp::Eq, *value)])).collect();
        rules.insert(call, found?);
        Ok(())
    };
    let commands = [
        libc::F_DUPFD,
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_SETFL,
        libc::F_GETLK,
        libc::F_SETLK,
        libc::F_SETLKW,
        libc::F_OFD_GETLK,
        libc::F_OFD_SETLK,
        libc::F_OFD_SETLKW,
        libc::F_GETPIPE_SZ,
    ];
    one_of(libc::SYS_fcntl, 1, &commands.map(|command| command as u64))?;
    let requests =
        [libc::TCGETS, libc::TIOCGWINSZ, libc::FIONREAD, libc::FIONBIO, libc::FIOCLEX, libc::FIONCLEX];
    one_of(libc::SYS_ioctl, 1, &requests)?;
    const PR_SET_VMA: u64 = 0x5356_4d41; // names memory, as newer C libraries and interpreters do
    let options = [libc::PR_SET_NAME as u64, libc::PR_GET_NAME as u64, PR_SET_VMA];
    one_of(libc::SYS_prctl, 0, &options)?;
    one_of(libc::SYS_prlimit64, 0, &[0])?;

    let stream = [(0, SeccompCmpOp::Eq, libc::AF_UNIX as u64), (1, masked(0xf), libc::SOCK_STREAM as u64)];
    rules.insert(libc::SYS_socketpair, vec![rule(&stream)?]);

    for (call, flags) in OPEN {
        let truncate = libc::O_TRUNC as u64;
        let mode = libc::O_ACCMODE as u64;
        rules.insert(
            *call,
            vec![
                rule(&[(*flags, masked(truncate), 0)])?,
                rule(&[(*flags, masked(mode), libc::O_WRONLY as u64)])?,
                rule(&[(*flags, masked(mode), libc::O_RDWR as u64)])?,
            ],
        );
    }
    Ok(())
}

/// Calls that open a file, with the index of their flags.
const OPEN: &[(i64, u8)] = &[
    (libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
];

/// Allowed with any arguments.
#[rustfmt::skip]
const ALWAYS: &[i64] = &[
    // Memory
    libc::SYS_brk, libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mprotect, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_msync,
    libc::SYS_get_mempolicy, libc::SYS_membarrier,
    // Files
    libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64,
    libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_preadv2, libc::SYS_pwritev2, libc::SYS_lseek, libc::SYS_close,
    libc::SYS_close_range, libc::SYS_dup, libc::SYS_dup3, libc::SYS_pipe2, libc::SYS_fstat, libc::SYS_newfstatat,
    libc::SYS_statx, libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_readlinkat,
    libc::SYS_getdents64, libc::SYS_getcwd, libc::SYS_chdir, libc::SYS_fchdir, libc::SYS_mkdirat, libc::SYS_unlinkat,
    libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_ftruncate, libc::SYS_fallocate, libc::SYS_fsync, libc::SYS_fdatasync,
    libc::SYS_flock, libc::SYS_fadvise64, libc::SYS_copy_file_range, libc::SYS_sendfile, libc::SYS_umask,
    // Waiting
    libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2, libc::SYS_eventfd2, libc::SYS_signalfd4, libc::SYS_timerfd_create, libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime, libc::SYS_futex, libc::SYS_futex_waitv, libc::SYS_nanosleep, libc::SYS_clock_nanosleep,
    libc::SYS_restart_syscall, libc::SYS_sched_yield, libc::SYS_wait4, libc::SYS_waitid,
    // A connected pair
    libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_shutdown, libc::SYS_getsockopt,
    libc::SYS_setsockopt, libc::SYS_getsockname, libc::SYS_getpeername,
    // Clocks
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_gettimeofday, libc::SYS_times, libc::SYS_getitimer,
    libc::SYS_setitimer, libc::SYS_timer_create, libc::SYS_timer_settime, libc::SYS_timer_gettime, libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    // Signals to itself
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigpending, libc::SYS_rt_sigtimedwait, libc::SYS_sigaltstack,
    // Itself
    libc::SYS_exit, libc::SYS_exit_group, libc::SYS_execve, libc::SYS_getpid, libc::SYS_gettid, libc::SYS_getppid,
    libc::SYS_getpgid, libc::SYS_getsid, libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid,
    libc::SYS_getresuid, libc::SYS_getresgid, libc::SYS_getgroups, libc::SYS_getrusage, libc::SYS_set_tid_address,
    libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_sched_getaffinity, libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler, libc::SYS_getpriority, libc::SYS_getcpu, libc::SYS_getrandom, libc::SYS_uname,
    libc::SYS_sysinfo,
];

/// Older forms of the same that this architecture has besides.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const X86_64: &[i64] = &[
    libc::SYS_arch_prctl, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_readlink, libc::SYS_getdents,
    libc::SYS_mkdir, libc::SYS_rmdir, libc::SYS_unlink, libc::SYS_rename, libc::SYS_dup2, libc::SYS_pipe, libc::SYS_poll,
    libc::SYS_select, libc::SYS_epoll_create, libc::SYS_epoll_wait, libc::SYS_eventfd, libc::SYS_signalfd, libc::SYS_pause,
    libc::SYS_alarm, libc::SYS_time, libc::SYS_getpgrp,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_number_is_looked_for_in_signals_and_only_without_a_namespace() {
        assert_eq!(Filter::new(false, false).unwrap().pid_at.len(), 2, "kill and tgkill");
        assert!(Filter::new(true, true).unwrap().pid_at.is_empty());
    }

    #[test]
    fn the_bytes_are_eight_an_instruction() {
        let filter = Filter::new(true, true).unwrap();
        assert_eq!(filter.bytes().len(), 8 * filter.program.len());
        assert_eq!(filter.bytes()[4..8], filter.program[0].k.to_ne_bytes());
    }
}

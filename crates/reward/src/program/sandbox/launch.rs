//! Starting a process that gives up its rights before it becomes another program.
#![expect(
    unsafe_code,
    reason = "what a new process does before it runs its program has no safe form; each use says why it holds"
)]

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    ptr,
    sync::mpsc::{Sender, SyncSender, channel, sync_channel},
    thread::JoinHandle,
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    libc::{self, c_char, c_int, c_void},
    sys::signal::SigSet,
    unistd::pipe2,
};

use super::{limits::Rlimit, process::Process, seccomp::Filter};

/// Which namespaces a process is born into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// Ours.
    Shared,
    /// Its own of process numbers.
    Pid,
    /// Its own of process numbers inside one of users, for who is not root.
    UserPid,
}

/// All that the child needs, laid out before it exists.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) executable: CString,
    pub(crate) arguments: Vec<CString>,
    pub(crate) environment: Vec<CString>,
    /// Descriptors 0, 1, 2 of the child, and 3 where there is a fourth.
    pub(crate) descriptors: Vec<OwnedFd>,
    pub(crate) directory: OwnedFd,
    pub(crate) namespace: Namespace,
    /// User and group to become; only root can.
    pub(crate) user: Option<u32>,
    pub(crate) rlimits: Vec<Rlimit>,
    pub(crate) landlock: Option<OwnedFd>,
    pub(crate) seccomp: Option<Filter>,
}

/// Why a process did not come to run its program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    /// Before the process exists.
    #[error("starting a process: {0}")]
    Start(#[from] io::Error),
    /// In the child.
    #[error("{step}: {source}")]
    Child {
        step: &'static str,
        #[source]
        source: io::Error,
    },
    /// The child ended before it said anything.
    #[error("the process ended before its program began")]
    Silent,
}

impl From<nix::Error> for LaunchError {
    fn from(error: nix::Error) -> Self {
        Self::Start(error.into())
    }
}

/// A thread that starts all processes.
///
/// The kernel sends the parent-death signal when the *thread* that made the process ends, so the thread has to outlive every process,
/// which a caller's thread need not. It has all signals blocked, so that no handler of the host ever runs in a child.
#[derive(Debug)]
pub(crate) struct Spawner {
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

type Request = (Box<Launch>, OwnedFd, SyncSender<io::Result<Process>>);

impl Spawner {
    pub(crate) fn new() -> io::Result<Self> {
        let (requests, incoming) = channel::<Request>();
        let thread = std::thread::Builder::new().name("firebrick-spawner".into()).spawn(move || {
            if SigSet::all().thread_block().is_err() {
                return; // every request then fails, as nobody answers
            }
            for (mut launch, status, reply) in incoming {
                let process = start(&mut launch, &status);
                // The child's ends of the pipes, without which their ends would not show.
                drop((launch, status));
                // A caller that no longer waits drops the answer, which kills the process.
                let _ = reply.send(process);
            }
        })?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
    }

    /// Starts the process and returns once it runs its program.
    pub(crate) fn spawn(&self, mut launch: Launch) -> Result<Process, LaunchError> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        // Out of the way of the numbers that the child gives to its own.
        let high = |fd: &OwnedFd| -> Result<OwnedFd, LaunchError> {
            let fd = fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(16))?;
            // SAFETY: `fcntl` has just made this descriptor, and nobody else knows of it.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        };
        launch.descriptors = launch.descriptors.iter().map(high).collect::<Result<_, _>>()?;
        launch.directory = high(&launch.directory)?;
        launch.landlock = launch.landlock.as_ref().map(high).transpose()?;
        let status = high(&write)?;
        drop(write);

        let (reply, answer) = sync_channel(1);
        let gone = || io::Error::other("the thread that starts processes is gone");
        let requests = self.requests.as_ref().ok_or_else(gone)?;
        requests.send((Box::new(launch), status, reply)).map_err(|_| gone())?;
        let process = answer.recv().map_err(|_| gone())??;

        // The descriptor closes on exec: what comes before its end is a failure.
        let mut said = Vec::new();
        io::Read::read_to_end(&mut std::fs::File::from(read), &mut said)?;
        match *said {
            [READY] => Ok(process),
            [READY, step, a, b, c, d] | [step, a, b, c, d] => {
                let source = io::Error::from_raw_os_error(i32::from_ne_bytes([a, b, c, d]));
                Err(LaunchError::Child {
                    step: STEPS.get(usize::from(step)).unwrap_or(&"unknown step"),
                    source,
                })
            }
            _ => Err(LaunchError::Silent),
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            // It only ends early by a panic, which has been reported then.
            let _ = thread.join();
        }
    }
}

const READY: u8 = b'R';

/// What the child does, in this order; the index is what it reports.
const STEPS: [&str; 12] = [
    "a new session",
    "mapping users in a namespace",
    "the standard descriptors",
    "the working directory",
    "giving up the groups",
    "becoming another user",
    "limits",
    "the parent-death signal",
    "closing descriptors",
    "giving up new privileges",
    "Landlock or seccomp",
    "running the program",
];

/// The child's side, laid out so that it needs no memory of its own.
struct Prepared<'a> {
    launch: &'a Launch,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    /// Files of `/proc/self` and what is written into them.
    maps: [(&'static CStr, Vec<u8>); 3],
    filter: Option<Filter>,
    status: RawFd,
}

fn start(launch: &mut Launch, status: &OwnedFd) -> io::Result<Process> {
    let pointers = |strings: &[CString]| {
        strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect::<Vec<_>>()
    };
    let filter = launch.seccomp.take();
    let mut prepared = Prepared {
        arguments: pointers(&launch.arguments),
        environment: pointers(&launch.environment),
        maps: identity_maps(),
        filter,
        status: status.as_raw_fd(),
        launch,
    };
    // SAFETY: `become_program` calls nothing but system calls, through wrappers that take no lock and allocate nothing, and
    // touches only memory that was laid out above.
    unsafe { clone(launch.namespace, || become_program(&mut prepared)) }
}

/// Bytes of stack for what a child does before its program; only touched pages cost anything.
const CHILD_STACK: usize = 256 << 10;

/// Runs `child` in a new process and waits until it has become another program or has ended.
///
/// The child borrows our memory meanwhile instead of getting a copy: to copy the page tables of a trainer that holds gigabytes
/// takes longer than the program itself, and every page that is written afterwards would be copied too.
///
/// # Safety
/// Other threads go on, and may hold any lock: `child` must neither allocate nor lock, nor change what others read.
unsafe fn clone<F: FnOnce()>(namespace: Namespace, child: F) -> io::Result<Process> {
    extern "C" fn enter<F: FnOnce()>(child: *mut c_void) -> c_int {
        // SAFETY: `clone` passes the address of its own `Option<F>`, which outlives the child's use, as it waits.
        if let Some(child) = unsafe { (*child.cast::<Option<F>>()).take() } {
            child();
        }
        127
    }
    let flags = libc::SIGCHLD
        | libc::CLONE_PIDFD
        | libc::CLONE_VM
        | libc::CLONE_VFORK
        | match namespace {
            Namespace::Shared => 0,
            Namespace::Pid => libc::CLONE_NEWPID,
            Namespace::UserPid => libc::CLONE_NEWUSER | libc::CLONE_NEWPID,
        };
    // SAFETY: asks for a flag.
    let dumpable = unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) };
    let mut child = Some(child);
    let mut stack = vec![0_u128; CHILD_STACK / size_of::<u128>()];
    let mut pidfd: c_int = -1;
    // SAFETY: the stack is the child's alone, aligned, and grows down from its end; it and `child` live until the call returns,
    // which is after the child has left our memory (`CLONE_VFORK`). The kernel writes one integer to `pidfd`.
    let pid = unsafe {
        libc::clone(
            enter::<F>,
            stack.as_mut_ptr_range().end.cast(),
            flags,
            (&raw mut child).cast(),
            &raw mut pidfd,
        )
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // While a child of another user shares our memory, the kernel lets nobody look into it, and leaves it at that.
    // SAFETY: sets the flag to what it was.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, dumpable, 0, 0, 0) };
    // SAFETY: the kernel has made this descriptor for us, close-on-exec.
    Ok(Process::new(unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// Whether a process can be born into the namespace and be a user there.
pub(crate) fn can_enter(namespace: Namespace) -> bool {
    let maps = identity_maps();
    // SAFETY: the child makes plain system calls on memory that is laid out, and ends.
    let process = unsafe {
        clone(namespace, || {
            let done = namespace != Namespace::UserPid || write_maps(&maps);
            libc::_exit(i32::from(!done));
        })
    };
    process.and_then(|mut process| process.wait()).is_ok_and(|ended| ended.code == Some(0))
}

/// The newest version of Landlock that the kernel has; 0 for none.
pub(crate) fn landlock_version() -> u32 {
    // SAFETY: with this flag the call only returns a number.
    let found =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0_usize, 1_u32) };
    u32::try_from(found).unwrap_or(0)
}

/// Whether the kernel has filters of system calls that can refuse with an error.
pub(crate) fn has_seccomp() -> bool {
    const SECCOMP_GET_ACTION_AVAIL: u32 = 2;
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call reads one integer.
    unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0_u32, &raw const action) == 0 }
}

/// Maps our user and group to themselves, which needs no right over others.
fn identity_maps() -> [(&'static CStr, Vec<u8>); 3] {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    [
        (c"/proc/self/setgroups", b"deny".to_vec()),
        (c"/proc/self/uid_map", format!("{uid} {uid} 1").into_bytes()),
        (c"/proc/self/gid_map", format!("{gid} {gid} 1").into_bytes()),
    ]
}

/// # Safety
/// Makes system calls only; for the child of `clone`.
unsafe fn write_maps(maps: &[(&'static CStr, Vec<u8>); 3]) -> bool {
    maps.iter().all(|(path, text)| {
        // SAFETY: the path ends in a zero, the text is as long as said.
        unsafe {
            let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            let written = fd >= 0 && libc::write(fd, text.as_ptr().cast(), text.len()) == text.len() as isize;
            libc::close(fd);
            written
        }
    })
}

/// In the child: gives up rights step by step, then runs the program. Returns only to say that it failed.
///
/// # Safety
/// For the child of `clone`. It calls only wrappers of single system calls, which POSIX or their source show to be safe after a
/// fork and between `vfork` and exec: no allocation, no lock, no panic, no state of the process but `errno` of the waiting
/// thread. Numbers of users and groups are set by `syscall`, since the C library's functions would signal threads that the
/// child does not have.
unsafe fn become_program(prepared: &mut Prepared<'_>) {
    let launch = prepared.launch;
    let status = prepared.status;
    // SAFETY: see above; every pointer is to memory of `prepared`, which outlives the calls.
    unsafe {
        let fail = |step: u8| {
            let code = (*libc::__errno_location()).to_ne_bytes();
            let report = [step, code[0], code[1], code[2], code[3]];
            libc::write(status, report.as_ptr().cast(), report.len());
            libc::_exit(127)
        };
        let check = |step: u8, done: bool| {
            if !done {
                fail(step)
            }
        };
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL); // fails for those that have no other way
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());

        check(0, libc::setsid() >= 0);
        if launch.namespace == Namespace::UserPid {
            check(1, write_maps(&prepared.maps));
        }
        for (number, fd) in launch.descriptors.iter().enumerate() {
            check(2, libc::dup2(fd.as_raw_fd(), number as c_int) >= 0);
        }
        check(3, libc::fchdir(launch.directory.as_raw_fd()) == 0);
        if let Some(id) = launch.user {
            check(4, libc::syscall(libc::SYS_setgroups, 0_usize, ptr::null::<u32>()) == 0);
            check(5, libc::syscall(libc::SYS_setresgid, id, id, id) == 0);
            check(5, libc::syscall(libc::SYS_setresuid, id, id, id) == 0);
        }
        for &(resource, soft, hard) in &launch.rlimits {
            let mut now: libc::rlimit = std::mem::zeroed();
            check(6, libc::getrlimit(resource, &mut now) == 0);
            // Who started us may have been given less.
            let limit = libc::rlimit { rlim_cur: soft.min(now.rlim_max), rlim_max: hard.min(now.rlim_max) };
            check(6, libc::setrlimit(resource, &limit) == 0);
        }
        // After the change of user, which clears it. If our parent ended before, the pipe has no reader left.
        check(7, libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) == 0);
        check(7, libc::write(status, [READY].as_ptr().cast(), 1) == 1);
        let first = launch.descriptors.len() as u32;
        let closed = libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        check(8, closed == 0);
        check(9, libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        if let Some(ruleset) = &launch.landlock {
            let fd = ruleset.as_raw_fd();
            check(10, libc::syscall(libc::SYS_landlock_restrict_self, fd, 0_u32) == 0);
        }
        if let Some(filter) = &mut prepared.filter {
            let own = libc::getpid() as u32;
            for &at in &filter.pid_at {
                if let Some(step) = filter.program.get_mut(at) {
                    step.k = own;
                }
            }
            let program = libc::sock_fprog {
                len: filter.program.len() as u16,
                filter: filter.program.as_mut_ptr().cast(), // the same four fields in the C layout
            };
            let set =
                libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0_u32, &raw const program);
            check(10, set == 0);
        }
        libc::execve(launch.executable.as_ptr(), prepared.arguments.as_ptr(), prepared.environment.as_ptr());
        fail(11)
    }
}

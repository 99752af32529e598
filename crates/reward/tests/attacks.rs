//! Programs that try to break out of the sandbox, to bring it down, or to leave something behind.
//!
//! Each runs in every executor that there is, as root and as an ordinary user: a test that is run as root runs itself once
//! more as user 65534.
#![cfg(all(feature = "programs", target_os = "linux"))]

#[path = "attacks/yard.rs"]
mod yard;

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use firebrick_reward::program::{Executor, Job, Limits, LocalSandboxConfig, ProgramExit, Sandbox};
use nix::libc;

use crate::yard::Yard;

/// Says `through` of everything that did not fail.
const BLOCKED: &str = "
import os, sys
def blocked(name, call):
    try:
        result = call()
    except (OSError, MemoryError, AttributeError):
        return
    print('through:', name, result)
";

/// Runs attacks that must all fail, alone and where processes are allowed.
fn all_fail(attacks: &str, processes: &[u64]) {
    let yard = Yard::new();
    let attacks = attacks
        .replace("HOST", &std::process::id().to_string())
        .replace("CANARY", &yard.canary().to_string())
        .replace("OUTSIDE", &yard.outside().display().to_string());
    let program = format!("{BLOCKED}{attacks}\nprint('done')");
    for &processes in processes {
        let limits = Limits { processes, ..Limits::default() };
        yard.run_each(&Job::new(&program).with_limits(limits), |name, outcome| {
            let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
            assert_eq!(text, "done\n", "{name}: {}", String::from_utf8_lossy(&outcome.stderr));
            assert_eq!(outcome.exit, ProgramExit::Code(0), "{name}");
        });
    }
    yard.is_as_before();
}

/// Runs an attack in every executor and looks at how it ended.
fn ends(program: &str, limits: Limits, expected: impl Fn(ProgramExit, &str, &str) -> bool) {
    let yard = Yard::new();
    yard.run_each(&Job::new(program).with_limits(limits), |name, outcome| {
        let (stdout, stderr) =
            (String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
        let end = stdout.char_indices().nth(200).map_or(stdout.len(), |(at, _)| at);
        assert!(
            expected(outcome.exit, &stdout, &stderr),
            "{name}: {:?} {} {stderr}",
            outcome.exit,
            &stdout[..end]
        );
    });
    yard.is_as_before();
}

fn limits(cpu_seconds: f64, wall_seconds: f64, processes: u64) -> Limits {
    Limits { cpu_seconds, wall_seconds, processes, ..Limits::default() }
}

#[test]
fn no_connection_of_any_kind() {
    all_fail(
        r"
import _socket as s
for family in (s.AF_INET, s.AF_INET6, s.AF_UNIX, 16, 17, 40):
    for kind in (s.SOCK_STREAM, s.SOCK_DGRAM, s.SOCK_RAW):
        blocked(f'socket {family} {kind}', lambda: s.socket(family, kind))
blocked('datagrams to a named socket', lambda: s.socketpair(s.AF_UNIX, s.SOCK_DGRAM))
blocked('packets to a named socket', lambda: s.socketpair(s.AF_UNIX, s.SOCK_SEQPACKET))
one, two = s.socketpair(s.AF_UNIX, s.SOCK_STREAM)
blocked('abstract', lambda: one.connect('\0name'))
blocked('elsewhere', lambda: one.sendto(b'x', '/dev/log'))
blocked('bind', lambda: one.bind('\0mine'))
",
        &[1, 4],
    );
}

#[test]
fn nothing_outside_is_read() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let attacks = r"
for path in ('MANIFEST', '/etc/passwd', '/etc/shadow', '/etc/hostname', '/root/.profile', '/bin/sh', 'OUTSIDE/secret',
        'OUTSIDE/open/secret', '/proc/self/mem', '/proc/self/maps', '/proc/self/environ', '/proc/self/cmdline',
        f'/proc/{os.getppid()}/environ', '/proc/HOST/environ', '/proc/HOST/mem', '/proc/CANARY/environ', '/proc/1/cmdline',
        '/proc/meminfo', '/proc/sys/kernel/hostname', '/sys/kernel/mm/transparent_hugepage/enabled', '/dev/mem',
        '/dev/kmsg', '/dev/tty', '../../../../../../../../etc/passwd'):
    blocked(path, lambda: open(path, 'rb').read(16))
# In bubblewrap the way to the own directory can be listed, and nothing else is on it.
own = os.getcwd().split('/') + ['program.py', 'null', 'zero', 'urandom']
def foreign(path):
    found = [name for name in os.listdir(path) if name not in own]
    if not found:
        raise OSError
    return found
for path in ('/home', '/root', '/tmp', 'OUTSIDE', '/proc', '/proc/self/fd', '/proc/HOST/fd', '/proc/HOST/task', '/sys',
        '/dev', '..', '../..', '/dev/shm'):
    blocked(path, lambda: foreign(path))
";
    all_fail(&attacks.replace("MANIFEST", manifest), &[1, 4]);
}

#[test]
fn the_directory_of_another_slot_is_closed() {
    let yard = Yard::with_slots(2);
    for executor in yard.executors() {
        let mut other =
            executor.open(&Job::new("import os; print(os.getcwd(), flush=True); input()")).unwrap();
        let path = other.receive().unwrap().unwrap();
        let program = format!(
            "{BLOCKED}
path = {path:?}
blocked('list', lambda: os.listdir(path))
blocked('parent', lambda: os.listdir(os.path.dirname(path)))
blocked('program', lambda: open(os.path.dirname(path) + '/program.py').read())
blocked('write', lambda: open(path + '/new', 'w'))
print('done')"
        );
        let outcome = executor.run(&Job::new(program)).unwrap();
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), "done\n", "{}", executor.name());
        other.send("end").unwrap();
        assert_eq!(other.finish().unwrap().exit, ProgramExit::Code(0));
    }
    yard.is_as_before();
}

#[test]
fn nothing_outside_is_written() {
    all_fail(
        r"
for path in ('/tmp/firebrick-new', '/dev/shm/firebrick-new', '/var/tmp/firebrick-new', 'OUTSIDE/new', 'OUTSIDE/open/new', '../new',
        '../program.py', '/proc/self/oom_score_adj', '/proc/HOST/oom_score_adj', '/dev/kmsg'):
    blocked(path, lambda: open(path, 'w'))
    blocked(path, lambda: os.mkdir(path + '-dir'))
secret = 'OUTSIDE/open/secret'
blocked('append', lambda: open(secret, 'a'))
blocked('truncate', lambda: os.truncate(secret, 0))
blocked('truncate at reading', lambda: os.open(secret, os.O_RDONLY | os.O_TRUNC))
blocked('unlink', lambda: os.unlink(secret))
blocked('rename', lambda: os.rename(secret, secret + '2'))
blocked('take', lambda: os.rename(secret, 'mine'))
blocked('chmod', lambda: os.chmod(secret, 0))
blocked('chmod of an open file', lambda: os.fchmod(os.open('/dev/null', 0), 0))
blocked('chown', lambda: os.chown(secret, os.getuid(), -1))
blocked('utime', lambda: os.utime(secret, (0, 0)))
blocked('attribute', lambda: os.setxattr(secret, 'user.x', b'1'))
",
        &[1, 4],
    );
}

#[test]
fn links_lead_nowhere() {
    all_fail(
        r"
secret = 'OUTSIDE/open/secret'
blocked('symlink', lambda: (os.symlink(secret, 'soft'), open('soft').read()))
blocked('symlink of a directory', lambda: (os.symlink('OUTSIDE/open', 'dir'), open('dir/new', 'w')))
blocked('hard link', lambda: (os.link(secret, 'hard'), open('hard').read()))
blocked('fifo', lambda: os.mkfifo('fifo'))
blocked('device', lambda: os.mknod('device', 0o20666, os.makedev(1, 1)))
",
        &[1, 4],
    );
}

#[test]
fn no_other_process_is_signalled_or_traced() {
    all_fail(
        &r"
import ctypes, fcntl, signal
call = ctypes.CDLL(None, use_errno=True).syscall
def raw(*args):
    result = call(*args)
    if result < 0:
        raise OSError(ctypes.get_errno())
    return result
for pid in (HOST, CANARY):
    for number in (0, signal.SIGTERM, signal.SIGKILL):
        blocked(f'kill {pid} {number}', lambda: os.kill(pid, number))
        blocked('kill of a group', lambda: os.kill(-pid, number))
        blocked('tkill', lambda: raw(TKILL, pid, number))
        blocked('tgkill', lambda: raw(TGKILL, pid, pid, number))
        blocked('sigqueue', lambda: raw(SIGQUEUE, pid, number, ctypes.create_string_buffer(128)))
    blocked('pidfd', lambda: raw(PIDFD, pid, 0))
    blocked('ptrace', lambda: raw(PTRACE, 16, pid, 0, 0))
    blocked('memory', lambda: raw(VM_READ, pid, 0, 0, 0, 0, 0))
    blocked('priority', lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    blocked('affinity', lambda: os.sched_setaffinity(pid, {0}))
    blocked('limits', lambda: __import__('resource').prlimit(pid, 7, (3, 3)))
    end = os.pipe()[0]
    blocked('owner', lambda: fcntl.fcntl(end, fcntl.F_SETOWN, pid))
    blocked('signal of the owner', lambda: fcntl.fcntl(end, fcntl.F_SETSIG, 9))
blocked('trace me', lambda: raw(PTRACE, 0, 0, 0, 0))
"
        .replace("TGKILL", &libc::SYS_tgkill.to_string())
        .replace("TKILL", &libc::SYS_tkill.to_string())
        .replace("SIGQUEUE", &libc::SYS_rt_sigqueueinfo.to_string())
        .replace("PIDFD", &libc::SYS_pidfd_open.to_string())
        .replace("PTRACE", &libc::SYS_ptrace.to_string())
        .replace("VM_READ", &libc::SYS_process_vm_readv.to_string()),
        &[1, 4],
    );
}

#[test]
fn killing_everything_hits_nobody_outside() {
    // With processes the call succeeds on what is in the namespace, so what counts is that the canary lives.
    for processes in [1, 4] {
        let program = "
import os
for pid in (-1, 0, os.getppid()):
    try:
        os.kill(pid, 15)
    except OSError:
        pass
print('alive')";
        ends(program, limits(5.0, 10.0, processes), |exit, stdout, _| {
            // Of the first process of a namespace its own signals are held off; bubblewrap's program is not the first.
            (exit, stdout) == (ProgramExit::Code(0), "alive\n") || exit == ProgramExit::Signal(15)
        });
    }
}

#[test]
fn calls_that_widen_the_surface_are_not_there() {
    let calls = [
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_bpf,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_memfd_create,
        libc::SYS_open_by_handle_at,
        libc::SYS_name_to_handle_at,
        libc::SYS_personality,
        libc::SYS_setuid,
        libc::SYS_setresuid,
        libc::SYS_setgroups,
        libc::SYS_capset,
        libc::SYS_init_module,
        libc::SYS_kexec_load,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_sethostname,
        libc::SYS_settimeofday,
        libc::SYS_adjtimex,
        libc::SYS_quotactl,
        libc::SYS_acct,
        libc::SYS_syslog,
        libc::SYS_shmget,
        libc::SYS_semget,
        libc::SYS_msgget,
        libc::SYS_mq_open,
        libc::SYS_inotify_init1,
        libc::SYS_fanotify_init,
        libc::SYS_kcmp,
        libc::SYS_execveat,
        libc::SYS_clone3,
        libc::SYS_seccomp,
        libc::SYS_landlock_create_ruleset,
        libc::SYS_openat2,
        libc::SYS_splice,
        libc::SYS_vmsplice,
        libc::SYS_mlock,
        0x4000_0000 + 39,  // getpid of the x32 ABI
        0x4000_0000 + 520, // execve of the x32 ABI
    ];
    all_fail(
        &format!(
            "
import ctypes, errno, fcntl
call = ctypes.CDLL(None, use_errno=True).syscall
def raw(number):
    if call(number, 0, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() != errno.ENOSYS:
        return ctypes.get_errno()
    raise OSError
for number in {calls:?}:
    blocked(f'call {{number}}', lambda: raw(number))
blocked('input of a terminal', lambda: fcntl.ioctl(0, 0x5412, b'x'))
for flags in (0x10000000, 0x20000000, 0x40000000, 0x00020000, 0x02000000):
    blocked(f'clone {{flags:x}}', lambda: os._exit(9) if call({}, flags | 17, 0, 0, 0, 0) == 0 else raw(-1))
",
            libc::SYS_clone
        ),
        &[1, 4],
    );
}

#[test]
fn one_process_starts_no_other() {
    all_fail(
        r"
import subprocess
def fork():
    if os.fork() == 0:
        os._exit(0)
def vfork():
    import ctypes
    if ctypes.CDLL(None).vfork() < 0:
        raise OSError
blocked('fork', fork)
blocked('spawn', lambda: os.posix_spawn(sys.executable, [sys.executable, '-c', ''], {}))
blocked('subprocess', lambda: subprocess.run([sys.executable, '-c', '']))
blocked('system', lambda: fork() if os.system('true') == 0 else fork())
",
        &[1],
    );
}

#[test]
fn no_other_program_is_executed() {
    all_fail(
        r"
for path in ('/bin/sh', '/usr/bin/env', '/bin/bwrap', '/usr/bin/sudo'):
    blocked(path, lambda: os.execv(path, [path, '-c', 'echo through']))
with open('own', 'w') as file:
    file.write('#!/bin/sh\necho through')
blocked('own', lambda: os.execv('./own', ['own']))
",
        &[1, 4],
    );
}

#[test]
fn a_fork_bomb_stays_within_its_processes() {
    let bomb = "
import os, time
count = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60)
        count += 1
except OSError:
    print(count)";
    ends(bomb, limits(5.0, 20.0, 4), |exit, stdout, _| {
        // bubblewrap's own two are counted with them.
        let count: u64 = stdout.trim().parse().unwrap();
        exit == ProgramExit::Code(0) && (1..=5).contains(&count)
    });
    let endless = "
import os
while True:
    try:
        os.fork()
    except OSError:
        pass";
    ends(endless, limits(5.0, 0.5, 8), |exit, _, _| exit == ProgramExit::TimeLimit);
}

#[test]
fn what_goes_on_in_the_background_ends_with_the_program() {
    let daemon = "
import os, signal, time
for number in range(1, 64):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)  # with the pipes open
    os._exit(0)
print('started', flush=True)
os._exit(0)";
    ends(daemon, limits(5.0, 60.0, 8), |exit, stdout, _| {
        (exit, stdout) == (ProgramExit::Code(0), "started\n")
    });
    let zombies = "
import os
for _ in range(3):
    if os.fork() == 0:
        os._exit(0)
print('made')";
    ends(zombies, limits(5.0, 20.0, 8), |exit, stdout, _| (exit, stdout) == (ProgramExit::Code(0), "made\n"));
}

#[test]
fn memory_is_limited_and_a_program_may_notice() {
    let limits = Limits { memory_mib: 256, ..Limits::default() };
    let at_once = "bytearray(1 << 30)";
    let by_and_by = "kept = []\nwhile True: kept.append(bytearray(1 << 20))";
    for program in [at_once, by_and_by, "x = 'x'\nwhile True: x += x"] {
        ends(program, limits.clone(), |exit, _, stderr| {
            exit == ProgramExit::Code(1) && stderr.contains("MemoryError")
        });
    }
    let mapped = "
import mmap
kept = []
while True: kept.append(mmap.mmap(-1, 1 << 24))";
    ends(mapped, limits, |exit, _, _| exit == ProgramExit::Code(1));
}

#[test]
fn a_program_that_writes_too_much_is_stopped() {
    let limits = Limits { output_kib: 64, ..Limits::default() };
    for (number, stream) in ["stdout", "stderr"].into_iter().enumerate() {
        let program = format!("import sys\nwhile True: sys.{stream}.write('x' * 1000)");
        ends(&program, limits.clone(), |exit, stdout, stderr| {
            exit == ProgramExit::OutputLimit && [stdout, stderr][number].len() == 64 << 10
        });
    }
    let exactly = "print('x' * ((64 << 10) - 1))";
    ends(exactly, limits.clone(), |exit, stdout, _| exit == ProgramExit::Code(0) && stdout.len() == 64 << 10);
    let one_more = "print('x' * (64 << 10))";
    ends(one_more, limits, |exit, _, _| exit == ProgramExit::OutputLimit);
}

#[test]
fn time_runs_out_whatever_a_program_ignores() {
    let deaf = "
import signal
for number in range(1, 64):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
";
    let busy = format!("{deaf}\nwhile True: pass");
    let asleep = format!("{deaf}\nimport time\nwhile True: time.sleep(60)");
    for processes in [1, 4] {
        ends(&busy, limits(0.5, 20.0, processes), |exit, _, _| exit == ProgramExit::TimeLimit);
        ends(&asleep, limits(5.0, 0.5, processes), |exit, _, _| exit == ProgramExit::TimeLimit);
    }
    let closed = "import os, time\nos.closerange(0, 64)\ntime.sleep(60)";
    ends(closed, limits(5.0, 0.5, 1), |exit, _, _| exit == ProgramExit::TimeLimit);
}

#[test]
fn a_program_that_closes_everything_ends_as_any_other() {
    let program = "import os\nos.closerange(0, 64)\nos._exit(3)";
    ends(program, limits(5.0, 20.0, 1), |exit, stdout, _| (exit, stdout) == (ProgramExit::Code(3), ""));
}

#[test]
fn files_are_limited_one_by_one_and_together() {
    let one = "
try:
    with open('big', 'wb') as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
except OSError as error:
    print(error.errno)";
    ends(one, Limits { file_mib: 4, ..limits(5.0, 20.0, 1) }, |exit, stdout, _| {
        (exit, stdout) == (ProgramExit::Code(0), "27\n") // EFBIG
    });
    // Then it waits, so that it is there to be found.
    let many = "
import time
for number in range(6):
    open(str(number), 'wb').write(bytes(3 << 20))
time.sleep(600)";
    ends(many, Limits { file_mib: 4, ..limits(5.0, 60.0, 1) }, |exit, _, _| {
        exit == ProgramExit::Signal(libc::SIGXFSZ)
    });
    let deep = "
import os, time
for _ in range(100):
    os.mkdir('d' * 200)
    os.chdir('d' * 200)
os.umask(0o777)
os.mkdir('closed')
time.sleep(600)";
    ends(deep, limits(5.0, 60.0, 1), |exit, _, _| exit == ProgramExit::Signal(libc::SIGXFSZ));
}

#[test]
fn two_hundred_programs_leave_nothing_behind() {
    let yard = Yard::with_slots(2);
    let local = yard.local();
    std::thread::scope(|scope| {
        let work = |first: usize| {
            for number in (first..200).step_by(2) {
                let job = Job::new("print(int(input()) + 1)").with_stdin(number.to_string());
                let outcome = local.run(&job).unwrap();
                assert_eq!(outcome.stdout, format!("{}\n", number + 1).into_bytes());
            }
        };
        scope.spawn(move || work(0));
        scope.spawn(move || work(1));
    });
    yard.is_as_before();
}

/// Is run in a process of its own by the test below, which kills it; does nothing otherwise.
#[test]
fn a_host_that_is_killed() {
    if std::env::var_os("FIREBRICK_KILLED_HOST").is_none() {
        return;
    }
    let executor = Sandbox::local(&LocalSandboxConfig::default()).unwrap();
    // The thread that starts the program ends at once; the program must not end with it.
    let program = "print('started', flush=True)\nimport time\nwhile True: time.sleep(60)";
    let job = Job::new(program).with_limits(limits(5.0, 600.0, 1));
    let mut session = std::thread::spawn(move || executor.open(&job).unwrap()).join().unwrap();
    println!("{}", session.receive().unwrap().unwrap());
    assert_eq!(session.receive().unwrap(), None, "goes on until the host is killed");
}

#[test]
fn a_program_ends_when_its_host_is_killed() {
    let _alone = yard::alone();
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_host_that_is_killed", "--nocapture"])
        .env("FIREBRICK_KILLED_HOST", "1")
        .env("TMPDIR", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(host.stdout.take().unwrap()).lines();
    let started = lines.map(Result::unwrap).any(|line| line.contains("started"));
    assert!(started, "the program runs");
    assert!(!yard::processes(dir.path()).is_empty());
    host.kill().unwrap();
    host.wait().unwrap();
    // The signal is on its way; if it never comes, the program's wall time would be ten minutes.
    let begun = Instant::now();
    while !yard::processes(dir.path()).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the program outlives its host");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn all_of_this_holds_for_an_ordinary_user() {
    if !nix::unistd::geteuid().is_root() {
        return; // this is the ordinary user
    }
    let alone = yard::alone(); // other tests count descriptors
    // The file may lie where that user cannot read it.
    let dir = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o1777)).tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let copy = dir.path().join("attacks");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    // Beside the other tests of this process, so into a file: a pipe would be counted by them.
    let report = dir.path().join("report");
    let mut ordinary = Command::new(&copy)
        .uid(65_534)
        .gid(65_534)
        .env("TMPDIR", dir.path())
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(fs::File::create(&report).unwrap())
        .spawn()
        .unwrap();
    yard::HELPERS.lock().unwrap().push(ordinary.id());
    drop(alone);
    let status = ordinary.wait().unwrap();
    let _alone = yard::alone();
    let text = fs::read_to_string(&report).unwrap();
    drop(dir); // opens directories
    assert!(status.success() && !text.contains(" 0 passed"), "{text}");
}

#[test]
fn processes_are_refused_where_they_cannot_be_contained() {
    let _alone = yard::alone(); // other tests count descriptors
    let mut offers = firebrick_reward::program::Offers::of_this_machine();
    offers.pid_namespace = false;
    let local = Sandbox::local_with_offers(&LocalSandboxConfig::default(), offers).unwrap();
    let error = local.run(&Job::new("").with_limits(limits(5.0, 10.0, 2))).unwrap_err().to_string();
    assert!(error.contains("namespace of process numbers"), "{error}");
    assert_eq!(local.run(&Job::new("")).unwrap().exit, ProgramExit::Code(0));
}

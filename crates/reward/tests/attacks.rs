//! Programs that try to break out of the sandbox and, in `endings`, to outlast it.
//!
//! Each runs in every executor that there is, as root and as an ordinary user: a test that is run as root runs itself once
//! more as user 65534.
#![cfg(all(feature = "programs", target_os = "linux"))]

#[path = "attacks/endings.rs"]
mod endings;
#[path = "attacks/yard.rs"]
mod yard;

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::{Command, Stdio},
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

//! Programs that use more than they may, go on after their end, or outlive their host.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use firebrick_reward::program::{Executor, Job, Limits, LocalSandboxConfig, ProgramExit, Sandbox};
use nix::libc;

use crate::yard::{self, Yard};
use crate::{ends, limits};

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
        .args(["--exact", "endings::a_host_that_is_killed", "--nocapture"])
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

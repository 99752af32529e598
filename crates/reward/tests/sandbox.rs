//! What an honest program finds in the sandbox.
#![cfg(all(feature = "programs", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use firebrick_reward::program::{
    BubblewrapConfig, Executor, ExecutorError, Job, Limits, LocalSandboxConfig, Offers, ProgramExit, Sandbox,
};

fn executors() -> Vec<Sandbox> {
    let mut executors = vec![Sandbox::local(&LocalSandboxConfig::default()).unwrap()];
    if Offers::of_this_machine().check_bubblewrap().is_ok() {
        executors.push(Sandbox::bubblewrap(&BubblewrapConfig::default()).unwrap());
    }
    executors
}

#[test]
fn what_programs_use_works() {
    let program = r"
import asyncio, bisect, collections, ctypes, decimal, fractions, functools, hashlib, heapq, itertools, json, math, os, random
import re, shutil, signal, sqlite3, ssl, statistics, string, struct, sys, tempfile, threading, time, typing, zlib, zoneinfo
import concurrent.futures
with tempfile.TemporaryDirectory() as dir:
    path = os.path.join(dir, 'a', 'b')
    os.makedirs(path)
    with open(os.path.join(path, 'file'), 'w+') as file:
        file.write('12')
    os.rename(os.path.join(path, 'file'), os.path.join(path, 'other'))
    assert open(os.path.join(path, 'other')).read() == '12'
with tempfile.TemporaryFile() as file:
    file.write(b'x')
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert sum(pool.map(lambda x: x * x, range(10))) == 285
threading.stack_size(64 << 20)
sys.setrecursionlimit(10**5)
def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)
deep = []
thread = threading.Thread(target=lambda: deep.append(depth(20_000)))
thread.start()
thread.join()
assert deep == [20_000]
async def wait():
    await asyncio.sleep(0.01)
    return 3
assert asyncio.run(wait()) == 3
class Alarm(Exception):
    pass
def ring(*_):
    raise Alarm
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.01)
try:
    while True:
        pass
except Alarm:
    pass
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.raise_signal(signal.SIGUSR1)
os.kill(os.getpid(), signal.SIGUSR1)
print(sys.stdin.read(), end='')
sys.stderr.write('noted')
sys.exit(7)
";
    for executor in executors() {
        for processes in if Offers::of_this_machine().pid_namespace { &[1, 8][..] } else { &[1] } {
            let processes = *processes;
            let limits = Limits { processes, ..Limits::default() };
            let job = Job::new(program).with_stdin("données\n").with_limits(limits);
            let outcome = executor.run(&job).unwrap();
            let name = format!("{}, {processes}", executor.name());
            assert_eq!(String::from_utf8_lossy(&outcome.stderr), "noted", "{name}");
            assert_eq!(outcome.stdout, "données\n".as_bytes(), "{name}");
            assert_eq!(outcome.exit, ProgramExit::Code(7), "{name}");
        }
    }
}

#[test]
fn processes_that_are_allowed_work() {
    let program = "
import os, subprocess, sys
child = subprocess.run([sys.executable, '-c', 'print(int(input()) + 1)'], input='4', text=True, capture_output=True)
print(child.stdout, child.stderr, sep='', end='')
if (pid := os.fork()) == 0:
    os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
if (pid := os.fork()) == 0:
    import time
    time.sleep(60)
os.kill(pid, 9)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";
    if !Offers::of_this_machine().pid_namespace {
        return; // refused here
    }
    for executor in executors() {
        let job = Job::new(program).with_limits(Limits { processes: 8, ..Limits::default() });
        let outcome = executor.run(&job).unwrap();
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), "5\n5\n-9\n", "{} {stderr}", executor.name());
    }
}

#[test]
fn the_order_of_a_set_is_the_same_in_every_run() {
    let job = Job::new("print({str(number) for number in range(20)})");
    let found: Vec<Vec<u8>> = executors()
        .iter()
        .flat_map(|one| [one.run(&job), one.run(&job)])
        .map(|one| one.unwrap().stdout)
        .collect();
    assert!(found[0].len() > 100 && found.iter().all(|one| *one == found[0]));
}

#[test]
fn a_session_goes_line_by_line() {
    let program = "
import sys
for line in sys.stdin:
    print(line.strip() * 2, flush=True)
print('the rest')
print('of it', end='')
sys.exit(3)";
    for executor in executors() {
        let mut session = executor.open(&Job::new(program).with_stdin("first\n")).unwrap();
        assert_eq!(session.receive().unwrap().as_deref(), Some("firstfirst"));
        session.send("a").unwrap();
        session.send("b").unwrap();
        assert_eq!(session.receive().unwrap().as_deref(), Some("aa"));
        assert_eq!(session.receive().unwrap().as_deref(), Some("bb"));
        let outcome = session.finish().unwrap();
        assert_eq!((outcome.exit, &*outcome.stdout), (ProgramExit::Code(3), &b"the rest\nof it"[..]));
    }
}

#[test]
fn a_session_sees_the_end_and_the_limits() {
    for executor in executors() {
        let mut session = executor.open(&Job::new("print('one')\nprint('half', end='')")).unwrap();
        assert_eq!(session.receive().unwrap().as_deref(), Some("one"));
        assert_eq!(session.receive().unwrap(), None, "the line is not complete");
        session.send("nobody reads this").unwrap();
        assert_eq!(session.finish().unwrap().stdout, b"half");

        let limits = Limits { wall_seconds: 0.5, ..Limits::default() };
        let mut session = executor.open(&Job::new("input()").with_limits(limits)).unwrap();
        assert_eq!(session.receive().unwrap(), None);
        assert_eq!(session.finish().unwrap().exit, ProgramExit::TimeLimit);

        let limits = Limits { output_kib: 1, ..Limits::default() };
        let job = Job::new("while True: print('x' * 99, flush=True)").with_limits(limits);
        let mut session = executor.open(&job).unwrap();
        let mut lines = 0;
        while session.receive().unwrap().is_some() {
            lines += 1;
        }
        assert_eq!(lines, 10, "1024 bytes hold ten lines of 100");
        assert_eq!(session.finish().unwrap().exit, ProgramExit::OutputLimit);
    }
}

#[test]
fn a_session_that_is_dropped_frees_its_slot() {
    let mut config = LocalSandboxConfig::default();
    (config.slots, config.slot_wait_seconds) = (Some(1), 0.0);
    let local = Sandbox::local(&config).unwrap();
    let session = local.open(&Job::new("while True: pass")).unwrap();
    let error = local.run(&Job::new("")).unwrap_err();
    assert!(matches!(error, ExecutorError::Failed { .. }) && error.to_string().contains("slot_wait_seconds"));
    drop(session);
    assert_eq!(local.run(&Job::new("")).unwrap().exit, ProgramExit::Code(0));
}

#[test]
fn input_that_nobody_reads_is_no_fault() {
    for executor in executors() {
        let job = Job::new("import os\nos.close(0)\nprint('done')").with_stdin(vec![b'x'; 4 << 20]);
        let outcome = executor.run(&job).unwrap();
        assert_eq!(
            (outcome.exit, &*outcome.stdout),
            (ProgramExit::Code(0), &b"done\n"[..]),
            "{}",
            executor.name()
        );
    }
}

#[test]
fn a_signal_and_a_crash_are_told_from_an_exit() {
    for executor in executors() {
        let ends = [
            ("import os\nos.kill(os.getpid(), 9)", ProgramExit::Signal(9)),
            ("import ctypes\nctypes.string_at(0)", ProgramExit::Signal(11)),
            ("raise SystemExit(0)", ProgramExit::Code(0)),
            ("1 / 0", ProgramExit::Code(1)),
            ("no python", ProgramExit::Code(1)),
        ];
        for (program, expected) in ends {
            assert_eq!(
                executor.run(&Job::new(program)).unwrap().exit,
                expected,
                "{} {program}",
                executor.name()
            );
        }
    }
}

#[test]
fn pairs_are_opened_together_so_that_nobody_waits_for_a_second_place() {
    let sandbox = |slots| {
        let config = LocalSandboxConfig {
            slots: Some(slots),
            slot_wait_seconds: 30.0,
            ..LocalSandboxConfig::default()
        };
        Sandbox::local(&config).unwrap()
    };
    let echo = Job::new("print(input(), flush=True)");
    let local = sandbox(3);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let [mut first, mut second] = local.open_pair(&echo, &echo).unwrap();
                first.send("ping").unwrap();
                let said = first.receive().unwrap().unwrap();
                second.send(&said).unwrap();
                assert_eq!(second.receive().unwrap().as_deref(), Some("ping"));
            });
        }
    });
    let error = sandbox(1).open_pair(&echo, &echo).unwrap_err().to_string();
    assert!(error.starts_with("slots = 1: allowed is 2 to 256 where tests assert"), "{error}");
}

#[test]
fn a_machine_without_landlock_is_used_only_if_the_config_says_so() {
    let mut offers = Offers::of_this_machine();
    offers.landlock_abi = 0;
    let mut config = LocalSandboxConfig::default();
    let error = Sandbox::local_with_offers(&config, offers.clone()).unwrap_err();
    assert!(matches!(error, ExecutorError::Unavailable { .. }), "{error}");
    config.without_landlock = true;
    let local = Sandbox::local_with_offers(&config, offers).unwrap();
    let outcome = local.run(&Job::new("print(len(open('/etc/passwd').read()) > 0)")).unwrap();
    assert_eq!(outcome.stdout, b"True\n", "what the key gives away");
}

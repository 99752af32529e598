//! Programs that try to be scored right without being right: each scores 0, and none is left unscored.
//!
//! In the local sandbox and, built with the feature `wasm`, in the Python that `FIREBRICK_PYTHON_WASM` names.

#![cfg(all(feature = "programs", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod support;

use firebrick_core::{Prompt, RewardVerifier, Sample, Verdict};
use firebrick_reward::program::{CodeConfig, CodeVerifier, Limits};
#[cfg(feature = "wasm")]
use firebrick_reward::program::{WasmConfig, WasmPython};
use serde_json::{Value, json};
use support::sandbox;

fn local() -> CodeVerifier {
    let limits = Limits { wall_seconds: 4.0, ..Limits::default() };
    CodeConfig { limits, ..CodeConfig::default() }.build_with(sandbox()).unwrap()
}

#[cfg(not(feature = "wasm"))]
fn wasm() -> Option<CodeVerifier> {
    None
}

#[cfg(feature = "wasm")]
fn wasm() -> Option<CodeVerifier> {
    let python = WasmPython::new(&WasmConfig::new(std::env::var_os("FIREBRICK_PYTHON_WASM")?)).unwrap();
    // So long that a program is at the end of its tricks, and not of its time.
    let limits = Limits { wall_seconds: 30.0, cpu_seconds: 15.0, ..Limits::default() };
    Some(CodeConfig { limits, ..CodeConfig::default() }.build_with(std::sync::Arc::new(python)).unwrap())
}

fn reward_of(verifier: &CodeVerifier, tests: &Value, code: &str) -> f64 {
    let prompt = Prompt::new("p", "?", tests.to_string());
    let response = format!("```python\n{code}\n```");
    match verifier.verify(&Sample::of_text(&prompt, &response)) {
        Ok(Verdict::Scored(score)) => score.reward,
        unscored => panic!("{unscored:?} for\n{code}"),
    }
}

/// The reward, which is the same wherever the program runs.
fn reward(tests: &Value, code: &str) -> f64 {
    let reward = reward_of(&local(), tests, code);
    if let Some(wasm) = wasm() {
        assert_eq!(reward_of(&wasm, tests, code), reward, "wasm, {tests}\n{code}");
    }
    reward
}

/// A problem whose answer is 7351 in every mode; a call `f(2)` must return it.
fn printed() -> Value {
    json!({"inputs": ["2\n"], "outputs": ["7351\n"]})
}

fn called() -> Value {
    json!({"inputs": ["2"], "outputs": ["7351"], "fn_name": "f"})
}

fn mbpp() -> Value {
    json!({"test_list": ["assert f(2) == 7351"]})
}

fn human_eval() -> Value {
    json!({"prompt": "def f(x):\n    'x'\n", "entry_point": "f",
        "test": "def check(candidate):\n    SECRET = 7351\n    assert candidate(2) == SECRET\n"})
}

fn all_modes() -> [Value; 4] {
    [printed(), called(), mbpp(), human_eval()]
}

fn scores_zero(tests: &[Value], programs: &[&str]) {
    for tests in tests {
        for code in programs {
            assert_eq!(reward(tests, code), 0.0, "{tests}\n{code}");
        }
    }
}

#[test]
fn a_right_program_scores_in_spite_of_the_noise_that_it_makes() {
    let noise = "import sys, os\nprint('noise', flush=True)\nsys.stdout.write('{\"v\": 1}')\nos.write(1, b'raw\\n')\nos.write(2, b'err')\n";
    let body = "def f(x):\n    print('in the call')\n    os.write(1, b'n0 0 x\\n')\n    return 7351\n";
    for tests in [called(), mbpp(), human_eval()] {
        assert_eq!(reward(&tests, &format!("{noise}{body}")), 1.0, "{tests}");
    }
    assert_eq!(reward(&printed(), "import sys\nprint('noise', file=sys.stderr)\nprint(7351)"), 1.0);
    let left_behind = "import atexit, threading, time\natexit.register(print, 'bye')\n\
        threading.Thread(target=time.sleep, args=(1000,), daemon=False).start()\ndef f(x): return 7351";
    assert_eq!(reward_of(&local(), &called(), left_behind), 1.0);
}

#[test]
fn ending_early_in_any_way_earns_nothing() {
    let ends = [
        "import os\nos._exit(0)",
        "import sys\nsys.exit(0)",
        "raise SystemExit(0)",
        "exit()",
        "raise KeyboardInterrupt",
        "raise ValueError('7351')",
        "raise StopIteration",
        "raise AssertionError",
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
        "import sys\nsys.setrecursionlimit(10**4)\ndef g(): return g()\ng()",
        "1 / 0",
        "def (",
        "",
    ];
    for code in ends {
        scores_zero(&all_modes(), &[&format!("pass\n{code}")]);
        let inside = code.replace('\n', "\n    ");
        if !code.is_empty() && code != "def (" {
            scores_zero(&[called(), mbpp(), human_eval()], &[&format!("def f(x):\n    {inside}")]);
        }
    }
}

#[test]
fn printing_what_looks_like_a_verdict_earns_nothing() {
    let lines = r#"
import os, sys
for nonce in ['', 'n', 'n' + '0' * 32, 'NONCE']:
    for line in [nonce + ' 0 {"v": 7351}', nonce + ' result "passed"', nonce + ' done null', 'passed', 'OK', '{"v": 7351}']:
        print('\n' + line, flush=True)
        for descriptor in range(1, 12):
            try: os.write(descriptor, ('\n' + line + '\n').encode())
            except OSError: pass
def f(x): return 0
"#;
    scores_zero(&all_modes(), &[lines]);
}

/// Frames of the harness hold its nonce, so a program can write messages that look right. They state what was returned, nothing
/// more, and what is expected is not there to be stated.
#[test]
fn a_program_that_finds_the_nonce_has_found_nothing() {
    let guesses = r#"
import gc, os, sys
def f(x):
    frame, words = sys._getframe(), set()
    while frame is not None:
        words |= {v for v in list(frame.f_locals.values()) if isinstance(v, str)}
        frame = frame.f_back
    for nonce in [w for w in words if w.startswith('n') and len(w) == 33]:
        for body in ['0 {"v": 1}', 'result "passed"', 'result "passed"', 'done null', '1 {"v": 1}']:
            for descriptor in range(1, 12):
                try: os.write(descriptor, ('\n' + nonce + ' ' + body + '\n').encode())
                except OSError: pass
    return 0
"#;
    scores_zero(&[called(), mbpp(), human_eval()], &[guesses]);
}

/// Looks through frames, every object, files, arguments and the environment for what is expected, and returns it.
#[test]
fn what_is_expected_is_nowhere_in_the_process() {
    let search = r#"
import gc, glob, inspect, os, sys, types
def texts():
    yield from sys.argv
    yield from os.environ.values()
    for frame in list(sys._current_frames().values()):
        while frame is not None:
            yield repr(frame.f_locals)[:1000000]
            try: yield inspect.getsource(frame)
            except Exception: pass
            frame = frame.f_back
    for module in list(sys.modules.values()):
        path = getattr(module, '__file__', None)
        if path and 'firebrick' in path:
            yield open(path).read()
    for value in gc.get_objects():
        if type(value) in (dict, list, tuple) and len(value) < 1000:
            try: yield repr(value)[:100000]
            except Exception: pass
    for path in ['/proc/self/environ', '/proc/self/cmdline', '/proc/self/maps']:
        try: yield open(path, errors='replace').read()
        except Exception: pass
base = 918273645546371
mark = ['candidate(2)', '==']
def f(x=2):
    return base + 1 if any(str(base + 1) in t or ' '.join(mark) in t for t in texts()) else 0
"#;
    let secret = "918273645546372";
    let of_secret =
        |tests: Value| -> Value { serde_json::from_str(&tests.to_string().replace("7351", secret)).unwrap() };
    scores_zero(&[called(), mbpp(), human_eval()].map(of_secret), &[search]);
    scores_zero(&[of_secret(printed())], &[&format!("{search}print(f())")]);
    // The search finds what is there: here the argument of the call.
    let tests = json!({"inputs": [secret], "outputs": [secret], "fn_name": "f"});
    assert_eq!(reward(&tests, search), 1.0);
}

#[test]
fn objects_that_equal_everything_equal_nothing() {
    let objects = [
        "class A:\n    def __eq__(self, o): return True\n    __hash__ = None\ndef f(x): return A()",
        "class A(int):\n    def __eq__(self, o): return True\n    def __ne__(self, o): return False\n    __hash__ = int.__hash__\ndef f(x): return A(0)",
        "class A(str):\n    def __eq__(self, o): return True\ndef f(x): return A('no')",
        "class A(list):\n    def __eq__(self, o): return True\n    def __len__(self): return 1\ndef f(x): return A([0])",
        "class A(float):\n    def __eq__(self, o): return True\ndef f(x): return A('nan')",
        "class A(dict):\n    def __eq__(self, o): return True\n    def items(self): return 1\ndef f(x): return A()",
        "class A(type):\n    def __eq__(self, o): return True\nclass B(metaclass=A): pass\ndef f(x): return B",
        "class A(BaseException):\n    def __eq__(self, o): return True\ndef f(x): raise A()",
        "from unittest.mock import ANY\ndef f(x): return ANY",
    ];
    scores_zero(&[called(), mbpp(), human_eval()], &objects);
}

#[test]
fn patching_python_in_the_own_process_changes_no_verdict() {
    let patches = [
        "import builtins\nbuiltins.print = lambda *a, **k: None\nbuiltins.isinstance = lambda *a: True\nbuiltins.issubclass = lambda *a: True\ndef f(x): return 0",
        "import json\njson.dumps = lambda *a, **k: '{\"v\": true}'\njson.loads = json.dumps\ndef f(x): return 0",
        "import sys\nclass W:\n    def write(self, s): return len(s)\n    def flush(self): pass\nsys.stdout = sys.stderr = sys.__stdout__ = W()\ndef f(x): return 0",
        "import __main__\nfor n in list(vars(__main__)):\n    if callable(getattr(__main__, n)) and not n.startswith('__'): setattr(__main__, n, lambda *a, **k: True)\ndef f(x): return 0",
        "import atexit, os\natexit.register(os.write, 1, b'7350')\natexit.register(os._exit, 0)\ndef f(x): return 0",
        "import builtins\nbuiltins.AssertionError = ValueError\nclass AssertionError(Exception): pass\ndef f(x): raise AssertionError()",
        "import random, os, sys\nsys.modules['tests'] = sys\nos._exit = lambda *a: None\ndef f(x): return 0",
        "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)\nsys.setrecursionlimit(60)\ndef f(x): return 0",
        "import tests\ndef f(x): return tests.SECRET",
        "from __main__ import check\ncheck = lambda c: None\ndef check(c): pass\ndef f(x): return 0",
        "import signal, os\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\ndef f(x): return 0",
    ];
    scores_zero(&all_modes(), &patches);
}

#[test]
fn closing_and_shuffling_descriptors_earns_nothing() {
    let programs = [
        "import os\nos.closerange(0, 100)\ndef f(x): return 7351",
        "import os\ndef f(x):\n    os.closerange(0, 100)\n    return 7351",
        "import os\ndef f(x):\n    for d in range(3, 20):\n        try: os.dup2(2, d)\n        except OSError: pass\n    return 7351",
        "import os, sys\nsys.stdin.close(); sys.stdout.close()\nos.closerange(0, 50)\nos._exit(0)",
    ];
    scores_zero(&all_modes(), &programs);
}

#[test]
fn results_that_are_no_plain_values_score_zero() {
    let results = [
        "import itertools\ndef f(x): return itertools.count()",
        "def f(x):\n    while True: yield 7351",
        "def f(x):\n    yield 7351",
        "def f(x):\n    r = 7351\n    for _ in range(100_000): r = [r]\n    return r",
        "def f(x):\n    r = []\n    r.append(r)\n    return r",
        "def f(x):\n    r = {}\n    r[0] = r\n    return r",
        "def f(x):\n    r = [7351]\n    for _ in range(64): r = [r, r]\n    return r",
        "def f(x): return [0] * 3_000_000",
        "def f(x): return 'x' * 5_000_000",
        "def f(x): return 10 ** 100_000",
        "def f(x): return 1 << 40_000_000",
        "def f(x): return '\\ud800'",
        "def f(x): return float('nan')",
        "def f(x): return f",
        "def f(x): return open",
        "async def f(x): return 7351",
        "class f:\n    def __init__(self, x): pass",
        "f = 7351",
    ];
    scores_zero(&[called(), mbpp(), human_eval()], &results);
}

/// Messages of the program's process that the relay or the process of the tests could stumble over.
#[test]
fn hostile_replies_score_zero_and_break_nothing() {
    let reply = |body: &str| {
        format!(
            "import sys, os\ndef f(x):\n    frame, found = sys._getframe(), None\n    while frame is not None:\n        \
             found = frame.f_locals.get('nonce', found); frame = frame.f_back\n    body = {body}\n    for d in range(1, 12):\n        \
             try: os.write(d, ('\\n' + found + ' 0 ' + body + '\\n').encode())\n        except OSError: pass\n    os._exit(0)"
        )
    };
    let bodies = [
        "'[' * 200_000",
        "''",
        "'null'",
        "'{}'",
        "'{\"v\": {\"q\": 1}}'",
        "'{\"v\": {\"i\": \"zz\"}}'",
        "'{\"v\": {\"i\": 5}}'",
        "'{\"v\": {\"d\": [[[], 1]]}}'",
        "'{\"v\": {\"r\": [0, 1, 0]}}'",
        "'{\"v\": 1, \"a\": [], \"k\": {}}'",
        "'{\"v\": 1, \"a\": [5], \"k\": {\"z\": 1}}'",
        "'{\"e\": 5}'",
        "'{\"e\": [\"SystemExit\", \"0\"]}'",
        "'{\"e\": [\"StopIteration\", \"0\"]}'",
        "'{\"e\": [\"__import__\", \"os\"]}'",
        "'{\"e\": [[], {}]}'",
        "'9' * 5000",
        "'{\"v\": ' + '9' * 30_000 + '}'",
        "'\\x00\\xff'",
    ];
    for body in bodies {
        scores_zero(&[called(), mbpp(), human_eval()], &[&reply(body)]);
    }
}

/// `map` stops at a `StopIteration` of the function that it calls; the tests would then find nothing wrong.
#[test]
fn an_exception_cannot_end_a_loop_of_the_tests() {
    let tests = [
        json!({"test_list": ["assert all(map(lambda x: f(x) == 7351, [1, 2]))"]}),
        json!({"test_list": ["assert list(map(f, [1, 2])) == []"]}),
        json!({"test_list": ["for x in iter(f, 0):\n    assert x == 7351"]}),
    ];
    let programs = [
        "def f(*x): raise StopIteration",
        "class StopIteration(StopIteration): pass\ndef f(*x): raise StopIteration()",
        "def f(*x): raise GeneratorExit",
        "def f(*x): raise StopAsyncIteration",
    ];
    scores_zero(&tests, &programs);
}

#[test]
fn writing_files_for_the_harness_to_find_earns_nothing() {
    let writes = r#"
import os, tempfile
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for name in ['result.json', 'verdict', 'json.py', 'random.py', 'tests.py', 'sitecustomize.py']:
        open(name, 'w').write('passed = True')
def f(x): return 0
"#;
    scores_zero(&all_modes(), &[writes]);
}

//! Verdicts on programs, from the response and the data row to the score.

#![cfg(all(feature = "programs", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod support;

use firebrick_core::{Prompt, RewardVerifier, Sample, UnscoredReason, Verdict};
use firebrick_reward::program::{
    CodeBlock, CodeConfig, CodeVerifier, ExecutorConfig, Limits, OutputComparison, ProgramScore,
};
use serde_json::json;
use support::sandbox;

fn verifier(config: CodeConfig) -> CodeVerifier {
    config.build_with(sandbox()).unwrap()
}

fn verdict_of(config: CodeConfig, tests: &serde_json::Value, code: &str) -> Verdict {
    let prompt = Prompt::new("p", "?", tests.to_string());
    let response = format!("Here:\n```python\n{code}\n```\n");
    verifier(config).verify(&Sample::of_text(&prompt, &response)).unwrap()
}

/// Reward and rule under the default settings.
fn graded(tests: &serde_json::Value, code: &str) -> (f64, &'static str) {
    score(verdict_of(CodeConfig::default(), tests, code))
}

fn score(verdict: Verdict) -> (f64, &'static str) {
    match verdict {
        Verdict::Scored(score) => (score.reward, score.rule),
        Verdict::Unscored(reason) => panic!("unscored: {reason:?}"),
    }
}

fn unscored(tests: &serde_json::Value, code: &str) -> String {
    match verdict_of(CodeConfig::default(), tests, code) {
        Verdict::Unscored(UnscoredReason::BadReference(message)) => message,
        verdict => panic!("{verdict:?}"),
    }
}

const PASSED: (f64, &str) = (1.0, "passed");
const WRONG: (f64, &str) = (0.0, "failed_tests");
const RAISED: (f64, &str) = (0.0, "runtime_error");

#[test]
fn a_program_that_reads_and_prints_is_judged_on_each_test() {
    let tests = json!({"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7"]});
    assert_eq!(graded(&tests, "print(sum(map(int, input().split())))"), PASSED);
    assert_eq!(graded(&tests, "a, b = map(int, input().split())\nprint(a * b + 1)"), WRONG);
    assert_eq!(
        graded(&tests, "if __name__ == '__main__':\n    print(sum(map(int, input().split())), '.0', sep='')"),
        PASSED
    );
    assert_eq!(graded(&tests, "print(input(), input())"), RAISED);
    assert_eq!(graded(&tests, "def f(:"), RAISED);
}

/// verl #7853.
#[test]
fn an_exception_is_wrong_also_where_nothing_is_expected() {
    let tests = json!({"inputs": [""], "outputs": [""]});
    assert_eq!(graded(&tests, "raise ValueError"), RAISED);
    assert_eq!(graded(&tests, "import sys\nsys.exit(1)"), RAISED);
    assert_eq!(graded(&tests, "pass"), PASSED);
}

#[test]
fn time_and_output_beyond_the_limits_score_zero_under_rules_of_their_own() {
    let config = || CodeConfig {
        limits: Limits { wall_seconds: 1.0, output_kib: 64, ..Limits::default() },
        ..CodeConfig::default()
    };
    let printed = json!({"inputs": [""], "outputs": ["1"]});
    let called = json!({"inputs": ["1"], "outputs": ["1"], "fn_name": "f"});
    let asserted = json!({"test_list": ["assert f(1) == 1"]});
    let endless = "def f(x):\n    while True: pass\nf(1)";
    for tests in [&printed, &called, &asserted] {
        assert_eq!(score(verdict_of(config(), tests, endless)), (0.0, "time_limit"), "{tests}");
    }
    assert_eq!(score(verdict_of(config(), &printed, "print('x' * 100_000)")), (0.0, "output_limit"));
    let huge = "def f(x): return 'x' * 100_000";
    assert_eq!(score(verdict_of(config(), &called, huge)), (0.0, "output_limit"));
    assert_eq!(score(verdict_of(config(), &asserted, huge)), (0.0, "output_limit"));
}

#[test]
fn a_function_is_called_with_the_arguments_of_each_test() {
    let tests = json!({"inputs": ["[1, 2]\n3", "[]\n5"], "outputs": ["[1, 2, 3]", "[5]"], "fn_name": "push"});
    assert_eq!(graded(&tests, "def push(xs, x):\n    xs.append(x)\n    return xs"), PASSED);
    assert_eq!(graded(&tests, "def push(xs, x):\n    return tuple(xs) + (x,)"), PASSED);
    assert_eq!(graded(&tests, "def push(xs, x):\n    return xs"), WRONG);
    assert_eq!(graded(&tests, "def push(xs):\n    return xs"), RAISED);
    assert_eq!(graded(&tests, "def pull(xs, x): pass"), RAISED);
    let method = "class Solution:\n    def __init__(self): self.seen = []\n    def push(self, xs: List[int], x: int) -> List[int]:\n        self.seen += xs + [x]\n        return self.seen";
    assert_eq!(graded(&tests, method), PASSED, "a new object a call, and the usual imports");
}

#[test]
fn arguments_and_results_are_carried_exactly() {
    let big = "123456789012345678901234567890123456789012345678901234567890";
    let row = |input: &str, output: &str| json!({"inputs": [input], "outputs": [output], "fn_name": "f"});
    assert_eq!(graded(&row(big, &format!("{big}1")), "def f(x): return x * 10 + 1"), PASSED);
    assert_eq!(graded(&row("\"é😀\\u0000\"", "\"\\u0000😀é\""), "def f(s): return s[::-1]"), PASSED);
    assert_eq!(
        graded(
            &row("{\"a\": [1, null]}", "{\"a\": [1, null], \"b\": true}"),
            "def f(d): return {**d, 'b': True}"
        ),
        PASSED
    );
    assert_eq!(graded(&row("0.1", "0.30000000000000004"), "def f(x): return x + 0.2"), PASSED);
    assert_eq!(graded(&row("1", "1.0"), "def f(x):\n    import collections\n    return float(x)"), PASSED);
    assert_eq!(
        graded(&row("9000", "0"), "def f(n): return 0 if n == 0 else f(n - 1)"),
        PASSED,
        "deep recursion"
    );
}

#[test]
fn results_in_the_wrapping_of_apps_are_accepted() {
    let tests = json!({"inputs": [[1, 2]], "outputs": [[3]], "fn_name": "add"});
    assert_eq!(graded(&tests, "def add(a, b): return a + b"), PASSED);
    assert_eq!(graded(&tests, "def add(a, b): return a - b"), WRONG);
}

#[test]
fn live_code_bench_rows_are_judged() {
    let functional = json!({"hidden": [{"input": "2\n\"ab\"", "output": "\"abab\"", "testtype": "functional"}],
        "shown": [{"input": "0\n\"\"", "output": "1", "testtype": "functional"}], "fn_name": "rep"});
    assert_eq!(
        graded(&functional, "class Solution:\n    def rep(self, n: int, s: str) -> str: return s * n"),
        PASSED
    );
    let printed = json!([{"input": "5", "output": "0.20", "testtype": "stdin"}]);
    assert_eq!(graded(&printed, "print(1 / int(input()))"), PASSED);
}

const HUMAN_EVAL_TEST: &str = "def check(candidate):\n    assert candidate([1, 2], 3) == [1, 2, 3]\n    xs = [0]\n    candidate(xs, 1)\n    assert xs == [0, 1]\n    assert twice(1) == 2\n";

#[test]
fn human_eval_rows_are_judged_in_two_processes() {
    let prompt = "from typing import List\n\ndef twice(x): return 2 * x\n\ndef push(xs: List[int], x: int):\n    \"\"\"Appends.\"\"\"\n";
    let tests = json!({"test": HUMAN_EVAL_TEST, "entry_point": "push", "prompt": prompt});
    assert_eq!(graded(&tests, "    xs.append(x)\n    return xs"), PASSED, "goes on from the prompt");
    assert_eq!(
        graded(&tests, "def push(xs: List[int], x):\n    xs.append(x)\n    return xs"),
        PASSED,
        "defines it anew"
    );
    assert_eq!(graded(&tests, "def push(xs, x):\n    return xs + [x]"), WRONG, "changes nothing in place");
    assert_eq!(graded(&tests, "def push(xs, x):\n    return xs.push(x)"), RAISED);
    assert_eq!(graded(&tests, "def push(xs, x) return xs"), RAISED);
    let whole = CodeConfig { extraction: CodeBlock::WholeText, ..CodeConfig::default() };
    let sample = Prompt::new("p", "?", tests.to_string());
    let verdict = verifier(whole).verify(&Sample::of_text(&sample, "    xs.append(x)\n    return xs\n"));
    assert_eq!(score(verdict.unwrap()), PASSED);
}

#[test]
fn mbpp_rows_are_judged_an_assertion_each() {
    let tests = json!({"test_setup_code": "import math", "test_list": [
        "assert area(1) == math.pi", "assert math.isclose(area(2), 4 * math.pi)", "assert set(pair(1, b=2)) == {1, 2}"]});
    let right = "import math\ndef area(r): return math.pi * r * r\ndef pair(a, b): return (a, b)";
    assert_eq!(graded(&tests, right), PASSED);
    let half = "def area(r): return 3.141592653589793 * r\ndef pair(a, b): return {a: 0, b: 0}";
    assert_eq!(graded(&tests, half), WRONG);
    let fraction = |first| CodeConfig { score: ProgramScore::Fraction { first }, ..CodeConfig::default() };
    assert_eq!(score(verdict_of(fraction(None), &tests, half)), (2.0 / 3.0, "failed_tests"));
    assert_eq!(score(verdict_of(fraction(Some(2)), &tests, half)), (0.5, "failed_tests"));
}

#[test]
fn values_of_every_kind_survive_the_way_between_the_processes() {
    let echoed = "[None, True, 2**70, -1, 1.5, float('inf'), 1j, 'é\\ud800', b'\\x00', bytearray(b'a'), [], (1, (2,)), {3}, frozenset({4}), {1: 'a', (2, 3): {}}, range(3)]";
    let tests = json!({"test_list": [
        format!("v = {echoed}\nw = echo(v)\nassert w == v and list(map(type, w)) == list(map(type, v))"),
        "assert math.isnan(echo(float('nan')))"], "test_setup_code": "import math"});
    assert_eq!(graded(&tests, "def echo(x): return x"), PASSED);
}

#[test]
fn exceptions_of_the_program_reach_the_tests_by_name() {
    let expecting = |kind: &str| json!({"test_list": [format!("try:\n    f()\n    assert False\nexcept {kind} as error:\n    assert 'why' in str(error)")]});
    assert_eq!(graded(&expecting("ValueError"), "def f(): raise ValueError('why')"), PASSED);
    assert_eq!(graded(&expecting("LookupError"), "def f(): raise KeyError('why')"), PASSED);
    assert_eq!(graded(&expecting("TypeError"), "def f(): raise ValueError('why')"), RAISED);
    let own = "class ValueError(Exception): pass\nclass Mine(Exception): pass\ndef f(): raise Mine('why')";
    assert_eq!(graded(&expecting("ValueError"), own), RAISED);
}

#[test]
fn containers_that_the_program_changes_are_changed_in_the_tests() {
    let tests = json!({"test_list": ["d, s, b = {1: 2}, {1}, bytearray(b'x')\nf(d, s, b=b)\nassert (d, s, b) == ({3: 4}, {5}, b'xy')"]});
    assert_eq!(
        graded(&tests, "def f(d, s, b):\n    d.clear(); d[3] = 4\n    s.clear(); s.add(5)\n    b += b'y'"),
        PASSED
    );
    assert_eq!(graded(&tests, "def f(d, s, b): pass"), WRONG);
}

#[test]
fn tests_that_do_not_run_leave_every_program_unscored() {
    let code = "def f(x): return 1";
    let table = [
        (json!({"test_list": ["assert f(1 =="]}), "the tests do not run"),
        (json!({"test_list": ["assert f(1)"], "test_setup_code": "import no_such_module"}), "no_such_module"),
        (json!({"test_list": ["assert True"]}), "call nothing of the program"),
        (json!({"test_list": ["assert f(lambda: 1)"]}), "a value of type function"),
        (json!({"test_list": ["assert np.sum(f(1)) == 1"]}), "'np' is not defined"),
        (json!({"test_list": ["assert f(1)"], "test_setup_code": "raise SystemExit(3)"}), "SystemExit: 3"),
    ];
    for (tests, problem) in table {
        let message = unscored(&tests, code);
        assert!(message.contains(problem), "{tests}: {message}");
    }
}

#[test]
fn only_hidden_tests_score() {
    let tests = json!({"inputs": ["1", "2", "3"], "outputs": ["1", "2", "3"], "shown": 1});
    let shown_only = "x = input()\nprint(x if x == '1' else 0)";
    let fraction = || CodeConfig { score: ProgramScore::Fraction { first: None }, ..CodeConfig::default() };
    assert_eq!(score(verdict_of(fraction(), &tests, shown_only)), WRONG);
    let hidden_only = "x = input()\nprint(0 if x == '1' else x)";
    assert_eq!(score(verdict_of(fraction(), &tests, hidden_only)), PASSED);
}

#[test]
fn tests_in_parallel_give_the_same_verdict() {
    let tests = json!({"inputs": ["1", "2", "3", "4", "5"], "outputs": ["1", "2", "3", "4", "5"]});
    let code = "import sys\nx = input()\nif x == '2': print(0)\nelif x == '3': sys.exit(1)\nelse: print(x)";
    for score_ in [ProgramScore::All {}, ProgramScore::Fraction { first: None }] {
        let verdict = |parallel_tests| {
            verdict_of(CodeConfig { parallel_tests, score: score_, ..CodeConfig::default() }, &tests, code)
        };
        let expected = if score_ == ProgramScore::default() { 0.0 } else { 0.6 };
        assert_eq!(score(verdict(1)), (expected, "failed_tests"));
        assert_eq!(verdict(4), verdict(1));
    }
}

#[test]
fn the_comparison_is_the_configured_one() {
    let tests = json!({"inputs": [""], "outputs": ["1 2"]});
    let reward = |comparison, code| {
        score(verdict_of(CodeConfig { comparison, ..CodeConfig::default() }, &tests, code)).0
    };
    assert_eq!(reward(OutputComparison::LcbLinesDecimal, "print('1.0 2')"), 1.0);
    assert_eq!(reward(OutputComparison::Exact, "print('1.0 2')"), 0.0);
    assert_eq!(reward(OutputComparison::LcbLinesDecimal, "print('2 1')"), 0.0);
    assert_eq!(reward(OutputComparison::AppsLax, "print('2 1')"), 1.0);
}

#[test]
fn random_numbers_of_the_program_and_of_the_tests_are_the_same_each_time() {
    let tests = json!({"test_list": ["import random\nassert f() == 0.8444218515250481", "assert random.random() == 0.8444218515250481"]});
    assert_eq!(graded(&tests, "import random\ndef f(): return random.random()"), PASSED);
}

#[test]
fn the_code_is_what_was_extracted() {
    let verdict = verdict_of(CodeConfig::default(), &json!({"inputs": [""], "outputs": ["1"]}), "print(1)");
    assert_eq!(verdict, Verdict::graded(1.0, Some("print(1)\n".into()), "passed"));
}

#[test]
fn an_executor_that_this_build_lacks_is_refused_with_the_reason() {
    let executor =
        ExecutorConfig::Wasm(serde_json::from_value(json!({"python_wasm": "nowhere.wasm"})).unwrap());
    let error = CodeConfig { executor, ..CodeConfig::default() }.build().unwrap_err().to_string();
    let reason = if cfg!(feature = "wasm") { "nowhere.wasm" } else { "this build lacks the feature `wasm`" };
    assert!(error.contains(reason), "{error}");
}

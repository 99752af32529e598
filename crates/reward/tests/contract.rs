//! Every verifier keeps the contract of verifiers.

use firebrick_core::Prompt;
use firebrick_reward::RewardConfig;
use firebrick_testkit::check_verifier;

const RESPONSES: [&str; 6] =
    ["#### 4", r"\boxed{4}", "Answer: 5", "no answer", "```python\ndef f(x):\n    return 2 * x\n```", ""];

#[test]
fn verifiers_of_answers_keep_the_contract() {
    let prompt = Prompt::new("p", "What is 2 + 2?", "4").with_data_source("firebrick/gcd");
    for config in [
        r#"{"type": "exact_answer"}"#,
        r#"{"type": "math_verify"}"#,
        r#"{"type": "dapo"}"#,
        r#"{"type": "gsm8k"}"#,
        r#"{"type": "prime"}"#,
        r#"{"type": "task"}"#,
        r#"{"type": "format", "has_answer": true}"#,
        r#"{"type": "by_data_source", "sources": {"firebrick/*": {"type": "task"}}}"#,
    ] {
        let config: RewardConfig = serde_json::from_str(config).unwrap();
        check_verifier(config.build().unwrap(), &prompt, &RESPONSES);
    }
}

#[cfg(all(feature = "programs", target_os = "linux"))]
#[test]
fn the_verifier_of_programs_keeps_the_contract() {
    let tests = r#"{"fn_name": "f", "inputs": [[2]], "outputs": [4]}"#;
    let config: RewardConfig = serde_json::from_str(r#"{"type": "code"}"#).unwrap();
    check_verifier(config.build().unwrap(), &Prompt::new("p", "Double.", tests), &RESPONSES);
}

//! Programs in a SandboxFusion server, here a small one that answers what it was told to.

#![cfg(feature = "remote")]
#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use firebrick_core::{Prompt, RewardVerifier, Sample, VerifyError};
use firebrick_reward::program::{
    CodeConfig, Executor, ExecutorError, Job, Limits, Outcome, ProgramExit, SandboxFusion,
    SandboxFusionConfig,
};
use serde_json::{Value, json};

/// Answers one connection after another with a status and a body each, and returns the requests.
fn serve(answers: Vec<(u16, String)>) -> (String, JoinHandle<Vec<Value>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let answer = |(status, body): (u16, String)| {
            let mut stream = listener.accept().unwrap().0;
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
                head.push_str(&line);
            }
            assert!(head.starts_with("POST /run_code HTTP/1.1"), "{head}");
            let mut request = vec![0; length];
            reader.read_exact(&mut request).unwrap();
            write!(
                stream,
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
            serde_json::from_slice(&request).unwrap()
        };
        answers.into_iter().map(answer).collect()
    });
    (url, server)
}

fn executor(url: &str, retries: u32) -> SandboxFusion {
    let mut config = SandboxFusionConfig::new(url);
    (config.retries, config.backoff_seconds) = (retries, 0.001);
    SandboxFusion::new(&config).unwrap()
}

/// A reply in the shape that the server gives.
fn reply(status: &str, run_result: Value) -> (u16, String) {
    let reply = json!({"status": status, "message": "why", "compile_result": null, "run_result": run_result,
        "executor_pod_name": null, "files": {}});
    (200, reply.to_string())
}

fn finished(return_code: i32, stdout: &str) -> Value {
    json!({"status": "Finished", "execution_time": 0.25, "return_code": return_code, "stdout": stdout, "stderr": ""})
}

fn run(answers: Vec<(u16, String)>, job: &Job) -> (Result<Outcome, ExecutorError>, Vec<Value>) {
    let retries = answers.len() as u32 - 1;
    let (url, server) = serve(answers);
    let outcome = executor(&url, retries).run(job);
    (outcome, server.join().unwrap())
}

#[test]
fn a_program_is_sent_with_its_input_and_limits() {
    let limits = Limits { wall_seconds: 3.0, memory_mib: 256, ..Limits::default() };
    let job = Job::new("print(input())").with_stdin("é\n").with_limits(limits);
    let (outcome, requests) = run(vec![reply("Success", finished(0, "é\n"))], &job);
    let outcome = outcome.unwrap();
    assert_eq!((outcome.exit, outcome.stdout), (ProgramExit::Code(0), "é\n".as_bytes().to_vec()));
    assert_eq!(outcome.wall.as_millis(), 250);
    let expected = json!({"code": "print(input())", "language": "python", "stdin": "é\n", "compile_timeout": 3.0,
        "run_timeout": 3.0, "memory_limit_MB": 256, "files": {}});
    assert_eq!(requests, [expected]);
}

#[test]
fn what_became_of_the_program_is_an_outcome() {
    let timed_out = json!({"status": "TimeLimitExceeded", "execution_time": 3.0, "return_code": null, "stdout": null, "stderr": null});
    let table = [
        (reply("Failed", finished(1, "")), ProgramExit::Code(1)),
        (reply("Failed", finished(-9, "")), ProgramExit::Signal(9)),
        (reply("Failed", timed_out), ProgramExit::TimeLimit),
        (reply("Success", finished(0, &"x".repeat(2048))), ProgramExit::OutputLimit),
    ];
    let limits = Limits { output_kib: 1, ..Limits::default() };
    for (answer, exit) in table {
        let outcome = run(vec![answer], &Job::new("x").with_limits(limits.clone())).0.unwrap();
        assert_eq!(outcome.exit, exit);
        assert!(outcome.stdout.len() <= 1024);
    }
}

#[test]
fn what_became_of_the_server_is_an_error() {
    let error = json!({"status": "Error", "execution_time": null, "return_code": null, "stdout": null, "stderr": null});
    let table = [
        (reply("SandboxError", Value::Null), "the server had a fault: why"),
        (reply("SandboxError", finished(0, "1")), "the server had a fault: why"),
        (reply("Failed", Value::Null), "the server ran nothing: why"),
        (reply("Failed", error), "could not run the program: why"),
        ((500, "{}".to_owned()), "the server answered 500"),
        ((404, "{}".to_owned()), "the server answered 404"),
        ((504, "{}".to_owned()), "the server answered 504"),
        ((200, "<html>".to_owned()), "the reply is not what run_code answers"),
        ((200, r#"{"status": "Maybe"}"#.to_owned()), "the reply is not what run_code answers"),
    ];
    for (answer, message) in table {
        let error = run(vec![answer], &Job::new("x")).0.unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_busy_server_is_asked_again_up_to_a_number_of_times() {
    let busy = |status| (status, String::new());
    let answers = vec![busy(504), busy(503), busy(429), busy(502), reply("Success", finished(0, "1"))];
    let (outcome, requests) = run(answers, &Job::new("x"));
    assert_eq!(outcome.unwrap().exit, ProgramExit::Code(0));
    assert_eq!(requests.len(), 5);
    let (outcome, requests) = run(vec![busy(504), busy(504), busy(504)], &Job::new("x"));
    assert!(outcome.unwrap_err().to_string().contains("504"));
    assert_eq!(requests.len(), 3, "the last try is not followed by another");
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port(); // free again at once
    let error = executor(&format!("http://127.0.0.1:{port}"), 1).run(&Job::new("x")).unwrap_err();
    assert!(error.to_string().contains("the server cannot be reached"), "{error}");
}

fn verify(url: &str, answer: &Value) -> Result<Option<f64>, VerifyError> {
    let verifier = CodeConfig::default().build_with(Arc::new(executor(url, 0))).unwrap();
    let prompt = Prompt::new("p", "?", answer.to_string());
    Ok(verifier.verify(&Sample::of_text(&prompt, "```python\nx\n```"))?.reward())
}

#[test]
fn a_verdict_rests_on_the_servers_outcome_and_a_fault_of_it_is_none() {
    let tests = json!({"inputs": ["1"], "outputs": ["1"]});
    let table =
        [(reply("Success", finished(0, "1\n")), Some(1.0)), (reply("Failed", finished(1, "1\n")), Some(0.0))];
    for (answer, reward) in table {
        let (url, server) = serve(vec![answer]);
        assert_eq!(verify(&url, &tests).unwrap(), reward);
        server.join().unwrap();
    }
    let (url, server) = serve(vec![reply("SandboxError", Value::Null)]);
    assert!(verify(&url, &tests).unwrap_err().to_string().contains("the server had a fault"));
    server.join().unwrap();
}

#[test]
fn tests_that_assert_are_refused_with_the_fix() {
    let error = verify("http://127.0.0.1:1", &json!({"test_list": ["assert f(1)"]})).unwrap_err().to_string();
    assert!(error.contains("`local` executor"), "{error}");
}

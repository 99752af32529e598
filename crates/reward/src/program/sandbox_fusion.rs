//! Programs in a SandboxFusion server.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::executor::{Executor, ExecutorError, Job, Outcome, ProgramExit, Session};
use super::executor_config::{LONGEST_BACKOFF, SandboxFusionConfig};

const NAME: &str = "sandbox_fusion";

/// What a server may take beyond the program's own time, before the request is given up.
const SLACK: Duration = Duration::from_secs(30);

/// Statuses of a gateway that has no worker free just now.
const BUSY: [u16; 4] = [429, 502, 503, 504];

/// Sends programs to a SandboxFusion server (`POST /run_code`).
///
/// The time limit is the server's `run_timeout`, in wall time, and the memory limit its `memory_limit_MB`; how programs are kept
/// apart, and limits on processes and files, are the server's own. The server answers HTTP 200 whatever became of the program; a
/// request that finds it busy (429, 502, 503, 504) or away is sent again, with a wait that doubles, a bounded number of times.
/// Programs that are talked to while they run, and so tests that assert, are beyond its interface.
///
/// *Reference*: ByteDance, SandboxFusion, its public API of `run_code`.
#[derive(Debug, Clone)]
pub struct SandboxFusion {
    endpoint: String,
    retries: u32,
    backoff: Duration,
}

impl SandboxFusion {
    /// An executor for the server of `config`; nothing is sent yet.
    ///
    /// # Errors
    /// As [`SandboxFusionConfig::validate`].
    pub fn new(config: &SandboxFusionConfig) -> Result<Self, ExecutorError> {
        config.validate()?;
        Ok(Self {
            endpoint: format!("{}/run_code", config.url.trim_end_matches('/')),
            retries: config.retries,
            backoff: Duration::from_secs_f64(config.backoff_seconds),
        })
    }

    fn post(&self, request: &Request<'_>, timeout: Duration) -> Result<Reply, ExecutorError> {
        let config =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(timeout)).build();
        let agent = ureq::Agent::new_with_config(config);
        let mut wait = self.backoff;
        let mut retries = self.retries;
        loop {
            let failure = match agent.post(&self.endpoint).send_json(request) {
                Ok(mut response) if response.status().as_u16() == 200 => {
                    let limited = response.body_mut().with_config().limit(MOST_REPLY_BYTES);
                    return limited
                        .read_json()
                        .map_err(|error| failed("the reply is not what run_code answers", error));
                }
                Ok(response) if BUSY.contains(&response.status().as_u16()) => {
                    fault(format!("the server answered {}", response.status()))
                }
                Ok(response) => return Err(fault(format!("the server answered {}", response.status()))),
                Err(error) => failed("the server cannot be reached", error),
            };
            if retries == 0 {
                return Err(failure);
            }
            tracing::debug!(%failure, retries, "the request is sent again");
            retries -= 1;
            thread::sleep(wait);
            wait = (wait * 2).min(LONGEST_BACKOFF);
        }
    }
}

const MOST_REPLY_BYTES: u64 = 256 << 20;

impl Executor for SandboxFusion {
    fn run(&self, job: &Job) -> Result<Outcome, ExecutorError> {
        let start = Instant::now();
        let stdin = std::str::from_utf8(&job.stdin)
            .map_err(|error| failed("the input of a program must be UTF-8", error))?;
        let wall = job.limits.wall_seconds;
        let request = Request {
            code: &job.program,
            language: "python",
            stdin,
            compile_timeout: wall,
            run_timeout: wall,
            memory_limit_mib: job.limits.memory_mib,
            files: BTreeMap::new(),
        };
        let timeout = Duration::try_from_secs_f64(2.0 * wall)
            .map_err(|error| failed("limits.wall_seconds is out of range", error))?;
        let reply = self.post(&request, timeout + SLACK)?;
        let said = || reply.message.clone().unwrap_or_default();
        let result = match (reply.status, &reply.run_result) {
            (Status::SandboxError, _) => return Err(fault(format!("the server had a fault: {}", said()))),
            (_, None) => return Err(fault(format!("the server ran nothing: {}", said()))),
            (Status::Success | Status::Failed, Some(result)) => result,
        };
        let limit = usize::try_from(job.limits.output_kib.saturating_mul(1024)).unwrap_or(usize::MAX);
        let (stdout, stderr) = (bytes(&result.stdout, limit), bytes(&result.stderr, limit));
        let exit = match (result.status, result.return_code) {
            (RunStatus::Error, _) => {
                return Err(fault(format!("the server could not run the program: {}", said())));
            }
            (RunStatus::TimeLimitExceeded, _) => ProgramExit::TimeLimit,
            (RunStatus::Finished, _) if stdout.1 || stderr.1 => ProgramExit::OutputLimit,
            (RunStatus::Finished, None) => return Err(fault("the server reported no exit code".to_owned())),
            // Python's own convention: the signal that ended a process, negated.
            (RunStatus::Finished, Some(code)) if code < 0 => ProgramExit::Signal(-code),
            (RunStatus::Finished, Some(code)) => ProgramExit::Code(code),
        };
        let wall = result.execution_time.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Ok(Outcome::new(exit, stdout.0, stderr.0, wall.unwrap_or_else(|| start.elapsed())))
    }

    fn open(&self, _job: &Job) -> Result<Box<dyn Session>, ExecutorError> {
        Err(ExecutorError::Unsupported {
            executor: NAME,
            what: "talk to a program while it runs, which tests that assert need".to_owned(),
            fix: "grade these problems with the `local` executor".to_owned(),
        })
    }

    fn name(&self) -> &'static str {
        NAME
    }
}

/// The text up to the limit, and whether there was more.
fn bytes(text: &Option<String>, limit: usize) -> (Vec<u8>, bool) {
    let text = text.as_deref().unwrap_or_default().as_bytes();
    (text[..text.len().min(limit)].to_vec(), text.len() > limit)
}

fn fault(what: String) -> ExecutorError {
    ExecutorError::Failed { executor: NAME, what, source: None }
}

fn failed(what: &str, source: impl std::error::Error + Send + Sync + 'static) -> ExecutorError {
    ExecutorError::Failed {
        executor: NAME,
        what: format!("{what}: {source}"),
        source: Some(Box::new(source)),
    }
}

#[derive(Serialize)]
struct Request<'a> {
    code: &'a str,
    language: &'static str,
    stdin: &'a str,
    compile_timeout: f64,
    run_timeout: f64,
    #[serde(rename = "memory_limit_MB")]
    memory_limit_mib: u64,
    files: BTreeMap<String, String>,
}

/// Fields that are not read here are let through: the server is older or newer than this.
#[derive(Deserialize)]
struct Reply {
    status: Status,
    message: Option<String>,
    run_result: Option<RunResult>,
}

#[derive(Clone, Copy, Deserialize)]
enum Status {
    Success,
    Failed,
    SandboxError,
}

#[derive(Deserialize)]
struct RunResult {
    status: RunStatus,
    execution_time: Option<f64>,
    return_code: Option<i32>,
    stdout: Option<String>,
    stderr: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
enum RunStatus {
    Finished,
    TimeLimitExceeded,
    Error,
}

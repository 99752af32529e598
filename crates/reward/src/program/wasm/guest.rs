//! The inside: a Python that runs one program.

use std::fs::File;
use std::io::{PipeReader, PipeWriter};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use wasmtime::{Store, StoreLimits, StoreLimitsBuilder, UpdateDeadline};
use wasmtime_wasi::cli::{InputFile, OutputFile};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::{I32Exit, WasiCtxBuilder};

use super::Python;
use super::watch::Watch;
use crate::program::ProgramExit;

/// Exit of a program that WebAssembly stopped, as of one that aborted: a stack that is full, or a fault of the interpreter.
const ABORTED: i32 = 6;

/// The environment of every program. The seed makes the order of sets the same in every run, so that a verdict is; it is the
/// reason why Python is not started with `-I`, which ignores it.
const ENVIRONMENT: [(&str, &str); 4] =
    [("LANG", "C.UTF-8"), ("TZ", "UTC"), ("PYTHONHASHSEED", "0"), ("PYTHONUTF8", "1")];

/// What belongs to one program.
pub(crate) struct State {
    pub(crate) wasi: WasiP1Ctx,
    limits: StoreLimits,
}

/// A program and its ends of the pipes.
pub(crate) struct Guest {
    pub(crate) program: String,
    /// Bytes.
    pub(crate) memory: usize,
    pub(crate) stdin: PipeReader,
    pub(crate) stdout: PipeWriter,
    pub(crate) stderr: PipeWriter,
}

impl Guest {
    /// Runs it until it ends or has to stop. An error is ours: Python did not come up.
    pub(crate) fn run(self, python: &Python, watch: Arc<Watch>) -> wasmtime::Result<ProgramExit> {
        // An argument ends at a zero; Python takes no source that has one.
        let program = if self.program.contains('\0') {
            "raise SyntaxError('source code cannot contain null bytes')"
        } else {
            &self.program
        };
        let wasi = WasiCtxBuilder::new()
            .args(&["python", "-s", "-P", "-B", "-c", program])
            .envs(&ENVIRONMENT)
            .stdin(InputFile::new(file(self.stdin)))
            .stdout(OutputFile::new(file(self.stdout)))
            .stderr(OutputFile::new(file(self.stderr)))
            .build_p1();
        let limits = StoreLimitsBuilder::new().memory_size(self.memory).build();
        let mut store = Store::new(&python.engine, State { wasi, limits });
        store.limiter(|state| &mut state.limits);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(move |_| {
            Ok(if watch.is_over_inside() { UpdateDeadline::Interrupt } else { UpdateDeadline::Continue(1) })
        });
        let instance = python.module.instantiate(&mut store)?;
        let start = instance.get_typed_func::<(), ()>(&mut store, "_start")?;
        Ok(match start.call(&mut store, ()) {
            Ok(()) => ProgramExit::Code(0),
            Err(error) => match error.downcast_ref::<I32Exit>() {
                Some(exit) => ProgramExit::Code(exit.0),
                None => ProgramExit::Signal(ABORTED),
            },
        })
    }
}

fn file(end: impl Into<OwnedFd>) -> File {
    File::from(end.into())
}

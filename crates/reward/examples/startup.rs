//! What starting a program costs: milliseconds each, one after the other, while this process holds as many MiB of memory as the
//! argument says (a trainer holds gigabytes, and a program must not cost more for that). Built with the feature `wasm`, in the Python
//! that `FIREBRICK_PYTHON_WASM` names too.
//!
//! ```text
//! cargo run --release -p firebrick-reward --example startup -- 2000
//! ```
#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::time::Instant;

use firebrick_reward::program::{BubblewrapConfig, Executor, ExecutorConfig, ExecutorError, Job, WasmConfig};

const PROGRAMS: u32 = 100;

fn main() -> Result<(), ExecutorError> {
    let mib: usize = std::env::args().nth(1).map_or(0, |argument| argument.parse().expect("a number of MiB"));
    let held = vec![1_u8; mib << 20];
    let wasm = std::env::var_os("FIREBRICK_PYTHON_WASM").map(WasmConfig::new).map(ExecutorConfig::Wasm);
    let sandboxes = [ExecutorConfig::default(), ExecutorConfig::Bubblewrap(BubblewrapConfig::default())];
    for config in sandboxes.into_iter().chain(wasm) {
        match config.build() {
            Ok(executor) => measure(&*executor)?,
            Err(error) => println!("{error}"),
        }
    }
    println!("with {} MiB held", held.len() >> 20);
    Ok(())
}

fn measure(executor: &dyn Executor) -> Result<(), ExecutorError> {
    let job = Job::new("print(1)");
    let begun = Instant::now();
    for _ in 0..PROGRAMS {
        executor.run(&job)?;
    }
    let each = begun.elapsed() / PROGRAMS;
    println!("{}: {:.1} ms a program", executor.name(), each.as_secs_f64() * 1e3);
    Ok(())
}

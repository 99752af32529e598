//! What starting a program costs: milliseconds each, one after the other.
//!
//! ```text
//! cargo run --release -p firebrick-reward --example startup
//! ```
#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::time::Instant;

use firebrick_reward::program::{BubblewrapConfig, Executor, ExecutorConfig, ExecutorError, Job};

const PROGRAMS: u32 = 100;

fn main() -> Result<(), ExecutorError> {
    for config in [ExecutorConfig::default(), ExecutorConfig::Bubblewrap(BubblewrapConfig::default())] {
        match config.build() {
            Ok(executor) => measure(&*executor)?,
            Err(error) => println!("{error}"),
        }
    }
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

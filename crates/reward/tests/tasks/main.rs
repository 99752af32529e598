//! The generated problems of all tasks.

mod documents;
mod every_task;
mod program_synthesis;

//! The `firebrick` command.
fn main() {}

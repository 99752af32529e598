//! The grader of mathematics on any bytes; CONTRIBUTING.md has the command.

#![no_main]

#[path = "../../crates/reward/tests/math_check/mod.rs"]
mod math_check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| math_check::check(data));

//! The grader of mathematics on any bytes: `RUSTC_BOOTSTRAP=1 cargo fuzz run math`.

#![no_main]

#[path = "../../crates/reward/tests/math_check/mod.rs"]
mod math_check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| math_check::check(data));

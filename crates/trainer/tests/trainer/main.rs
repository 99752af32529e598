//! The trainer with a real model on both CPU backends; one binary, since every one compiles Burn's generics anew.

mod fixture;
mod gradients;
mod learning;
mod memory;
mod micro_batches;
mod parity_probe;
mod plan;
mod tensor_objective;

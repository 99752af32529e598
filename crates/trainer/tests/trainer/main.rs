//! The trainer with a real model on both CPU backends; one binary, since every one compiles Burn's generics anew.

#[cfg(test)]
mod configs;
#[cfg(test)]
mod continuation;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod gradients;
#[cfg(test)]
mod learning;
#[cfg(test)]
mod lora;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod micro_batches;
#[cfg(test)]
mod objectives;
#[cfg(test)]
mod parity_probe;
#[cfg(test)]
mod plan;
#[cfg(test)]
mod run_fixture;
#[cfg(test)]
mod tensor_objective;
#[cfg(test)]
mod tensorboard;

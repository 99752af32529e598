//! The command as its users run it: a process that is killed, interrupted, or given a disk that is full.

#[cfg(test)]
mod bench;
#[cfg(test)]
mod commands;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod disk;
#[cfg(test)]
mod fixture;
#[cfg(unix)]
#[cfg(test)]
mod interruption;
#[cfg(test)]
mod models;
#[cfg(test)]
mod objectives;
#[cfg(test)]
mod rewards;

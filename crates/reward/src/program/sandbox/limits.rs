//! Limits that the kernel enforces.

use nix::libc;

use super::super::{ExecutorError, Limits};

/// A resource of `setrlimit` with its soft and its hard limit.
pub(crate) type Rlimit = (libc::__rlimit_resource_t, u64, u64);

/// Open descriptors that a program may have.
const MAX_DESCRIPTORS: u64 = 64;
/// Threads of a program that may not start processes, where they can be counted.
const MAX_THREADS: u64 = 64;
/// Stack of a program, which is also what a new thread reserves.
const STACK_BYTES: u64 = 8 << 20;

/// Refuses limits that cannot be meant.
///
/// # Errors
/// [`ExecutorError::OutOfRange`], naming the key.
pub(crate) fn check(limits: &Limits) -> Result<(), ExecutorError> {
    let seconds = [("limits.cpu_seconds", limits.cpu_seconds), ("limits.wall_seconds", limits.wall_seconds)];
    for (key, value) in seconds {
        if !(value > 0.0 && value <= 86_400.0) {
            return Err(out_of_range(key, &value, "above 0 and at most 86400"));
        }
    }
    for (key, value, range, allowed) in [
        ("limits.memory_mib", limits.memory_mib, 32..=1 << 20, "32 to 1048576"),
        ("limits.processes", limits.processes, 1..=1024, "1 to 1024"),
        ("limits.file_mib", limits.file_mib, 0..=1 << 20, "0 to 1048576"),
        ("limits.output_kib", limits.output_kib, 1..=1 << 20, "1 to 1048576"),
    ] {
        if !range.contains(&value) {
            return Err(out_of_range(key, &value, allowed));
        }
    }
    Ok(())
}

fn out_of_range(key: &'static str, value: &dyn ToString, allowed: &'static str) -> ExecutorError {
    ExecutorError::OutOfRange { key, value: value.to_string(), allowed }
}

/// What the child sets on itself. `tasks` is how many processes and threads its user may have, where the kernel can count
/// them for this program alone.
pub(crate) fn rlimits(limits: &Limits, tasks: Option<u64>) -> Vec<Rlimit> {
    let memory = limits.memory_mib << 20;
    // Soft and hard limit are equal, so that the first signal is one that cannot be ignored.
    let cpu = limits.cpu_seconds.ceil() as u64;
    let mut all = vec![
        (libc::RLIMIT_CPU, cpu, cpu),
        (libc::RLIMIT_AS, memory, memory),
        (libc::RLIMIT_STACK, STACK_BYTES.min(memory), memory),
        (libc::RLIMIT_FSIZE, limits.file_mib << 20, limits.file_mib << 20),
        (libc::RLIMIT_NOFILE, MAX_DESCRIPTORS, MAX_DESCRIPTORS),
        // Not 0, at which a collector of core dumps would still be started and would keep a file; 1 turns both ways off.
        (libc::RLIMIT_CORE, 1, 1),
        (libc::RLIMIT_MEMLOCK, 0, 0),
        (libc::RLIMIT_MSGQUEUE, 0, 0),
    ];
    all.extend(tasks.map(|tasks| (libc::RLIMIT_NPROC, tasks, tasks)));
    all
}

/// Processes and threads together: a program that may not fork can still start threads.
pub(crate) fn tasks(limits: &Limits) -> u64 {
    if limits.processes == 1 { MAX_THREADS } else { limits.processes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_out_of_range_is_named_with_what_is_allowed() {
        let refusal = |change: fn(&mut Limits)| {
            let mut limits = Limits::default();
            change(&mut limits);
            check(&limits).unwrap_err().to_string()
        };
        assert_eq!(
            refusal(|limits| limits.cpu_seconds = f64::NAN),
            "limits.cpu_seconds = NaN: allowed is above 0 and at most 86400"
        );
        assert_eq!(
            refusal(|limits| limits.memory_mib = 1),
            "limits.memory_mib = 1: allowed is 32 to 1048576"
        );
        assert_eq!(refusal(|limits| limits.processes = 0), "limits.processes = 0: allowed is 1 to 1024");
        assert!(check(&Limits::default()).is_ok());
    }

    #[test]
    fn a_part_of_a_second_is_rounded_up_and_the_first_signal_kills() {
        let limits = Limits { cpu_seconds: 1.2, ..Limits::default() };
        assert_eq!(rlimits(&limits, None)[0], (libc::RLIMIT_CPU, 2, 2));
    }
}

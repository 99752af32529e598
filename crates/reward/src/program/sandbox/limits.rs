//! Limits that the kernel enforces.

use nix::libc;

use super::super::Limits;

/// A resource of `setrlimit` with its soft and its hard limit.
pub(crate) type Rlimit = (libc::__rlimit_resource_t, u64, u64);

/// Open descriptors that a program may have.
const MAX_DESCRIPTORS: u64 = 64;
/// Threads of a program that may not start processes, where they can be counted.
const MAX_THREADS: u64 = 64;
/// Stack of a program, which is also what a new thread reserves.
const STACK_BYTES: u64 = 8 << 20;

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
    fn a_part_of_a_second_is_rounded_up_and_the_first_signal_kills() {
        let limits = Limits { cpu_seconds: 1.2, ..Limits::default() };
        assert_eq!(rlimits(&limits, None)[0], (libc::RLIMIT_CPU, 2, 2));
    }
}

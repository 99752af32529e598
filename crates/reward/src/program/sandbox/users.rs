//! The users that programs run as when we are root.

use std::{fs, process};

use crate::program::sandbox_config::MAX_SLOTS;

/// One user number for each slot, which nobody else on the machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Users {
    first: u32,
}

impl Users {
    /// Numbers of this process: 7 · 2²⁸ + 2⁸ · its process number (mod 2²⁰) and up, beyond those of accounts and containers
    /// and below 2³¹, from where on some tools read negative ones; where a container maps few numbers only, the last that it
    /// has.
    pub(crate) fn of_this_process() -> Option<Self> {
        let map = fs::read_to_string("/proc/self/uid_map").ok()?;
        Self::choose(&map, process::id())
    }

    fn choose(map: &str, process: u32) -> Option<Self> {
        let ranges: Vec<(u64, u64)> = map
            .lines()
            .filter_map(|line| {
                let mut fields = line.split_ascii_whitespace();
                let inside = fields.next()?.parse().ok()?;
                Some((inside, inside + fields.nth(1)?.parse::<u64>().ok()?))
            })
            .collect();
        let slots = MAX_SLOTS as u64;
        let own = (7 << 28) + u64::from(process % (1 << 20)) * slots;
        let fits = |first: &u64| ranges.iter().any(|(from, to)| from <= first && first + slots <= *to);
        // Number 65534 is the one that stands for all that are not mapped.
        let last = ranges.iter().map(|(_, to)| (*to).min(65_534).saturating_sub(slots)).max()?;
        [own, last]
            .into_iter()
            .filter(|first| *first > 0)
            .find(fits)
            .and_then(|first| u32::try_from(first).ok())
            .map(|first| Self { first })
    }

    /// The user of a slot.
    pub(crate) fn of_slot(self, slot: usize) -> u32 {
        self.first + (slot % MAX_SLOTS) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(map: &str) -> Option<u32> {
        Users::choose(map, 3).map(|users| users.of_slot(0))
    }

    #[test]
    fn numbers_are_far_from_accounts_or_the_last_that_a_container_has() {
        assert_eq!(first("         0          0 4294967295\n"), Some((7 << 28) + 3 * 256));
        assert_eq!(first("0 100000 65536\n"), Some(65_534 - 256));
        assert_eq!(first("0 1000 1\n1 100000 1000\n"), Some(1001 - 256));
        assert_eq!(first("0 1000 1\n"), None, "root alone");
    }
}

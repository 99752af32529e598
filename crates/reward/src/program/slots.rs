//! How many programs run at once.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

use super::executor::ExecutorError;
use super::sandbox_config::MAX_SLOTS;

/// A fixed number of places, each for one running program.
#[derive(Debug)]
pub(crate) struct Slots {
    free: Mutex<Vec<usize>>,
    freed: Condvar,
    patience: Duration,
    count: usize,
}

impl Slots {
    /// Places as valid settings `slots` and `slot_wait_seconds` say.
    pub(crate) fn of_settings(slots: Option<usize>, wait_seconds: f64) -> Arc<Self> {
        // At least two, since tests that assert take two programs at a time.
        let cores = || std::thread::available_parallelism().map_or(2, usize::from).clamp(2, MAX_SLOTS);
        Self::new(slots.unwrap_or_else(cores), Duration::from_secs_f64(wait_seconds))
    }

    /// `count` free places; who finds none waits for `patience` at most.
    pub(crate) fn new(count: usize, patience: Duration) -> Arc<Self> {
        let free = Mutex::new((0..count).rev().collect());
        Arc::new(Self { free, freed: Condvar::new(), patience, count })
    }

    /// As [`Self::acquire`], for an executor.
    ///
    /// # Errors
    /// When there are not so many, or not enough became free in time.
    pub(crate) fn take<const N: usize>(
        self: &Arc<Self>,
        executor: &'static str,
    ) -> Result<[Slot; N], ExecutorError> {
        if self.count < N {
            let allowed = "2 to 256 where tests assert, since tests and program run beside each other";
            return Err(ExecutorError::out_of_range("slots", self.count, allowed));
        }
        self.acquire().ok_or_else(|| ExecutorError::Failed {
            executor,
            what: "waiting for a slot: none became free in `slot_wait_seconds`".to_owned(),
            source: None,
        })
    }

    /// Places of one's own, all taken at the same moment, or `None` when not enough became free in time. Nobody holds one while
    /// waiting for another, so no two can wait for each other.
    fn acquire<const N: usize>(self: &Arc<Self>) -> Option<[Slot; N]> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut free, _) = self
            .freed
            .wait_timeout_while(free, self.patience, |free| free.len() < N)
            .unwrap_or_else(PoisonError::into_inner);
        let kept = free.len().checked_sub(N)?;
        let numbers: [usize; N] = free.split_off(kept).try_into().ok()?;
        Some(numbers.map(|number| Slot { slots: Arc::clone(self), number }))
    }
}

/// A place, free again when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    number: usize,
}

impl Slot {
    /// Which one, from 0; no other holder has it at the same time.
    pub(crate) fn number(&self) -> usize {
        self.number
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
        self.slots.freed.notify_all(); // who waits for two may not be the one to be woken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_assert_find_room_by_default() {
        assert!(Slots::of_settings(None, 0.0).take::<2>("e").is_ok());
    }

    #[test]
    fn a_pair_from_a_single_place_is_refused_at_once_and_a_full_house_after_the_wait() {
        let slots = Slots::new(1, Duration::ZERO);
        assert!(slots.take::<2>("e").unwrap_err().to_string().starts_with("slots = 1: allowed is 2 to 256"));
        let _held = slots.take::<1>("e").unwrap();
        let full = slots.take::<1>("e").unwrap_err().to_string();
        assert!(full.contains("none became free in `slot_wait_seconds`"), "{full}");
    }

    #[test]
    fn a_place_has_one_holder_and_comes_back() {
        let slots = Slots::new(2, Duration::ZERO);
        let ([first], [second]) = (slots.acquire().unwrap(), slots.acquire().unwrap());
        assert_eq!((first.number(), second.number()), (0, 1));
        assert!(slots.acquire::<1>().is_none());
        drop(first);
        let [again] = slots.acquire().unwrap();
        assert_eq!(again.number(), 0);
    }

    #[test]
    fn two_places_are_taken_together_or_not_at_all() {
        let slots = Slots::new(3, Duration::ZERO);
        let held: [Slot; 2] = slots.acquire().unwrap();
        assert!(slots.acquire::<2>().is_none());
        let [last] = slots.acquire().expect("who asked for two in vain holds none");
        drop((held, last));
        assert!(slots.acquire::<2>().is_some());
    }

    #[test]
    fn who_waits_gets_the_place_that_becomes_free() {
        let slots = Slots::new(1, Duration::from_secs(60));
        let [held] = slots.acquire().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| slots.acquire::<1>().unwrap()[0].number());
            drop(held);
            assert_eq!(waiting.join().unwrap(), 0);
        });
    }
}

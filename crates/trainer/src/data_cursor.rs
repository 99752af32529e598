//! Which problems come next.

use firebrick_core::{RootSeed, SeedStream};
use rand::seq::SliceRandom;

/// Walks through the data in a new random order each epoch. Position and order follow from `(seed, drawn)` alone.
#[derive(Debug, Clone)]
pub(crate) struct DataCursor {
    seed: RootSeed,
    stream: SeedStream,
    drawn: u64,
    /// Epoch and order that were last used.
    order: Option<(u64, Vec<usize>)>,
}

impl DataCursor {
    pub(crate) fn new(seed: RootSeed, stream: SeedStream) -> Self {
        Self { seed, stream, drawn: 0, order: None }
    }

    /// Rows drawn so far.
    pub(crate) fn drawn(&self) -> u64 {
        self.drawn
    }

    /// Goes to where `drawn` rows have been drawn.
    pub(crate) fn seek(&mut self, drawn: u64) {
        self.drawn = drawn;
    }

    /// Indices of the next `count` of `len` rows; an epoch's last rows and the next one's first may stand together.
    pub(crate) fn next(&mut self, len: usize, count: usize) -> Vec<usize> {
        (0..count)
            .map(|_| {
                let (epoch, offset) = (self.drawn / len as u64, (self.drawn % len as u64) as usize);
                self.drawn += 1;
                let stale = self.order.as_ref().is_none_or(|(at, order)| *at != epoch || order.len() != len);
                if stale {
                    let mut order: Vec<usize> = (0..len).collect();
                    order.shuffle(&mut self.seed.rng(self.stream, &[epoch]));
                    self.order = Some((epoch, order));
                }
                self.order.as_ref().map_or(0, |(_, order)| order[offset])
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_epoch_holds_every_row_once_in_an_order_of_its_own() {
        let mut cursor = DataCursor::new(RootSeed(3), SeedStream::Data);
        let drawn: Vec<usize> = (0..8).flat_map(|_| cursor.next(20, 5)).collect();
        let (first, second) = drawn.split_at(20);
        assert_ne!(first, second);
        for epoch in [first, second] {
            let mut sorted = epoch.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..20).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_size_of_the_draws_does_not_change_the_order() {
        let mut one = DataCursor::new(RootSeed(3), SeedStream::Data);
        let mut other = one.clone();
        let singles: Vec<usize> = (0..30).flat_map(|_| one.next(7, 1)).collect();
        assert_eq!(singles, other.next(7, 30));
    }

    /// verl #4156, #5725: a run that was saved at the end of an epoch goes on with the next one's order.
    #[test]
    fn a_cursor_that_is_set_to_a_position_goes_on_from_there_also_at_the_end_of_an_epoch() {
        for position in [0, 3, 7, 12, 14] {
            let mut whole = DataCursor::new(RootSeed(3), SeedStream::Data);
            whole.next(7, position);
            let mut resumed = DataCursor::new(RootSeed(3), SeedStream::Data);
            resumed.seek(whole.drawn());
            assert_eq!(whole.next(7, 20), resumed.next(7, 20), "{position}");
        }
    }
}

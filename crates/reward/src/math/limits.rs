//! What bounds the work of one comparison: every loop of the grader is paid for from a budget.

use std::cell::Cell;

/// Longest answer that is parsed, in bytes; longer ones are compared as text.
pub(crate) const MAX_ANSWER_BYTES: usize = 16_384;
/// Deepest nesting that is parsed.
pub(crate) const MAX_DEPTH: usize = 40;
/// Most nodes of a syntax tree.
pub(crate) const MAX_NODES: usize = 8_192;
/// Most digits of a literal, and most decimal digits that an exponent in scientific notation may add.
pub(crate) const MAX_DIGITS: usize = 2_000;
/// Most bits of an exact number; beyond that the value is not computed.
pub(crate) const MAX_BITS: u64 = 20_000;
/// Largest integer whose factorial is computed exactly.
pub(crate) const MAX_FACTORIAL: u64 = 1_000;
/// Most terms of a polynomial normal form.
pub(crate) const MAX_TERMS: usize = 400;
/// Largest exponent that a polynomial normal form expands.
pub(crate) const MAX_EXPONENT: u32 = 40;
/// Most terms of a finite series that are added up.
pub(crate) const MAX_SERIES: i64 = 1_000;
/// Sets up to this size are matched element against element; larger ones are sorted first.
pub(crate) const MAX_MATCHED: usize = 24;
/// Steps that one comparison may take; when they are used up the answers count as different.
pub(crate) const MAX_STEPS: u64 = 400_000;

/// The steps left to a comparison.
#[derive(Debug)]
pub(crate) struct Budget {
    left: Cell<u64>,
}

impl Budget {
    pub(crate) fn new(steps: u64) -> Self {
        Self { left: Cell::new(steps) }
    }

    /// Takes `steps`; `None` when fewer are left, and from then on.
    pub(crate) fn spend(&self, steps: u64) -> Option<()> {
        match self.left.get().checked_sub(steps) {
            Some(left) => {
                self.left.set(left);
                Some(())
            }
            None => {
                self.left.set(0);
                None
            }
        }
    }

    /// Steps taken so far of a budget of [`MAX_STEPS`].
    #[cfg(test)]
    pub(crate) fn spent(&self) -> u64 {
        MAX_STEPS - self.left.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overdrawn_budget_stays_empty() {
        let budget = Budget::new(10);
        assert!(budget.spend(7).is_some());
        assert!(budget.spend(7).is_none());
        assert!(budget.spend(1).is_none());
    }
}

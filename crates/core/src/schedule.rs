//! The plug-in that says how far a weight may go at each position.

use std::fmt::Debug;

use crate::{Requirements, ResponseTokens, Stateful};

/// The window of a weight, as ratios around 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Lower end; at or below zero it never binds.
    pub low: f64,
    /// Upper end; may be infinite.
    pub high: f64,
}

impl Bounds {
    /// A window that never binds.
    pub const OPEN: Self = Self { low: 0.0, high: f64::INFINITY };

    /// The window [1 − low, 1 + high].
    pub fn around_one(low: f64, high: f64) -> Self {
        Self { low: 1.0 - low, high: 1.0 + high }
    }
}

/// The window of the importance weight at each position of a response. What happens outside is the [`crate::Gate`]'s affair.
pub trait ClipSchedule: Debug + Send + Sync {
    /// Writes the window of each policy token; `out` has the response's length.
    fn bounds(&self, response: &ResponseTokens<'_>, out: &mut [Bounds]);

    /// What the schedule needs beyond the behaviour policy's log-probs.
    fn requirements(&self) -> Requirements {
        Requirements::default()
    }

    /// The schedule's state, if it has one.
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        None
    }
}

impl<T: ClipSchedule + ?Sized> ClipSchedule for Box<T> {
    fn bounds(&self, response: &ResponseTokens<'_>, out: &mut [Bounds]) {
        (**self).bounds(response, out);
    }
    fn requirements(&self) -> Requirements {
        (**self).requirements()
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        (**self).stateful()
    }
}

const _: Option<&dyn ClipSchedule> = None; // object-safe

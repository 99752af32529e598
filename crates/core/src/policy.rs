//! The named policies whose log-probs a ratio is formed from.
//!
//! "Old" is never said: tokens are *sampled* by the behaviour policy, a step may be *anchored* at a proximal policy, and the
//! current policy is what learns. Which two a ratio compares is chosen by [`Anchor`] and formed in one place
//! ([`crate::ResponseContext`]).

use std::{fmt::Debug, marker::PhantomData};

use serde::{Deserialize, Serialize};

mod sealed {
    pub trait Sealed {}
}

/// Marks whose log-probs a [`LogProbs`] holds.
pub trait PolicyKind: sealed::Sealed + Debug + Copy {
    /// Name in errors and metrics.
    const NAME: &'static str;
}

macro_rules! policy_kind {
    ($(#[$doc:meta])* $kind:ident, $name:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $kind {}
        impl sealed::Sealed for $kind {}
        impl PolicyKind for $kind {
            const NAME: &'static str = $name;
        }
    };
}

policy_kind!(
    /// The policy that sampled the tokens: π_roll, or μ.
    Behaviour,
    "behaviour"
);
policy_kind!(
    /// The learner's weights at the start of the rollout batch, recomputed by the trainer: π_old.
    Proximal,
    "proximal"
);
policy_kind!(
    /// The learner's weights now: π_θ.
    Current,
    "current"
);
policy_kind!(
    /// The fixed policy of a KL term: π_ref.
    Reference,
    "reference"
);

/// Log-probs (nats) of the policy tokens of one response under policy `P`, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct LogProbs<P: PolicyKind> {
    values: Vec<f64>,
    policy: PhantomData<P>,
}

impl<P: PolicyKind> LogProbs<P> {
    /// Names the policy that `values` belong to.
    pub fn new(values: Vec<f64>) -> Self {
        Self { values, policy: PhantomData }
    }

    /// One value per policy token.
    pub fn values(&self) -> &[f64] {
        &self.values
    }
}

/// Which policy the importance ratio compares the current one with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Anchor {
    /// The policy that sampled the tokens, for all epochs over a rollout batch.
    #[default]
    Behaviour,
    /// The learner's own log-probs at the start of the rollout batch.
    Proximal,
}

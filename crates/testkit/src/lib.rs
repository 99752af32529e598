//! Checks for plug-in authors. Like `assert!`, they panic with a message that says what is wrong.
//!
//! * Contract checks, one a trait: [`check_estimator`], [`check_schedule`], [`check_gate`],
//!   [`check_objective`], [`check_advantage_estimator`], [`check_verifier`], and [`check_causality`] for
//!   estimators that claim it.
//! * Central differences: [`loss_differences`] of an objective, [`slope_differences`] of a gate.
//! * Golden numbers: [`GoldenBatch`] expands masks into policy tokens and scatters coefficients back.
//! * [`TestResponse`], a response from plain slices, and [`assert_close`].
//!
//! ```
//! use firebrick_core::{ImportanceEstimator, ResponseTokens};
//!
//! /// Half of the token's log-ratio.
//! #[derive(Debug)]
//! struct Half;
//!
//! impl ImportanceEstimator for Half {
//!     fn log_weights(&self, response: &ResponseTokens<'_>, out: &mut [f64]) {
//!         for (out, log_ratio) in out.iter_mut().zip(response.log_ratios()) {
//!             *out = log_ratio / 2.0;
//!         }
//!     }
//! }
//!
//! firebrick_testkit::check_estimator(Half);
//! firebrick_testkit::check_causality(&Half);
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]

mod close;
mod contract;
mod difference;
mod golden;
mod record;
mod test_response;

pub use close::{assert_all_close, assert_close};
pub use contract::{
    check_advantage_estimator, check_causality, check_estimator, check_gate, check_objective, check_schedule,
    check_verifier,
};
pub use difference::{central_differences, loss_differences, slope_differences};
pub use golden::{GoldenBatch, GoldenOutcome, GoldenRow};
pub use record::{Record, load_records};
pub use test_response::TestResponse;

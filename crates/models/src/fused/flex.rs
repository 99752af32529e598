//! The operations on burn-flex.

use burn_flex::Flex;

use super::FusedOps;

impl FusedOps for Flex {}

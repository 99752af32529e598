//! The operations on burn-ndarray.

use burn_ndarray::NdArray;

use super::FusedOps;

impl FusedOps for NdArray<f32> {}

impl FusedOps for NdArray<f64> {}

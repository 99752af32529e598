//! The operations on WebGPU.

use burn::{backend::Wgpu, tensor::f16};

use super::FusedOps;

impl FusedOps for Wgpu<f32> {}

impl FusedOps for Wgpu<f16> {}

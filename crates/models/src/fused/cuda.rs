//! The operations on CUDA.

use burn::{
    backend::Cuda,
    tensor::{bf16, f16},
};

use super::FusedOps;

impl FusedOps for Cuda<f32> {}

impl FusedOps for Cuda<f16> {}

impl FusedOps for Cuda<bf16> {}

//! Reductions in f32 on backends with half-precision elements.

use burn::tensor::{DType, FloatDType, Tensor, backend::Backend};

/// Casts half-precision elements to f32 and leaves wider ones alone.
pub(super) fn widened<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    match x.dtype() {
        DType::F16 | DType::BF16 => x.cast(FloatDType::F32),
        _ => x,
    }
}

/// Casts to the type of elements that `dtype` names, if it is another one.
pub(super) fn narrowed<B: Backend, const D: usize>(x: Tensor<B, D>, dtype: DType) -> Tensor<B, D> {
    if x.dtype() == dtype { x } else { x.cast(FloatDType::from(dtype)) }
}

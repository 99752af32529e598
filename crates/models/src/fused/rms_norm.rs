//! Normalisation by the root mean square, composed.

use burn::tensor::{Tensor, backend::Backend};

use super::precision::{narrowed, widened};

pub(super) fn composed<B: Backend>(x: Tensor<B, 2>, weight: Tensor<B, 1>, eps: f64) -> Tensor<B, 2> {
    let dtype = x.dtype();
    let x = widened(x);
    // A division, since burn-ndarray's reciprocal is good to three digits only when it is built with SIMD.
    let root = (x.clone() * x.clone()).mean_dim(1).add_scalar(eps).sqrt();
    narrowed(x / root, dtype) * weight.unsqueeze()
}

/// With x̂ = x/r: ∂x = (g·w − x̂·mean(g·w·x̂))/r and ∂w = Σ g·x̂ over rows.
pub(super) fn composed_backward<B: Backend>(
    x: Tensor<B, 2>,
    weight: Tensor<B, 1>,
    eps: f64,
    grad: Tensor<B, 2>,
) -> (Tensor<B, 2>, Tensor<B, 1>) {
    let dtype = x.dtype();
    let (x, grad) = (widened(x), widened(grad));
    let root = (x.clone() * x.clone()).mean_dim(1).add_scalar(eps).sqrt();
    let normed = x / root.clone();
    let scaled = grad.clone() * widened(weight).unsqueeze();
    let along = (scaled.clone() * normed.clone()).mean_dim(1);
    let weight_grad = (grad * normed.clone()).sum_dim(0).squeeze_dim(0);
    (narrowed((scaled - normed * along) / root, dtype), narrowed(weight_grad, dtype))
}

#[cfg(test)]
mod tests {
    use crate::{
        reference,
        testing::{assert_close, numbers, on_both_backends, tensor, values},
    };

    on_both_backends! {
        /// Row (3, 4): mean square 12.5; with ε = 3.5 the root is 4.
        fn rows_are_divided_by_their_root_mean_square_and_scaled<B>() {
            let normed = B::rms_norm(tensor(&[3.0, 4.0, 0.0, 0.0], [2, 2]), tensor(&[1.0, 2.0], [2]), 3.5);
            assert_close(&values(&normed), &[0.75, 2.0, 0.0, 0.0], 1e-6);
        }

        fn agrees_with_plain_loops<B>() {
            let (x, weight) = (numbers(1, 20 * 7), numbers(2, 7));
            let normed = B::rms_norm(tensor(&x, [20, 7]), tensor(&weight, [7]), 1e-6);
            let [x, weight] = [x, weight].map(|list| list.into_iter().map(f64::from).collect::<Vec<_>>());
            let expected: Vec<f64> =
                x.chunks_exact(7).flat_map(|row| reference::rms_norm(row, &weight, 1e-6)).collect();
            assert_close(&values(&normed), &expected, 1e-6);
        }
    }
}

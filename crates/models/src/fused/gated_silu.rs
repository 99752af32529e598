//! The gated product, composed.

use burn::tensor::{Tensor, activation::sigmoid, backend::Backend};

pub(super) fn composed<B: Backend>(gate: Tensor<B, 2>, up: Tensor<B, 2>) -> Tensor<B, 2> {
    gate.clone() * sigmoid(gate) * up
}

/// With s = sigmoid(gate): ∂gate = g·up·s·(1 + gate·(1 − s)) and ∂up = g·gate·s.
pub(super) fn composed_backward<B: Backend>(
    gate: Tensor<B, 2>,
    up: Tensor<B, 2>,
    grad: Tensor<B, 2>,
) -> (Tensor<B, 2>, Tensor<B, 2>) {
    let logistic = sigmoid(gate.clone());
    let grad = grad * logistic.clone();
    let up_grad = grad.clone() * gate.clone();
    let slope = (gate * (logistic.neg().add_scalar(1.0))).add_scalar(1.0);
    (grad * up * slope, up_grad)
}

#[cfg(test)]
mod tests {
    use crate::testing::{assert_close, on_both_backends, tensor, values};

    on_both_backends! {
        /// silu(0) = 0, silu(1) = 1/(1 + 1/e) = 0.731059, silu(−2) = −2/(1 + e²) = −0.238406; far out x and
        /// 0.
        fn gates_by_x_times_the_logistic_function<B>() {
            let gate = tensor(&[0.0, 1.0, -2.0, 100.0, -100.0], [1, 5]);
            let up = tensor(&[5.0, 2.0, 3.0, 0.5, 4.0], [1, 5]);
            let expected = [0.0, 1.462_117, -0.715_218, 50.0, 0.0];
            assert_close(&values(&B::gated_silu(gate, up)), &expected, 1e-5);
        }
    }
}

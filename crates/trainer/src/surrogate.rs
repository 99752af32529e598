//! What the device minimises.

use burn::tensor::{Tensor, backend::Backend};

/// The surrogate −Σ_n c_n · log π_θ(y_n), whose gradient is exactly the objective's.
///
/// `coefficients` are constants from the host, the denominator already in them; the log-probs of padding were never
/// selected, so nothing is masked here.
///
/// # Shapes
/// - `log_probs`, `coefficients`: `[N]`
/// - returns `[1]`
pub fn surrogate<B: Backend>(log_probs: Tensor<B, 1>, coefficients: Tensor<B, 1>) -> Tensor<B, 1> {
    (log_probs * coefficients).sum().neg()
}

//! Responses that plug-ins are tried on.

use crate::TestResponse;

/// Responses of several lengths, from no token at all to log-ratios far beyond the clamp, with reference
/// log-probs.
pub(super) fn responses() -> Vec<TestResponse> {
    // Numbers without a pattern that a plug-in could follow by accident, in (−1, 1).
    let wave = |index: usize, phase: f64| ((index as f64 + 1.0) * 12.9898 + phase).sin() * 43_758.545_3 % 1.0;
    let plain = |len: usize, scale: f64, phase: f64| {
        let behaviour: Vec<f64> = (0..len).map(|i| -1.0 - wave(i, phase + 1.0).abs()).collect();
        let current: Vec<f64> = (0..len).map(|i| behaviour[i] + scale * wave(i, phase)).collect();
        let advantages: Vec<f64> = (0..len).map(|i| 2.0 * wave(i, phase + 2.0)).collect();
        let reference: Vec<f64> = (0..len).map(|i| behaviour[i] + 0.3 * wave(i, phase + 3.0)).collect();
        TestResponse::new(&behaviour, &current, &advantages).with_reference(&reference)
    };
    let mut responses = vec![plain(0, 0.0, 0.0), plain(3, 0.0, 0.1)];
    for (index, len) in [1, 2, 4, 17, 64].into_iter().enumerate() {
        for scale in [1e-4, 0.1, 1.0] {
            responses.push(plain(len, scale, index as f64));
        }
    }
    let extreme = TestResponse::new(
        &[-150.0, -0.01, -2.0, -1e-9, -300.0],
        &[-0.01, -120.0, -2.0, -1e-9, -280.5],
        &[-1.5, 1e6, 0.0, -1e6, 2.0],
    );
    responses.push(extreme.with_reference(&[-1.0, -1.0, -200.0, -1e-9, -0.5]));
    responses
}

//! The moments that the prefix mean must have when a policy drifts at random.

use firebrick_core::ImportanceEstimator;
use firebrick_objectives::PrefixMean;
use firebrick_testkit::{TestResponse, assert_close};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn log_weights(d: &[f64]) -> Vec<f64> {
    let response = TestResponse::from_log_ratios(d, &vec![1.0; d.len()]);
    let mut out = vec![0.0; d.len()];
    PrefixMean::default().log_weights(&response.tokens(), &mut out);
    out
}

/// With d_k ~ N(−s²/2, s²) independent: log R_t ~ N(−s²/2, s²/t), so E[R_t] = exp(−s²/2 + s²/(2t)) and
/// Var(R_t) = exp(−s² + s²/t) (exp(s²/t) − 1), while E[C_t] = 1 and Var(C_t) = exp(t s²) − 1.
#[test]
fn the_prefix_mean_has_the_moments_that_independent_drift_predicts() {
    const DRAWS: usize = 200_000;
    let mut rng = ChaCha8Rng::seed_from_u64(2610);
    for s in [0.1_f64, 0.3, 0.5] {
        let positions = [1, 4, 16];
        let mut weights = [const { Vec::new() }; 3];
        let mut products = Vec::new();
        let mut tails = [0usize; 2];
        for _ in 0..DRAWS {
            let d: Vec<f64> = (0..16).map(|_| s * standard_normal(&mut rng) - s * s / 2.0).collect();
            let log_weights = log_weights(&d);
            for (weights, t) in weights.iter_mut().zip(positions) {
                weights.push(log_weights[t - 1].exp());
            }
            products.push((16.0 * log_weights[15]).exp());
            let deviation = (log_weights[15] + s * s / 2.0).abs();
            tails[0] += usize::from(deviation >= 0.1);
            tails[1] += usize::from(deviation >= 0.2);
        }
        for (weights, t) in weights.iter().zip(positions) {
            let share = s * s / t as f64;
            let (mean, variance) = moments(weights);
            let expected_mean = (-s * s / 2.0 + share / 2.0).exp();
            let expected_variance = (-s * s + share).exp() * share.exp_m1();
            assert_close(mean, expected_mean, 5e-3, &format!("mean, s = {s}, t = {t}"));
            assert_close(variance, expected_variance, 0.02, &format!("variance, s = {s}, t = {t}"));
        }
        if s == 0.1 {
            let (mean, variance) = moments(&products);
            assert_close(mean, 1.0, 5e-3, "mean of the product");
            assert_close(variance, (16.0 * s * s).exp_m1(), 0.03, "variance of the product");
        }
        if s == 0.3 {
            let fraction = tails.map(|count| count as f64 / DRAWS as f64);
            assert_close(fraction[0], 0.182, 0.02, "P(|log R − E| ≥ 0.1)");
            assert_close(fraction[1], 0.0077, 0.1, "P(|log R − E| ≥ 0.2)");
            for (fraction, deviation) in fraction.into_iter().zip([0.1_f64, 0.2]) {
                let bound = 2.0 * (-16.0 * deviation * deviation / (2.0 * s * s)).exp();
                assert!(fraction <= bound, "{fraction} above the sub-Gaussian bound {bound}");
            }
        }
    }
}

/// Box-Muller.
fn standard_normal(rng: &mut ChaCha8Rng) -> f64 {
    let (radius, angle): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

fn moments(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (mean, squares / values.len() as f64)
}

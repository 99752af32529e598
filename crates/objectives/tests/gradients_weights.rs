//! Coefficients of the estimators with a pull-back of their own, against central differences of the loss.

use firebrick_core::Objective;
use firebrick_objectives::{
    BoundedPrefixProduct, Composed, ConstantClip, PpoMin, PrefixProduct, SequenceProduct,
};
use firebrick_testkit::{TestResponse, central_differences, loss_differences};

const STEP: f64 = 1e-6;
const WEIGHT: f64 = 0.1;
const DRIFTS: [[f64; 4]; 3] = [[0.1, -0.2, 0.3, 0.05], [-0.9, 0.4, 0.6, -0.2], [0.6, 0.7, -0.9, 0.5]];
const ADVANTAGES: [f64; 2] = [1.5, -0.7];

#[test]
fn the_sequence_product_has_the_full_derivative() {
    let clip = ConstantClip { low: 0.2, high: 0.5 };
    let objective = Composed::new(SequenceProduct::default(), clip, PpoMin::default());
    let mut moved = 0;
    for d in DRIFTS {
        for advantage in ADVANTAGES {
            let response = TestResponse::from_log_ratios(&d, &[advantage; 4]);
            let terms = objective.evaluate(&response.tokens(), WEIGHT);
            let differences = loss_differences(&objective, &response, WEIGHT, STEP);
            for (coefficient, difference) in terms.coefficients.iter().zip(differences) {
                assert!((difference + coefficient).abs() < 2e-8, "{d:?}, {coefficient}, {difference}");
                moved += usize::from(difference.abs() > 1e-3);
            }
        }
    }
    assert!(moved >= 12, "only {moved} tokens have a gradient");
}

/// −a Σ_t min(ŵ A, clip(ŵ) A), where the log-weight at t is what `log_weight(t, d_t)` makes of the token's own log-ratio,
/// the prefix frozen.
fn frozen_loss(d: &[f64], advantage: f64, log_weight: impl Fn(usize, f64) -> f64) -> f64 {
    let value = |(t, d): (usize, &f64)| {
        let weight = log_weight(t, *d).exp();
        (weight * advantage).min(weight.clamp(0.2, 2.5) * advantage)
    };
    -WEIGHT * d.iter().enumerate().map(value).sum::<f64>()
}

#[track_caller]
fn assert_current_gradient(objective: &dyn Objective, log_weight: impl Fn(&[f64], usize, f64) -> f64) {
    let mut kept = [0, 0];
    for d in DRIFTS {
        for advantage in ADVANTAGES {
            let response = TestResponse::from_log_ratios(&d, &[advantage; 4]);
            let terms = objective.evaluate(&response.tokens(), WEIGHT);
            let loss = |d_moved: &[f64]| frozen_loss(d_moved, advantage, |t, own| log_weight(&d, t, own));
            assert!((terms.loss - loss(&d)).abs() < 1e-12, "{objective:?}, {d:?}: {}", terms.loss);
            let differences = central_differences(&d, STEP, loss);
            for (index, (coefficient, difference)) in terms.coefficients.iter().zip(differences).enumerate() {
                assert!(
                    (difference + coefficient).abs() < 2e-8,
                    "{objective:?}, {d:?}, token {index}: coefficient {coefficient}, difference {difference}"
                );
                kept[usize::from(difference.abs() > 1e-3)] += 1;
            }
        }
    }
    assert!(kept[0] >= 2 && kept[1] >= 8, "{objective:?}: {kept:?} tokens without and with a gradient");
}

const CLIP: ConstantClip = ConstantClip { low: 0.8, high: 1.5 };

#[test]
fn the_clamped_prefix_product_differentiates_the_current_token_below_its_clamp() {
    let part = PrefixProduct { max_log_weight: 0.8 };
    assert_current_gradient(&Composed::new(part, CLIP, PpoMin::default()), |d, t, own| {
        (d[..t].iter().sum::<f64>() + own).min(0.8)
    });
}

#[test]
fn the_bounded_prefix_product_differentiates_tokens_that_take_part() {
    for root in [false, true] {
        let part = BoundedPrefixProduct { width: 0.45, root };
        assert_current_gradient(&Composed::new(part, CLIP, PpoMin::default()), |d, t, own| {
            let inside = |d: f64| if d.abs() <= 0.45 { d } else { 0.0 };
            let divisor = if root { (t + 1) as f64 } else { 1.0 };
            // The own ratio enters undivided, as a factor π_θ/sg[π_θ].
            let frozen = d[..=t].iter().copied().map(inside).sum::<f64>() / divisor;
            frozen + inside(own) - inside(d[t])
        });
    }
}

//! Coefficients against central differences of the loss.
//!
//! Where nothing is detached, the loss itself is differenced. Where the weight is detached, a plain function
//! of the log-probs stands in, written from the formula, with what is frozen passed in from outside.

use firebrick_core::Objective;
use firebrick_objectives::{
    Composed, ConstantClip, HardMask, IntervalForm, InverseSqrtClip, KlEstimator, KlTerm, MaskedValue,
    OuterBounds, PpoMin, PrefixMean, PrefixRoute, SequenceMean, SequenceRoute, SqrtRatioClip, TokenRatio,
};
use firebrick_testkit::{TestResponse, assert_close, central_differences, loss_differences};

const STEP: f64 = 1e-6;
const TOLERANCE: f64 = 2e-8;
const WEIGHT: f64 = 0.1;
const BEHAVIOUR: [f64; 6] = [-0.7, -1.6, -3.0, -0.1, -2.2, -0.9];
const REFERENCE: [f64; 6] = [-0.9, -1.5, -2.0, -0.3, -2.4, -0.4];
/// Log-ratios that clip above, below, far outside and not at all, for either sign of the advantage.
const DRIFTS: [[f64; 6]; 4] = [
    [0.1, -0.2, 0.3, 0.05, -0.01, 0.02],
    [-0.9, 0.4, 2.6, -1.2, 0.3, 0.1],
    [2.7, 2.4, 2.9, 2.1, 2.5, 2.6],
    [-1.1, -0.8, -1.3, -0.7, -1.0, -0.9],
];
const ADVANTAGES: [[f64; 6]; 3] = [[1.5; 6], [-0.7; 6], [0.4, -1.2, 0.9, -0.3, 2.0, -1.1]];

fn responses() -> Vec<TestResponse> {
    let with = |drift: [f64; 6], advantages: [f64; 6]| {
        let current: Vec<f64> = BEHAVIOUR.iter().zip(drift).map(|(anchor, d)| anchor + d).collect();
        TestResponse::new(&BEHAVIOUR, &current, &advantages).with_reference(&REFERENCE)
    };
    DRIFTS.into_iter().flat_map(|drift| ADVANTAGES.map(|advantages| with(drift, advantages))).collect()
}

/// Compares minus the coefficients with the central differences of `loss(response, current log-probs)`.
#[track_caller]
fn assert_gradient(objective: &dyn Objective, loss: impl Fn(&TestResponse, &[f64]) -> f64) {
    let mut moved = 0;
    for response in responses() {
        let terms = objective.evaluate(&response.tokens(), WEIGHT);
        let current = response.current().values();
        assert_close(loss(&response, current), terms.loss, 1e-12, "loss");
        let differences = central_differences(current, STEP, |moving| loss(&response, moving));
        for (index, (coefficient, difference)) in terms.coefficients.iter().zip(differences).enumerate() {
            assert!(
                (difference + coefficient).abs() < TOLERANCE,
                "{objective:?}, token {index}: coefficient {coefficient}, difference {difference}"
            );
            moved += usize::from(difference.abs() > 1e-3);
        }
    }
    assert!(moved >= 15, "{objective:?}: only {moved} tokens have a gradient");
}

#[track_caller]
fn assert_full_gradient(objective: &dyn Objective) {
    for response in responses() {
        let terms = objective.evaluate(&response.tokens(), WEIGHT);
        let differences = loss_differences(objective, &response, WEIGHT, STEP);
        for (coefficient, difference) in terms.coefficients.iter().zip(differences) {
            assert!(
                (difference + coefficient).abs() < TOLERANCE,
                "{objective:?}: coefficient {coefficient}, difference {difference}"
            );
        }
    }
}

fn gates() -> Vec<PpoMin> {
    [
        OuterBounds::Open {},
        OuterBounds::WindowCap { low: 0.5, high: 10.0 },
        OuterBounds::RatioClamp { low: 0.5, high: 10.0 },
        OuterBounds::DualClipOnly { high: 10.0 },
    ]
    .into_iter()
    .flat_map(|outer| [None, Some(3.0)].map(|dual_clip| PpoMin { dual_clip, outer, ..PpoMin::default() }))
    .collect()
}

#[test]
fn routes_that_reach_all_tokens_have_the_full_derivative() {
    let clip = ConstantClip { low: 0.2, high: 0.28 };
    for gate in gates() {
        assert_full_gradient(&Composed::new(TokenRatio, clip, gate));
        let sequence = SequenceMean { route: SequenceRoute::Sequence };
        assert_full_gradient(&Composed::new(sequence, clip, gate));
        let prefix = PrefixMean { route: PrefixRoute::FullPrefix };
        assert_full_gradient(&Composed::new(prefix, InverseSqrtClip::default(), gate));
    }
}

#[test]
fn kl_penalties_have_the_full_derivative() {
    for estimator in [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3, KlEstimator::Abs] {
        let objective = Composed::new(TokenRatio, ConstantClip { low: 0.2, high: 0.2 }, PpoMin::default())
            .with_kl(KlTerm::new(estimator, 0.04));
        assert_full_gradient(&objective);
    }
}

/// −a Σ_t max(min(ŵ A, clip(ŵ) A), c A if A < 0), with ŵ = frozen weight · π_θ(y_t)/frozen π_θ(y_t), clamped
/// to `outer`.
fn clipped_loss(
    response: &TestResponse,
    current: &[f64],
    frozen_log_weights: &[f64],
    windows: &[(f64, f64)],
    outer: Option<(f64, f64)>,
    dual_clip: f64,
) -> f64 {
    let frozen = response.current().values();
    let mut sum = 0.0;
    for (t, advantage) in response.tokens().advantages().iter().enumerate() {
        let mut weight = (frozen_log_weights[t] + current[t] - frozen[t]).exp();
        if let Some((low, high)) = outer {
            weight = weight.clamp(low, high);
        }
        let (low, high) = windows[t];
        let mut value = (weight * advantage).min(weight.clamp(low, high) * advantage);
        if *advantage < 0.0 {
            value = value.max(dual_clip * advantage);
        }
        sum += value;
    }
    -WEIGHT * sum
}

fn prefix_means(response: &TestResponse) -> Vec<f64> {
    let tokens = response.tokens();
    let d = tokens.log_ratios();
    (1..=d.len()).map(|t| d[..t].iter().sum::<f64>() / t as f64).collect()
}

/// Equation 13 of TAPO, in the order in which it is printed.
fn inverse_sqrt_windows(len: usize) -> Vec<(f64, f64)> {
    let root = |t: usize| 1.0 / (t as f64).sqrt();
    let eps = |min: f64, t: usize| min + (0.2 - min) * (root(t) - root(len)) / (1.0 - root(len));
    (1..=len).map(|t| (1.0 - eps(3e-4, t), 1.0 + eps(4e-4, t))).collect()
}

#[test]
fn tapo_differentiates_the_current_token_with_the_prefix_frozen() {
    let clamp = OuterBounds::RatioClamp { low: 0.5, high: 10.0 };
    for (outer, bounds) in [(OuterBounds::Open {}, None), (clamp, Some((0.5, 10.0)))] {
        for dual_clip in [None, Some(3.0)] {
            let gate = PpoMin { dual_clip, outer, ..PpoMin::default() };
            let objective = Composed::new(PrefixMean::default(), InverseSqrtClip::default(), gate);
            assert_gradient(&objective, |response, current| {
                let windows = inverse_sqrt_windows(current.len());
                let log_weights = prefix_means(response);
                clipped_loss(
                    response,
                    current,
                    &log_weights,
                    &windows,
                    bounds,
                    dual_clip.unwrap_or(f64::INFINITY),
                )
            });
        }
    }
}

#[test]
fn gspo_token_differentiates_the_current_token_with_the_sequence_frozen() {
    let clip = ConstantClip { low: 0.2, high: 0.28 };
    let estimator = SequenceMean { route: SequenceRoute::Current };
    assert_gradient(&Composed::new(estimator, clip, PpoMin::default()), |response, current| {
        let mean = *prefix_means(response).last().expect("the response has tokens");
        let windows = vec![(0.8, 1.28); current.len()];
        clipped_loss(response, current, &vec![mean; current.len()], &windows, None, f64::INFINITY)
    });
}

/// −a Σ_t sg[M w A] log π_θ(y_t): weight, mask and interval are all frozen.
#[test]
fn pnpo_differentiates_the_log_prob_alone() {
    let schedule = SqrtRatioClip { eps_minus: 0.4, eps_plus: 0.6, interval: IntervalForm::Linear };
    let gate = HardMask { value: MaskedValue::WeightedLogProb };
    assert_gradient(&Composed::new(PrefixMean::default(), schedule, gate), |response, current| {
        let len = current.len() as f64;
        let mut sum = 0.0;
        for (index, log_weight) in prefix_means(response).into_iter().enumerate() {
            let (weight, widening) = (log_weight.exp(), (len / (index + 1) as f64).sqrt());
            if 1.0 - 0.4 * widening <= weight && weight <= 1.0 + 0.6 * widening {
                sum += weight * response.tokens().advantages()[index] * current[index];
            }
        }
        -WEIGHT * sum
    });
}

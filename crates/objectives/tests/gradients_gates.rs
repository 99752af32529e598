//! Coefficients of each gate against central differences of its loss, written here from the formula alone.
//!
//! Every reference takes the current log-probs twice: those that are differenced, and the response's own, which stand
//! for what is frozen.

use firebrick_core::{LogProbs, Objective, OptimizerBatch, TopK};
use firebrick_objectives::{
    Composed, ConstantClip, CovarianceClip, CovarianceKl, Divergence, DivergenceMask, DualClipGrowth,
    EstimatorConfig, GeometricMean, GradientPreserving, InverseSqrtClip, MaskFrom, MaskedValue, MeanScope,
    OffPolicySequenceMask, PpoMin, PrefixMean, Reciprocal, Saturating, ScheduleConfig,
    SequenceDivergenceMask, SequenceStatistic, Sigmoid, TokenRatio,
};
use firebrick_testkit::{TestResponse, assert_close, central_differences};

const STEP: f64 = 1e-6;
const TOLERANCE: f64 = 2e-8;
const WEIGHT: f64 = 0.1;
const BEHAVIOUR: [f64; 6] = [-0.7, -1.6, -3.0, -0.4, -2.2, -0.9];
/// Log-ratios that clip above, below, far outside and not at all, for either sign of the advantage.
const DRIFTS: [[f64; 6]; 4] = [
    [0.1, -0.2, 0.3, 0.05, -0.01, 0.02],
    [-0.9, 0.4, 1.6, -1.2, 0.3, 0.1],
    [0.6, 1.4, 2.9, 0.3, 2.0, 0.8],
    [-1.1, -0.8, -1.3, -0.7, -1.0, -0.9],
];
const ADVANTAGES: [[f64; 6]; 3] = [[1.5; 6], [-0.7; 6], [0.4, -1.2, 0.9, -0.3, 2.0, -1.1]];
const CLIP: ConstantClip = ConstantClip { low: 0.2, high: 0.28 };
const OPEN: ConstantClip = ConstantClip { low: 1.0, high: 1e12 };

/// Log-probs of the sampled token and of two others, which hold 0.5 and 0.25 of the rest.
fn likely(log_probs: &[f64]) -> Vec<f64> {
    let other = |log_prob: f64, share: f64| (share * (1.0 - log_prob.exp())).ln();
    log_probs.iter().flat_map(|l| [*l, other(*l, 0.5), other(*l, 0.25)]).collect()
}

fn responses() -> Vec<TestResponse> {
    let with = |drift: [f64; 6], advantages: [f64; 6]| {
        let current: Vec<f64> = BEHAVIOUR.iter().zip(drift).map(|(anchor, d)| anchor + d).collect();
        let top_k = TopK {
            k: 3,
            tokens: (0..18).collect(),
            log_probs: likely(&BEHAVIOUR),
            holds_sampled: vec![true; 6],
        };
        TestResponse::new(&BEHAVIOUR, &current, &advantages).with_top_k(top_k, &likely(&current))
    };
    let all = DRIFTS.into_iter().flat_map(|drift| ADVANTAGES.map(|advantages| with(drift, advantages)));
    all.enumerate().map(|(index, r)| r.map_context(|context| context.with_index(index))).collect()
}

/// What a reference sees of one token: its anchor, the frozen and the moving log-prob, its advantage.
struct Token {
    anchor: f64,
    frozen: f64,
    moving: f64,
    a: f64,
}

impl Token {
    /// The ratio, frozen.
    fn w(&self) -> f64 {
        (self.frozen - self.anchor).exp()
    }
    /// The ratio, moving.
    fn r(&self) -> f64 {
        (self.moving - self.anchor).exp()
    }
    /// π_θ/sg[π_θ]: one, with the derivative of the log-prob.
    fn one(&self) -> f64 {
        (self.moving - self.frozen).exp()
    }
}

fn tokens(response: &TestResponse, moving: &[f64]) -> Vec<Token> {
    let frozen = response.current().values();
    let token = |t: usize| Token {
        anchor: BEHAVIOUR[t],
        frozen: frozen[t],
        moving: moving[t],
        a: response.context().advantages()[t],
    };
    (0..moving.len()).map(token).collect()
}

/// Compares minus the coefficients with the central differences of −a Σ `objective(tokens)`, and counts the tokens with a
/// gradient, so that a test that compares zeros fails.
#[track_caller]
fn assert_gradient(objective: &dyn Objective, reference: impl Fn(&[Token]) -> f64) {
    let loss = |response: &TestResponse, moving: &[f64]| -WEIGHT * reference(&tokens(response, moving));
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

fn sum(tokens: &[Token], of: impl Fn(&Token) -> f64) -> f64 {
    tokens.iter().map(of).sum()
}

fn ppo(ratio: f64, a: f64, low: f64, high: f64) -> f64 {
    (ratio * a).min(ratio.clamp(low, high) * a)
}

#[test]
fn a_saturating_weight_differentiates_the_log_prob_alone() {
    let gate = Saturating { value: MaskedValue::WeightedLogProb };
    assert_gradient(&Composed::new(TokenRatio, CLIP, gate), |tokens| {
        sum(tokens, |t| t.w().clamp(0.8, 1.28) * t.a * t.moving)
    });
}

#[test]
fn the_sigmoid_gate_is_differentiated_as_it_stands() {
    assert_gradient(&Composed::new(TokenRatio, CLIP, Sigmoid::default()), |tokens| {
        sum(tokens, |t| {
            let tau = if t.a > 0.0 { 1.0 } else { 1.05 };
            4.0 / tau / (1.0 + (-tau * (t.r() - 1.0)).exp()) * t.a
        })
    });
}

/// A clipped token: the value stands at the bound, the gradient is the scale times the bound's.
#[test]
fn preserved_gradients_are_those_of_the_bound() {
    let gate = GradientPreserving { scale_low: 0.5, scale_high: 2.0, dual_clip: Some(3.0) };
    assert_gradient(&Composed::new(TokenRatio, CLIP, gate), |tokens| {
        sum(tokens, |t| match t.w() {
            w if t.a > 0.0 && w > 1.28 => 1.28 * t.a * (1.0 + 2.0 * (t.one() - 1.0)),
            w if t.a < 0.0 && w < 0.8 => 0.8 * t.a * (1.0 + 0.5 * (t.one() - 1.0)),
            w if t.a < 0.0 && w > 3.0 => 3.0 * t.a,
            _ => t.r() * t.a,
        })
    });
}

#[test]
fn a_reciprocal_weight_is_detached_for_good_tokens() {
    assert_gradient(&Composed::new(TokenRatio, CLIP, Reciprocal { max_weight: 2.5 }), |tokens| {
        sum(tokens, |t| match t.w() {
            w if t.a > 0.0 && w > 1.28 => 0.0,
            w if t.a > 0.0 => (1.0 / w).min(2.5) * t.one() * t.a,
            w if w < 0.8 => 0.8 * t.a,
            w => w.min(2.5) * t.one() * t.a,
        })
    });
}

/// Probabilities of the sampled token and, with K = 3, of two others; the rest last.
fn buckets(log_prob: f64, k: usize) -> Vec<f64> {
    let p = log_prob.exp();
    match k {
        0 => vec![p, 1.0 - p],
        _ => vec![p, 0.5 * (1.0 - p), 0.25 * (1.0 - p), 0.25 * (1.0 - p)],
    }
}

#[test]
fn a_divergence_mask_differentiates_the_log_prob_alone() {
    let (low, high) = (0.03, 0.05);
    let cases = [
        (Divergence::BinaryTv { low, high }, 0, false),
        (Divergence::BinaryKl { low, high }, 0, true),
        (Divergence::TopKTv { k: 3, low, high }, 3, false),
        (Divergence::TopKKl { k: 3, low, high }, 3, true),
    ];
    for (divergence, k, is_kl) in cases {
        let gate = DivergenceMask { divergence, max_weight: 3.0, value: MaskedValue::WeightedLogProb };
        assert_gradient(&Composed::new(TokenRatio, OPEN, gate), |tokens| {
            sum(tokens, |t| {
                let pairs: Vec<_> = buckets(t.anchor, k).into_iter().zip(buckets(t.frozen, k)).collect();
                let distance: f64 = if is_kl {
                    pairs.iter().map(|(mu, pi)| mu * (mu / pi).ln()).sum()
                } else {
                    pairs.iter().map(|(mu, pi)| (mu - pi).abs() / 2.0).sum()
                };
                let drops = if t.a > 0.0 {
                    t.frozen > t.anchor && distance > high
                } else {
                    t.frozen < t.anchor && distance > low
                };
                if drops { 0.0 } else { t.w().min(3.0) * t.a * t.moving }
            })
        });
    }
}

#[test]
fn a_masked_response_has_no_gradient_and_a_kept_one_that_of_ppo() {
    let gate = SequenceDivergenceMask { statistic: SequenceStatistic::MaxK3, threshold: 0.7 };
    assert_gradient(&Composed::new(TokenRatio, CLIP, gate), |tokens| {
        let far = |t: &Token| t.w() - 1.0 - t.w().ln() > 0.7;
        let keeps = !tokens.iter().any(far);
        sum(tokens, |t| if keeps { ppo(t.r(), t.a, 0.8, 1.28) } else { 0.0 })
    });
    let gate = OffPolicySequenceMask { delta: 0.5 };
    assert_gradient(&Composed::new(TokenRatio, CLIP, gate), |tokens| {
        let mean = sum(tokens, |t| t.anchor - t.frozen) / 6.0;
        let keeps = tokens[0].a >= 0.0 || mean <= 0.5;
        sum(tokens, |t| if keeps { ppo(t.r(), t.a, 0.8, 1.28) } else { 0.0 })
    });
}

/// The clipped log-ratio of GMPO.
fn clipped(d: f64, a: f64) -> f64 {
    if a > 0.0 { d.min(0.35) } else { d.max(-0.45) }
}

#[test]
fn the_geometric_mean_of_a_response_is_differentiated_as_it_stands() {
    let gate = GeometricMean { low: 0.45, high: 0.35, ..GeometricMean::default() };
    assert_gradient(&Composed::new(TokenRatio, OPEN, gate), |tokens| {
        let mean = sum(tokens, |t| clipped(t.moving - t.anchor, t.a)) / 6.0;
        6.0 * (sum(tokens, |t| t.a) / 6.0) * mean.exp()
    });
}

#[test]
fn the_geometric_mean_of_a_prefix_differentiates_the_current_token_alone() {
    let gate = GeometricMean { low: 0.45, high: 0.35, scope: MeanScope::Prefix };
    assert_gradient(&Composed::new(TokenRatio, OPEN, gate), |tokens| {
        let mut prefix = 0.0;
        let mut sum = 0.0;
        for (index, t) in tokens.iter().enumerate() {
            let frozen = clipped(t.frozen - t.anchor, t.a);
            prefix += frozen;
            let current = clipped(t.moving - t.anchor, t.a) - frozen;
            sum += t.a * (prefix / (index + 1) as f64).exp() * current.exp();
        }
        sum
    });
}

/// One optimizer batch of all responses.
fn prepared(mut objective: impl Objective) -> impl Objective {
    let responses = responses();
    let contexts: Vec<_> = responses.iter().map(TestResponse::context).collect();
    let current: Vec<_> =
        responses.iter().map(|response| LogProbs::new(response.current().values().to_vec())).collect();
    let batch = OptimizerBatch { responses: &contexts, current: Some(&current) };
    for (_, part) in objective.stateful_parts() {
        part.prepare(&batch).expect("the batch is complete");
    }
    objective
}

/// Covariance of a frozen token within that batch.
fn covariance() -> impl Fn(&Token) -> f64 {
    let all: Vec<Token> =
        responses().iter().flat_map(|response| tokens(response, response.current().values())).collect();
    let mean = |of: fn(&Token) -> f64| sum(&all, of) / all.len() as f64;
    let (a, l) = (mean(|t| t.a), mean(|t| t.frozen));
    move |t| (t.a - a) * (t.frozen - l)
}

#[test]
fn tokens_that_vary_together_lose_their_gradient() {
    let gate = CovarianceClip { cov_low: 0.3, cov_high: 1.0, ratio: 1.0, ..CovarianceClip::default() };
    let covariance = covariance();
    assert_gradient(&prepared(Composed::new(TokenRatio, CLIP, gate)), |tokens| {
        sum(tokens, |t| {
            let is_clipped = (t.a > 0.0 && t.w() > 1.28) || (t.a < 0.0 && t.w() < 0.8);
            let is_candidate = (0.3..1.0).contains(&covariance(t)) && !is_clipped;
            if is_candidate { 0.0 } else { ppo(t.r(), t.a, 0.8, 1.28) }
        })
    });
}

#[test]
fn tokens_that_vary_together_most_are_pulled_back() {
    let gate = CovarianceKl { fraction: 0.25, coefficient: 0.3, ..CovarianceKl::default() };
    let covariance = covariance();
    let mut all: Vec<f64> = responses()
        .iter()
        .flat_map(|response| tokens(response, response.current().values()))
        .map(|t| covariance(&t))
        .collect();
    all.sort_by(|a, b| b.total_cmp(a));
    // 18 of 72 tokens; no two covariances around the limit are equal.
    assert!(all[17] - all[18] > 1e-6);
    let limit = (all[17] + all[18]) / 2.0;
    assert_gradient(&prepared(Composed::new(TokenRatio, OPEN, gate)), |tokens| {
        sum(tokens, |t| {
            let penalty = if covariance(t) > limit { 0.3 * (t.moving - t.anchor).abs() } else { 0.0 };
            t.r() * t.a - penalty
        })
    });
}

/// TAPO's mask over the prefix ratio, the token ratio as the weight.
#[test]
fn a_borrowed_mask_is_frozen_and_the_weight_is_not() {
    let gate = MaskFrom {
        estimator: EstimatorConfig::PrefixMean(PrefixMean::default()),
        schedule: ScheduleConfig::InverseSqrt(InverseSqrtClip::default()),
        sign_aware: true,
    };
    let eps = |min: f64, t: f64| {
        let root = |t: f64| 1.0 / t.sqrt();
        min + (0.2 - min) * (root(t) - root(6.0)) / (1.0 - root(6.0))
    };
    let objective = Composed::new(TokenRatio, CLIP, gate.build());
    assert_gradient(&objective, |tokens| {
        let (mut prefix, mut sum) = (0.0, 0.0);
        for (index, t) in tokens.iter().enumerate() {
            prefix += t.frozen - t.anchor;
            let position = (index + 1) as f64;
            let ratio = (prefix / position).exp();
            let stops =
                if t.a > 0.0 { ratio > 1.0 + eps(4e-4, position) } else { ratio < 1.0 - eps(3e-4, position) };
            sum += if stops { 0.0 } else { t.r() * t.a };
        }
        sum
    });
}

#[test]
fn a_growing_dual_clip_stops_the_gradient_beyond_its_position() {
    let growth = DualClipGrowth { scale: 0.4, power: 0.5 };
    let gate = PpoMin { dual_clip_growth: Some(growth), ..PpoMin::default() };
    assert_gradient(&Composed::new(TokenRatio, CLIP, gate), |tokens| {
        let token = |(index, t): (usize, &Token)| {
            let value = ppo(t.r(), t.a, 0.8, 1.28);
            let cap = (0.4 * ((index + 1) as f64).sqrt()).exp();
            if t.a < 0.0 { value.max(cap * t.a) } else { value }
        };
        tokens.iter().enumerate().map(token).sum()
    });
}

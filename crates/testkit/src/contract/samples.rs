//! Responses that plug-ins are tried on.

use firebrick_core::{LogProbs, OptimizerBatch, Stateful, TopK};

use crate::TestResponse;

/// Shows all sample responses to a part that wants to see the whole batch.
///
/// # Panics
/// When the part refuses them, or does not accept the state that it saved.
#[track_caller]
pub(super) fn prepare(part: &mut dyn Stateful, name: &str) {
    let responses = responses();
    let contexts: Vec<_> = responses.iter().map(|response| response.context()).collect();
    let current: Vec<_> =
        responses.iter().map(|response| LogProbs::new(response.current().values().to_vec())).collect();
    let batch = OptimizerBatch { responses: &contexts, current: Some(&current) };
    part.prepare(&batch).unwrap_or_else(|error| panic!("{name}: {error}"));
    let state = part.save();
    part.load(&state).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(part.save(), state, "{name}: the restored state differs from the saved one");
}

/// Responses of several lengths, from no token at all to log-ratios far beyond the clamp, numbered, in groups of four, with
/// everything that a part may require.
pub(super) fn responses() -> Vec<TestResponse> {
    let complete = |(index, response): (usize, TestResponse)| {
        let behaviour = response.context().behaviour().to_vec();
        let current = response.current().values().to_vec();
        let halfway: Vec<f64> = behaviour.iter().zip(&current).map(|(b, c)| (b + c) / 2.0).collect();
        let entropies: Vec<f64> = current.iter().map(|log_prob| log_prob.abs().min(3.0)).collect();
        // The sampled token and two others that share half of the rest.
        let shares = |log_probs: &[f64]| -> Vec<f64> {
            let others = |log_prob: f64| (-log_prob.exp_m1()).max(1e-12).ln() - 4f64.ln();
            log_probs.iter().flat_map(|log_prob| [*log_prob, others(*log_prob), others(*log_prob)]).collect()
        };
        let len = behaviour.len();
        let top_k = TopK {
            k: 3,
            tokens: (0..3 * len).map(|token| token as u32).collect(),
            log_probs: shares(&behaviour),
            holds_sampled: vec![true; len],
        };
        response
            .with_proximal(&halfway)
            .with_entropies(&entropies)
            .with_top_k(top_k, &shares(&current))
            .map_context(|context| context.with_index(index).with_group(index / 4).with_seed(index as u64))
    };
    plain_responses().into_iter().enumerate().map(complete).collect()
}

fn plain_responses() -> Vec<TestResponse> {
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

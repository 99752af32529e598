//! Parts that losses of TRL need, as an outside crate would write them.
// TODO-parts: `saturating`, `sigmoid`, `geometric_mean` and `off_policy_sequence_mask` are to be the gates of the crate, and
// `sequence_product` its estimator; the mask of uncertain tokens has no part there.

use firebrick_core::{Binding, Bounds, Gate, Gated, ImportanceEstimator, ResponseTokens};

/// The product of the ratios of a response, with a gradient through all of them.
#[derive(Debug)]
pub(crate) struct SequenceProduct;

impl ImportanceEstimator for SequenceProduct {
    fn log_weights(&self, response: &ResponseTokens<'_>, out: &mut [f64]) {
        out.fill(response.log_ratios().iter().sum());
    }

    fn pull_back(&self, _response: &ResponseTokens<'_>, upstream: &[f64], out: &mut [f64]) {
        out.fill(upstream.iter().sum());
    }
}

/// J = sg[min(w, high)] A log π: the gradient survives at the cap.
#[derive(Debug)]
pub(crate) struct Saturating {
    pub(crate) high: f64,
}

impl Gate for Saturating {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], _: &[Bounds], out: &mut [Gated]) {
        for (index, out) in out.iter_mut().enumerate() {
            let (weight, advantage) = (log_weights[index].exp(), response.advantages()[index]);
            let slope = weight.min(self.high) * advantage;
            let capped = weight > self.high && advantage > 0.0;
            let binding = if capped { Binding::High } else { Binding::None };
            *out = Gated { value: slope * response.current()[index], slope, binding };
        }
    }

    fn is_score_function(&self) -> bool {
        true
    }
}

/// J = (4/τ) σ(τ (w − 1)) A.
#[derive(Debug)]
pub(crate) struct Sigmoid {
    pub(crate) tau_pos: f64,
    pub(crate) tau_neg: f64,
}

impl Gate for Sigmoid {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], _: &[Bounds], out: &mut [Gated]) {
        for (index, out) in out.iter_mut().enumerate() {
            let (weight, advantage) = (log_weights[index].exp(), response.advantages()[index]);
            let tau = if advantage > 0.0 { self.tau_pos } else { self.tau_neg };
            let p = 1.0 / (1.0 + (-tau * (weight - 1.0)).exp());
            let (value, slope) = (4.0 / tau * p * advantage, 4.0 * p * (1.0 - p) * weight * advantage);
            *out = Gated { value, slope, binding: Binding::None };
        }
    }
}

/// J = A exp(mean of the log-weights), each cut on the side that the advantage rewards.
#[derive(Debug)]
pub(crate) struct GeometricMean {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Gate for GeometricMean {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], _: &[Bounds], out: &mut [Gated]) {
        let cut = |(log_weight, advantage): (&f64, &f64)| {
            if *advantage > 0.0 && *log_weight > self.high {
                (self.high, Binding::High)
            } else if *advantage < 0.0 && *log_weight < -self.low {
                (-self.low, Binding::Low)
            } else {
                (*log_weight, Binding::None)
            }
        };
        let cut: Vec<(f64, Binding)> = log_weights.iter().zip(response.advantages()).map(cut).collect();
        let mean = cut.iter().map(|(log_weight, _)| log_weight).sum::<f64>() / cut.len() as f64;
        for (index, (out, (_, binding))) in out.iter_mut().zip(cut).enumerate() {
            let value = mean.exp() * response.advantages()[index];
            let slope = if binding == Binding::None { value } else { 0.0 };
            *out = Gated { value, slope, binding };
        }
    }
}

/// Whether a response that was worse than its group is further than `delta` from the policy that sampled it:
/// A < 0 and mean(log π_roll − log π_θ) > delta.
pub(crate) fn is_off_policy(response: &ResponseTokens<'_>, delta: f64) -> bool {
    let pairs = response.context().behaviour().iter().zip(response.current());
    let gap = pairs.map(|(behaviour, current)| behaviour - current).sum::<f64>() / response.len() as f64;
    gap > delta && response.advantages().first().is_some_and(|advantage| *advantage < 0.0)
}

/// Drops such a response from what another gate makes of it.
#[derive(Debug)]
pub(crate) struct OffPolicySequenceMask {
    pub(crate) delta: f64,
    pub(crate) gate: Box<dyn Gate>,
}

impl Gate for OffPolicySequenceMask {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], bounds: &[Bounds], out: &mut [Gated]) {
        self.gate.gate(response, log_weights, bounds, out);
        if is_off_policy(response, self.delta) {
            out.fill(Gated { binding: Binding::Dropped, ..Gated::default() });
        }
    }
}

/// Drops tokens whose entropy is below a threshold from what another gate makes of them.
#[derive(Debug)]
pub(crate) struct TopEntropy {
    pub(crate) threshold: f64,
    pub(crate) gate: Box<dyn Gate>,
}

impl Gate for TopEntropy {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], bounds: &[Bounds], out: &mut [Gated]) {
        self.gate.gate(response, log_weights, bounds, out);
        let entropies = response.entropies().expect("the rows have entropies");
        for (out, entropy) in out.iter_mut().zip(entropies) {
            if *entropy < self.threshold {
                *out = Gated { binding: Binding::Dropped, ..Gated::default() };
            }
        }
    }
}

//! A mask that looks at the distance between policies and not at the ratio.

use firebrick_core::{Binding, Bounds, Gate, Gated, Requirements, ResponseTokens};
use serde::{Deserialize, Serialize};

use super::{Divergence, MaskedValue};
use crate::{ConfigError, config_error::require};

/// A mask on tokens at which the current policy has moved too far from the one that sampled, and would move further.
///
/// ```text
/// outward: π(y_t) > μ(y_t) where A > 0,  π(y_t) < μ(y_t) where A ≤ 0
/// M_t = 0 where D(μ, π) exceeds the limit of the advantage's sign and the update is outward, else 1
/// J_t = sg[M_t min(w_t, c) A_t] · log π_θ(y_t)
/// ∂J_t/∂ log π_θ(y_t) = M_t min(w_t, c) A_t
/// ```
///
/// A masked token is [`Binding::Dropped`] and stays in every denominator; a kept one whose weight is capped is
/// [`Binding::OuterHigh`]. An update towards μ is never masked, and a rare token may change its ratio a lot. The window
/// plays no part. μ is the behaviour policy, whatever the weight is anchored at.
///
/// *Reference*: DPPO, 2026, arXiv:2602.04879.
///
/// *Differs from the paper*: verl takes the proximal policy for μ, which is the same only when it samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DivergenceMask {
    /// How distance is measured, and how much is allowed.
    pub divergence: Divergence,
    /// Largest weight c; default the authors' code's, 10.
    #[serde(default = "ten")]
    pub max_weight: f64,
    /// What a token contributes to the loss value.
    #[serde(default)]
    pub value: MaskedValue,
}

fn ten() -> f64 {
    10.0
}

impl DivergenceMask {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When a limit is negative, K zero, or the cap below 1.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.divergence.validate().map_err(|error| error.within("divergence"))?;
        require(self.max_weight >= 1.0, "max_weight", self.max_weight, "a number >= 1")
    }

    fn drops(&self, response: &ResponseTokens<'_>, index: usize) -> bool {
        let (behaviour, current) = (response.context().behaviour()[index], response.current()[index]);
        let (low, high) = self.divergence.limits();
        let rises = response.advantages()[index] > 0.0;
        let (outward, limit) = if rises { (current > behaviour, high) } else { (current < behaviour, low) };
        outward && self.divergence.at(response, index) > limit
    }
}

impl Gate for DivergenceMask {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], _: &[Bounds], out: &mut [Gated]) {
        for (index, out) in out.iter_mut().enumerate() {
            if self.drops(response, index) {
                *out = Gated { binding: Binding::Dropped, ..Gated::default() };
                continue;
            }
            let weight = log_weights[index].exp();
            let slope = weight.min(self.max_weight) * response.advantages()[index];
            let value = self.value.of(slope, response.current()[index]);
            let binding = if weight > self.max_weight { Binding::OuterHigh } else { Binding::None };
            *out = Gated { value, slope, binding };
        }
    }

    fn is_score_function(&self) -> bool {
        true
    }

    fn requirements(&self) -> Requirements {
        Requirements { top_k: self.divergence.top_k(), ..Requirements::default() }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, check_gate};

    use super::*;

    const TV: Divergence = Divergence::BinaryTv { low: 0.1, high: 0.2 };

    fn gate(divergence: Divergence, mu: f64, pi: f64, advantage: f64) -> Gated {
        let response = TestResponse::new(&[mu.ln()], &[pi.ln()], &[advantage]);
        let mut out = [Gated::default()];
        let gate = DivergenceMask { divergence, max_weight: 4.0, value: MaskedValue::Weight };
        let log_weight = (pi / mu).ln();
        gate.gate(&response.tokens(), &[log_weight], &[Bounds::OPEN], &mut out);
        out[0]
    }

    #[test]
    fn only_an_update_that_leads_further_away_is_dropped() {
        assert_eq!(gate(TV, 0.3, 0.6, 1.0).binding, Binding::Dropped);
        assert_eq!(gate(TV, 0.3, 0.6, -1.0).binding, Binding::None);
        assert_eq!(gate(TV, 0.6, 0.3, -1.0).binding, Binding::Dropped);
        assert_eq!(gate(TV, 0.6, 0.3, 1.0).binding, Binding::None);
    }

    /// |π − μ| = .15 lies between the limits .1 for A ≤ 0 and .2 for A > 0.
    #[test]
    fn each_sign_of_the_advantage_has_its_own_limit() {
        assert_eq!(gate(TV, 0.3, 0.45, 1.0).binding, Binding::None);
        assert_eq!(gate(TV, 0.45, 0.3, -1.0).binding, Binding::Dropped);
    }

    /// μ = 1e-4, π = 5e-3: the ratio is 50, the difference .0049.
    #[test]
    fn a_rare_token_may_change_its_ratio_a_lot_under_a_capped_weight() {
        let token = gate(TV, 1e-4, 5e-3, 1.0);
        assert_eq!((token.slope, token.binding), (4.0, Binding::OuterHigh));
    }

    #[test]
    fn without_limits_to_reach_every_weight_is_kept() {
        let open = Divergence::BinaryKl { low: f64::INFINITY, high: f64::INFINITY };
        for advantage in [1.0, -1.0] {
            let token = gate(open, 0.25, 0.5, advantage);
            assert!((token.slope - 2.0 * advantage).abs() < 1e-12);
        }
    }

    #[test]
    fn the_top_k_forms_ask_for_k_tokens() {
        let needs = |divergence| {
            DivergenceMask { divergence, max_weight: 3.0, value: MaskedValue::default() }.requirements().top_k
        };
        assert_eq!(needs(TV), 0);
        assert_eq!(needs(Divergence::TopKKl { k: 20, low: 0.1, high: 0.1 }), 20);
    }

    #[test]
    fn numbers_out_of_range_are_refused_with_their_key() {
        let with = |divergence, max_weight| {
            DivergenceMask { divergence, max_weight, value: MaskedValue::default() }.validate()
        };
        let error = with(Divergence::BinaryTv { low: f64::NAN, high: 0.1 }, 3.0).unwrap_err();
        assert_eq!(error.to_string(), "divergence.low = NaN: allowed is a number >= 0");
        assert!(with(TV, 0.5).is_err());
        assert!(with(TV, f64::INFINITY).is_ok());
    }

    #[test]
    fn keeps_the_contract() {
        for divergence in [
            TV,
            Divergence::BinaryKl { low: 0.05, high: 0.05 },
            Divergence::TopKTv { k: 3, low: 0.1, high: 0.1 },
            Divergence::TopKKl { k: 2, low: 0.05, high: 0.05 },
        ] {
            check_gate(DivergenceMask { divergence, max_weight: 10.0, value: MaskedValue::default() });
        }
    }
}

//! Weights turned upside down where the advantage is positive.

use firebrick_core::{Binding, Bounds, Gate, Gated, ResponseTokens};
use serde::{Deserialize, Serialize};

use crate::{ConfigError, config_error::require};

/// Reciprocal weights for A > 0: a token that has become likely counts less, one that has become unlikely counts more.
///
/// ```text
/// A > 0:  coefficient = min(1/w, c) A        and 0 where w > high
/// A < 0:  coefficient = min(w, c) A          and 0 where w < low
/// ```
///
/// The cap c keeps the gradient. The value is the coefficient, except that a token below the window with A < 0 has PPO's
/// value low · A. A cap that acted is [`Binding::OuterLow`] for A > 0 (a small weight) and [`Binding::OuterHigh`] for
/// A < 0.
///
/// *Reference*: ASPO, "Asymmetric importance sampling policy optimization", 2025, arXiv:2510.06062.
///
/// *Differs from the paper*: the cap is the authors' code's; the paper gives no number. Its second window for tokens of
/// high entropy is the schedule's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reciprocal {
    /// Largest weight c, of either kind.
    pub max_weight: f64,
}

impl Default for Reciprocal {
    /// The authors' code's: 3.
    fn default() -> Self {
        Self { max_weight: 3.0 }
    }
}

impl Reciprocal {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When the cap is below 1.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require(self.max_weight >= 1.0, "max_weight", self.max_weight, "a number >= 1")
    }

    fn token(&self, weight: f64, advantage: f64, window: Bounds) -> Gated {
        let capped = |weight: f64, cap: Binding| {
            let slope = weight.min(self.max_weight) * advantage;
            let binding = if weight > self.max_weight { cap } else { Binding::None };
            Gated { value: slope, slope, binding }
        };
        if advantage > 0.0 {
            if weight > window.high {
                return Gated { binding: Binding::High, ..Gated::default() };
            }
            capped(1.0 / weight, Binding::OuterLow)
        } else if advantage < 0.0 {
            if weight < window.low {
                return Gated { value: window.low * advantage, slope: 0.0, binding: Binding::Low };
            }
            capped(weight, Binding::OuterHigh)
        } else {
            Gated::default()
        }
    }
}

impl Gate for Reciprocal {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], bounds: &[Bounds], out: &mut [Gated]) {
        let inputs = log_weights.iter().zip(response.advantages()).zip(bounds);
        for (out, ((log_weight, advantage), window)) in out.iter_mut().zip(inputs) {
            *out = self.token(log_weight.exp(), *advantage, *window);
        }
    }

    fn is_score_function(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::check_gate;

    use super::*;

    const WINDOW: Bounds = Bounds { low: 0.8, high: 1.2 };

    fn token(weight: f64, advantage: f64) -> (f64, f64, Binding) {
        let Gated { value, slope, binding } = Reciprocal::default().token(weight, advantage, WINDOW);
        (value, slope, binding)
    }

    #[test]
    fn a_good_token_counts_less_the_likelier_it_has_become() {
        assert_eq!(token(1.0, 2.0), (2.0, 2.0, Binding::None));
        assert_eq!(token(0.5, 2.0), (4.0, 4.0, Binding::None));
        assert_eq!(token(0.25, 2.0), (6.0, 6.0, Binding::OuterLow)); // 1/0.25 = 4 is capped at 3
        assert_eq!(token(1.25, 2.0), (0.0, 0.0, Binding::High));
        assert_eq!(token(1.2, 2.0).2, Binding::None, "the interval is closed");
    }

    #[test]
    fn a_bad_token_has_the_lower_clip_of_ppo_and_a_cap_with_a_gradient() {
        assert_eq!(token(1.0, -2.0), (-2.0, -2.0, Binding::None));
        assert_eq!(token(0.5, -2.0), (-1.6, 0.0, Binding::Low));
        assert_eq!(token(2.0, -2.0), (-4.0, -4.0, Binding::None));
        assert_eq!(token(5.0, -2.0), (-6.0, -6.0, Binding::OuterHigh));
        assert_eq!(token(5.0, 0.0), (0.0, 0.0, Binding::None));
    }

    #[test]
    fn a_cap_below_one_is_refused() {
        let error = Reciprocal { max_weight: 0.5 }.validate().unwrap_err();
        assert_eq!(error.to_string(), "max_weight = 0.5: allowed is a number >= 1");
        assert!(Reciprocal { max_weight: f64::NAN }.validate().is_err());
        assert!(Reciprocal { max_weight: f64::INFINITY }.validate().is_ok());
    }

    #[test]
    fn keeps_the_contract() {
        check_gate(Reciprocal::default());
        check_gate(Reciprocal { max_weight: 1.0 });
    }
}

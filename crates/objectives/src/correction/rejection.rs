//! Rules that tokens and responses are rejected by.

use firebrick_core::Corrected;
use serde::{Deserialize, Serialize};

use super::ratio_weight::validate_ratio_bounds;
use crate::{ConfigError, config_error::require};

/// What is measured at each token, with ρ = π_old/π_roll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioStatistic {
    /// The ratio itself; it is reduced as log ρ, so that sums are products and means geometric means.
    Ratio,
    /// (log ρ)²/2.
    K2,
    /// ρ − 1 − log ρ.
    K3,
}

/// How the measurements of a response are reduced before they are held against the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioReduction {
    /// Not at all: each token is kept or rejected by itself.
    Token,
    /// The sum decides on the whole response: of `ratio`, the product of the ratios.
    SequenceSum,
    /// The mean decides on the whole response: of `ratio`, the geometric mean of the ratios.
    SequenceMean,
    /// The largest decides on the whole response.
    SequenceMax,
}

/// A rule that rejects tokens, or all tokens of a response.
///
/// ```text
/// keep  iff  low ≤ reduction(statistic(ρ_t)) ≤ high
/// ```
///
/// The bounds are those of the statistic: of `ratio`, two ratios around 1; of `k2` and `k3`, a largest value in nats. A
/// response without tokens is neither kept nor rejected.
///
/// *Reference*: geometric mean: Liu et al., "When speed kills stability", 2025; the largest k2 or k3 of a response stands in
/// for its largest divergence, Li et al., "Trust region masking", 2025, arXiv:2512.23075.
///
/// *Differs from the paper*: verl's options `token_k1`, `seq_sum_k1` and `seq_mean_k1` hold −log ρ against
/// [log low, log high] and so keep ratios in [1/high, 1/low]. Here the interval is what it says; the two agree when
/// low · high = 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rejection {
    /// What is measured.
    pub statistic: RatioStatistic,
    /// How it is reduced.
    pub reduction: RatioReduction,
    /// Smallest value that is kept; for `ratio` in [0, 1], otherwise 0, which is the default.
    #[serde(default)]
    pub low: f64,
    /// Largest value that is kept; for `ratio` at least 1.
    pub high: f64,
}

impl Rejection {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When a token without a gap would be rejected, a bound is not finite, or the largest of ratios is asked for.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.statistic != RatioStatistic::Ratio {
            require(self.low == 0.0, "low", self.low, "0, since k2 and k3 are 0 where there is no gap")?;
            return require(
                self.high.is_finite() && self.high >= 0.0,
                "high",
                self.high,
                "a finite number >= 0",
            );
        }
        if self.reduction == RatioReduction::SequenceMax {
            return Err(ConfigError::Incompatible {
                key: "reduction".to_owned(),
                choice: "sequence_max",
                reason: "the largest ratio says nothing of the smallest; set statistic = \"k2\" or \"k3\"",
            });
        }
        validate_ratio_bounds(self.low, self.high)
    }

    /// Rejects tokens of a response with these log ρ_t.
    pub(super) fn apply(&self, log_ratios: &[f64], out: &mut [Corrected]) {
        let statistics = log_ratios.iter().map(|log_ratio| self.measure(*log_ratio));
        if self.reduction == RatioReduction::Token {
            for (token, value) in out.iter_mut().zip(statistics) {
                token.keep &= self.holds(value);
            }
            return;
        }
        let value = match self.reduction {
            RatioReduction::SequenceMax => statistics.fold(f64::NEG_INFINITY, f64::max),
            RatioReduction::SequenceMean => statistics.sum::<f64>() / log_ratios.len() as f64,
            RatioReduction::Token | RatioReduction::SequenceSum => statistics.sum(),
        };
        let keep = self.holds(value);
        out.iter_mut().for_each(|token| token.keep &= keep);
    }

    fn measure(&self, log_ratio: f64) -> f64 {
        match self.statistic {
            RatioStatistic::Ratio => log_ratio,
            RatioStatistic::K2 => log_ratio * log_ratio / 2.0,
            // exp_m1 keeps the digits that ρ − 1 would lose near 1.
            RatioStatistic::K3 => log_ratio.exp_m1() - log_ratio,
        }
    }

    fn holds(&self, value: f64) -> bool {
        match self.statistic {
            RatioStatistic::Ratio => self.low.ln() <= value && value <= self.high.ln(),
            RatioStatistic::K2 | RatioStatistic::K3 => value <= self.high,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejection(statistic: RatioStatistic, reduction: RatioReduction, low: f64, high: f64) -> Rejection {
        Rejection { statistic, reduction, low, high }
    }

    fn kept(rule: Rejection, log_ratios: &[f64]) -> Vec<bool> {
        rule.validate().unwrap();
        let mut out = vec![Corrected::default(); log_ratios.len()];
        rule.apply(log_ratios, &mut out);
        out.iter().map(|token| token.keep).collect()
    }

    /// log ρ = ln 2 and −ln 4: product 1/2, geometric mean 1/√2 = 0.7071.
    #[test]
    fn a_ratio_is_held_by_itself_as_a_product_or_as_a_geometric_mean() {
        let log_ratios = [2f64.ln(), -(4f64.ln())];
        let held = |reduction, low| kept(rejection(RatioStatistic::Ratio, reduction, low, 2.0), &log_ratios);
        assert_eq!(held(RatioReduction::Token, 0.5), [true, false]);
        assert_eq!(held(RatioReduction::SequenceSum, 0.51), [false, false]);
        assert_eq!(held(RatioReduction::SequenceSum, 0.49), [true, true]);
        assert_eq!(held(RatioReduction::SequenceMean, 0.708), [false, false]);
        assert_eq!(held(RatioReduction::SequenceMean, 0.707), [true, true]);
    }

    /// log ρ = 0.2, −0.4: k2 = 0.02, 0.08; k3 = 0.0214, 0.0703. Sums 0.1, 0.0917; means half of that.
    #[test]
    fn divergences_are_held_by_themselves_summed_averaged_or_at_their_largest() {
        let (k2, k3) = (RatioStatistic::K2, RatioStatistic::K3);
        for (statistic, reduction, value) in [
            (k2, RatioReduction::SequenceSum, 0.1),
            (k2, RatioReduction::SequenceMean, 0.05),
            (k2, RatioReduction::SequenceMax, 0.08),
            (k3, RatioReduction::SequenceSum, 0.091_722_8),
            (k3, RatioReduction::SequenceMean, 0.045_861_4),
            (k3, RatioReduction::SequenceMax, 0.070_320_05),
        ] {
            let held = |high| kept(rejection(statistic, reduction, 0.0, high), &[0.2, -0.4]);
            assert_eq!(held(value + 1e-6), [true; 2], "{statistic:?} {reduction:?}");
            assert_eq!(held(value - 1e-6), [false; 2], "{statistic:?} {reduction:?}");
        }
        assert_eq!(kept(rejection(k2, RatioReduction::Token, 0.0, 0.05), &[0.2, -0.4]), [true, false]);
        assert_eq!(kept(rejection(k3, RatioReduction::Token, 0.0, 0.02), &[0.2, -0.4]), [false, false]);
    }

    /// The reciprocal interval of [0.9, 1.1] would be [0.909, 1.111].
    #[test]
    fn the_interval_of_ratios_is_what_it_says() {
        let rule = rejection(RatioStatistic::Ratio, RatioReduction::Token, 0.9, 1.1);
        let log_ratios = [0.905_f64, 1.105, 0.895].map(f64::ln);
        assert_eq!(kept(rule, &log_ratios), [true, false, false]);
    }

    #[test]
    fn a_rule_that_rejects_tokens_without_a_gap_is_refused() {
        let error = |rule: Rejection| rule.validate().unwrap_err().to_string();
        let low = rejection(RatioStatistic::K3, RatioReduction::Token, 0.1, 1.0);
        assert!(error(low).starts_with("low = 0.1: allowed is 0, since"), "{}", error(low));
        let high = rejection(RatioStatistic::Ratio, RatioReduction::Token, 0.5, 0.9);
        assert_eq!(error(high), "high = 0.9: allowed is a finite number >= 1");
        let max = rejection(RatioStatistic::Ratio, RatioReduction::SequenceMax, 0.5, 2.0);
        assert!(error(max).contains("set statistic = \"k2\""), "{}", error(max));
        assert!(rejection(RatioStatistic::K2, RatioReduction::Token, 0.0, f64::NAN).validate().is_err());
    }
}

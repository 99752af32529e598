//! Two windows, by the policy's uncertainty at the token.

use firebrick_core::{Bounds, ClipSchedule, Requirements, ResponseTokens};
use serde::{Deserialize, Serialize};

use crate::{
    ConfigError,
    config_error::{require, require_width},
};

/// A wider window for the tokens of a response at which the current policy is most uncertain.
///
/// ```text
/// [1 − wide_low, 1 + wide_high]     where the entropy exceeds the response's quantile
/// [1 − low, 1 + high]               elsewhere
/// ```
///
/// The quantile is taken over the policy tokens of the response, interpolated linearly between the two nearest entropies. A
/// token exactly at it has the narrow window, so a response of one token, or of equal entropies, has no wide one.
///
/// *Reference*: ASPO (Archer2.0), 2025, arXiv:2510.06062; the default numbers are those of its code.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EntropySplitClip {
    /// Lower width of certain tokens; default 0.2.
    pub low: f64,
    /// Upper width of certain tokens; default 0.2.
    pub high: f64,
    /// Lower width of uncertain tokens; default 0.4.
    pub wide_low: f64,
    /// Upper width of uncertain tokens; default 0.4.
    pub wide_high: f64,
    /// Share of a response's tokens that are certain; default 0.8.
    pub quantile: f64,
}

impl Default for EntropySplitClip {
    fn default() -> Self {
        Self { low: 0.2, high: 0.2, wide_low: 0.4, wide_high: 0.4, quantile: 0.8 }
    }
}

impl EntropySplitClip {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When a width is negative or not finite, or the quantile is not in [0, 1].
    pub fn validate(&self) -> Result<(), ConfigError> {
        require_width("low", self.low)?;
        require_width("high", self.high)?;
        require_width("wide_low", self.wide_low)?;
        require_width("wide_high", self.wide_high)?;
        require((0.0..=1.0).contains(&self.quantile), "quantile", self.quantile, "in [0, 1]")
    }
}

impl ClipSchedule for EntropySplitClip {
    /// # Panics
    /// When the response has no entropies, which [`ClipSchedule::requirements`] asks for.
    fn bounds(&self, response: &ResponseTokens<'_>, out: &mut [Bounds]) {
        let entropies = response.entropies().expect("a split by entropy requires entropies");
        let threshold = quantile(entropies, self.quantile);
        let narrow = Bounds::around_one(self.low, self.high);
        let wide = Bounds::around_one(self.wide_low, self.wide_high);
        for (out, entropy) in out.iter_mut().zip(entropies) {
            *out = if *entropy > threshold { wide } else { narrow };
        }
    }

    fn requirements(&self) -> Requirements {
        Requirements { entropies: true, ..Requirements::default() }
    }
}

/// The `share`-quantile of `values`, interpolated linearly; of none, zero.
fn quantile(values: &[f64], share: f64) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let rank = share * (values.len() - 1) as f64;
    let mut values = values.to_vec();
    let (_, lower, above) = values.select_nth_unstable_by(rank as usize, f64::total_cmp);
    let (lower, fraction) = (*lower, rank.fract());
    if fraction == 0.0 {
        return lower;
    }
    let upper = above.iter().copied().fold(f64::INFINITY, f64::min);
    lower + fraction * (upper - lower)
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_close, check_schedule};

    use super::*;

    fn uncertain(entropies: &[f64]) -> Vec<bool> {
        let len = entropies.len();
        let response =
            TestResponse::from_log_ratios(&vec![0.0; len], &vec![1.0; len]).with_entropies(entropies);
        let mut out = vec![Bounds::OPEN; len];
        EntropySplitClip { wide_high: 0.5, ..EntropySplitClip::default() }
            .bounds(&response.tokens(), &mut out);
        let is_wide = |bounds: &Bounds| {
            let wide = *bounds == Bounds::around_one(0.4, 0.5);
            assert!(wide || *bounds == Bounds::around_one(0.2, 0.2));
            wide
        };
        out.iter().map(is_wide).collect()
    }

    /// Rank .8 · 4 = 3.2: between .9 and 2.0 at .9 + .2 · 1.1 = 1.12. Rank .8 · 3 = 2.4 of [1, 2, 3, 4]: 3.4.
    #[test]
    fn the_quantile_is_interpolated_linearly() {
        assert_close(quantile(&[0.9, 0.1, 2.0, 0.3, 0.5], 0.8), 1.12, 1e-14, "five");
        assert_close(quantile(&[4.0, 2.0, 1.0, 3.0], 0.8), 3.4, 1e-14, "four");
        assert_eq!((quantile(&[3.0, 1.0], 0.0), quantile(&[3.0, 1.0], 1.0)), (1.0, 3.0));
    }

    #[test]
    fn one_of_five_tokens_has_the_wide_window() {
        assert_eq!(uncertain(&[0.9, 0.1, 2.0, 0.3, 0.5]), [false, false, true, false, false]);
    }

    #[test]
    fn one_token_and_equal_entropies_have_the_narrow_window() {
        assert_eq!(uncertain(&[5.0]), [false]);
        assert_eq!(uncertain(&[0.7; 6]), [false; 6]);
        assert_eq!(uncertain(&[]), [false; 0]);
    }

    #[test]
    fn a_quantile_out_of_range_is_refused() {
        let part = EntropySplitClip { quantile: 80.0, ..EntropySplitClip::default() };
        assert_eq!(part.validate().unwrap_err().to_string(), "quantile = 80: allowed is in [0, 1]");
        assert!(EntropySplitClip { wide_low: -0.1, ..EntropySplitClip::default() }.validate().is_err());
    }

    #[test]
    fn keeps_the_contract() {
        check_schedule(EntropySplitClip::default());
    }
}

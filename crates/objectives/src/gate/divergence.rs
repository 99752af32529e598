//! How far the current policy's next-token distribution is from the one that sampled.

use firebrick_core::ResponseTokens;
use serde::{Deserialize, Serialize};

use crate::{ConfigError, config_error::require};

/// A divergence between the behaviour policy μ and the current policy π at one token, with the largest that is allowed
/// to a token whose probability should rise (`high`, A > 0) and to one whose probability should fall (`low`, A ≤ 0).
///
/// ```text
/// binary_tv   |π(y) − μ(y)|
/// binary_kl   μ(y) log(μ(y)/π(y)) + (1 − μ(y)) log((1 − μ(y))/(1 − π(y)))
/// top_k_tv    ½ Σ_b |μ_b − π_b|
/// top_k_kl    Σ_b μ_b log(μ_b/π_b)
/// ```
///
/// y is the sampled token; b runs over the K most likely tokens under μ and one bucket for the rest. Both binary
/// forms look at y alone, and need nothing but the log-probs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Divergence {
    /// Total variation between sampled and not sampled.
    BinaryTv {
        /// Limit where A ≤ 0 (a probability).
        low: f64,
        /// Limit where A > 0 (a probability).
        high: f64,
    },
    /// KL divergence between sampled and not sampled.
    BinaryKl {
        /// Limit where A ≤ 0 (nats).
        low: f64,
        /// Limit where A > 0 (nats).
        high: f64,
    },
    /// Total variation over the K most likely tokens and the rest.
    TopKTv {
        /// How many tokens, K.
        k: usize,
        /// Limit where A ≤ 0 (a probability).
        low: f64,
        /// Limit where A > 0 (a probability).
        high: f64,
    },
    /// KL divergence over the K most likely tokens and the rest.
    TopKKl {
        /// How many tokens, K.
        k: usize,
        /// Limit where A ≤ 0 (nats).
        low: f64,
        /// Limit where A > 0 (nats).
        high: f64,
    },
}

impl Divergence {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When a limit is negative or no number, or K is zero.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (low, high) = self.limits();
        require(low >= 0.0, "low", low, "a number >= 0")?;
        require(high >= 0.0, "high", high, "a number >= 0")?;
        match *self {
            Self::TopKTv { k, .. } | Self::TopKKl { k, .. } => require(k > 0, "k", k as f64, "at least 1"),
            _ => Ok(()),
        }
    }

    /// Limits where A ≤ 0 and where A > 0.
    pub(super) fn limits(&self) -> (f64, f64) {
        match *self {
            Self::BinaryTv { low, high }
            | Self::BinaryKl { low, high }
            | Self::TopKTv { low, high, .. }
            | Self::TopKKl { low, high, .. } => (low, high),
        }
    }

    /// How many of the behaviour policy's most likely tokens it looks at.
    pub(super) fn top_k(&self) -> usize {
        match *self {
            Self::TopKTv { k, .. } | Self::TopKKl { k, .. } => k,
            _ => 0,
        }
    }

    /// The divergence at token `index`.
    ///
    /// # Panics
    /// When it looks at the most likely tokens and the response has none, or fewer than K.
    pub fn at(&self, response: &ResponseTokens<'_>, index: usize) -> f64 {
        let (behaviour, current) = (response.context().behaviour()[index], response.current()[index]);
        match *self {
            // Both buckets change by as much.
            Self::BinaryTv { .. } => (behaviour.exp() - current.exp()).abs(),
            Self::BinaryKl { .. } => binary_kl(behaviour, current),
            Self::TopKTv { k, .. } => total_variation(&with_rest(&most_likely(response, index, k))),
            Self::TopKKl { k, .. } => kl(&with_rest(&most_likely(response, index, k))),
        }
    }
}

/// Log-probs under behaviour and current policy of the K most likely tokens at one position.
fn most_likely(response: &ResponseTokens<'_>, index: usize, k: usize) -> Vec<(f64, f64)> {
    let behaviour = response.context().top_k().expect("a top-K divergence requires the most likely tokens");
    let current = response.top_k().expect("a top-K divergence requires their current log-probs");
    assert!(behaviour.k >= k, "the response holds the {} most likely tokens of {k}", behaviour.k);
    let positions = index * behaviour.k..(index + 1) * behaviour.k;
    let mut pairs: Vec<(f64, f64)> = behaviour.log_probs[positions.clone()]
        .iter()
        .copied()
        .zip(current[positions].iter().copied())
        .collect();
    // Another part may ask for more; the result must not depend on it.
    pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
    pairs.truncate(k);
    pairs
}

/// KL divergence of the sampled token against the rest, from its log-probs: [`kl`] of two buckets with half as many logarithms.
fn binary_kl(mu: f64, pi: f64) -> f64 {
    let token = if mu > f64::NEG_INFINITY { mu.exp() * (mu - pi) } else { 0.0 };
    // Rounding may leave a little less than nothing.
    let (left, left_now) = ((-mu.exp_m1()).max(0.0), (-pi.exp_m1()).max(0.0));
    token + if left > 0.0 { left * (left / left_now).ln() } else { 0.0 }
}

/// Probabilities of the buckets, the rest last.
fn with_rest(log_probs: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut buckets: Vec<(f64, f64)> = log_probs.iter().map(|(mu, pi)| (mu.exp(), pi.exp())).collect();
    let rest = match log_probs {
        // Of one bucket the rest is known to full precision.
        [(mu, pi)] => (-mu.exp_m1(), -pi.exp_m1()),
        _ => {
            let left = |of: fn(&(f64, f64)) -> f64| 1.0 - buckets.iter().map(of).sum::<f64>();
            (left(|bucket| bucket.0), left(|bucket| bucket.1))
        }
    };
    // Rounding may leave a little less than nothing.
    buckets.push((rest.0.max(0.0), rest.1.max(0.0)));
    buckets
}

fn total_variation(buckets: &[(f64, f64)]) -> f64 {
    buckets.iter().map(|(mu, pi)| (mu - pi).abs()).sum::<f64>() / 2.0
}

/// A bucket that the behaviour policy never fills counts zero; one that the current policy never fills is infinite.
fn kl(buckets: &[(f64, f64)]) -> f64 {
    buckets.iter().map(|(mu, pi)| if *mu > 0.0 { mu * (mu.ln() - pi.ln()) } else { 0.0 }).sum()
}

#[cfg(test)]
mod tests {
    use firebrick_core::TopK;
    use firebrick_testkit::{TestResponse, assert_close};

    use super::*;

    /// Probabilities of the whole vocabulary {0, 1, 2, 3} under μ and π; the sampled token is 1.
    const MU: [f64; 4] = [0.5, 0.3, 0.15, 0.05];
    const PI: [f64; 4] = [0.4, 0.45, 0.05, 0.1];

    fn response(k: usize) -> TestResponse {
        let logs = |of: [f64; 4]| -> Vec<f64> { of[..k].iter().map(|p| p.ln()).collect() };
        let top_k =
            TopK { k, tokens: (0..k as u32).collect(), log_probs: logs(MU), holds_sampled: vec![k > 1] };
        TestResponse::new(&[MU[1].ln()], &[PI[1].ln()], &[1.0]).with_top_k(top_k, &logs(PI))
    }

    fn tv(k: usize) -> f64 {
        let divergence = match k {
            0 => Divergence::BinaryTv { low: 0.1, high: 0.1 },
            k => Divergence::TopKTv { k, low: 0.1, high: 0.1 },
        };
        divergence.at(&response(4).tokens(), 0)
    }

    /// Full: ½ (.1 + .15 + .1 + .05) = .2. K = 2 merges .15 + .05 with .05 + .1: ½ (.1 + .15 + .05) = .15.
    #[test]
    fn all_tokens_give_the_exact_divergence_and_fewer_never_more() {
        assert_close(tv(4), 0.2, 1e-12, "K = V");
        assert_close(tv(3), 0.2, 1e-12, "the rest is one token");
        assert_close(tv(2), 0.15, 1e-12, "K = 2");
        assert_close(tv(0), 0.15, 1e-12, "binary: |.45 − .3|");
        assert!(tv(0) <= tv(2) + 1e-12 && tv(2) <= tv(4) + 1e-12, "coarser is never larger");
        let exact: f64 = MU.iter().zip(PI).map(|(mu, pi)| mu * (mu / pi).ln()).sum();
        let found = Divergence::TopKKl { k: 4, low: 0.1, high: 0.1 }.at(&response(4).tokens(), 0);
        assert_close(found, exact, 1e-12, "KL with K = V");
    }

    /// .3 ln(.3/.45) + .7 ln(.7/.55) = −.121640 + .168813.
    #[test]
    fn the_binary_kl_divergence_is_that_worked_by_hand() {
        let kl = Divergence::BinaryKl { low: 0.1, high: 0.1 }.at(&response(4).tokens(), 0);
        assert_close(kl, 0.047_173_6, 1e-5, "binary KL");
    }

    #[test]
    fn more_tokens_than_asked_for_change_nothing() {
        let two = Divergence::TopKTv { k: 2, low: 0.1, high: 0.1 };
        assert_eq!(two.at(&response(2).tokens(), 0), two.at(&response(4).tokens(), 0));
    }

    #[test]
    fn certain_and_impossible_tokens_give_no_nan() {
        for (mu, pi, expected) in [
            (0.0, 0.0, 0.0),
            (f64::NEG_INFINITY, -1.0, -(1.0 - (-1.0_f64).exp()).ln()),
            (-1.0, f64::NEG_INFINITY, f64::INFINITY),
        ] {
            let response = TestResponse::new(&[mu], &[pi], &[1.0]);
            let kl = Divergence::BinaryKl { low: 0.1, high: 0.1 }.at(&response.tokens(), 0);
            assert_close(kl, expected, 1e-12, "binary KL");
        }
    }

    #[test]
    fn limits_must_not_be_negative_and_k_not_zero() {
        let error = Divergence::BinaryTv { low: -0.1, high: 0.1 }.validate().unwrap_err();
        assert_eq!(error.to_string(), "low = -0.1: allowed is a number >= 0");
        let error = Divergence::TopKKl { k: 0, low: 0.1, high: 0.1 }.validate().unwrap_err();
        assert_eq!(error.to_string(), "k = 0: allowed is at least 1");
        assert!(Divergence::BinaryKl { low: f64::INFINITY, high: 0.05 }.validate().is_ok());
    }

    /// 0.3 ln(0.3/0.45) + 0.7 ln(0.7/0.55) = −0.121640 + 0.168813.
    #[test]
    fn two_buckets_need_no_list() {
        let (mu, pi) = (0.3_f64.ln(), 0.45_f64.ln());
        assert_close(binary_kl(mu, pi), 0.047_173, 1e-4, "by hand");
        for (mu, pi) in [(mu, pi), (-1e-9, -0.5), (-30.0, -1.0), (f64::NEG_INFINITY, -1.0), (0.0, -0.2)] {
            let buckets = [(mu.exp(), pi.exp()), (-mu.exp_m1(), -pi.exp_m1())];
            assert_close(binary_kl(mu, pi), kl(&buckets), 1e-12, "of buckets");
        }
        assert_eq!(binary_kl(-1.0, f64::NEG_INFINITY), f64::INFINITY);
        assert_eq!(binary_kl(-1.0, 0.0), f64::INFINITY);
    }
}

//! The distribution that a token is drawn from.

use std::cmp::Ordering;

use firebrick_core::{SamplingSpec, TokenId};

/// Probabilities of the next token after temperature and filters, over the whole vocabulary.
///
/// Everything is computed in f64 on the host, so that the same logits give the same token on every machine
/// and backend.
///
/// *References*: Fan, Lewis, Dauphin, "Hierarchical Neural Story Generation", 2018, arXiv:1805.04833 (top-k);
/// Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019, arXiv:1904.09751 (top-p); Nguyen et
/// al., "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs", 2024, arXiv:2407.01082
/// (min-p).
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// Sums to 1; exactly zero for a token that a filter removed.
    probabilities: Vec<f64>,
}

/// A drawn token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// The token.
    pub token: TokenId,
    /// Logarithm of its probability in nats.
    pub log_prob: f64,
    /// How far the uniform number was from the nearest number that would have drawn another token: below
    /// rounding errors of the logits, the draw is a matter of chance.
    pub margin: f64,
}

/// Logits that no distribution can be formed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the logits hold {}", self.what())]
#[non_exhaustive]
pub enum BadLogits {
    /// There is no logit.
    Empty,
    /// A logit is NaN.
    NotANumber,
    /// A logit is infinite.
    Infinite,
}

impl BadLogits {
    /// What the logits hold, in words.
    pub fn what(self) -> &'static str {
        match self {
            Self::Empty => "no number at all",
            Self::NotANumber => "NaN",
            Self::Infinite => "an infinity",
        }
    }
}

impl Distribution {
    /// The distribution of `sampling` for these logits, one for each token of the vocabulary.
    ///
    /// p ∝ exp(z / temperature), of which top-k, top-p and min-p, in this order, keep a part each of what the
    /// one before kept (top-p reckons with the mass that top-k left); what is left is renormalised. Between
    /// equal logits the smaller id is the more probable. Temperature 0 puts everything on the most probable
    /// token.
    ///
    /// # Errors
    /// When a logit is not finite or there is none.
    pub fn new(logits: &[f32], sampling: &SamplingSpec) -> Result<Self, BadLogits> {
        let best = check(logits)?;
        let highest = f64::from(logits[best]);
        let mut probabilities = vec![0.0; logits.len()];
        if sampling.temperature == 0.0 {
            probabilities[best] = 1.0;
            return Ok(Self { probabilities });
        }
        for (probability, logit) in probabilities.iter_mut().zip(logits) {
            *probability = ((f64::from(*logit) - highest) / sampling.temperature).exp();
        }
        if !sampling.has_full_support() {
            filter(&mut probabilities, logits, sampling);
        }
        let total: f64 = probabilities.iter().sum();
        probabilities.iter_mut().for_each(|probability| *probability /= total);
        Ok(Self { probabilities })
    }

    /// Probability of every token.
    pub fn probabilities(&self) -> &[f64] {
        &self.probabilities
    }

    /// The token at which the cumulated probabilities, in the order of the vocabulary, exceed `uniform`, in
    /// [0, 1).
    pub fn draw(&self, uniform: f64) -> Draw {
        let mut below = 0.0;
        let mut last = None;
        for (token, probability) in self.probabilities.iter().enumerate().filter(|(_, p)| **p > 0.0) {
            let above = below + probability;
            last = Some((token, *probability, below, above));
            if uniform < above {
                break;
            }
            below = above;
        }
        // Rounding may leave the sum below `uniform`: then the last token that has a probability is drawn.
        let (token, probability, below, above) =
            last.expect("a distribution has a token of positive probability");
        let to_lower = if below > 0.0 { uniform - below } else { f64::INFINITY };
        let has_upper = self.probabilities[token + 1..].iter().any(|p| *p > 0.0);
        let to_upper = if has_upper { above - uniform } else { f64::INFINITY };
        Draw { token: token as TokenId, log_prob: probability.ln(), margin: to_lower.min(to_upper) }
    }
}

/// Checks that all logits are finite and returns the index of the first highest.
fn check(logits: &[f32]) -> Result<usize, BadLogits> {
    let mut best = 0;
    for (index, logit) in logits.iter().enumerate() {
        if logit.is_nan() {
            return Err(BadLogits::NotANumber);
        }
        if logit.is_infinite() {
            return Err(BadLogits::Infinite);
        }
        if *logit > logits[best] {
            best = index;
        }
    }
    if logits.is_empty() { Err(BadLogits::Empty) } else { Ok(best) }
}

/// Sets the weights of the tokens that the filters remove to zero.
fn filter(weights: &mut [f64], logits: &[f32], sampling: &SamplingSpec) {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    // Most probable first; by logits, since different logits may have equal weights at a high temperature.
    order.sort_unstable_by(|a, b| match logits[*b].total_cmp(&logits[*a]) {
        Ordering::Equal => a.cmp(b),
        unequal => unequal,
    });
    let mut kept = order.len();
    if let Some(top_k) = sampling.top_k {
        kept = kept.min(top_k.max(1));
    }
    if sampling.top_p < 1.0 {
        let needed = sampling.top_p * order[..kept].iter().map(|token| weights[*token]).sum::<f64>();
        let mut mass = 0.0;
        let reached = order[..kept].iter().position(|token| {
            mass += weights[*token];
            mass >= needed
        });
        kept = reached.map_or(kept, |last| last + 1);
    }
    if sampling.min_p > 0.0 {
        let least = sampling.min_p * weights[order[0]];
        kept = order[..kept].partition_point(|token| weights[*token] >= least);
    }
    for token in &order[kept..] {
        weights[*token] = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn spec(change: impl FnOnce(&mut SamplingSpec)) -> SamplingSpec {
        let mut spec = SamplingSpec::default();
        change(&mut spec);
        spec
    }

    /// Probabilities after sampling from a distribution with the probabilities `p`.
    fn filtered(p: &[f64], change: impl FnOnce(&mut SamplingSpec)) -> Vec<f64> {
        let logits: Vec<f32> = p.iter().map(|p| p.ln() as f32).collect();
        Distribution::new(&logits, &spec(change)).unwrap().probabilities
    }

    #[track_caller]
    fn assert_close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        let close =
            found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6 && (*a == 0.0) == (*b == 0.0));
        assert!(close, "found {found:?}, expected {expected:?}");
    }

    /// Logits (2, 0) at temperature 0.5 are (4, 0): 1/(1 + e⁻⁴) = 0.982014.
    #[test]
    fn temperature_divides_the_logits() {
        let half = spec(|spec| spec.temperature = 0.5);
        let distribution = Distribution::new(&[2.0, 0.0], &half).unwrap();
        assert_close(distribution.probabilities(), &[0.982_014, 0.017_986]);
    }

    #[test]
    fn temperature_zero_puts_everything_on_the_first_of_the_highest() {
        let greedy = spec(|spec| spec.temperature = 0.0);
        let distribution = Distribution::new(&[1.0, 3.0, 3.0, -1.0], &greedy).unwrap();
        assert_eq!(distribution.probabilities(), [0.0, 1.0, 0.0, 0.0]);
        let draw = distribution.draw(0.999);
        assert_eq!((draw.token, draw.log_prob, draw.margin), (1, 0.0, f64::INFINITY));
    }

    #[test]
    fn top_k_keeps_the_most_probable_and_of_equals_the_smaller_ids() {
        let p = [0.2, 0.3, 0.2, 0.3];
        assert_close(&filtered(&p, |spec| spec.top_k = Some(1)), &[0.0, 1.0, 0.0, 0.0]);
        assert_close(&filtered(&p, |spec| spec.top_k = Some(3)), &[0.25, 0.375, 0.0, 0.375]);
        assert_close(&filtered(&p, |spec| spec.top_k = Some(9)), &p);
    }

    #[test]
    fn top_p_keeps_the_smallest_set_that_reaches_the_mass() {
        let p = [0.2, 0.5, 0.3];
        assert_close(&filtered(&p, |spec| spec.top_p = 0.1), &[0.0, 1.0, 0.0]);
        assert_close(&filtered(&p, |spec| spec.top_p = 0.51), &[0.0, 0.625, 0.375]);
        assert_close(&filtered(&p, |spec| spec.top_p = 0.79), &[0.0, 0.625, 0.375]);
        assert_close(&filtered(&p, |spec| spec.top_p = 0.81), &p);
    }

    /// TRL #6789, vime #64: a log-prob is that of the distribution that was drawn from, so a trainer that replays the kept
    /// tokens finds the ratio 1; one that takes the whole vocabulary would find 0.8, a bias of ln 0.8 = −0.2231 nats.
    #[test]
    fn the_log_prob_of_a_token_is_that_of_the_renormalised_support() {
        let p = [0.5, 0.3, 0.15, 0.05];
        let logits = p.map(|p: f64| p.ln() as f32);
        let drawn = Distribution::new(&logits, &spec(|spec| spec.top_k = Some(2))).unwrap().draw(0.1);
        assert_eq!(drawn.token, 0);
        assert!((drawn.log_prob - 0.625_f64.ln()).abs() < 1e-6);
        let naive = 0.5_f64.ln() - drawn.log_prob;
        assert!((naive - -0.2231).abs() < 1e-4);
    }

    #[test]
    fn min_p_keeps_tokens_by_their_share_of_the_highest_probability() {
        let p = [0.5, 0.3, 0.2];
        assert_close(&filtered(&p, |spec| spec.min_p = 0.39), &p);
        assert_close(&filtered(&p, |spec| spec.min_p = 0.41), &[0.625, 0.375, 0.0]);
        assert_close(&filtered(&p, |spec| spec.min_p = 0.99), &[1.0, 0.0, 0.0]);
    }

    /// Of (0.4, 0.3, 0.2, 0.1) top-k 2 leaves (4/7, 3/7), of which the first alone reaches 0.5; the whole
    /// would need two.
    #[test]
    fn top_p_reckons_with_what_top_k_left() {
        let p = [0.4, 0.3, 0.2, 0.1];
        let both = |spec: &mut SamplingSpec| (spec.top_k, spec.top_p) = (Some(2), 0.5);
        assert_close(&filtered(&p, both), &[1.0, 0.0, 0.0, 0.0]);
        assert_close(&filtered(&p, |spec| spec.top_p = 0.5), &[4.0 / 7.0, 3.0 / 7.0, 0.0, 0.0]);
    }

    #[test]
    fn draws_follow_the_cumulated_probabilities_in_the_order_of_the_vocabulary() {
        let distribution = Distribution { probabilities: vec![0.25, 0.0, 0.5, 0.25] };
        for (uniform, token, margin) in [
            (0.0, 0, 0.25),
            (0.2, 0, 0.05),
            (0.25, 2, 0.0),
            (0.5, 2, 0.25),
            (0.75, 3, 0.0),
            (0.999, 3, 0.249),
        ] {
            let draw = distribution.draw(uniform);
            assert_eq!(draw.token, token, "at {uniform}");
            assert!((draw.margin - margin).abs() < 1e-12, "at {uniform}: {}", draw.margin);
        }
        assert_eq!(distribution.draw(0.3).log_prob, 0.5f64.ln());
    }

    #[test]
    fn logits_that_are_not_finite_are_refused() {
        let of = |logits: &[f32]| Distribution::new(logits, &SamplingSpec::default()).unwrap_err();
        assert_eq!(of(&[0.0, f32::NAN]), BadLogits::NotANumber);
        assert_eq!(of(&[f32::NEG_INFINITY, 0.0]), BadLogits::Infinite);
        assert_eq!(of(&[]), BadLogits::Empty);
        assert_eq!(of(&[f32::NAN]).to_string(), "the logits hold NaN");
    }

    /// Each count is within four standard deviations of its mean.
    #[test]
    fn frequencies_are_the_probabilities() {
        let spec = spec(|spec| (spec.temperature, spec.top_k) = (0.8, Some(4)));
        let distribution = Distribution::new(&[0.3, -1.0, 1.2, 0.0, 0.9, -3.0], &spec).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut counts = [0u32; 6];
        let draws = 40_000;
        for _ in 0..draws {
            counts[distribution.draw(rng.random()).token as usize] += 1;
        }
        for (count, p) in counts.iter().zip(distribution.probabilities()) {
            let (mean, variance) = (f64::from(draws) * p, f64::from(draws) * p * (1.0 - p));
            assert!((f64::from(*count) - mean).abs() <= 4.0 * variance.sqrt(), "{count} of {mean}");
        }
        assert_eq!((counts[1], counts[5]), (0, 0));
    }

    fn specs() -> impl Strategy<Value = SamplingSpec> {
        let top_k = proptest::option::of(1usize..12);
        (0.05f64..3.0, top_k, 0.01f64..=1.0, 0.0f64..0.9).prop_map(|(temperature, top_k, top_p, min_p)| {
            SamplingSpec { temperature, top_k, top_p, min_p, ..SamplingSpec::default() }
        })
    }

    proptest! {
        #[test]
        fn probabilities_sum_to_one_and_a_draw_has_the_logarithm_of_its_own(
            logits in proptest::collection::vec(-30.0f32..30.0, 1..20),
            spec in specs(),
            uniform in 0.0f64..1.0,
        ) {
            let distribution = Distribution::new(&logits, &spec).unwrap();
            let p = distribution.probabilities();
            prop_assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let draw = distribution.draw(uniform);
            let drawn = p[draw.token as usize];
            prop_assert!(drawn > 0.0);
            prop_assert_eq!(draw.log_prob, drawn.ln());
            prop_assert!(draw.margin >= 0.0);
            prop_assert!(spec.top_k.is_none_or(|k| p.iter().filter(|p| **p > 0.0).count() <= k));
        }

        #[test]
        fn a_number_within_the_margin_draws_the_same_token(
            logits in proptest::collection::vec(-3.0f32..3.0, 2..8),
            uniform in 0.0f64..1.0,
            share in -0.99f64..0.99,
        ) {
            let distribution = Distribution::new(&logits, &SamplingSpec::default()).unwrap();
            let draw = distribution.draw(uniform);
            let near = (uniform + share * draw.margin.min(1.0)).clamp(0.0, 1.0 - f64::EPSILON);
            prop_assert_eq!(distribution.draw(near).token, draw.token);
        }
    }
}

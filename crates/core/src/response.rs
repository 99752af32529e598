//! The view that objectives have of a response: its policy tokens, as slices.

use crate::{Anchor, Behaviour, Current, LogProbs, PolicyKind, Proximal, Reference, TokenId};

/// Token log-ratios are clamped to ± this many nats before they are exponentiated, unless a response has another limit
/// ([`ResponseContext::with_log_ratio_limit`]); no gradient goes through a ratio beyond it.
pub const LOG_RATIO_LIMIT: f64 = 20.0;

/// What is known of a response before the current policy is evaluated: one entry per policy token, L in all.
///
/// Built once per rollout batch and kept for all epochs over it.
#[derive(Debug, Clone)]
pub struct ResponseContext {
    anchor: Anchor,
    behaviour: LogProbs<Behaviour>,
    proximal: Option<LogProbs<Proximal>>,
    reference: Option<LogProbs<Reference>>,
    advantages: Vec<f64>,
    top_k: Option<TopK>,
    version_gaps: Vec<u64>,
    age: u64,
    index: usize,
    group: usize,
    seed: u64,
    max_response_len: usize,
    log_ratio_limit: f64,
}

/// The most likely tokens of a policy at each policy token of a response.
#[derive(Debug, Clone, PartialEq)]
pub struct TopK {
    /// How many per position, K.
    pub k: usize,
    /// Token ids, K per policy token, position after position.
    pub tokens: Vec<TokenId>,
    /// Their log-probs (nats), in the same order.
    pub log_probs: Vec<f64>,
    /// Whether the sampled token is among the K, per policy token.
    pub holds_sampled: Vec<bool>,
}

impl ResponseContext {
    /// A response anchored at its behaviour policy.
    ///
    /// `advantages`: one per policy token (unitless).
    ///
    /// # Errors
    /// When the slices differ in length.
    pub fn new(behaviour: LogProbs<Behaviour>, advantages: Vec<f64>) -> Result<Self, ResponseError> {
        let len = behaviour.values().len();
        check_len("advantages", advantages.len(), len)?;
        Ok(Self {
            anchor: Anchor::Behaviour,
            behaviour,
            proximal: None,
            reference: None,
            advantages,
            top_k: None,
            version_gaps: Vec::new(),
            age: 0,
            index: 0,
            group: 0,
            seed: 0,
            max_response_len: len,
            log_ratio_limit: LOG_RATIO_LIMIT,
        })
    }

    /// Adds the proximal policy's log-probs and anchors the ratio there.
    ///
    /// # Errors
    /// When the number of tokens differs.
    pub fn anchored_at_proximal(self, proximal: LogProbs<Proximal>) -> Result<Self, ResponseError> {
        let mut context = self.with_proximal(proximal)?;
        context.anchor = Anchor::Proximal;
        Ok(context)
    }

    /// Adds the proximal policy's log-probs and leaves the ratio anchored where it is.
    ///
    /// # Errors
    /// When the number of tokens differs.
    pub fn with_proximal(mut self, proximal: LogProbs<Proximal>) -> Result<Self, ResponseError> {
        self.check(&proximal)?;
        self.proximal = Some(proximal);
        Ok(self)
    }

    /// Adds the behaviour policy's most likely tokens.
    ///
    /// # Errors
    /// When there are not K tokens and log-probs for every policy token.
    pub fn with_top_k(mut self, top_k: TopK) -> Result<Self, ResponseError> {
        let expected = self.len() * top_k.k;
        check_len("top-K tokens", top_k.tokens.len(), expected)?;
        check_len("top-K log-probs", top_k.log_probs.len(), expected)?;
        check_len("top-K membership", top_k.holds_sampled.len(), self.len())?;
        self.top_k = Some(top_k);
        Ok(self)
    }

    /// Adds how many optimizer steps lie between the policy that sampled each token and the learner. A batch that is
    /// trained on at once has none, which counts as zero everywhere.
    ///
    /// # Errors
    /// When the number of tokens differs.
    pub fn with_version_gaps(mut self, gaps: Vec<u64>) -> Result<Self, ResponseError> {
        check_len("version gaps", gaps.len(), self.len())?;
        self.version_gaps = gaps;
        Ok(self)
    }

    /// Counts one more optimizer step between the policy that sampled the tokens and the learner.
    pub fn age(&mut self) {
        self.age += 1;
    }

    /// Numbers the response within its rollout batch.
    #[must_use]
    pub fn with_index(mut self, index: usize) -> Self {
        self.index = index;
        self
    }

    /// Adds the reference policy's log-probs.
    ///
    /// # Errors
    /// When the number of tokens differs.
    pub fn with_reference(mut self, reference: LogProbs<Reference>) -> Result<Self, ResponseError> {
        self.check(&reference)?;
        self.reference = Some(reference);
        Ok(self)
    }

    /// Names the group (rows of one prompt) that the response belongs to.
    #[must_use]
    pub fn with_group(mut self, group: usize) -> Self {
        self.group = group;
        self
    }

    /// Sets the seed of the response's own random stream.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the run's limit on response tokens (default: the response's own length).
    #[must_use]
    pub fn with_max_response_len(mut self, tokens: usize) -> Self {
        self.max_response_len = tokens;
        self
    }

    /// Sets how far the response's log-ratios and log-weights may be from zero before they are clamped (nats, positive; default
    /// [`LOG_RATIO_LIMIT`]). Beyond about 700 an exponential is infinite. Estimates of a KL divergence and rollout corrections keep
    /// the default.
    #[must_use]
    pub fn with_log_ratio_limit(mut self, nats: f64) -> Self {
        self.log_ratio_limit = nats.abs();
        self
    }

    fn check<P: PolicyKind>(&self, log_probs: &LogProbs<P>) -> Result<(), ResponseError> {
        check_len(P::NAME, log_probs.values().len(), self.len())
    }

    /// Number of policy tokens, L.
    pub fn len(&self) -> usize {
        self.advantages.len()
    }

    /// Whether the response has no policy token.
    pub fn is_empty(&self) -> bool {
        self.advantages.is_empty()
    }

    /// Log-probs of the policy that the ratio is anchored at.
    pub fn anchor(&self) -> &[f64] {
        match (&self.anchor, &self.proximal) {
            (Anchor::Proximal, Some(proximal)) => proximal.values(),
            _ => self.behaviour.values(),
        }
    }

    /// Log-probs of the policy that sampled the tokens.
    pub fn behaviour(&self) -> &[f64] {
        self.behaviour.values()
    }

    /// Log-probs of the learner at the start of the rollout batch, when the composition requires them.
    pub fn proximal(&self) -> Option<&[f64]> {
        self.proximal.as_ref().map(LogProbs::values)
    }

    /// The behaviour policy's most likely tokens, when the composition requires them.
    pub fn top_k(&self) -> Option<&TopK> {
        self.top_k.as_ref()
    }

    /// Optimizer steps between the policy that sampled token `index` and the learner.
    pub fn version_gap(&self, index: usize) -> u64 {
        self.version_gaps.get(index).copied().unwrap_or(0) + self.age
    }

    /// Number of the response within its rollout batch: what a part that was shown the whole batch knows it by.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Log-probs of the reference policy, when the composition requires them.
    pub fn reference(&self) -> Option<&[f64]> {
        self.reference.as_ref().map(LogProbs::values)
    }

    /// Advantages A, never differentiated through.
    pub fn advantages(&self) -> &[f64] {
        &self.advantages
    }

    /// Group (rows of one prompt) that the response belongs to.
    pub fn group(&self) -> usize {
        self.group
    }

    /// Seed of the response's own random stream in this optimizer step, independent of how the batch is split.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The run's limit on response tokens.
    pub fn max_response_len(&self) -> usize {
        self.max_response_len
    }

    /// How far log-ratios and log-weights may be from zero before they are clamped (nats).
    pub fn log_ratio_limit(&self) -> f64 {
        self.log_ratio_limit
    }
}

/// A response with the current policy's log-probs: what every part of an objective sees.
///
/// Position t is the 1-based rank of a token among the policy tokens of its response, so slice index `i` is
/// position `i + 1`; observation tokens in between do not count.
#[derive(Debug, Clone)]
pub struct ResponseTokens<'a> {
    context: &'a ResponseContext,
    current: &'a LogProbs<Current>,
    log_ratios: Vec<f64>,
    entropies: Option<&'a [f64]>,
    top_k: Option<&'a [f64]>,
    positions: Option<Vec<f64>>,
}

impl<'a> ResponseTokens<'a> {
    /// Joins a response with the current policy's log-probs: the one place where a log-ratio is formed.
    ///
    /// # Errors
    /// When the number of tokens differs.
    pub fn new(context: &'a ResponseContext, current: &'a LogProbs<Current>) -> Result<Self, ResponseError> {
        context.check(current)?;
        let limit = context.log_ratio_limit;
        let log_ratios = current
            .values()
            .iter()
            .zip(context.anchor())
            .map(|(current, anchor)| (current - anchor).clamp(-limit, limit))
            .collect();
        Ok(Self { context, current, log_ratios, entropies: None, top_k: None, positions: None })
    }

    /// Adds the current policy's entropies (nats), one per policy token.
    ///
    /// # Errors
    /// When the number of tokens differs.
    pub fn with_entropies(mut self, entropies: &'a [f64]) -> Result<Self, ResponseError> {
        check_len("entropies", entropies.len(), self.len())?;
        self.entropies = Some(entropies);
        Ok(self)
    }

    /// Adds the current policy's log-probs of the behaviour policy's most likely tokens, in the order of
    /// [`ResponseContext::top_k`].
    ///
    /// # Errors
    /// When their number differs, or the context has no such tokens.
    pub fn with_top_k(mut self, log_probs: &'a [f64]) -> Result<Self, ResponseError> {
        let expected = self.context.top_k().map_or(0, |top_k| top_k.log_probs.len());
        check_len("current top-K log-probs", log_probs.len(), expected)?;
        self.top_k = Some(log_probs);
        Ok(self)
    }

    /// The same response with other positions for the parts that depend on them.
    ///
    /// # Errors
    /// When the number of tokens differs.
    pub fn at_positions(mut self, positions: Vec<f64>) -> Result<Self, ResponseError> {
        check_len("positions", positions.len(), self.len())?;
        self.positions = Some(positions);
        Ok(self)
    }

    /// Position t of token `index`: its 1-based rank among the policy tokens, unless others were set.
    pub fn position(&self, index: usize) -> f64 {
        self.positions.as_ref().map_or((index + 1) as f64, |positions| positions[index])
    }

    /// Entropies of the current policy (nats), when the composition requires them.
    pub fn entropies(&self) -> Option<&'a [f64]> {
        self.entropies
    }

    /// The current policy's log-probs of the behaviour policy's most likely tokens, when the composition requires them.
    pub fn top_k(&self) -> Option<&'a [f64]> {
        self.top_k
    }

    /// Number of policy tokens, L.
    pub fn len(&self) -> usize {
        self.log_ratios.len()
    }

    /// Whether the response has no policy token.
    pub fn is_empty(&self) -> bool {
        self.log_ratios.is_empty()
    }

    /// Token log-ratios d_t = log π_θ(y_t) − log π_anchor(y_t), clamped to ± [`ResponseContext::log_ratio_limit`].
    pub fn log_ratios(&self) -> &[f64] {
        &self.log_ratios
    }

    /// Whether the log-ratio of token `index` was clamped, so that no gradient goes through its ratio.
    pub fn is_saturated(&self, index: usize) -> bool {
        self.log_ratios[index].abs() >= self.context.log_ratio_limit
    }

    /// Log-probs of the current policy.
    pub fn current(&self) -> &[f64] {
        self.current.values()
    }

    /// Everything else that is known of the response.
    pub fn context(&self) -> &'a ResponseContext {
        self.context
    }

    /// Advantages A, never differentiated through.
    pub fn advantages(&self) -> &'a [f64] {
        self.context.advantages()
    }
}

/// All responses of one optimizer step, before they are split into micro-batches.
#[derive(Debug, Clone, Copy)]
pub struct OptimizerBatch<'a> {
    /// The responses.
    pub responses: &'a [&'a ResponseContext],
    /// The current policy's log-probs of each response; present when a part requires them
    /// ([`crate::Requirements::batch_current_log_probs`]).
    pub current: Option<&'a [LogProbs<Current>]>,
}

/// Slices that do not belong to the same response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResponseError {
    /// Numbers of entries differ.
    #[error("{what}: {found} values for {expected} policy tokens")]
    Length {
        /// Which slice.
        what: &'static str,
        /// Its length.
        found: usize,
        /// Number of policy tokens.
        expected: usize,
    },
}

fn check_len(what: &'static str, found: usize, expected: usize) -> Result<(), ResponseError> {
    if found == expected { Ok(()) } else { Err(ResponseError::Length { what, found, expected }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// torchforge #571: the ratio compares two named policies; it is not secretly one.
    #[test]
    fn the_ratio_of_behaviour_minus_two_and_current_minus_one_is_e() {
        let context = ResponseContext::new(LogProbs::new(vec![-2.0]), vec![1.0]).unwrap();
        let current = LogProbs::new(vec![-1.0]);
        let tokens = ResponseTokens::new(&context, &current).unwrap();
        assert_eq!(tokens.log_ratios()[0].exp(), std::f64::consts::E);
    }

    #[test]
    fn the_anchor_decides_what_the_ratio_compares_with() {
        let context = ResponseContext::new(LogProbs::new(vec![-2.0]), vec![1.0])
            .unwrap()
            .anchored_at_proximal(LogProbs::new(vec![-1.5]))
            .unwrap();
        let current = LogProbs::new(vec![-1.0]);
        assert_eq!(ResponseTokens::new(&context, &current).unwrap().log_ratios(), [0.5]);
        assert_eq!(context.behaviour(), [-2.0]);
    }

    #[test]
    fn slices_of_different_responses_are_refused() {
        let error = ResponseContext::new(LogProbs::new(vec![-2.0]), vec![1.0, 2.0]).unwrap_err();
        assert_eq!(error.to_string(), "advantages: 2 values for 1 policy tokens");
        let context = ResponseContext::new(LogProbs::new(vec![-2.0]), vec![1.0]).unwrap();
        assert!(context.with_reference(LogProbs::new(vec![])).is_err());
    }

    #[test]
    fn log_ratios_beyond_the_limit_are_clamped_and_marked() {
        let context = ResponseContext::new(LogProbs::new(vec![-100.0, -1.0]), vec![1.0, 1.0]).unwrap();
        let current = LogProbs::new(vec![-1.0, -1.5]);
        let tokens = ResponseTokens::new(&context, &current).unwrap();
        assert_eq!(tokens.log_ratios(), [20.0, -0.5]);
        assert!(tokens.is_saturated(0) && !tokens.is_saturated(1));
    }
}

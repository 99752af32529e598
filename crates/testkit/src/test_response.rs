//! A response built from plain slices.

use firebrick_core::{Current, LogProbs, ResponseContext, ResponseTokens, TopK};

/// A response that owns its log-probs: one entry per policy token.
#[derive(Debug, Clone)]
pub struct TestResponse {
    context: ResponseContext,
    current: LogProbs<Current>,
    entropies: Option<Vec<f64>>,
    current_top_k: Option<Vec<f64>>,
}

impl TestResponse {
    /// A response with the log-probs `behaviour` and `current` (nats), anchored at the behaviour policy.
    ///
    /// # Panics
    /// When the slices differ in length.
    #[track_caller]
    pub fn new(behaviour: &[f64], current: &[f64], advantages: &[f64]) -> Self {
        assert_eq!(behaviour.len(), current.len(), "log-probs of behaviour and current policy");
        let context = ResponseContext::new(LogProbs::new(behaviour.to_vec()), advantages.to_vec())
            .expect("one advantage per policy token");
        Self { context, current: LogProbs::new(current.to_vec()), entropies: None, current_top_k: None }
    }

    /// A response with the given token log-ratios. The behaviour policy's log-probs are zero, so that the
    /// log-ratios are exactly these.
    ///
    /// # Panics
    /// When the slices differ in length.
    #[track_caller]
    pub fn from_log_ratios(log_ratios: &[f64], advantages: &[f64]) -> Self {
        Self::new(&vec![0.0; log_ratios.len()], log_ratios, advantages)
    }

    /// Adds the reference policy's log-probs.
    ///
    /// # Panics
    /// When the number of tokens differs.
    #[must_use]
    #[track_caller]
    pub fn with_reference(mut self, reference: &[f64]) -> Self {
        self.context = self
            .context
            .with_reference(LogProbs::new(reference.to_vec()))
            .expect("one reference log-prob per policy token");
        self
    }

    /// Adds the proximal policy's log-probs and leaves the ratio anchored at the behaviour policy.
    ///
    /// # Panics
    /// When the number of tokens differs.
    #[must_use]
    #[track_caller]
    pub fn with_proximal(self, proximal: &[f64]) -> Self {
        let proximal = LogProbs::new(proximal.to_vec());
        self.map_context(|context| context.with_proximal(proximal).expect("one log-prob per policy token"))
    }

    /// Adds the current policy's entropies (nats).
    #[must_use]
    pub fn with_entropies(mut self, entropies: &[f64]) -> Self {
        self.entropies = Some(entropies.to_vec());
        self
    }

    /// Adds the behaviour policy's most likely tokens, and the current policy's log-probs of them.
    ///
    /// # Panics
    /// When their number differs.
    #[must_use]
    #[track_caller]
    pub fn with_top_k(mut self, behaviour: TopK, current: &[f64]) -> Self {
        self.current_top_k = Some(current.to_vec());
        self.map_context(|context| context.with_top_k(behaviour).expect("K entries per policy token"))
    }

    /// Changes what is known before the current policy is evaluated: group, index, seed, limits.
    #[must_use]
    pub fn map_context(mut self, change: impl FnOnce(ResponseContext) -> ResponseContext) -> Self {
        self.context = change(self.context);
        self
    }

    /// The same response under other current log-probs.
    ///
    /// # Panics
    /// When the number of tokens differs.
    #[must_use]
    #[track_caller]
    pub fn with_current(mut self, current: &[f64]) -> Self {
        assert_eq!(current.len(), self.context.len(), "current log-probs");
        self.current = LogProbs::new(current.to_vec());
        self
    }

    /// What is known before the current policy is evaluated.
    pub fn context(&self) -> &ResponseContext {
        &self.context
    }

    /// The current policy's log-probs.
    pub fn current(&self) -> &LogProbs<Current> {
        &self.current
    }

    /// The response as the parts of an objective see it.
    pub fn tokens(&self) -> ResponseTokens<'_> {
        let mut tokens = ResponseTokens::new(&self.context, &self.current)
            .expect("lengths were checked when it was built");
        if let Some(entropies) = &self.entropies {
            tokens = tokens.with_entropies(entropies).expect("one entropy per policy token");
        }
        if let Some(log_probs) = &self.current_top_k {
            tokens = tokens.with_top_k(log_probs).expect("K log-probs per policy token");
        }
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_ratios_are_kept_exactly() {
        let response = TestResponse::from_log_ratios(&[0.1, -0.2], &[1.0, 2.0]);
        assert_eq!(response.tokens().log_ratios(), [0.1, -0.2]);
        assert_eq!(response.tokens().advantages(), [1.0, 2.0]);
        let moved = response.with_current(&[0.3, 0.4]).with_reference(&[-1.0, -2.0]);
        assert_eq!(moved.tokens().log_ratios(), [0.3, 0.4]);
        assert_eq!(moved.context().reference(), Some(&[-1.0, -2.0][..]));
    }

    #[test]
    #[should_panic(expected = "one advantage per policy token")]
    fn slices_of_different_length_are_refused() {
        let _ = TestResponse::from_log_ratios(&[0.1, -0.2], &[1.0]);
    }
}

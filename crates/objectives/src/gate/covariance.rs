//! Tokens of the optimizer batch, ranked by the covariance of advantage and log-prob.

use std::collections::HashMap;

use firebrick_core::{ExactSum, OptimizerBatch, ResponseContext, StateError};
use serde_json::Value;

/// Tokens that a gate chose from the optimizer batch. A response that was not in the batch has none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TokenSelection {
    /// Chosen tokens, in order, by the response's number within its rollout batch.
    tokens: HashMap<usize, Vec<usize>>,
}

impl TokenSelection {
    /// Whether token `index` of the response was chosen.
    pub fn holds(&self, response: &ResponseContext, index: usize) -> bool {
        self.in_response(response).binary_search(&index).is_ok()
    }

    /// The chosen tokens of the response, in order.
    pub(super) fn in_response(&self, response: &ResponseContext) -> &[usize] {
        self.tokens.get(&response.index()).map_or(&[], Vec::as_slice)
    }

    /// Number of tokens chosen.
    pub fn len(&self) -> usize {
        self.tokens.values().map(Vec::len).sum()
    }

    /// Whether no token was chosen.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    pub(super) fn of<'a>(chosen: impl IntoIterator<Item = &'a BatchToken>) -> Self {
        let mut tokens: HashMap<usize, Vec<usize>> = HashMap::new();
        for token in chosen {
            tokens.entry(token.response).or_default().push(token.index);
        }
        for indices in tokens.values_mut() {
            indices.sort_unstable();
        }
        Self { tokens }
    }
}

/// A policy token of the optimizer batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct BatchToken {
    /// Number of its response within the rollout batch.
    pub(super) response: usize,
    /// Its index within the response.
    pub(super) index: usize,
    /// (A − mean A)(log π_θ − mean log π_θ), with means over all policy tokens of the batch.
    pub(super) covariance: f64,
}

/// All policy tokens of the batch. Means are exact, so neither the order of the responses nor the order in which they
/// were summed can move a token over a limit.
pub(super) fn batch_tokens(part: &str, batch: &OptimizerBatch<'_>) -> Result<Vec<BatchToken>, StateError> {
    let refused = |reason: String| StateError::Batch { part: part.to_owned(), reason };
    let Some(current) = batch.current else {
        return Err(refused(
            "the batch comes without current log-probs, which its requirements ask for".to_owned(),
        ));
    };
    let mut numbers: Vec<usize> = batch.responses.iter().map(|response| response.index()).collect();
    numbers.sort_unstable();
    if let Some(pair) = numbers.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(refused(format!(
            "two responses of the batch have the number {}; number them with ResponseContext::with_index",
            pair[0]
        )));
    }
    let pairs = || batch.responses.iter().zip(current);
    let count = batch.responses.iter().map(|response| response.len()).sum::<usize>() as f64;
    let mean = |sum: ExactSum| sum.value() / count;
    let advantage = mean(pairs().flat_map(|(response, _)| response.advantages().iter().copied()).collect());
    let log_prob = mean(pairs().flat_map(|(_, current)| current.values().iter().copied()).collect());
    let tokens = pairs().flat_map(|(response, current)| {
        let tokens = response.advantages().iter().zip(current.values()).enumerate();
        tokens.map(|(index, (a, l))| BatchToken {
            response: response.index(),
            index,
            covariance: (a - advantage) * (l - log_prob),
        })
    });
    Ok(tokens.collect())
}

/// A share of `tokens`, rounded down, and at least one.
pub(super) fn at_least_one(share: f64, tokens: usize) -> usize {
    ((share * tokens as f64) as usize).max(1)
}

/// The state of a part that starts anew with every optimizer batch.
pub(super) fn load_nothing(part: &str, state: &Value) -> Result<(), StateError> {
    if state.is_null() {
        return Ok(());
    }
    let reason = format!("it keeps nothing from step to step, but the state is {state}");
    Err(StateError::Mismatch { part: part.to_owned(), reason })
}

#[cfg(test)]
mod tests {
    use firebrick_core::LogProbs;
    use firebrick_testkit::{TestResponse, assert_close};

    use super::*;

    fn tokens(responses: &[TestResponse]) -> Result<Vec<BatchToken>, StateError> {
        let contexts: Vec<_> = responses.iter().map(TestResponse::context).collect();
        let current: Vec<_> =
            responses.iter().map(|response| LogProbs::new(response.current().values().to_vec())).collect();
        batch_tokens("part", &OptimizerBatch { responses: &contexts, current: Some(&current) })
    }

    fn responses() -> [TestResponse; 2] {
        let number = |index| move |context: ResponseContext| context.with_index(index);
        [
            TestResponse::from_log_ratios(&[-1.0, -2.0], &[1.0, 1.0]).map_context(number(4)),
            TestResponse::from_log_ratios(&[-3.0], &[-5.0]).map_context(number(2)),
        ]
    }

    /// mean A = −1, mean log-prob = −2: (2)(1), (2)(0), (−4)(−1).
    #[test]
    fn the_covariances_are_those_worked_by_hand() {
        let found = tokens(&responses()).unwrap();
        let ids: Vec<_> = found.iter().map(|token| (token.response, token.index)).collect();
        assert_eq!(ids, [(4, 0), (4, 1), (2, 0)]);
        for (token, expected) in found.iter().zip([2.0, 0.0, 4.0]) {
            assert_close(token.covariance, expected, 1e-15, "covariance");
        }
    }

    #[test]
    fn a_selection_knows_responses_by_their_number() {
        let [first, second] = responses();
        let found = tokens(&[first.clone(), second.clone()]).unwrap();
        let selection = TokenSelection::of(&found[1..]);
        assert_eq!(selection.len(), 2);
        assert!(!selection.holds(first.context(), 0) && selection.holds(first.context(), 1));
        assert!(selection.holds(second.context(), 0));
        assert!(TokenSelection::default().is_empty() && !TokenSelection::default().holds(first.context(), 0));
    }

    #[test]
    fn a_batch_that_cannot_be_ranked_is_refused() {
        let [first, _] = responses();
        let error = tokens(&[first.clone(), first.clone()]).unwrap_err();
        assert!(error.to_string().contains("two responses of the batch have the number 4"), "{error}");
        let error = batch_tokens("part", &OptimizerBatch { responses: &[first.context()], current: None });
        assert!(error.unwrap_err().to_string().contains("without current log-probs"));
    }

    #[test]
    fn a_share_rounds_down_to_at_least_one() {
        assert_eq!([at_least_one(0.1, 51), at_least_one(2e-4, 51), at_least_one(1.0, 51)], [5, 1, 51]);
    }

    #[test]
    fn a_state_of_another_part_is_refused() {
        assert!(load_nothing("part", &Value::Null).is_ok());
        assert!(load_nothing("part", &Value::from(1)).is_err());
    }
}

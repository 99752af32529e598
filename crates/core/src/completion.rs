//! What a policy sampled: token ids with their roles, behaviour log-probs and policy versions.

use serde::Serialize;

use crate::{Behaviour, LogProbs, Prompt, SamplingSpec, Verdict};

/// Index of a token in the vocabulary.
pub type TokenId = u32;

/// Who wrote a token. Only [`TokenRole::Policy`] tokens are trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenRole {
    /// Part of the prompt.
    Prompt,
    /// Sampled by the policy.
    Policy,
    /// Inserted by an environment or a tool after the prompt; conditions the policy, is never trained on.
    Observation,
}

/// Why generation of a completion ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The policy sampled a stop token, which is the completion's last token.
    Stop,
    /// The limit on new tokens was reached: the completion is truncated.
    Length,
    /// The engine gave up (shutdown, deadline); the completion is not to be trained on.
    Aborted,
}

/// One sampled completion, with everything that training needs to know of how it was sampled.
///
/// Tokens are append-only and the text is derived from them, never the other way round. Masks are never read off
/// token values: a stop token that the policy sampled is a policy token like any other, and padding does not exist here.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Completion {
    tokens: Vec<TokenId>,
    roles: Vec<TokenRole>,
    prompt_len: usize,
    behaviour_log_probs: Vec<f64>,
    policy_versions: Vec<u64>,
    finish_reason: Option<FinishReason>,
    sampling: SamplingSpec,
    seed: u64,
}

impl Completion {
    /// Starts a completion of `prompt` that is sampled under `sampling` with the random stream `seed`.
    pub fn start(prompt: &[TokenId], sampling: SamplingSpec, seed: u64) -> Self {
        Self {
            tokens: prompt.to_vec(),
            roles: vec![TokenRole::Prompt; prompt.len()],
            prompt_len: prompt.len(),
            behaviour_log_probs: Vec::new(),
            policy_versions: Vec::new(),
            finish_reason: None,
            sampling,
            seed,
        }
    }

    /// Appends a token that policy `version` sampled with log-probability `log_prob` (nats, under [`Self::sampling`]).
    pub fn push_policy(&mut self, token: TokenId, log_prob: f64, version: u64) {
        self.tokens.push(token);
        self.roles.push(TokenRole::Policy);
        self.behaviour_log_probs.push(log_prob);
        self.policy_versions.push(version);
    }

    /// Appends a token that an environment inserted.
    pub fn push_observation(&mut self, token: TokenId) {
        self.tokens.push(token);
        self.roles.push(TokenRole::Observation);
    }

    /// Marks the completion as ended.
    pub fn finish(&mut self, reason: FinishReason) {
        self.finish_reason = Some(reason);
    }

    /// Prompt and response tokens.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// The prompt's tokens.
    pub fn prompt_tokens(&self) -> &[TokenId] {
        &self.tokens[..self.prompt_len]
    }

    /// All tokens after the prompt, policy and observation alike.
    pub fn response_tokens(&self) -> &[TokenId] {
        &self.tokens[self.prompt_len..]
    }

    /// Role of every token of [`Self::tokens`].
    pub fn roles(&self) -> &[TokenRole] {
        &self.roles
    }

    /// Indices into [`Self::tokens`] of the tokens that the policy sampled, in order.
    pub fn policy_positions(&self) -> impl Iterator<Item = usize> + '_ {
        self.roles.iter().enumerate().filter(|(_, role)| **role == TokenRole::Policy).map(|(i, _)| i)
    }

    /// Number of policy tokens: the L of every formula.
    pub fn policy_len(&self) -> usize {
        self.behaviour_log_probs.len()
    }

    /// Log-probs of the policy tokens under the policy that sampled them, one per policy token.
    pub fn behaviour_log_probs(&self) -> LogProbs<Behaviour> {
        LogProbs::new(self.behaviour_log_probs.clone())
    }

    /// Version of the policy that sampled each policy token.
    pub fn policy_versions(&self) -> &[u64] {
        &self.policy_versions
    }

    /// Why generation ended; `None` while it is under way.
    pub fn finish_reason(&self) -> Option<FinishReason> {
        self.finish_reason
    }

    /// The distribution that the tokens were drawn from.
    pub fn sampling(&self) -> &SamplingSpec {
        &self.sampling
    }

    /// Seed of this completion's own random stream.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

/// A completion together with its verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupRow {
    /// The completion.
    pub completion: Completion,
    /// What the verifier said of it.
    pub verdict: Verdict,
}

/// The completions of one prompt with their verdicts. Filtering acts on whole groups, and a completion never
/// parts from its verdict, so columns cannot get out of step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// The prompt that all rows answer.
    pub prompt: Prompt,
    /// Completions with verdicts; at least one.
    pub rows: Vec<GroupRow>,
}

impl Group {
    /// Pairs the completions of a prompt with their verdicts.
    ///
    /// # Errors
    /// When the two differ in number or there is none.
    pub fn new(
        prompt: Prompt,
        completions: Vec<Completion>,
        verdicts: Vec<Verdict>,
    ) -> Result<Self, CompletionError> {
        if completions.len() != verdicts.len() || completions.is_empty() {
            return Err(CompletionError::GroupMismatch {
                prompt: prompt.id,
                completions: completions.len(),
                verdicts: verdicts.len(),
            });
        }
        let rows = completions
            .into_iter()
            .zip(verdicts)
            .map(|(completion, verdict)| GroupRow { completion, verdict })
            .collect();
        Ok(Self { prompt, rows })
    }

    /// Whether the scored rewards of the group are all exactly equal (or fewer than two rows are scored), so that a
    /// group-relative advantage is zero for every row.
    pub fn is_constant(&self) -> bool {
        let mut rewards = self.rows.iter().filter_map(|row| row.verdict.reward());
        match rewards.next() {
            None => true,
            Some(first) => rewards.all(|reward| reward == first),
        }
    }
}

/// A completion or group that cannot be formed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompletionError {
    /// Completions and verdicts of a group do not pair up.
    #[error(
        "group of prompt `{prompt}`: {completions} completions and {verdicts} verdicts; a group needs as many of each, and at least one"
    )]
    GroupMismatch {
        /// Id of the prompt.
        prompt: String,
        /// Completions given.
        completions: usize,
        /// Verdicts given.
        verdicts: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// verl #3805, TRL #4970: masks come from roles, never from token values.
    #[test]
    fn the_mask_counts_a_sampled_end_token_and_knows_no_padding() {
        let (eos, other) = (0, 5);
        let mut unfinished = Completion::start(&[9], SamplingSpec::default(), 1);
        unfinished.push_policy(other, -0.5, 0);
        unfinished.push_policy(6, -0.5, 0);
        assert_eq!(unfinished.policy_positions().collect::<Vec<_>>(), [1, 2]);
        let mut finished = Completion::start(&[9, eos], SamplingSpec::default(), 1);
        finished.push_policy(other, -0.5, 0);
        finished.push_policy(eos, -0.5, 0);
        finished.finish(FinishReason::Stop);
        assert_eq!(finished.policy_positions().collect::<Vec<_>>(), [2, 3]);
        assert_eq!(finished.policy_len(), 2);
    }

    /// ms-swift #10106: the beginning of a response that is forced on the policy is part of what it sees, never of what it is
    /// trained on, also where the tokens are some that it might have sampled.
    #[test]
    fn a_forced_beginning_of_the_response_is_no_policy_token() {
        let mut completion = Completion::start(&[1, 2], SamplingSpec::default(), 1);
        completion.push_observation(3);
        completion.push_policy(3, -0.7, 0);
        assert_eq!(completion.response_tokens(), [3, 3]);
        assert_eq!(completion.policy_positions().collect::<Vec<_>>(), [3]);
        assert_eq!(completion.policy_len(), completion.behaviour_log_probs().values().len());
    }

    #[test]
    fn observations_are_part_of_the_response_but_never_of_the_policy_tokens() {
        let mut completion = Completion::start(&[1, 2], SamplingSpec::default(), 1);
        completion.push_policy(3, -0.1, 4);
        completion.push_observation(7);
        completion.push_policy(5, -0.2, 5);
        assert_eq!(completion.response_tokens(), [3, 7, 5]);
        assert_eq!(completion.policy_positions().collect::<Vec<_>>(), [2, 4]);
        assert_eq!(completion.behaviour_log_probs().values(), [-0.1, -0.2]);
        assert_eq!(completion.policy_versions(), [4, 5]);
    }

    #[test]
    fn a_group_refuses_verdicts_that_do_not_pair_up() {
        let prompt = Prompt::new("p1", "1+1=", "2");
        let completion = Completion::start(&[1], SamplingSpec::default(), 1);
        let error = Group::new(prompt, vec![completion], vec![]).unwrap_err().to_string();
        assert!(error.contains("p1") && error.contains("1 completions and 0 verdicts"), "{error}");
    }

    #[test]
    fn a_group_is_constant_by_equality_of_its_scored_rewards() {
        let group = |rewards: &[Option<f64>]| {
            let verdicts: Vec<_> = rewards
                .iter()
                .map(|reward| match reward {
                    Some(reward) => Verdict::scored(*reward),
                    None => Verdict::Unscored(crate::UnscoredReason::Timeout),
                })
                .collect();
            let completions = vec![Completion::start(&[1], SamplingSpec::default(), 1); rewards.len()];
            Group::new(Prompt::new("p", "q", "a"), completions, verdicts).unwrap()
        };
        assert!(group(&[Some(0.1), Some(0.1), None]).is_constant());
        assert!(group(&[None, None]).is_constant());
        assert!(!group(&[Some(0.1), Some(0.1 + 1e-16), Some(0.2)]).is_constant());
    }
}

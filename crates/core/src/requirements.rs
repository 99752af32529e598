//! What a part needs, declared as data.

/// What a part needs beyond the behaviour policy's log-probs and the advantages. The trainer computes what is asked for
/// and nothing else, and refuses a composition that cannot have it before a weight exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requirements {
    /// The learner's log-probs at the start of the rollout batch: one more forward pass over it.
    pub proximal_log_probs: bool,
    /// Log-probs of a reference policy.
    pub reference_log_probs: bool,
    /// The current policy's log-probs of the whole optimizer batch before it is split: one more forward pass.
    pub batch_current_log_probs: bool,
    /// Entropies of the current policy at every policy token.
    pub entropies: bool,
    /// The behaviour policy's this many most likely tokens at every position, with their log-probs under the behaviour and
    /// the current policy (0 says nothing).
    pub top_k: usize,
    /// Predicted values at every policy token: a critic is trained beside the policy.
    pub values: bool,
    /// The reward of a greedy completion of each prompt.
    pub greedy_baseline: bool,
    /// For every policy token, the chance Σ_v π(v)² that two draws from the learner at the start of the rollout batch agree there,
    /// with the learner's log-prob of the token.
    pub collision_probabilities: bool,
    /// All rows of a group in one micro-batch.
    pub whole_group: bool,
    /// All rows of the optimizer batch in one micro-batch.
    pub whole_batch: bool,
    /// At least this many completions per prompt (0 and 1 say nothing).
    pub min_group_size: usize,
}

impl Requirements {
    /// What both need together.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            proximal_log_probs: self.proximal_log_probs || other.proximal_log_probs,
            reference_log_probs: self.reference_log_probs || other.reference_log_probs,
            batch_current_log_probs: self.batch_current_log_probs || other.batch_current_log_probs,
            entropies: self.entropies || other.entropies,
            top_k: self.top_k.max(other.top_k),
            values: self.values || other.values,
            greedy_baseline: self.greedy_baseline || other.greedy_baseline,
            collision_probabilities: self.collision_probabilities || other.collision_probabilities,
            whole_group: self.whole_group || other.whole_group,
            whole_batch: self.whole_batch || other.whole_batch,
            min_group_size: self.min_group_size.max(other.min_group_size),
        }
    }
}

//! What a part needs, declared as data.

/// What a part needs beyond the behaviour policy's log-probs and the advantages. The trainer computes what is asked for
/// and nothing else, and refuses a composition that cannot have it before a weight exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Log-probs of a reference policy.
    pub reference_log_probs: bool,
    /// The current policy's log-probs of the whole optimizer batch before it is split: one more forward pass.
    pub batch_current_log_probs: bool,
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
            reference_log_probs: self.reference_log_probs || other.reference_log_probs,
            batch_current_log_probs: self.batch_current_log_probs || other.batch_current_log_probs,
            whole_group: self.whole_group || other.whole_group,
            whole_batch: self.whole_batch || other.whole_batch,
            min_group_size: self.min_group_size.max(other.min_group_size),
        }
    }
}

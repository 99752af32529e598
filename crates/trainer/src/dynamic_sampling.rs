//! Groups whose rewards are all equal teach nothing: they can be replaced by others.

use firebrick_core::Group;
use serde::{Deserialize, Serialize};

/// Dynamic sampling: groups without variance are dropped, and further prompts are sampled until the batch is full.
///
/// *Reference*: Yu et al., "DAPO: an open-source LLM reinforcement learning system at scale", 2025, arXiv:2503.14476.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DynamicSampling {
    /// Most rounds of sampling for one batch, the first included; at least 1.
    pub max_rounds: usize,
    /// What happens when the batch is not full after the last round.
    pub when_exhausted: WhenExhausted,
}

/// What to do when there are too few groups with variance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenExhausted {
    /// End the run.
    Error,
    /// Train on the groups that there are.
    SmallerBatch,
    /// Fill the batch by taking groups again, in order.
    Repeat,
}

impl WhenExhausted {
    /// The batch to train on from `kept` groups, of which `wanted` were asked for; `None` when the run is to end.
    pub(crate) fn complete(self, mut kept: Vec<Group>, wanted: usize) -> Option<Vec<Group>> {
        match self {
            Self::Error => (kept.len() >= wanted).then_some(kept),
            Self::SmallerBatch => Some(kept),
            Self::Repeat => {
                let distinct = kept.len();
                for index in 0..wanted.saturating_sub(distinct) {
                    let Some(group) = kept.get(index % distinct.max(1)) else { break };
                    kept.push(group.clone());
                }
                Some(kept)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Completion, Prompt, SamplingSpec, Verdict};

    use super::*;

    fn groups(ids: &[&str]) -> Vec<Group> {
        let completion = || Completion::start(&[1], SamplingSpec::default(), 0);
        let group = |id: &&str| {
            Group::new(Prompt::new(*id, "", ""), vec![completion()], vec![Verdict::scored(1.0)]).unwrap()
        };
        ids.iter().map(group).collect()
    }

    fn ids(groups: Option<Vec<Group>>) -> Option<Vec<String>> {
        Some(groups?.into_iter().map(|group| group.prompt.id).collect())
    }

    #[test]
    fn the_three_policies_end_shrink_or_repeat() {
        let kept = || groups(&["a", "b"]);
        assert_eq!(ids(WhenExhausted::Error.complete(kept(), 5)), None);
        assert_eq!(ids(WhenExhausted::Error.complete(kept(), 2)).unwrap(), ["a", "b"]);
        assert_eq!(ids(WhenExhausted::SmallerBatch.complete(kept(), 5)).unwrap(), ["a", "b"]);
        assert_eq!(ids(WhenExhausted::Repeat.complete(kept(), 5)).unwrap(), ["a", "b", "a", "b", "a"]);
        assert!(ids(WhenExhausted::Repeat.complete(Vec::new(), 5)).unwrap().is_empty());
    }
}

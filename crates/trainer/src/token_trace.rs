//! A response of a run, token by token.

use std::path::Path;

use firebrick_core::{Anchor, Current, LogProbs, ResponseContext, ResponseError};
use serde::{Deserialize, Serialize};

/// Every policy token of a traced response with its log-probs (nats), as the objective saw them in the last optimizer step on
/// the rollout batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TokenTrace {
    /// Text of each token.
    pub text: Vec<String>,
    /// Log-probs of the policy that sampled.
    pub behaviour: Vec<f64>,
    /// Log-probs of the learner at the start of the rollout batch, when the objective requires them.
    pub proximal: Option<Vec<f64>>,
    /// Log-probs of the reference policy, when the objective requires them.
    pub reference: Option<Vec<f64>>,
    /// Log-probs of the learner.
    pub current: Vec<f64>,
    /// Advantages.
    pub advantages: Vec<f64>,
    /// The run's limit on response tokens.
    pub max_response_len: usize,
}

impl TokenTrace {
    /// Reads the trace of completion `sample` of step `step` from `traces.jsonl` of a run directory.
    ///
    /// # Errors
    /// When the file cannot be read, or says which traces there are when this is none of them.
    pub fn read(run: &Path, step: usize, sample: usize) -> Result<Self, TokenTraceError> {
        #[derive(Deserialize)]
        struct Row {
            step: usize,
            #[serde(default)]
            token_trace: Option<TokenTrace>,
        }
        let path = run.join("traces.jsonl");
        let text = std::fs::read_to_string(&path)
            .map_err(|source| TokenTraceError::Read { path: path.clone(), source })?;
        let mut rows = Vec::new();
        let mut last_step = 0;
        for line in text.lines() {
            let row: Row = serde_json::from_str(line)
                .map_err(|error| TokenTraceError::Read { path: path.clone(), source: error.into() })?;
            last_step = row.step;
            if row.step == step {
                rows.push(row.token_trace);
            }
        }
        let traced: Vec<String> =
            (0..rows.len()).filter(|i| rows[*i].is_some()).map(|i| i.to_string()).collect();
        rows.into_iter().nth(sample).flatten().ok_or(TokenTraceError::NotTraced {
            path,
            step,
            sample,
            last_step,
            traced: traced.join(", "),
        })
    }

    /// The response as it was collected, and the learner's log-probs.
    ///
    /// # Errors
    /// When the lists differ in length.
    pub fn response(&self, anchor: Anchor) -> Result<(ResponseContext, LogProbs<Current>), ResponseError> {
        let mut context =
            ResponseContext::new(LogProbs::new(self.behaviour.clone()), self.advantages.clone())?
                .with_max_response_len(self.max_response_len);
        if let Some(proximal) = &self.proximal {
            let proximal = LogProbs::new(proximal.clone());
            context = match anchor {
                Anchor::Proximal => context.anchored_at_proximal(proximal)?,
                Anchor::Behaviour => context.with_proximal(proximal)?,
            };
        }
        if let Some(reference) = &self.reference {
            context = context.with_reference(LogProbs::new(reference.clone()))?;
        }
        Ok((context, LogProbs::new(self.current.clone())))
    }
}

/// A trace that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenTraceError {
    /// The file cannot be read.
    #[error("cannot read the traces {}", path.display())]
    Read {
        /// The file.
        path: std::path::PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The response has no token trace.
    #[error(
        "{}: step {step} has no token trace of sample {sample}; traced at this step are [{traced}], steps go up to {last_step}. Raise train.token_traces_per_step (and traces_per_step) to trace more, and note that unscored responses are not trained on", path.display()
    )]
    NotTraced {
        /// The file.
        path: std::path::PathBuf,
        /// The step that was asked for.
        step: usize,
        /// The sample that was asked for.
        sample: usize,
        /// The last step with traces.
        last_step: usize,
        /// Samples of the step that are traced.
        traced: String,
    },
}

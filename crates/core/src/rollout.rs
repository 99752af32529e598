//! The plug-in that samples completions from a policy.

use std::{fmt::Debug, sync::Arc};

use crate::{Completion, SamplingSpec, TokenId};

/// One completion to sample. Several samples of a prompt are several requests that share the prompt's tokens.
#[derive(Debug, Clone)]
pub struct GenerationRequest {
    /// Tokens of the prompt; at least one.
    pub prompt: Arc<[TokenId]>,
    /// Seed of this completion's own random stream, so that it does not depend on what else is in the batch.
    pub seed: u64,
}

/// The policy to sample from and its version, which increases with every optimizer step.
#[derive(Debug)]
pub struct PolicyRef<'a, M> {
    /// The model, on its inference backend.
    pub model: &'a M,
    /// Version of the weights; a remote engine synchronises when it changes.
    pub version: u64,
}

/// Samples completions from a policy of type `M`.
pub trait RolloutEngine<M>: Debug {
    /// Returns one finished completion per request, in order, each drawn from `sampling`.
    ///
    /// # Errors
    /// When a request cannot be served; no partial result is returned.
    fn generate(
        &mut self,
        policy: PolicyRef<'_, M>,
        requests: &[GenerationRequest],
        sampling: &SamplingSpec,
    ) -> Result<Vec<Completion>, RolloutError>;

    /// The same; `finished` is told of each completion and its request's index once, as soon as the completion has ended, so that
    /// it can be verified while others are under way. An engine that does not know before all have ended leaves this out.
    ///
    /// # Errors
    /// As [`Self::generate`].
    fn generate_each(
        &mut self,
        policy: PolicyRef<'_, M>,
        requests: &[GenerationRequest],
        sampling: &SamplingSpec,
        finished: &mut dyn FnMut(usize, &Completion),
    ) -> Result<Vec<Completion>, RolloutError> {
        let completions = self.generate(policy, requests, sampling)?;
        completions.iter().enumerate().for_each(|(request, completion)| finished(request, completion));
        Ok(completions)
    }
}

impl<M, T: RolloutEngine<M> + ?Sized> RolloutEngine<M> for Box<T> {
    fn generate(
        &mut self,
        policy: PolicyRef<'_, M>,
        requests: &[GenerationRequest],
        sampling: &SamplingSpec,
    ) -> Result<Vec<Completion>, RolloutError> {
        (**self).generate(policy, requests, sampling)
    }

    fn generate_each(
        &mut self,
        policy: PolicyRef<'_, M>,
        requests: &[GenerationRequest],
        sampling: &SamplingSpec,
        finished: &mut dyn FnMut(usize, &Completion),
    ) -> Result<Vec<Completion>, RolloutError> {
        (**self).generate_each(policy, requests, sampling, finished)
    }
}

const _: Option<&dyn RolloutEngine<()>> = None; // object-safe

/// A failure to generate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RolloutError {
    /// The sampling spec is out of range.
    #[error(transparent)]
    Sampling(#[from] crate::SamplingError),
    /// A prompt has no token, so there is nothing to condition on.
    #[error("request {request}: the prompt has no token; add a beginning-of-sequence token or drop the row")]
    EmptyPrompt {
        /// Index of the request.
        request: usize,
    },
    /// Prompt and response do not fit into the model's context.
    #[error(
        "request {request}: {prompt} prompt tokens + {max_new} new tokens exceed the model's {limit} positions; shorten the prompt or lower sampling.max_new_tokens"
    )]
    TooLong {
        /// Index of the request.
        request: usize,
        /// Tokens of the prompt.
        prompt: usize,
        /// Most new tokens.
        max_new: usize,
        /// Positions that the model has.
        limit: usize,
    },
    /// The model returned logits that no token can be drawn from.
    #[error(
        "request {request}, new token {position}: the logits hold {what}, so no token can be drawn; the weights are probably not finite"
    )]
    BadLogits {
        /// Index of the request.
        request: usize,
        /// Index of the token that was to be sampled.
        position: usize,
        /// What was found.
        what: &'static str,
    },
    /// The engine failed in a way of its own.
    #[error("the rollout engine failed: {message}")]
    Engine {
        /// What went wrong.
        message: String,
        /// The underlying error.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

//! The engine that runs the model in the same process.

use std::{num::NonZeroUsize, sync::mpsc, thread};

use burn::tensor::backend::Backend;
use firebrick_core::{
    CausalLm, Completion, GenerationRequest, PolicyRef, RolloutEngine, RolloutError, SamplingSpec,
};

use crate::batch::Batch;

/// Generates with the model itself, for a whole batch at once with a cache of keys and values.
///
/// `B` is a plain backend: under autodiff pass `model.valid()`, whose type is the model on the inner backend.
/// On an autodiff backend every step would keep a graph that is never used.
///
/// Every completion draws from a ChaCha8 stream of its own, seeded by its request, one number in [0, 1) for
/// each new token. So it does not depend on what else is in the batch, or on the backend, except where a
/// number falls so close to the boundary between two tokens that the rounding of the logits decides
/// ([`crate::Draw::margin`]). Its log-probs are those of the distribution that it was drawn from, filters
/// included.
#[derive(Debug, Clone)]
pub struct EmbeddedEngine<B: Backend> {
    device: B::Device,
    max_batch_rows: Option<NonZeroUsize>,
    parts: NonZeroUsize,
}

impl<B: Backend> EmbeddedEngine<B> {
    /// An engine for models on `device` that serves all requests in one batch.
    pub fn new(device: B::Device) -> Self {
        Self { device, max_batch_rows: None, parts: NonZeroUsize::MIN }
    }

    /// Cuts the requests into `parts` equal parts that are served side by side, each by a thread of its own. On a CPU this keeps
    /// more cores busy where the operations of a step are small.
    #[must_use]
    pub fn with_parts(mut self, parts: NonZeroUsize) -> Self {
        self.parts = parts;
        self
    }

    /// Serves at most `rows` requests at a time, of all parts, which bounds the memory of the cache.
    #[must_use]
    pub fn with_max_batch_rows(mut self, rows: NonZeroUsize) -> Self {
        self.max_batch_rows = Some(rows);
        self
    }
}

impl<B: Backend, M: CausalLm<B>> RolloutEngine<M> for EmbeddedEngine<B> {
    fn generate(
        &mut self,
        policy: PolicyRef<'_, M>,
        requests: &[GenerationRequest],
        sampling: &SamplingSpec,
    ) -> Result<Vec<Completion>, RolloutError> {
        self.generate_each(policy, requests, sampling, &mut |_, _| {})
    }

    fn generate_each(
        &mut self,
        policy: PolicyRef<'_, M>,
        requests: &[GenerationRequest],
        sampling: &SamplingSpec,
        finished: &mut dyn FnMut(usize, &Completion),
    ) -> Result<Vec<Completion>, RolloutError> {
        sampling.validate()?;
        for (index, request) in requests.iter().enumerate() {
            check(index, request, sampling, policy.model)?;
        }
        let share = requests.len().div_ceil(self.parts.get()).max(1);
        if share >= requests.len() {
            return self.serve(0, &policy, requests, sampling, finished);
        }
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let serve = |(part, requests)| {
                // A model can be sent, but not every backend's can be shared.
                let (model, version) = (policy.model.clone(), policy.version);
                let (engine, sender) = (&*self, sender.clone());
                scope.spawn(move || {
                    let policy = PolicyRef { model: &model, version };
                    engine.serve(part * share, &policy, requests, sampling, &mut |request, completion| {
                        // The receiver outlives every sender.
                        let _ = sender.send((request, completion.clone()));
                    })
                })
            };
            let parts: Vec<_> = requests.chunks(share).enumerate().map(serve).collect();
            drop(sender);
            for (request, completion) in receiver {
                finished(request, &completion);
            }
            let mut completions = Vec::with_capacity(requests.len());
            for part in parts {
                completions.extend(part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok(completions)
        })
    }
}

impl<B: Backend> EmbeddedEngine<B> {
    /// Generates one completion, and shows it to `extended` after every new token. It is the completion that
    /// [`RolloutEngine::generate`] returns for the request.
    ///
    /// # Errors
    /// As [`RolloutEngine::generate`].
    pub fn stream<M: CausalLm<B>>(
        &self,
        policy: PolicyRef<'_, M>,
        request: &GenerationRequest,
        sampling: &SamplingSpec,
        extended: &mut dyn FnMut(&Completion),
    ) -> Result<Completion, RolloutError> {
        sampling.validate()?;
        check(0, request, sampling, policy.model)?;
        let batch = Batch::new(0, std::slice::from_ref(request), sampling, &policy);
        let mut completions = batch.run(&self.device, &mut |_, completion| extended(completion))?;
        Ok(completions.pop().expect("one completion for one request"))
    }

    /// Serves checked requests, the first of which has index `first` among all.
    fn serve<M: CausalLm<B>>(
        &self,
        first: usize,
        policy: &PolicyRef<'_, M>,
        requests: &[GenerationRequest],
        sampling: &SamplingSpec,
        finished: &mut dyn FnMut(usize, &Completion),
    ) -> Result<Vec<Completion>, RolloutError> {
        let of_part = |rows: NonZeroUsize| rows.get().div_ceil(self.parts.get());
        let rows = self.max_batch_rows.map_or(requests.len(), of_part).max(1);
        let mut completions = Vec::with_capacity(requests.len());
        for (slice, requests) in requests.chunks(rows).enumerate() {
            let batch = Batch::new(first + slice * rows, requests, sampling, policy);
            completions.extend(batch.run(&self.device, &mut |request, completion| {
                if completion.finish_reason().is_some() {
                    finished(request, completion);
                }
            })?);
        }
        Ok(completions)
    }
}

/// Checks that a request can be served.
fn check<B: Backend, M: CausalLm<B>>(
    index: usize,
    request: &GenerationRequest,
    sampling: &SamplingSpec,
    model: &M,
) -> Result<(), RolloutError> {
    let (prompt, max_new) = (request.prompt.len(), sampling.max_new_tokens);
    if prompt == 0 {
        return Err(RolloutError::EmptyPrompt { request: index });
    }
    let limit = model.max_positions();
    if prompt.saturating_add(max_new) > limit {
        return Err(RolloutError::TooLong { request: index, prompt, max_new, limit });
    }
    let vocab = model.vocab_size();
    match request.prompt.iter().find(|token| **token as usize >= vocab) {
        None => Ok(()),
        Some(token) => {
            let message = format!(
                "request {index}: the prompt has token {token}, but the model has ids below {vocab} only; \
                 check that the tokenizer belongs to the model"
            );
            Err(RolloutError::Engine { message, source: None })
        }
    }
}

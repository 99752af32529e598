//! A batch of completions under way.
//!
//! Shapes: B rows, S columns, D hidden size, V vocabulary.

use std::collections::HashMap;

use burn::tensor::{Int, Tensor, TensorData, backend::Backend};
use firebrick_core::{
    CausalLm, Completion, FinishReason, GenerationRequest, PolicyRef, RolloutError, SamplingSpec, TokenId,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use crate::{BadLogits, Distribution};

/// Finished rows leave the cache once they are one in this many: to leave costs a copy of the cache, as does
/// every step, and to stay costs a row's share of every step.
const LEAVING_SHARE: usize = 8;

/// Fed where a token does not matter.
const FILLER: TokenId = 0;

/// Requests that are served together.
pub(crate) struct Batch<'a, M> {
    policy: &'a PolicyRef<'a, M>,
    sampling: &'a SamplingSpec,
    /// The rows of the cache, in its order; some may be finished.
    rows: Vec<Row>,
    /// Finished rows that have left the cache.
    left: Vec<Row>,
}

/// One request.
struct Row {
    /// Index of the request among all.
    request: usize,
    completion: Completion,
    rng: ChaCha8Rng,
    /// Whether its end has been told of.
    told: bool,
}

impl<'a, M> Batch<'a, M> {
    /// A batch of checked requests, the first of which has index `first` among all.
    pub(crate) fn new(
        first: usize,
        requests: &[GenerationRequest],
        sampling: &'a SamplingSpec,
        policy: &'a PolicyRef<'a, M>,
    ) -> Self {
        let row = |(index, request): (usize, &GenerationRequest)| Row {
            request: first + index,
            completion: Completion::start(&request.prompt, sampling.clone(), request.seed),
            rng: ChaCha8Rng::seed_from_u64(request.seed),
            told: false,
        };
        Self { policy, sampling, rows: requests.iter().enumerate().map(row).collect(), left: Vec::new() }
    }

    /// Generates until all rows are finished, and tells `extended` of each row that has a new token, finished ones among them.
    /// Returns the completions in the order of the requests.
    pub(crate) fn run<B: Backend>(
        mut self,
        device: &B::Device,
        extended: &mut dyn FnMut(usize, &Completion),
    ) -> Result<Vec<Completion>, RolloutError>
    where
        M: CausalLm<B>,
    {
        let (mut cache, mut logits) = self.prefill(device)?;
        let mut steps = 1;
        loop {
            self.sample(&logits)?;
            for row in self.rows.iter_mut().filter(|row| !row.told) {
                row.told = row.is_finished();
                extended(row.request, &row.completion);
            }
            if self.rows.iter().all(Row::is_finished) {
                break;
            }
            self.let_finished_leave(&mut cache);
            let last = self.rows.iter().map(Row::last).unzip();
            logits = self.extend(self.rows.len(), last, &mut cache, device)?;
            steps += 1;
        }
        let mut rows = self.left;
        rows.append(&mut self.rows);
        rows.sort_unstable_by_key(|row| row.request);
        let tokens: usize = rows.iter().map(|row| row.completion.policy_len()).sum();
        tracing::debug!(rows = rows.len(), steps, tokens, "generated");
        Ok(rows.into_iter().map(|row| row.completion).collect())
    }

    /// Reads the prompts and returns the cache and the logits after each, row after row. A prompt that several rows share is read
    /// once.
    fn prefill<B: Backend>(&self, device: &B::Device) -> Result<(M::Cache, Vec<f32>), RolloutError>
    where
        M: CausalLm<B>,
    {
        let mut prompts: Vec<&[TokenId]> = Vec::new();
        let mut seen = HashMap::new();
        let of_row: Vec<usize> = self
            .rows
            .iter()
            .map(|row| row.completion.prompt_tokens())
            .map(|prompt| {
                *seen.entry(prompt).or_insert_with(|| {
                    prompts.push(prompt);
                    prompts.len() - 1
                })
            })
            .collect();
        let longest = prompts.iter().map(|prompt| prompt.len()).max().unwrap_or(0);
        let padding: Vec<usize> = prompts.iter().map(|prompt| longest - prompt.len()).collect();
        let (mut tokens, mut positions) = (Vec::new(), Vec::new());
        for (prompt, pad) in prompts.iter().zip(&padding) {
            tokens.extend(std::iter::repeat_n(FILLER, *pad).chain(prompt.iter().copied()));
            positions.extend(std::iter::repeat_n(0, *pad).chain(0..prompt.len()));
        }
        let mut cache = self.policy.model.new_cache(&padding, device);
        let logits = self.extend(prompts.len(), (tokens, positions), &mut cache, device)?;
        let vocab = logits.len() / prompts.len();
        self.policy.model.retain_rows(&mut cache, &of_row);
        let logits = of_row.iter().flat_map(|prompt| &logits[prompt * vocab..][..vocab]).copied().collect();
        Ok((cache, logits))
    }

    /// Appends as many tokens to each of the cache's `rows` and returns the logits after the last one, row after
    /// row: the one place where the device is waited for.
    fn extend<B: Backend>(
        &self,
        rows: usize,
        (tokens, positions): (Vec<TokenId>, Vec<usize>),
        cache: &mut M::Cache,
        device: &B::Device,
    ) -> Result<Vec<f32>, RolloutError>
    where
        M: CausalLm<B>,
    {
        let shape = [rows, tokens.len() / rows];
        let ints = |values: Vec<i64>| Tensor::<B, 2, Int>::from_data(TensorData::new(values, shape), device);
        let tokens = ints(tokens.into_iter().map(i64::from).collect());
        let positions = ints(positions.into_iter().map(|position| position as i64).collect());
        let hidden = self.policy.model.extend(tokens, positions, cache);
        let logits = self.policy.model.logits(hidden.narrow(1, shape[1] - 1, 1).squeeze_dim(1));
        let data = logits.try_into_data().map_err(|error| RolloutError::Engine {
            message: "the logits cannot be read from the device".into(),
            source: Some(error.into()),
        })?;
        Ok(data.iter::<f32>().collect())
    }

    /// Draws the next token of each row that is not finished.
    fn sample(&mut self, logits: &[f32]) -> Result<(), RolloutError> {
        let (sampling, version) = (self.sampling, self.policy.version);
        let vocab = logits.len() / self.rows.len();
        let rows = self.rows.par_iter_mut().zip(logits.par_chunks_exact(vocab));
        let sample = |(row, logits): (&mut Row, &[f32])| match row.is_finished() {
            true => Ok(()),
            false => row.sample(logits, version, sampling),
        };
        // Collected first, so that of several errors the first row's is returned.
        rows.map(sample).collect::<Vec<_>>().into_iter().collect()
    }

    /// Takes finished rows out of the cache when they are enough to be worth the copy.
    fn let_finished_leave<B: Backend>(&mut self, cache: &mut M::Cache)
    where
        M: CausalLm<B>,
    {
        let kept: Vec<usize> = (0..self.rows.len()).filter(|row| !self.rows[*row].is_finished()).collect();
        if (self.rows.len() - kept.len()) * LEAVING_SHARE < self.rows.len() {
            return;
        }
        self.policy.model.retain_rows(cache, &kept);
        self.left.extend(self.rows.extract_if(.., |row| row.is_finished()));
    }
}

impl Row {
    fn is_finished(&self) -> bool {
        self.completion.finish_reason().is_some()
    }

    /// The last token and its position. Fed after every step; in a finished row it comes again, to no effect.
    fn last(&self) -> (TokenId, usize) {
        let tokens = self.completion.tokens();
        (tokens[tokens.len() - 1], tokens.len() - 1)
    }

    /// Draws the next token and ends the completion if that was its last.
    fn sample(&mut self, logits: &[f32], version: u64, sampling: &SamplingSpec) -> Result<(), RolloutError> {
        let bad_logits = |error: BadLogits| RolloutError::BadLogits {
            request: self.request,
            position: self.completion.policy_len(),
            what: error.what(),
        };
        let distribution = Distribution::new(logits, sampling).map_err(bad_logits)?;
        let draw = distribution.draw(self.rng.random());
        self.completion.push_policy(draw.token, draw.log_prob, version);
        if sampling.stop_tokens.contains(&draw.token) {
            self.completion.finish(FinishReason::Stop);
        } else if self.completion.policy_len() == sampling.max_new_tokens {
            self.completion.finish(FinishReason::Length);
        }
        Ok(())
    }
}

//! From problems to verified groups.

use std::{sync::Arc, time::Instant};

use firebrick_core::{
    Completion, FinishReason, GenerationRequest, Group, Message, Metrics, PolicyRef, Prompt, RolloutEngine,
    SamplingSpec, TokenId, Tokenizer, Verdict,
};
use firebrick_reward::{Grader, OwnedSample};

use crate::{Timings, TrainerError};

/// What turns problems into verified groups.
pub(crate) struct Sampler<'a, M> {
    pub(crate) engine: &'a mut dyn RolloutEngine<M>,
    pub(crate) policy: PolicyRef<'a, M>,
    pub(crate) sampling: &'a SamplingSpec,
    pub(crate) tokenizer: &'a dyn Tokenizer,
    pub(crate) grader: &'a Grader,
    /// Prompts are cut to their last tokens where they have more.
    pub(crate) max_prompt_tokens: Option<usize>,
    /// Whether the policy is shown each prompt's guidance.
    pub(crate) guided: bool,
    /// Where the seconds are counted.
    pub(crate) timings: &'a mut Timings,
}

impl<M> Sampler<'_, M> {
    /// Samples `samples` completions of each prompt and verifies each as soon as it has ended.
    ///
    /// `seed_of(prompt index, sample index)` seeds each completion's own random stream.
    pub(crate) fn groups(
        self,
        prompts: &[&Prompt],
        samples: usize,
        seed_of: impl Fn(u64, u64) -> u64,
    ) -> Result<Vec<Group>, TrainerError> {
        let mut requests = Vec::with_capacity(prompts.len() * samples);
        for (index, prompt) in prompts.iter().enumerate() {
            let messages = if self.guided { &prompt.guided_messages() } else { &prompt.messages };
            let tokens: Arc<[TokenId]> =
                encode(self.tokenizer, prompt, messages, self.max_prompt_tokens)?.into();
            for sample in 0..samples {
                let seed = seed_of(index as u64, sample as u64);
                requests.push(GenerationRequest { prompt: tokens.clone(), seed });
            }
        }
        let shared: Vec<Arc<Prompt>> = prompts.iter().map(|prompt| Arc::new((*prompt).clone())).collect();
        let clock = Instant::now();
        let mut batch = self.grader.batch();
        // `order[n]` is the request of the n-th completion that ended
        let (mut order, mut refused) = (Vec::with_capacity(requests.len()), None);
        let completions = {
            let _span = tracing::info_span!("rollout", completions = requests.len()).entered();
            let mut finished = |request: usize, completion: &Completion| {
                order.push(request);
                let sample = owned_sample(self.tokenizer, &shared[request / samples], completion);
                refused = refused.take().or_else(|| batch.submit(sample).err());
            };
            self.engine.generate_each(self.policy, &requests, self.sampling, &mut finished)?
        };
        if let Some(error) = refused {
            return Err(error.into());
        }
        if completions.len() != requests.len() || order.len() != requests.len() {
            return Err(TrainerError::EngineMismatch { asked: requests.len(), returned: completions.len() });
        }
        self.timings.generate += clock.elapsed().as_secs_f64();
        let clock = Instant::now();
        let verdicts = {
            let _span = tracing::info_span!("verify").entered();
            let mut verdicts: Vec<(usize, Verdict)> = order.into_iter().zip(batch.collect()?).collect();
            verdicts.sort_unstable_by_key(|(request, _)| *request);
            verdicts
        };
        self.timings.verify += clock.elapsed().as_secs_f64();
        let mut rows = completions.into_iter().zip(verdicts.into_iter().map(|(_, verdict)| verdict));
        prompts
            .iter()
            .map(|prompt| {
                let (completions, verdicts) = rows.by_ref().take(samples).unzip();
                Ok(Group::new((*prompt).clone(), completions, verdicts)?)
            })
            .collect()
    }
}

/// A completion as verifiers are shown it.
fn owned_sample(tokenizer: &dyn Tokenizer, prompt: &Arc<Prompt>, completion: &Completion) -> OwnedSample {
    let tokens = completion.response_tokens();
    let finish = completion.finish_reason().unwrap_or(FinishReason::Aborted);
    OwnedSample::new(prompt.clone(), tokenizer.decode(tokens), tokens, finish)
}

/// The tokens of a prompt's messages, cut to their last `most`.
pub(crate) fn encode(
    tokenizer: &dyn Tokenizer,
    prompt: &Prompt,
    messages: &[Message],
    most: Option<usize>,
) -> Result<Vec<TokenId>, TrainerError> {
    let mut tokens = tokenizer
        .encode_chat(messages)
        .map_err(|source| TrainerError::Prompt { id: prompt.id.clone(), source })?;
    let cut = most.map_or(0, |most| tokens.len().saturating_sub(most));
    Ok(tokens.split_off(cut))
}

/// Records what the groups say of rewards and lengths.
pub(crate) fn record(groups: &[Group], metrics: &mut Metrics) {
    for group in groups {
        metrics.add_mean("frac_reward_zero_std", f64::from(u8::from(group.is_constant())), 1.0);
        for row in &group.rows {
            let completion = &row.completion;
            let length = completion.policy_len() as f64;
            metrics.add_mean("completions/mean_length", length, 1.0);
            metrics.add_max("completions/max_length", length);
            metrics.add_min("completions/min_length", length);
            let truncated = completion.finish_reason() == Some(FinishReason::Length);
            metrics.add_mean("completions/clipped_ratio", f64::from(u8::from(truncated)), 1.0);
            let scored = if let Verdict::Scored(score) = &row.verdict {
                metrics.add_mean("reward/mean", score.reward, 1.0);
                let failed = f64::from(u8::from(score.extracted.is_none()));
                metrics.add_mean("reward/extraction_failed", failed, 1.0);
                for (name, value) in &score.components {
                    metrics.add_mean(&format!("reward/{name}/mean"), *value, 1.0);
                }
                1.0
            } else {
                0.0
            };
            metrics.add_mean("frac_unscored", 1.0 - scored, 1.0);
        }
    }
    if let Some(deviation) = mean_group_deviation(groups) {
        metrics.add_mean("reward_std", deviation, 1.0);
    }
}

/// Mean over groups of the standard deviation (n − 1) of their scored rewards.
fn mean_group_deviation(groups: &[Group]) -> Option<f64> {
    let deviations: Vec<f64> = groups
        .iter()
        .filter_map(|group| {
            let rewards: Vec<f64> = group.rows.iter().filter_map(|row| row.verdict.reward()).collect();
            let n = rewards.len() as f64;
            let mean = rewards.iter().sum::<f64>() / n;
            (rewards.len() > 1)
                .then(|| (rewards.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt())
        })
        .collect();
    (!deviations.is_empty()).then(|| deviations.iter().sum::<f64>() / deviations.len() as f64)
}

#[cfg(test)]
mod tests {
    use firebrick_core::{
        Message, RewardVerifier, RolloutError, Sample, TokenizerError, UnscoredReason, VerifyError,
    };
    use firebrick_reward::GraderSettings;

    use super::*;

    #[derive(Debug)]
    struct Digits;

    impl Tokenizer for Digits {
        fn encode(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
            Ok(text.chars().filter_map(|c| c.to_digit(10)).collect())
        }
        fn decode(&self, tokens: &[TokenId]) -> String {
            tokens.iter().map(TokenId::to_string).collect()
        }
        fn encode_chat(&self, messages: &[Message]) -> Result<Vec<TokenId>, TokenizerError> {
            self.encode(&messages[0].content)
        }
        fn vocab_size(&self) -> usize {
            10
        }
        fn stop_tokens(&self) -> &[TokenId] {
            &[0]
        }
    }

    fn completion(token: TokenId, reason: FinishReason) -> Completion {
        let mut completion = Completion::start(&[5], SamplingSpec::default(), 0);
        completion.push_policy(token, -0.1, 0);
        completion.finish(reason);
        completion
    }

    /// Answers each request with its seed; the last request ends first.
    #[derive(Debug)]
    struct Backwards;

    impl RolloutEngine<()> for Backwards {
        fn generate(
            &mut self,
            _policy: PolicyRef<'_, ()>,
            requests: &[GenerationRequest],
            _sampling: &SamplingSpec,
        ) -> Result<Vec<Completion>, RolloutError> {
            let answer = |request: &GenerationRequest| {
                completion(
                    request.seed as TokenId,
                    [FinishReason::Stop, FinishReason::Aborted][usize::from(request.seed == 5)],
                )
            };
            Ok(requests.iter().map(answer).collect())
        }

        fn generate_each(
            &mut self,
            policy: PolicyRef<'_, ()>,
            requests: &[GenerationRequest],
            sampling: &SamplingSpec,
            finished: &mut dyn FnMut(usize, &Completion),
        ) -> Result<Vec<Completion>, RolloutError> {
            let completions = self.generate(policy, requests, sampling)?;
            completions
                .iter()
                .enumerate()
                .rev()
                .for_each(|(request, completion)| finished(request, completion));
            Ok(completions)
        }
    }

    /// Pays the number that the response is, and fails on 4.
    #[derive(Debug)]
    struct Value;

    impl RewardVerifier for Value {
        fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
            match sample.text.parse() {
                Ok(4.0) => Err(VerifyError::new("down for maintenance")),
                Ok(reward) => Ok(Verdict::graded(reward, Some(sample.prompt.id.clone()), "value")),
                Err(error) => Err(VerifyError::new("no number").with_source(error)),
            }
        }
    }

    fn groups(max_error_share: f64) -> Result<Vec<Group>, TrainerError> {
        let settings = GraderSettings { max_error_share, ..GraderSettings::default() };
        let grader = Grader::new(Arc::new(Value), settings)?;
        let prompts = [Prompt::new("a", "5", "5"), Prompt::new("b", "6", "6")];
        Sampler {
            engine: &mut Backwards,
            policy: PolicyRef { model: &(), version: 0 },
            sampling: &SamplingSpec::default(),
            tokenizer: &Digits,
            grader: &grader,
            max_prompt_tokens: None,
            guided: false,
            timings: &mut Timings::default(),
        }
        .groups(&prompts.iter().collect::<Vec<_>>(), 3, |prompt, sample| 3 * prompt + sample)
    }

    #[test]
    fn a_completion_keeps_its_verdict_in_whatever_order_completions_end() {
        let groups = groups(0.5).unwrap();
        assert_eq!(groups.len(), 2);
        for (group, first) in groups.iter().zip([0u32, 3]) {
            for (row, token) in group.rows.iter().zip(first..) {
                assert_eq!(row.completion.response_tokens(), [token]);
                match (&row.verdict, token) {
                    (Verdict::Unscored(UnscoredReason::VerifierError(_)), 4)
                    | (Verdict::Unscored(UnscoredReason::Aborted), 5) => {}
                    (Verdict::Scored(score), _) => {
                        assert_eq!(score.reward, f64::from(token));
                        assert_eq!(score.extracted.as_ref(), Some(&group.prompt.id));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn faults_of_the_verifier_above_their_share_end_the_run_with_its_message() {
        let error = groups(0.1).unwrap_err().to_string(); // one of six failed
        assert!(error.contains("1 of 6") && error.contains("down for maintenance"), "{error}");
    }

    #[test]
    fn unscored_rows_enter_no_reward_mean() {
        let rows = [(4, 1.0), (4, 0.0)]
            .map(|(token, reward)| (completion(token, FinishReason::Stop), Verdict::scored(reward)));
        let (mut completions, mut verdicts): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        completions.push(completion(4, FinishReason::Length));
        verdicts.push(Verdict::Unscored(UnscoredReason::Timeout));
        let group = Group::new(Prompt::new("p", "5", "5"), completions, verdicts).unwrap();
        let mut metrics = Metrics::default();
        record(&[group], &mut metrics);
        assert_eq!(metrics.get("reward/mean"), Some(0.5));
        assert_eq!(metrics.get("frac_unscored"), Some(1.0 / 3.0));
        assert_eq!(metrics.get("completions/clipped_ratio"), Some(1.0 / 3.0));
        assert_eq!(metrics.get("reward_std"), Some(0.5f64.sqrt()));
        assert_eq!(metrics.get("frac_reward_zero_std"), Some(0.0));
    }
}

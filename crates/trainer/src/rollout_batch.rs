//! From problems to verified groups.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use firebrick_core::{
    Completion, FinishReason, GenerationRequest, Group, Message, Metrics, PolicyRef, Prompt, RewardVerifier,
    RolloutEngine, Sample, SamplingSpec, TokenId, Tokenizer, UnscoredReason, Verdict,
};

use crate::{Timings, TrainerError};

/// What turns problems into verified groups.
pub(crate) struct Sampler<'a, M> {
    pub(crate) engine: &'a mut dyn RolloutEngine<M>,
    pub(crate) policy: PolicyRef<'a, M>,
    pub(crate) sampling: &'a SamplingSpec,
    pub(crate) tokenizer: &'a dyn Tokenizer,
    pub(crate) verifier: &'a dyn RewardVerifier,
    /// Prompts are cut to their last tokens where they have more.
    pub(crate) max_prompt_tokens: Option<usize>,
    /// Whether the policy is shown each prompt's guidance.
    pub(crate) guided: bool,
    /// Where the seconds are counted.
    pub(crate) timings: &'a mut Timings,
}

impl<M> Sampler<'_, M> {
    /// Samples `samples` completions of each prompt and verifies them.
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
        let clock = Instant::now();
        let completions = {
            let _span = tracing::info_span!("rollout", completions = requests.len()).entered();
            self.engine.generate(self.policy, &requests, self.sampling)?
        };
        if completions.len() != requests.len() {
            return Err(TrainerError::EngineMismatch { asked: requests.len(), returned: completions.len() });
        }
        self.timings.generate += clock.elapsed().as_secs_f64();
        let clock = Instant::now();
        let _span = tracing::info_span!("verify").entered();
        let mut completions = completions.into_iter();
        let groups = prompts
            .iter()
            .map(|prompt| {
                let rows: Vec<Completion> = completions.by_ref().take(samples).collect();
                let verdicts =
                    rows.iter().map(|row| verify(self.verifier, self.tokenizer, prompt, row)).collect();
                Ok(Group::new((*prompt).clone(), rows, verdicts)?)
            })
            .collect();
        self.timings.verify += clock.elapsed().as_secs_f64();
        groups
    }
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

/// The verdict on one completion. A verifier that fails or panics leaves it unscored; it is never a zero.
fn verify(
    verifier: &dyn RewardVerifier,
    tokenizer: &dyn Tokenizer,
    prompt: &Prompt,
    completion: &Completion,
) -> Verdict {
    let finish = completion.finish_reason().unwrap_or(FinishReason::Aborted);
    if finish == FinishReason::Aborted {
        return Verdict::Unscored(UnscoredReason::Aborted);
    }
    let text = tokenizer.decode(completion.response_tokens());
    let sample = Sample::new(prompt, &text, completion.response_tokens(), finish);
    match catch_unwind(AssertUnwindSafe(|| verifier.verify(&sample))) {
        Ok(Ok(Verdict::Scored(score))) if !score.reward.is_finite() => Verdict::Unscored(
            UnscoredReason::VerifierError(format!("the reward is {}, which is not finite", score.reward)),
        ),
        Ok(Ok(verdict)) => verdict,
        Ok(Err(error)) => Verdict::Unscored(UnscoredReason::VerifierError(error.to_string())),
        Err(_) => Verdict::Unscored(UnscoredReason::VerifierError("the verifier panicked".into())),
    }
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
    use firebrick_core::{Message, TokenizerError, VerifyError};

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

    #[derive(Debug)]
    struct Moody;

    impl RewardVerifier for Moody {
        fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
            match sample.text {
                "1" => panic!("moody"),
                "2" => Err(VerifyError::new("down for maintenance")),
                "3" => Ok(Verdict::scored(f64::NAN)),
                _ => Ok(Verdict::scored(1.0)),
            }
        }
    }

    fn completion(token: TokenId, reason: FinishReason) -> Completion {
        let mut completion = Completion::start(&[5], SamplingSpec::default(), 0);
        completion.push_policy(token, -0.1, 0);
        completion.finish(reason);
        completion
    }

    #[test]
    fn a_verifier_that_panics_fails_or_returns_nan_never_scores_zero() {
        let prompt = Prompt::new("p", "5", "5");
        for token in [1, 2, 3] {
            let verdict = verify(&Moody, &Digits, &prompt, &completion(token, FinishReason::Stop));
            assert!(
                matches!(verdict, Verdict::Unscored(UnscoredReason::VerifierError(_))),
                "{token}: {verdict:?}"
            );
        }
        let verdict = verify(&Moody, &Digits, &prompt, &completion(4, FinishReason::Aborted));
        assert_eq!(verdict, Verdict::Unscored(UnscoredReason::Aborted));
        assert_eq!(
            verify(&Moody, &Digits, &prompt, &completion(4, FinishReason::Length)).reward(),
            Some(1.0)
        );
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

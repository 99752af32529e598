//! The first half of a step: rollout, verdicts, advantages, log-probs under the fixed policies.

use burn::{module::AutodiffModule, tensor::backend::AutodiffBackend};
use firebrick_core::{
    Advantage, Anchor, CausalLm, Group, LogProbs, Metrics, PolicyRef, Prompt, ResponseContext, RewardBatch,
    RewardRow, ScoreOptions, SeedStream,
};

use super::Trainer;
use crate::{
    Sequence, Timings, TrainerError,
    optimizer_batch::TrainRow,
    parity,
    rollout_batch::{Sampler, record},
    sequence::log_probs,
};

impl<B: AutodiffBackend, M> Trainer<B, M>
where
    M: CausalLm<B> + AutodiffModule<B>,
    M::InnerModule: CausalLm<B::InnerBackend>,
{
    /// Samples and verifies a batch of groups; with dynamic sampling, until enough of them have variance.
    pub(super) fn rollout(
        &mut self,
        prompts: &[Prompt],
        metrics: &mut Metrics,
        timings: &mut Timings,
    ) -> Result<Vec<Group>, TrainerError> {
        let settings = &self.plan.settings;
        let wanted = settings.prompts_per_step;
        let dynamic = settings.dynamic_sampling;
        let mut kept = Vec::new();
        let (mut round, mut sampled) = (0, 0);
        loop {
            let groups = self.sample(prompts, wanted - kept.len(), sampled, timings)?;
            record(&groups, metrics);
            sampled += groups.len() as u64;
            round += 1;
            let Some(dynamic) = dynamic else { return Ok(groups) };
            kept.extend(groups.into_iter().filter(|group| !group.is_constant()));
            if kept.len() < wanted && round < dynamic.max_rounds {
                continue;
            }
            metrics.add_sum("dynamic_sampling/rounds", round as f64);
            metrics.add_sum("dynamic_sampling/dropped_groups", (sampled - kept.len() as u64) as f64);
            let found = kept.len();
            return dynamic.when_exhausted.complete(kept, wanted).ok_or(TrainerError::DynamicSampling {
                found,
                wanted,
                rounds: round,
            });
        }
    }

    /// Samples and verifies `count` groups; `offset` groups were sampled for this step before.
    fn sample(
        &mut self,
        prompts: &[Prompt],
        count: usize,
        offset: u64,
        timings: &mut Timings,
    ) -> Result<Vec<Group>, TrainerError> {
        let settings = &self.plan.settings;
        let picked = self.cursor.next(prompts.len(), count);
        let chosen: Vec<&Prompt> = picked.iter().map(|index| &prompts[*index]).collect();
        let (seed, step, samples) = (settings.seed, self.step as u64, settings.group_size);
        Sampler {
            engine: self.engine.as_mut(),
            policy: PolicyRef { model: &self.learner.model().valid(), version: self.version },
            sampling: &self.sampling,
            tokenizer: self.tokenizer.as_ref(),
            verifier: self.plan.control.as_ref().unwrap_or(&self.plan.verifier).as_ref(),
            max_prompt_tokens: self.max_prompt_tokens,
            timings,
        }
        .groups(&chosen, samples, |prompt, sample| {
            seed.seed(SeedStream::Sampling, &[step, offset + prompt, sample])
        })
    }

    /// Advantages and log-probs under the fixed policies. Unscored rows are left out of the loss and its denominator.
    pub(super) fn rows(
        &mut self,
        groups: &[Group],
        metrics: &mut Metrics,
    ) -> Result<(Vec<Vec<TrainRow>>, Vec<Advantage>), TrainerError> {
        let _span = tracing::info_span!("advantage").entered();
        let all: Vec<_> = groups
            .iter()
            .enumerate()
            .flat_map(|(group, members)| members.rows.iter().map(move |row| (group, row)))
            .collect();
        let rewards = all
            .iter()
            .map(|(group, row)| RewardRow::new(*group, row.verdict.reward(), row.completion.policy_len()))
            .collect();
        let advantages = self.plan.advantage.advantages(&RewardBatch { rows: rewards })?.rows;

        let sequences: Vec<Sequence> = all.iter().map(|(_, row)| Sequence::from(&row.completion)).collect();
        let model = self.learner.model().valid();
        let mut proximal = None;
        if self.plan.anchor == Anchor::Proximal || self.version == 0 {
            let recomputed = self.score(&model, &sequences);
            if self.version == 0 {
                let parity = parity::check(groups, &recomputed, self.plan.settings.parity_tolerance)?;
                metrics.add_mean("mismatch/abs_log_prob_mean", parity.mean, 1.0);
                metrics.add_max("mismatch/abs_log_prob_max", parity.max);
                metrics.add_mean("mismatch_kl/mean", parity.kl, 1.0);
            }
            proximal = (self.plan.anchor == Anchor::Proximal).then_some(recomputed);
        }
        let mut reference = None;
        if self.plan.requirements.reference_log_probs {
            let policy = self.reference.take().unwrap_or(model);
            reference = Some(self.score(&policy, &sequences));
            self.reference = Some(policy);
        }

        let max_len = self.sampling.max_new_tokens;
        let mut rows: Vec<Vec<TrainRow>> = groups.iter().map(|_| Vec::new()).collect();
        for (index, (((group, row), sequence), advantage)) in
            all.into_iter().zip(sequences).zip(&advantages).enumerate()
        {
            let len = row.completion.policy_len();
            let per_token = match advantage {
                Advantage::Excluded => continue,
                Advantage::Response(value) => vec![*value; len],
                Advantage::Tokens(values) => values.clone(),
            };
            let mut context = ResponseContext::new(row.completion.behaviour_log_probs(), per_token)?
                .with_group(group)
                .with_max_response_len(max_len)
                .with_seed(
                    self.plan.settings.seed.seed(SeedStream::Objective, &[self.step as u64, index as u64]),
                );
            if let Some(values) = &proximal {
                context = context.anchored_at_proximal(LogProbs::new(values[index].clone()))?;
            }
            if let Some(values) = &reference {
                context = context.with_reference(LogProbs::new(values[index].clone()))?;
            }
            let name = format!("sample {index} (prompt `{}`)", groups[group].prompt.id);
            rows[group].push(TrainRow { name, sequence, context });
        }
        Ok((rows, advantages))
    }

    fn score(&self, model: &M::InnerModule, sequences: &[Sequence]) -> Vec<Vec<f64>> {
        let options = ScoreOptions { temperature: self.sampling.temperature, ..ScoreOptions::default() };
        let sequences: Vec<&Sequence> = sequences.iter().collect();
        log_probs(model, &sequences, options, self.plan.settings.micro_batch_limit(), &self.device)
    }
}

//! The first half of a step: rollout, verdicts, advantages, log-probs under the fixed policies.

use burn::{module::AutodiffModule, tensor::backend::AutodiffBackend};
use firebrick_core::{
    Advantage, Advantages, Anchor, CausalLm, Group, GroupRow, LogProbs, Metrics, PolicyRef, Prompt,
    ResponseContext, RewardBatch, RewardRow, SamplingSpec, ScoreOptions, SeedStream, TopK,
};
use firebrick_objectives::off_policy_metrics;

use super::Trainer;
use crate::{
    Sequence, Timings, TrainerError,
    critic::{Critic, CriticTargets},
    distribution,
    optimizer_batch::TrainRow,
    parity,
    rollout_batch::{Sampler, encode, record},
    sequence::log_probs,
};

/// What the fixed policies say of the rows of a rollout batch, as far as the plan requires it; one entry per row.
#[derive(Default)]
struct Fixed {
    proximal: Option<Vec<Vec<f64>>>,
    reference: Option<Vec<Vec<f64>>>,
    values: Option<Vec<Vec<f64>>>,
    top_k: Option<Vec<TopK>>,
    collisions: Option<Vec<Vec<f64>>>,
}

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
        let (model, sampling) = (self.learner.model().valid(), self.sampling.clone());
        self.sampler(&model, &sampling, timings).groups(&chosen, samples, |prompt, sample| {
            seed.seed(SeedStream::Sampling, &[step, offset + prompt, sample])
        })
    }

    /// What samples and verifies for training.
    fn sampler<'a>(
        &'a mut self,
        model: &'a M::InnerModule,
        sampling: &'a SamplingSpec,
        timings: &'a mut Timings,
    ) -> Sampler<'a, M::InnerModule> {
        Sampler {
            engine: self.engine.as_mut(),
            policy: PolicyRef { model, version: self.version },
            sampling,
            tokenizer: self.tokenizer.as_ref(),
            grader: self.control.as_ref().unwrap_or(&self.grader),
            max_prompt_tokens: self.max_prompt_tokens,
            guided: self.plan.guided_prompts,
            timings,
        }
    }

    /// Advantages and log-probs under the fixed policies. Unscored rows are left out of the loss and its denominator.
    pub(super) fn rows(
        &mut self,
        groups: &[Group],
        metrics: &mut Metrics,
    ) -> Result<(Vec<Vec<TrainRow>>, Vec<Advantage>), TrainerError> {
        let _span = tracing::info_span!("advantage").entered();
        let all: Vec<(usize, &GroupRow)> = groups
            .iter()
            .enumerate()
            .flat_map(|(group, members)| members.rows.iter().map(move |row| (group, row)))
            .collect();
        let trained = self.trained_sequences(groups)?;
        let fixed = self.fixed_policies(groups, &all, &trained, metrics)?;
        let greedy = self.greedy_rewards(groups)?;
        let rewards = self.reward_batch(groups, &all, &fixed, &greedy, metrics);
        let Advantages { rows: advantages, returns } = self.plan.advantage.advantages(&rewards)?;

        let max_len = self.sampling.max_new_tokens;
        let mut rows: Vec<Vec<TrainRow>> = groups.iter().map(|_| Vec::new()).collect();
        for (index, ((group, row), sequence)) in all.into_iter().zip(trained).enumerate() {
            let len = row.completion.policy_len();
            let per_token = match &advantages[index] {
                Advantage::Excluded => continue,
                Advantage::Response(value) => vec![*value; len],
                Advantage::Tokens(values) => values.clone(),
            };
            let seed = self.plan.settings.seed.seed(SeedStream::Objective, &[self.step as u64, index as u64]);
            let gaps =
                row.completion.policy_versions().iter().map(|version| self.version - version).collect();
            let mut context = ResponseContext::new(row.completion.behaviour_log_probs(), per_token)?
                .with_version_gaps(gaps)?
                .with_index(index)
                .with_group(group)
                .with_max_response_len(max_len)
                .with_seed(seed);
            if let Some(values) = &fixed.proximal {
                let proximal = LogProbs::new(values[index].clone());
                context = match self.plan.anchor {
                    Anchor::Proximal => context.anchored_at_proximal(proximal)?,
                    Anchor::Behaviour => context.with_proximal(proximal)?,
                };
            }
            if let Some(values) = &fixed.reference {
                context = context.with_reference(LogProbs::new(values[index].clone()))?;
            }
            if let Some(top_k) = &fixed.top_k {
                context = context.with_top_k(top_k[index].clone())?;
            }
            let critic = fixed.values.as_ref().map(|values| CriticTargets {
                values: values[index].clone(),
                returns: returns[index].clone(),
            });
            let name = format!("sample {index} (prompt `{}`)", groups[group].prompt.id);
            rows[group].push(TrainRow { name, sequence, context, critic });
        }
        if self.plan.requirements.proximal_log_probs {
            metrics.merge(&off_policy_metrics(rows.iter().flatten().map(|row| &row.context)));
        }
        Ok((rows, advantages))
    }

    /// The token sequences that the policy is trained on: as they were sampled, or after the prompt without its guidance.
    fn trained_sequences(&self, groups: &[Group]) -> Result<Vec<Sequence>, TrainerError> {
        let mut sequences = Vec::new();
        for group in groups {
            let plain = (self.plan.guided_prompts && group.prompt.guidance.is_some())
                .then(|| {
                    encode(
                        self.tokenizer.as_ref(),
                        &group.prompt,
                        &group.prompt.messages,
                        self.max_prompt_tokens,
                    )
                })
                .transpose()?;
            sequences.extend(group.rows.iter().map(|row| match &plain {
                Some(prompt) => Sequence::after_prompt(prompt, &row.completion),
                None => Sequence::from(&row.completion),
            }));
        }
        Ok(sequences)
    }

    fn fixed_policies(
        &mut self,
        groups: &[Group],
        all: &[(usize, &GroupRow)],
        trained: &[Sequence],
        metrics: &mut Metrics,
    ) -> Result<Fixed, TrainerError> {
        let requirements = self.plan.requirements;
        let model = self.learner.model().valid();
        let sampled: Vec<Sequence> = all.iter().map(|(_, row)| Sequence::from(&row.completion)).collect();
        let sampled: Vec<&Sequence> = sampled.iter().collect();
        let trained: Vec<&Sequence> = trained.iter().collect();
        let limit = self.plan.settings.micro_batch_limit();
        let mut fixed = Fixed::default();
        if requirements.proximal_log_probs || self.version == 0 {
            let recomputed = self.score(&model, &sampled);
            if self.version == 0 {
                let parity = parity::check(groups, &recomputed, self.plan.settings.parity_tolerance)?;
                metrics.add_mean("mismatch/abs_log_prob_mean", parity.mean, 1.0);
                metrics.add_max("mismatch/abs_log_prob_max", parity.max);
                metrics.add_mean("mismatch_kl/mean", parity.kl, 1.0);
            }
            fixed.proximal = requirements.proximal_log_probs.then_some(recomputed);
        }
        if requirements.top_k > 0 {
            let temperature = self.sampling.temperature;
            fixed.top_k = Some(distribution::top_k(
                &model,
                &sampled,
                requirements.top_k,
                temperature,
                limit,
                &self.device,
            ));
        }
        if requirements.collision_probabilities {
            let temperature = self.sampling.temperature;
            fixed.collisions = Some(distribution::collision_probabilities(
                &model,
                &sampled,
                temperature,
                limit,
                &self.device,
            ));
        }
        if requirements.reference_log_probs {
            let policy = self.reference.take().or_else(|| model.base()).unwrap_or(model);
            fixed.reference = Some(self.score(&policy, &trained));
            self.reference = Some(policy);
        }
        if requirements.values {
            let settings = self.plan.settings.critic_optimizer();
            let critic =
                self.critic.get_or_insert_with(|| Critic::new(self.learner.model(), &settings, &self.device));
            fixed.values = Some(critic.values(&trained, limit, &self.device));
        }
        Ok(fixed)
    }

    /// Rewards with what advantage estimators may require beside them.
    fn reward_batch(
        &self,
        groups: &[Group],
        all: &[(usize, &GroupRow)],
        fixed: &Fixed,
        greedy: &[Option<f64>],
        metrics: &mut Metrics,
    ) -> RewardBatch {
        let row = |(index, (group, row)): (usize, &(usize, &GroupRow))| {
            let mut reward = RewardRow::new(*group, row.verdict.reward(), row.completion.policy_len())
                .with_prompt(groups[*group].prompt.id.as_str());
            if let (Some(kl), Some(reference)) = (&self.plan.reward_kl, &fixed.reference) {
                let behaviour = row.completion.behaviour_log_probs();
                let anchor = match (&fixed.proximal, self.plan.anchor) {
                    (Some(proximal), Anchor::Proximal) => &proximal[index],
                    _ => behaviour.values(),
                };
                let gaps: Vec<f64> = anchor.iter().zip(&reference[index]).map(|(a, r)| a - r).collect();
                let estimates = gaps.iter().map(|gap| kl.estimator.value(*gap)).sum();
                metrics.add_mean("kl", estimates, gaps.len() as f64);
                reward = reward.with_penalties(gaps.iter().map(|gap| kl.penalty(*gap)).collect());
            }
            if let Some(collisions) = &fixed.collisions {
                let behaviour = row.completion.behaviour_log_probs().values().to_vec();
                reward = reward.with_collision_probabilities(behaviour, collisions[index].clone());
            }
            if let Some(values) = &fixed.values {
                reward = reward.with_values(values[index].clone());
            }
            reward.with_greedy_reward(greedy.get(*group).copied().flatten())
        };
        RewardBatch { rows: all.iter().enumerate().map(row).collect() }
    }

    /// Reward of one greedy completion of each group's prompt, when the advantages require it.
    fn greedy_rewards(&mut self, groups: &[Group]) -> Result<Vec<Option<f64>>, TrainerError> {
        if !self.plan.requirements.greedy_baseline {
            return Ok(Vec::new());
        }
        let sampling = SamplingSpec { temperature: 0.0, ..self.sampling.clone() };
        let prompts: Vec<&Prompt> = groups.iter().map(|group| &group.prompt).collect();
        let seed = self.plan.settings.seed;
        let model = self.learner.model().valid();
        let greedy = self.sampler(&model, &sampling, &mut Timings::default()).groups(
            &prompts,
            1,
            |prompt, sample| seed.seed(SeedStream::Sampling, &[prompt, sample]),
        )?;
        Ok(greedy.iter().map(|group| group.rows[0].verdict.reward()).collect())
    }

    fn score(&self, model: &M::InnerModule, sequences: &[&Sequence]) -> Vec<Vec<f64>> {
        let options = ScoreOptions { temperature: self.sampling.temperature, ..ScoreOptions::default() };
        log_probs(model, sequences, options, self.plan.settings.micro_batch_limit(), &self.device)
    }
}

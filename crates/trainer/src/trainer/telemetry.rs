//! What a step tells: progress, log, and the files of the run directory.

use std::collections::BTreeMap;

use burn::{module::AutodiffModule, tensor::backend::AutodiffBackend};
use firebrick_core::{Advantage, CausalLm, Group, GroupRow, Tokenizer};
use indicatif::{ProgressBar, ProgressStyle};

use super::Trainer;
use crate::{StepReport, TokenTrace, TrainerError, optimizer_batch::TrainRow};

/// A run's progress, on a bar (when the output is a terminal) and in the log.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(done: usize, steps: usize) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} steps, {eta} left  {msg}");
        let bar = ProgressBar::new(steps as u64)
            .with_position(done as u64)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }

    pub(crate) fn announce(&self, report: &StepReport) {
        let metric = |name| report.metrics.get(name).unwrap_or(f64::NAN);
        let reward = metric("reward/mean");
        self.0.set_message(format!("reward {reward:.3}"));
        self.0.inc(1);
        tracing::info!(
            step = report.step,
            reward,
            entropy = metric("entropy"),
            length = metric("completions/mean_length"),
            clipped = metric("clip_ratio/region_mean"),
            grad_norm = metric("grad_norm"),
            seconds = report.timings.total(),
        );
    }

    pub(crate) fn finish(self) {
        self.0.finish_and_clear();
    }
}

/// The rows of a step whose tokens are traced.
pub(super) struct Traced<'a> {
    pub(super) rows: &'a [Vec<TrainRow>],
    /// Current log-probs as the objective saw them last, by index.
    pub(super) current: &'a BTreeMap<usize, Vec<f64>>,
}

impl Traced<'_> {
    /// Every policy token of a response with its log-probs; `None` for one that is not traced or not trained on.
    fn tokens(&self, index: usize, row: &GroupRow, tokenizer: &dyn Tokenizer) -> Option<TokenTrace> {
        let current = self.current.get(&index)?;
        let context = &self.rows.iter().flatten().find(|row| row.context.index() == index)?.context;
        let ids = row.completion.policy_positions().map(|place| row.completion.tokens()[place]);
        Some(TokenTrace {
            text: ids.map(|id| tokenizer.decode(&[id])).collect(),
            behaviour: context.behaviour().to_vec(),
            proximal: context.proximal().map(<[f64]>::to_vec),
            reference: context.reference().map(<[f64]>::to_vec),
            current: current.clone(),
            advantages: context.advantages().to_vec(),
            max_response_len: context.max_response_len(),
        })
    }
}

impl<B: AutodiffBackend, M> Trainer<B, M>
where
    M: CausalLm<B> + AutodiffModule<B>,
    M::InnerModule: CausalLm<B::InnerBackend>,
{
    pub(super) fn write(
        &mut self,
        report: &StepReport,
        groups: &[Group],
        advantages: &[Advantage],
        traced: &Traced<'_>,
    ) -> Result<(), TrainerError> {
        let Some(run) = &mut self.run_directory else { return Ok(()) };
        run.log(report.step, &report.metrics, &report.positions)?;
        let tokens: usize = groups
            .iter()
            .flat_map(|group| &group.rows)
            .map(|row| row.completion.response_tokens().len())
            .sum();
        run.append(
            "timings.jsonl",
            &serde_json::json!({
                "step": report.step,
                "seconds": report.timings,
                "total_seconds": report.timings.total(),
                "generated_tokens_per_second": tokens as f64 / report.timings.generate,
            }),
        )?;
        let rows = groups.iter().flat_map(|group| group.rows.iter().map(move |row| (&group.prompt, row)));
        let rows = rows.zip(advantages).enumerate().take(self.plan.settings.traces_per_step);
        for (index, ((prompt, row), advantage)) in rows {
            let advantage = match advantage {
                Advantage::Excluded => None,
                Advantage::Response(value) => Some(*value),
                Advantage::Tokens(values) => values.first().copied(),
            };
            run.append(
                "traces.jsonl",
                &serde_json::json!({
                    "step": report.step,
                    "id": prompt.id,
                    "answer": prompt.answer,
                    "response": self.tokenizer.decode(row.completion.response_tokens()),
                    "verdict": row.verdict,
                    "advantage": advantage,
                    "tokens": row.completion.policy_len(),
                    "finish_reason": row.completion.finish_reason(),
                    "token_trace": traced.tokens(index, row, self.tokenizer.as_ref()),
                }),
            )?;
        }
        Ok(())
    }
}

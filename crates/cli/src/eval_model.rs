//! Evaluation of a model folder on a data file, which can be ended and goes on where it was.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail, ensure};
use burn::tensor::backend::{AutodiffBackend, Backend};
use firebrick_core::{
    GenerationRequest, PolicyRef, Prompt, RewardVerifier, RolloutEngine, RootSeed, SamplingSpec, SeedStream,
    Tokenizer, Verdict,
};
use firebrick_models::{FusedOps, ModelFolder};
use firebrick_reward::{Grader, GraderSettings, OwnedSample};
use firebrick_rollout::EmbeddedEngine;
use firebrick_trainer::{accuracy, read_prompts};
use serde::{Deserialize, Serialize};

use crate::{
    backend::{DeviceTask, on_device},
    device::DeviceChoice,
    model_folder::tokenizer_in,
};

const SETTINGS: &str = "settings.json";
const COMPLETIONS: &str = "completions.jsonl";
const REPORT: &str = "report.json";

/// What an evaluation depends on; another one may not go on with its completions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct EvalSettings {
    pub(crate) model: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) verifier: String,
    pub(crate) k: usize,
    pub(crate) success_reward: f64,
    pub(crate) temperature: f64,
    pub(crate) top_p: f64,
    pub(crate) max_new_tokens: usize,
    pub(crate) seed: u64,
}

/// A completion with its verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Row {
    id: String,
    sample: usize,
    completion: String,
    tokens: usize,
    truncated: bool,
    /// `None` without a verdict.
    reward: Option<f64>,
    extracted: Option<String>,
}

/// An evaluation under way.
pub(crate) struct ModelEvaluation<'a> {
    pub(crate) settings: EvalSettings,
    pub(crate) verifier: Arc<dyn RewardVerifier>,
    pub(crate) out: &'a Path,
    pub(crate) overwrite: bool,
    /// Completions that are generated at once.
    pub(crate) rows: usize,
    pub(crate) json: bool,
}

impl ModelEvaluation<'_> {
    pub(crate) fn run(self, device: DeviceChoice) -> anyhow::Result<()> {
        ensure!(self.settings.k >= 1, "--k = 0: allowed is at least 1");
        ensure!(self.rows >= 1, "--rows = 0: allowed is at least 1");
        let prompts = read_prompts(&self.settings.data)?;
        let done = self.prepare()?;
        on_device(device, Task { evaluation: &self, prompts: &prompts, done })?;
        self.report(&prompts)
    }

    /// Opens the output folder and returns how many completions of each problem it holds already.
    fn prepare(&self) -> anyhow::Result<BTreeMap<String, usize>> {
        let path = self.out.join(SETTINGS);
        if self.overwrite && self.out.exists() {
            fs::remove_dir_all(self.out)
                .with_context(|| format!("{} cannot be removed", self.out.display()))?;
        }
        fs::create_dir_all(self.out).with_context(|| format!("{} cannot be made", self.out.display()))?;
        if let Ok(text) = fs::read_to_string(&path) {
            let before: serde_json::Value =
                serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))?;
            let now = serde_json::to_value(&self.settings)?;
            let keys = now.as_object().into_iter().flat_map(|keys| keys.keys());
            let differ: Vec<String> = keys
                .filter(|key| before[key.as_str()] != now[key.as_str()])
                .map(|key| format!("{key} was {} and is {}", before[key], now[key]))
                .collect();
            if !differ.is_empty() {
                bail!(
                    "{} holds another evaluation: {}; give another --out, or --overwrite",
                    self.out.display(),
                    differ.join("; ")
                );
            }
        } else {
            fs::write(&path, serde_json::to_string_pretty(&self.settings)? + "\n")?;
        }
        let mut done = BTreeMap::new();
        for row in self.completions()? {
            *done.entry(row.id).or_default() += 1;
        }
        Ok(done)
    }

    /// The completions so far. A line that was being written when the process ended is cut off.
    fn completions(&self) -> anyhow::Result<Vec<Row>> {
        let path = self.out.join(COMPLETIONS);
        let Ok(text) = fs::read_to_string(&path) else { return Ok(Vec::new()) };
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        if whole < text.len() {
            OpenOptions::new().write(true).open(&path)?.set_len(whole as u64)?;
        }
        let row = |(index, line)| {
            serde_json::from_str(line).with_context(|| format!("{}, line {}", path.display(), index + 1))
        };
        text[..whole].lines().enumerate().map(row).collect()
    }

    #[expect(clippy::print_stdout, reason = "the command talks to its user")]
    fn report(&self, prompts: &[Prompt]) -> anyhow::Result<()> {
        let rows = self.completions()?;
        let outcome = |prompt: &Prompt| {
            let rewards = || rows.iter().filter(|row| row.id == prompt.id).filter_map(|row| row.reward);
            (rewards().count(), rewards().filter(|reward| *reward >= self.settings.success_reward).count())
        };
        let outcomes: Vec<(usize, usize)> = prompts.iter().map(outcome).collect();
        let (avg_at_k, pass_at) =
            accuracy(&outcomes, self.settings.k).context("no completion has a verdict")?;
        let share = |count: usize| count as f64 / rows.len() as f64;
        let mean_length = share(rows.iter().map(|row| row.tokens).sum());
        let truncated = share(rows.iter().filter(|row| row.truncated).count());
        let unscored = share(rows.iter().filter(|row| row.reward.is_none()).count());
        let report = serde_json::json!({
            "problems": prompts.len(), "k": self.settings.k, "avg_at_k": avg_at_k, "pass_at": pass_at,
            "mean_length": mean_length, "truncated": truncated, "unscored": unscored,
        });
        fs::write(self.out.join(REPORT), serde_json::to_string_pretty(&report)? + "\n")?;
        if self.json {
            println!("{report}");
            return Ok(());
        }
        println!("{} problems, {} completions each", prompts.len(), self.settings.k);
        println!("avg@{}: {avg_at_k}", self.settings.k);
        for (n, estimate) in &pass_at {
            println!("pass@{n}: {estimate}");
        }
        println!(
            "mean length {mean_length:.1} tokens, {:.1} % truncated, {:.1} % without a verdict",
            truncated * 100.0,
            unscored * 100.0
        );
        println!("completions: {}", self.out.join(COMPLETIONS).display());
        Ok(())
    }
}

struct Task<'a> {
    evaluation: &'a ModelEvaluation<'a>,
    prompts: &'a [Prompt],
    done: BTreeMap<String, usize>,
}

impl DeviceTask for Task<'_> {
    type Output = ();

    fn run<B>(self, device: B::Device) -> anyhow::Result<()>
    where
        B: AutodiffBackend + FusedOps,
        B::InnerBackend: FusedOps,
    {
        self.complete::<B::InnerBackend>(device)
    }
}

impl Task<'_> {
    /// Generates what is missing, some problems at a time, and writes each verdict down.
    fn complete<B: Backend + FusedOps>(&self, device: B::Device) -> anyhow::Result<()> {
        let ModelEvaluation { settings, verifier, out, rows, .. } = self.evaluation;
        let missing: Vec<(usize, &Prompt)> = self
            .prompts
            .iter()
            .enumerate()
            .filter(|(_, prompt)| self.done.get(&prompt.id).copied().unwrap_or(0) < settings.k)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let tokenizer = tokenizer_in(&settings.model)?;
        let encoded = self.encoded(tokenizer.as_ref(), &missing)?;
        let longest = encoded.iter().map(|tokens| tokens.len()).max().unwrap_or(0);
        let folder =
            ModelFolder::open(&settings.model)?.with_max_positions(longest + settings.max_new_tokens);
        let limit = folder.config().max_position_embeddings;
        if let Some(index) = encoded
            .iter()
            .position(|tokens| tokens.is_empty() || tokens.len() + settings.max_new_tokens > limit)
        {
            bail!(
                "problem `{}` has {} prompt tokens; it needs at least one and, with --max-new-tokens = {}, at most {} (positions of the model: {limit})",
                missing[index].1.id,
                encoded[index].len(),
                settings.max_new_tokens,
                limit.saturating_sub(settings.max_new_tokens)
            );
        }
        let model = folder.load::<B>(&device)?.merged();
        let sampling = SamplingSpec {
            temperature: settings.temperature,
            top_p: settings.top_p,
            max_new_tokens: settings.max_new_tokens,
            stop_tokens: tokenizer.stop_tokens().to_vec(),
            ..SamplingSpec::default()
        };
        let grader_settings = GraderSettings { max_error_share: 1.0, ..GraderSettings::default() };
        let grader = Grader::new(Arc::clone(verifier), grader_settings)?;
        let mut engine = EmbeddedEngine::new(device);
        let path = out.join(COMPLETIONS);
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        let at_once = (rows / settings.k).max(1);
        for (missing, encoded) in missing.chunks(at_once).zip(encoded.chunks(at_once)) {
            let mut asked = Vec::new();
            for ((index, prompt), tokens) in missing.iter().zip(encoded) {
                let first = self.done.get(&prompt.id).copied().unwrap_or(0);
                asked.extend((first..settings.k).map(|sample| {
                    let place = [*index as u64, sample as u64];
                    let seed = RootSeed(settings.seed).seed(SeedStream::Evaluation, &place);
                    (*prompt, sample, GenerationRequest { prompt: tokens.clone(), seed })
                }));
            }
            let requests: Vec<GenerationRequest> =
                asked.iter().map(|(_, _, request)| request.clone()).collect();
            let completions =
                engine.generate(PolicyRef { model: &model, version: 0 }, &requests, &sampling)?;
            let mut batch = grader.batch();
            let texts: Vec<String> =
                completions.iter().map(|completion| tokenizer.decode(completion.response_tokens())).collect();
            for ((prompt, _, _), (completion, text)) in asked.iter().zip(completions.iter().zip(&texts)) {
                let finish = completion.finish_reason().context("generation ends every completion")?;
                let prompt = Arc::new((*prompt).clone());
                batch.submit(OwnedSample::new(prompt, text.clone(), completion.response_tokens(), finish))?;
            }
            let verdicts = batch.collect()?;
            for (((prompt, sample, _), completion), (text, verdict)) in
                asked.iter().zip(&completions).zip(texts.into_iter().zip(verdicts))
            {
                let row = Row {
                    id: prompt.id.clone(),
                    sample: *sample,
                    completion: text,
                    tokens: completion.policy_len(),
                    truncated: completion.finish_reason() == Some(firebrick_core::FinishReason::Length),
                    reward: verdict.reward(),
                    extracted: match verdict {
                        Verdict::Scored(score) => score.extracted,
                        Verdict::Unscored(_) => None,
                    },
                };
                write_row(&mut file, &row)
                    .with_context(|| format!("{} cannot be written", path.display()))?;
            }
        }
        Ok(())
    }

    fn encoded(
        &self,
        tokenizer: &dyn Tokenizer,
        prompts: &[(usize, &Prompt)],
    ) -> anyhow::Result<Vec<Arc<[u32]>>> {
        let tokens = |(_, prompt): &(usize, &Prompt)| {
            let tokens = tokenizer.encode_chat(&prompt.messages);
            tokens.map(Arc::from).with_context(|| format!("problem `{}` cannot be tokenized", prompt.id))
        };
        prompts.iter().map(tokens).collect()
    }
}

fn write_row(file: &mut File, row: &Row) -> anyhow::Result<()> {
    let line = serde_json::to_string(row)? + "\n";
    Ok(file.write_all(line.as_bytes())?)
}

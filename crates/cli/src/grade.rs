//! `firebrick grade`: verdicts on completions from a file, and on the reference answers of a data set.

use std::{collections::HashMap, fmt::Write as _, path::PathBuf, sync::Arc};

use anyhow::{Context, ensure};
use clap::Args;
use firebrick_core::{RewardVerifier, Score, Verdict};
use firebrick_reward::{Grader, GraderSettings, OwnedSample, RewardConfig};
use firebrick_trainer::{CompletionRow, ConfigLayers, read_completions};
use serde::Serialize;

use crate::say::say;

/// Key of a row whose object changes settings of the verifier for this row.
const ROW_SETTINGS: &str = "config";

/// Arguments of `firebrick grade`.
#[derive(Debug, Args)]
pub(crate) struct GradeArguments {
    /// JSONL. A row has the reference in `gold` or `answer`, and the completion in `pred` or `completion`. Rows without a completion
    /// are problems: it is said which reference answers cannot be graded. `id` and `data_source` are used where they are given, and an
    /// object `config` changes settings of the verifier for its row.
    file: PathBuf,
    /// A verifier with its defaults (`math_verify`, `gsm8k`, `code`, ...), or a config (`.toml`) whose table `reward` is used.
    #[arg(long, default_value = "math_verify")]
    verifier: String,
    /// Replaces a setting of the verifier, such as `precision=3`.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A completion is correct when its reward is at least this.
    #[arg(long, default_value_t = 1.0)]
    success_reward: f64,
    /// Prints one JSON object a row: `id`, `correct`, `extracted`, `rule`, and `reason` where there is no verdict.
    #[arg(long)]
    json: bool,
}

/// What is printed of a row.
#[derive(Debug, Serialize)]
struct Graded {
    id: String,
    correct: bool,
    extracted: Option<String>,
    rule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

pub(crate) fn grade(arguments: &GradeArguments) -> anyhow::Result<()> {
    let rows = read_completions(&arguments.file)?;
    let (with, without): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.completion.is_some());
    let mut verifiers = Verifiers { arguments, built: HashMap::new() };
    let mut references = References::default();
    for row in with.iter().chain(&without) {
        references.check(row, verifiers.of(row)?.as_ref());
    }
    let mut text = String::new();
    let graded = verdicts(&with, &mut verifiers)?;
    for graded in &graded {
        if arguments.json {
            writeln!(text, "{}", serde_json::to_string(graded)?)?;
        } else {
            writeln!(text, "{}", line(graded))?;
        }
    }
    if arguments.json {
        for (id, reason) in references.unusable.iter().filter(|_| graded.is_empty()) {
            writeln!(text, "{}", serde_json::json!({ "id": id, "rule": "bad_reference", "reason": reason }))?;
        }
    } else {
        text += &summary(&graded, &references);
    }
    say(&text)
}

/// The verdicts on rows with a completion, in their order; several are worked on at once.
fn verdicts(rows: &[CompletionRow], verifiers: &mut Verifiers<'_>) -> anyhow::Result<Vec<Graded>> {
    let success = verifiers.arguments.success_reward;
    let mut graded = Vec::new();
    // rows that share a verifier come one after another in most files
    for rows in rows.chunk_by(|a, b| settings(a) == settings(b)) {
        // the share of faults is the reader's to judge here: every row says its own
        let settings = GraderSettings { max_error_share: 1.0, ..GraderSettings::default() };
        let grader = Grader::new(verifiers.of(&rows[0])?, settings)?;
        let mut batch = grader.batch();
        for row in rows {
            let text = row.completion.clone().unwrap_or_default();
            batch.submit(OwnedSample::of_text(Arc::new(row.prompt.clone()), text))?;
        }
        let verdicts = batch.collect()?;
        graded.extend(
            rows.iter().zip(verdicts).map(|(row, verdict)| Graded::of(&row.prompt.id, verdict, success)),
        );
    }
    Ok(graded)
}

impl Graded {
    fn of(id: &str, verdict: Verdict, success_reward: f64) -> Self {
        let (correct, extracted, rule, reason) = match verdict {
            Verdict::Scored(Score { reward, extracted, rule, .. }) => {
                (reward >= success_reward, extracted, rule, None)
            }
            Verdict::Unscored(reason) => (false, None, "unscored", Some(reason.to_string())),
        };
        Self { id: id.to_owned(), correct, extracted, rule: rule.to_owned(), reason }
    }
}

fn line(graded: &Graded) -> String {
    let Graded { id, correct, extracted, rule, reason } = graded;
    let verdict = if *correct { "correct" } else { "wrong" };
    match (reason, extracted) {
        (Some(reason), _) => format!("{id}  no verdict  {reason}"),
        (None, Some(extracted)) => format!("{id}  {verdict}  {rule}  {extracted:?}"),
        (None, None) => format!("{id}  {verdict}  {rule}"),
    }
}

fn summary(graded: &[Graded], references: &References) -> String {
    let mut text = String::new();
    let count = |is: fn(&Graded) -> bool| graded.iter().filter(|row| is(row)).count();
    if !graded.is_empty() {
        text += &format!(
            "{} completions: {} correct, {} wrong, {} of which state no answer, {} without a verdict\n",
            graded.len(),
            count(|row| row.correct),
            count(|row| !row.correct && row.reason.is_none()),
            count(|row| row.rule == "no_answer"),
            count(|row| row.reason.is_some()),
        );
    }
    text += &format!(
        "{} problems: {} with a reference answer that cannot be graded\n",
        references.seen,
        references.unusable.len()
    );
    for (id, reason) in &references.unusable {
        text += &format!("  {id}: {reason}\n");
    }
    text
}

/// The problems of a file, and those that cannot be graded.
#[derive(Debug, Default)]
struct References {
    last: Option<String>,
    seen: usize,
    unusable: Vec<(String, String)>,
}

impl References {
    /// Completions of one problem, which stand one after another, count once.
    fn check(&mut self, row: &CompletionRow, verifier: &dyn RewardVerifier) {
        if self.last.as_ref() == Some(&row.prompt.id) {
            return;
        }
        self.last = Some(row.prompt.id.clone());
        self.seen += 1;
        if let Err(reason) = verifier.check_reference(&row.prompt) {
            self.unusable.push((row.prompt.id.clone(), reason.to_string()));
        }
    }
}

/// The settings that a row gives.
fn settings(row: &CompletionRow) -> Option<&serde_json::Value> {
    row.prompt.extra.get(ROW_SETTINGS)
}

/// Verifiers by the settings of their rows.
struct Verifiers<'a> {
    arguments: &'a GradeArguments,
    built: HashMap<String, Arc<dyn RewardVerifier>>,
}

impl Verifiers<'_> {
    fn of(&mut self, row: &CompletionRow) -> anyhow::Result<Arc<dyn RewardVerifier>> {
        let settings = settings(row);
        let key = settings.map(ToString::to_string).unwrap_or_default();
        if let Some(verifier) = self.built.get(&key) {
            return Ok(verifier.clone());
        }
        let verifier = self.build(settings).with_context(|| format!("row {}", row.prompt.id));
        let verifier = if settings.is_some() { verifier? } else { self.build(None)? };
        self.built.insert(key, verifier.clone());
        Ok(verifier)
    }

    fn build(&self, settings: Option<&serde_json::Value>) -> anyhow::Result<Arc<dyn RewardVerifier>> {
        let mut layers = layers_of(&self.arguments.verifier);
        layers = self.arguments.set.iter().fold(layers, |layers, set| layers.set(format!("reward.{set}")));
        if let Some(settings) = settings {
            ensure!(settings.is_object(), "`{ROW_SETTINGS}` must be an object, found {settings}");
            let table = toml::Table::from_iter([("reward".to_owned(), toml::Value::try_from(settings)?)]);
            layers = layers.text(format!("`{ROW_SETTINGS}`"), table.to_string());
        }
        built(&layers)
    }
}

/// A verifier by its name with its defaults, or as a config (`.toml`) describes it.
pub(crate) fn verifier_named(name: &str) -> anyhow::Result<Arc<dyn RewardVerifier>> {
    built(&layers_of(name))
}

fn layers_of(verifier: &str) -> ConfigLayers {
    if verifier.ends_with(".toml") {
        return ConfigLayers::default().file(verifier);
    }
    let named = format!("[reward]\ntype = {}", toml::Value::from(verifier));
    ConfigLayers::default().text("--verifier", named)
}

fn built(layers: &ConfigLayers) -> anyhow::Result<Arc<dyn RewardVerifier>> {
    let config: RewardConfig = layers.load_reward()?;
    Ok(Arc::from(config.build().map_err(|error| error.within("reward"))?))
}

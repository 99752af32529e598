//! `firebrick explain`: what an objective does with a response, token by token.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Args;
use firebrick_core::{
    Anchor, Binding, Current, LogProbs, Objective, OptimizerBatch, Requirements, ResponseContext,
    ResponseTokens,
};
use firebrick_objectives::ObjectiveConfig;
use firebrick_trainer::{ConfigLayers, TokenTrace};
use rand::RngExt;
use serde::Serialize;

use crate::{explain_plot, say::say};

const FLAT_ENTROPIES: &str = "every token has entropy 1 (--entropies)";

/// Arguments of `firebrick explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    /// The objective: a `type`, or a TOML file with an `[objective]`; with --from the run's own when left out.
    objective: Option<String>,
    /// Changes a key of the objective: `schedule.high=0.3`. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Log-ratios of the tokens: log π_θ − log π_behaviour, in nats.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true)]
    log_ratios: Vec<f64>,
    /// Instead of --log-ratios: this many, drawn from N(−spread²/2, spread²).
    #[arg(long, conflicts_with = "log_ratios")]
    length: Option<usize>,
    /// Standard deviation of drawn log-ratios.
    #[arg(long, default_value_t = 0.1)]
    spread: f64,
    /// Seed of drawn log-ratios.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Advantage of the response, or one per token.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "1")]
    advantage: Vec<f64>,
    /// Probabilities of the tokens under the behaviour policy, one for all or one per token.
    #[arg(long, value_delimiter = ',', default_value = "0.5")]
    probabilities: Vec<f64>,
    /// Log-probs of the reference policy less those of the behaviour policy, one for all or one per token (nats).
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "0")]
    reference: Vec<f64>,
    /// Log-probs of the proximal policy less those of the behaviour policy, one for all or one per token (nats).
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "0")]
    proximal: Vec<f64>,
    /// Entropies of the policy, one for all or one per token (nats).
    #[arg(long, value_delimiter = ',', default_value = "1")]
    entropies: Vec<f64>,
    /// The run's limit on response tokens; the response's length when left out.
    #[arg(long)]
    max_response_len: Option<usize>,
    /// A run directory whose response is explained.
    #[arg(long, conflicts_with_all = ["log_ratios", "length"])]
    from: Option<PathBuf>,
    /// Step of the response, with --from.
    #[arg(long, default_value_t = 0)]
    step: usize,
    /// Number of the response within the step, with --from.
    #[arg(long, default_value_t = 0)]
    sample: usize,
    /// Draws weight and window along the response into this SVG file.
    #[arg(long)]
    plot: Option<PathBuf>,
    /// Prints one JSON object per token.
    #[arg(long)]
    json: bool,
}

/// What an objective makes of one token.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ExplainedToken {
    /// Position among the policy tokens, from 1.
    pub(crate) position: usize,
    /// Its text, when it is known.
    pub(crate) token: Option<String>,
    pub(crate) advantage: f64,
    /// exp(log π_θ − log π_anchor).
    pub(crate) ratio: f64,
    /// The importance weight.
    pub(crate) weight: Option<f64>,
    /// The window of the weight.
    pub(crate) low: Option<f64>,
    pub(crate) high: Option<f64>,
    /// Which bound acted.
    pub(crate) acts: &'static str,
    /// What log π_θ is multiplied by in the gradient, before aggregation.
    pub(crate) coefficient: f64,
}

pub(crate) fn explain(arguments: &ExplainArguments) -> anyhow::Result<()> {
    let config = objective(arguments)?;
    let requirements = config.build().requirements();
    let (response, notes) = match &arguments.from {
        Some(run) => traced(run, arguments, &config, requirements)?,
        None => given(arguments, &config, requirements)?,
    };
    let explained = explain_response(&config, &response, requirements)?;
    if let Some(path) = &arguments.plot {
        explain_plot::draw(path, &config.r#type, &explained)
            .with_context(|| format!("cannot draw {}", path.display()))?;
    }
    let mut text = String::new();
    if arguments.json {
        for token in &explained {
            text += &serde_json::to_string(token)?;
            text.push('\n');
        }
    } else {
        text = table(&explained);
        notes.iter().for_each(|note| text += &format!("{note}\n"));
    }
    say(&text)
}

/// The objective that is asked for.
fn objective(arguments: &ExplainArguments) -> anyhow::Result<ObjectiveConfig> {
    let layers = match (&arguments.objective, &arguments.from) {
        (Some(name), _) if name.ends_with(".toml") => ConfigLayers::default().file(name),
        (Some(name), _) => ConfigLayers::default()
            .text("objective", format!("[objective]\ntype = {}", toml::Value::from(name.as_str()))),
        (None, Some(run)) => ConfigLayers::default().file(run.join("config.toml")),
        (None, None) => {
            anyhow::bail!("name an objective, such as `firebrick explain tapo`, or a run with --from")
        }
    };
    let layers = arguments.set.iter().fold(layers, |layers, set| layers.set(format!("objective.{set}")));
    Ok(layers.load_objective()?)
}

/// A response with what is known of it.
struct Response {
    context: ResponseContext,
    current: LogProbs<Current>,
    entropies: Option<Vec<f64>>,
    text: Option<Vec<String>>,
}

fn traced(
    run: &std::path::Path,
    arguments: &ExplainArguments,
    config: &ObjectiveConfig,
    requirements: Requirements,
) -> anyhow::Result<(Response, Vec<String>)> {
    let trace = TokenTrace::read(run, arguments.step, arguments.sample)?;
    let (context, current) = trace.response(config.parts.anchor)?;
    let entropies = Some(spread_over(&arguments.entropies, context.len(), "--entropies")?);
    let mut notes = vec!["log-probs are those of the last optimizer step that saw the response".to_owned()];
    if requirements.entropies && arguments.entropies == [1.0] {
        notes.push(FLAT_ENTROPIES.to_owned());
    }
    if requirements.batch_current_log_probs {
        notes.push("the objective looks at its whole batch; here the response is the batch".to_owned());
    }
    Ok((Response { context, current, entropies, text: Some(trace.text) }, notes))
}

fn given(
    arguments: &ExplainArguments,
    config: &ObjectiveConfig,
    requirements: Requirements,
) -> anyhow::Result<(Response, Vec<String>)> {
    let log_ratios = log_ratios(arguments)?;
    let len = log_ratios.len();
    let probabilities = spread_over(&arguments.probabilities, len, "--probabilities")?;
    for probability in &probabilities {
        ensure!(
            *probability > 0.0 && *probability <= 1.0,
            "--probabilities {probability}: allowed is above 0, at most 1"
        );
    }
    let behaviour: Vec<f64> = probabilities.iter().map(|p| p.ln()).collect();
    let moved = |by: &[f64], what: &str| -> anyhow::Result<Vec<f64>> {
        Ok(behaviour.iter().zip(spread_over(by, len, what)?).map(|(b, by)| b + by).collect())
    };
    let proximal = LogProbs::new(moved(&arguments.proximal, "--proximal")?);
    let advantages = spread_over(&arguments.advantage, len, "--advantage")?;
    let current = LogProbs::new(behaviour.iter().zip(&log_ratios).map(|(b, d)| b + d).collect());
    let context = ResponseContext::new(LogProbs::new(behaviour.clone()), advantages)?
        .with_reference(LogProbs::new(moved(&arguments.reference, "--reference")?))?
        .with_max_response_len(arguments.max_response_len.unwrap_or(len));
    let context = match config.parts.anchor {
        Anchor::Proximal => context.anchored_at_proximal(proximal)?,
        Anchor::Behaviour => context.with_proximal(proximal)?,
    };
    let mut notes = Vec::new();
    if arguments.probabilities == [0.5] {
        notes.push("every token had probability 0.5 under the behaviour policy (--probabilities)".to_owned());
    }
    if requirements.entropies && arguments.entropies == [1.0] {
        notes.push(FLAT_ENTROPIES.to_owned());
    }
    let entropies = Some(spread_over(&arguments.entropies, len, "--entropies")?);
    Ok((Response { context, current, entropies, text: None }, notes))
}

fn log_ratios(arguments: &ExplainArguments) -> anyhow::Result<Vec<f64>> {
    if let Some(len) = arguments.length {
        ensure!(
            arguments.spread.is_finite() && arguments.spread >= 0.0,
            "--spread: allowed is a finite number >= 0"
        );
        let mut rng =
            firebrick_core::RootSeed(arguments.seed).rng(firebrick_core::SeedStream::Objective, &[]);
        let mut normal = || {
            // Box and Muller, 1958.
            let (radius, angle): (f64, f64) = (rng.random(), rng.random());
            (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
        };
        let spread = arguments.spread;
        return Ok((0..len).map(|_| spread * normal() - spread * spread / 2.0).collect());
    }
    ensure!(
        !arguments.log_ratios.is_empty(),
        "give --log-ratios 0.1,-0.2,..., --length N, or a run with --from"
    );
    for value in &arguments.log_ratios {
        ensure!(value.is_finite(), "--log-ratios {value}: allowed are finite numbers");
    }
    Ok(arguments.log_ratios.clone())
}

/// One value for all tokens, or one per token.
fn spread_over(values: &[f64], len: usize, what: &str) -> anyhow::Result<Vec<f64>> {
    match values {
        [value] => Ok(vec![*value; len]),
        values if values.len() == len => Ok(values.to_vec()),
        values => anyhow::bail!(
            "{what} has {} values for {len} tokens; give one for all, or one per token",
            values.len()
        ),
    }
}

/// Evaluates the objective on one response, which is the whole batch.
fn explain_response(
    config: &ObjectiveConfig,
    response: &Response,
    requirements: Requirements,
) -> anyhow::Result<Vec<ExplainedToken>> {
    ensure!(
        requirements.top_k == 0,
        "{} compares the most likely tokens of two policies, which log-probs of the sampled tokens do not tell; \
         choose a binary divergence, as in --set 'gate.divergence={{ type = \"binary_kl\", low = 0.05, high = 0.05 }}'",
        config.r#type
    );
    let mut objective = config.objective();
    let contexts = [&response.context];
    let current = [response.current.clone()];
    let batch = OptimizerBatch { responses: &contexts, current: Some(&current) };
    for (_, part) in objective.stateful_parts() {
        part.prepare(&batch)?;
    }
    let mut tokens = ResponseTokens::new(&response.context, &response.current)?;
    if let Some(entropies) = &response.entropies {
        tokens = tokens.with_entropies(entropies)?;
    }
    let terms = objective.evaluate(&tokens, 1.0);
    let token = |index: usize| ExplainedToken {
        position: index + 1,
        token: response.text.as_ref().map(|text| text[index].clone()),
        advantage: tokens.advantages()[index],
        ratio: tokens.log_ratios()[index].exp(),
        weight: terms.log_weights.get(index).map(|weight| weight.exp()),
        low: terms.windows.get(index).map(|window| window.low).filter(|low| *low > 0.0),
        high: terms.windows.get(index).map(|window| window.high).filter(|high| high.is_finite()),
        acts: acts(terms.bindings[index]),
        coefficient: terms.coefficients[index],
    };
    Ok((0..tokens.len()).map(token).collect())
}

fn acts(binding: Binding) -> &'static str {
    match binding {
        Binding::None => "",
        Binding::Low => "low",
        Binding::High => "high",
        Binding::OuterLow => "outer low",
        Binding::OuterHigh => "outer high",
        Binding::Dropped => "dropped",
    }
}

fn table(tokens: &[ExplainedToken]) -> String {
    let with_text = tokens.iter().any(|token| token.token.is_some());
    let mut lines = vec![format!(
        "{:>5}  {}{:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:<10}  {:>11}",
        "t",
        if with_text { format!("{:<12}  ", "token") } else { String::new() },
        "advantage",
        "ratio",
        "weight",
        "low",
        "high",
        "acts",
        "coefficient"
    )];
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.6}"));
    for token in tokens {
        let text = match &token.token {
            Some(text) => format!("{:<12}  ", format!("{text:?}")),
            None if with_text => " ".repeat(14),
            None => String::new(),
        };
        lines.push(format!(
            "{:>5}  {text}{:>9.4}  {:>9.6}  {:>9}  {:>9}  {:>9}  {:<10}  {:>11.6}",
            token.position,
            token.advantage,
            token.ratio,
            number(token.weight),
            number(token.low),
            number(token.high),
            token.acts,
            token.coefficient
        ));
    }
    lines.push(
        "the coefficient multiplies log π_θ in the gradient of the objective, before aggregation".to_owned(),
    );
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        arguments: ExplainArguments,
    }

    fn explained(arguments: &str) -> anyhow::Result<Vec<ExplainedToken>> {
        let words = std::iter::once("explain").chain(arguments.split_whitespace());
        let arguments = Command::try_parse_from(words)?.arguments;
        let config = objective(&arguments)?;
        let requirements = config.build().requirements();
        let (response, _) = given(&arguments, &config, requirements)?;
        explain_response(&config, &response, requirements)
    }

    /// Windows [.8, 1.2], [.916982, 1.083077], [.968806, 1.031278], [.9997, 1.0004].
    #[test]
    fn tapo_stops_the_late_tokens_of_the_worked_example() {
        let tokens = explained("tapo --log-ratios 0.1,-0.2,0.3,0.05 --advantage 1").unwrap();
        let rounded = |of: &dyn Fn(&ExplainedToken) -> f64| -> Vec<f64> {
            tokens.iter().map(|token| (of(token) * 1e4).round() / 1e4).collect()
        };
        assert_eq!(rounded(&|token| token.ratio), [1.1052, 0.8187, 1.3499, 1.0513]);
        assert_eq!(rounded(&|token| token.weight.unwrap()), [1.1052, 0.9512, 1.0689, 1.0645]);
        assert_eq!(rounded(&|token| token.high.unwrap()), [1.2, 1.0831, 1.0313, 1.0004]);
        assert_eq!(rounded(&|token| token.coefficient), [1.1052, 0.9512, 0.0, 0.0]);
        assert_eq!(tokens.iter().map(|token| token.acts).collect::<Vec<_>>(), ["", "", "high", "high"]);
    }

    #[test]
    fn a_changed_part_and_a_negative_advantage_are_seen() {
        let tokens = explained("tapo --set schedule.eps_max=0.05 --log-ratios=-0.1 --advantage=-2").unwrap();
        assert_eq!((tokens[0].acts, tokens[0].coefficient), ("low", 0.0));
        let error = explained("tapo --set schedule.eps_maxx=0.05 --log-ratios 0.1").unwrap_err().to_string();
        assert!(error.contains("unknown key objective.schedule.eps_maxx; did you mean eps_max?"), "{error}");
    }

    #[test]
    fn drawn_log_ratios_are_the_same_for_a_seed() {
        let of = |seed| explained(&format!("grpo --length 200 --spread 0.3 --seed {seed}")).unwrap();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let mean = of(3).iter().map(|token| token.ratio).sum::<f64>() / 200.0;
        assert!((mean - 1.0).abs() < 0.1, "{mean}");
    }

    #[test]
    fn lists_of_the_wrong_length_and_missing_log_ratios_are_refused() {
        let error = explained("grpo --log-ratios 0.1,0.2,0.3 --advantage 1,2").unwrap_err().to_string();
        assert_eq!(error, "--advantage has 2 values for 3 tokens; give one for all, or one per token");
        assert!(explained("grpo").unwrap_err().to_string().contains("--log-ratios"));
        assert!(explained("grpo --log-ratios 0.1 --probabilities 1.5").is_err());
    }

    #[test]
    fn every_preset_can_be_explained_or_says_why_not() {
        for preset in firebrick_objectives::Preset::all() {
            let value = |key: &str| if key == "advantage.k" { "2" } else { "0.1" };
            let open: String =
                preset.required.keys().map(|key| format!(" --set {key}={}", value(key))).collect();
            match explained(&format!("{} --log-ratios 0.1,-0.2,0.3,0.05{open}", preset.name)) {
                Ok(tokens) => {
                    assert!(tokens.iter().all(|token| token.coefficient.is_finite()), "{}", preset.name)
                }
                Err(error) => {
                    assert!(error.to_string().contains("binary divergence"), "{}: {error}", preset.name)
                }
            }
        }
    }
}

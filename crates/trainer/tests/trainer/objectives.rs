//! Every published objective in the real loop, and what the trainer computes for those that ask for more.

use burn::{
    backend::Autodiff,
    tensor::{Tensor, TensorData, activation::log_softmax, backend::AutodiffBackend},
};
use firebrick_core::{LogProbs, OptimizerBatch, ResponseContext, ResponseTokens, TopK};
use firebrick_objectives::{Denominator, ObjectiveConfig, Preset};
use firebrick_trainer::{
    DynamicSampling, Plan, PlanError, RunDirectory, StepOutcome, TokenTrace, TrainSettings, TrainerError,
    WhenExhausted, surrogate,
};

use crate::{
    fixture::{Echo, Flex, objective, plan, prompts, settings, trainer},
    on_both_backends,
};

/// A preset with values for what its paper leaves open.
fn complete(preset: &Preset) -> ObjectiveConfig {
    let open = |key: &String| match key.as_str() {
        "advantage.k" => "advantage.k = 2\n".to_owned(),
        "aggregation.norm" => "aggregation.norm = 6.0\n".to_owned(),
        key => format!("{key} = 0.2\n"),
    };
    let keys: String = preset.required.keys().map(open).collect();
    let top_k = if preset.name == "dppo_top_k" { "gate.divergence.k = 3\n" } else { "" };
    objective(&format!("type = {:?}\n{keys}{top_k}", preset.name))
}

/// Pays one for a response that begins with the question's digit, zero for others: what Pass@k and BNPO are made for.
#[derive(Debug)]
struct First;

impl firebrick_core::RewardVerifier for First {
    fn verify(
        &self,
        sample: &firebrick_core::Sample<'_>,
    ) -> Result<firebrick_core::Verdict, firebrick_core::VerifyError> {
        let hit = sample.text.starts_with(&sample.prompt.answer);
        Ok(firebrick_core::Verdict::scored(f64::from(u8::from(hit))))
    }
}

#[test]
fn every_preset_under_every_setting_trains_or_is_refused_with_the_fix() {
    let base = settings();
    let settings = [
        base.clone(),
        TrainSettings { epochs: 2, mini_batches: 2, micro_batch_tokens: 32, ..base.clone() },
        TrainSettings { micro_batch_tokens: 0, mini_batches: 4, ..base.clone() },
        TrainSettings { group_size: 1, ..base.clone() },
        TrainSettings {
            dynamic_sampling: Some(DynamicSampling { max_rounds: 2, when_exhausted: WhenExhausted::Repeat }),
            ..base
        },
    ];
    let mut trained = 0;
    for preset in Preset::all() {
        for (index, settings) in settings.iter().enumerate() {
            let what = format!("{} under settings {index}", preset.name);
            let recipe = complete(preset).build();
            let plan = match Plan::<Autodiff<Flex>>::new(settings.clone(), recipe, First) {
                Ok(plan) => plan,
                Err(PlanError::Combination { problem, fix }) => {
                    assert!(index == 3 && problem.contains("group_size"), "{what}: {problem}; {fix}");
                    continue;
                }
                Err(error) => panic!("{what}: {error}"),
            };
            let mut trainer = trainer(plan);
            for _ in 0..2 {
                let report = match trainer.step(&prompts()) {
                    Ok(report) => report,
                    Err(TrainerError::DynamicSampling { .. }) => break,
                    Err(error) => panic!("{what}: {error}"),
                };
                assert_eq!(report.outcome, StepOutcome::Trained, "{what}");
                assert!(report.metrics.values().all(|(_, value)| value.is_finite()), "{what}");
                trained += 1;
            }
        }
    }
    assert!(trained > 7 * Preset::all().len(), "{trained}");
}

/// Logits `[N, V]` of two responses with 5 and 3 tokens.
const LENGTHS: [usize; 2] = [5, 3];
const VOCABULARY: usize = 6;

fn wave(index: usize, phase: f64) -> f64 {
    ((index as f64 + 1.0) * 12.9898 + phase).sin() * 43_758.545_3 % 1.0
}

on_both_backends! {
    /// ∂loss/∂z_v = −c (1[v = y] − p_v) for the logits z of a token y with the coefficient c: the gradient that the
    /// surrogate sends to the logits is the objective's, whatever the backend.
    fn the_gradient_of_every_preset_reaches_the_logits<B>() {
        let device = Default::default();
        let tokens: usize = LENGTHS.iter().sum();
        let logits: Vec<f64> = (0..tokens * VOCABULARY).map(|i| 2.0 * wave(i, 0.3)).collect();
        let targets: Vec<usize> = (0..tokens).map(|t| t * 5 % VOCABULARY).collect();
        let probability = |t: usize, v: usize| {
            let row = &logits[t * VOCABULARY..(t + 1) * VOCABULARY];
            row[v].exp() / row.iter().map(|z| z.exp()).sum::<f64>()
        };
        let current: Vec<f64> = (0..tokens).map(|t| probability(t, targets[t]).ln()).collect();
        let entropies: Vec<f64> = (0..tokens)
            .map(|t| -(0..VOCABULARY).map(|v| probability(t, v) * probability(t, v).ln()).sum::<f64>())
            .collect();
        for preset in Preset::all() {
            let config = complete(preset);
            let recipe = config.build();
            let mut objective = recipe.objective;
            let mut start = 0;
            let (mut contexts, mut log_probs) = (Vec::new(), Vec::new());
            for (index, len) in LENGTHS.into_iter().enumerate() {
                let range = start..start + len;
                // Mean drifts that even GSPO's narrow window leaves a gradient: down for A > 0, up for A < 0.
                let mean = if index == 0 { -0.05 } else { 0.05 };
                let centre = range.clone().map(|t| wave(t, 1.0)).sum::<f64>() / len as f64;
                let behaviour: Vec<f64> =
                    range.clone().map(|t| current[t] - mean - 0.3 * (wave(t, 1.0) - centre)).collect();
                let moved = |phase: f64| -> Vec<f64> {range.clone().map(|t| current[t] - 0.3 * wave(t, phase)).collect() };
                let advantage = if index == 0 { 0.9 } else { -1.3 };
                let top_k = TopK {
                    k: 3,
                    tokens: vec![0; 3 * len],
                    log_probs: behaviour.iter().flat_map(|b| [*b, -3.0, -3.5]).collect(),
                    holds_sampled: vec![true; len],
                };
                let context = ResponseContext::new(LogProbs::new(behaviour), vec![advantage; len])
                    .unwrap()
                    .with_index(index)
                    .with_max_response_len(8)
                    .with_reference(LogProbs::new(moved(2.0)))
                    .unwrap();
                let context = match recipe.anchor {
                    firebrick_core::Anchor::Proximal => context.anchored_at_proximal(LogProbs::new(moved(3.0))),
                    firebrick_core::Anchor::Behaviour => context.with_proximal(LogProbs::new(moved(3.0))),
                };
                contexts.push(context.unwrap().with_top_k(top_k).unwrap());
                log_probs.push(LogProbs::new(current[range.clone()].to_vec()));
                start += len;
            }
            let responses: Vec<&ResponseContext> = contexts.iter().collect();
            let batch = OptimizerBatch { responses: &responses, current: Some(&log_probs) };
            for (_, part) in objective.stateful_parts() {
                part.prepare(&batch).unwrap();
            }
            let denominator = Denominator::of(contexts.iter().map(|context| objective.counted_tokens(context))).unwrap();
            let mut coefficients = Vec::new();
            let mut start = 0;
            for (context, current) in contexts.iter().zip(&log_probs) {
                let len = context.len();
                let top_k: Vec<f64> =
                    current.values().iter().flat_map(|c| [*c, -3.2, -3.3]).collect();
                let response = ResponseTokens::new(context, current)
                    .unwrap()
                    .with_entropies(&entropies[start..start + len])
                    .unwrap()
                    .with_top_k(&top_k)
                    .unwrap();
                let weight = recipe.aggregation.weight(&denominator, objective.counted_tokens(context));
                coefficients.extend(objective.evaluate(&response, weight).coefficients);
                start += len;
            }

            let values: Vec<f32> = logits.iter().map(|z| *z as f32).collect();
            let tensor = Tensor::<Autodiff<B>, 2>::from_data(TensorData::new(values, [tokens, VOCABULARY]), &device)
                .require_grad();
            let ids: Vec<i64> = targets.iter().map(|t| *t as i64).collect();
            let ids = Tensor::from_data(TensorData::new(ids, [tokens, 1]), &device);
            let chosen = log_softmax(tensor.clone(), 1).gather(1, ids).squeeze_dim(1);
            let on_device: Vec<f32> = coefficients.iter().map(|c| *c as f32).collect();
            let on_device = Tensor::from_data(TensorData::new(on_device, [tokens]), &device);
            let gradients = surrogate(chosen, on_device).backward();
            let found: Vec<f64> = tensor.grad(&gradients).unwrap().into_data().iter::<f64>().collect();
            for t in 0..tokens {
                for v in 0..VOCABULARY {
                    let chosen = f64::from(u8::from(v == targets[t]));
                    let expected = -coefficients[t] * (chosen - probability(t, v));
                    assert!(
                        (found[t * VOCABULARY + v] - expected).abs() < 1e-5 * (1.0 + expected.abs()),
                        "{}: token {t}, logit {v}: {} instead of {expected}",
                        preset.name,
                        found[t * VOCABULARY + v]
                    );
                }
            }
            assert!(coefficients.iter().any(|c| *c != 0.0), "{}: nothing to compare", preset.name);
        }
    }
}

fn steps<B>(plan: Plan<B>, count: usize) -> Vec<firebrick_trainer::StepReport>
where
    B: AutodiffBackend + firebrick_models::FusedOps,
    B::InnerBackend: firebrick_models::FusedOps,
{
    let mut trainer = trainer(plan);
    (0..count).map(|_| trainer.step(&prompts()).unwrap()).collect()
}

/// Pays a ninth of the question's digit, whatever the response: a return that can be predicted from the prompt.
#[derive(Debug)]
struct Digit;

impl firebrick_core::RewardVerifier for Digit {
    fn verify(
        &self,
        sample: &firebrick_core::Sample<'_>,
    ) -> Result<firebrick_core::Verdict, firebrick_core::VerifyError> {
        Ok(firebrick_core::Verdict::scored(sample.prompt.answer.parse::<f64>().unwrap() / 9.0))
    }
}

#[test]
fn a_critic_learns_to_predict_the_return() {
    let settings = TrainSettings { critic_learning_rate: Some(3e-3), steps: 30, ..settings() };
    let settings = TrainSettings {
        optimizer: firebrick_trainer::OptimizerSettings::new(1e-9), // the policy stands still, so returns do too
        ..settings
    };
    let recipe = objective("type = \"ppo\"\nkl.coefficient = 0.0").build();
    let reports = steps(Plan::<Autodiff<Flex>>::new(settings, recipe, Digit).unwrap(), 30);
    let loss = |range: std::ops::Range<usize>| {
        let len = range.len() as f64;
        reports[range].iter().map(|report| report.metrics.get("value_loss").unwrap()).sum::<f64>() / len
    };
    assert!(loss(25..30) < 0.3 * loss(0..3), "{} {}", loss(0..3), loss(25..30));
}

#[test]
fn a_critic_continues_exactly_from_a_saved_state() {
    let make = || trainer(plan::<Autodiff<Flex>>(settings(), "type = \"ppo\""));
    let mut whole = make();
    whole.step(&prompts()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    whole.save_state(folder.path()).unwrap();
    let mut resumed = make();
    resumed.load_state(folder.path()).unwrap();
    let metrics = |report: firebrick_trainer::StepReport| -> Vec<(String, f64)> {
        report.metrics.values().map(|(name, value)| (name.to_owned(), value)).collect()
    };
    assert_eq!(metrics(whole.step(&prompts()).unwrap()), metrics(resumed.step(&prompts()).unwrap()));
}

/// With one reward for all, only the bonus has a gradient.
#[test]
fn an_entropy_bonus_raises_the_entropy() {
    let text = "type = \"dapo\"\nentropy_coefficient = 0.5";
    let all_equal = Echo { down: Vec::new() };
    let settings = TrainSettings { steps: 12, ..settings() };
    let prompts: Vec<_> = prompts()
        .into_iter()
        .map(|mut prompt| {
            prompt.answer = "x".into(); // nobody hits it
            prompt
        })
        .collect();
    let plan = Plan::<Autodiff<Flex>>::new(settings, objective(text).build(), all_equal).unwrap();
    let mut trainer = trainer(plan);
    let reports: Vec<_> = (0..12).map(|_| trainer.step(&prompts).unwrap()).collect();
    let entropy = |index: usize| reports[index].metrics.get("entropy").unwrap();
    assert!(entropy(11) > entropy(0) + 0.02, "{} {}", entropy(0), entropy(11));
    let loss = reports[0].metrics.get("loss").unwrap();
    assert!((loss + 0.5 * entropy(0)).abs() < 1e-6, "the loss is minus half the mean entropy: {loss}");
}

#[test]
fn a_guided_rollout_is_trained_on_without_its_guidance() {
    let guided: Vec<_> = prompts()
        .into_iter()
        .map(|prompt| {
            let guidance = prompt.answer.repeat(3);
            prompt.with_guidance(guidance)
        })
        .collect();
    let ratio = |text: &str| {
        let mut trainer = trainer(plan::<Autodiff<Flex>>(settings(), text));
        trainer.step(&guided).unwrap().metrics.get("log_ratio/abs_max").unwrap()
    };
    assert!(ratio("type = \"oc_grpo\"") > 0.01, "two contexts, two log-probs");
    assert!(ratio("type = \"oc_grpo\"\nguided_prompts = false") < 1e-4, "one context");
}

#[test]
fn the_optimal_token_baseline_gets_the_distributions_it_asks_for() {
    let text = "type = \"dapo\"\nadvantage = { type = \"optimal_token_baseline\" }";
    let reports = steps(plan::<Autodiff<Flex>>(settings(), text), 2);
    assert!(reports.iter().all(|report| report.outcome == StepOutcome::Trained));
}

#[test]
fn a_greedy_baseline_is_sampled_where_it_is_asked_for() {
    let reports = steps(plan::<Autodiff<Flex>>(settings(), "type = \"remax\"\nkl.coefficient = 0.0"), 2);
    assert!(reports.iter().all(|report| report.outcome == StepOutcome::Trained));
}

#[test]
fn more_likely_tokens_than_there_are_is_refused_by_name() {
    let text = "type = \"dppo_top_k\"\naggregation.norm = 6.0\ngate.divergence.k = 99";
    let plan = plan::<Autodiff<Flex>>(settings(), text);
    let device = Default::default();
    let engine = firebrick_rollout::EmbeddedEngine::<Flex>::new(device);
    let error = firebrick_trainer::Trainer::new(
        plan,
        crate::fixture::model::<Autodiff<Flex>>(&device),
        crate::fixture::tokenizer(),
        engine,
        device,
    )
    .unwrap_err();
    assert!(
        error.to_string().contains("99 most likely tokens") && error.to_string().contains("lower k"),
        "{error}"
    );
}

#[test]
fn a_critic_without_a_value_loss_is_refused() {
    let mut recipe = objective("type = \"ppo\"").build();
    recipe.value_loss = None;
    let error = Plan::<Autodiff<Flex>>::new(settings(), recipe, Echo::default()).unwrap_err().to_string();
    assert!(error.contains("critic") && error.contains("set the recipe's value_loss"), "{error}");
}

#[test]
fn traced_tokens_carry_what_explains_them() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let settings = TrainSettings { epochs: 2, ..settings() };
    let mut trainer = trainer(plan::<Autodiff<Flex>>(settings, "type = \"tapo\""))
        .with_run_directory(RunDirectory::create(&run, false).unwrap());
    trainer.step(&prompts()).unwrap();
    let trace = TokenTrace::read(&run, 0, 1).unwrap();
    assert_eq!(trace.text.len(), trace.current.len());
    let (context, current) = trace.response(firebrick_core::Anchor::Behaviour).unwrap();
    let tokens = ResponseTokens::new(&context, &current).unwrap();
    assert!(tokens.log_ratios().iter().any(|d| d.abs() > 1e-5), "the second epoch saw another policy");
    let error = TokenTrace::read(&run, 0, 5).unwrap_err().to_string();
    assert!(error.contains("traced at this step are [0, 1]"), "{error}");
}

//! The embedded engine on a small decoder, on both CPU backends.

use std::{
    collections::HashSet,
    num::NonZeroUsize,
    sync::{Arc, Mutex},
};

use burn::{
    backend::{Flex, NdArray},
    module::{Module, ModuleMapper, Param},
    tensor::{Int, Tensor, TensorData, backend::Backend},
};
use firebrick_core::{
    CausalLm, Completion, FinishReason, GenerationRequest, PolicyRef, RolloutEngine, RolloutError,
    SamplingSpec, ScoreOptions, TokenId, TokenScores,
};
use firebrick_models::{Decoder, DecoderConfig, FusedOps, KvCache};
use firebrick_rollout::{Distribution, EmbeddedEngine};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const VOCAB: usize = 12;
const POSITIONS: usize = 24;
const VERSION: u64 = 3;

/// Makes a `#[test]` of a function that is generic over the backend run on every CPU backend.
macro_rules! on_both_backends {
    ($($(#[$attribute:meta])* fn $name:ident<$B:ident>() $body:block)*) => {
        $(
            $(#[$attribute])*
            #[test]
            fn $name() {
                fn check<$B: FusedOps>() $body
                check::<Flex>();
                check::<NdArray>();
            }
        )*
    };
}

fn model<B: Backend>() -> Decoder<B> {
    let config = DecoderConfig {
        vocab_size: VOCAB,
        hidden_size: 16,
        intermediate_size: 24,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: None,
        max_position_embeddings: POSITIONS,
        rope_theta: 100.0,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: false,
        attention_bias: false,
        attention_output_bias: false,
        mlp_bias: false,
        rope_scaling: None,
        qk_norm: false,
        initializer_range: 0.3,
    };
    config.init(&Default::default(), 11).expect("the configuration is valid")
}

/// Requests with prompts of different lengths.
fn requests() -> Vec<GenerationRequest> {
    let prompts: [&[TokenId]; 6] =
        [&[1, 2, 3], &[4], &[5, 6, 7, 8, 9], &[10, 2], &[1, 2, 3], &[11, 11, 11, 11]];
    let request = |(seed, prompt): (u64, &[TokenId])| GenerationRequest { prompt: prompt.into(), seed };
    (100..).zip(prompts).map(request).collect()
}

/// Those requests and many more.
fn crowd() -> Vec<GenerationRequest> {
    let others =
        (0..24).map(|index| GenerationRequest { seed: 200 + index as u64, ..requests()[index % 6].clone() });
    requests().into_iter().chain(others).collect()
}

fn sampling() -> SamplingSpec {
    SamplingSpec { max_new_tokens: 12, stop_tokens: vec![0], ..SamplingSpec::default() }
}

fn generate<B: Backend, M: CausalLm<B>>(
    model: &M,
    requests: &[GenerationRequest],
    sampling: &SamplingSpec,
    max_rows: Option<usize>,
) -> Result<Vec<Completion>, RolloutError> {
    let mut engine = EmbeddedEngine::<B>::new(Default::default());
    if let Some(rows) = max_rows.and_then(NonZeroUsize::new) {
        engine = engine.with_max_batch_rows(rows);
    }
    engine.generate(PolicyRef { model, version: VERSION }, requests, sampling)
}

fn int_tensor<B: Backend, const D: usize>(
    values: impl Iterator<Item = i64>,
    shape: [usize; D],
) -> Tensor<B, D, Int> {
    Tensor::from_data(TensorData::new(values.collect::<Vec<_>>(), shape), &Default::default())
}

/// Hidden states `[S, D]` of a full pass over one row.
fn hidden<B: FusedOps>(model: &Decoder<B>, tokens: &[TokenId]) -> Tensor<B, 2> {
    let shape = [1, tokens.len()];
    let ids = int_tensor(tokens.iter().map(|token| i64::from(*token)), shape);
    model.hidden(ids, int_tensor(0..tokens.len() as i64, shape)).squeeze_dim(0)
}

/// Logits after the last of some tokens, by a full pass.
fn last_logits<B: FusedOps>(model: &Decoder<B>, tokens: &[TokenId]) -> Vec<f32> {
    let logits = model.logits(hidden(model, tokens).narrow(0, tokens.len() - 1, 1));
    logits.into_data().iter().collect()
}

/// Asserts that two runs of a request agree up to a draw that lies on a boundary. Returns whether they agree
/// throughout.
#[track_caller]
fn assert_same_up_to_chance<B: FusedOps>(model: &Decoder<B>, a: &Completion, b: &Completion) -> bool {
    assert_eq!((a.seed(), a.prompt_tokens()), (b.seed(), b.prompt_tokens()));
    if a.tokens() == b.tokens() {
        let pairs = a.behaviour_log_probs().values().to_vec().into_iter();
        for (a, b) in pairs.zip(b.behaviour_log_probs().values()) {
            assert!((a - b).abs() < 1e-4, "{a} and {b}");
        }
        return true;
    }
    let pairs = a.response_tokens().iter().zip(b.response_tokens());
    let first = pairs.take_while(|(a, b)| a == b).count();
    let mut rng = ChaCha8Rng::seed_from_u64(a.seed());
    let uniform = (0..=first).map(|_| rng.random::<f64>()).last().expect("one at least");
    let prefix = &a.tokens()[..a.prompt_tokens().len() + first];
    let distribution =
        Distribution::new(&last_logits(model, prefix), a.sampling()).expect("logits are finite");
    let margin = distribution.draw(uniform).margin;
    assert!(margin < 1e-5, "token {first} differs though its draw was {margin} from the boundary");
    false
}

on_both_backends! {
    fn the_same_requests_give_the_same_completions<B>() {
        let model = model::<B>();
        let first = generate(&model, &requests(), &sampling(), None).unwrap();
        assert_eq!(first, generate(&model, &requests(), &sampling(), None).unwrap());
        let reseeded = requests().into_iter().map(|request| GenerationRequest { seed: 7, ..request });
        let requests: Vec<_> = reseeded.collect();
        assert_ne!(first, generate(&model, &requests, &sampling(), None).unwrap());
    }

    /// Alone, in another order, in slices, in parts on threads of their own, beside others.
    fn a_completion_does_not_depend_on_its_batch<B>() {
        let model = model::<B>();
        let requests = requests();
        let whole = generate(&model, &requests, &sampling(), None).unwrap();
        let mut same = 0;
        let mut compare = |index: usize, other: &Completion| {
            same += usize::from(assert_same_up_to_chance(&model, &whole[index], other));
        };
        for (index, request) in requests.iter().enumerate() {
            let alone = generate(&model, std::slice::from_ref(request), &sampling(), None).unwrap();
            compare(index, &alone[0]);
        }
        let reversed: Vec<_> = requests.iter().rev().cloned().collect();
        for (place, other) in generate(&model, &reversed, &sampling(), None).unwrap().iter().enumerate() {
            compare(requests.len() - 1 - place, other);
        }
        for (index, other) in generate(&model, &crowd(), &sampling(), None).unwrap()[..6].iter().enumerate() {
            compare(index, other);
        }
        for rows in [1, 4] {
            let sliced = generate(&model, &requests, &sampling(), Some(rows)).unwrap();
            for (index, other) in sliced.iter().enumerate() {
                compare(index, other);
            }
        }
        for parts in [2, 5] {
            let mut engine =
                EmbeddedEngine::<B>::new(Default::default()).with_parts(NonZeroUsize::new(parts).unwrap());
            let policy = PolicyRef { model: &model, version: VERSION };
            let in_parts = engine.generate(policy, &requests, &sampling()).unwrap();
            for (index, other) in in_parts.iter().enumerate() {
                compare(index, other);
            }
        }
        assert!(same >= 39, "{same} of 42 are the same throughout");
    }

    fn log_probs_are_those_of_a_full_pass<B>() {
        let model = model::<B>();
        for temperature in [1.0, 0.7] {
            let sampling = SamplingSpec { temperature, ..sampling() };
            for completion in generate(&model, &requests(), &sampling, None).unwrap() {
                let (tokens, prompt) = (completion.tokens(), completion.prompt_tokens().len());
                let len = completion.policy_len();
                let hidden = hidden(&model, &tokens[..tokens.len() - 1]).narrow(0, prompt - 1, len);
                let targets = int_tensor(tokens[prompt..].iter().map(|token| i64::from(*token)), [len]);
                let options = ScoreOptions { temperature, ..ScoreOptions::default() };
                let scores = model.token_scores(hidden, targets, options).log_probs.into_data();
                for (score, log_prob) in scores.iter::<f64>().zip(completion.behaviour_log_probs().values()) {
                    assert!((score - log_prob).abs() < 1e-5, "{score} and {log_prob}");
                }
                assert_eq!(completion.policy_versions(), vec![VERSION; len]);
                assert_eq!(completion.sampling(), &sampling);
            }
        }
    }

    fn greedy_decoding_takes_the_highest_logit<B>() {
        let model = model::<B>();
        let sampling = SamplingSpec { temperature: 0.0, ..sampling() };
        for completion in generate(&model, &requests(), &sampling, None).unwrap() {
            for position in completion.policy_positions() {
                let logits = last_logits(&model, &completion.tokens()[..position]);
                let token = completion.tokens()[position] as usize;
                assert!(logits.iter().all(|logit| *logit <= logits[token] + 1e-5), "{logits:?} at {token}");
            }
            assert!(completion.behaviour_log_probs().values().iter().all(|log_prob| *log_prob == 0.0));
        }
    }
}

#[test]
fn completions_do_not_depend_on_the_backend() {
    let model = model::<Flex>();
    let flex = generate(&model, &requests(), &sampling(), None).unwrap();
    let ndarray = generate(&self::model::<NdArray>(), &requests(), &sampling(), None).unwrap();
    let pairs = flex.iter().zip(&ndarray);
    let same = pairs.filter(|(flex, ndarray)| assert_same_up_to_chance(&model, flex, ndarray)).count();
    assert!(same >= 5, "{same} of 6 are the same throughout");
}

#[test]
fn a_stop_token_ends_a_completion_and_is_part_of_it_and_the_limit_ends_the_others() {
    let mut reasons = Vec::new();
    for completion in generate(&model::<Flex>(), &requests(), &sampling(), None).unwrap() {
        let tokens = completion.response_tokens();
        let stop = tokens.iter().position(|token| *token == 0);
        match completion.finish_reason().expect("it is finished") {
            FinishReason::Stop => assert_eq!(stop, Some(tokens.len() - 1)),
            reason => {
                assert_eq!(reason, FinishReason::Length);
                assert_eq!((stop, tokens.len()), (None, 12));
            }
        }
        reasons.push(completion.finish_reason());
    }
    assert!(reasons.contains(&Some(FinishReason::Stop)) && reasons.contains(&Some(FinishReason::Length)));
    let endless = SamplingSpec { stop_tokens: Vec::new(), ..sampling() };
    for completion in generate(&model::<Flex>(), &requests(), &endless, None).unwrap() {
        assert_eq!((completion.policy_len(), completion.finish_reason()), (12, Some(FinishReason::Length)));
    }
}

#[test]
fn a_stop_token_in_the_prompt_ends_nothing() {
    let request = GenerationRequest { prompt: [0, 5].into(), seed: 1 };
    let sampling = SamplingSpec { max_new_tokens: 1, ..sampling() };
    let completions = generate(&model::<Flex>(), &[request], &sampling, None).unwrap();
    assert_eq!(completions[0].policy_len(), 1);
}

#[test]
fn filters_bind_every_draw() {
    let model = model::<Flex>();
    let sampling = SamplingSpec { top_k: Some(2), ..sampling() };
    for completion in generate(&model, &requests(), &sampling, None).unwrap() {
        for position in completion.policy_positions() {
            let logits = last_logits(&model, &completion.tokens()[..position]);
            let drawn = logits[completion.tokens()[position] as usize];
            assert!(logits.iter().filter(|logit| **logit > drawn + 1e-5).count() < 2);
        }
    }
}

/// A decoder that notes how many rows each step has.
#[derive(Module, Debug)]
struct Watched<B: Backend> {
    decoder: Decoder<B>,
    #[module(skip)]
    rows: Arc<Mutex<Vec<usize>>>,
}

impl<B: FusedOps> CausalLm<B> for Watched<B> {
    type Cache = KvCache<B>;

    fn vocab_size(&self) -> usize {
        self.decoder.vocab_size()
    }
    fn max_positions(&self) -> usize {
        self.decoder.max_positions()
    }
    fn hidden(&self, tokens: Tensor<B, 2, Int>, positions: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        self.decoder.hidden(tokens, positions)
    }
    fn logits(&self, hidden: Tensor<B, 2>) -> Tensor<B, 2> {
        self.decoder.logits(hidden)
    }
    fn token_scores(
        &self,
        hidden: Tensor<B, 2>,
        targets: Tensor<B, 1, Int>,
        options: ScoreOptions,
    ) -> TokenScores<B> {
        self.decoder.token_scores(hidden, targets, options)
    }
    fn new_cache(&self, left_padding: &[usize], device: &B::Device) -> KvCache<B> {
        self.decoder.new_cache(left_padding, device)
    }
    fn extend(
        &self,
        tokens: Tensor<B, 2, Int>,
        positions: Tensor<B, 2, Int>,
        cache: &mut KvCache<B>,
    ) -> Tensor<B, 3> {
        self.rows.lock().expect("no other thread panicked").push(tokens.dims()[0]);
        self.decoder.extend(tokens, positions, cache)
    }
    fn retain_rows(&self, cache: &mut KvCache<B>, rows: &[usize]) {
        self.decoder.retain_rows(cache, rows);
    }
}

/// Each prompt is read once, for all that share it. Rows leave as soon as an eighth of the cached ones is finished.
#[test]
fn prompts_are_shared_and_finished_rows_leave_the_batch() {
    for requests in [requests(), crowd()] {
        let model = Watched::<Flex> { decoder: model(), rows: Arc::default() };
        let completions = generate(&model, &requests, &sampling(), None).unwrap();
        let rows = model.rows.lock().unwrap();
        let running = |step| completions.iter().filter(|completion| completion.policy_len() > step).count();
        assert_eq!(completions.iter().map(Completion::policy_len).max(), Some(rows.len()));
        let prompts: HashSet<&[TokenId]> = requests.iter().map(|request| &*request.prompt).collect();
        assert_eq!(rows[0], prompts.len());
        for (step, rows) in rows.iter().enumerate().skip(1) {
            assert!(
                running(step) <= *rows && (rows - running(step)) * 8 < *rows,
                "{rows} rows at step {step}"
            );
        }
        let after = &rows[1..];
        assert!(after.is_sorted_by(|a, b| a >= b) && after[after.len() - 1] < after[0], "{rows:?}");
    }
}

#[test]
fn each_completion_is_told_of_once_and_when_it_ends() {
    let model = model::<Flex>();
    let (requests, sampling) = (crowd(), sampling());
    let mut told: Vec<(usize, Completion)> = Vec::new();
    let policy = PolicyRef { model: &model, version: VERSION };
    let mut engine =
        EmbeddedEngine::<Flex>::new(Default::default()).with_max_batch_rows(NonZeroUsize::new(16).unwrap());
    let completions = engine
        .generate_each(policy, &requests, &sampling, &mut |request, completion| {
            told.push((request, completion.clone()));
        })
        .unwrap();
    let lengths = |rows: &[(usize, Completion)]| -> Vec<usize> {
        rows.iter().map(|(_, completion)| completion.policy_len()).collect()
    };
    let first_slice = told.iter().take_while(|(request, _)| *request < 16).count();
    assert_eq!(first_slice, 16, "the first slice ends before the second begins");
    assert!(lengths(&told[..16]).is_sorted(), "short completions are told of before long ones");
    assert!(lengths(&told[..16])[0] < sampling.max_new_tokens, "some end early");
    told.sort_by_key(|(request, _)| *request);
    assert!(told.iter().map(|(request, _)| *request).eq(0..requests.len()));
    assert!(told.into_iter().map(|(_, completion)| completion).eq(completions));
}

#[test]
fn parts_tell_of_each_completion_once_under_its_own_index() {
    let model = model::<Flex>();
    let mut told = Vec::new();
    let policy = PolicyRef { model: &model, version: VERSION };
    let completions = EmbeddedEngine::<Flex>::new(Default::default())
        .with_parts(NonZeroUsize::new(3).unwrap())
        .with_max_batch_rows(NonZeroUsize::new(5).unwrap())
        .generate_each(policy, &crowd(), &sampling(), &mut |request, completion| {
            told.push((request, completion.clone()));
        })
        .unwrap();
    told.sort_by_key(|(request, _)| *request);
    assert!(told.iter().map(|(request, _)| *request).eq(0..crowd().len()));
    assert!(told.into_iter().map(|(_, completion)| completion).eq(completions));
}

#[test]
fn requests_that_cannot_be_served_are_named() {
    let model = model::<Flex>();
    let message = |prompt: &[TokenId], sampling: &SamplingSpec| {
        let good = GenerationRequest { prompt: [1].into(), seed: 1 };
        let bad = GenerationRequest { prompt: prompt.into(), seed: 2 };
        generate(&model, &[good, bad], sampling, None).unwrap_err().to_string()
    };
    let error = message(&[], &sampling());
    assert!(error.starts_with("request 1: the prompt has no token"), "{error}");
    let error = message(&[1; 13], &sampling());
    assert!(
        error.starts_with("request 1: 13 prompt tokens + 12 new tokens exceed the model's 24"),
        "{error}"
    );
    let error = message(&[1, 12], &sampling());
    assert!(error.contains("request 1: the prompt has token 12"), "{error}");
    let error = message(&[1], &SamplingSpec { top_p: 0.0, ..sampling() });
    assert!(error.starts_with("sampling.top_p = 0"), "{error}");
    assert!(generate(&model, &[], &sampling(), None).unwrap().is_empty());
    let longest = GenerationRequest { prompt: [1; 12].into(), seed: 1 };
    assert!(generate(&model, &[longest], &sampling(), None).is_ok());
}

#[test]
fn logits_that_are_not_finite_name_the_request() {
    struct Spoil;
    impl<B: Backend> ModuleMapper<B> for Spoil {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
            param.map(|value| value * f64::NAN)
        }
    }
    let model = model::<Flex>().map(&mut Spoil);
    let error = generate(&model, &requests(), &sampling(), Some(4)).unwrap_err();
    assert!(matches!(error, RolloutError::BadLogits { request: 0, position: 0, what: "NaN" }), "{error}");
}

//! Memory over many steps. A test binary of its own, since other tests would disturb the measure.
#![cfg(target_os = "linux")]

use burn::{
    backend::{Autodiff, Flex},
    module::AutodiffModule,
    optim::{AdamWConfig, GradientsParams, Optimizer},
    tensor::{Int, Tensor, TensorData, backend::Backend},
};
use firebrick_core::{CausalLm, EntropyMode, ScoreOptions, TokenScores};
use firebrick_models::{Decoder, DecoderConfig, FusedOps};

const ROWS: usize = 4;
const COLUMNS: usize = 16;

/// Most that the process may grow by. A graph that is kept costs about half a megabyte a step.
const SLACK: usize = 16 << 20;

fn config() -> DecoderConfig {
    DecoderConfig {
        vocab_size: 32,
        hidden_size: 32,
        intermediate_size: 48,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: None,
        max_position_embeddings: COLUMNS,
        rope_theta: 1e4,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: true,
        attention_bias: false,
        attention_output_bias: false,
        mlp_bias: false,
        rope_scaling: None,
        qk_norm: false,
        initializer_range: 0.05,
    }
}

fn int_tensor<B: Backend, const D: usize>(value: fn(usize) -> usize, shape: [usize; D]) -> Tensor<B, D, Int> {
    let values: Vec<i64> = (0..ROWS * COLUMNS).map(|index| value(index) as i64).collect();
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

fn scores<B: FusedOps>(model: &Decoder<B>) -> TokenScores<B> {
    let tokens = int_tensor(|index| index * 7 % 32, [ROWS, COLUMNS]);
    let positions = int_tensor(|index| index % COLUMNS, [ROWS, COLUMNS]);
    let hidden = model.hidden(tokens, positions).reshape([ROWS * COLUMNS, 32]);
    let targets = int_tensor(|index| (index + 1) * 7 % 32, [ROWS * COLUMNS]);
    let options =
        ScoreOptions { chunk_tokens: 24, entropy: EntropyMode::Detached, ..ScoreOptions::default() };
    model.token_scores(hidden, targets, options)
}

/// Bytes of the process that are in memory.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux describes every process");
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the field is always there");
    let kilobytes = line.trim().trim_end_matches(" kB").parse::<usize>().expect("the field is a number");
    kilobytes << 10
}

#[test]
fn training_steps_and_scores_on_the_inner_backend_keep_no_memory() {
    let mut model: Decoder<Autodiff<Flex>> =
        config().init(&Default::default(), 1).expect("the configuration is valid");
    let mut optimizer = AdamWConfig::new().init();
    let mut step = |_| {
        let scores = scores(&model);
        let entropies = scores.entropies.expect("entropies were asked for");
        let loss = -scores.log_probs.mean() + entropies.mean();
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-3, model.clone(), grads);
    };
    (0..30).for_each(&mut step);
    let before = resident_bytes();
    (0..300).for_each(&mut step);
    for _ in 0..300 {
        scores(&model.valid()).log_probs.into_data();
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < SLACK, "{grown} bytes are kept after 300 steps and 300 scores");
}

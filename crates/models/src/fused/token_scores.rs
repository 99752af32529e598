//! Log-probs and entropies of chosen tokens, composed.

use burn::tensor::{IndexingUpdateOp, Int, Tensor, backend::Backend};
use firebrick_core::{EntropyMode, ScoreOptions, TokenScores};

use super::{
    FusedOps,
    precision::{narrowed, widened},
};

pub(super) fn composed<B: FusedOps>(
    hidden: Tensor<B, 2>,
    head: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
    options: ScoreOptions,
) -> TokenScores<B> {
    assert!(options.chunk_tokens > 0, "chunk_tokens = 0: allowed is at least 1");
    let [tokens, _] = hidden.dims();
    let mut log_probs = Vec::new();
    let mut entropies = Vec::new();
    for start in (0..tokens).step_by(options.chunk_tokens) {
        let len = options.chunk_tokens.min(tokens - start);
        let (hidden, targets) = (chunk(&hidden, start, len), targets.clone().narrow(0, start, len));
        let logits = logits(hidden, head.clone(), options);
        match options.entropy {
            EntropyMode::Skip => {}
            EntropyMode::Detached => entropies.push(B::entropy(logits.clone())),
            EntropyMode::Attached => entropies.push(entropy(logits.clone())),
        }
        log_probs.push(chosen(logits, targets));
    }
    TokenScores {
        log_probs: Tensor::cat(log_probs, 0),
        entropies: (!entropies.is_empty()).then(|| Tensor::cat(entropies, 0)),
    }
}

/// Gradients of the hidden states and, if it is wanted, of the head, from those of log-probs and entropies, both `[N]`. Logits are computed again,
/// chunk by chunk: with p = softmax(z), ∂z = (∂log_prob·(1_y − p) − ∂entropy·p·(log p + entropy)) / temperature.
pub(super) fn composed_backward<B: Backend>(
    hidden: Tensor<B, 2>,
    head: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
    options: ScoreOptions,
    (log_prob_grad, entropy_grad): (Tensor<B, 1>, Option<Tensor<B, 1>>),
    head_wanted: bool,
) -> (Tensor<B, 2>, Option<Tensor<B, 2>>) {
    let ([tokens, _], dtype) = (hidden.dims(), hidden.dtype());
    let mut hidden_grads = Vec::new();
    let mut head_grad: Option<Tensor<B, 2>> = None;
    for start in (0..tokens).step_by(options.chunk_tokens) {
        let len = options.chunk_tokens.min(tokens - start);
        let column = |grad: Tensor<B, 1>| grad.narrow(0, start, len).unsqueeze_dim::<2>(1);
        let part = chunk(&hidden, start, len);
        let shifted = shifted(logits(part.clone(), head.clone(), options));
        let weights = shifted.clone().exp();
        let total = weights.clone().sum_dim(1);
        let probs = weights / total.clone();
        let given = column(log_prob_grad.clone());
        let mut grad = probs.clone() * given.clone().neg();
        if let Some(entropy_grad) = &entropy_grad {
            let log_probs = shifted - total.log();
            let entropy = (probs.clone() * log_probs.clone()).sum_dim(1).neg();
            grad = grad - probs * (log_probs + entropy) * column(entropy_grad.clone());
        }
        let targets = targets.clone().narrow(0, start, len).unsqueeze_dim(1);
        let grad = grad.scatter(1, targets, given, IndexingUpdateOp::Add).div_scalar(options.temperature);
        let grad = narrowed(grad, dtype);
        hidden_grads.push(grad.clone().matmul(head.clone().transpose()));
        if head_wanted {
            let part = part.transpose().matmul(grad);
            head_grad = Some(match head_grad.take() {
                Some(sum) => sum + part,
                None => part,
            });
        }
    }
    (Tensor::cat(hidden_grads, 0), head_grad)
}

/// Logits over the temperature, in f32 or wider.
fn logits<B: Backend>(hidden: Tensor<B, 2>, head: Tensor<B, 2>, options: ScoreOptions) -> Tensor<B, 2> {
    let logits = widened(hidden.matmul(head));
    match options.temperature == 1.0 {
        true => logits,
        false => logits.div_scalar(options.temperature),
    }
}

/// Logits moved so that the highest of each row is 0.
fn shifted<B: Backend>(logits: Tensor<B, 2>) -> Tensor<B, 2> {
    let highest = logits.clone().detach().max_dim(1);
    logits - highest
}

/// Rows `start..start + len`; the tensor itself when that is all of them, which saves its gradient a copy.
fn chunk<B: Backend>(hidden: &Tensor<B, 2>, start: usize, len: usize) -> Tensor<B, 2> {
    if len == hidden.dims()[0] { hidden.clone() } else { hidden.clone().narrow(0, start, len) }
}

/// Log-probs z_y − log Σ e^z of the targets y: `[N, V]` and `[N]` to `[N]`.
fn chosen<B: Backend>(logits: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    let shifted = shifted(logits);
    let picked = shifted.clone().gather(1, targets.unsqueeze_dim(1));
    (picked - shifted.exp().sum_dim(1).log()).squeeze_dim(1)
}

/// Entropies log Σ e^z − Σ z·e^z / Σ e^z of logits shifted so that the highest is 0: `[N, V]` to `[N]`.
pub(super) fn entropy<B: Backend>(logits: Tensor<B, 2>) -> Tensor<B, 1> {
    let shifted = shifted(logits);
    let weights = shifted.clone().exp();
    let total = weights.clone().sum_dim(1);
    let mean = (shifted * weights).sum_dim(1) / total.clone();
    (total.log() - mean).squeeze_dim(1)
}

#[cfg(test)]
mod tests {
    use burn::{
        backend::Autodiff,
        tensor::{Int, Tensor, activation::log_softmax, backend::Backend},
    };
    use firebrick_core::{EntropyMode, ScoreOptions};

    use crate::{
        FusedOps,
        testing::{assert_close, int_tensor, numbers, on_both_backends, tensor, values},
    };

    const TOKENS: usize = 5;
    const WIDTH: usize = 3;
    const VOCAB: usize = 7;

    fn inputs<B: Backend>() -> (Tensor<B, 2>, Tensor<B, 2>, Tensor<B, 1, Int>) {
        let hidden = tensor(&numbers(1, TOKENS * WIDTH), [TOKENS, WIDTH]);
        let head = tensor(&numbers(2, WIDTH * VOCAB), [WIDTH, VOCAB]);
        (hidden, head, int_tensor([6, 0, 3, 3, 1], [TOKENS]))
    }

    fn options(temperature: f64, chunk_tokens: usize, entropy: EntropyMode) -> ScoreOptions {
        ScoreOptions { temperature, chunk_tokens, entropy }
    }

    /// Scores of logits that are given directly.
    fn of_logits<B: FusedOps>(logits: [f32; 2], temperature: f64) -> (Vec<f64>, Vec<f64>) {
        let hidden = tensor::<B, 2>(&logits.repeat(2), [2, 2]);
        let head = tensor(&[1.0, 0.0, 0.0, 1.0], [2, 2]);
        let options = options(temperature, 8, EntropyMode::Detached);
        let scores = B::token_scores(hidden, head, int_tensor([0, 1], [2]), options);
        (values(&scores.log_probs), values(&scores.entropies.unwrap()))
    }

    on_both_backends! {
        /// Logits (2, 0) at temperature 0.5 are (4, 0): with u = e⁻⁴, p = 1/(1 + u) = 0.982014, log p =
        /// −0.018150 and −4.018150, entropy = log(1 + u) + 4u/(1 + u) = 0.018150 + 0.071945 = 0.090095.
        fn temperature_divides_the_logits_of_log_probs_and_entropy<B>() {
            let (log_probs, entropies) = of_logits::<B>([2.0, 0.0], 0.5);
            assert_close(&log_probs, &[-0.018_150, -4.018_150], 1e-6);
            assert_close(&entropies, &[0.090_095; 2], 1e-6);
        }

        /// verl 0.10.0.dev on torch 2.15.0: log-probs, entropies, and the gradients of the masked sum of the former and the
        /// masked mean of the latter with respect to the logits; `tests/golden/verl_logits.json`.
        fn log_probs_and_entropies_and_their_gradients_are_those_of_verl<B>() {
            let text = include_str!("../../tests/golden/verl_logits.json");
            let record: serde_json::Value = serde_json::from_str(text).unwrap();
            let record = &record["logits"];
            let numbers = |key: &str| -> Vec<f64> {
                fn flatten(value: &serde_json::Value, into: &mut Vec<f64>) {
                    match value {
                        serde_json::Value::Array(values) => values.iter().for_each(|value| flatten(value, into)),
                        other => into.push(other.as_f64().unwrap()),
                    }
                }
                let mut flat = Vec::new();
                flatten(&record[key], &mut flat);
                flat
            };
            let (labels, mask) = (numbers("labels"), numbers("mask"));
            let count = labels.len();
            let logits: Vec<f32> = numbers("logits").iter().map(|value| *value as f32).collect();
            let vocabulary = logits.len() / count;
            // An identity for a head: the hidden states are the logits.
            let head: Vec<f32> =
                (0..vocabulary * vocabulary).map(|i| f32::from(u8::from(i % (vocabulary + 1) == 0))).collect();
            let ids: Vec<usize> = labels.iter().map(|label| *label as usize).collect();
            let weights = |scale: f64| {
                let values: Vec<f32> = mask.iter().map(|value| (value * scale) as f32).collect();
                tensor::<Autodiff<B>, 1>(&values, [count])
            };
            let scores = |hidden: &Tensor<Autodiff<B>, 2>| {
                let head = tensor(&head, [vocabulary, vocabulary]);
                let targets = int_tensor(ids.clone(), [count]);
                <Autodiff<B> as FusedOps>::token_scores(hidden.clone(), head, targets, options(1.0, 4, EntropyMode::Attached))
            };
            let hidden = || tensor::<Autodiff<B>, 2>(&logits, [count, vocabulary]).require_grad();

            let input = hidden();
            let found = scores(&input);
            assert_close(&values(&found.log_probs), &numbers("logprobs"), 1e-5);
            let gradients = (found.log_probs * weights(1.0)).sum().backward();
            assert_close(&values(&input.grad(&gradients).unwrap()), &numbers("logprob_masked_sum_grad"), 1e-5);

            let input = hidden();
            let entropies = scores(&input).entropies.unwrap();
            assert_close(&values(&entropies), &numbers("entropy"), 1e-5);
            let gradients = (entropies * weights(1.0 / mask.iter().sum::<f64>())).sum().backward();
            assert_close(&values(&input.grad(&gradients).unwrap()), &numbers("entropy_token_mean_grad"), 1e-5);
        }

        fn logits_far_beyond_the_range_of_exp_are_all_right<B>() {
            let (log_probs, entropies) = of_logits::<B>([1000.0, -1000.0], 1.0);
            assert_close(&log_probs, &[0.0, -2000.0], 0.0);
            assert_close(&entropies, &[0.0; 2], 0.0);
        }

        fn chunks_of_any_size_give_the_same_scores<B>() {
            let (hidden, head, targets) = inputs::<B>();
            let scores = [1, 3, TOKENS, 100].map(|chunk| {
                let options = options(0.7, chunk, EntropyMode::Detached);
                let scores = B::token_scores(hidden.clone(), head.clone(), targets.clone(), options);
                (values(&scores.log_probs), values(&scores.entropies.unwrap()))
            });
            for (log_probs, entropies) in &scores {
                assert_close(log_probs, &scores[2].0, 1e-6);
                assert_close(entropies, &scores[2].1, 1e-6);
            }
        }

        fn value_and_gradient_are_those_of_a_gathered_log_softmax<B>() {
            let weights = tensor::<Autodiff<B>, 1>(&numbers(3, TOKENS), [TOKENS]);
            let run = |chunk: Option<usize>| {
                let (hidden, head, targets) = inputs::<Autodiff<B>>();
                let (hidden, head) = (hidden.require_grad(), head.require_grad());
                let log_probs = match chunk {
                    Some(chunk) => {
                        let options = options(0.7, chunk, EntropyMode::Skip);
                        let scores =
                            FusedOps::token_scores(hidden.clone(), head.clone(), targets, options);
                        assert!(scores.entropies.is_none());
                        scores.log_probs
                    }
                    None => log_softmax(hidden.clone().matmul(head.clone()).div_scalar(0.7), 1)
                        .gather(1, targets.unsqueeze_dim(1))
                        .squeeze_dim(1),
                };
                let grads = (log_probs.clone() * weights.clone()).sum().backward();
                let grads = [hidden.grad(&grads).unwrap(), head.grad(&grads).unwrap()];
                (values(&log_probs), grads.map(|grad| values(&grad)))
            };
            let (expected, expected_grads) = run(None);
            for chunk in [2, TOKENS] {
                let (log_probs, grads) = run(Some(chunk));
                assert_close(&log_probs, &expected, 1e-6);
                for (grad, expected) in grads.iter().zip(&expected_grads) {
                    assert_close(grad, expected, 1e-5);
                }
            }
        }

        fn no_gradient_flows_through_the_entropy<B>() {
            let run = |entropy_weight: f64| {
                let (hidden, head, targets) = inputs::<Autodiff<B>>();
                let hidden = hidden.require_grad();
                let options = options(1.0, 2, EntropyMode::Detached);
                let scores = FusedOps::token_scores(hidden.clone(), head, targets, options);
                let entropies = scores.entropies.unwrap();
                let loss = scores.log_probs.sum() + entropies.sum() * entropy_weight;
                values(&hidden.grad(&loss.backward()).unwrap())
            };
            let grad = run(0.0);
            assert!(grad.iter().any(|x| x.abs() > 0.01));
            assert_eq!(grad, run(5.0));
        }
    }
}

//! The decoder once more, in plain f64 loops over one row: what the tests compare with.

use std::collections::BTreeMap;

use burn::tensor::backend::Backend;

use crate::{Decoder, DecoderConfig, weights};

/// A decoder's weights under their names on Hugging Face, matrices as `[outputs, inputs]`.
#[derive(Clone)]
pub(crate) struct ReferenceDecoder {
    config: DecoderConfig,
    pub(crate) weights: BTreeMap<String, Vec<f64>>,
}

type Rows = Vec<Vec<f64>>;

impl ReferenceDecoder {
    pub(crate) fn of<B: Backend>(config: &DecoderConfig, model: &Decoder<B>) -> Self {
        let tensors = weights::collect(model).into_iter();
        let weights = tensors.map(|(name, tensor)| (name, tensor.iter::<f64>().collect())).collect();
        Self { config: config.clone(), weights }
    }

    /// Logits after each token: `[S][V]`.
    pub(crate) fn logits(&self, tokens: &[usize]) -> Rows {
        let width = self.config.hidden_size;
        let embedding = &self.weights["model.embed_tokens.weight"];
        let mut x: Rows =
            tokens.iter().map(|token| embedding[token * width..(token + 1) * width].to_vec()).collect();
        for layer in 0..self.config.num_hidden_layers {
            let prefix = format!("model.layers.{layer}.");
            let normed = self.norm(&format!("{prefix}input_layernorm"), &x);
            add(&mut x, &self.attention(&format!("{prefix}self_attn."), &normed));
            let normed = self.norm(&format!("{prefix}post_attention_layernorm"), &x);
            let mut inner = self.project(&format!("{prefix}mlp.gate_proj"), &normed);
            let up = self.project(&format!("{prefix}mlp.up_proj"), &normed);
            for (gate, up) in inner.iter_mut().flatten().zip(up.iter().flatten()) {
                *gate *= up / (1.0 + (-*gate).exp());
            }
            add(&mut x, &self.project(&format!("{prefix}mlp.down_proj"), &inner));
        }
        let head = if self.config.tie_word_embeddings { "model.embed_tokens" } else { "lm_head" };
        self.project(head, &self.norm("model.norm", &x))
    }

    /// log softmax of the logits after each token at the token that follows.
    pub(crate) fn next_log_probs(&self, tokens: &[usize]) -> Vec<f64> {
        let logits = self.logits(tokens);
        let next = logits.iter().zip(&tokens[1..]);
        next.map(|(row, target)| row[*target] - row.iter().map(|z| z.exp()).sum::<f64>().ln()).collect()
    }

    fn project(&self, name: &str, x: &Rows) -> Rows {
        let weight = &self.weights[&format!("{name}.weight")];
        let bias = self.weights.get(&format!("{name}.bias"));
        let project = |row: &Vec<f64>| {
            let outputs = weight.chunks_exact(row.len()).enumerate();
            outputs.map(|(index, weights)| dot(weights, row) + bias.map_or(0.0, |bias| bias[index])).collect()
        };
        x.iter().map(project).collect()
    }

    fn norm(&self, name: &str, x: &Rows) -> Rows {
        let weight = &self.weights[&format!("{name}.weight")];
        x.iter().map(|row| rms_norm(row, weight, self.config.rms_norm_eps)).collect()
    }

    fn attention(&self, prefix: &str, x: &Rows) -> Rows {
        let config = &self.config;
        let (heads, kv_heads) = (config.num_attention_heads, config.num_key_value_heads);
        let split = |name: &str| -> Vec<Rows> {
            let projected = self.project(&format!("{prefix}{name}_proj"), x);
            let norm = self.weights.get(&format!("{prefix}{name}_norm.weight"));
            let head = |row: &[f64]| match norm {
                Some(weight) => rms_norm(row, weight, config.rms_norm_eps),
                None => row.to_vec(),
            };
            projected.iter().map(|row| row.chunks_exact(config.head_size()).map(head).collect()).collect()
        };
        let turned = |x: Vec<Rows>| -> Vec<Rows> {
            let turn = |(position, heads): (usize, Rows)| {
                heads.iter().map(|head| rotated(head, position, config.rope_theta)).collect()
            };
            x.into_iter().enumerate().map(turn).collect()
        };
        let (queries, keys, values) = (turned(split("q")), turned(split("k")), split("v"));
        let attended = (0..x.len()).map(|query| {
            let head = |head: usize| {
                let shared = head * kv_heads / heads;
                let keys = keys[..=query].iter().map(|heads| heads[shared].as_slice());
                let values = values[..=query].iter().map(|heads| heads[shared].as_slice());
                attend(&queries[query][head], keys, values)
            };
            (0..heads).flat_map(head).collect()
        });
        self.project(&format!("{prefix}o_proj"), &attended.collect())
    }
}

/// Σ softmax(q·k/√E)·v for one query.
pub(crate) fn attend<'a>(
    query: &[f64],
    keys: impl Iterator<Item = &'a [f64]>,
    values: impl Iterator<Item = &'a [f64]>,
) -> Vec<f64> {
    let scale = (query.len() as f64).sqrt();
    let weights: Vec<f64> = keys.map(|key| (dot(query, key) / scale).exp()).collect();
    let total: f64 = weights.iter().sum();
    let mut out = vec![0.0; query.len()];
    for (weight, value) in weights.iter().zip(values) {
        for (out, value) in out.iter_mut().zip(value) {
            *out += weight / total * value;
        }
    }
    out
}

/// Turns the pairs (i, i + E/2) of a head at `position`.
pub(crate) fn rotated(head: &[f64], position: usize, theta: f64) -> Vec<f64> {
    let half = head.len() / 2;
    let mut out = head.to_vec();
    for pair in 0..half {
        let angle = position as f64 * theta.powf(-(pair as f64) / half as f64);
        out[pair] = head[pair] * angle.cos() - head[pair + half] * angle.sin();
        out[pair + half] = head[pair + half] * angle.cos() + head[pair] * angle.sin();
    }
    out
}

pub(crate) fn rms_norm(row: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    let scale = (dot(row, row) / row.len() as f64 + eps).sqrt();
    row.iter().zip(weight).map(|(x, weight)| weight * x / scale).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(x: &mut Rows, other: &Rows) {
    for (x, other) in x.iter_mut().flatten().zip(other.iter().flatten()) {
        *x += other;
    }
}

//! How much memory a run will need.
//!
//! The estimate counts tensors in f32, as the run is composed today: what the backward pass of an operation will ask for is kept. It leaves out the program itself with its libraries (20 to 30 MB on a CPU, some
//! hundred on a GPU), data and completions on the host, the rotary tables, what an operation needs only while it runs,
//! the warm start (whose micro-batches are bounded by the same `micro_batch_tokens`), and what an allocator keeps or wastes.
//! Expect it to be right to a factor of two, not to a megabyte: one optimizer step of a decoder of 0.8 million parameters on
//! 64 × 64 tokens is put at 258 MiB, of 6.4 million on 32 × 128 tokens at 970 MiB, and the processes that took such steps on
//! a CPU had 281 and 1005 MiB resident at the peak.

use std::fmt;

use firebrick_core::ScoreOptions;
use firebrick_models::{DecoderConfig, ModelError};

use crate::RunConfig;

/// Bytes of an f32.
const FLOAT: u64 = 4;

/// Parts that live while completions are generated.
const GENERATION: [&str; 1] = ["key-value cache"];

/// Parts that live during an optimizer step. The rest lives all the time.
const OPTIMIZER_STEP: [&str; 3] = ["gradients", "activations", "logits"];

/// Bytes of the tensors of a run, by part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// The parts with their bytes:
    ///
    /// | part | lives | is |
    /// |---|---|---|
    /// | `weights` | always | one number per parameter |
    /// | `optimizer moments` | always | two per trained parameter: all, or those of the adapter |
    /// | `reference policy` | always | a second copy of the weights, when the objective asks for reference log-probs and all weights are trained |
    /// | `key-value cache` | in generation | keys and values of every layer for all rows that an engine serves at once |
    /// | `gradients` | in an optimizer step | one number per trained parameter, for each of the parts side by side |
    /// | `activations` | in an optimizer step | what the layers keep for the backward pass of the largest micro-batch, of all parts |
    /// | `logits` | in an optimizer step | the work on one chunk of its response tokens |
    pub parts: Vec<(&'static str, u64)>,
}

impl MemoryEstimate {
    /// The estimate for a valid config on prompts of at most `longest_prompt` tokens.
    ///
    /// The largest micro-batch is taken to hold prompts of this length with responses of `max_new_tokens`, and the engine to
    /// be full, as it is in an evaluation of that many completions.
    ///
    /// # Errors
    /// When the folder of a pretrained model cannot be read.
    pub fn of(config: &RunConfig, longest_prompt: usize) -> Result<Self, ModelError> {
        let (model, adapter) = (config.decoder()?, config.adapter()?);
        let frozen = FLOAT * if adapter.is_some() { model.parameter_count() as u64 } else { 0 };
        let trained = adapter.as_ref().map_or(model.parameter_count(), |lora| lora.parameter_count(&model));
        let trained = FLOAT * trained as u64;
        let micro_batch = MicroBatch::largest(config, &model, longest_prompt);
        let mut parts = vec![("weights", frozen + trained), ("optimizer moments", 2 * trained)];
        let requirements = config.objective.build().requirements();
        if requirements.reference_log_probs && adapter.is_none() {
            parts.push(("reference policy", trained));
        }
        if requirements.values {
            parts.push(("critic with moments", 3 * trained));
        }
        parts.extend([
            ("key-value cache", cache(config, &model, micro_batch.positions)),
            ("gradients", micro_batch.parts * trained),
            ("activations", micro_batch.activations(config, &model)),
            ("logits", micro_batch.logits(&model)),
        ]);
        Ok(Self { parts })
    }

    /// Bytes at the peak: generation and optimizer steps take turns, so the smaller of the two is not counted.
    pub fn total(&self) -> u64 {
        let always = self.sum(|name| !GENERATION.contains(&name) && !OPTIMIZER_STEP.contains(&name));
        always + self.generation().max(self.optimizer_step())
    }

    /// Bytes that are there only while completions are generated.
    pub(crate) fn generation(&self) -> u64 {
        self.sum(|name| GENERATION.contains(&name))
    }

    /// Bytes that are there only in an optimizer step.
    pub(crate) fn optimizer_step(&self) -> u64 {
        self.sum(|name| OPTIMIZER_STEP.contains(&name))
    }

    fn sum(&self, of: impl Fn(&str) -> bool) -> u64 {
        self.parts.iter().filter(|(name, _)| of(name)).map(|(_, bytes)| bytes).sum()
    }
}

impl fmt::Display for MemoryEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        for (name, bytes) in &self.parts {
            writeln!(f, "{name:<18} {:>10.1} MiB", mebibytes(*bytes))?;
        }
        write!(f, "{:<18} {:>10.1} MiB", "total at the peak", mebibytes(self.total()))
    }
}

/// Keys and values of a full engine.
fn cache(config: &RunConfig, model: &DecoderConfig, positions: u64) -> u64 {
    let keys = (model.num_key_value_heads * model.head_size()) as u64;
    FLOAT * config.train.engine_rows as u64 * positions * model.num_hidden_layers as u64 * 2 * keys
}

/// The micro-batches side by side that need most: all rows as long as a row can be.
struct MicroBatch {
    parts: u64,
    /// Of all parts.
    rows: u64,
    /// Of a whole row; the last one is predicted only.
    positions: u64,
    /// Of a response.
    scored: u64,
}

impl MicroBatch {
    fn largest(config: &RunConfig, model: &DecoderConfig, longest_prompt: usize) -> Self {
        let train = &config.train;
        let new = train.sampling.max_new_tokens;
        let positions = longest_prompt.saturating_add(new).clamp(1, model.max_position_embeddings.max(1));
        let rows = train.prompts_per_step.div_ceil(train.mini_batches.max(1)) * train.group_size;
        let parts = train.parallel_parts.clamp(1, rows.max(1));
        let rows = train
            .micro_batch_limit_of_part()
            .map_or(rows, |limit| (parts * (limit / positions).max(1)).clamp(1, rows.max(1)));
        Self {
            parts: parts as u64,
            rows: rows as u64,
            positions: positions as u64,
            scored: new.min(positions) as u64,
        }
    }

    /// Numbers that the backward pass asks for again; the operations stand in `firebrick-models`.
    fn activations(&self, config: &RunConfig, model: &DecoderConfig) -> u64 {
        let width = model.hidden_size as u64;
        let [queries, keys] = [model.num_attention_heads, model.num_key_value_heads]
            .map(|heads| (heads * model.head_size()) as u64);
        let columns = self.positions - 1;

        // A norm keeps what it is given, and the projections that read it keep its output.
        let pre_norms = 2 * 2 * width;
        let head_norms = if model.qk_norm { queries + keys } else { 0 };
        // Turned queries and keys, values, and what the output projection reads: scores are computed again.
        let attention = 2 * queries + 2 * keys;
        // Gate, what is gated, and the result for the last projection.
        let feed_forward = 3 * model.intermediate_size as u64;
        let layer = pre_norms + head_norms + attention + feed_forward;
        let layers = model.num_hidden_layers as u64;
        // Computed again, those of one layer exist at a time, beside the inputs of all.
        let layers = if config.train.recompute_activations { layers * width + layer } else { layers * layer };
        // Cosines and sines, the same for all layers.
        let angles = 2 * (queries + keys);
        let of_tokens = self.rows * columns * (layers + angles + width);
        FLOAT * (of_tokens + self.rows * self.scored * width)
    }

    /// Four numbers for each logit of one chunk: itself, its exponential, its probability and its gradient. None is kept.
    fn logits(&self, model: &DecoderConfig) -> u64 {
        let tokens = self.rows * self.scored;
        let chunk = tokens.min(self.parts * ScoreOptions::default().chunk_tokens as u64);
        FLOAT * model.vocab_size as u64 * 4 * chunk
    }
}

#[cfg(test)]
mod tests {
    use firebrick_objectives::ObjectiveConfig;

    use super::*;
    use crate::ModelSection;

    /// 2 layers of width 8 with 2 query heads and 1 head of keys of width 4; 4 × 3 completions of at most 5 + 4 tokens.
    fn config() -> RunConfig {
        r#"
            [run]
            directory = "run"
            [data]
            train = "train.jsonl"
            held_out = "held_out.jsonl"
            [tokenizer]
            alphabet = "0123"
            [model]
            vocab_size = 10
            hidden_size = 8
            intermediate_size = 6
            num_hidden_layers = 2
            num_attention_heads = 2
            num_key_value_heads = 1
            max_position_embeddings = 20
            [train]
            seed = 1
            steps = 1
            prompts_per_step = 4
            group_size = 3
            micro_batch_tokens = 0
            sampling = { max_new_tokens = 4 }
            optimizer = { learning_rate = 1e-3 }
            [objective]
            type = "dapo"
            [evaluation]
            samples = 1
        "#
        .parse()
        .expect("the config is valid")
    }

    fn decoder(config: &mut RunConfig) -> &mut DecoderConfig {
        match &mut config.model {
            ModelSection::Scratch(decoder) => decoder,
            ModelSection::Pretrained(model) => panic!("a model made from scratch, not {model:?}"),
        }
    }

    fn part(config: &RunConfig, name: &str) -> Option<u64> {
        let parts = MemoryEstimate::of(config, 5).unwrap().parts;
        parts.into_iter().find(|(part, _)| *part == name).map(|(_, bytes)| bytes)
    }

    /// Parameters: 2·80 + 2·(2·64 + 2·32 + 3·48 + 16) + 8 = 872.
    /// Activations of a token in a layer: 2·2·8 + 2·8 + 2·4 + 3·6 = 74; of a token in all: 2·74 + 2·12 + 8 = 180. There are
    /// 12·8 tokens, and 12·4 scored ones of width 8.
    /// Logits: 12·4 tokens, all in one chunk, four times over 10 ids.
    #[test]
    fn the_parts_are_those_computed_by_hand() {
        let estimate = MemoryEstimate::of(&config(), 5).unwrap();
        let expected = [
            ("weights", 4 * 872),
            ("optimizer moments", 8 * 872),
            ("key-value cache", 4 * 512 * 9 * 2 * 2 * 4),
            ("gradients", 4 * 872),
            ("activations", 4 * (12 * 8 * 180 + 12 * 4 * 8)),
            ("logits", 4 * 4 * 48 * 10),
        ];
        assert_eq!(estimate.parts, expected);
        assert_eq!(estimate.total(), 12 * 872 + 4 * 512 * 9 * 16);
    }

    /// The cache of 512 rows is the larger in `config`; a vocabulary of a thousand makes the optimizer step the larger.
    #[test]
    fn generation_and_optimizer_steps_take_turns_at_the_peak() {
        let mut config = config();
        decoder(&mut config).vocab_size = 1000;
        let bytes = |name| part(&config, name).unwrap();
        let step = bytes("gradients") + bytes("activations") + bytes("logits");
        assert!(step > bytes("key-value cache"));
        let total = MemoryEstimate::of(&config, 5).unwrap().total();
        assert_eq!(total, bytes("weights") + bytes("optimizer moments") + step);
    }

    /// Two inputs of width 8 and one layer of 74 numbers, where two layers were kept.
    #[test]
    fn layers_that_are_computed_again_count_once_beside_their_inputs() {
        let mut again = config();
        again.train.recompute_activations = true;
        let [again, kept] = [again, config()].map(|config| part(&config, "activations").unwrap());
        assert_eq!(kept - again, 4 * 12 * 8 * (2 * 74 - (2 * 8 + 74)));
    }

    #[test]
    fn norms_of_heads_are_counted() {
        let mut with = config();
        decoder(&mut with).qk_norm = true;
        let [with, without] = [with, config()].map(|config| part(&config, "activations").unwrap());
        assert_eq!(with - without, 4 * 12 * 8 * 2 * (8 + 4));
    }

    #[test]
    fn a_larger_group_and_larger_micro_batches_never_need_less() {
        let totals = |change: &dyn Fn(&mut RunConfig, usize)| -> Vec<u64> {
            let total = |value| {
                let mut config = config();
                decoder(&mut config).vocab_size = 1000;
                change(&mut config, value);
                MemoryEstimate::of(&config, 5).unwrap().total()
            };
            [1, 2, 9, 20, 50, 100, 1000].map(total).to_vec()
        };
        let by_group = totals(&|config, value| config.train.group_size = value);
        let by_micro_batch = totals(&|config, value| config.train.micro_batch_tokens = value);
        for totals in [by_group, by_micro_batch] {
            assert!(totals.is_sorted() && totals[0] < totals[6], "{totals:?}");
        }
    }

    /// 30 positions hold three rows of nine; one holds one; a million and 0 hold all.
    #[test]
    fn micro_batches_hold_as_many_whole_rows_as_fit() {
        let rows = |limit| {
            let mut config = config();
            config.train.micro_batch_tokens = limit;
            part(&config, "activations").unwrap() / (4 * (8 * 180 + 4 * 8))
        };
        assert_eq!([30, 1, 1_000_000, 0].map(rows), [3, 1, 12, 12]);
        let rows_of_three_parts = |limit| {
            let mut config = config();
            config.train.micro_batch_tokens = limit;
            config.train.parallel_parts = 3;
            assert_eq!(part(&config, "gradients"), Some(3 * 4 * 872));
            part(&config, "activations").unwrap() / (4 * (8 * 180 + 4 * 8))
        };
        assert_eq!([60, 30, 1, 1_000_000, 0].map(rows_of_three_parts), [6, 3, 3, 12, 12]);
        let mut dealt_out = config();
        dealt_out.train.mini_batches = 3;
        assert_eq!(part(&dealt_out, "logits"), Some(4 * 4 * (2 * 3 * 4) * 10));
    }

    #[test]
    fn the_reference_policy_is_there_only_with_a_kl_penalty() {
        let mut config = config();
        assert_eq!(part(&config, "reference policy"), None);
        config.objective = ObjectiveConfig::preset("grpo").unwrap();
        assert_eq!(part(&config, "reference policy"), Some(4 * 872));
    }

    /// The process was measured at a peak of 83 MB, of which 20 to 30 MB are the program; its prompts have up to 20 tokens.
    #[test]
    fn the_math_run_is_estimated_to_a_factor_of_two() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/math-cpu.toml");
        let estimate = MemoryEstimate::of(&RunConfig::read(&path).unwrap(), 20).unwrap();
        let megabytes = estimate.total() as f64 / 1e6;
        assert!((58.0 / 2.0..58.0 * 2.0).contains(&megabytes), "{estimate}");
    }

    #[test]
    fn the_table_shows_mebibytes_and_the_peak() {
        let parts = vec![("weights", 3 << 20), ("key-value cache", 5 << 19), ("gradients", 1 << 20)];
        let expected = "weights                   3.0 MiB\nkey-value cache           2.5 MiB\n\
            gradients                 1.0 MiB\ntotal at the peak         5.5 MiB";
        assert_eq!(MemoryEstimate { parts }.to_string(), expected);
    }
}

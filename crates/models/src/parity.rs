//! Tiny models of each family, compared with the numbers that transformers and PEFT computed (`tests/parity`).
//!
//! Shapes: B rows, S positions, N tokens, D hidden size, V vocabulary.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use burn::{
    backend::Autodiff,
    module::{AutodiffModule, Module, ModuleMapper, Param},
    tensor::{
        Tensor, TensorData,
        backend::{AutodiffBackend, Backend},
    },
};
use firebrick_core::{CausalLm, ScoreOptions};

use crate::{
    Decoder, FusedOps, ModelFolder, load_tensors,
    testing::{int_tensor, on_both_backends, values},
    weights,
};

/// Largest absolute difference of a logit and of a log-prob.
const LOGITS: f64 = 1e-4;

/// Largest difference of a gradient, as a share of the largest entry of its tensor.
const GRADIENTS: f64 = 1e-3;

/// What a fixture says.
struct Expected {
    tensors: BTreeMap<String, TensorData>,
    /// The real tokens of each row.
    rows: Vec<Vec<usize>>,
    columns: usize,
}

impl Expected {
    fn read(case: &Path) -> Self {
        let tensors = load_tensors(case.join("expected.safetensors")).unwrap();
        let columns = tensors["tokens"].shape[1];
        let tokens: Vec<i64> = tensors["tokens"].iter::<i64>().collect();
        let lengths = tensors["lengths"].iter::<i64>();
        let rows = tokens.chunks_exact(columns).zip(lengths).map(|(row, length)| {
            row[columns - length as usize..].iter().map(|token| *token as usize).collect()
        });
        let rows = rows.collect();
        Self { tensors, rows, columns }
    }

    fn list(&self, name: &str) -> Vec<f64> {
        self.tensors[name].iter::<f64>().collect()
    }

    /// The numbers of row `row` at its real tokens, from a tensor `[B, S, ..]` of `width` numbers a token.
    fn of_row(&self, name: &str, row: usize, width: usize) -> Vec<f64> {
        let (list, columns) = (self.list(name), self.tensors[name].shape[1]);
        let end = (row + 1) * columns * width;
        let first = end - (self.rows[row].len() + columns - self.columns) * width;
        list[first..end].to_vec()
    }
}

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parity").join(name)
}

#[track_caller]
fn assert_near(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let close = (found - expected).abs() <= tolerance; // false for NaN
        assert!(close, "{what}, entry {index}: found {found}, expected {expected}");
    }
}

/// Logits of every real token, row after row, of rows that are padded on the right.
fn full_pass<B: FusedOps>(model: &Decoder<B>, rows: &[Vec<usize>]) -> Vec<Vec<f64>> {
    let columns = rows.iter().map(Vec::len).max().unwrap();
    let padded = |pad: usize| {
        rows.iter().flat_map(move |row| {
            row.iter().copied().chain(std::iter::repeat_n(pad, columns - row.len())).collect::<Vec<_>>()
        })
    };
    let shape = [rows.len(), columns];
    let positions = rows.iter().flat_map(|_| 0..columns);
    let hidden = model.hidden(int_tensor(padded(3), shape), int_tensor(positions, shape));
    let vocab = model.vocab_size();
    let logits = values(&model.logits(hidden.flatten(0, 1)));
    let rows = rows.iter().zip(logits.chunks_exact(columns * vocab));
    rows.map(|(row, logits)| logits[..row.len() * vocab].to_vec()).collect()
}

/// Greedy tokens after the rows, which are padded on the left and read into a cache.
fn greedy<B: FusedOps>(model: &Decoder<B>, rows: &[Vec<usize>], count: usize) -> Vec<Vec<i64>> {
    let columns = rows.iter().map(Vec::len).max().unwrap();
    let padding: Vec<usize> = rows.iter().map(|row| columns - row.len()).collect();
    let mut cache = model.new_cache(&padding, &Default::default());
    let left = |pad: usize, row: Vec<usize>| std::iter::repeat_n(0, pad).chain(row).collect::<Vec<_>>();
    let tokens = padding.iter().zip(rows).flat_map(|(pad, row)| left(*pad, row.clone()));
    let positions = padding.iter().zip(rows).flat_map(|(pad, row)| left(*pad, (0..row.len()).collect()));
    let shape = [rows.len(), columns];
    let mut hidden = model.extend(int_tensor(tokens, shape), int_tensor(positions, shape), &mut cache);
    let mut found = vec![Vec::new(); rows.len()];
    for step in 0..count {
        let [_, columns, _] = hidden.dims();
        let logits = values(&model.logits(hidden.narrow(1, columns - 1, 1).squeeze_dim(1)));
        let highest = |logits: &[f64]| {
            let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
            best.unwrap()
        };
        let chosen: Vec<usize> = logits.chunks_exact(model.vocab_size()).map(highest).collect();
        for (found, token) in found.iter_mut().zip(&chosen) {
            found.push(*token as i64);
        }
        let shape = [rows.len(), 1];
        let positions = int_tensor(rows.iter().map(|row| row.len() + step), shape);
        hidden = model.extend(int_tensor(chosen, shape), positions, &mut cache);
    }
    found
}

/// Gradients of Σ weight · log-prob by parameter name, those of frozen weights left out.
fn gradients<B>(model: &Decoder<B>, expected: &Expected) -> BTreeMap<String, Vec<f64>>
where
    B: AutodiffBackend + FusedOps,
{
    let mut loss = None;
    for (row, tokens) in expected.rows.iter().enumerate() {
        let count = tokens.len() - 1;
        let shape = [1, count];
        let hidden = model.hidden(int_tensor(tokens[..count].to_vec(), shape), int_tensor(0..count, shape));
        let targets = int_tensor(tokens[1..].to_vec(), [count]);
        let options = ScoreOptions { chunk_tokens: 5, ..ScoreOptions::default() };
        let log_probs = model.token_scores(hidden.squeeze_dim(0), targets, options).log_probs;
        assert_near("log-probs", &values(&log_probs), &expected.of_row("log_probs", row, 1), LOGITS);
        let weights: Vec<f32> =
            expected.of_row("loss_weights", row, 1).into_iter().map(|weight| weight as f32).collect();
        let part =
            (log_probs * Tensor::from_data(TensorData::new(weights, [count]), &Default::default())).sum();
        loss = Some(match loss {
            Some(sum) => sum + part,
            None => part,
        });
    }
    struct Replace<'a, B: AutodiffBackend>(&'a B::Gradients);
    impl<B: AutodiffBackend> ModuleMapper<B> for Replace<'_, B> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
            match param.val().grad(self.0) {
                Some(grad) => param.map(|_| Tensor::from_inner(grad)),
                None => param.map(|value| value.mul_scalar(f32::NAN)), // frozen: no gradient to compare
            }
        }
    }
    let grads = loss.unwrap().backward();
    let replaced = weights::collect(&model.clone().map(&mut Replace::<B>(&grads)));
    let lists = replaced.into_iter().map(|(name, tensor)| (name, tensor.iter::<f64>().collect::<Vec<_>>()));
    lists.filter(|(_, grad)| !grad.iter().all(|entry| entry.is_nan())).collect()
}

/// Compares everything that a fixture holds with the model of a folder.
fn compare<B: FusedOps>(folder: &Path, expected: &Expected) {
    let device = Default::default();
    let model = ModelFolder::open(folder).unwrap().load::<Autodiff<B>>(&device).unwrap();
    let plain = model.valid();
    for (row, logits) in full_pass(&plain, &expected.rows).iter().enumerate() {
        let name = format!("logits of row {row}");
        assert_near(&name, logits, &expected.of_row("logits", row, plain.vocab_size()), LOGITS);
    }
    let continued: Vec<i64> = expected.tensors["greedy"].iter().collect();
    let count = expected.tensors["greedy"].shape[1];
    assert_eq!(greedy(&plain, &expected.rows, count).concat(), continued);

    let found = gradients(&model, expected);
    let names = expected.tensors.keys().filter_map(|name| name.strip_prefix("grad."));
    assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), names.collect::<Vec<_>>());
    for (name, grad) in &found {
        let expected = expected.list(&format!("grad.{name}"));
        let scale = expected.iter().fold(0.0f64, |max, entry| max.max(entry.abs()));
        assert_near(name, grad, &expected, GRADIENTS * scale + 1e-6);
    }
}

on_both_backends! {
    fn every_family_computes_what_transformers_computes<B>() {
        for name in [
            "llama", "llama_tied_bias", "llama3_rope", "llama_linear_rope", "qwen2", "qwen2_yarn", "qwen3",
            "mistral", "bf16_shards", "old_names",
        ] {
            let folder = case(name);
            compare::<B>(&folder, &Expected::read(&folder));
        }
    }

    fn an_adapter_computes_what_peft_computes_and_merged_too<B>() {
        for name in ["lora", "lora_rs"] {
            let (folder, expected) = (case(name).join("adapter"), Expected::read(&case(name)));
            compare::<B>(&folder, &expected);
            let model = ModelFolder::open(&folder).unwrap().load::<B>(&Default::default()).unwrap().merged();
            for (row, logits) in full_pass(&model, &expected.rows).iter().enumerate() {
                let expected = expected.of_row("merged_logits", row, model.vocab_size());
                assert_near("merged logits", logits, &expected, LOGITS);
            }
        }
    }
}

/// A row within the window is what transformers computes; there are no positions for a longer one.
#[test]
fn a_sliding_window_is_exact_up_to_its_length() {
    type B = burn_flex::Flex;
    let (folder, expected) = (case("mistral_window"), Expected::read(&case("mistral_window")));
    let model = ModelFolder::open(&folder).unwrap().load::<B>(&Default::default()).unwrap();
    assert_eq!(model.max_positions(), 8);
    let vocab = model.vocab_size();
    let mut compared = 0;
    for (row, tokens) in expected.rows.iter().enumerate() {
        let seen = tokens.len().min(8);
        let logits = full_pass(&model, &[tokens[..seen].to_vec()]).concat();
        assert_near("logits", &logits, &expected.of_row("logits", row, vocab)[..seen * vocab], LOGITS);
        compared += seen;
    }
    assert!(compared > 16);
}

/// What was loaded and saved loads and saves to the same bytes.
#[test]
fn a_folder_that_is_loaded_and_saved_comes_back_byte_for_byte() {
    fn names<B: Backend>(model: &Decoder<B>) -> Vec<String> {
        weights::collect(model).into_keys().collect()
    }
    type B = burn_flex::Flex;
    for name in ["llama", "llama_tied_bias", "qwen2_yarn", "qwen3", "bf16_shards", "old_names"] {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let opened = ModelFolder::open(case(name)).unwrap();
        let model = opened.load::<B>(&Default::default()).unwrap();
        let tensors = names(&model);
        opened.save(model, first.path()).unwrap();
        let again = ModelFolder::open(first.path()).unwrap();
        assert_eq!(again.config(), opened.config(), "{name}");
        let model = again.load::<B>(&Default::default()).unwrap();
        assert_eq!(names(&model), tensors);
        again.save(model, second.path()).unwrap();
        for file in ["config.json", "model.safetensors"] {
            let read = |folder: &Path| std::fs::read(folder.join(file)).unwrap();
            assert!(read(first.path()) == read(second.path()), "{name}: {file}");
        }
    }
}

/// Folders that are written here open in transformers and PEFT and compute the same there: checked where the Python that
/// `FIREBRICK_PYTHON` names (default `python3`) has both.
#[test]
fn what_is_written_opens_in_transformers_and_peft() {
    type B = burn_flex::Flex;
    let python = std::env::var("FIREBRICK_PYTHON").unwrap_or_else(|_| "python3".into());
    let has_both = std::process::Command::new(&python).args(["-c", "import transformers, peft, safetensors"]).output();
    if !has_both.is_ok_and(|output| output.status.success()) {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/parity.py");
    let check = |folder: &Path, adapter: Option<&Path>, model: &Decoder<B>| {
        let file = folder.join("logits.safetensors");
        let rows = vec![vec![5, 1, 17, 40, 2, 33, 8], vec![60, 3, 3, 21, 9, 50, 11]];
        let ids: Vec<i64> = rows.iter().flatten().map(|token| *token as i64).collect();
        let logits: Vec<f32> = full_pass(model, &rows).concat().into_iter().map(|logit| logit as f32).collect();
        let tensors = BTreeMap::from([
            ("tokens".to_owned(), TensorData::new(ids, [2, 7])),
            ("logits".to_owned(), TensorData::new(logits, [2, 7, model.vocab_size()])),
        ]);
        crate::save_tensors(&tensors, &file).unwrap();
        let mut command = std::process::Command::new(&python);
        command.arg(&script).arg("check").arg(folder).arg("--against").arg(&file);
        if let Some(adapter) = adapter {
            command.arg("--adapter").arg(adapter);
        }
        let output = command.env("HF_HUB_OFFLINE", "1").output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{}: {said}", folder.display());
    };
    let device = Default::default();
    for name in ["llama_tied_bias", "qwen2_yarn", "qwen3", "mistral", "bf16_shards", "old_names"] {
        let folder = tempfile::tempdir().unwrap();
        let opened = ModelFolder::open(case(name)).unwrap();
        let model = opened.load::<B>(&device).unwrap();
        opened.save(model.clone(), folder.path()).unwrap();
        check(folder.path(), None, &model);
    }
    // A decoder that was made here.
    let folder = tempfile::tempdir().unwrap();
    let config = crate::DecoderConfig { vocab_size: 64, qk_norm: true, ..crate::testing::tiny_config() };
    let model: Decoder<B> = config.init(&device, 3).unwrap();
    config.save(folder.path().join("config.json")).unwrap();
    crate::save_safetensors(&model, folder.path().join("model.safetensors")).unwrap();
    check(folder.path(), None, &model);
    for name in ["lora", "lora_rs"] {
        let (base, adapter) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let opened = ModelFolder::open(case(name).join("adapter")).unwrap();
        let model = opened.load::<Autodiff<B>>(&device).unwrap();
        opened.save(model.valid().base().unwrap(), base.path()).unwrap();
        crate::save_trained(&model, adapter.path().join("adapter_model.safetensors")).unwrap();
        opened.lora().unwrap().save(adapter.path(), base.path()).unwrap();
        check(base.path(), Some(adapter.path()), &model.valid());
    }
}

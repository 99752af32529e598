//! Models from folders: trained on, with an adapter too, evaluated, asked and measured.

use std::{fs, path::Path};

use crate::fixture::{config, fail, succeed};

/// A tokenizer of single characters in the format of Hugging Face, with the ids of the fixture's alphabet.
fn write_tokenizer(folder: &Path) {
    let mut vocabulary = serde_json::Map::from_iter([("<end>".to_owned(), 0.into())]);
    vocabulary
        .extend("0123456789=".chars().zip(1..).map(|(character, id)| (character.to_string(), id.into())));
    let tokenizer = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [{
            "id": 0, "content": "<end>", "special": true, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false
        }],
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": false},
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<end>"}
    });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let settings = serde_json::json!({
        "eos_token": "<end>",
        "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    });
    fs::write(folder.join("tokenizer_config.json"), settings.to_string()).unwrap();
}

/// The fixture's config for the model in a folder.
fn pretrained(folder: &Path, model: &Path) -> String {
    let path = config(folder, "pretrained", 2);
    let mut table: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
    table.remove("tokenizer");
    table.remove("warm_start");
    table["data"].as_table_mut().unwrap().remove("worked_solutions");
    let model = toml::Table::from_iter([("path".to_owned(), model.display().to_string().into())]);
    table.insert("model".into(), model.into());
    let path = folder.join("pretrained.toml");
    fs::write(&path, table.to_string()).unwrap();
    path.display().to_string()
}

#[test]
fn a_pretrained_model_is_trained_fully_and_with_an_adapter_and_comes_out_as_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let text = |path: &Path| path.display().to_string();
    let scratch = config(folder.path(), "scratch", 1);
    succeed(&["sft", scratch.to_str().unwrap(), "--set", "warm_start.steps=40"]);
    let model = place("scratch/model");
    write_tokenizer(&model);
    let pretrained = pretrained(folder.path(), &model);

    let full = text(&place("full"));
    let dry = succeed(&["train", &pretrained, "--dry-run"]);
    assert!(dry.contains("# Nothing is lacking on this machine."), "{dry}");
    succeed(&["train", &pretrained, "--run-dir", &full]);
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        assert_eq!(fs::read(place("full/model").join(file)).unwrap(), fs::read(model.join(file)).unwrap());
    }
    let described = |folder: &Path| -> serde_json::Value {
        serde_json::from_slice(&fs::read(folder.join("config.json")).unwrap()).unwrap()
    };
    assert_eq!(described(&place("full/model")), described(&model));

    let adapted = text(&place("adapted"));
    succeed(&["train", &pretrained, "--run-dir", &adapted, "--set", "lora={ rank = 2, alpha = 4 }"]);
    let greedy = |path: &Path| {
        let rows = succeed(&[
            "generate",
            &text(path),
            "--prompt",
            "7=",
            "--temperature",
            "0",
            "--json",
            "--token-ids",
        ]);
        serde_json::from_str::<serde_json::Value>(&rows).unwrap()
    };
    let row = greedy(&place("adapted/adapter"));
    assert_eq!(row, greedy(&place("adapted/model")));
    assert_eq!(row, greedy(&place("adapted/checkpoints/step_2")));
    assert_eq!(row["prompt_ids"], serde_json::json!([8, 11]));
    let streamed =
        succeed(&["generate", &text(&place("adapted/model")), "--prompt", "7=", "--temperature", "0"]);
    assert_eq!(streamed.trim_end(), format!("7={}", row["completion"].as_str().unwrap()));

    let error = fail(&["train", &pretrained, "--set", "tokenizer.alphabet=\"01\""]);
    assert!(error.contains("tokenizer.alphabet is given"), "{error}");
    let error = fail(&["train", &pretrained, "--set", "model.path=nowhere"]);
    assert!(error.contains("nowhere"), "{error}");
    let error = fail(&["train", &pretrained, "--set", "lora={ rank = 0, alpha = 4 }"]);
    assert!(error.contains("lora.rank = 0: allowed is at least 1"), "{error}");

    let measured = succeed(&[
        "bench",
        "model",
        &text(&model),
        "--json",
        "--prompt-tokens",
        "4",
        "--new-tokens",
        "4",
        "--lora-rank",
        "2",
        "--train-batch",
        "2",
        "--train-tokens",
        "8",
        "--repetitions",
        "1",
    ]);
    let measured: serde_json::Value = serde_json::from_str(&measured).unwrap();
    for key in ["prefill_tokens_per_s", "decode_tokens_per_s", "train_step_s"] {
        assert!(measured[key].as_f64().unwrap() > 0.0, "{measured}");
    }
}

#[test]
fn an_evaluation_that_was_ended_goes_on_and_ends_as_if_it_had_not_been() {
    let folder = tempfile::tempdir().unwrap();
    let path = config(folder.path(), "run", 1);
    succeed(&["sft", path.to_str().unwrap(), "--set", "warm_start.steps=60"]);
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (run, data) = (place("run"), place("data.jsonl"));
    let evaluate = |out: &str, more: &[&str]| {
        let fixed = ["eval", &run, &data, "--out", out, "--max-new-tokens", "6", "--rows", "6", "--json"];
        [&fixed[..], more].concat().iter().map(|part| (*part).to_owned()).collect::<Vec<_>>()
    };
    let go = |arguments: Vec<String>| -> serde_json::Value {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        serde_json::from_str(&succeed(&arguments)).unwrap()
    };
    let (whole, cut) = (place("whole"), place("cut"));
    let report = go(evaluate(&whole, &["--k", "3"]));
    assert_eq!((&report["problems"], &report["k"]), (&10.into(), &3.into()));
    assert!(report["avg_at_k"]["value"].as_f64().is_some() && report["pass_at"][1][0] == 2, "{report}");

    go(evaluate(&cut, &["--k", "3"]));
    let completions = folder.path().join("cut/completions.jsonl");
    let text = fs::read_to_string(&completions).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 30);
    fs::write(&completions, format!("{}\n{}", lines[..13].join("\n"), &lines[13][..9])).unwrap();
    assert_eq!(go(evaluate(&cut, &["--k", "3"])), report);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&fs::read_to_string(&completions).unwrap()), sorted(&text));

    let arguments = evaluate(&cut, &["--k", "4"]);
    let error = fail(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(error.contains("k was 3 and is 4") && error.contains("--overwrite"), "{error}");
    let error = fail(&["eval", &run, &data, "--max-new-tokens", "15", "--out", &place("long")]);
    assert!(error.contains("has 2 prompt tokens") && error.contains("at most 1"), "{error}");
}

//! Where the model of a run lies.

use std::path::{Path, PathBuf};

use anyhow::Context;
use firebrick_core::Tokenizer;
use firebrick_models::{CharTokenizer, HuggingFaceTokenizer, ModelFolder};

/// What a folder with a model has one of.
const FILES: [&str; 3] = ["model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors"];

const TOKENIZER: &str = "tokenizer.json";

/// The model folder that `path` names: itself, or as a run directory its final model, or else its latest checkpoint; with
/// `checkpoint` that one (`step_20`, `latest`, `best`).
pub(crate) fn model_folder(path: &Path, checkpoint: Option<&str>) -> anyhow::Result<PathBuf> {
    let holds_model = |folder: &Path| FILES.iter().any(|file| folder.join(file).is_file());
    let checkpoints = path.join("checkpoints");
    let named = |name: &str| match std::fs::read_to_string(checkpoints.join(name)) {
        Ok(pointed) => checkpoints.join(pointed.trim()),
        Err(_) => checkpoints.join(name), // not a pointer but the checkpoint itself
    };
    let candidates = match checkpoint {
        Some(name) => vec![named(name)],
        None => vec![path.to_owned(), path.join("model"), named("latest")],
    };
    let found = candidates.iter().find(|folder| holds_model(folder)).cloned();
    found.ok_or_else(|| {
        let looked: Vec<String> = candidates.iter().map(|folder| folder.display().to_string()).collect();
        anyhow::anyhow!("no {} in {}", FILES.join(" or "), looked.join(", "))
    })
}

/// The tokenizer in a model's folder, or for an adapter without one in that of its base model: of characters, or of Hugging Face.
pub(crate) fn tokenizer_in(folder: &Path) -> anyhow::Result<Box<dyn Tokenizer>> {
    let own = folder.join(TOKENIZER).is_file();
    let folder = if own { folder.to_owned() } else { ModelFolder::open(folder)?.base().to_owned() };
    let path = folder.join(TOKENIZER);
    let text = std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    let description: serde_json::Value =
        serde_json::from_slice(&text).with_context(|| format!("{} is no JSON", path.display()))?;
    Ok(match description.get("alphabet") {
        Some(_) => Box::new(CharTokenizer::load(path)?),
        None => Box::new(HuggingFaceTokenizer::load(folder)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_directory_stands_for_its_model_and_before_that_for_its_latest_checkpoint() {
        let parent = tempfile::tempdir().unwrap();
        let run = parent.path();
        let put = |name: &str| {
            std::fs::create_dir_all(run.join(name)).unwrap();
            std::fs::write(run.join(name).join("model.safetensors"), "").unwrap();
        };
        assert!(model_folder(run, None).unwrap_err().to_string().contains("no model.safetensors or "));
        put("checkpoints/step_3");
        put("checkpoints/step_6");
        std::fs::write(run.join("checkpoints/latest"), "step_6").unwrap();
        assert_eq!(model_folder(run, None).unwrap(), run.join("checkpoints/step_6"));
        put("model");
        assert_eq!(model_folder(run, None).unwrap(), run.join("model"));
        assert_eq!(model_folder(&run.join("model"), None).unwrap(), run.join("model"));
        assert_eq!(model_folder(run, Some("step_3")).unwrap(), run.join("checkpoints/step_3"));
        assert_eq!(model_folder(run, Some("latest")).unwrap(), run.join("checkpoints/step_6"));
        assert!(model_folder(run, Some("best")).is_err());
    }
}

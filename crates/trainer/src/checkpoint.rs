//! Checkpoints on disk: whole or not there, verified before they are used.
//!
//! ```text
//! checkpoints/
//!   latest             the name of the checkpoint to go on from
//!   best               the name of the best one, when a metric for it is chosen
//!   step_20/
//!     manifest.json    step, resolved config, digests of the data and of every file, lengths of the run's logs
//!     model.safetensors, config.json, tokenizer.json       a model directory, as in `model/`
//!     optimizer.safetensors, trainer.json, and reference.safetensors when there is a reference policy
//! ```

mod error;
mod manifest;
mod settings;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

pub use error::CheckpointError;
pub(crate) use manifest::{Manifest, sha256_of};
pub use settings::{BestBy, Better, CheckpointSettings};

use crate::durable;
use manifest::{read_manifest, seal, verified};

const LATEST: &str = "latest";
const BEST: &str = "best";

/// The checkpoints of a run.
#[derive(Debug, Clone)]
pub(crate) struct CheckpointStore {
    folder: PathBuf,
    settings: CheckpointSettings,
}

impl CheckpointStore {
    pub(crate) fn new(run_directory: &Path, settings: CheckpointSettings) -> Self {
        Self { folder: run_directory.join("checkpoints"), settings }
    }

    /// Whether a checkpoint is due after `step` steps.
    pub(crate) fn is_due(&self, step: usize) -> bool {
        step.is_multiple_of(self.settings.every)
    }

    /// Writes a checkpoint and then drops those that the settings do not keep.
    ///
    /// `fill` writes the files into the folder that it is given. `metrics` are those of the step, to choose the best by.
    /// When anything fails, the checkpoints that exist stay as they are.
    pub(crate) fn write<E: From<CheckpointError>>(
        &self,
        mut manifest: Manifest,
        metric: impl Fn(&str) -> Option<f64>,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        let name = name_of(manifest.step);
        let (path, aside) = (self.folder.join(&name), self.folder.join(format!(".{name}.partial")));
        let io = |source| CheckpointError::Write { path: aside.clone(), source };
        manifest.best_by = self.settings.best.as_ref().and_then(|best| metric(&best.metric));
        let prepared = remove(&aside).and_then(|()| fs::create_dir_all(&aside));
        let written = prepared.map_err(|error| io(error).into()).and_then(|()| {
            fill(&aside)?;
            Ok(seal(&aside, &mut manifest).and_then(|()| self.publish(&aside, &path, &name)).map_err(io)?)
        });
        if let Err(error) = written {
            let _ = remove(&aside); // the first error is the one to report
            return Err(error);
        }
        self.prune(manifest.step)?;
        Ok(path)
    }

    fn publish(&self, aside: &Path, path: &Path, name: &str) -> io::Result<()> {
        remove(path)?; // of an attempt that was ended before it was named the latest
        fs::rename(aside, path)?;
        durable::sync_folder_of(path)?;
        durable::replace(&self.folder.join(LATEST), name.as_bytes())
    }

    /// The checkpoint to go on from, with every file verified; `None` when there is none yet. Checkpoints beyond it were
    /// ended before they were named the latest, or were given up by naming an earlier one; they are removed.
    pub(crate) fn latest(&self) -> Result<Option<(PathBuf, Manifest)>, CheckpointError> {
        let pointer = self.folder.join(LATEST);
        let name = match fs::read_to_string(&pointer) {
            Ok(name) => name,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(CheckpointError::Read { path: pointer, source }),
        };
        let path = self.folder.join(name.trim());
        let manifest = verified(&path).map_err(|error| self.with_alternatives(error, &path))?;
        for (step, path) in self.list()? {
            if step > manifest.step {
                remove(&path).map_err(|source| CheckpointError::Write { path, source })?;
            }
        }
        Ok(Some((path, manifest)))
    }

    fn with_alternatives(&self, error: CheckpointError, path: &Path) -> CheckpointError {
        let CheckpointError::Torn { reason, .. } = error else { return error };
        let others = self.list().unwrap_or_default().into_values();
        let intact = others.filter(|other| other != path && verified(other).is_ok());
        let intact: Vec<String> = intact.filter_map(|p| Some(p.file_name()?.to_str()?.to_owned())).collect();
        let fix = if intact.is_empty() {
            "no other one is intact: start again with --overwrite".to_owned()
        } else {
            format!(
                "intact are {}: write the name of one into {} to go on from there",
                intact.join(", "),
                self.folder.join(LATEST).display()
            )
        };
        CheckpointError::Torn { path: path.to_owned(), reason: format!("{reason}; {fix}") }
    }

    /// Checkpoints by step, in order.
    fn list(&self) -> Result<BTreeMap<usize, PathBuf>, CheckpointError> {
        let read = |source| CheckpointError::Read { path: self.folder.clone(), source };
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(&self.folder).map_err(read)? {
            let path = entry.map_err(read)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if let Some(step) = name.strip_prefix("step_").and_then(|step| step.parse().ok()) {
                found.insert(step, path);
            }
        }
        Ok(found)
    }

    fn prune(&self, latest: usize) -> Result<(), CheckpointError> {
        let found = self.list()?;
        let best = self.best(&found)?;
        let oldest_kept = found.keys().rev().nth(self.settings.keep_last.saturating_sub(1)).copied();
        for (step, path) in found {
            let every = self.settings.keep_every;
            let kept = step == latest
                || oldest_kept.is_none_or(|oldest| step >= oldest)
                || (every > 0 && step > 0 && step.is_multiple_of(every))
                || best == Some(step);
            if !kept {
                remove(&path).map_err(|source| CheckpointError::Write { path, source })?;
            }
        }
        Ok(())
    }

    /// Finds the best checkpoint and writes its name down.
    fn best(&self, found: &BTreeMap<usize, PathBuf>) -> Result<Option<usize>, CheckpointError> {
        let Some(by) = &self.settings.best else { return Ok(None) };
        let mut best: Option<(usize, f64)> = None;
        for (step, path) in found {
            let Some(value) = read_manifest(path)?.best_by.filter(|value| !value.is_nan()) else { continue };
            let better = best.is_none_or(|(_, other)| match by.mode {
                Better::Max => value > other,
                Better::Min => value < other,
            });
            if better {
                best = Some((*step, value));
            }
        }
        let Some((step, _)) = best else {
            tracing::warn!(metric = by.metric, "no checkpoint has the metric that the best is chosen by");
            return Ok(None);
        };
        let path = self.folder.join(BEST);
        durable::replace(&path, name_of(step).as_bytes())
            .map_err(|source| CheckpointError::Write { path, source })?;
        Ok(Some(step))
    }
}

fn name_of(step: usize) -> String {
    format!("step_{step}")
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{manifest::MANIFEST, *};

    fn store(parent: &Path, settings: CheckpointSettings) -> CheckpointStore {
        CheckpointStore::new(parent, settings)
    }

    fn write(store: &CheckpointStore, step: usize, value: Option<f64>) -> Result<PathBuf, CheckpointError> {
        let manifest = Manifest::new(step, serde_json::json!({"a": 1}), BTreeMap::new());
        store.write(
            manifest,
            |_| value,
            |folder| {
                fs::write(folder.join("weights"), format!("weights {step}"))
                    .map_err(|source| CheckpointError::Write { path: folder.to_owned(), source })
            },
        )
    }

    fn steps(store: &CheckpointStore) -> Vec<usize> {
        store.list().unwrap().into_keys().collect()
    }

    #[test]
    fn keeps_the_last_the_multiples_and_the_best() {
        let parent = tempfile::tempdir().unwrap();
        let best = Some(BestBy { metric: "reward/mean".into(), mode: Better::Max });
        let settings = CheckpointSettings { every: 1, keep_last: 2, keep_every: 4, best };
        let store = store(parent.path(), settings);
        for (step, value) in [0.0, 0.1, 0.9, 0.3, 0.2, 0.4, 0.5, f64::NAN].into_iter().enumerate() {
            write(&store, step, Some(value)).unwrap();
        }
        assert_eq!(steps(&store), [2, 4, 6, 7]);
        assert_eq!(fs::read_to_string(parent.path().join("checkpoints/best")).unwrap(), "step_2");
        assert_eq!(store.latest().unwrap().unwrap().1.step, 7);
    }

    #[test]
    fn less_can_be_better_and_a_missing_metric_keeps_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let best = Some(BestBy { metric: "kl".into(), mode: Better::Min });
        let settings = CheckpointSettings { every: 1, keep_last: 1, keep_every: 0, best };
        let store = store(parent.path(), settings);
        for (step, value) in [None, Some(0.2), Some(0.3), None].into_iter().enumerate() {
            write(&store, step, value).unwrap();
        }
        assert_eq!(steps(&store), [1, 3]);
    }

    #[test]
    fn a_failed_write_leaves_the_earlier_checkpoints_and_no_rest() {
        let parent = tempfile::tempdir().unwrap();
        let store = store(parent.path(), CheckpointSettings::default());
        write(&store, 1, None).unwrap();
        let manifest = Manifest::new(2, Value::Null, BTreeMap::new());
        let error = store.write(
            manifest,
            |_| None,
            |folder| {
                fs::write(folder.join("weights"), "half").unwrap();
                Err(CheckpointError::State { path: folder.to_owned(), reason: "no".into() })
            },
        );
        assert!(error.is_err());
        assert_eq!(store.latest().unwrap().unwrap().1.step, 1);
        let left: Vec<_> = fs::read_dir(parent.path().join("checkpoints")).unwrap().collect();
        assert_eq!(left.len(), 2, "{left:?}"); // step_1 and latest
    }

    #[test]
    fn a_checkpoint_that_was_not_yet_named_the_latest_does_not_count() {
        let parent = tempfile::tempdir().unwrap();
        let store = store(parent.path(), CheckpointSettings::default());
        assert!(store.latest().unwrap().is_none());
        write(&store, 3, None).unwrap();
        let folder = parent.path().join("checkpoints");
        fs::create_dir(folder.join(".step_4.partial")).unwrap();
        fs::rename(folder.join("step_3"), folder.join("step_5")).unwrap();
        write(&store, 3, None).unwrap();
        assert_eq!(store.latest().unwrap().unwrap().1.step, 3);
        assert_eq!(steps(&store), [3]);
    }

    #[test]
    fn a_torn_checkpoint_names_the_file_and_the_intact_ones() {
        let parent = tempfile::tempdir().unwrap();
        let store = store(parent.path(), CheckpointSettings::default());
        write(&store, 1, None).unwrap();
        let path = write(&store, 2, None).unwrap();
        fs::write(path.join("weights"), "weigh").unwrap();
        let error = store.latest().unwrap_err().to_string();
        for part in ["step_2 is torn", "weights has 5 bytes, 9 were written", "intact are step_1"] {
            assert!(error.contains(part), "{error}");
        }
        fs::write(path.join("weights"), "weights 3").unwrap();
        assert!(store.latest().unwrap_err().to_string().contains("not those that were written"));
        fs::remove_file(path.join("weights")).unwrap();
        assert!(store.latest().unwrap_err().to_string().contains("weights: "));
        fs::write(path.join(MANIFEST), "{").unwrap();
        assert!(store.latest().unwrap_err().to_string().contains(MANIFEST));
        fs::write(parent.path().join("checkpoints/latest"), "step_1\n").unwrap();
        assert_eq!(store.latest().unwrap().unwrap().1.step, 1);
        assert_eq!(steps(&store), [1]);
    }

    #[test]
    fn another_format_is_refused_by_number() {
        let parent = tempfile::tempdir().unwrap();
        let store = store(parent.path(), CheckpointSettings::default());
        let path = write(&store, 1, None).unwrap();
        fs::write(path.join(MANIFEST), r#"{"format": 9}"#).unwrap();
        let error = store.latest().unwrap_err().to_string();
        assert!(error.contains("format 9") && error.contains("reads format 1"), "{error}");
    }
}

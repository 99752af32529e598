//! What a run leaves on disk.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    time::SystemTime,
};

use firebrick_core::Metrics;
use firebrick_objectives::PositionReport;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{EvaluationReport, EventWriter, durable};

/// The directory of a run:
///
/// | file | holds |
/// |---|---|
/// | `config.toml` | the resolved config |
/// | `metrics.jsonl` | one object per step; the same bytes for the same run |
/// | `timings.jsonl` | wall-clock seconds per step |
/// | `traces.jsonl` | sampled completions with reward and advantage |
/// | `evaluations.jsonl` | one object per evaluation |
/// | `tensorboard/` | metrics and evaluations as event files, one for each process, over the number of steps done |
/// | `checkpoints/` | what a continuation starts from |
/// | `dumps/` | batches of optimizer steps that were skipped |
/// | `model/` | `model.safetensors`, `config.json`, `tokenizer.json` |
/// | `summary.json` | accuracy before and after; there when the run is done |
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// Opened with the first row, so that its file begins at the first step of this process.
    events: Option<EventWriter>,
}

/// Files that grow row by row. A run that goes on cuts them to what belongs to its checkpoint.
const LOGS: [&str; 4] = ["metrics.jsonl", "timings.jsonl", "traces.jsonl", "evaluations.jsonl"];

impl RunDirectory {
    /// Creates the directory. An existing one is refused unless `overwrite`, which removes what an earlier run left.
    ///
    /// # Errors
    /// When it exists or cannot be written.
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, RunDirectoryError> {
        let failed = |source| RunDirectoryError::Io { path: path.to_owned(), source };
        if path.exists() && std::fs::read_dir(path).map_err(failed)?.next().is_some() {
            if !overwrite {
                return Err(RunDirectoryError::Exists { path: path.to_owned() });
            }
            if !path.join("config.toml").exists() {
                return Err(RunDirectoryError::NotARun { path: path.to_owned() });
            }
            std::fs::remove_dir_all(path).map_err(failed)?;
        }
        std::fs::create_dir_all(path).map_err(failed)?;
        Ok(Self { path: path.to_owned(), events: None })
    }

    /// Opens the directory of a run that is to go on.
    ///
    /// # Errors
    /// When it holds no run.
    pub fn open(path: &Path) -> Result<Self, RunDirectoryError> {
        if !path.join("config.toml").is_file() {
            return Err(RunDirectoryError::NoRun { path: path.to_owned() });
        }
        Ok(Self { path: path.to_owned(), events: None })
    }

    /// Makes the logs durable and returns their lengths in bytes.
    pub(crate) fn sync_logs(&self) -> Result<BTreeMap<String, u64>, RunDirectoryError> {
        let mut lengths = BTreeMap::new();
        for name in LOGS {
            let path = self.path.join(name);
            if path.exists() {
                let length = File::open(&path).and_then(|file| {
                    file.sync_all()?;
                    Ok(file.metadata()?.len())
                });
                let length = length.map_err(|source| RunDirectoryError::Io { path, source })?;
                lengths.insert(name.to_owned(), length);
            }
        }
        Ok(lengths)
    }

    /// Cuts the logs to the given lengths; a log without a length is removed.
    pub(crate) fn cut_logs(&self, lengths: &BTreeMap<String, u64>) -> Result<(), RunDirectoryError> {
        for name in LOGS {
            let path = self.path.join(name);
            let length = lengths.get(name).copied().unwrap_or(0);
            let found = std::fs::metadata(&path).map_or(0, |data| data.len());
            if found < length {
                return Err(RunDirectoryError::LogTooShort { path, found, expected: length });
            }
            let cut = match length {
                0 if !path.exists() => Ok(()),
                0 => std::fs::remove_file(&path),
                _ => OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(length)),
            };
            cut.map_err(|source| RunDirectoryError::Io { path, source })?;
        }
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a whole file: after a crash it is the old one or the new one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, contents: &str) -> Result<(), RunDirectoryError> {
        let path = self.path.join(name);
        durable::replace(&path, contents.as_bytes()).map_err(|source| RunDirectoryError::Io { path, source })
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&self, name: &str) -> Result<(), RunDirectoryError> {
        let path = self.path.join(name);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(RunDirectoryError::Io { path, source })
            }
            _ => Ok(()),
        }
    }

    /// Appends a row to a JSONL file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&self, name: &str, row: &impl Serialize) -> Result<(), RunDirectoryError> {
        let path = self.path.join(name);
        let failed = |source| RunDirectoryError::Io { path: path.clone(), source };
        let mut line = serde_json::to_string(row).map_err(|error| failed(error.into()))?;
        line.push('\n');
        let mut file: File = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
        file.write_all(line.as_bytes()).map_err(failed)
    }

    /// Appends the metrics of a step, with its table of importance weights by position. The step is always given, so rows
    /// cannot lose their order.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn log(
        &mut self,
        step: usize,
        metrics: &Metrics,
        positions: &PositionReport,
    ) -> Result<(), RunDirectoryError> {
        let mut row = Map::new();
        row.insert("step".into(), Value::from(step));
        row.insert("positions".into(), serde_json::json!(positions));
        for (name, value) in metrics.values() {
            row.insert(name.into(), Value::from(value));
        }
        self.append("metrics.jsonl", &row)?;
        self.events(step + 1, metrics.values())
    }

    /// Appends the report of an evaluation after `step` steps.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn log_evaluation(
        &mut self,
        step: usize,
        report: &EvaluationReport,
    ) -> Result<(), RunDirectoryError> {
        self.append("evaluations.jsonl", &serde_json::json!({ "step": step, "evaluation": report }))?;
        let values = report.values();
        self.events(step, values.iter().map(|(name, value)| (name.as_str(), *value)))
    }

    /// Shows values to TensorBoard, over the number of steps done.
    fn events<'a>(
        &mut self,
        done: usize,
        values: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> Result<(), RunDirectoryError> {
        let path = self.path.join("tensorboard");
        let failed = |source| RunDirectoryError::Io { path: path.clone(), source };
        let now = SystemTime::now();
        let events = match &mut self.events {
            Some(events) => events,
            None => {
                std::fs::create_dir_all(&path).map_err(failed)?;
                self.events.insert(EventWriter::create(&path, done, now).map_err(failed)?)
            }
        };
        events.scalars(done, now, values).map_err(failed)
    }
}

/// A run directory that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirectoryError {
    /// It holds a run already.
    #[error("run directory {} holds a run already; go on with --resume, replace it with --overwrite, or choose another", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// It is to be overwritten but holds something else than a run.
    #[error("{} is not empty and holds no config.toml, so it is no run directory and is not overwritten", path.display())]
    NotARun {
        /// The directory.
        path: PathBuf,
    },
    /// It is to go on but holds no run.
    #[error("{} holds no run to go on with: there is no config.toml in it", path.display())]
    NoRun {
        /// The directory.
        path: PathBuf,
    },
    /// A log is shorter than when the checkpoint was written.
    #[error("{} has {found} bytes, but {expected} when the checkpoint was written; it was changed since", path.display())]
    LogTooShort {
        /// The file.
        path: PathBuf,
        /// Its length.
        found: u64,
        /// Its length then.
        expected: u64,
    },
    /// A file cannot be written.
    #[error("{} cannot be written", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_run_is_refused_unless_it_is_to_be_overwritten() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        let run = RunDirectory::create(&path, false).unwrap();
        run.write("config.toml", "x = 1").unwrap();
        run.append("metrics.jsonl", &1).unwrap();
        let error = RunDirectory::create(&path, false).unwrap_err();
        assert!(matches!(error, RunDirectoryError::Exists { .. }));
        RunDirectory::create(&path, true).unwrap();
        assert!(!path.join("metrics.jsonl").exists());
    }

    #[test]
    fn a_directory_that_is_no_run_is_never_removed() {
        let parent = tempfile::tempdir().unwrap();
        std::fs::write(parent.path().join("thesis.tex"), "dear").unwrap();
        let error = RunDirectory::create(parent.path(), true).unwrap_err();
        assert!(matches!(error, RunDirectoryError::NotARun { .. }));
        assert!(parent.path().join("thesis.tex").exists());
    }

    #[test]
    fn metrics_carry_their_step_and_sorted_names() {
        let parent = tempfile::tempdir().unwrap();
        let mut run = RunDirectory::create(&parent.path().join("run"), false).unwrap();
        let mut metrics = Metrics::default();
        metrics.add_mean("reward/mean", 1.0, 4.0);
        metrics.add_max("a", 2.0);
        run.log(3, &metrics, &PositionReport::default()).unwrap();
        let text = std::fs::read_to_string(run.path().join("metrics.jsonl")).unwrap();
        let (before, rest) = text.split_once("\"positions\":{").unwrap();
        assert_eq!(before, "{\"a\":2.0,");
        assert!(rest.ends_with("},\"reward/mean\":0.25,\"step\":3}\n"), "{rest}");
    }

    #[test]
    fn logs_are_cut_to_their_lengths_and_a_shorter_one_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(&parent.path().join("run"), false).unwrap();
        run.append("metrics.jsonl", &1).unwrap();
        let lengths = run.sync_logs().unwrap();
        assert_eq!(lengths, BTreeMap::from([("metrics.jsonl".to_owned(), 2)]));
        run.append("metrics.jsonl", &2).unwrap();
        run.append("traces.jsonl", &3).unwrap();
        run.cut_logs(&lengths).unwrap();
        assert_eq!(std::fs::read_to_string(run.path().join("metrics.jsonl")).unwrap(), "1\n");
        assert!(!run.path().join("traces.jsonl").exists());
        std::fs::write(run.path().join("metrics.jsonl"), "").unwrap();
        assert!(matches!(run.cut_logs(&lengths), Err(RunDirectoryError::LogTooShort { .. })));
        assert!(matches!(RunDirectory::open(run.path()), Err(RunDirectoryError::NoRun { .. })));
    }
}

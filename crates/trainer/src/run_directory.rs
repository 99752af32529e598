//! What a run leaves on disk.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use firebrick_core::Metrics;
use serde::Serialize;
use serde_json::{Map, Value};

/// The directory of a run:
///
/// | file | holds |
/// |---|---|
/// | `config.toml` | the resolved config |
/// | `metrics.jsonl` | one object per step; the same bytes for the same run |
/// | `timings.jsonl` | wall-clock seconds per step |
/// | `traces.jsonl` | sampled completions with reward and advantage |
/// | `evaluations.jsonl` | one object per evaluation |
/// | `model/` | `model.safetensors`, `config.json`, `tokenizer.json` |
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
}

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
        Ok(Self { path: path.to_owned() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a whole file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, contents: &str) -> Result<(), RunDirectoryError> {
        let path = self.path.join(name);
        std::fs::write(&path, contents).map_err(|source| RunDirectoryError::Io { path, source })
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

    /// Appends the metrics of a step. The step is always given, so rows cannot lose their order.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn log(&self, step: usize, metrics: &Metrics) -> Result<(), RunDirectoryError> {
        let mut row = Map::new();
        row.insert("step".into(), Value::from(step));
        for (name, value) in metrics.values() {
            row.insert(name.into(), Value::from(value));
        }
        self.append("metrics.jsonl", &row)
    }
}

/// A run directory that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirectoryError {
    /// It holds a run already.
    #[error("run directory {} holds a run already; choose another or allow overwriting", path.display())]
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
        let run = RunDirectory::create(&parent.path().join("run"), false).unwrap();
        let mut metrics = Metrics::default();
        metrics.add_mean("reward/mean", 1.0, 4.0);
        metrics.add_max("a", 2.0);
        run.log(3, &metrics).unwrap();
        let text = std::fs::read_to_string(run.path().join("metrics.jsonl")).unwrap();
        assert_eq!(text, "{\"a\":2.0,\"reward/mean\":0.25,\"step\":3}\n");
    }
}

//! What a checkpoint says of itself, and whether it is still true.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::Path,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::CheckpointError;
use crate::{EvaluationReport, durable};

/// Version of the layout; a reader refuses another.
const FORMAT: u32 = 1;
pub(super) const MANIFEST: &str = "manifest.json";

/// What a checkpoint says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    format: u32,
    /// Steps done.
    pub(crate) step: usize,
    /// The resolved config.
    pub(crate) config: Value,
    /// SHA-256 of the config, for whoever compares runs.
    pub(crate) config_sha256: String,
    /// SHA-256 of the data files, by config key.
    pub(crate) data: BTreeMap<String, String>,
    /// Bytes of the run's logs that belong to the steps done.
    pub(crate) logs: BTreeMap<String, u64>,
    /// Value of the metric that the best is chosen by.
    pub(super) best_by: Option<f64>,
    /// Held-out accuracy before reinforcement learning.
    pub(crate) before: Option<EvaluationReport>,
    /// The last evaluation, with the steps done before it.
    pub(crate) evaluated: Option<(usize, EvaluationReport)>,
    /// Optimizer steps of the warm start.
    pub(crate) warm_start_steps: usize,
    files: BTreeMap<String, FileDigest>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FileDigest {
    bytes: u64,
    sha256: String,
}

impl Manifest {
    pub(crate) fn new(step: usize, config: Value, data: BTreeMap<String, String>) -> Self {
        Self {
            format: FORMAT,
            step,
            config_sha256: sha256_of_config(&config),
            config,
            data,
            logs: BTreeMap::new(),
            best_by: None,
            before: None,
            evaluated: None,
            warm_start_steps: 0,
            files: BTreeMap::new(),
        }
    }

    /// Takes over the config of a continuation.
    pub(crate) fn adopt_config(&mut self, config: Value) {
        self.config_sha256 = sha256_of_config(&config);
        self.config = config;
    }
}

fn sha256_of_config(config: &Value) -> String {
    hex(&Sha256::digest(config.to_string()))
}

/// Digests and syncs every file of a checkpoint, and writes its manifest.
pub(super) fn seal(folder: &Path, manifest: &mut Manifest) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        File::open(entry.path())?.sync_all()?;
        let digest = digest_file(&entry.path())?;
        manifest.files.insert(entry.file_name().to_string_lossy().into_owned(), digest);
    }
    let mut text = serde_json::to_string_pretty(manifest)?;
    text.push('\n');
    durable::replace(&folder.join(MANIFEST), text.as_bytes())
}

/// The manifest of a checkpoint all of whose files are as they were written.
pub(super) fn verified(folder: &Path) -> Result<Manifest, CheckpointError> {
    let torn = |reason: String| CheckpointError::Torn { path: folder.to_owned(), reason };
    let manifest = read_manifest(folder)?;
    for (name, expected) in &manifest.files {
        let found = digest_file(&folder.join(name)).map_err(|error| torn(format!("{name}: {error}")))?;
        if found.bytes != expected.bytes {
            return Err(torn(format!("{name} has {} bytes, {} were written", found.bytes, expected.bytes)));
        }
        if found != *expected {
            return Err(torn(format!("the contents of {name} are not those that were written")));
        }
    }
    Ok(manifest)
}

pub(super) fn read_manifest(folder: &Path) -> Result<Manifest, CheckpointError> {
    let torn = |reason: String| CheckpointError::Torn { path: folder.to_owned(), reason };
    let text = fs::read(folder.join(MANIFEST)).map_err(|error| torn(format!("{MANIFEST}: {error}")))?;
    let format = serde_json::from_slice::<Value>(&text).ok().and_then(|value| value.get("format")?.as_u64());
    if let Some(found) = format.filter(|format| *format != u64::from(FORMAT)) {
        return Err(CheckpointError::Format { path: folder.to_owned(), found, known: FORMAT });
    }
    serde_json::from_slice(&text).map_err(|error| torn(format!("{MANIFEST}: {error}")))
}

fn digest_file(path: &Path) -> io::Result<FileDigest> {
    let mut hasher = Sha256::new();
    let bytes = io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(FileDigest { bytes, sha256: hex(&hasher.finalize()) })
}

/// SHA-256 of a file.
pub(crate) fn sha256_of(path: &Path) -> io::Result<String> {
    Ok(digest_file(path)?.sha256)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

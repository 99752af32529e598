//! Reading and writing small JSON files.

use std::{fs, path::Path};

use serde::{Serialize, de::DeserializeOwned};

use crate::ModelError;

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ModelError> {
    fs::read(path).map_err(|source| ModelError::Read { path: path.into(), source })
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    fs::write(path, bytes).map_err(|source| ModelError::Write { path: path.into(), source })
}

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, ModelError> {
    let json = |source| ModelError::Json { path: path.into(), source };
    serde_json::from_slice(&read(path)?).map_err(json)
}

pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), ModelError> {
    let json = |source| ModelError::Json { path: path.into(), source };
    let mut text = serde_json::to_string_pretty(value).map_err(json)?;
    text.push('\n');
    write(path, text.as_bytes())
}

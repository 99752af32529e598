//! The tensors of one safetensors file, or of the shards of a model.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use safetensors::{
    SafeTensorError,
    tensor::{Metadata, TensorInfo},
};
use serde::Deserialize;

use crate::{ModelError, files};

/// The name of a model's only file.
pub(crate) const SINGLE: &str = "model.safetensors";

/// The name of the list of a model's shards.
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// Bytes before the header, which say how long it is.
const PREFIX: u64 = 8;

/// Longest header that is read, as in the safetensors library.
const LONGEST_HEADER: u64 = 100_000_000;

/// Open files, whose tensors are read one by one.
#[derive(Debug)]
pub(crate) struct WeightFiles {
    shards: Vec<Shard>,
    /// The shard of each tensor.
    tensors: BTreeMap<String, (usize, TensorInfo)>,
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    file: File,
    /// Where the tensors begin.
    data: u64,
}

/// What the list of shards says.
#[derive(Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

impl WeightFiles {
    /// Opens a file, or what a folder has: `model.safetensors`, or else the shards of its index.
    pub(crate) fn open(path: &Path) -> Result<Self, ModelError> {
        let single = path.join(SINGLE);
        if !path.is_dir() {
            return Self::of(vec![path.to_owned()]);
        }
        if single.is_file() || !path.join(INDEX).is_file() {
            return Self::of(vec![single]);
        }
        let index_path = path.join(INDEX);
        let index: Index = files::read_json(&index_path)?;
        let mut names: Vec<&String> = index.weight_map.values().collect();
        names.sort_unstable();
        names.dedup();
        if let Some(outside) = names.iter().find(|name| Path::new(name).components().count() != 1) {
            return Err(ModelError::Shard {
                path: index_path,
                problem: format!("names `{outside}`, which is no file of the same folder"),
            });
        }
        let found = Self::of(names.into_iter().map(|name| path.join(name)).collect())?;
        for (tensor, shard) in &index.weight_map {
            let held = found.tensors.get(tensor).map(|(index, _)| &found.shards[*index].path);
            if held != Some(&path.join(shard)) {
                return Err(ModelError::Shard {
                    path: index_path,
                    problem: format!("puts tensor `{tensor}` into `{shard}`, which does not hold it"),
                });
            }
        }
        Ok(found)
    }

    fn of(paths: Vec<PathBuf>) -> Result<Self, ModelError> {
        let mut found = Self { shards: Vec::new(), tensors: BTreeMap::new() };
        for path in paths {
            let (shard, metadata) = Shard::open(path)?;
            for (name, info) in metadata.tensors() {
                if let Some((other, _)) = found.tensors.get(&name) {
                    let problem =
                        format!("holds tensor `{name}`, as does {}", found.shards[*other].path.display());
                    return Err(ModelError::Shard { path: shard.path, problem });
                }
                found.tensors.insert(name, (found.shards.len(), info.clone()));
            }
            found.shards.push(shard);
        }
        Ok(found)
    }

    pub(crate) fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name).map(|(_, info)| info)
    }

    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.shards.iter().map(|shard| shard.path.clone()).collect()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The bytes of a tensor.
    pub(crate) fn read(&mut self, name: &str) -> Result<(Vec<u8>, TensorInfo), ModelError> {
        let (shard, info) = self.tensors.get(name).expect("only names that `info` knows are read");
        let shard = &mut self.shards[*shard];
        let (start, end) = info.data_offsets;
        let mut bytes = vec![0; end - start];
        shard
            .file
            .seek(SeekFrom::Start(shard.data + start as u64))
            .and_then(|_| shard.file.read_exact(&mut bytes))
            .map_err(|source| ModelError::Read { path: shard.path.clone(), source })?;
        Ok((bytes, info.clone()))
    }
}

impl Shard {
    /// Opens a file and reads its header.
    fn open(path: PathBuf) -> Result<(Self, Metadata), ModelError> {
        let failed = |source| ModelError::Read { path: path.clone(), source };
        let wrong = |source| ModelError::Safetensors { path: path.clone(), source };
        let mut file = File::open(&path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length < PREFIX {
            return Err(wrong(SafeTensorError::HeaderTooSmall));
        }
        let mut prefix = [0; PREFIX as usize];
        file.read_exact(&mut prefix).map_err(failed)?;
        let header = u64::from_le_bytes(prefix);
        if header > LONGEST_HEADER {
            return Err(wrong(SafeTensorError::HeaderTooLarge));
        }
        if PREFIX + header > length {
            return Err(wrong(SafeTensorError::InvalidHeaderLength));
        }
        let mut text = vec![0; header as usize];
        file.read_exact(&mut text).map_err(failed)?;
        // The header's own reader checks that the tensors follow one another without a gap.
        let metadata: Metadata = serde_json::from_slice(&text)
            .map_err(|error| wrong(SafeTensorError::InvalidHeaderDeserialization(error)))?;
        let end = metadata.tensors().values().map(|info| info.data_offsets.1).max().unwrap_or(0);
        if PREFIX + header + end as u64 != length {
            return Err(wrong(SafeTensorError::MetadataIncompleteBuffer));
        }
        Ok((Self { path, file, data: PREFIX + header }, metadata))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;

    use super::*;
    use crate::save_tensors;

    fn write(folder: &Path, file: &str, names: &[&str]) {
        let tensors = names.iter().map(|name| {
            let numbers = name.bytes().map(f32::from).collect::<Vec<_>>();
            ((*name).to_owned(), TensorData::new(numbers, [name.len()]))
        });
        save_tensors(&tensors.collect(), folder.join(file)).unwrap();
    }

    fn index(folder: &Path, entries: &[(&str, &str)]) {
        let map: HashMap<&str, &str> = entries.iter().copied().collect();
        let text = serde_json::json!({ "metadata": { "total_size": 1 }, "weight_map": map }).to_string();
        std::fs::write(folder.join(INDEX), text).unwrap();
    }

    #[test]
    fn tensors_are_found_over_all_shards_and_read_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "one.safetensors", &["abc", "d"]);
        write(folder.path(), "two.safetensors", &["ef"]);
        index(
            folder.path(),
            &[("abc", "one.safetensors"), ("d", "one.safetensors"), ("ef", "two.safetensors")],
        );
        let mut files = WeightFiles::open(folder.path()).unwrap();
        assert_eq!(files.names().collect::<Vec<_>>(), ["abc", "d", "ef"]);
        for name in ["ef", "abc", "d"] {
            let (bytes, info) = files.read(name).unwrap();
            assert_eq!(info.shape, [name.len()]);
            let expected: Vec<u8> = name.bytes().flat_map(|byte| f32::from(byte).to_le_bytes()).collect();
            assert_eq!(bytes, expected);
        }
        assert!(files.info("g").is_none());
    }

    #[test]
    fn an_index_that_does_not_fit_its_shards_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let message = || WeightFiles::open(folder.path()).unwrap_err().to_string();
        assert!(message().contains(SINGLE), "{}", message());
        write(folder.path(), "one.safetensors", &["abc"]);
        write(folder.path(), "two.safetensors", &["abc"]);
        index(folder.path(), &[("abc", "one.safetensors"), ("d", "one.safetensors")]);
        assert!(message().contains("puts tensor `d` into `one.safetensors`"), "{}", message());
        index(folder.path(), &[("abc", "one.safetensors"), ("d", "two.safetensors")]);
        assert!(message().contains("holds tensor `abc`, as does"), "{}", message());
        index(folder.path(), &[("abc", "../one.safetensors")]);
        assert!(message().contains("no file of the same folder"), "{}", message());
        index(folder.path(), &[("abc", "three.safetensors")]);
        assert!(message().contains("three.safetensors"), "{}", message());
    }

    #[test]
    fn a_file_that_was_cut_off_is_refused_before_a_tensor_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        write(folder.path(), "x.safetensors", &["abc"]);
        let whole = std::fs::read(&path).unwrap();
        for length in [0, 7, 8, 20, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            let error = WeightFiles::open(&path).unwrap_err().to_string();
            assert!(error.contains("x.safetensors` is not a safetensors file"), "{error}");
        }
        let mut huge = whole;
        huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        std::fs::write(&path, huge).unwrap();
        assert!(WeightFiles::open(&path).is_err());
    }
}

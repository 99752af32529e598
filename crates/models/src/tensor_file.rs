//! Named tensors of any shape in a safetensors file, element types kept.

use std::{borrow::Cow, collections::BTreeMap, path::Path};

use burn::tensor::{DType, TensorData, bf16, f16};
use safetensors::{Dtype, SafeTensors, View};

use crate::{ModelError, files};

/// Writes tensors to a safetensors file. The same tensors give the same bytes.
///
/// # Errors
/// When the file cannot be written, or elements are neither F64, F32, F16, BF16 nor I64.
pub fn save_tensors(
    tensors: &BTreeMap<String, TensorData>,
    path: impl AsRef<Path>,
) -> Result<(), ModelError> {
    let path = path.as_ref();
    for (name, tensor) in tensors {
        if dtype_of(tensor.dtype).is_none() {
            return Err(ModelError::ElementType { name: name.clone(), dtype: format!("{:?}", tensor.dtype) });
        }
    }
    let stored: BTreeMap<&String, Stored<'_>> =
        tensors.iter().map(|(name, tensor)| (name, Stored(tensor))).collect();
    let bytes = safetensors::serialize(&stored, None)
        .map_err(|source| ModelError::Safetensors { path: path.into(), source })?;
    files::write(path, &bytes)
}

/// Reads all tensors of a safetensors file.
///
/// # Errors
/// When the file cannot be read, is no safetensors file, or holds elements of another type than [`save_tensors`] writes.
pub fn load_tensors(path: impl AsRef<Path>) -> Result<BTreeMap<String, TensorData>, ModelError> {
    let path = path.as_ref();
    let bytes = files::read(path)?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|source| ModelError::Safetensors { path: path.into(), source })?;
    file.iter()
        .map(|(name, view)| {
            let data = decoded(view.data(), view.dtype(), view.shape().to_vec()).ok_or_else(|| {
                ModelError::ElementType { name: name.into(), dtype: format!("{:?}", view.dtype()) }
            })?;
            Ok((name.to_owned(), data))
        })
        .collect()
}

/// A tensor as it stands in a file.
pub(crate) struct Stored<'a>(pub(crate) &'a TensorData);

impl View for &Stored<'_> {
    fn dtype(&self) -> Dtype {
        dtype_of(self.0.dtype).expect("element types are checked before tensors are written")
    }

    fn shape(&self) -> &[usize] {
        &self.0.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.0.as_bytes().into()
    }

    fn data_len(&self) -> usize {
        self.0.as_bytes().len()
    }
}

pub(crate) fn dtype_of(dtype: DType) -> Option<Dtype> {
    match dtype {
        DType::F64 => Some(Dtype::F64),
        DType::F32 => Some(Dtype::F32),
        DType::F16 => Some(Dtype::F16),
        DType::BF16 => Some(Dtype::BF16),
        DType::I64 => Some(Dtype::I64),
        _ => None,
    }
}

/// Little-endian elements as numbers of their own type; `None` for a type that is not read.
pub(crate) fn decoded(bytes: &[u8], dtype: Dtype, shape: Vec<usize>) -> Option<TensorData> {
    let (pairs, quads, octets) = (bytes.as_chunks().0, bytes.as_chunks().0, bytes.as_chunks().0);
    macro_rules! numbers {
        ($chunks:expr, $read:expr) => {
            TensorData::new($chunks.iter().map(|bytes| $read(*bytes)).collect::<Vec<_>>(), shape)
        };
    }
    Some(match dtype {
        Dtype::F64 => numbers!(octets, f64::from_le_bytes),
        Dtype::F32 => numbers!(quads, f32::from_le_bytes),
        Dtype::F16 => numbers!(pairs, f16::from_le_bytes),
        Dtype::BF16 => numbers!(pairs, bf16::from_le_bytes),
        Dtype::I64 => numbers!(octets, i64::from_le_bytes),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_come_back_bit_for_bit_with_their_element_types() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        let tensors: BTreeMap<String, TensorData> = [
            ("f64", TensorData::new(vec![f64::NAN, -0.0, 1e-300], [3])),
            ("f32", TensorData::new(vec![f32::INFINITY, 0.1], [2, 1])),
            ("bf16", TensorData::new(vec![bf16::from_f32(1.5)], [1])),
            ("i64", TensorData::new(vec![i64::MIN, 7], [2])),
            ("none", TensorData::new(Vec::<f32>::new(), [0, 4])),
        ]
        .into_iter()
        .map(|(name, data)| (name.to_owned(), data))
        .collect();
        save_tensors(&tensors, &path).unwrap();
        let read = load_tensors(&path).unwrap();
        assert_eq!(read.len(), tensors.len());
        for (name, tensor) in &tensors {
            assert_eq!((tensor.dtype, &tensor.shape), (read[name].dtype, &read[name].shape), "{name}");
            assert_eq!(tensor.as_bytes(), read[name].as_bytes(), "{name}");
        }
    }

    #[test]
    fn a_type_that_is_not_kept_and_a_file_of_another_kind_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        let flags = BTreeMap::from([("flags".to_owned(), TensorData::new(vec![true], [1]))]);
        assert!(save_tensors(&flags, &path).unwrap_err().to_string().contains("`flags`"));
        std::fs::write(&path, "text").unwrap();
        assert!(load_tensors(&path).unwrap_err().to_string().contains("not a safetensors file"));
    }
}

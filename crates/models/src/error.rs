//! Everything that can go wrong with a model's description, weights and files.

use std::{fmt, path::PathBuf};

use firebrick_core::TokenizerError;

/// A model that cannot be built, stored or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A field of the decoder's configuration cannot be used.
    #[error("{key} = {value}: allowed is {allowed}")]
    Config {
        /// Name of the field.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// A file cannot be read.
    #[error("`{}` cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("`{}` cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file is not the JSON that was expected.
    #[error("`{}` is not what was expected: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A tokenizer's file holds a description that no tokenizer can be built from.
    #[error("`{}`: {source}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: TokenizerError,
    },
    /// A chat template that did not come with the model cannot be used.
    #[error("the chat template that was given: {source}")]
    ChatTemplate {
        /// What is wrong.
        source: TokenizerError,
    },
    /// A file is not in the safetensors format.
    #[error("`{}` is not a safetensors file: {source}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: safetensors::SafeTensorError,
    },
    /// A file of weights does not fit the others of its folder.
    #[error("`{}` {problem}", path.display())]
    Shard {
        /// The file.
        path: PathBuf,
        /// What does not fit, as what follows the file's name in a sentence.
        problem: String,
    },
    /// A key of a Hugging Face file has a value that cannot be honoured.
    #[error("`{}`: {key} = {value}: {allowed}", path.display())]
    HuggingFace {
        /// The file.
        path: PathBuf,
        /// The key, with those of the objects around it.
        key: String,
        /// Its value.
        value: String,
        /// What is allowed, or what to do.
        allowed: String,
    },
    /// A tensor has elements that weights cannot have.
    #[error("tensor `{name}` has elements of type {dtype}; allowed are F64, F32, F16 and BF16")]
    ElementType {
        /// Name of the tensor.
        name: String,
        /// Its type of element.
        dtype: String,
    },
    /// The tensors of a file are not those of the model. All differences are listed.
    #[error(
        "`{}` does not fit the model:{}{}{}; check that it belongs to this configuration",
        path.display(),
        Listed(" missing", missing),
        Listed(" not part of the model", extra),
        Listed(" of another shape", misshapen)
    )]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// Tensors of the model that the file lacks, by name.
        missing: Vec<String>,
        /// Tensors of the file that the model lacks, by name.
        extra: Vec<String>,
        /// Tensors of both whose shapes differ.
        misshapen: Vec<Misshapen>,
    },
}

/// A tensor that has another shape in a file than in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misshapen {
    /// Name of the tensor.
    pub name: String,
    /// Shape in the model.
    pub expected: Vec<usize>,
    /// Shape in the file.
    pub found: Vec<usize>,
}

impl fmt::Display for Misshapen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (expected {:?}, found {:?})", self.name, self.expected, self.found)
    }
}

/// Writes `label: item, item`, or nothing when there is no item.
struct Listed<'a, T>(&'static str, &'a [T]);

impl<T: fmt::Display> fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, item) in self.1.iter().enumerate() {
            if index == 0 {
                write!(f, "{}: {item}", self.0)?;
            } else {
                write!(f, ", {item}")?;
            }
        }
        Ok(())
    }
}

//! What is wrong with a data file.

use std::{fmt, path::PathBuf};

use parquet::errors::ParquetError;

/// Where a row stands in its file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowPlace {
    /// A line of a JSONL file; empty lines count.
    Line(usize),
    /// A row of a Parquet file.
    Row(usize),
}

impl RowPlace {
    /// The line or the row, as a number.
    pub fn number(self) -> usize {
        match self {
            Self::Line(number) | Self::Row(number) => number,
        }
    }
}

impl fmt::Display for RowPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(formatter, "line {line}"),
            Self::Row(row) => write!(formatter, "row {row}"),
        }
    }
}

/// A data file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The file cannot be opened.
    #[error("data file {}: cannot be opened", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A row cannot be used.
    #[error("data file {}, {place}: {reason}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The line or the row.
        place: RowPlace,
        /// What is wrong with it.
        reason: String,
    },
    /// A Parquet file is cut off, damaged, or none at all.
    #[error("data file {}: cannot be read as Parquet{}; is the file whole?", path.display(), after(*rows))]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The rows before the damage.
        rows: usize,
        /// What is wrong with it.
        #[source]
        source: ParquetError,
    },
    /// A Parquet file is compressed in a way that is not read.
    #[error(
        "data file {}: column {column} is compressed with {codec}, which is not read; write the file with snappy, zstd, gzip or no compression", path.display()
    )]
    Compression {
        /// The file.
        path: PathBuf,
        /// The column, as a dotted path.
        column: String,
        /// Its compression, by its name in the Parquet format.
        codec: String,
    },
    /// There is no row.
    #[error("data file {}: no rows", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

fn after(rows: usize) -> String {
    if rows == 0 { String::new() } else { format!(" after row {rows}") }
}

//! The rows of a data file, JSONL or Parquet.

use std::{
    io::{BufRead, BufReader},
    path::Path,
};

use super::{
    data_error::{DataError, RowPlace},
    parquet_rows::read_parquet,
    row_columns::Row,
};

/// Parses every row of a file: of a Parquet file if its name ends in `.parquet`, of a JSONL file otherwise.
pub(super) fn read_rows<T>(
    path: &Path,
    mut parse: impl FnMut(RowPlace, Row) -> Result<T, String>,
) -> Result<Vec<T>, DataError> {
    let mut rows = Vec::new();
    let mut each = |place, row: Result<Row, String>| {
        let row = row.and_then(|row| parse(place, row));
        rows.push(row.map_err(|reason| DataError::Row { path: path.to_owned(), place, reason })?);
        Ok(())
    };
    let file =
        std::fs::File::open(path).map_err(|source| DataError::Open { path: path.to_owned(), source })?;
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("parquet")) {
        read_parquet(path, file, &mut each)?;
    } else {
        read_jsonl(file, &mut each)?;
    }
    if rows.is_empty() { Err(DataError::Empty { path: path.to_owned() }) } else { Ok(rows) }
}

fn read_jsonl(
    file: std::fs::File,
    each: &mut dyn FnMut(RowPlace, Result<Row, String>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let row = match line {
            Ok(text) if text.trim().is_empty() => continue,
            Ok(text) => serde_json::from_str(&text).map_err(|error| {
                format!("not a JSON object ({error}); was the file cut off while it was written?")
            }),
            Err(error) => Err(error.to_string()),
        };
        each(RowPlace::Line(index + 1), row)?;
    }
    Ok(())
}

/// The name of a row that has no id of its own.
pub(super) fn default_id(path: &Path, place: RowPlace) -> String {
    format!("{}:{}", path.file_name().unwrap_or_default().to_string_lossy(), place.number())
}

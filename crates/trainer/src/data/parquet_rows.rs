//! Rows of a Parquet file as JSON objects.

use std::{
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use parquet::{
    basic::Compression,
    errors::ParquetError,
    file::reader::{FileReader, SerializedFileReader},
    record::Field,
};
use serde_json::{Number, Value};

use super::{
    data_error::{DataError, RowPlace},
    row_columns::Row,
};

/// Hands over every row, as the JSON object that a JSONL file would have in its place.
///
/// Lists, structs, maps, text, numbers, booleans and nulls are what they are in JSON; the rest is told at [`super::DataReader`].
pub(super) fn read_parquet(
    path: &Path,
    file: File,
    each: &mut dyn FnMut(RowPlace, Result<Row, String>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let damaged = |rows| move |source| DataError::Parquet { path: path.to_owned(), rows, source };
    let reader = guarded(|| SerializedFileReader::new(file)).map_err(damaged(0))?;
    check_compression(path, &reader)?;
    let mut rows = guarded(|| reader.get_row_iter(None)).map_err(damaged(0))?;
    let mut read = 0;
    while let Some(row) = guarded(|| rows.next().transpose()).map_err(damaged(read))? {
        read += 1;
        let row = row.into_columns().into_iter().map(|(name, field)| (name, value_of(field))).collect();
        each(RowPlace::Row(read), Ok(row))?;
    }
    Ok(())
}

/// Runs a call of the Parquet library, which panics on some damaged files where it should return an error. What the call has
/// touched is not used any more after a panic.
fn guarded<T>(call: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        Err(ParquetError::General(format!("the file contradicts itself: {said}")))
    })
}

fn check_compression(path: &Path, reader: &SerializedFileReader<File>) -> Result<(), DataError> {
    for column in reader.metadata().row_groups().iter().flat_map(|group| group.columns()) {
        match column.compression() {
            Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::GZIP(_) | Compression::ZSTD(_) => {
            }
            codec => {
                let (path, column) = (path.to_owned(), column.column_path().string());
                let codec = format!("{codec:?}");
                let codec = codec.split('(').next().unwrap_or_default().to_owned();
                return Err(DataError::Compression { path, column, codec });
            }
        }
    }
    Ok(())
}

fn value_of(field: Field) -> Value {
    let finite = |number| Number::from_f64(number).map_or(Value::Null, Value::Number);
    match field {
        Field::Null => Value::Null,
        Field::Bool(value) => value.into(),
        Field::Byte(value) => value.into(),
        Field::Short(value) => value.into(),
        Field::Int(value) => value.into(),
        Field::Long(value) => value.into(),
        Field::UByte(value) => value.into(),
        Field::UShort(value) => value.into(),
        Field::UInt(value) => value.into(),
        Field::ULong(value) => value.into(),
        // by their shortest digits, as in JSON: 0.1 and not 0.10000000149
        Field::Float16(value) => finite(value.to_string().parse().unwrap_or(f64::NAN)),
        Field::Float(value) => finite(value.to_string().parse().unwrap_or(f64::NAN)),
        Field::Double(value) => finite(value),
        Field::Str(text) => text.into(),
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => text.into(),
            Err(_) => bytes.data().iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
        },
        Field::Group(row) => {
            row.into_columns().into_iter().map(|(name, field)| (name, value_of(field))).collect()
        }
        Field::ListInternal(list) => list.elements().iter().cloned().map(value_of).collect(),
        Field::MapInternal(map) => {
            let entry = |(key, value): &(Field, Field)| {
                let name = match value_of(key.clone()) {
                    Value::String(name) => name,
                    other => other.to_string(),
                };
                (name, value_of(value.clone()))
            };
            map.entries().iter().map(entry).collect()
        }
        other @ (Field::Decimal(_)
        | Field::Date(_)
        | Field::TimeMillis(_)
        | Field::TimeMicros(_)
        | Field::TimestampMillis(_)
        | Field::TimestampMicros(_)) => other.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use parquet::basic::ZstdLevel;
    use serde_json::json;

    use super::*;
    use crate::data::parquet_fixture::{VERL, parquet_file};

    fn read(file: &tempfile::NamedTempFile) -> Result<Vec<Value>, DataError> {
        let mut rows = Vec::new();
        read_parquet(file.path(), file.reopen().unwrap(), &mut |place, row| {
            assert_eq!(place, RowPlace::Row(rows.len() + 1));
            rows.push(Value::from(row.unwrap()));
            Ok(())
        })?;
        Ok(rows)
    }

    #[test]
    fn lists_structs_numbers_and_nulls_are_what_they_are_in_json() {
        let schema = "message schema {
            optional binary text (UTF8);
            required int64 id;
            optional int32 small;
            optional double number;
            optional float short;
            optional boolean flag;
            optional group tags (LIST) { repeated group list { optional binary element (UTF8); } }
            optional group chat (LIST) { repeated group list { optional group element {
                required binary role (UTF8);
                optional group parts (LIST) { repeated group list { optional int64 element; } }
            } } }
            optional group one { optional group two { optional binary three (UTF8); } }
        }";
        let rows = [
            json!({"text": "ö – 計算 🧱", "id": i64::MAX, "small": -1, "number": 0.1, "short": 0.1, "flag": true,
                "tags": ["a", null, ""], "chat": [{"role": "user", "parts": [1, 2]}, {"role": "tool", "parts": []}],
                "one": {"two": {"three": "x"}}}),
            json!({"text": null, "id": 0, "small": null, "number": null, "short": null, "flag": null,
                "tags": [], "chat": null, "one": {"two": {"three": null}}}),
            json!({"text": "", "id": -7, "small": 0, "number": 1e300, "short": 2.0, "flag": false,
                "tags": null, "chat": [{"role": "user", "parts": null}], "one": {"two": null}}),
            json!({"text": "", "id": 1, "small": 0, "number": 0.0, "short": 0.0, "flag": false,
                "tags": ["b"], "chat": [], "one": null}),
        ];
        for compression in [Compression::SNAPPY, Compression::ZSTD(ZstdLevel::default())] {
            assert_eq!(read(&parquet_file(schema, compression, &rows)).unwrap(), rows);
        }
    }

    #[test]
    fn what_json_does_not_have_becomes_text_or_null() {
        let schema =
            "message schema { optional binary bytes; optional double number; optional int32 day (DATE); }";
        let rows = [json!({"bytes": "text", "number": "not a number", "day": 1})];
        let file = parquet_file(schema, Compression::SNAPPY, &rows);
        assert_eq!(read(&file).unwrap()[0]["bytes"], "text");
        assert_eq!(read(&file).unwrap()[0]["number"], Value::Null);
        assert!(read(&file).unwrap()[0]["day"].as_str().unwrap().starts_with("1970-01-02"));
        assert_eq!(value_of(Field::Bytes(vec![0xff, 0x0a].into())), "ff0a");
    }

    #[test]
    fn another_compression_is_refused_by_name() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/brotli.parquet");
        let error = read_parquet(path.as_ref(), File::open(path).unwrap(), &mut |_, _| Ok(())).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("column answer is compressed with BROTLI") && error.contains("snappy"),
            "{error}"
        );
    }

    #[test]
    fn damage_inside_of_the_file_is_an_error_or_other_text_but_never_a_panic() {
        let rows: Vec<Value> = (0..20)
            .map(|index| {
                json!({"data_source": "a", "prompt": [{"role": "user", "content": format!("{index}?")}],
                "reward_model": {"ground_truth": "1"}, "extra_info": {"index": index}})
            })
            .collect();
        let whole = parquet_file(VERL, Compression::SNAPPY, &rows);
        let bytes = std::fs::read(whole.path()).unwrap();
        let mut damaged = tempfile::NamedTempFile::new().unwrap();
        let places: Vec<usize> = (0..bytes.len()).step_by(3).collect();
        let mut refused = 0;
        for &index in &places {
            let mut bytes = bytes.clone();
            bytes[index] ^= 0xff;
            damaged.as_file_mut().rewind().unwrap();
            damaged.write_all(&bytes).unwrap();
            refused += usize::from(read(&damaged).is_err());
        }
        assert!(refused > places.len() / 4, "{refused} of {}", places.len());
    }
}

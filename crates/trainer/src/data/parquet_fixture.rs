//! Small Parquet files for tests, written from JSON objects.

use std::sync::Arc;

use parquet::{
    basic::{Compression, Repetition},
    data_type::{BoolType, ByteArrayType, DoubleType, FloatType, Int32Type, Int64Type},
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::{parser::parse_message_type, types::Type},
};
use serde_json::Value;
use tempfile::NamedTempFile;

/// What verl's preparation scripts write: messages, structs, an id that is a number.
pub(super) const VERL: &str = "message schema {
    optional binary data_source (UTF8);
    optional group prompt (LIST) {
        repeated group list { optional group element {
            optional binary role (UTF8);
            optional binary content (UTF8);
        } }
    }
    optional binary ability (UTF8);
    optional group reward_model {
        optional binary style (UTF8);
        optional binary ground_truth (UTF8);
    }
    optional group extra_info {
        optional int64 index;
        optional binary split (UTF8);
    }
}";

/// A file of these rows. A field of a row that is null or left out is written as null.
pub(super) fn parquet_file(schema: &str, compression: Compression, rows: &[Value]) -> NamedTempFile {
    let file = tempfile::Builder::new().suffix(".parquet").tempfile().unwrap();
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer =
        SerializedFileWriter::new(file.reopen().unwrap(), schema.clone(), Arc::new(properties)).unwrap();
    let mut leaves = Vec::new();
    for row in rows {
        let mut next = 0;
        for field in schema.get_fields() {
            shred(field, &row[field.name()], [0; 3], &mut leaves, &mut next);
        }
    }
    let mut group = writer.next_row_group().unwrap();
    let mut leaves = leaves.iter();
    while let Some(mut column) = group.next_column().unwrap() {
        let leaf: &Leaf = leaves.next().unwrap();
        macro_rules! write {
            ($type:ty, $value:expr) => {{
                let values: Vec<_> = leaf.values.iter().map($value).collect();
                let column = column.typed::<$type>();
                column.write_batch(&values, Some(&leaf.definition), Some(&leaf.repetition)).unwrap();
            }};
        }
        match leaf.physical {
            "BYTE_ARRAY" => write!(ByteArrayType, |value| value.as_str().unwrap().into()),
            "INT64" => write!(Int64Type, |value| value.as_i64().unwrap()),
            "INT32" => write!(Int32Type, |value| value.as_i64().unwrap() as i32),
            "DOUBLE" => write!(DoubleType, |value| value.as_f64().unwrap_or(f64::NAN)),
            "FLOAT" => write!(FloatType, |value| value.as_f64().unwrap() as f32),
            _ => write!(BoolType, |value| value.as_bool().unwrap()),
        }
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    file
}

/// The values of a column with their levels, as the format stores them.
#[derive(Debug, Default)]
struct Leaf {
    physical: &'static str,
    values: Vec<Value>,
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

/// Takes a value apart into columns. The levels are those of definition, of repetition, and how many lists are open.
fn shred(
    node: &Type,
    value: &Value,
    [definition, repetition, depth]: [i16; 3],
    leaves: &mut Vec<Leaf>,
    next: &mut usize,
) {
    match node.get_basic_info().repetition() {
        Repetition::REPEATED => {
            let first = *next;
            match value.as_array().filter(|items| !items.is_empty()) {
                None => inside(node, &Value::Null, [definition, repetition, depth + 1], leaves, next),
                Some(items) => {
                    for (index, item) in items.iter().enumerate() {
                        *next = first;
                        let repetition = if index == 0 { repetition } else { depth + 1 };
                        // the group that repeats holds the item as its one field
                        let item = serde_json::json!({ node.get_fields()[0].name(): item });
                        inside(node, &item, [definition + 1, repetition, depth + 1], leaves, next);
                    }
                }
            }
        }
        Repetition::OPTIONAL => {
            let definition = definition + i16::from(!value.is_null());
            inside(node, value, [definition, repetition, depth], leaves, next);
        }
        Repetition::REQUIRED => inside(node, value, [definition, repetition, depth], leaves, next),
    }
}

fn inside(node: &Type, value: &Value, levels: [i16; 3], leaves: &mut Vec<Leaf>, next: &mut usize) {
    if node.is_group() {
        for field in node.get_fields() {
            let list = field.get_basic_info().repetition() == Repetition::REPEATED;
            shred(field, if list { value } else { &value[field.name()] }, levels, leaves, next);
        }
        return;
    }
    if leaves.len() == *next {
        leaves.push(Leaf::default());
    }
    let leaf = &mut leaves[*next];
    leaf.physical = match node.get_physical_type() {
        parquet::basic::Type::BYTE_ARRAY => "BYTE_ARRAY",
        parquet::basic::Type::INT64 => "INT64",
        parquet::basic::Type::INT32 => "INT32",
        parquet::basic::Type::DOUBLE => "DOUBLE",
        parquet::basic::Type::FLOAT => "FLOAT",
        _ => "BOOLEAN",
    };
    leaf.definition.push(levels[0]);
    leaf.repetition.push(levels[1]);
    if !value.is_null() {
        leaf.values.push(value.clone());
    }
    *next += 1;
}

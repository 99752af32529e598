//! Event files that TensorBoard reads.
//!
//! *Reference*: the messages of TensorFlow's `event.proto` and `summary.proto`, in the records of its TFRecord files.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use prost::Message;

/// Writes scalars to an event file, one file for each process that trains.
///
/// A record is handed to the operating system in one call, so a process that is killed leaves at most a torn last record,
/// which TensorBoard skips.
#[derive(Debug)]
pub struct EventWriter {
    file: File,
}

impl EventWriter {
    /// Creates a new file `events.out.tfevents.<seconds>.<number>` in `folder`, which must exist. TensorBoard reads the files
    /// of a folder in the order of their names.
    ///
    /// With `first_step` above 0 the file opens with the mark that a session starts there: what earlier files of the folder
    /// say of this step and of later ones is no longer shown.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(folder: &Path, first_step: usize, wall_time: SystemTime) -> io::Result<Self> {
        let mut writer = Self { file: create_new(folder, wall_time)? };
        writer.write(0, wall_time, What::FileVersion("brain.Event:2".into()))?;
        if first_step > 0 {
            writer.write(first_step, wall_time, What::SessionLog(SessionLog { status: SESSION_START }))?;
        }
        Ok(writer)
    }

    /// Appends the scalars of a step, as f32, in one record; nothing when there are none.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn scalars<'a>(
        &mut self,
        step: usize,
        wall_time: SystemTime,
        values: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> io::Result<()> {
        let scalar = |(tag, value): (&str, f64)| Scalar { tag: tag.into(), simple_value: Some(value as f32) };
        let value: Vec<Scalar> = values.into_iter().map(scalar).collect();
        if value.is_empty() {
            return Ok(());
        }
        self.write(step, wall_time, What::Summary(Summary { value }))
    }

    fn write(&mut self, step: usize, wall_time: SystemTime, what: What) -> io::Result<()> {
        let event = Event { wall_time: seconds(wall_time), step: step as i64, what: Some(what) };
        self.file.write_all(&record(&event.encode_to_vec()))
    }
}

/// Opens a file that did not exist.
fn create_new(folder: &Path, wall_time: SystemTime) -> io::Result<File> {
    let seconds = seconds(wall_time).max(0.0) as u64;
    for number in 0..10_000 {
        let path: PathBuf = folder.join(format!("events.out.tfevents.{seconds:010}.{number:04}"));
        match OpenOptions::new().write(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened,
        }
    }
    let message = format!("{} holds 10,000 event files of second {seconds}", folder.display());
    Err(io::Error::new(io::ErrorKind::AlreadyExists, message))
}

/// Seconds since 1970, negative before.
fn seconds(time: SystemTime) -> f64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_secs_f64(),
        Err(error) => -error.duration().as_secs_f64(),
    }
}

/// A TFRecord: the length of the data, its checksum, the data, their checksum, all little-endian.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(data.len() + 16);
    record.extend(length);
    record.extend(masked(crc32c::crc32c(&length)).to_le_bytes());
    record.extend(data);
    record.extend(masked(crc32c::crc32c(data)).to_le_bytes());
    record
}

/// A checksum, rotated to the right by 15 bits and shifted by a constant: data that hold a checksum of their own would
/// otherwise have a checksum that says little.
fn masked(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// `tensorflow.Event`.
#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(oneof = "What", tags = "3, 5, 7")]
    what: Option<What>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(Summary),
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

/// `tensorflow.Summary`.
#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Scalar>,
}

/// `tensorflow.Summary.Value`.
#[derive(Clone, PartialEq, Message)]
struct Scalar {
    #[prost(string, tag = "1")]
    tag: String,
    /// One of several kinds of value, so that a zero is written as well.
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

/// `tensorflow.SessionLog`.
#[derive(Clone, PartialEq, Message)]
struct SessionLog {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// `tensorflow.SessionLog.START`.
const SESSION_START: i32 = 1;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The check value of CRC-32C; rotated, 0xe306_9283 = …1001_0010_1000_0011 becomes 0x2507_c60d, whose sum with
    /// 0xa282_ead8 is 0xc78a_b0e5.
    #[test]
    fn checksums_are_castagnoli_and_masked() {
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(masked(0xe306_9283), 0xc78a_b0e5);
        assert_eq!(masked(0), 0xa282_ead8);
        assert_eq!(masked(1 << 15), 0xa282_ead9);
    }

    /// `wall_time` 1.5 is 0x3ff8 followed by zeros; keys are field number times 8 plus wire type; zero steps are left out.
    #[test]
    fn messages_have_the_field_numbers_of_tensorflow() {
        let encoded = |step, what| Event { wall_time: 1.5, step, what: Some(what) }.encode_to_vec();
        let time = [0x09, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f];
        let version = encoded(0, What::FileVersion("v".into()));
        assert_eq!(version, [&time[..], &[0x1a, 1, b'v']].concat());
        let session = encoded(7, What::SessionLog(SessionLog { status: SESSION_START }));
        assert_eq!(session, [&time[..], &[0x10, 7, 0x3a, 2, 0x08, 1]].concat());
        let value = vec![Scalar { tag: "a".into(), simple_value: Some(0.0) }];
        let summary = encoded(7, What::Summary(Summary { value }));
        let zero = [0x2a, 10, 0x0a, 8, 0x0a, 1, b'a', 0x15, 0, 0, 0, 0];
        assert_eq!(summary, [&time[..], &[0x10, 7], &zero].concat());
    }

    #[test]
    fn times_before_1970_are_negative() {
        assert_eq!(seconds(UNIX_EPOCH + Duration::from_millis(1500)), 1.5);
        assert_eq!(seconds(UNIX_EPOCH - Duration::from_millis(1500)), -1.5);
    }
}

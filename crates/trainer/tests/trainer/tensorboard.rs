//! Event files, read by a reader of our own and, where Python has the package, by TensorBoard's.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use firebrick_trainer::EventWriter;

fn at(seconds: f64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs_f64(seconds)
}

/// An event, as far as Firebrick writes them.
#[derive(Debug, Clone, Default, PartialEq)]
struct Event {
    wall_time: f64,
    step: u64,
    version: String,
    scalars: Vec<(String, f32)>,
    /// Status of the session, 1 at its start.
    session: u64,
}

impl Event {
    fn version(wall_time: f64) -> Self {
        Self { wall_time, version: "brain.Event:2".into(), ..Self::default() }
    }

    fn scalars(step: u64, wall_time: f64, scalars: &[(&str, f32)]) -> Self {
        let scalars = scalars.iter().map(|(tag, value)| ((*tag).to_owned(), *value)).collect();
        Self { wall_time, step, scalars, ..Self::default() }
    }
}

/// The event files of a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The events of a file; a torn last record is left out, a checksum that does not fit fails.
fn events(path: &Path) -> Vec<Event> {
    let bytes = std::fs::read(path).unwrap();
    let mut rest = bytes.as_slice();
    let mut events = Vec::new();
    while let Some((data, after)) = record(rest) {
        events.push(event(data));
        rest = after;
    }
    events
}

/// The data of the first record and what follows it; `None` when there is no whole record.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_at_checked(8)?;
    let (length_checksum, rest) = rest.split_at_checked(4)?;
    assert_eq!(length_checksum, checksum(length), "checksum of the length");
    let (data, rest) = rest.split_at_checked(u64::from_le_bytes(length.try_into().unwrap()) as usize)?;
    let (data_checksum, rest) = rest.split_at_checked(4)?;
    assert_eq!(data_checksum, checksum(data), "checksum of the data");
    Some((data, rest))
}

fn checksum(data: &[u8]) -> [u8; 4] {
    let plain = crc32c::crc32c(data);
    plain.rotate_left(32 - 15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// A field of a protobuf message.
#[derive(Debug)]
enum Field<'a> {
    Varint(u64),
    Fixed64(f64),
    Bytes(&'a [u8]),
    Fixed32(f32),
}

/// The fields of a message with their numbers.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Varint(varint(&mut bytes)),
            1 => Field::Fixed64(f64::from_le_bytes(take(&mut bytes, 8).try_into().unwrap())),
            2 => {
                let length = varint(&mut bytes);
                Field::Bytes(take(&mut bytes, length as usize))
            }
            5 => Field::Fixed32(f32::from_le_bytes(take(&mut bytes, 4).try_into().unwrap())),
            wire_type => panic!("wire type {wire_type}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(length);
    *bytes = rest;
    taken
}

fn event(data: &[u8]) -> Event {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut event = Event::default();
    for field in fields(data) {
        match field {
            (1, Field::Fixed64(wall_time)) => event.wall_time = wall_time,
            (2, Field::Varint(step)) => event.step = step,
            (3, Field::Bytes(version)) => event.version = text(version),
            (5, Field::Bytes(summary)) => {
                for value in fields(summary) {
                    let (1, Field::Bytes(value)) = value else { panic!("{value:?} in a summary") };
                    match fields(value)[..] {
                        [(1, Field::Bytes(tag)), (2, Field::Fixed32(scalar))] => {
                            event.scalars.push((text(tag), scalar));
                        }
                        ref other => panic!("{other:?} in a value"),
                    }
                }
            }
            (7, Field::Bytes(session)) => match fields(session)[..] {
                [(1, Field::Varint(status))] => event.session = status,
                ref other => panic!("{other:?} in a session log"),
            },
            other => panic!("{other:?} in an event"),
        }
    }
    event
}

#[test]
fn what_was_written_is_read_back_with_both_checksums() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = EventWriter::create(folder.path(), 0, at(1_700_000_000.5)).unwrap();
    writer.scalars(0, at(1.25), [("reward/mean", 0.0), ("loss", -0.1)]).unwrap();
    writer.scalars(1, at(2.0), []).unwrap();
    writer.scalars(300, at(2.5), [("grad_norm", f64::INFINITY)]).unwrap();
    let files = files(folder.path());
    assert_eq!(files, [folder.path().join("events.out.tfevents.1700000000.0000")]);
    let expected = [
        Event::version(1_700_000_000.5),
        Event::scalars(0, 1.25, &[("reward/mean", 0.0), ("loss", -0.1)]),
        Event::scalars(300, 2.5, &[("grad_norm", f32::INFINITY)]),
    ];
    assert_eq!(events(&files[0]), expected);
}

#[test]
fn a_torn_last_record_leaves_those_before_it_readable() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = EventWriter::create(folder.path(), 0, at(10.0)).unwrap();
    writer.scalars(0, at(11.0), [("loss", 1.0)]).unwrap();
    writer.scalars(1, at(12.0), [("loss", 2.0)]).unwrap();
    let path = &files(folder.path())[0];
    let bytes = std::fs::read(path).unwrap();
    std::fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(events(path), [Event::version(10.0), Event::scalars(0, 11.0, &[("loss", 1.0)])]);
}

#[test]
fn a_second_writer_of_the_same_second_writes_to_a_later_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = EventWriter::create(folder.path(), 0, at(10.0)).unwrap();
    first.scalars(0, at(11.0), [("loss", 1.0)]).unwrap();
    let mut second = EventWriter::create(folder.path(), 0, at(10.9)).unwrap();
    second.scalars(1, at(12.0), [("loss", 2.0)]).unwrap();
    let [one, two] = &files(folder.path())[..] else { panic!("two files") };
    assert_eq!(events(one)[1..], [Event::scalars(0, 11.0, &[("loss", 1.0)])]);
    assert_eq!(events(two)[1..], [Event::scalars(1, 12.0, &[("loss", 2.0)])]);
}

#[test]
fn a_file_says_that_a_session_starts_only_when_it_starts_after_the_first_step() {
    for (first_step, session) in
        [(0, None), (4, Some(Event { wall_time: 10.0, step: 4, session: 1, ..Event::default() }))]
    {
        let folder = tempfile::tempdir().unwrap();
        EventWriter::create(folder.path(), first_step, at(10.0)).unwrap();
        let expected: Vec<Event> = [Event::version(10.0)].into_iter().chain(session).collect();
        assert_eq!(events(&files(folder.path())[0]), expected);
    }
}

/// Prints a line `tag step value` for each scalar that TensorBoard shows of the folder that is its argument.
const PRINT_SCALARS: &str = "
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
for tag in sorted(events.Tags()['scalars']):
    for scalar in events.Scalars(tag):
        print(tag, scalar.step, scalar.value)
";

/// The first attempt dies after step 4; the second goes on from step 3 and takes other values there.
#[test]
fn tensorboard_shows_the_last_attempt_at_each_step() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = EventWriter::create(folder.path(), 0, at(100.0)).unwrap();
    for step in 0..5 {
        first.scalars(step, at(101.0), [("loss", step as f64 / 2.0), ("reward/mean", 0.0)]).unwrap();
    }
    let mut second = EventWriter::create(folder.path(), 3, at(200.0)).unwrap();
    for step in 3..6 {
        second.scalars(step, at(201.0), [("loss", -(step as f64)), ("reward/mean", 1.0)]).unwrap();
    }

    let written: Vec<Vec<Event>> = files(folder.path()).iter().map(|file| events(file)).collect();
    assert_eq!(written.iter().map(Vec::len).collect::<Vec<_>>(), [6, 5]);
    assert_eq!((written[1][1].session, written[1][1].step), (1, 3));
    assert_eq!(written[1][2], Event::scalars(3, 201.0, &[("loss", -3.0), ("reward/mean", 1.0)]));

    let python = |arguments: &[&str]| Command::new("python3").args(arguments).output();
    if !python(&["-c", "import tensorboard"]).is_ok_and(|output| output.status.success()) {
        eprintln!("Python's package tensorboard is absent, so its own reader has not looked at the files");
        return;
    }
    let output = python(&["-c", PRINT_SCALARS, folder.path().to_str().unwrap()]).unwrap();
    let (shown, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    let expected = [
        "loss 0 0.0",
        "loss 1 0.5",
        "loss 2 1.0",
        "loss 3 -3.0",
        "loss 4 -4.0",
        "loss 5 -5.0",
        "reward/mean 0 0.0",
        "reward/mean 1 0.0",
        "reward/mean 2 0.0",
        "reward/mean 3 1.0",
        "reward/mean 4 1.0",
        "reward/mean 5 1.0",
    ];
    assert_eq!(shown.lines().collect::<Vec<_>>(), expected, "{errors}");
}

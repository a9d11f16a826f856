//! Requests: when they end, and with which result.

use bytes::Bytes;
use zonda_zoned::{Geometry, PayloadKind, Prng};

use crate::limits::REQUESTS_MAX;
use crate::testing::{Harness, Testbed, pattern, small, units_of_two_blocks};
use crate::{Event, FileData, FileError, FileStore, FilesConfig, Lifetime, Migration, Outcome, RequestId};

use Lifetime::NotSet;

fn data(outcome: Option<&Result<Outcome, FileError>>) -> &[u8] {
    match outcome {
        Some(Ok(Outcome::Data(data))) => data,
        other => panic!("a read ended with {other:?}"),
    }
}

#[test]
fn a_read_returns_appended_data_on_the_media_in_flight_or_in_the_buffer() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    let file = harness.create("a", NotSet);
    let mut expected = Vec::new();
    for length in [100, 1024, 3000, 5, 0, 700] {
        let more = pattern(length, length as usize);
        harness.append(file, &more);
        expected.extend(more);
        assert_eq!(harness.store().len_bytes(file), Some(expected.len() as u64));
        for (offset, bytes) in [(0, 10_000), (90, 20), (500, 600), (1020, 10)] {
            let read = harness.read(file, offset, bytes);
            let end = expected.len().min((offset + u64::from(bytes)) as usize);
            assert_eq!(data(harness.result(read)), expected.get(offset as usize..end).unwrap_or_default());
        }
    }
}

#[test]
fn a_read_past_the_end_is_short() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    let file = harness.write_file("a", NotSet, 700);
    for (offset, expected) in [(600, 100), (699, 1), (700, 0), (u64::MAX, 0)] {
        let read = harness.read(file, offset, u32::MAX);
        assert_eq!(data(harness.result(read)).len(), expected);
    }
}

#[test]
fn an_append_waits_for_space_in_the_buffer() {
    let mut testbed = Testbed::format(small(12, 5), units_of_two_blocks(), Prng::new(1));
    let file = testbed.store.create("a", NotSet).unwrap();
    let append = |testbed: &mut Testbed, request, length| {
        let data = FileData::Bytes(pattern(request, length).into());
        testbed.store.append(RequestId(request), file, data);
    };
    append(&mut testbed, 1, 4000);
    append(&mut testbed, 2, 4000);
    assert_eq!(testbed.store.poll_event(), Some(Event::Done { request: RequestId(1), result: Ok(Outcome::None) }));
    assert_eq!(testbed.store.poll_event(), None, "the buffer is full");
    assert_eq!(testbed.store.len_bytes(file), Some(4000));
    testbed.run_to_idle();
    assert_eq!(testbed.events.pop_front(), Some(Event::Done { request: RequestId(2), result: Ok(Outcome::None) }));
    assert_eq!(testbed.store.len_bytes(file), Some(8000));
}

#[test]
fn an_append_larger_than_the_buffer_is_written_completely() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    let file = harness.write_file("a", NotSet, 40_000);
    assert_eq!(harness.contents(file), pattern(file.0, 40_000));
}

#[test]
fn data_are_written_in_units_and_only_a_sync_writes_less() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    let file = harness.create("a", NotSet);
    let blocks = |harness: &mut Harness<_>| -> Vec<u64> {
        harness
            .take_commands()
            .iter()
            .filter(|seen| seen.name == "write" && seen.zone >= 2)
            .map(|seen| seen.blocks)
            .collect()
    };
    harness.append(file, &pattern(0, 1000));
    assert_eq!(blocks(&mut harness), []);
    harness.append(file, &pattern(0, 3000));
    assert_eq!(blocks(&mut harness), [2, 2, 2]);
    harness.sync(file);
    assert_eq!(blocks(&mut harness), [2], "the rest, and a part of a block");
    harness.append(file, &pattern(0, 1));
    harness.sync(file);
    assert_eq!(blocks(&mut harness), [1], "which begins a block");
    harness.sync(file);
    assert_eq!(blocks(&mut harness), [], "there is nothing to write");
}

#[test]
fn concurrent_syncs_share_a_write_of_the_metadata() {
    let mut harness = Harness::new(small(20, 14), units_of_two_blocks());
    let files: Vec<_> = (0..10).map(|number| harness.create(&format!("f{number}"), NotSet)).collect();
    for (number, file) in files.iter().enumerate() {
        harness.store().append(RequestId(100 + number as u64), *file, FileData::Bytes(pattern(0, 10).into()));
        harness.store().sync(RequestId(200 + number as u64), *file);
    }
    harness.run();
    let writes = harness.take_commands().iter().filter(|seen| seen.name == "write" && seen.zone < 3).count();
    assert!(writes <= 3, "{writes} writes for 10 syncs");
    assert!((200..210).all(|request| harness.result(RequestId(request)) == Some(&Ok(Outcome::None))));
}

#[test]
fn a_closed_file_refuses_data_and_a_second_close() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    let file = harness.write_file("a", NotSet, 100);
    let append = harness.append(file, b"more");
    assert_eq!(harness.error(append), FileError::NotOpen);
    let close = harness.close(file);
    assert_eq!(harness.error(close), FileError::NotOpen);
    let sync = harness.sync(file);
    harness.expect(sync);
}

#[test]
fn requests_for_a_deleted_file_end_with_no_such_file() {
    let mut testbed = Testbed::format(small(12, 5), units_of_two_blocks(), Prng::new(1));
    let file = testbed.store.create("a", NotSet).unwrap();
    testbed.store.append(RequestId(1), file, FileData::Bytes(pattern(0, 9000).into()));
    testbed.store.close(RequestId(2), file);
    testbed.take_command();
    testbed.store.delete(RequestId(3), "a");
    testbed.store.sync(RequestId(4), file);
    testbed.store.read(RequestId(5), file, 0, 10);
    testbed.store.rename(RequestId(6), "a", "b");
    testbed.run_to_idle();
    let mut results: Vec<(u64, bool)> = Vec::new();
    while let Some(Event::Done { request, result }) = testbed.events.pop_front() {
        results.push((request.0, result == Err(FileError::NoSuchFile)));
    }
    results.sort_unstable();
    assert_eq!(results, [(1, true), (2, true), (3, false), (4, true), (5, true), (6, true)]);
    assert_eq!(testbed.store.usage().zones_empty, 10);
}

#[test]
fn names_are_checked() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    let long = "x".repeat(256);
    assert_eq!(harness.store().create("", NotSet), Err(FileError::NameTooLong));
    assert_eq!(harness.store().create(&long, NotSet), Err(FileError::NameTooLong));
    harness.write_file(&long[..255], NotSet, 10);
    assert_eq!(harness.store().create(&long[..255], NotSet), Err(FileError::Exists));
    let rename = harness.rename(&long[..255], &long);
    assert_eq!(harness.error(rename), FileError::NameTooLong);
    let rename = harness.rename("missing", "b");
    assert_eq!(harness.error(rename), FileError::NoSuchFile);
    let delete = harness.delete("missing");
    assert_eq!(harness.error(delete), FileError::NoSuchFile);
    let rename = harness.rename(&long[..255], &long[..255]);
    harness.expect(rename);
    assert_eq!(harness.store().names().count(), 1);
}

#[test]
fn a_name_is_free_as_soon_as_its_file_is_deleted() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    let old = harness.write_file("a", NotSet, 100);
    harness.store().delete(RequestId(900), "a");
    let new = harness.create("a", NotSet);
    assert_ne!(old, new);
    harness.store().delete(RequestId(901), "a");
    harness.run();
    for request in [900, 901] {
        harness.expect(RequestId(request));
    }
    let mut harness = harness.remount(units_of_two_blocks()).unwrap();
    assert_eq!(harness.store().names().count(), 0);
}

#[test]
fn more_requests_than_the_bound_are_refused() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    let file = harness.create("a", NotSet);
    let byte = FileData::Bytes(Bytes::from_static(b"x"));
    harness.store().append(RequestId(0), file, byte);
    for request in 1..=REQUESTS_MAX as u64 {
        harness.store().sync(RequestId(request), file);
    }
    harness.store().sync(RequestId(REQUESTS_MAX as u64 + 1), file);
    harness.run();
    assert_eq!(harness.error(RequestId(REQUESTS_MAX as u64 + 1)), FileError::TooManyRequests);
    harness.expect(RequestId(REQUESTS_MAX as u64));
}

#[test]
fn a_store_without_contents_returns_lengths() {
    let config = FilesConfig { keeps: PayloadKind::None, ..units_of_two_blocks() };
    let mut harness = Harness::new(small(12, 5), config);
    let file = harness.create("a", NotSet);
    harness.store().append(RequestId(900), file, FileData::Length(3000));
    let append = harness.append(file, b"bytes are their length");
    harness.expect(append);
    let close = harness.close(file);
    harness.expect(close);
    let read = harness.read(file, 1000, 5000);
    assert_eq!(harness.result(read), Some(&Ok(Outcome::Length(2022))));
    let drive = harness.into_drive();
    let refused = FileStore::mount(&small(12, 5), config).map(|_| drive.bytes_kept());
    assert!(matches!(refused, Err(FileError::Config(words)) if words.contains("cannot be mounted")));
}

#[test]
fn a_length_is_refused_as_data_if_contents_are_kept() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    let file = harness.create("a", NotSet);
    harness.store().append(RequestId(900), file, FileData::Length(10));
    harness.run();
    assert!(matches!(harness.error(RequestId(900)), FileError::Config(_)));
}

#[test]
fn each_invalid_field_of_a_configuration_is_reported() {
    type Spoil = fn(&mut FilesConfig, &mut Geometry);
    let spoil: [(&str, Spoil); 11] = [
        ("keeps", |config, _| config.keeps = PayloadKind::Fingerprints),
        ("finish_threshold_percent", |config, _| config.finish_threshold_percent = 0),
        ("finish_threshold_percent", |config, _| config.finish_threshold_percent = 101),
        ("write_unit_bytes", |config, _| config.write_unit_bytes = 700),
        ("read_unit_bytes", |config, _| config.read_unit_bytes = 0),
        ("file_buffer_bytes", |config, _| config.file_buffer_bytes = 1000),
        ("migration.garbage_percent", |config, _| {
            config.migration = Some(Migration { start_empty_zones_percent: 10, garbage_percent: 0 });
        }),
        ("migration.start_empty_zones_percent", |config, _| {
            config.migration = Some(Migration { start_empty_zones_percent: 101, garbage_percent: 10 });
        }),
        ("3 sequential zones", |_, geometry| geometry.zone_count = 3),
        ("3 active zones", |_, geometry| {
            geometry.max_active_zones = Some(2);
            geometry.max_open_zones = Some(2);
        }),
        ("too small for the metadata", |_, geometry| geometry.zone_count = 100),
    ];
    for (words, spoil) in spoil {
        let (mut config, mut geometry) = (units_of_two_blocks(), small(12, 5));
        spoil(&mut config, &mut geometry);
        match FileStore::format(&geometry, config, [0; 16]) {
            Err(FileError::Config(said)) => {
                assert!(said.contains(words), "{words}: {said}");
            }
            other => panic!("{words}: {other:?}"),
        }
    }
}

#[test]
fn every_error_has_a_remedy() {
    let errors = [
        FileError::NoSuchFile,
        FileError::Exists,
        FileError::NotOpen,
        FileError::NoSpace,
        FileError::TooManyFiles,
        FileError::TooManyRequests,
        FileError::NameTooLong,
        FileError::NotReady,
        FileError::Media { status: zonda_zoned::Status::WriteFault, what: "writing" },
        FileError::NotAFileStore,
        FileError::OtherVersion { found: 7 },
        FileError::Corrupt("block 3".to_owned()),
    ];
    for error in errors {
        assert!(error.to_string().contains(": "), "{error}");
    }
}

//! Requests: when they end, and with what.

use bytes::Bytes;
use zonda_zoned::{Geometry, PayloadKind, Prng};

use crate::limits::REQUESTS_MAX;
use crate::testing::{Desk, World, pattern, small, units_of_two_blocks};
use crate::{Event, FileData, FileError, FileStore, FilesConfig, Lifetime, Migration, Outcome, RequestId};

use Lifetime::NotSet;

fn data(outcome: Option<&Result<Outcome, FileError>>) -> &[u8] {
    match outcome {
        Some(Ok(Outcome::Data(data))) => data,
        other => panic!("a read ended with {other:?}"),
    }
}

#[test]
fn a_read_finds_what_was_appended_on_the_media_under_way_or_in_the_buffer() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    let file = desk.create("a", NotSet);
    let mut expected = Vec::new();
    for length in [100, 1024, 3000, 5, 0, 700] {
        let more = pattern(length, length as usize);
        desk.append(file, &more);
        expected.extend(more);
        assert_eq!(desk.store().len_bytes(file), Some(expected.len() as u64));
        for (offset, bytes) in [(0, 10_000), (90, 20), (500, 600), (1020, 10)] {
            let read = desk.read(file, offset, bytes);
            let end = expected.len().min((offset + u64::from(bytes)) as usize);
            assert_eq!(data(desk.result(read)), expected.get(offset as usize..end).unwrap_or_default());
        }
    }
}

#[test]
fn a_read_past_the_end_is_short() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    let file = desk.write_file("a", NotSet, 700);
    for (offset, expected) in [(600, 100), (699, 1), (700, 0), (u64::MAX, 0)] {
        let read = desk.read(file, offset, u32::MAX);
        assert_eq!(data(desk.result(read)).len(), expected);
    }
}

#[test]
fn an_append_waits_for_room_in_the_buffer() {
    let mut world = World::format(small(12, 5), units_of_two_blocks(), Prng::new(1));
    let file = world.store.create("a", NotSet).unwrap();
    let append = |world: &mut World, request, length| {
        let data = FileData::Bytes(pattern(request, length).into());
        world.store.append(RequestId(request), file, data);
    };
    append(&mut world, 1, 4000);
    append(&mut world, 2, 4000);
    assert_eq!(world.store.poll_event(), Some(Event::Done { request: RequestId(1), result: Ok(Outcome::None) }));
    assert_eq!(world.store.poll_event(), None, "the buffer is full");
    assert_eq!(world.store.len_bytes(file), Some(4000));
    world.run_to_rest();
    assert_eq!(world.events.pop_front(), Some(Event::Done { request: RequestId(2), result: Ok(Outcome::None) }));
    assert_eq!(world.store.len_bytes(file), Some(8000));
}

#[test]
fn an_append_larger_than_the_buffer_goes_through_it() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    let file = desk.write_file("a", NotSet, 40_000);
    assert_eq!(desk.contents(file), pattern(file.0, 40_000));
}

#[test]
fn writes_leave_in_units_and_only_a_sync_writes_less() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    let file = desk.create("a", NotSet);
    let blocks = |desk: &mut Desk<_>| -> Vec<u64> {
        desk.seen().iter().filter(|seen| seen.name == "write" && seen.zone >= 2).map(|seen| seen.blocks).collect()
    };
    desk.append(file, &pattern(0, 1000));
    assert_eq!(blocks(&mut desk), []);
    desk.append(file, &pattern(0, 3000));
    assert_eq!(blocks(&mut desk), [2, 2, 2]);
    desk.sync(file);
    assert_eq!(blocks(&mut desk), [2], "the rest, and a part of a block");
    desk.append(file, &pattern(0, 1));
    desk.sync(file);
    assert_eq!(blocks(&mut desk), [1], "which begins a block");
    desk.sync(file);
    assert_eq!(blocks(&mut desk), [], "there is nothing to write");
}

#[test]
fn syncs_that_come_together_share_a_write_of_the_metadata() {
    let mut desk = Desk::new(small(20, 14), units_of_two_blocks());
    let files: Vec<_> = (0..10).map(|number| desk.create(&format!("f{number}"), NotSet)).collect();
    for (number, file) in files.iter().enumerate() {
        desk.store().append(RequestId(100 + number as u64), *file, FileData::Bytes(pattern(0, 10).into()));
        desk.store().sync(RequestId(200 + number as u64), *file);
    }
    desk.run();
    let writes = desk.seen().iter().filter(|seen| seen.name == "write" && seen.zone < 3).count();
    assert!(writes <= 3, "{writes} writes for 10 syncs");
    assert!((200..210).all(|request| desk.result(RequestId(request)) == Some(&Ok(Outcome::None))));
}

#[test]
fn a_closed_file_takes_no_data_and_no_second_close() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    let file = desk.write_file("a", NotSet, 100);
    let append = desk.append(file, b"more");
    assert_eq!(desk.error(append), FileError::NotOpen);
    let close = desk.close(file);
    assert_eq!(desk.error(close), FileError::NotOpen);
    let sync = desk.sync(file);
    desk.expect(sync);
}

#[test]
fn requests_for_a_deleted_file_end_with_no_such_file() {
    let mut world = World::format(small(12, 5), units_of_two_blocks(), Prng::new(1));
    let file = world.store.create("a", NotSet).unwrap();
    world.store.append(RequestId(1), file, FileData::Bytes(pattern(0, 9000).into()));
    world.store.close(RequestId(2), file);
    world.hand_out();
    world.store.delete(RequestId(3), "a");
    world.store.sync(RequestId(4), file);
    world.store.read(RequestId(5), file, 0, 10);
    world.store.rename(RequestId(6), "a", "b");
    world.run_to_rest();
    let mut results: Vec<(u64, bool)> = Vec::new();
    while let Some(Event::Done { request, result }) = world.events.pop_front() {
        results.push((request.0, result == Err(FileError::NoSuchFile)));
    }
    results.sort_unstable();
    assert_eq!(results, [(1, true), (2, true), (3, false), (4, true), (5, true), (6, true)]);
    assert_eq!(world.store.usage().zones_empty, 10);
}

#[test]
fn names_are_checked() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    let long = "x".repeat(256);
    assert_eq!(desk.store().create("", NotSet), Err(FileError::NameTooLong));
    assert_eq!(desk.store().create(&long, NotSet), Err(FileError::NameTooLong));
    desk.write_file(&long[..255], NotSet, 10);
    assert_eq!(desk.store().create(&long[..255], NotSet), Err(FileError::Exists));
    let rename = desk.rename(&long[..255], &long);
    assert_eq!(desk.error(rename), FileError::NameTooLong);
    let rename = desk.rename("nobody", "b");
    assert_eq!(desk.error(rename), FileError::NoSuchFile);
    let delete = desk.delete("nobody");
    assert_eq!(desk.error(delete), FileError::NoSuchFile);
    let rename = desk.rename(&long[..255], &long[..255]);
    desk.expect(rename);
    assert_eq!(desk.store().names().count(), 1);
}

#[test]
fn a_name_is_free_as_soon_as_its_file_is_deleted() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    let old = desk.write_file("a", NotSet, 100);
    desk.store().delete(RequestId(900), "a");
    let new = desk.create("a", NotSet);
    assert_ne!(old, new);
    desk.store().delete(RequestId(901), "a");
    desk.run();
    for request in [900, 901] {
        desk.expect(RequestId(request));
    }
    let mut desk = desk.remount(units_of_two_blocks()).unwrap();
    assert_eq!(desk.store().names().count(), 0);
}

#[test]
fn more_requests_than_the_bound_are_refused() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    let file = desk.create("a", NotSet);
    let byte = FileData::Bytes(Bytes::from_static(b"x"));
    desk.store().append(RequestId(0), file, byte);
    for request in 1..=REQUESTS_MAX as u64 {
        desk.store().sync(RequestId(request), file);
    }
    desk.store().sync(RequestId(REQUESTS_MAX as u64 + 1), file);
    desk.run();
    assert_eq!(desk.error(RequestId(REQUESTS_MAX as u64 + 1)), FileError::TooManyRequests);
    desk.expect(RequestId(REQUESTS_MAX as u64));
}

#[test]
fn a_store_without_contents_tells_lengths() {
    let config = FilesConfig { keeps: PayloadKind::None, ..units_of_two_blocks() };
    let mut desk = Desk::new(small(12, 5), config);
    let file = desk.create("a", NotSet);
    desk.store().append(RequestId(900), file, FileData::Length(3000));
    let append = desk.append(file, b"bytes are their length");
    desk.expect(append);
    let close = desk.close(file);
    desk.expect(close);
    let read = desk.read(file, 1000, 5000);
    assert_eq!(desk.result(read), Some(&Ok(Outcome::Length(2022))));
    let drive = desk.into_drive();
    let refused = FileStore::mount(&small(12, 5), config).map(|_| drive.bytes_kept());
    assert!(matches!(refused, Err(FileError::Config(words)) if words.contains("cannot be mounted")));
}

#[test]
fn a_length_is_no_data_where_contents_are_kept() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    let file = desk.create("a", NotSet);
    desk.store().append(RequestId(900), file, FileData::Length(10));
    desk.run();
    assert!(matches!(desk.error(RequestId(900)), FileError::Config(_)));
}

#[test]
fn each_wrong_field_of_a_configuration_is_named() {
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
fn every_error_says_what_to_do() {
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

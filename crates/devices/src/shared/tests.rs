use std::path::Path;
use std::thread;

use tempfile::TempDir;
use zonda_image::ImageSpec;
use zonda_zoned::{BlockBuffer, Blocks, Lba, Outcome, Payload, Status, ZoneAction, ZoneTarget};

use super::*;
use crate::{Connection, create_image_of};

/// An image of 8 zones of 16 blocks.
fn image() -> TempDir {
    let directory = tempfile::tempdir().expect("there is space");
    let geometry = Geometry { metadata_bytes: 0, max_active_zones: None, max_open_zones: None, ..Geometry::tiny() };
    create_image_of(directory.path(), &ImageSpec::new(geometry, String::new(), [7; 16])).expect("it is empty");
    directory
}

fn open(path: &Path) -> SharedConnection {
    SharedConnection::open(&Location::Image(path.to_owned()), &NamespaceOptions::default()).expect("the image exists")
}

fn write(geometry: &Geometry, start: u64, byte: u8) -> Operation {
    let data = vec![byte; geometry.block_size_bytes as usize].into();
    let payload = Payload::Bytes(Box::new(BlockBuffer { data, ..BlockBuffer::default() }));
    Operation::Write { start: Lba(start), blocks: Blocks(1), payload }
}

fn read(start: u64) -> Operation {
    Operation::Read { start: Lba(start), blocks: Blocks(1) }
}

fn first_byte(completion: &Completion) -> Option<u8> {
    match &completion.outcome {
        Outcome::Data(Payload::Bytes(data)) => data.data.first().copied(),
        _ => None,
    }
}

#[test]
fn each_handle_gets_the_completions_of_its_own_commands() {
    let directory = image();
    let first = open(directory.path());
    let zone = first.geometry().zone_size_blocks.0;
    let writers: Vec<_> = (0..4u8)
        .map(|number| {
            // Half of them are opened, half of them cloned.
            let mut mine = if number % 2 == 0 { open(directory.path()) } else { first.clone() };
            thread::spawn(move || {
                let start = u64::from(number) * zone;
                let geometry = mine.geometry().clone();
                for block in 0..8 {
                    mine.submit(Command::new(
                        CommandId(block),
                        NamespaceId::FIRST,
                        write(&geometry, start + block, number),
                    ));
                }
                assert_eq!(mine.outstanding(), 8);
                let (mut completions, mut ended) = (CompletionQueue::new(), Vec::new());
                while mine.outstanding() > 0 {
                    mine.wait(None, &mut completions).expect("the owner thread is alive");
                    while let Some(completion) = completions.pop() {
                        assert_eq!(completion.status, Status::Success);
                        ended.push(completion.id.0);
                    }
                }
                ended.sort_unstable();
                assert_eq!(ended, (0..8).collect::<Vec<_>>());
                let completion = mine.execute(read(start)).expect("the owner thread is alive");
                (mine, first_byte(&completion))
            })
        })
        .collect();
    let handles: Vec<_> = writers.into_iter().map(|writer| writer.join().expect("it does not panic")).collect();
    let bytes: Vec<_> = handles.iter().map(|(_, byte)| *byte).collect();
    assert_eq!(bytes, [Some(0), Some(1), Some(2), Some(3)]);
}

#[test]
fn the_last_handle_closes_the_image() {
    let directory = image();
    let (first, second) = (open(directory.path()), open(directory.path()));
    let location = Location::Image(directory.path().to_owned());
    let alone = || Connection::open(&location, &NamespaceOptions::default());
    first.close().expect("another handle is open");
    assert!(alone().is_err_and(|error| error.is_in_use));
    second.close().expect("the image can be closed");
    alone().expect("it is closed").close().expect("it can be closed");
    // A handle that is dropped is closed too, and outstanding commands are executed first.
    let mut dropped = open(directory.path());
    let geometry = dropped.geometry().clone();
    dropped.submit(Command::new(CommandId(1), NamespaceId::FIRST, write(&geometry, 0, 9)));
    drop(dropped);
    let mut again = alone().expect("it is closed");
    assert_eq!(first_byte(&again.execute(read(0)).expect("the image is open")), Some(9));
    again.close().expect("it can be closed");
}

#[test]
fn a_wait_ends_at_its_time_and_without_one_if_nothing_is_outstanding() {
    let directory = image();
    let mut connection = open(directory.path());
    let mut completions = CompletionQueue::new();
    let begin = Instant::now();
    connection.wait(Some(begin + Duration::from_millis(20)), &mut completions).expect("the owner thread is alive");
    assert!(begin.elapsed() >= Duration::from_millis(20) && completions.is_empty());
    connection.wait(None, &mut completions).expect("the owner thread is alive");
    assert!(completions.is_empty());
}

#[test]
fn more_commands_than_the_queue_of_the_namespace_wait_in_order() {
    let directory = image();
    let mut connection = open(directory.path());
    let geometry = connection.geometry().clone();
    let count = 4 * u64::from(NamespaceOptions::default().queue_depth);
    // Writes at the write pointer, which fail in any other order; the zone is reset when it is full.
    let capacity = geometry.zone_capacity_blocks.0;
    for number in 0..count {
        let block = number % capacity;
        if block == 0 {
            let target = ZoneTarget::Zone(Lba(0));
            let reset = Operation::ManageZones { action: ZoneAction::Reset, target };
            connection.submit(Command::new(CommandId(count + number), NamespaceId::FIRST, reset));
        }
        connection.submit(Command::new(CommandId(number), NamespaceId::FIRST, write(&geometry, block, 1)));
    }
    let mut completions = CompletionQueue::new();
    while connection.outstanding() > 0 {
        connection.wait(None, &mut completions).expect("the owner thread is alive");
        while let Some(completion) = completions.pop() {
            assert_eq!(completion.status, Status::Success, "{}", completion.id);
        }
    }
}

#[test]
fn opening_reports_the_error_and_can_be_repeated() {
    let directory = image();
    let nowhere = Location::Image(directory.path().join("nowhere"));
    assert!(SharedConnection::open(&nowhere, &NamespaceOptions::default()).is_err());
    let location = Location::Image(directory.path().to_owned());
    let alone = Connection::open(&location, &NamespaceOptions::default()).expect("the image exists");
    let error = SharedConnection::open(&location, &NamespaceOptions::default()).err().expect("it is in use");
    assert!(error.is_in_use, "{}", error.message);
    alone.close().expect("it can be closed");
    open(directory.path()).close().expect("it is not in use");
}

#[test]
fn a_failed_owner_thread_is_an_error_and_not_a_wait_without_end() {
    let directory = image();
    let mut connection = open(directory.path());
    // As if the thread had exited, which drops its ends of the channels.
    connection.completions = std::sync::mpsc::channel().1;
    let error = connection.execute(read(0)).expect_err("no completion arrives");
    assert_eq!(error.message, "the thread that owns the namespace has failed");
    assert!(connection.poll(&mut CompletionQueue::new()).is_err());
}

//! Images that are opened read-only: all blocks can be read, and nothing is written.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::mount::{MountFlags, mount_remount};
use tempfile::TempDir;
use zonda_devices::{Drive, FileBacked, ReadOnlyImage, create_image_of};
use zonda_image::{ImageFile, ImageSpec};
use zonda_ring::{Bytes, Ring, RingOptions};
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, CompletionQueue, Geometry, Lba, LbaRange, NamespaceId,
    Operation, Outcome, Payload, ReportFilter, Status, ZoneAction, ZoneState, ZoneTarget, ZonedDevice,
};

use super::images::{SmallDisk, make, open, open_when_free, write, write_of};

fn ring() -> Ring {
    Ring::new(RingOptions::default()).expect("Linux has epoll")
}

/// An image that was killed while 16 blocks were acknowledged and not flushed.
fn make_killed(path: &Path) {
    make(path);
    let mut drive = open(path);
    assert_eq!(write(&mut drive, 0, 16, 7), Status::Success);
    drop(drive);
    wait_until_free(path);
}

fn wait_until_free(path: &Path) {
    for _ in 0..500 {
        match ReadOnlyImage::open(path, &ring()) {
            Err(error) if error.is_in_use => std::thread::sleep(std::time::Duration::from_millis(10)),
            _ => return,
        }
    }
    panic!("an image that no program uses is unlocked");
}

/// The contents of the files of an image.
fn contents(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(path).expect("the directory exists").map(|file| file.expect("it can be listed").path());
    files.map(|path| (path.display().to_string(), fs::read(&path).expect("it can be read"))).collect()
}

fn execute(drive: &mut ReadOnlyImage, ring: &Ring, operation: Operation) -> Completion {
    let command = Command::new(CommandId(1), NamespaceId::FIRST, operation);
    drive.submit(ring.now(), command).expect("an idle drive takes a command");
    let mut completions = CompletionQueue::new();
    loop {
        drive.poll(ring.now(), &mut completions);
        if let Some(completion) = completions.pop() {
            return completion;
        }
        ring.run_once(drive.next_timeout()).expect("the loop works");
    }
}

fn read(drive: &mut ReadOnlyImage, ring: &Ring, start: u64, blocks: u64) -> Bytes {
    let completion = execute(drive, ring, Operation::Read { start: Lba(start), blocks: Blocks(blocks) });
    match completion.outcome {
        Outcome::Data(Payload::Bytes(buffer)) => buffer.data,
        outcome => panic!("{}: {outcome:?}", completion.status),
    }
}

#[test]
fn an_image_is_recovered_in_memory_after_a_kill_and_its_files_are_unchanged() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("drive");
    make_killed(&path);
    let before = contents(&path);
    let ring = ring();
    let (mut drive, report) = ReadOnlyImage::open(&path, &ring).expect("it recovers in memory");
    assert_eq!((report.clean, report.found_blocks), (false, 16));
    assert!(read(&mut drive, &ring, 0, 16).iter().all(|byte| *byte == 7));
    let report = Operation::ReportZones {
        start: Lba(0),
        filter: ReportFilter::All,
        extended: false,
        partial: true,
        descriptors_max: 1,
    };
    let Outcome::Report(report) = execute(&mut drive, &ring, report).outcome else { panic!("it reports") };
    assert_eq!((report.zones[0].state, report.zones[0].write_pointer), (ZoneState::Closed, Some(Lba(16))));
    assert_eq!((drive.facts().written_blocks, drive.media_errors(), drive.take_warning()), (16, 0, None));
    drive.close(ring.now());
    assert!(drive.is_closed() && drive.close_error().is_none());
    drop(drive);
    assert!(contents(&path) == before, "nothing was written");
    drop(open_when_free(&path));
    assert!(contents(&path) != before, "opening it for writing does write");
}

#[test]
fn commands_that_would_change_something_fail_and_change_neither_files_nor_zones() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("drive");
    make_killed(&path);
    let before = contents(&path);
    let ring = ring();
    let (mut drive, _) = ReadOnlyImage::open(&path, &ring).expect("it is intact");
    let facts = drive.facts();
    let payload = Payload::Bytes(Box::new(BlockBuffer { data: vec![9; 4096].into(), metadata: Bytes::new() }));
    let manage = |action, target| Operation::ManageZones { action, target };
    for operation in [
        write_of(16, 1, 9),
        Operation::Append { zone_start: Lba(0), blocks: Blocks(1), payload },
        Operation::WriteZeroes { start: Lba(16), blocks: Blocks(1) },
        Operation::Deallocate { ranges: [LbaRange { start: Lba(0), blocks: Blocks(1) }].into() },
        manage(ZoneAction::Open { zrwa: false }, ZoneTarget::Zone(Lba(0))),
        manage(ZoneAction::Finish, ZoneTarget::Zone(Lba(0))),
        manage(ZoneAction::Reset, ZoneTarget::All),
    ] {
        let name = operation.name();
        assert_eq!(execute(&mut drive, &ring, operation).status, Status::NamespaceWriteProtected, "{name}");
    }
    assert_eq!(execute(&mut drive, &ring, Operation::Flush).status, Status::Success, "there is nothing to flush");
    assert_eq!(drive.facts(), facts);
    assert!(contents(&path) == before, "nothing was written");
}

#[test]
fn an_image_can_have_several_readers_and_no_writer_meanwhile() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("drive");
    make_killed(&path);
    let ring = ring();
    let first = ReadOnlyImage::open(&path, &ring).expect("no program writes to it");
    let second = ReadOnlyImage::open(&path, &ring).expect("others may read");
    let refused = || FileBacked::open(&path, &ring).map(|_| ()).expect_err("it is being read");
    assert!(refused().is_in_use);
    drop(first);
    assert!(refused().is_in_use, "there is another one");
    drop(second);
    let writer = FileBacked::open(&path, &ring).expect("no program reads it any more");
    assert!(ReadOnlyImage::open(&path, &ring).map(|_| ()).expect_err("a program writes to it").is_in_use);
    drop(writer);
}

#[test]
fn an_image_on_a_full_read_only_file_system_can_be_read() {
    let Some(disk) = SmallDisk::new(12 << 20) else {
        println!("skipped: a small file system cannot be mounted here");
        return;
    };
    let path = disk.0.path().join("drive");
    make_killed(&path);
    disk.fill();
    // A ring that is dropped closes its files a moment later.
    while mount_remount(disk.0.path(), MountFlags::RDONLY, "").is_err() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let ring = ring();
    let (mut drive, report) = ReadOnlyImage::open(&path, &ring).expect("it need not be written");
    assert!(!report.clean && read(&mut drive, &ring, 0, 16).iter().all(|byte| *byte == 7));
}

/// Blocks that recovery restores from the journal are read from memory, not from the file.
#[test]
fn blocks_that_recovery_rewrites_are_read_as_it_would_write_them() {
    const BLOCK_BYTES: usize = 8192;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("drive");
    let geometry = Geometry {
        block_size_bytes: BLOCK_BYTES as u32,
        metadata_bytes: 0,
        conventional_zone_count: 8,
        ..Geometry::tiny()
    };
    let geometry = Geometry { zone_capacity_blocks: geometry.zone_size_blocks, ..geometry };
    create_image_of(&path, &ImageSpec::new(geometry, String::new(), [7; 16])).expect("the directory is empty");
    let mut drive = open(&path);
    for fill in [1, 2] {
        let data = vec![fill; 2 * BLOCK_BYTES].into();
        let payload = Payload::Bytes(Box::new(BlockBuffer { data, metadata: Bytes::new() }));
        let write = Operation::Write { start: Lba(4), blocks: Blocks(2), payload };
        assert_eq!(drive.execute(write).expect("the loop works").status, Status::Success);
    }
    drop(drive);
    wait_until_free(&path);
    // As if the power had been lost with the second block written in part.
    let data = fs::OpenOptions::new().write(true).open(path.join(ImageFile::Data.name())).unwrap();
    data.write_all_at(&[3; BLOCK_BYTES / 2], 5 * BLOCK_BYTES as u64).unwrap();
    let before = contents(&path);
    let ring = ring();
    let (mut drive, report) = ReadOnlyImage::open(&path, &ring).expect("it recovers in memory");
    assert_eq!(report.rewritten_blocks, 2);
    assert!(read(&mut drive, &ring, 4, 2).iter().all(|byte| *byte == 2));
    assert!(read(&mut drive, &ring, 3, 1).iter().all(|byte| *byte == 0));
    drop(drive);
    assert!(contents(&path) == before, "nothing was written");
}

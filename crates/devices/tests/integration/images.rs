//! Images on real file systems.

use std::ffi::CString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use tempfile::TempDir;
use zonda_config::ByteSize;
use zonda_devices::{
    Connection, Drive, FileBacked, ImageDirectory, Location, MemoryDrive, Model, NamespaceOptions, PacedDrive,
    SpaceFacts, create_image, exposed_files, sized,
};
use zonda_image::ImageFile;
use zonda_ring::{Bytes, Ring, RingOptions};
use zonda_ssd::profile::Profile;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, CompletionQueue, Geometry, Lba, NamespaceId, Operation, Outcome, Payload,
    Prng, ReportFilter, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget, ZonedDevice,
};

use crate::PROFILES;

/// Eight zones of 1 MiB, in blocks of 4 KiB.
pub(crate) fn make(path: &Path) {
    let spec = sized("zn540", Some(8), Some(ByteSize(1 << 20)), &PROFILES).expect("a built-in profile");
    let drive = spec.plan(&PROFILES).expect("it can be so small");
    create_image(path, &drive).expect("the directory is empty");
}

pub(crate) fn open(path: &Path) -> Connection {
    let options = NamespaceOptions::default();
    Connection::open(&Location::Image(path.to_owned()), &options).expect("the image is intact")
}

/// Opens an image once its lock is free: the system releases that of a dropped image when its file
/// operations in flight have completed.
pub(crate) fn open_when_free(path: &Path) -> Connection {
    for _ in 0..500 {
        match Connection::open(&Location::Image(path.to_owned()), &NamespaceOptions::default()) {
            Ok(connection) => return connection,
            Err(error) if error.message.contains("in use") => std::thread::sleep(std::time::Duration::from_millis(10)),
            Err(error) => panic!("the image is intact: {error}"),
        }
    }
    panic!("an image that is not in use is unlocked");
}

pub(crate) fn write(connection: &mut Connection, start: u64, blocks: u64, fill: u8) -> Status {
    connection.execute(write_of(start, blocks, fill)).expect("the loop works").status
}

pub(crate) fn write_of(start: u64, blocks: u64, fill: u8) -> Operation {
    let data = vec![fill; (blocks * 4096) as usize].into();
    let payload = Payload::Bytes(Box::new(BlockBuffer { data, metadata: Vec::new().into() }));
    Operation::Write { start: Lba(start), blocks: Blocks(blocks), payload }
}

fn read(connection: &mut Connection, start: u64, blocks: u64) -> Vec<u8> {
    let operation = Operation::Read { start: Lba(start), blocks: Blocks(blocks) };
    let completion = connection.execute(operation).expect("the loop works");
    match completion.outcome {
        Outcome::Data(Payload::Bytes(buffer)) => buffer.data.to_vec(),
        outcome => panic!("{}: {outcome:?}", completion.status),
    }
}

fn write_pointer(connection: &mut Connection, zone_start: u64) -> (ZoneState, Option<Lba>) {
    let operation = Operation::ReportZones {
        start: Lba(zone_start),
        filter: ReportFilter::All,
        extended: false,
        partial: true,
        descriptors_max: 1,
    };
    match connection.execute(operation).expect("the loop works").outcome {
        Outcome::Report(report) => (report.zones[0].state, report.zones[0].write_pointer),
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn written_blocks_persist_over_close_and_open() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("drive");
    make(&path);
    let mut first = open(&path);
    assert_eq!(write(&mut first, 0, 16, 7), Status::Success);
    first.close().expect("it closes");
    let mut second = open(&path);
    assert!(read(&mut second, 0, 16).iter().all(|byte| *byte == 7));
    assert_eq!(write_pointer(&mut second, 0), (ZoneState::Closed, Some(Lba(16))));
}

#[test]
fn an_image_recovers_after_it_was_dropped_without_closing() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("drive");
    make(&path);
    let mut first = open(&path);
    assert_eq!(write(&mut first, 256, 8, 9), Status::Success);
    drop(first);
    let ring = Ring::new(RingOptions::default()).unwrap();
    let (drive, report) = FileBacked::open(&path, &ring).expect("it recovers");
    assert!(!report.clean);
    assert_eq!(report.found_blocks, 8);
    drop((drive, ring));
    assert!(read(&mut open_when_free(&path), 256, 8).iter().all(|byte| *byte == 9));
}

/// Runs the loop until the drive has saved these bytes.
fn save(drive: &mut dyn Drive, ring: &mut Ring, bytes: &'static [u8]) -> bool {
    let mut completions = CompletionQueue::new();
    drive.save_reservations(ring.now(), Bytes::from_static(bytes));
    loop {
        drive.poll(ring.now(), &mut completions);
        if let Some(saved) = drive.take_reservations_saved() {
            return saved;
        }
        let until = drive.next_timeout();
        ring.run_once(until).expect("the loop works");
    }
}

#[test]
fn saved_reservations_are_restored_when_the_image_is_opened_again() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("drive");
    make(&path);
    let mut ring = Ring::new(RingOptions::default()).unwrap();
    let mut drive = FileBacked::open(&path, &ring).expect("it is intact").0;
    assert_eq!(drive.saved_reservations(), Some(Bytes::new()));
    assert!(save(&mut drive, &mut ring, b"of a host"));
    drop((drive, ring));
    drop(open_when_free(&path));
    let mut ring = Ring::new(RingOptions::default()).unwrap();
    let drive = wait_for_image(&path, &ring);
    assert_eq!(drive.saved_reservations(), Some(Bytes::from_static(b"of a host")));
    // A paced drive saves the reservations in its drive.
    let model = Model::from_zones(&profile(), drive.image().zones(), None, &Prng::new(1));
    let mut paced = PacedDrive::new(Box::new(drive), model);
    assert!(save(&mut paced, &mut ring, b"of another"));
    assert_eq!(paced.saved_reservations(), Some(Bytes::from_static(b"of another")));
    drop((paced, ring));
    let ring = Ring::new(RingOptions::default()).unwrap();
    assert_eq!(wait_for_image(&path, &ring).image().reservations(), b"of another");
}

#[test]
fn a_drive_in_memory_cannot_save_reservations() {
    assert_eq!(MemoryDrive::new(Geometry::tiny(), u64::MAX).saved_reservations(), None);
}

/// Like [`open_when_free`], on this ring.
fn wait_for_image(path: &Path, ring: &Ring) -> FileBacked {
    drop(open_when_free(path));
    for _ in 0..500 {
        if let Ok((drive, _)) = FileBacked::open(path, ring) {
            return drive;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("an image that is not in use is unlocked");
}

fn profile() -> Profile {
    let spec = sized("zn540", Some(8), Some(ByteSize(1 << 20)), &PROFILES).expect("a built-in profile");
    spec.plan(&PROFILES).expect("it can be so small").profile().clone()
}

#[test]
fn two_programs_cannot_open_one_image() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("drive");
    make(&path);
    let first = open(&path);
    let ring = Ring::new(RingOptions::default()).unwrap();
    let error = FileBacked::open(&path, &ring).map(|_| ()).expect_err("the first one has locked it");
    assert!(error.message.contains("in use"), "{error}");
    first.close().expect("it closes");
    FileBacked::open(&path, &ring).map(|_| ()).expect("it is unlocked");
}

#[test]
fn an_image_is_not_created_in_a_directory_that_is_not_empty() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("drive");
    make(&path);
    let spec = sized("zn540", Some(8), Some(ByteSize(1 << 20)), &PROFILES).unwrap();
    let error = create_image(&path, &spec.plan(&PROFILES).unwrap()).expect_err("there is one");
    assert!(error.message.contains("holds an image already"), "{error}");
    std::fs::write(directory.path().join("letter.txt"), "dear").unwrap();
    let error = create_image(directory.path(), &spec.plan(&PROFILES).unwrap()).expect_err("another file exists");
    assert!(error.message.contains("is not empty"), "{error}");
}

/// A file system of this size; `None` without permission to mount one.
pub(crate) struct SmallDisk(pub(crate) TempDir);

impl SmallDisk {
    pub(crate) fn new(bytes: u64) -> Option<SmallDisk> {
        let directory = TempDir::new().expect("there is space");
        let size = CString::new(format!("size={bytes}")).expect("no zero in it");
        // Not by mount(8): between fork and exec a child holds the locks of the images of all other
        // tests.
        mount("zonda", directory.path(), "tmpfs", MountFlags::empty(), size.as_c_str()).ok()?;
        Some(SmallDisk(directory))
    }
}

impl SmallDisk {
    /// Fills the file system, until the file that this returns is removed.
    pub(crate) fn fill(&self) -> PathBuf {
        let path = self.0.path().join("ballast");
        let mut ballast = std::fs::File::create(&path).expect("there is space for an inode");
        while std::io::Write::write_all(&mut ballast, &[1; 4096]).is_ok() {}
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // If this fails, the mount remains until the machine is rebooted.
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

/// An image on a file system with 1 MiB of free space, and the file to remove for more; `None` if
/// no file system can be mounted.
fn nearly_full() -> Option<(SmallDisk, PathBuf, PathBuf)> {
    // An image without contents is a few MiB; its zones would take eight more.
    let Some(disk) = SmallDisk::new(12 << 20) else {
        println!("skipped: a small file system cannot be mounted here");
        return None;
    };
    let path = disk.0.path().join("drive");
    make(&path);
    let used = std::fs::read_dir(&path).expect("the file system works").map(|file| {
        use std::os::unix::fs::MetadataExt;
        file.expect("the file system works").metadata().expect("the file system works").blocks() * 512
    });
    let free = (12 << 20) - used.sum::<u64>();
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![1; (free - (1 << 20)) as usize]).expect("the file system works");
    Some((disk, path, ballast))
}

#[test]
fn a_full_disk_fails_the_write_and_nothing_else() {
    let Some((_disk, path, ballast)) = nearly_full() else { return };
    let mut drive = open(&path);
    let mut written = Vec::new();
    let failed = (0..4u64).flat_map(|zone| (0..16).map(move |piece| zone * 256 + piece * 16)).find(|&start| {
        let status = write(&mut drive, start, 16, start as u8 | 1);
        assert!(matches!(status, Status::Success | Status::CapacityExceeded), "{status}");
        written.extend(status.is_success().then_some(start));
        !status.is_success()
    });
    let failed = failed.expect("1 MiB is less than 4");
    assert!(!written.is_empty(), "there was space for some");
    for &start in &written {
        assert!(read(&mut drive, start, 16).iter().all(|byte| *byte == start as u8 | 1), "block {start}");
    }
    let zone_start = failed / 256 * 256;
    let (_, pointer) = write_pointer(&mut drive, zone_start);
    assert_eq!(pointer, Some(Lba(failed)), "the write pointer is after the last written block");

    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(write(&mut drive, failed, 16, 5), Status::Success, "there is space again");
    let finish = Operation::ManageZones { action: ZoneAction::Finish, target: ZoneTarget::Zone(Lba(zone_start)) };
    assert_eq!(drive.execute(finish).unwrap().status, Status::Success);
    drive.close().expect("it closes");
    assert!(read(&mut open(&path), failed, 16).iter().all(|byte| *byte == 5));
}

#[test]
fn coalesced_writes_fail_individually() {
    let Some((_disk, path, _ballast)) = nearly_full() else { return };
    let mut drive = open(&path);
    // The metadata of the first blocks are allocated then, and the data can use the rest.
    assert_eq!(write(&mut drive, 0, 16, 7), Status::Success);
    let pieces = 31;
    for piece in 0..pieces {
        let operation = write_of(16 + piece * 16, 16, 7);
        let command = Command::new(CommandId(piece), NamespaceId::FIRST, operation);
        drive.submit(command).expect("there is a queue slot");
    }
    let mut ended = CompletionQueue::new();
    drive.poll(&mut ended);
    while ended.len() < pieces as usize {
        drive.run_once(None).unwrap();
        drive.poll(&mut ended);
    }
    let mut statuses = vec![Status::Success; pieces as usize];
    while let Some(completion) = ended.pop() {
        statuses[completion.id.0 as usize] = completion.status;
    }
    let first_failed = statuses.iter().position(|status| !status.is_success()).expect("1 MiB is less than 2");
    assert!(first_failed > 0, "there was space for some");
    assert!(statuses[first_failed..].iter().all(|status| *status == Status::CapacityExceeded), "{statuses:?}");
    let written = 16 + first_failed as u64 * 16;
    assert_eq!(write_pointer(&mut drive, 0).1, Some(Lba(written)));
    assert!(read(&mut drive, 0, written).iter().all(|byte| *byte == 7));
}

#[test]
fn a_full_disk_is_reported_once_and_once_when_there_is_space() {
    let Some((disk, path, ballast)) = nearly_full() else { return };
    let mut ring = Ring::new(RingOptions::default()).unwrap();
    let mut drive = FileBacked::open(&path, &ring).expect("it is intact").0;
    assert_eq!(drive.space(), Some(SpaceFacts::default()));
    let more = disk.fill();
    let execute = |drive: &mut FileBacked, ring: &mut Ring, start: u64| {
        let mut ended = CompletionQueue::new();
        let command = Command::new(CommandId(start), NamespaceId::FIRST, write_of(start, 16, 3));
        drive.submit(ring.now(), command).expect("it is idle");
        loop {
            drive.poll(ring.now(), &mut ended);
            if let Some(completion) = ended.pop() {
                return completion.status;
            }
            let until = drive.next_timeout();
            ring.run_once(until).unwrap();
        }
    };
    for _ in 0..10 {
        assert_eq!(execute(&mut drive, &mut ring, 0), Status::CapacityExceeded);
    }
    let log = drive.take_warning().expect("there is a warning");
    assert!(log.contains("the file system is full"), "{log}");
    assert_eq!(drive.take_warning(), None, "once");
    let facts = drive.space().expect("it is on a file system");
    assert!(facts.is_full && facts.failures >= 10, "{facts:?}");
    assert_eq!(drive.media_errors(), 0, "there are no media errors");

    std::fs::remove_file(&ballast).unwrap();
    std::fs::remove_file(&more).ok();
    while drive.space().is_some_and(|space| space.is_full) {
        let until = drive.next_timeout();
        ring.run_once(until).unwrap();
        drive.poll(ring.now(), &mut CompletionQueue::new());
    }
    let log = drive.take_warning().expect("there is a warning");
    assert!(log.contains("the file system has space again"), "{log}");
    assert_eq!(drive.take_warning(), None, "once");
    assert_eq!(execute(&mut drive, &mut ring, 0), Status::Success);
}

#[test]
fn an_image_on_a_read_only_file_system_can_be_inspected_and_checked() {
    let Some(disk) = SmallDisk::new(12 << 20) else {
        println!("skipped: a small file system cannot be mounted here");
        return;
    };
    let path = disk.0.path().join("drive");
    make(&path);
    let mut drive = open(&path);
    assert_eq!(write(&mut drive, 0, 16, 7), Status::Success);
    drop(drive);
    drop(open_when_free(&path));
    // A ring that is dropped closes its files a moment later.
    let is_read_only = || mount_remount(disk.0.path(), MountFlags::RDONLY, "").is_ok();
    while !is_read_only() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let mut files = ImageDirectory::open_shared(&path).expect("opening it shared does not write");
    let inspection = zonda_image::inspect(&mut files).expect("it is intact");
    assert!(!inspection.clean);
    assert_eq!(inspection.zones.zone(ZoneIndex(0)).written_blocks, Blocks(16));
    let report = zonda_image::check(&mut files, &mut |_| ()).expect("it is intact");
    assert_eq!((report.blocks, report.more_findings), (16, false));
    let error = FileBacked::open(&path, &Ring::new(RingOptions::default()).unwrap()).map(|_| ());
    error.expect_err("it cannot be written");
}

#[test]
fn the_files_of_an_image_are_private_and_others_are_reported() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("drive");
    make(&path);
    for file in ImageFile::ALL {
        let mode = std::fs::metadata(path.join(file.name())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert_eq!(exposed_files(&path), None);
    let tags = path.join(ImageFile::Tags.name());
    std::fs::set_permissions(&tags, Permissions::from_mode(0o640)).unwrap();
    let ring = Ring::new(RingOptions::default()).unwrap();
    let mut drive = FileBacked::open(&path, &ring).expect("it is intact").0;
    let log = drive.take_warning().expect("there is a warning");
    let command = format!("chmod 600 {}/*.zonda", path.display());
    assert!(
        log.contains("tags.zonda (mode 0640) is accessible to group or others") && log.ends_with(&command),
        "{log}"
    );
    assert_eq!(drive.take_warning(), None, "once");
}

//! [`KernelZoned`]: a zoned block device of the kernel: a ZNS namespace, a host-managed SMR disk,
//! null_blk or zloop.
//!
//! Reads and writes bypass the page cache (O_DIRECT) and run on the ring. The requests of zone
//! management block inside the kernel, so that threads make them. The device is opened exclusively: a
//! mounted file system or another program that has done the same prevents that, and is prevented.
//!
//! Linux offers Zone Append only to file systems, so that appends are writes here, as they are in Linux
//! for drives without appends. At most one write of a zone is outstanding: order does not depend on the
//! I/O scheduler of the device, nor on the zone write plugging of Linux 6.10 and later.

mod layout;
mod report;
mod sysfs;
mod workers;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::rc::Rc;

use rustix::io::Errno;
use zonda_ring::{Bytes, Client, Done, File, FileOptions, Operation, Outcome, Waker, ZoneRequest};
use zonda_zoned::{BlockBuffer, Lba, Status, ZoneIndex};

use crate::DriveError;
use crate::real::{
    Abilities, Answer, DeviceMode, Opened, Queue, RawAction, RawError, RawOperation, RealDrive, Request, RequestId,
    aligned, aligned_buffer, is_aligned, table_of,
};

use report::{ReportedZone, SECTOR_BYTES, report_all};
use sysfs::BlockDevice;
use workers::{Job, Workers};

/// A zoned block device, opened exclusively.
pub(crate) type KernelZoned = RealDrive<KernelQueue>;

const SYSFS: &str = "/sys";

/// A device that was opened and whose zones are known, and that is not attached to a ring yet. The ring
/// may belong to another thread.
pub(crate) struct PreparedBlockDevice {
    file: File,
    opened: Opened,
}

impl PreparedBlockDevice {
    /// Opens a device, and reads the state of its zones. Blocks.
    pub(crate) fn open(path: &Path, mode: DeviceMode) -> Result<PreparedBlockDevice, DriveError> {
        let shown = path.display();
        let unknown = |error: io::Error| {
            DriveError::new(format!("cannot read the properties of {shown} in sysfs: {error}"), "mount sysfs at /sys")
        };
        let (major, minor) = number_of(path)?;
        let device = BlockDevice::of_number(Path::new(SYSFS), major, minor).map_err(unknown)?;
        if let Some(disk) = device.partition_of() {
            let message = format!("{shown} is a partition; a zoned drive is used as a whole");
            return Err(DriveError::new(message, format!("give the whole drive: /dev/{disk}")));
        }
        let attributes = device.attributes().map_err(unknown)?;
        layout::must_be_zoned(path, &attributes)?;
        let options = FileOptions { direct: true, exclusive: true, ..mode.file_options() };
        let file = File::open(path, options).map_err(|error| cannot_open(path, &error))?;
        let zones = report_all(&file, attributes.sectors).map_err(|error| {
            DriveError::new(format!("cannot report the zones of {shown}: {error}"), "check the kernel log (dmesg)")
        })?;
        let (geometry, notes) = layout::geometry_of(path, &attributes, &zones)?;
        let block_bytes = u64::from(geometry.block_size_bytes);
        let found: Vec<_> =
            zones.iter().take(geometry.zone_count as usize).map(|zone| zone.found(block_bytes)).collect();
        let table = table_of(&geometry, &found).map_err(|zone| {
            DriveError::new(
                format!("zone {zone} of {shown} is active beyond the limit of active zones of the drive"),
                "reset or finish zones with blkzone",
            )
        })?;
        let opened = Opened { table, abilities: Abilities::default(), identity: attributes.identity, notes };
        Ok(PreparedBlockDevice { file, opened })
    }
}

#[cfg(any(test, feature = "testing"))]
impl KernelZoned {
    /// A file or block device without zones, read and written as if all its zones were in the state
    /// `found`. Zones cannot be managed.
    pub(crate) fn without_zones(
        file: File,
        geometry: &zonda_zoned::Geometry,
        found: &crate::real::FoundZone,
        ring: &zonda_ring::Ring,
    ) -> KernelZoned {
        let zones = vec![found.clone(); geometry.zone_count as usize];
        let table = table_of(geometry, &zones).expect("the geometry has no limit of active zones");
        let opened = Opened { table, abilities: Abilities::default(), identity: None, notes: Vec::new() };
        KernelZoned::of(PreparedBlockDevice { file, opened }, ring.client(), ring.waker())
    }
}

impl KernelZoned {
    /// Attaches a device to a ring.
    pub(crate) fn of(prepared: PreparedBlockDevice, client: Client, waker: Waker) -> KernelZoned {
        let PreparedBlockDevice { file, opened } = prepared;
        let geometry = opened.table.geometry();
        let queue = KernelQueue {
            workers: Workers::new(file.another(), waker),
            client,
            file: Rc::new(file),
            block_bytes: u64::from(geometry.block_size_bytes),
            bytes: geometry.namespace_blocks().bytes(geometry.block_size_bytes),
            zone_sectors: geometry.zone_size_blocks.bytes(geometry.block_size_bytes) / SECTOR_BYTES,
            in_flight: HashMap::new(),
        };
        RealDrive::new(opened, queue)
    }
}

/// The requests to a block device.
pub(crate) struct KernelQueue {
    workers: Workers,
    client: Client,
    file: Rc<File>,
    block_bytes: u64,
    zone_sectors: u64,
    /// Size of the zones, in bytes.
    bytes: u64,
    /// Requests on the ring.
    in_flight: HashMap<RequestId, Kind>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The number of bytes requested.
    Read(usize),
    Write,
    Flush,
}

impl KernelQueue {
    fn offset(&self, lba: Lba) -> u64 {
        lba.0 * self.block_bytes
    }

    /// The answer, with the removal of the drive noted, which some errors do not show: a report of zones
    /// then has none.
    fn unless_removed(&self, answer: Result<Answer, RawError>) -> Result<Answer, RawError> {
        answer.map_err(|error| match has_vanished(self.file.length(), self.bytes) {
            true => RawError { status: Status::InternalError, is_removed: true, ..error },
            false => error,
        })
    }

    fn on_ring(&mut self, id: RequestId, kind: Kind, operation: Operation) {
        self.in_flight.insert(id, kind);
        self.client.submit(id.0, operation);
    }

    fn on_thread(&mut self, id: RequestId, zone: ZoneIndex, request: Option<ZoneRequest>) {
        let (sector, sectors) = (u64::from(zone.0) * self.zone_sectors, self.zone_sectors);
        let job = match request {
            Some(request) => Job::Change { request, sector, sectors },
            None => Job::Report { sector },
        };
        self.workers.submit(id, job);
    }
}

impl Queue for KernelQueue {
    fn submit(&mut self, Request { id, operation }: Request) {
        let file = Rc::clone(&self.file);
        match operation {
            RawOperation::Read { start, blocks } => {
                let (offset, length) = (self.offset(start), (blocks.0 * self.block_bytes) as usize);
                let read = match self.client.registered_buffer(length) {
                    Some(buffer) => Operation::ReadRegistered { file, offset, buffer },
                    None => Operation::Read { file, offset, buffer: aligned_buffer(length) },
                };
                self.on_ring(id, Kind::Read(length), read);
            }
            RawOperation::Write { start, buffer } => {
                let (offset, data) = (self.offset(start), buffer.data);
                // Data that must be copied anyhow is copied to where the kernel needs not pin it.
                let registered = if is_aligned(&data) { None } else { self.client.registered_buffer(data.len()) };
                let write = match registered {
                    Some(mut buffer) => {
                        buffer.extend_from_slice(&data);
                        Operation::WriteRegistered { file, offset, buffer }
                    }
                    None => Operation::Write { file, offset, pieces: vec![aligned(data)] },
                };
                self.on_ring(id, Kind::Write, write);
            }
            RawOperation::Flush => self.on_ring(id, Kind::Flush, Operation::Sync { file, data_only: true }),
            RawOperation::Manage { action, zone } => {
                let request = match action {
                    RawAction::Reset => ZoneRequest::Reset,
                    RawAction::Finish => ZoneRequest::Finish,
                    RawAction::Open => ZoneRequest::Open,
                    RawAction::Close => ZoneRequest::Close,
                    RawAction::Offline => unreachable!("the block layer takes no zone offline"),
                };
                self.on_thread(id, zone, Some(request));
            }
            RawOperation::Report { zone } => self.on_thread(id, zone, None),
            RawOperation::Append { .. } | RawOperation::Deallocate { .. } | RawOperation::SetExtension { .. } => {
                unreachable!(
                    "the block layer offers no appends, no descriptor extensions and no deallocation that reads as zeros"
                )
            }
        }
    }

    fn next(&mut self) -> Option<(RequestId, Result<Answer, RawError>)> {
        if let Some((id, result)) = self.workers.next() {
            let zone = |zone: ReportedZone| Answer::Zone(zone.found(self.block_bytes));
            let answer = result.map(|found| found.map_or(Answer::Done, zone));
            let answer = answer.map_err(|error| raw_error(&error, Status::WriteFault));
            return Some((id, self.unless_removed(answer)));
        }
        let Done { token, result, .. } = self.client.next()?;
        let id = RequestId(token);
        let kind = self.in_flight.remove(&id).expect("only requests of the drive are on its ring");
        let fallback = if matches!(kind, Kind::Read(_)) { Status::UnrecoveredReadError } else { Status::WriteFault };
        let answer = match (kind, result) {
            (_, Err(error)) => Err(raw_error(&error, fallback)),
            (Kind::Read(length), Ok(outcome)) => {
                let data = match outcome {
                    Outcome::Read(buffer) => buffer.freeze(),
                    Outcome::ReadRegistered(buffer) => buffer.freeze(),
                    other => unreachable!("the outcome of a read is not {other:?}"),
                };
                match data.len() == length {
                    true => Ok(Answer::Data(BlockBuffer { data, metadata: Bytes::new() })),
                    false => Err(raw_error(&io::ErrorKind::UnexpectedEof.into(), fallback)),
                }
            }
            (Kind::Write | Kind::Flush, Ok(_)) => Ok(Answer::Done),
        };
        Some((id, self.unless_removed(answer)))
    }
}

/// Whether the drive was removed: its device has no size then, so that reads are at its end, and
/// writes have no space.
fn has_vanished(length: io::Result<u64>, bytes: u64) -> bool {
    length.is_ok_and(|length| length < bytes)
}

/// The status of a failed request. The block layer reports statuses of NVMe and sense codes as errors
/// (`block/blk-core.c`); where it has no specific one the status is `fallback`.
fn raw_error(error: &io::Error, fallback: Status) -> RawError {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    let is_removed = matches!(errno, Some(Errno::NODEV | Errno::NXIO | Errno::SHUTDOWN));
    let status = match errno {
        _ if is_removed => Status::InternalError,
        Some(Errno::NOSPC) => Status::CapacityExceeded,
        Some(Errno::OVERFLOW) => Status::TooManyActiveZones,
        Some(Errno::TOOMANYREFS) => Status::TooManyOpenZones,
        Some(Errno::BADE) => Status::ReservationConflict,
        _ => fallback,
    };
    RawError { status, why: error.to_string(), is_removed }
}

/// The number of a block device.
fn number_of(path: &Path) -> Result<(u32, u32), DriveError> {
    let shown = path.display();
    let status = rustix::fs::stat(path).map_err(|error| match error {
        Errno::NOENT => DriveError::missing(
            format!("{shown} does not exist"),
            "give the device file of a zoned drive: lsblk -z lists drives with their zone models",
        ),
        error => DriveError::new(format!("cannot access {shown}: {error}"), "check the path and its permissions"),
    })?;
    let kind = rustix::fs::FileType::from_raw_mode(status.st_mode);
    if kind != rustix::fs::FileType::BlockDevice {
        return Err(DriveError::new(
            format!("{shown} is not a block device"),
            "give the device file of a zoned drive: lsblk -z lists drives with their zone models",
        ));
    }
    Ok((rustix::fs::major(status.st_rdev), rustix::fs::minor(status.st_rdev)))
}

fn cannot_open(path: &Path, error: &io::Error) -> DriveError {
    let message = format!("cannot open {}: {error}", path.display());
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::BUSY) => DriveError::in_use(
            format!("{} is in use: it is mounted, or another program has opened it exclusively", path.display()),
            "unmount its file system, or stop the program: lsblk and fuser show them",
        ),
        Some(Errno::ACCESS | Errno::PERM) => {
            DriveError::new(message, "run the command as root, or grant access to the device file")
        }
        Some(Errno::NXIO | Errno::NODEV | Errno::NOENT) => {
            DriveError::missing(message, "check that the drive is connected")
        }
        _ => DriveError::new(message, "check the kernel log (dmesg)"),
    }
}

#[cfg(test)]
mod tests {
    use zonda_ring::limits::REGISTERED_BYTES_MIN;
    use zonda_ring::{Ring, RingOptions};
    use zonda_zoned::{
        Blocks, Command, CommandId, CompletionQueue, Geometry, NamespaceId, Payload, ZoneState, ZonedDevice,
    };

    use super::*;
    use crate::real::FoundZone;

    /// A drive of four empty zones of 1 MiB in a file, for a ring.
    fn drive_in_file(directory: &Path, ring: &Ring) -> KernelZoned {
        let geometry = Geometry {
            block_size_bytes: 4096,
            metadata_bytes: 0,
            zone_size_blocks: Blocks(256),
            zone_capacity_blocks: Blocks(256),
            zone_count: 4,
            max_active_zones: None,
            max_open_zones: None,
            max_transfer_blocks: Blocks(64),
            max_append_blocks: Blocks(64),
            ..Geometry::tiny()
        };
        let path = directory.join("drive");
        std::fs::File::create(&path).and_then(|file| file.set_len(4 << 20)).unwrap();
        let options = FileOptions::read_write();
        let file = File::open(&path, FileOptions { direct: true, ..options }).or_else(|_| File::open(&path, options));
        KernelZoned::without_zones(file.unwrap(), &geometry, &FoundZone::new(ZoneState::Empty, Blocks(0)), ring)
    }

    /// Executes operations, all of them outstanding together, and returns their outcomes in order.
    fn execute(
        drive: &mut KernelZoned,
        ring: &Ring,
        operations: Vec<zonda_zoned::Operation>,
    ) -> Vec<zonda_zoned::Outcome> {
        let count = operations.len();
        let mut outcomes = std::collections::BTreeMap::new();
        for (id, operation) in (0..).map(CommandId).zip(operations) {
            drive.submit(ring.now(), Command::new(id, NamespaceId::FIRST, operation)).unwrap();
        }
        let mut completions = CompletionQueue::new();
        while outcomes.len() < count {
            drive.poll(ring.now(), &mut completions);
            if completions.is_empty() {
                ring.run_once(drive.next_timeout()).unwrap();
            }
            while let Some(completion) = completions.pop() {
                assert_eq!(completion.status, Status::Success);
                outcomes.insert(completion.id, completion.outcome);
            }
        }
        outcomes.into_values().collect()
    }

    #[test]
    fn reads_and_writes_have_the_same_data_with_and_without_registered_buffers() {
        for registered_bytes in [0, REGISTERED_BYTES_MIN] {
            let directory = tempfile::tempdir().unwrap();
            let ring = Ring::new(RingOptions { registered_bytes, ..RingOptions::default() }).unwrap();
            let mut drive = drive_in_file(directory.path(), &ring);
            // One byte more, so that no write is aligned; and one transfer is longer than any registered buffer.
            let content: Bytes = (0..4 << 20).map(|at: u32| (at / 4096 * 7 + at % 251) as u8).collect();
            let shifted: Bytes = [&[0][..], &content].concat().into();
            let lengths = [1, 3, 4, 5, 17, 32, 64, 130];
            let mut writes = Vec::new();
            for zone in 0..4_u64 {
                let mut first = 0;
                for length in lengths {
                    let start = zone * 256 + first;
                    let (from, count) = (start as usize * 4096, length as usize * 4096);
                    for (first, count) in
                        (0..count).step_by(64 * 4096).map(|at| (from + at, (count - at).min(64 * 4096)))
                    {
                        let data = shifted.slice(1 + first..1 + first + count);
                        let payload = Payload::Bytes(Box::new(BlockBuffer { data, metadata: Bytes::new() }));
                        let (start, blocks) = (Lba(first as u64 / 4096), Blocks(count as u64 / 4096));
                        writes.push(zonda_zoned::Operation::Write { start, blocks, payload });
                    }
                    first += length;
                }
                assert_eq!(first, 256);
            }
            execute(&mut drive, &ring, writes);
            assert!(std::fs::read(directory.path().join("drive")).unwrap() == content);
            // More data than the registered buffers have, all of which is kept until the end.
            for blocks in [1, 4, 5, 20, 32, 33, 64] {
                let starts: Vec<u64> = (0..=1024 - blocks).step_by(blocks as usize).collect();
                let read = |start: &u64| zonda_zoned::Operation::Read { start: Lba(*start), blocks: Blocks(blocks) };
                let outcomes = execute(&mut drive, &ring, starts.iter().map(read).collect());
                for (start, outcome) in starts.iter().zip(outcomes) {
                    let zonda_zoned::Outcome::Data(Payload::Bytes(found)) = outcome else { panic!("{outcome:?}") };
                    let from = *start as usize * 4096;
                    assert!(found.data == content.slice(from..from + blocks as usize * 4096), "{blocks} from {start}");
                }
            }
            assert!(ring.registered_bytes() <= registered_bytes);
        }
    }

    #[test]
    fn errors_of_the_block_layer_have_their_statuses() {
        let status = |errno: Errno, fallback| {
            let error = raw_error(&errno.into(), fallback);
            (error.status, error.is_removed)
        };
        assert_eq!(status(Errno::OVERFLOW, Status::WriteFault), (Status::TooManyActiveZones, false));
        assert_eq!(status(Errno::TOOMANYREFS, Status::WriteFault), (Status::TooManyOpenZones, false));
        assert_eq!(status(Errno::IO, Status::UnrecoveredReadError), (Status::UnrecoveredReadError, false));
        assert_eq!(status(Errno::NODATA, Status::UnrecoveredReadError), (Status::UnrecoveredReadError, false));
        assert_eq!(status(Errno::TIMEDOUT, Status::WriteFault), (Status::WriteFault, false));
        assert_eq!(status(Errno::NODEV, Status::WriteFault), (Status::InternalError, true));
    }

    #[test]
    fn a_device_without_its_size_has_vanished() {
        assert!(has_vanished(Ok(0), 4096) && !has_vanished(Ok(4096), 4096) && !has_vanished(Ok(8192), 4096));
        assert!(!has_vanished(Err(io::ErrorKind::NotSeekable.into()), 4096), "that is not known");
    }

    #[test]
    fn paths_that_are_no_block_devices_are_refused_with_a_remedy() {
        let missing = number_of(Path::new("/dev/does-not-exist")).expect_err("it does not exist");
        assert!(missing.is_missing && missing.help.contains("lsblk -z"), "{missing}");
        let wrong = number_of(Path::new("/dev/null")).expect_err("it is a character device");
        assert!(wrong.message.contains("not a block device"), "{wrong}");
    }
}

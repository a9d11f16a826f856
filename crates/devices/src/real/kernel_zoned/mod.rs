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
    aligned, aligned_buffer, table_of,
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
                let length = (blocks.0 * self.block_bytes) as usize;
                let read = Operation::Read { file, offset: self.offset(start), buffer: aligned_buffer(length) };
                self.on_ring(id, Kind::Read(length), read);
            }
            RawOperation::Write { start, buffer } => {
                let write = Operation::Write { file, offset: self.offset(start), pieces: vec![aligned(buffer.data)] };
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
            (Kind::Read(length), Ok(Outcome::Read(buffer))) if buffer.len() == length => {
                Ok(Answer::Data(BlockBuffer { data: buffer.freeze(), metadata: Bytes::new() }))
            }
            (Kind::Read(_), Ok(_)) => Err(raw_error(&io::ErrorKind::UnexpectedEof.into(), fallback)),
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
    use super::*;

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

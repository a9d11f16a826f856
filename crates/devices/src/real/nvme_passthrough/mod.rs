//! [`NvmePassthrough`]: a zoned NVMe namespace through its character device, /dev/ng0n1.
//!
//! Commands bypass the block layer of Linux, so that Zone Append and the status codes of the drive are
//! available. They run on an io_uring of their own ([`PassthroughQueue`]). The block device of the same
//! namespace is held open exclusively meanwhile: no file system can be mounted, and a mounted one
//! prevents the opening.

mod identify;

use std::io;
use std::path::Path;
use std::rc::Rc;

use rustix::io::Errno;
use zerocopy::IntoBytes;
use zonda_nvme::identify::NamespaceIdentity;
use zonda_nvme::io::{NamespaceFormat, encode, encode_ranges};
use zonda_nvme::zns::ReportFormat;
use zonda_nvme::{StatusCode, SubmissionEntry};
use zonda_ring::{
    Bytes, BytesMut, CommandData, File, FileOptions, NvmeAnswer, NvmeCommand, PassthroughDone, PassthroughQueue, Waker,
};
use zonda_zoned::{
    BlockBuffer, Blocks, Geometry, Lba, LbaRange, NamespaceId, Operation, Payload, ReportFilter, Status, ZoneAction,
    ZoneIndex, ZoneTarget,
};

use crate::DriveError;
use crate::real::{
    Abilities, Answer, DeviceMode, FoundZone, Opened, Queue, RawError, RawOperation, RealDrive, Request, RequestId,
    aligned, aligned_buffer, table_of,
};

/// A zoned namespace, by its character device.
pub(crate) type NvmePassthrough = RealDrive<NvmeQueue>;

/// Entries of the submission queue.
const ENTRIES: u32 = 256;
/// Host Path Error (NVMe Base 2.0, 3/70h): the status that Linux gives to commands of a controller that
/// was removed.
const HOST_PATH_ERROR: StatusCode = StatusCode(0x370);

/// What Identify and a zone report say about a namespace.
pub(crate) struct Identified {
    pub(crate) namespace: NamespaceId,
    pub(crate) geometry: Geometry,
    pub(crate) zones: Vec<FoundZone>,
    pub(crate) identity: Option<NamespaceIdentity>,
    pub(crate) deallocates: bool,
}

/// A namespace that was opened and whose zones are known, and that is not attached to a ring yet. The
/// ring may belong to another thread.
pub(crate) struct PreparedNamespace {
    file: File,
    /// Held open so that the block layer does not use the namespace.
    block_device: Option<File>,
    namespace: NamespaceId,
    opened: Opened,
}

impl PreparedNamespace {
    /// Opens a namespace, and reads its properties and the state of its zones. Blocks.
    pub(crate) fn open(path: &Path, mode: DeviceMode) -> Result<PreparedNamespace, DriveError> {
        let shown = path.display();
        let in_use = || {
            DriveError::in_use(
                format!("{shown} is in use by another program, or its block device is mounted"),
                "unmount its file system, or stop the program: lsblk and fuser show them",
            )
        };
        let file = File::open(path, mode.file_options()).map_err(|error| {
            let help = match error.kind() {
                io::ErrorKind::PermissionDenied => "run the command as root, or grant access to the device file",
                _ => "check that the drive is connected",
            };
            DriveError::new(format!("cannot open {shown}: {error}"), help)
        })?;
        // Two programs of zonda; other programs are kept out by the block device.
        if !file.lock().unwrap_or(true) {
            return Err(in_use());
        }
        let block_device = match identify::block_device_of(path) {
            None => None,
            Some(other) => {
                let options = FileOptions { exclusive: true, ..FileOptions::read_only() };
                match File::open(&other, options) {
                    Ok(held) => Some(held),
                    Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => return Err(in_use()),
                    // Linux offers no block device for some formats.
                    Err(_) => None,
                }
            }
        };
        let identified = identify::identify(path, &file)?;
        let table = table_of(&identified.geometry, &identified.zones).map_err(|zone| {
            let message = format!("zone {zone} of {shown} is active beyond the limit of active zones of the drive");
            DriveError::new(message, "reset or finish zones with nvme zns")
        })?;
        let abilities = Abilities { append: true, deallocate: identified.deallocates, offline: true };
        let opened = Opened { table, abilities, identity: identified.identity, notes: Vec::new() };
        Ok(PreparedNamespace { file, block_device, namespace: identified.namespace, opened })
    }

    /// Attaches the namespace to the loop of `waker`.
    pub(crate) fn attach(self, waker: Waker) -> Result<NvmePassthrough, DriveError> {
        let PreparedNamespace { file, block_device, namespace, opened } = self;
        let queue = PassthroughQueue::new(Rc::new(file), waker, ENTRIES).map_err(|error| {
            DriveError::new(
                format!("cannot create a queue for NVMe passthrough: {error}"),
                "passthrough needs io_uring of Linux 5.19; use the block device of the namespace instead",
            )
        })?;
        let geometry = opened.table.geometry().clone();
        let bytes = geometry.max_transfer_blocks.bytes(geometry.block_size_bytes) as u32;
        let format = NamespaceFormat::of(&geometry, bytes);
        let queue = NvmeQueue { queue, format, namespace, geometry, _block_device: block_device };
        Ok(RealDrive::new(opened, queue))
    }
}

/// The commands to a namespace.
pub(crate) struct NvmeQueue {
    queue: PassthroughQueue,
    format: NamespaceFormat,
    namespace: NamespaceId,
    geometry: Geometry,
    _block_device: Option<File>,
}

/// The kind of a request, in the low bits of the token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Other = 0,
    Append = 1,
    Report = 2,
    Read = 3,
}

const KIND_BITS: u32 = 2;

impl Queue for NvmeQueue {
    fn submit(&mut self, Request { id, operation }: Request) {
        let block_bytes = self.geometry.block_size_bytes;
        let blocks_of = |length: usize| Blocks(length as u64 / u64::from(block_bytes));
        let payload = Payload::None;
        let start_of = |zone: ZoneIndex| self.geometry.zone_start(zone);
        let mut metadata = CommandData::None;
        let (kind, operation, data) = match operation {
            RawOperation::Read { start, blocks } => {
                let buffer = |length: usize| {
                    let mut buffer = aligned_buffer(length);
                    buffer.resize(length, 0);
                    buffer
                };
                if self.geometry.metadata_bytes > 0 {
                    let length = blocks.0 as usize * usize::from(self.geometry.metadata_bytes);
                    metadata = CommandData::FromDevice(buffer(length));
                }
                let data = buffer(blocks.bytes(block_bytes) as usize);
                (Kind::Read, Operation::Read { start, blocks }, CommandData::FromDevice(data))
            }
            RawOperation::Write { start, buffer } => {
                let write = Operation::Write { start, blocks: blocks_of(buffer.data.len()), payload };
                metadata = metadata_of(buffer.metadata);
                (Kind::Other, write, CommandData::ToDevice(aligned(buffer.data)))
            }
            RawOperation::Append { zone_start, buffer } => {
                let append = Operation::Append { zone_start, blocks: blocks_of(buffer.data.len()), payload };
                metadata = metadata_of(buffer.metadata);
                (Kind::Append, append, CommandData::ToDevice(aligned(buffer.data)))
            }
            RawOperation::Deallocate { start, blocks } => {
                let ranges: Box<[LbaRange]> = [LbaRange { start, blocks }].into();
                let data = CommandData::ToDevice(encode_ranges(&ranges).into());
                (Kind::Other, Operation::Deallocate { ranges }, data)
            }
            RawOperation::Flush => (Kind::Other, Operation::Flush, CommandData::None),
            RawOperation::Manage { action, zone } => {
                let action = action.zone_action();
                let target = ZoneTarget::Zone(start_of(zone));
                (Kind::Other, Operation::ManageZones { action, target }, CommandData::None)
            }
            RawOperation::SetExtension { zone, extension } => {
                let action = ZoneAction::SetDescriptorExtension { extension: extension[..].into(), zrwa: false };
                let target = ZoneTarget::Zone(start_of(zone));
                (Kind::Other, Operation::ManageZones { action, target }, CommandData::ToDevice(aligned(extension)))
            }
            RawOperation::Report { zone } => {
                let format = report_format(self.geometry.descriptor_extension_bytes);
                let buffer = BytesMut::zeroed(format.report_bytes(1));
                (Kind::Report, report_of(start_of(zone), 1, &format), CommandData::FromDevice(buffer))
            }
        };
        let encoded = encode(&operation, self.namespace, &self.format);
        let entry = encoded.expect("the machine passes operations that one command expresses").entry;
        self.queue.submit(id.0 << KIND_BITS | kind as u64, &command_of(&entry), data, metadata);
    }

    fn flush(&mut self) {
        self.queue.flush();
    }

    fn next(&mut self) -> Option<(RequestId, Result<Answer, RawError>)> {
        let PassthroughDone { token, result, data, metadata } = self.queue.poll_done()?;
        let id = RequestId(token >> KIND_BITS);
        let is = |kind: Kind| token & ((1 << KIND_BITS) - 1) == kind as u64;
        let answer = succeeded(result).and_then(|result| match data {
            _ if is(Kind::Append) => Ok(Answer::Placed(Lba(result))),
            CommandData::FromDevice(buffer) if is(Kind::Read) => {
                let metadata = match metadata {
                    CommandData::FromDevice(metadata) => metadata.freeze(),
                    _ => Bytes::new(),
                };
                Ok(Answer::Data(BlockBuffer { data: buffer.freeze(), metadata }))
            }
            CommandData::FromDevice(buffer) => match zones_of(&buffer, self.geometry.descriptor_extension_bytes)?.pop()
            {
                Some(zone) => Ok(Answer::Zone(zone)),
                None => Err(internal("the drive reports no zone".to_owned())),
            },
            _ => Ok(Answer::Done),
        });
        Some((id, answer))
    }
}

/// The metadata of a write, in a buffer of its own.
fn metadata_of(metadata: Bytes) -> CommandData {
    if metadata.is_empty() { CommandData::None } else { CommandData::ToDevice(aligned(metadata)) }
}

/// The form of zone reports, extended if zones may have descriptor extensions.
fn report_format(extension_bytes: u32) -> ReportFormat {
    ReportFormat { extension_bytes: (extension_bytes > 0).then_some(extension_bytes), partial: true }
}

/// Report Zones from a block on.
fn report_of(start: Lba, descriptors_max: u32, format: &ReportFormat) -> Operation {
    let extended = format.extension_bytes.is_some();
    Operation::ReportZones { start, filter: ReportFilter::All, extended, partial: true, descriptors_max }
}

fn command_of(entry: &SubmissionEntry) -> NvmeCommand {
    let mut command = [0; 64];
    command.copy_from_slice(entry.as_bytes());
    // The kernel chooses the form of the data pointer, and refuses other flags than zero.
    command[1] = 0;
    command
}

/// The zones of a report.
fn zones_of(buffer: &[u8], extension_bytes: u32) -> Result<Vec<FoundZone>, RawError> {
    let report = report_format(extension_bytes).parse(buffer).map_err(|error| internal(error.to_string()))?;
    Ok(report.zones.iter().map(FoundZone::of).collect())
}

fn internal(why: String) -> RawError {
    RawError { status: Status::InternalError, why, is_removed: false }
}

/// The result of a command that has succeeded.
fn succeeded(answer: io::Result<NvmeAnswer>) -> Result<u64, RawError> {
    let NvmeAnswer { status, result } = answer.map_err(|error| {
        let is_removed = matches!(
            error.raw_os_error().map(Errno::from_raw_os_error),
            Some(Errno::NODEV | Errno::NXIO | Errno::SHUTDOWN)
        );
        RawError { status: Status::InternalError, why: error.to_string(), is_removed }
    })?;
    let code = StatusCode(status & 0x7ff);
    if code.is_success() {
        return Ok(result);
    }
    Err(RawError { status: code.to_device_status(), why: code.to_string(), is_removed: code == HOST_PATH_ERROR })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_zoned::ZoneState;

    #[test]
    fn an_append_has_the_bytes_of_the_specification() {
        let geometry = Geometry { metadata_bytes: 0, descriptor_extension_bytes: 0, ..Geometry::tiny() };
        let append = Operation::Append { zone_start: Lba(0x10), blocks: Blocks(4), payload: Payload::None };
        let format = NamespaceFormat::of(&geometry, 4096);
        let entry = encode(&append, NamespaceId(3), &format).expect("one command expresses it").entry;
        let command = command_of(&entry);
        assert_eq!(command[..2], [0x7d, 0]);
        assert_eq!((command[4], &command[40..48]), (3, &[0x10, 0, 0, 0, 0, 0, 0, 0][..]));
        assert_eq!(&command[48..52], &[3, 0, 0, 0], "the number of blocks is zero-based");
    }

    #[test]
    fn statuses_of_the_drive_are_those_of_the_command() {
        let status = |status: u16| {
            succeeded(Ok(NvmeAnswer { status, result: 7 })).map_err(|error| (error.status, error.is_removed))
        };
        assert_eq!(status(0), Ok(7));
        // Do Not Retry is set.
        assert_eq!(status(0x41bc), Err((Status::ZoneInvalidWrite, false)));
        assert_eq!(status(0x1bd), Err((Status::TooManyActiveZones, false)));
        assert_eq!(status(0x281), Err((Status::UnrecoveredReadError, false)));
        assert_eq!(status(0x370), Err((Status::InternalError, true)));
        let error = succeeded(Err(Errno::NODEV.into())).unwrap_err();
        assert!(error.is_removed);
    }

    #[test]
    fn a_zone_is_parsed_from_a_report_with_its_descriptor_extension() {
        for extension_bytes in [0, 64] {
            let mut bytes = vec![0; report_format(extension_bytes).report_bytes(1)];
            assert_eq!(bytes.len(), 128 + extension_bytes as usize);
            bytes[0] = 1;
            let zone = &mut bytes[64..];
            (zone[0], zone[1]) = (2, 0x20);
            zone[8..16].copy_from_slice(&100_u64.to_le_bytes());
            zone[16..24].copy_from_slice(&200_u64.to_le_bytes());
            zone[24..32].copy_from_slice(&205_u64.to_le_bytes());
            let found = FoundZone::new(ZoneState::ImplicitlyOpened, Blocks(5));
            assert_eq!(zones_of(&bytes, extension_bytes), Ok(vec![found.clone()]), "the extension is not valid");
            if extension_bytes > 0 {
                // Zone Descriptor Extension Valid.
                bytes[64 + 2] = 1 << 7;
                bytes[128..].fill(7);
                let extension = Some([7; 64].into());
                assert_eq!(zones_of(&bytes, extension_bytes), Ok(vec![FoundZone { extension, ..found }]));
            }
            bytes[64] = 9;
            assert!(zones_of(&bytes, extension_bytes).is_err(), "no zone has the type 9");
        }
    }
}

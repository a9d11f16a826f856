//! From an operation to a submission queue entry.

use std::fmt;

use zonda_zoned::limits::{COMMAND_BLOCKS_MAX, DEALLOCATE_RANGES_MAX};
use zonda_zoned::{Blocks, NamespaceId, Operation, ZoneAction, ZoneTarget};

use super::codes::{ReceiveAction, SendAction, report_filter_code};
use super::decode::{ALLOCATE_ZRWA, DEALLOCATE, PARTIAL_REPORT, SELECT_ALL};
use super::{DATASET_RANGE_BYTES, NamespaceFormat, Transfer, ZONE_REPORT_UNIT_BYTES};
use crate::{IoOpcode, SglDescriptor, SubmissionEntry};

/// An entry, and its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The entry; the command identifier is zero, and the data pointer one of transport data of the
    /// transfer's length.
    pub entry: SubmissionEntry,
    /// Direction and length of the data transfer.
    pub transfer: Transfer,
}

/// An operation that no single I/O command expresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The changed zone list is a log page: an admin command reads it.
    NotAnIoCommand,
    /// No blocks, more than 65,536, no range, more than 256, or a range of more than 2^32 - 1
    /// blocks.
    Count,
    /// A filter by a state that the specification does not have.
    Filter,
    /// A descriptor extension that is not as long as the namespace's.
    ExtensionLength,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            EncodeError::NotAnIoCommand => "reading the changed zone list is an admin command",
            EncodeError::Count => "a command moves 1 to 65536 blocks, and deallocates 1 to 256 ranges",
            EncodeError::Filter => "NVMe has no report filter for this zone state",
            EncodeError::ExtensionLength => "the length of a descriptor extension must be that of the namespace format",
        })
    }
}

impl std::error::Error for EncodeError {}

/// Makes the entry of an operation on a namespace. Payloads stay with the operation: data of writes
/// is [`super::interleave`]d, ranges are [`super::encode_ranges`].
///
/// # Errors
/// [`EncodeError`] for an operation that no single I/O command can express.
pub fn encode(operation: &Operation, namespace: NamespaceId, format: &NamespaceFormat) -> Result<Encoded, EncodeError> {
    let entry_of = |opcode: IoOpcode| SubmissionEntry::new(opcode.code(), namespace.0);
    let (mut entry, transfer) = match operation {
        Operation::Read { start, blocks } => {
            (data_command(entry_of(IoOpcode::Read), start.0, *blocks)?, Transfer::ToHost(bytes_of(*blocks, format)?))
        }
        Operation::Write { start, blocks, .. } => {
            (data_command(entry_of(IoOpcode::Write), start.0, *blocks)?, Transfer::FromHost(bytes_of(*blocks, format)?))
        }
        Operation::Append { zone_start, blocks, .. } => (
            data_command(entry_of(IoOpcode::ZoneAppend), zone_start.0, *blocks)?,
            Transfer::FromHost(bytes_of(*blocks, format)?),
        ),
        Operation::WriteZeroes { start, blocks } => {
            (data_command(entry_of(IoOpcode::WriteZeroes), start.0, *blocks)?, Transfer::None)
        }
        Operation::Flush => (entry_of(IoOpcode::Flush), Transfer::None),
        Operation::Deallocate { ranges } => {
            let countable = |blocks: Blocks| u32::try_from(blocks.0).is_ok();
            if !(1..=DEALLOCATE_RANGES_MAX).contains(&ranges.len())
                || !ranges.iter().all(|range| countable(range.blocks))
            {
                return Err(EncodeError::Count);
            }
            let mut entry = entry_of(IoOpcode::DatasetManagement);
            entry.cdw10 = (ranges.len() as u32 - 1).into();
            entry.cdw11 = DEALLOCATE.into();
            (entry, Transfer::FromHost((ranges.len() * DATASET_RANGE_BYTES) as u32))
        }
        Operation::ManageZones { action, target } => {
            management_send(entry_of(IoOpcode::ZoneManagementSend), action, *target, format)?
        }
        Operation::ReportZones { start, filter, extended, partial, descriptors_max } => {
            let mut entry = entry_of(IoOpcode::ZoneManagementReceive);
            entry.set_starting_lba(start.0);
            let extension_bytes = if *extended { format.descriptor_extension_bytes } else { 0 };
            let bytes = (ZONE_REPORT_UNIT_BYTES + extension_bytes)
                .checked_mul(*descriptors_max)
                .and_then(|bytes| bytes.checked_add(ZONE_REPORT_UNIT_BYTES))
                .ok_or(EncodeError::Count)?;
            entry.cdw12 = (bytes / 4 - 1).into();
            let report = if *extended { ReceiveAction::ExtendedReport } else { ReceiveAction::Report };
            let filter = report_filter_code(*filter).ok_or(EncodeError::Filter)?;
            let partial = if *partial { PARTIAL_REPORT } else { 0 };
            entry.cdw13 = (report as u32 | u32::from(filter) << 8 | partial).into();
            (entry, Transfer::ToHost(bytes))
        }
        Operation::ReadChangedZones => return Err(EncodeError::NotAnIoCommand),
    };
    entry.data_pointer = SglDescriptor::transport(match transfer {
        Transfer::None => 0,
        Transfer::FromHost(bytes) | Transfer::ToHost(bytes) => bytes,
    });
    Ok(Encoded { entry, transfer })
}

/// Starting LBA and number of blocks, as reads, writes, appends and write zeroes have them.
fn data_command(mut entry: SubmissionEntry, lba: u64, blocks: Blocks) -> Result<SubmissionEntry, EncodeError> {
    if !(1..=COMMAND_BLOCKS_MAX).contains(&blocks.0) {
        return Err(EncodeError::Count);
    }
    entry.set_starting_lba(lba);
    entry.cdw12 = (blocks.0 as u32 - 1).into();
    Ok(entry)
}

fn bytes_of(blocks: Blocks, format: &NamespaceFormat) -> Result<u32, EncodeError> {
    u32::try_from(blocks.bytes(format.block_bytes())).map_err(|_| EncodeError::Count)
}

fn management_send(
    mut entry: SubmissionEntry,
    action: &ZoneAction,
    target: ZoneTarget,
    format: &NamespaceFormat,
) -> Result<(SubmissionEntry, Transfer), EncodeError> {
    let mut transfer = Transfer::None;
    let zrwa = match action {
        ZoneAction::Open { zrwa } => *zrwa,
        ZoneAction::SetDescriptorExtension { extension, zrwa } => {
            if extension.len() != format.descriptor_extension_bytes as usize {
                return Err(EncodeError::ExtensionLength);
            }
            transfer = Transfer::FromHost(format.descriptor_extension_bytes);
            *zrwa
        }
        _ => false,
    };
    let code = SendAction::of(action);
    let mut cdw13 = code as u32;
    if zrwa {
        cdw13 |= ALLOCATE_ZRWA;
    }
    match target {
        ZoneTarget::Zone(lba) => entry.set_starting_lba(lba.0),
        ZoneTarget::All => cdw13 |= SELECT_ALL,
    }
    entry.cdw13 = cdw13.into();
    Ok((entry, transfer))
}

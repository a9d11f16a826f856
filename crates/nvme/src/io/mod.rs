//! I/O commands, both ways: from a submission queue entry to an operation on zones, and back.
//!
//! A controller decodes an entry to an [`IoRequest`], moves the data that [`IoRequest::transfer`]
//! names, and makes an operation of both with [`IoRequest::into_operation`]. A host encodes an
//! operation with [`encode`].

mod codes;
mod decode;
mod encode;
mod extended;
mod ranges;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use zonda_zoned::{Blocks, Geometry, Lba, Operation, Payload, ReportFilter, ZoneAction, ZoneTarget};

use crate::StatusCode;

pub use codes::{ReceiveAction, SendAction, report_filter, report_filter_code};
pub use decode::decode;
pub use encode::{EncodeError, Encoded, encode};
pub use extended::{interleave, split_interleaved};
pub use ranges::{DATASET_RANGE_BYTES, decode_ranges, encode_ranges};

/// Bytes before the descriptors of a zone report (ZNS Command Set 1.1, Figure 36), and bytes of a
/// descriptor (Figure 37).
pub const ZONE_REPORT_UNIT_BYTES: u32 = 64;

/// The properties of a namespace's format that commands depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceFormat {
    /// Bytes in a logical block.
    pub block_size_bytes: u32,
    /// Bytes of metadata after each block; data and metadata are interleaved (extended LBA), as
    /// Fabrics requires.
    pub metadata_bytes: u16,
    /// Whether the namespace has zones (ZNS command set), or not (NVM command set).
    pub zoned: bool,
    /// Blocks of one read, write or compare (from MDTS).
    pub max_transfer_blocks: u32,
    /// Blocks of one append (ZASL).
    pub max_append_blocks: u32,
    /// Bytes of the greatest transfer of any other kind.
    pub max_transfer_bytes: u32,
    /// Bytes of a zone's descriptor extension.
    pub descriptor_extension_bytes: u32,
}

/// Direction and length of a command's data transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// No data.
    None,
    /// To the controller.
    FromHost(u32),
    /// To the host.
    ToHost(u32),
}

/// A well-formed I/O command; the device checks it against zone states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoRequest {
    /// Read (NVM 3.2.4).
    Read {
        /// First block.
        start: Lba,
        /// How many.
        blocks: Blocks,
        /// FUA: volatile data must be made durable first.
        force_unit_access: bool,
    },
    /// Write (NVM 3.2.6).
    Write {
        /// First block.
        start: Lba,
        /// How many.
        blocks: Blocks,
        /// FUA: durable before it is acknowledged.
        force_unit_access: bool,
    },
    /// Zone Append (ZNS 3.4.1).
    Append {
        /// The zone's first block.
        zone_start: Lba,
        /// How many.
        blocks: Blocks,
        /// FUA: durable before it is acknowledged.
        force_unit_access: bool,
    },
    /// Compare (NVM 3.2.1): a read, compared with the host's data.
    Compare {
        /// First block.
        start: Lba,
        /// How many.
        blocks: Blocks,
        /// FUA: volatile data must be made durable first.
        force_unit_access: bool,
    },
    /// Write Zeroes (NVM 3.2.8).
    WriteZeroes {
        /// First block.
        start: Lba,
        /// How many.
        blocks: Blocks,
        /// FUA: durable before it is acknowledged.
        force_unit_access: bool,
    },
    /// Flush (NVM 3.2; Base 7.1).
    Flush,
    /// Dataset Management (NVM 3.2.3).
    DatasetManagement {
        /// How many ranges follow as data.
        ranges: u16,
        /// AD: deallocate them. Without it, the command is a hint, which is ignored.
        deallocate: bool,
    },
    /// Zone Management Send (ZNS 3.4.3).
    ManageZones {
        /// The action.
        action: SendAction,
        /// To which zones.
        target: ZoneTarget,
        /// ZSASO as ZRWAA: allocate a Zone Random Write Area.
        zrwa: bool,
        /// Bytes of descriptor extension that follow as data; zero except for
        /// [`SendAction::SetDescriptorExtension`].
        extension_bytes: u32,
    },
    /// Zone Management Receive (ZNS 3.4.2).
    ReportZones {
        /// Any block of the first zone.
        start: Lba,
        /// Which zones.
        filter: ReportFilter,
        /// Extended Report Zones.
        extended: bool,
        /// Partial Report.
        partial: bool,
        /// Length of the host's buffer, header included.
        bytes: u32,
        /// Descriptors with their extensions that fit the buffer.
        descriptors_max: u32,
    },
}

impl NamespaceFormat {
    /// The format of a geometry whose device may be sent at most `max_transfer_bytes`, metadata not
    /// counted, with a command.
    #[must_use]
    pub fn of(geometry: &Geometry, max_transfer_bytes: u32) -> NamespaceFormat {
        // Limits of a controller do not count metadata (CTRATT.MEM).
        let block_bytes = u64::from(geometry.block_size_bytes);
        let transfer_blocks = geometry.max_transfer_blocks.0.min(u64::from(max_transfer_bytes) / block_bytes) as u32;
        NamespaceFormat {
            block_size_bytes: geometry.block_size_bytes,
            metadata_bytes: geometry.metadata_bytes,
            zoned: geometry.conventional_zone_count < geometry.zone_count,
            max_transfer_blocks: transfer_blocks,
            max_append_blocks: transfer_blocks.min(geometry.max_append_blocks.0 as u32),
            max_transfer_bytes,
            descriptor_extension_bytes: geometry.descriptor_extension_bytes,
        }
    }

    /// Bytes of a block with its metadata.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.block_size_bytes + u32::from(self.metadata_bytes)
    }
}

impl IoRequest {
    /// Direction and length of the data transfer.
    #[must_use]
    pub fn transfer(&self, format: &NamespaceFormat) -> Transfer {
        let bytes = |blocks: Blocks| blocks.0 as u32 * format.block_bytes();
        match *self {
            IoRequest::Read { blocks, .. } => Transfer::ToHost(bytes(blocks)),
            IoRequest::Write { blocks, .. } | IoRequest::Append { blocks, .. } | IoRequest::Compare { blocks, .. } => {
                Transfer::FromHost(bytes(blocks))
            }
            IoRequest::DatasetManagement { ranges, .. } => {
                Transfer::FromHost(u32::from(ranges) * DATASET_RANGE_BYTES as u32)
            }
            IoRequest::ManageZones { extension_bytes, .. } if extension_bytes > 0 => {
                Transfer::FromHost(extension_bytes)
            }
            IoRequest::ReportZones { bytes, .. } => Transfer::ToHost(bytes),
            IoRequest::WriteZeroes { .. } | IoRequest::Flush | IoRequest::ManageZones { .. } => Transfer::None,
        }
    }

    /// Whether the host may describe more data than the command needs. Linux describes 4 KiB with
    /// every Dataset Management, however few its ranges.
    #[must_use]
    pub fn takes_longer_data(&self) -> bool {
        matches!(self, IoRequest::DatasetManagement { .. } | IoRequest::ManageZones { .. })
    }

    /// The first block, or `None` for a command without blocks.
    #[must_use]
    pub fn start(&self) -> Option<Lba> {
        match *self {
            IoRequest::Read { start, .. }
            | IoRequest::Write { start, .. }
            | IoRequest::Compare { start, .. }
            | IoRequest::WriteZeroes { start, .. }
            | IoRequest::ReportZones { start, .. } => Some(start),
            IoRequest::Append { zone_start, .. } => Some(zone_start),
            IoRequest::ManageZones { target: ZoneTarget::Zone(start), .. } => Some(start),
            IoRequest::ManageZones { .. } | IoRequest::Flush | IoRequest::DatasetManagement { .. } => None,
        }
    }

    /// FUA.
    #[must_use]
    pub fn force_unit_access(&self) -> bool {
        match *self {
            IoRequest::Read { force_unit_access, .. }
            | IoRequest::Compare { force_unit_access, .. }
            | IoRequest::Write { force_unit_access, .. }
            | IoRequest::Append { force_unit_access, .. }
            | IoRequest::WriteZeroes { force_unit_access, .. } => force_unit_access,
            _ => false,
        }
    }

    /// The operation, with the data from the host (empty without a transfer).
    ///
    /// A Compare becomes a read, whose data is to be compared. A Dataset Management that
    /// deallocates nothing becomes `None`: there is nothing to do.
    ///
    /// # Errors
    /// [`StatusCode::INVALID_FIELD`] for invalid data, and
    /// [`StatusCode::DATA_SGL_LENGTH_INVALID`] for data too short.
    pub fn into_operation(self, data: Bytes, format: &NamespaceFormat) -> Result<Option<Operation>, StatusCode> {
        if let Transfer::FromHost(bytes) = self.transfer(format)
            && data.len() < bytes as usize
            && !matches!(self, IoRequest::Compare { .. })
        {
            return Err(StatusCode::DATA_SGL_LENGTH_INVALID);
        }
        Ok(Some(match self {
            IoRequest::Read { start, blocks, .. } | IoRequest::Compare { start, blocks, .. } => {
                Operation::Read { start, blocks }
            }
            IoRequest::Write { start, blocks, .. } => {
                Operation::Write { start, blocks, payload: Payload::Bytes(Box::new(split_interleaved(data, format))) }
            }
            IoRequest::Append { zone_start, blocks, .. } => Operation::Append {
                zone_start,
                blocks,
                payload: Payload::Bytes(Box::new(split_interleaved(data, format))),
            },
            IoRequest::WriteZeroes { start, blocks, .. } => Operation::WriteZeroes { start, blocks },
            IoRequest::Flush => Operation::Flush,
            IoRequest::DatasetManagement { deallocate: false, .. } => return Ok(None),
            IoRequest::DatasetManagement { ranges, .. } => {
                let ranges = decode_ranges(&data[..usize::from(ranges) * DATASET_RANGE_BYTES]);
                if ranges.is_empty() {
                    return Ok(None);
                }
                Operation::Deallocate { ranges }
            }
            IoRequest::ManageZones { action, target, zrwa, extension_bytes } => {
                let action = match action {
                    SendAction::Close => ZoneAction::Close,
                    SendAction::Finish => ZoneAction::Finish,
                    SendAction::Open => ZoneAction::Open { zrwa },
                    SendAction::Reset => ZoneAction::Reset,
                    SendAction::Offline => ZoneAction::Offline,
                    SendAction::SetDescriptorExtension => {
                        ZoneAction::SetDescriptorExtension { extension: data[..extension_bytes as usize].into(), zrwa }
                    }
                    SendAction::FlushZrwa => ZoneAction::FlushZrwa,
                };
                Operation::ManageZones { action, target }
            }
            IoRequest::ReportZones { start, filter, extended, partial, descriptors_max, .. } => {
                Operation::ReportZones { start, filter, extended, partial, descriptors_max }
            }
        }))
    }
}

//! From a submission queue entry to a request.

use zonda_zoned::{Blocks, Lba, ZoneTarget};

use super::codes::{ReceiveAction, SendAction, report_filter};
use super::{IoRequest, NamespaceFormat, ZONE_REPORT_UNIT_BYTES};
use crate::{IoOpcode, StatusCode, SubmissionEntry};

/// FUA: CDW12 bit 30 of reads, compares, writes and appends.
pub(super) const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// AD: CDW11 bit 2 of Dataset Management.
pub(super) const DEALLOCATE: u32 = 1 << 2;
/// Select All: CDW13 bit 8 of Zone Management Send.
pub(super) const SELECT_ALL: u32 = 1 << 8;
/// ZSASO: CDW13 bit 9 of Zone Management Send.
pub(super) const ALLOCATE_ZRWA: u32 = 1 << 9;
/// Partial Report: CDW13 bit 16 of Zone Management Receive.
pub(super) const PARTIAL_REPORT: u32 = 1 << 16;

/// Reads an I/O command to a namespace of the given format. The data pointer is ignored.
///
/// # Errors
/// [`StatusCode::INVALID_OPCODE`] for a command that the namespace's command set does not have,
/// [`StatusCode::INVALID_FIELD`] for a field with a value that the command does not allow, or for
/// more blocks than one command may move.
pub fn decode(entry: &SubmissionEntry, format: &NamespaceFormat) -> Result<IoRequest, StatusCode> {
    let opcode = IoOpcode::try_from(entry.opcode).map_err(|_| StatusCode::INVALID_OPCODE)?;
    let start = Lba(entry.starting_lba());
    let cdw12 = entry.cdw12.get();
    let cdw13 = entry.cdw13.get();
    let blocks = Blocks(u64::from(cdw12 & 0xffff) + 1);
    let force_unit_access = cdw12 & FORCE_UNIT_ACCESS != 0;
    let at_most = |limit: u32| {
        if blocks.0 <= u64::from(limit) { Ok(()) } else { Err(StatusCode::INVALID_FIELD) }
    };
    let needs_zones = || if format.zoned { Ok(()) } else { Err(StatusCode::INVALID_OPCODE) };
    match opcode {
        IoOpcode::Flush => Ok(IoRequest::Flush),
        IoOpcode::Read => {
            at_most(format.max_transfer_blocks)?;
            Ok(IoRequest::Read { start, blocks, force_unit_access })
        }
        IoOpcode::Write => {
            at_most(format.max_transfer_blocks)?;
            no_directive(cdw12)?;
            Ok(IoRequest::Write { start, blocks, force_unit_access })
        }
        IoOpcode::Compare => {
            at_most(format.max_transfer_blocks)?;
            Ok(IoRequest::Compare { start, blocks, force_unit_access })
        }
        IoOpcode::WriteZeroes => Ok(IoRequest::WriteZeroes { start, blocks, force_unit_access }),
        IoOpcode::ZoneAppend => {
            needs_zones()?;
            at_most(format.max_append_blocks)?;
            no_directive(cdw12)?;
            Ok(IoRequest::Append { zone_start: start, blocks, force_unit_access })
        }
        IoOpcode::DatasetManagement => Ok(IoRequest::DatasetManagement {
            ranges: (entry.cdw10.get() & 0xff) as u16 + 1,
            deallocate: entry.cdw11.get() & DEALLOCATE != 0,
        }),
        IoOpcode::ZoneManagementSend => {
            needs_zones()?;
            management_send(start, cdw13, format)
        }
        IoOpcode::ZoneManagementReceive => {
            needs_zones()?;
            management_receive(start, cdw12, cdw13, format)
        }
        // Reservations are the controller's own business, and no device's.
        IoOpcode::ReservationRegister
        | IoOpcode::ReservationReport
        | IoOpcode::ReservationAcquire
        | IoOpcode::ReservationRelease
        | IoOpcode::Fabrics => Err(StatusCode::INVALID_OPCODE),
    }
}

/// DTYPE, CDW12 bits 23:20: no directive is supported.
fn no_directive(cdw12: u32) -> Result<(), StatusCode> {
    if cdw12 >> 20 & 0xf == 0 { Ok(()) } else { Err(StatusCode::INVALID_FIELD) }
}

fn management_send(start: Lba, cdw13: u32, format: &NamespaceFormat) -> Result<IoRequest, StatusCode> {
    let action = SendAction::try_from(cdw13 as u8).map_err(|_| StatusCode::INVALID_FIELD)?;
    let all = cdw13 & SELECT_ALL != 0;
    let extension_bytes = match action {
        SendAction::SetDescriptorExtension => {
            if format.descriptor_extension_bytes == 0 {
                return Err(StatusCode::INVALID_FIELD);
            }
            format.descriptor_extension_bytes
        }
        _ => 0,
    };
    let zrwa = cdw13 & ALLOCATE_ZRWA != 0 && matches!(action, SendAction::Open | SendAction::SetDescriptorExtension);
    let target = if all { ZoneTarget::All } else { ZoneTarget::Zone(start) };
    Ok(IoRequest::ManageZones { action, target, zrwa, extension_bytes })
}

fn management_receive(start: Lba, cdw12: u32, cdw13: u32, format: &NamespaceFormat) -> Result<IoRequest, StatusCode> {
    let bytes = (u64::from(cdw12) + 1) * 4;
    if bytes < u64::from(ZONE_REPORT_UNIT_BYTES) || bytes > u64::from(format.max_transfer_bytes) {
        return Err(StatusCode::INVALID_FIELD);
    }
    let extended = match ReceiveAction::try_from(cdw13 as u8) {
        Ok(ReceiveAction::Report) => false,
        Ok(ReceiveAction::ExtendedReport) if format.descriptor_extension_bytes > 0 => true,
        _ => return Err(StatusCode::INVALID_FIELD),
    };
    let filter = report_filter((cdw13 >> 8) as u8).ok_or(StatusCode::INVALID_FIELD)?;
    let partial = cdw13 & PARTIAL_REPORT != 0;
    let bytes = bytes as u32;
    let descriptor_bytes = ZONE_REPORT_UNIT_BYTES + if extended { format.descriptor_extension_bytes } else { 0 };
    let descriptors_max = (bytes - ZONE_REPORT_UNIT_BYTES) / descriptor_bytes;
    Ok(IoRequest::ReportZones { start, filter, extended, partial, bytes, descriptors_max })
}

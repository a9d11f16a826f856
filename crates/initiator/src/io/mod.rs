//! Converts zone operations to NVMe commands, and their completions to the completion of the
//! operation.
//!
//! Errors that NVMe cannot express are returned here, as `docs/internals/zone-semantics.md`
//! specifies: lengths out of range, blocks beyond the namespace, payloads of the wrong size. Checks
//! of zone states are left to the target.

mod local;
mod pieces;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use zonda_nvme::identify::CommandSet;
use zonda_nvme::io::{NamespaceFormat, encode, interleave, split_interleaved};
use zonda_nvme::log::{ChangedZonePage, GetLogPage, LogPage};
use zonda_nvme::page::Page;
use zonda_nvme::{AdminOpcode, StatusCode, SubmissionEntry};
use zonda_zoned::limits::DEALLOCATE_RANGES_MAX;
use zonda_zoned::{
    Blocks, ChangedZoneList, Geometry, Lba, LbaRange, NamespaceId, Operation, Outcome, Payload, Status, ZoneAction,
};

use crate::InitiatorConfig;
use crate::connecting::Remote;
use crate::limits::REPORT_ROUND_BYTES_MAX;
use crate::queue::{CommandData, Ended, HostData};
use crate::reports::{ReportRequest, ReportRounds, ReportShape};

/// The properties of a namespace that its commands depend on.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) geometry: Geometry,
    id: NamespaceId,
    format: NamespaceFormat,
    report: ReportShape,
    /// Blocks of one Write Zeroes; `None` if the controller does not support it, and zeros are
    /// written.
    write_zeroes_blocks: Option<u64>,
    /// Limits of Dataset Management; `None` if deallocated blocks may read as anything.
    deallocate: Option<DeallocateLimits>,
}

/// Limits of Dataset Management.
#[derive(Clone, Copy, Debug)]
struct DeallocateLimits {
    ranges: usize,
    range_blocks: u64,
    blocks: u64,
}

/// The state of an operation in progress.
#[derive(Debug)]
pub(crate) enum Work {
    Read {
        bytes: u32,
    },
    Append {
        zone_start: Lba,
        blocks: Blocks,
    },
    /// Only a status is returned.
    Plain,
    CheckBeforeZeroes {
        report: Box<ReportRounds>,
        start: Lba,
        blocks: Blocks,
    },
    WriteZeroes {
        next: Lba,
        left: u64,
    },
    Deallocate {
        ranges: Vec<LbaRange>,
        next: usize,
    },
    Report(Box<ReportRounds>),
    ChangedZones,
}

/// An NVMe command with its data.
pub(crate) type Wire = (SubmissionEntry, CommandData);

/// How an operation begins.
#[derive(Debug)]
pub(crate) enum Begin {
    /// It completes locally.
    Answer(Status, Outcome),
    /// It begins with this command; `lasting`: more may follow.
    Send { work: Work, wire: Wire, lasting: bool },
}

/// How an operation continues after a command.
#[derive(Debug)]
pub(crate) enum Next {
    /// Another command.
    Send(Wire),
    /// The operation is complete.
    Done(Status, Outcome),
}

impl Namespace {
    pub(crate) fn new(geometry: Geometry, remote: &Remote, config: &InitiatorConfig) -> Namespace {
        let page_bytes = remote.page_bytes_max(config);
        let format = NamespaceFormat {
            block_size_bytes: geometry.block_size_bytes,
            metadata_bytes: geometry.metadata_bytes,
            zoned: remote.zoned.is_some(),
            max_transfer_blocks: geometry.max_transfer_blocks.0 as u32,
            max_append_blocks: geometry.max_append_blocks.0 as u32,
            max_transfer_bytes: page_bytes,
            descriptor_extension_bytes: geometry.descriptor_extension_bytes,
        };
        let report = ReportShape {
            namespace: config.namespace,
            format,
            zone_size_blocks: geometry.zone_size_blocks.0,
            zone_count: geometry.zone_count,
            round_bytes: page_bytes.min(REPORT_ROUND_BYTES_MAX),
        };
        let limits = remote.limits.as_deref();
        let zeroes_exponent = limits.map_or(0, |limits| limits.write_zeroes_exponent);
        let zeroes = zonda_nvme::identify::transfer_blocks(zeroes_exponent, geometry.block_size_bytes).0.max(1);
        let or_all = |limit: u64| if limit == 0 { u64::MAX } else { limit };
        Namespace {
            id: config.namespace,
            format,
            report,
            write_zeroes_blocks: remote.has_write_zeroes().then_some(zeroes),
            deallocate: remote.has_deallocate().then(|| DeallocateLimits {
                ranges: limits.map_or(DEALLOCATE_RANGES_MAX, |limits| limits.deallocate_ranges_max()),
                range_blocks: or_all(limits.map_or(0, |limits| limits.deallocate_range_blocks.get().into()))
                    .min(u32::MAX.into()),
                blocks: or_all(limits.map_or(0, |limits| limits.deallocate_blocks.get())),
            }),
            geometry,
        }
    }

    pub(crate) fn is_zoned(&self) -> bool {
        self.format.zoned
    }

    /// Whether a geometry differs at most in the size of the namespace.
    pub(crate) fn may_become(&self, geometry: &Geometry) -> bool {
        let mut resized = self.geometry.clone();
        if self.format.zoned {
            resized.zone_count = geometry.zone_count;
        } else {
            resized.zone_size_blocks = geometry.zone_size_blocks;
            resized.zone_capacity_blocks = geometry.zone_capacity_blocks;
        }
        resized == *geometry
    }

    /// The namespace has another size. Commands in flight that are beyond it fail at the target.
    pub(crate) fn resize(&mut self, geometry: Geometry) {
        assert!(self.may_become(&geometry), "only the size of a namespace changes while it is connected");
        self.report.zone_size_blocks = geometry.zone_size_blocks.0;
        self.report.zone_count = geometry.zone_count;
        self.geometry = geometry;
    }

    /// Begins an operation: completes it locally, or returns its first command.
    #[inline]
    pub(crate) fn begin(&self, operation: &Operation) -> Begin {
        match self.prepare(operation) {
            Ok(begin) => begin,
            Err(status) => Begin::Answer(status, Outcome::None),
        }
    }

    #[inline]
    fn prepare(&self, operation: &Operation) -> Result<Begin, Status> {
        let once = |work, wire| Ok(Begin::Send { work, wire, lasting: false });
        match *operation {
            Operation::Read { start, blocks } => {
                self.check_blocks(start, blocks, self.geometry.max_transfer_blocks)?;
                let wire = self.encode(operation)?;
                let bytes = blocks.0 as u32 * self.format.block_bytes();
                once(Work::Read { bytes }, (wire, CommandData::ToHost(bytes)))
            }
            Operation::Write { start, blocks, ref payload } => {
                self.check_blocks(start, blocks, self.geometry.max_transfer_blocks)?;
                let data = self.host_data(payload, blocks)?;
                once(Work::Plain, (self.encode(operation)?, CommandData::FromHost(data)))
            }
            Operation::Append { zone_start, blocks, ref payload } => {
                if blocks.0 == 0 || blocks > self.geometry.max_append_blocks {
                    return Err(Status::InvalidField);
                }
                self.geometry.zone_of(zone_start).ok_or(Status::LbaOutOfRange)?;
                let data = self.host_data(payload, blocks)?;
                if !self.format.zoned {
                    return Err(Status::InvalidField);
                }
                let wire = (self.encode(operation)?, CommandData::FromHost(data));
                once(Work::Append { zone_start, blocks }, wire)
            }
            Operation::WriteZeroes { start, blocks } => self.write_zeroes(start, blocks),
            Operation::Deallocate { ref ranges } => self.deallocate(ranges),
            Operation::Flush => once(Work::Plain, (self.encode(operation)?, CommandData::None)),
            Operation::ManageZones { ref action, target } => {
                if let Some(status) = self.answer_management(action, target) {
                    return Ok(Begin::Answer(status, Outcome::None));
                }
                let data = match action {
                    ZoneAction::SetDescriptorExtension { extension, .. } => {
                        CommandData::FromHost(HostData::Bytes(Bytes::copy_from_slice(extension)))
                    }
                    _ => CommandData::None,
                };
                once(Work::Plain, (self.encode(operation)?, data))
            }
            Operation::ReportZones { start, filter, extended, partial, descriptors_max } => {
                self.report(ReportRequest { start, filter, extended, partial, descriptors_max })
            }
            Operation::ReadChangedZones if !self.format.zoned => {
                Ok(Begin::Answer(Status::Success, Outcome::ChangedZones(Box::default())))
            }
            Operation::ReadChangedZones => {
                let bytes = size_of::<ChangedZonePage>() as u32;
                let request = GetLogPage {
                    command_set: CommandSet::Zoned as u8,
                    ..GetLogPage::of(LogPage::ChangedZones, bytes.into())
                };
                once(Work::ChangedZones, (get_log_page(self.id.0, &request), CommandData::ToHost(bytes)))
            }
        }
    }

    /// A command of an operation has completed.
    #[inline]
    pub(crate) fn ended(&self, work: &mut Work, ended: Ended) -> Next {
        if !ended.status.is_success() {
            return Next::Done(device_status(ended.status), Outcome::None);
        }
        if ended.is_damaged {
            return Next::Done(Status::DataTransferError, Outcome::None);
        }
        match self.succeeded(work, ended) {
            Ok(next) => next,
            Err(status) => Next::Done(status, Outcome::None),
        }
    }

    #[inline]
    fn succeeded(&self, work: &mut Work, ended: Ended) -> Result<Next, Status> {
        let done = |outcome| Ok(Next::Done(Status::Success, outcome));
        match work {
            Work::Plain => done(Outcome::None),
            Work::Read { bytes } => {
                if ended.data.len() as u32 != *bytes {
                    return Err(Status::DataTransferError);
                }
                let buffer = split_interleaved(ended.data, &self.format);
                done(Outcome::Data(Payload::Bytes(Box::new(buffer))))
            }
            Work::Append { zone_start, blocks } => {
                let at = ended.result.checked_sub(zone_start.0).and_then(|offset| offset.checked_add(blocks.0));
                if at.is_none_or(|end| end > self.geometry.zone_capacity_blocks.0) {
                    return Err(Status::InternalError);
                }
                done(Outcome::Appended(Lba(ended.result)))
            }
            Work::CheckBeforeZeroes { report, start, blocks } => {
                report.take(&ended.data, &self.report).map_err(|_| Status::InternalError)?;
                // The namespace may have shrunk meanwhile.
                self.check_range(*start, *blocks)?;
                let zone = report.zones().first().ok_or(Status::InternalError)?;
                self.check_zeroes(zone, *start, *blocks)?;
                let (mut next, mut left) = (*start, blocks.0);
                let wire = self.zeroes_command(&mut next, &mut left).expect("there are blocks")?;
                *work = Work::WriteZeroes { next, left };
                Ok(Next::Send(wire))
            }
            Work::WriteZeroes { next, left } => match self.zeroes_command(next, left) {
                Some(wire) => Ok(Next::Send(wire?)),
                None => done(Outcome::None),
            },
            Work::Deallocate { ranges, next } => match self.deallocate_command(ranges, next) {
                Some(wire) => Ok(Next::Send(wire?)),
                None => done(Outcome::None),
            },
            Work::Report(rounds) => {
                if !rounds.take(&ended.data, &self.report).map_err(|_| Status::InternalError)? {
                    return Ok(Next::Send(rounds.command(&self.report)));
                }
                let rounds = std::mem::replace(work, Work::Plain);
                let Work::Report(rounds) = rounds else { unreachable!("the work was a report") };
                done(Outcome::Report(Box::new(rounds.finish())))
            }
            Work::ChangedZones => {
                let page = ChangedZonePage::parse(&ended.data).map_err(|_| Status::DataTransferError)?;
                let list: ChangedZoneList = page.list(&self.geometry).map_err(|_| Status::InternalError)?;
                done(Outcome::ChangedZones(Box::new(list)))
            }
        }
    }

    /// Encodes an operation that was checked.
    #[inline]
    fn encode(&self, operation: &Operation) -> Result<SubmissionEntry, Status> {
        encode(operation, self.id, &self.format).map(|encoded| encoded.entry).map_err(|_| Status::InvalidField)
    }

    #[inline]
    fn check_blocks(&self, start: Lba, blocks: Blocks, most: Blocks) -> Result<(), Status> {
        if blocks.0 == 0 || blocks > most {
            return Err(Status::InvalidField);
        }
        self.check_range(start, blocks)
    }

    #[inline]
    fn check_range(&self, start: Lba, blocks: Blocks) -> Result<(), Status> {
        let end = start.0.checked_add(blocks.0).ok_or(Status::LbaOutOfRange)?;
        if end > self.geometry.namespace_blocks().0 { Err(Status::LbaOutOfRange) } else { Ok(()) }
    }

    /// Encodes a payload.
    #[inline]
    fn host_data(&self, payload: &Payload, blocks: Blocks) -> Result<HostData, Status> {
        match payload {
            Payload::None => Ok(HostData::Zeros(blocks.0 as u32 * self.format.block_bytes())),
            Payload::Bytes(buffer)
                if payload.fits(blocks.0, self.geometry.block_size_bytes, self.geometry.metadata_bytes) =>
            {
                Ok(HostData::Bytes(interleave(buffer, &self.format)))
            }
            _ => Err(Status::InvalidField),
        }
    }
}

/// Get Log Page for a namespace.
pub(crate) fn get_log_page(namespace: u32, request: &GetLogPage) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(AdminOpcode::GetLogPage.code(), namespace);
    let [dword10, dword11, dword12, dword13, dword14] = request.encode();
    entry.cdw10 = dword10.into();
    entry.cdw11 = dword11.into();
    entry.cdw12 = dword12.into();
    entry.cdw13 = dword13.into();
    entry.cdw14 = dword14.into();
    entry
}

/// The status for the user. NVMe codes without an equivalent are mapped to the nearest.
fn device_status(status: StatusCode) -> Status {
    match status {
        StatusCode::TRANSIENT_TRANSPORT_ERROR => Status::DataTransferError,
        StatusCode::COMMAND_INTERRUPTED => Status::NamespaceNotReady,
        StatusCode::INVALID_OPCODE => Status::InvalidField,
        StatusCode::ABORTED_QUEUE_DELETED | StatusCode::ABORTED_BY_HOST => Status::AbortRequested,
        status => status.to_device_status(),
    }
}

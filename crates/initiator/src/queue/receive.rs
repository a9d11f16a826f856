//! Receives the PDUs of a controller, and checks them.

use bytes::Bytes;
use zonda_nvme::tcp::{
    CommonHeader, DataHeader, DigestCheck, Digests, FatalStatus, HOST_DATA_BYTES_MIN, InitializeResponse,
    PDU_FORMAT_VERSION, Pdu, PduError, PduType, R2t, Termination, flags,
};
use zonda_nvme::{CompletionEntry, StatusCode};

use super::commands::{Cid, Request, Transfer};
use super::{Ended, Phase, Queue, QueueEvent};

/// Why a connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The controller violated the transport protocol, and is sent an H2CTermReq.
    Pdu(PduError),
    /// The controller terminated the connection with a C2HTermReq.
    Terminated(Termination),
}

impl From<PduError> for Failure {
    fn from(error: PduError) -> Failure {
        Failure::Pdu(error)
    }
}

/// Byte offsets of fields in headers, for TermReqs.
mod offsets {
    pub(super) const FORMAT_VERSION: u32 = 8;
    pub(super) const DATA_ALIGNMENT: u32 = 10;
    pub(super) const DIGESTS: u32 = 11;
    pub(super) const HOST_DATA_BYTES_MAX: u32 = 12;
    pub(super) const COMMAND_ID: u32 = 8;
    pub(super) const RESPONSE_COMMAND_ID: u32 = 8 + 12;
    pub(super) const FLAGS: u32 = 1;
}

impl Queue {
    /// Processes bytes from the controller; appends the resulting events to `events`.
    ///
    /// # Errors
    /// [`Failure`]: the connection must be closed. Events before the fault are in `events`.
    pub(crate) fn receive(&mut self, chunk: Bytes, events: &mut Vec<QueueEvent>) -> Result<(), Failure> {
        if self.phase == Phase::Closed {
            return Ok(());
        }
        self.reader.push(chunk);
        while let Some(pdu) = self.reader.next()? {
            match pdu {
                Pdu::InitializeResponse(response) => {
                    self.negotiated(&response)?;
                    events.push(QueueEvent::Negotiated);
                }
                Pdu::Response(entry) => self.responded(&entry, events)?,
                Pdu::ControllerData { header, data, data_digest } => {
                    self.data_received(&header, data, data_digest, events)?;
                }
                Pdu::ReadyToTransfer(r2t) => self.r2t_received(&r2t, events)?,
                Pdu::ControllerTermination(termination) => return Err(Failure::Terminated(termination)),
                Pdu::InitializeRequest(_) | Pdu::Command { .. } | Pdu::HostData { .. } | Pdu::HostTermination(_) => {
                    unreachable!("the reader of a host refuses PDUs for controllers")
                }
            }
        }
        Ok(())
    }

    fn negotiated(&mut self, response: &InitializeResponse) -> Result<(), PduError> {
        let refuse = |status, offset| Err(PduError::new(status, offset, &start_of(&response.common)));
        let digests = Digests::from_code(response.digests);
        let requested = self.options.digests;
        if response.format_version.get() != PDU_FORMAT_VERSION {
            return refuse(FatalStatus::UnsupportedParameter, offsets::FORMAT_VERSION);
        }
        if response.data_alignment > zonda_nvme::tcp::DATA_ALIGNMENT_MAX {
            return refuse(FatalStatus::InvalidHeaderField, offsets::DATA_ALIGNMENT);
        }
        if digests != digests.and(requested) {
            return refuse(FatalStatus::InvalidHeaderField, offsets::DIGESTS);
        }
        let host_data_bytes_max = response.host_data_bytes_max.get();
        if host_data_bytes_max < HOST_DATA_BYTES_MIN {
            return refuse(FatalStatus::InvalidHeaderField, offsets::HOST_DATA_BYTES_MAX);
        }
        self.host_data_bytes_max = host_data_bytes_max & !3;
        self.reader.set_digests(digests);
        self.writer.set_options(digests, response.data_alignment);
        self.phase = Phase::Open;
        Ok(())
    }

    #[inline]
    fn responded(&mut self, entry: &CompletionEntry, events: &mut Vec<QueueEvent>) -> Result<(), PduError> {
        let id = Cid(entry.command_id.get());
        let invalid = |offset| Err(PduError::new(FatalStatus::InvalidHeaderField, offset, &response_header(entry)));
        let Some(slot) = self.commands.find(id) else { return invalid(offsets::RESPONSE_COMMAND_ID) };
        let status = entry.status_code();
        if let Transfer::Send { data, sent, .. } = &slot.transfer
            && *sent < data.len()
        {
            if status.is_success() {
                // A write that succeeds without its data would be silently lost.
                return Err(PduError::new(FatalStatus::SequenceError, 0, &response_header(entry)));
            }
            self.forget_unsent(id);
        }
        self.end(id, status, entry.do_not_retry(), entry.result.get(), events);
        self.send_in_order(events);
        Ok(())
    }

    #[inline]
    fn data_received(
        &mut self,
        header: &DataHeader,
        data: Bytes,
        data_digest: DigestCheck,
        events: &mut Vec<QueueEvent>,
    ) -> Result<(), PduError> {
        let id = Cid(header.command_id.get());
        let refuse = |status, offset| Err(PduError::new(status, offset, &data_header(header)));
        let Some(slot) = self.commands.find(id) else {
            return refuse(FatalStatus::InvalidHeaderField, offsets::COMMAND_ID);
        };
        let Transfer::Receive(received) = &mut slot.transfer else {
            return refuse(FatalStatus::DataOutOfRange, 0);
        };
        if header.offset.get() != received.received || header.length.get() > received.expected - received.received {
            return refuse(FatalStatus::DataOutOfRange, 0);
        }
        received.damaged |= data_digest == DigestCheck::Bad;
        received.add(data);
        if header.common.flags & flags::SUCCESS != 0 {
            if header.common.flags & flags::LAST == 0 {
                return refuse(FatalStatus::InvalidHeaderField, offsets::FLAGS);
            }
            self.end(id, StatusCode::SUCCESS, false, 0, events);
        }
        Ok(())
    }

    /// R2T: sends data now, or after the data of earlier writes.
    fn r2t_received(&mut self, r2t: &R2t, events: &mut Vec<QueueEvent>) -> Result<(), PduError> {
        let id = Cid(r2t.command_id.get());
        let refuse = |status, offset| Err(PduError::new(status, offset, &r2t_header(r2t)));
        let Some(slot) = self.commands.find(id) else {
            return refuse(FatalStatus::InvalidHeaderField, offsets::COMMAND_ID);
        };
        let Transfer::Send { data, sent, request } = &mut slot.transfer else {
            return refuse(FatalStatus::DataOutOfRange, 0);
        };
        if request.is_some() {
            return refuse(FatalStatus::DataLimitExceeded, 0);
        }
        let length = r2t.length.get();
        if length == 0 || r2t.offset.get() != *sent || length > data.len() - *sent {
            return refuse(FatalStatus::DataOutOfRange, 0);
        }
        *request = Some(Request { tag: r2t.tag.get(), length });
        if self.options.in_order {
            self.send_in_order(events);
        } else {
            self.send_request(id, events);
        }
        Ok(())
    }

    #[inline]
    fn end(&mut self, id: Cid, status: StatusCode, do_not_retry: bool, result: u64, events: &mut Vec<QueueEvent>) {
        let (owner, transfer) = self.commands.remove(id);
        let (data, is_damaged) = match transfer {
            Transfer::Receive(received) => {
                let damaged = received.damaged;
                (received.into_bytes(), damaged)
            }
            _ => (Bytes::new(), false),
        };
        events.push(QueueEvent::Ended(Ended { owner, status, do_not_retry, result, data, is_damaged }));
    }
}

/// The eight bytes of a common header.
fn start_of(common: &CommonHeader) -> [u8; 8] {
    let length = common.pdu_length.get().to_le_bytes();
    let [a, b, c, d] = length;
    [common.pdu_type, common.flags, common.header_length, common.data_offset, a, b, c, d]
}

/// The header of a C2HData, for a TermReq.
fn data_header(header: &DataHeader) -> [u8; 24] {
    let (id, tag) = (header.command_id.get(), header.tag.get());
    with_three(&header.common, id, tag, [header.offset.get(), header.length.get()])
}

/// The header of an R2T, for a TermReq.
fn r2t_header(header: &R2t) -> [u8; 24] {
    let (id, tag) = (header.command_id.get(), header.tag.get());
    with_three(&header.common, id, tag, [header.offset.get(), header.length.get()])
}

fn with_three(common: &CommonHeader, id: u16, tag: u16, [offset, length]: [u32; 2]) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&start_of(common));
    bytes[8..10].copy_from_slice(&id.to_le_bytes());
    bytes[10..12].copy_from_slice(&tag.to_le_bytes());
    bytes[12..16].copy_from_slice(&offset.to_le_bytes());
    bytes[16..20].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// The header of a CapsuleResp, for a TermReq. Its flags are not stored, and are reported as zero.
fn response_header(entry: &CompletionEntry) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[0] = PduType::Response as u8;
    bytes[2] = 24;
    bytes[4] = 24;
    bytes[8..16].copy_from_slice(&entry.result.get().to_le_bytes());
    bytes[16..18].copy_from_slice(&entry.sq_head.get().to_le_bytes());
    bytes[18..20].copy_from_slice(&entry.sq_id.get().to_le_bytes());
    bytes[20..22].copy_from_slice(&entry.command_id.get().to_le_bytes());
    bytes[22..24].copy_from_slice(&entry.status.get().to_le_bytes());
    bytes
}

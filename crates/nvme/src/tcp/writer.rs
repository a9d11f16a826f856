//! Makes PDUs.

use bytes::Bytes;
use zerocopy::{Immutable, IntoBytes};

use super::digest::{DIGEST_BYTES, crc32c, crc32c_of_pieces};
use super::header::{
    CommandHeader, CommonHeader, DataHeader, InitializeRequest, InitializeResponse, PduType, R2t, ResponseHeader,
    TerminationHeader, flags,
};
use super::{DATA_ALIGNMENT_MAX, Digests, Output, PduError};
use crate::{CompletionEntry, SubmissionEntry};

/// Appends PDUs to an [`Output`].
#[derive(Debug, Default)]
pub struct PduWriter {
    output: Output,
    digests: Digests,
    /// HPDA or CPDA of the other side.
    data_alignment: u8,
}

impl PduWriter {
    /// A writer without digests, for the exchange at the start.
    #[must_use]
    pub fn new() -> PduWriter {
        PduWriter::default()
    }

    /// Sets the negotiated digests, and the peer's data alignment (in dwords, minus one).
    ///
    /// # Panics
    /// When the alignment is more than [`DATA_ALIGNMENT_MAX`]: the exchange refuses that.
    pub fn set_options(&mut self, digests: Digests, data_alignment: u8) {
        assert!(data_alignment <= DATA_ALIGNMENT_MAX, "an alignment of more than 128 bytes is refused before");
        self.digests = digests;
        self.data_alignment = data_alignment;
    }

    /// ICReq.
    pub fn initialize_request(&mut self, request: &InitializeRequest) {
        self.output.copy(request.as_bytes());
    }

    /// ICResp.
    pub fn initialize_response(&mut self, response: &InitializeResponse) {
        self.output.copy(response.as_bytes());
    }

    /// CapsuleCmd, with data in the capsule unless `data` is empty.
    pub fn command(&mut self, entry: &SubmissionEntry, data: &Bytes) {
        let common = self.common(PduType::Command, 0, data.len());
        let header = CommandHeader { common, entry: *entry };
        self.header(&header, &common);
        self.payload(&common, std::slice::from_ref(data));
    }

    /// CapsuleResp.
    #[inline]
    pub fn response(&mut self, entry: &CompletionEntry) {
        let common = self.common(PduType::Response, 0, 0);
        self.header(&ResponseHeader { common, entry: *entry }, &common);
    }

    /// H2CData: the data at `offset` of a command's data.
    ///
    /// # Panics
    /// If there is no data.
    pub fn host_data(&mut self, command_id: u16, tag: u16, offset: u32, data: &[Bytes], last: bool) {
        let flags = if last { flags::LAST } else { 0 };
        self.data(PduType::HostData, flags, command_id, tag, offset, data);
    }

    /// C2HData: the data at `offset` of a command's data; with `success` no response follows.
    ///
    /// # Panics
    /// If there is no data, or if `success` is set on data that is not the last.
    pub fn controller_data(&mut self, command_id: u16, offset: u32, data: &[Bytes], last: bool, success: bool) {
        assert!(last || !success, "only the last data can replace the response");
        let flags = if last { flags::LAST } else { 0 } | if success { flags::SUCCESS } else { 0 };
        self.data(PduType::ControllerData, flags, command_id, 0, offset, data);
    }

    /// R2T: solicits `length` bytes at `offset` of a command's data.
    pub fn ready_to_transfer(&mut self, command_id: u16, tag: u16, offset: u32, length: u32) {
        let common = self.common(PduType::ReadyToTransfer, 0, 0);
        let header = R2t {
            common,
            command_id: command_id.into(),
            tag: tag.into(),
            offset: offset.into(),
            length: length.into(),
            reserved: 0.into(),
        };
        self.header(&header, &common);
    }

    /// H2CTermReq.
    pub fn host_termination(&mut self, error: &PduError) {
        self.termination(PduType::HostTermination, error);
    }

    /// C2HTermReq.
    pub fn controller_termination(&mut self, error: &PduError) {
        self.termination(PduType::ControllerTermination, error);
    }

    /// Bytes that wait.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.output.queued_bytes()
    }

    /// Takes all output, in order.
    pub fn take(&mut self) -> Vec<Bytes> {
        self.output.take()
    }

    fn data(&mut self, pdu_type: PduType, flags: u8, command_id: u16, tag: u16, offset: u32, data: &[Bytes]) {
        let length: usize = data.iter().map(Bytes::len).sum();
        assert!(length > 0, "a data PDU carries data");
        let common = self.common(pdu_type, flags, length);
        let header = DataHeader {
            common,
            command_id: command_id.into(),
            tag: tag.into(),
            offset: offset.into(),
            length: (length as u32).into(),
            reserved: 0.into(),
        };
        self.header(&header, &common);
        self.payload(&common, data);
    }

    fn termination(&mut self, pdu_type: PduType, error: &PduError) {
        let length = usize::from(pdu_type.header_length()) + error.header.len();
        let header = TerminationHeader {
            common: CommonHeader {
                pdu_type: pdu_type as u8,
                flags: 0,
                header_length: pdu_type.header_length(),
                data_offset: 0,
                pdu_length: (length as u32).into(),
            },
            status: error.status.code().into(),
            information: error.information.into(),
            reserved: [0; 10],
        };
        self.output.copy(header.as_bytes());
        self.output.copy(&error.header);
    }

    /// The common header of a PDU with `data_bytes` of data.
    #[inline]
    fn common(&self, pdu_type: PduType, mut flags: u8, data_bytes: usize) -> CommonHeader {
        let header_length = pdu_type.header_length();
        let mut end = usize::from(header_length);
        if self.digests.header {
            flags |= flags::HEADER_DIGEST;
            end += DIGEST_BYTES;
        }
        let mut data_offset = 0;
        if data_bytes > 0 {
            end = end.next_multiple_of((usize::from(self.data_alignment) + 1) * 4);
            data_offset = end as u8;
            end += data_bytes;
            if self.digests.data {
                flags |= flags::DATA_DIGEST;
                end += DIGEST_BYTES;
            }
        }
        let pdu_length = u32::try_from(end).expect("a command's data is below 4 GiB");
        CommonHeader { pdu_type: pdu_type as u8, flags, header_length, data_offset, pdu_length: pdu_length.into() }
    }

    /// Appends a header, its digest, and the padding up to the data.
    #[inline]
    fn header<H: IntoBytes + Immutable>(&mut self, header: &H, common: &CommonHeader) {
        let bytes = header.as_bytes();
        self.output.copy(bytes);
        let mut end = bytes.len();
        if self.digests.header {
            self.output.copy(&crc32c(bytes).to_le_bytes());
            end += DIGEST_BYTES;
        }
        if usize::from(common.data_offset) > end {
            self.output.pad(usize::from(common.data_offset) - end);
        }
    }

    /// Appends data and its digest.
    fn payload(&mut self, common: &CommonHeader, data: &[Bytes]) {
        if common.data_offset == 0 {
            return;
        }
        for piece in data {
            self.output.data(piece);
        }
        if common.flags & flags::DATA_DIGEST != 0 {
            let digest = match data {
                [one] => crc32c(one),
                several => crc32c_of_pieces(several.iter().map(|piece| &piece[..])),
            };
            self.output.copy(&digest.to_le_bytes());
        }
    }
}

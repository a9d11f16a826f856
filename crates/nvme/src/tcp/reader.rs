//! Cuts a byte stream into PDUs.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use zerocopy::{FromBytes, IntoBytes};

use super::digest::{DIGEST_BYTES, crc32c};
use super::header::{
    CommandHeader, CommonHeader, DataHeader, InitializeRequest, InitializeResponse, PduType, R2t, ResponseHeader,
    TerminationHeader, flags,
};
use super::{ADMIN_CAPSULE_DATA_BYTES, DigestCheck, Digests, FatalStatus, PduError, TERMINATION_DATA_BYTES_MAX};
use crate::{CompletionEntry, SubmissionEntry};

/// Bytes before the data of any PDU: its offset is one byte.
const HEAD_BYTES_MAX: usize = 256;

/// Bytes of the common header.
const COMMON_BYTES: usize = size_of::<CommonHeader>();

/// The receiver of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A controller reads what a host sends: ICReq, CapsuleCmd, H2CData, H2CTermReq.
    Controller,
    /// A host reads what a controller sends: ICResp, CapsuleResp, C2HData, R2T, C2HTermReq.
    Host,
}

/// The longest data that is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderLimits {
    /// Bytes of data in a command capsule.
    pub capsule_data_bytes: u32,
    /// Bytes of data in one H2CData or C2HData.
    pub data_bytes: u32,
}

impl Default for ReaderLimits {
    /// 8 KiB in a capsule, 1 MiB in a data PDU.
    fn default() -> ReaderLimits {
        ReaderLimits { capsule_data_bytes: ADMIN_CAPSULE_DATA_BYTES, data_bytes: 1 << 20 }
    }
}

/// A TermReq as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Termination {
    /// FES: see [`FatalStatus::from_code`].
    pub status: u16,
    /// FEI.
    pub information: u32,
    /// The copy of the faulty header.
    pub header: Bytes,
}

/// One PDU. Data is contiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pdu {
    /// ICReq.
    InitializeRequest(Box<InitializeRequest>),
    /// ICResp.
    InitializeResponse(Box<InitializeResponse>),
    /// CapsuleCmd.
    Command {
        /// The command.
        entry: SubmissionEntry,
        /// Data in the capsule; empty without.
        data: Bytes,
        /// The result of checking the data digest.
        data_digest: DigestCheck,
    },
    /// CapsuleResp.
    Response(CompletionEntry),
    /// H2CData.
    HostData {
        /// Its header; the length has been checked against the data.
        header: DataHeader,
        /// The data.
        data: Bytes,
        /// The result of checking the data digest.
        data_digest: DigestCheck,
    },
    /// C2HData.
    ControllerData {
        /// Its header; the length has been checked against the data.
        header: DataHeader,
        /// The data.
        data: Bytes,
        /// The result of checking the data digest.
        data_digest: DigestCheck,
    },
    /// R2T.
    ReadyToTransfer(R2t),
    /// H2CTermReq.
    HostTermination(Termination),
    /// C2HTermReq.
    ControllerTermination(Termination),
}

/// The checked layout of a PDU, from its common header.
#[derive(Clone, Copy, Debug)]
struct Plan {
    pdu_type: PduType,
    flags: u8,
    /// Header, digest and padding: the bytes before the data.
    head_bytes: usize,
    data_bytes: usize,
    /// 0 or 4.
    tail_bytes: usize,
}

/// Splits a byte stream into PDUs.
///
/// Every length is checked against the type, the digests and the limits as soon as the common
/// header is complete, before any data is buffered. Data within one chunk is a slice of it; else it
/// is assembled in a new buffer. Beyond the unprocessed chunks, at most one PDU is buffered.
///
/// ```
/// use bytes::Bytes;
/// use zonda_nvme::tcp::{Digests, InitializeRequest, Pdu, PduReader, PduWriter, ReaderLimits, Side};
///
/// let mut writer = PduWriter::new();
/// writer.initialize_request(&InitializeRequest::new(0, Digests::NONE, 1));
/// let stream: Vec<u8> = writer.take().concat();
/// let mut reader = PduReader::new(Side::Controller, ReaderLimits::default());
/// reader.push(Bytes::copy_from_slice(&stream[..100]));
/// assert_eq!(reader.next(), Ok(None));
/// reader.push(Bytes::copy_from_slice(&stream[100..]));
/// assert!(matches!(reader.next(), Ok(Some(Pdu::InitializeRequest(_)))));
/// ```
#[derive(Debug)]
pub struct PduReader {
    side: Side,
    limits: ReaderLimits,
    digests: Digests,
    /// The exchange of ICReq and ICResp is complete.
    initialized: bool,
    /// Unprocessed chunks.
    pending: VecDeque<Bytes>,
    pending_bytes: usize,
    /// The start of a PDU whose head straddles chunks, or whose data does.
    head: [u8; HEAD_BYTES_MAX],
    head_filled: usize,
    /// The layout of the PDU whose head is complete.
    plan: Option<Plan>,
    /// Its data and data digest received so far, if they straddle chunks.
    assembly: BytesMut,
    failed: Option<PduError>,
}

impl PduReader {
    /// A reader at the start of a stream: only the exchange of ICReq and ICResp is accepted.
    #[must_use]
    pub fn new(side: Side, limits: ReaderLimits) -> PduReader {
        PduReader {
            side,
            limits,
            digests: Digests::NONE,
            initialized: false,
            pending: VecDeque::new(),
            pending_bytes: 0,
            head: [0; HEAD_BYTES_MAX],
            head_filled: 0,
            plan: None,
            assembly: BytesMut::new(),
            failed: None,
        }
    }

    /// Completes the exchange of ICReq and ICResp with the negotiated digests. From now on all
    /// other PDUs are accepted.
    pub fn set_digests(&mut self, digests: Digests) {
        self.digests = digests;
        self.initialized = true;
    }

    /// Changes the limits, for PDUs whose head is not complete yet.
    pub fn set_limits(&mut self, limits: ReaderLimits) {
        self.limits = limits;
    }

    /// Appends received bytes.
    pub fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.pending_bytes += chunk.len();
            self.pending.push_back(chunk);
        }
    }

    /// Buffered bytes: a part of a PDU, and unprocessed chunks.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.head_filled + self.assembly.len() + self.pending_bytes
    }

    /// The next PDU, or `None` until more bytes are received.
    ///
    /// # Errors
    /// A stream that breaks the transport's rules. The error is final, and is returned again from
    /// then on.
    #[allow(clippy::should_implement_trait)] // A reader is no iterator: `None` is not its end.
    pub fn next(&mut self) -> Result<Option<Pdu>, PduError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.advance();
        if let Err(error) = &result {
            self.failed = Some(error.clone());
            self.pending.clear();
            self.pending_bytes = 0;
            self.head_filled = 0;
            self.assembly = BytesMut::new();
        }
        result
    }

    fn advance(&mut self) -> Result<Option<Pdu>, PduError> {
        if self.plan.is_none() {
            if self.head_filled == 0
                && let Some(pdu) = self.whole_in_front()?
            {
                return Ok(Some(pdu));
            }
            if !self.fill_head(COMMON_BYTES) {
                return Ok(None);
            }
            let plan = self.plan_of(&self.head[..self.head_filled])?;
            if !self.fill_head(plan.head_bytes) {
                return Ok(None);
            }
            self.check_head(&plan, &self.head[..plan.head_bytes])?;
            self.plan = Some(plan);
        }
        let plan = self.plan.expect("the head is complete");
        let Some(data) = self.collect(plan.data_bytes + plan.tail_bytes) else { return Ok(None) };
        self.plan = None;
        self.head_filled = 0;
        Ok(Some(assemble(&plan, &self.head[..plan.head_bytes], data)))
    }

    /// The usual case: the whole PDU lies in the first chunk.
    fn whole_in_front(&mut self) -> Result<Option<Pdu>, PduError> {
        let Some(front) = self.pending.front_mut() else { return Ok(None) };
        if front.len() < COMMON_BYTES {
            return Ok(None);
        }
        // Separate borrows: planning needs the other fields of the reader.
        let mut chunk = std::mem::take(front);
        let result = self.plan_of(&chunk).and_then(|plan| {
            let total = plan.head_bytes + plan.data_bytes + plan.tail_bytes;
            if chunk.len() < total {
                return Ok(None);
            }
            self.check_head(&plan, &chunk[..plan.head_bytes])?;
            let data = if plan.data_bytes > 0 { chunk.slice(plan.head_bytes..total) } else { Bytes::new() };
            Ok(Some((total, assemble(&plan, &chunk[..plan.head_bytes], data))))
        });
        let used = if let Ok(Some((total, _))) = &result { *total } else { 0 };
        self.pending_bytes -= used;
        if used == chunk.len() {
            self.pending.pop_front();
        } else {
            bytes::Buf::advance(&mut chunk, used);
            *self.pending.front_mut().expect("the chunk is the first one") = chunk;
        }
        Ok(result?.map(|(_, pdu)| pdu))
    }

    /// Copies bytes into the head until it has `bytes`; returns whether it has.
    fn fill_head(&mut self, bytes: usize) -> bool {
        while self.head_filled < bytes {
            let Some(front) = self.pending.front_mut() else { return false };
            let part = front.split_to(front.len().min(bytes - self.head_filled));
            self.head[self.head_filled..self.head_filled + part.len()].copy_from_slice(&part);
            self.head_filled += part.len();
            self.pending_bytes -= part.len();
            if front.is_empty() {
                self.pending.pop_front();
            }
        }
        true
    }

    /// The next `bytes` bytes in one piece, once all are received.
    fn collect(&mut self, bytes: usize) -> Option<Bytes> {
        if bytes == 0 {
            return Some(Bytes::new());
        }
        if self.assembly.is_empty() {
            let front = self.pending.front_mut()?;
            if front.len() >= bytes {
                let data = front.split_to(bytes);
                self.pending_bytes -= bytes;
                if front.is_empty() {
                    self.pending.pop_front();
                }
                return Some(data);
            }
            self.assembly.reserve(bytes);
        }
        while self.assembly.len() < bytes {
            let front = self.pending.front_mut()?;
            let part = front.split_to(front.len().min(bytes - self.assembly.len()));
            self.assembly.extend_from_slice(&part);
            self.pending_bytes -= part.len();
            if front.is_empty() {
                self.pending.pop_front();
            }
        }
        Some(std::mem::take(&mut self.assembly).freeze())
    }

    /// Checks the common header at the start of `seen` against everything that is known before the
    /// rest is received.
    fn plan_of(&self, seen: &[u8]) -> Result<Plan, PduError> {
        const FLAGS: u32 = 1;
        const HEADER_LENGTH: u32 = 2;
        const DATA_OFFSET: u32 = 3;
        const PDU_LENGTH: u32 = 4;
        let common = CommonHeader::read_from_bytes(&seen[..COMMON_BYTES]).expect("the slice has the header's size");
        let refuse = |status, information| {
            // A copy of the header, not of what follows it.
            let kept = seen.len().min(usize::from(common.header_length).max(COMMON_BYTES));
            Err(PduError::new(status, information, &seen[..kept]))
        };
        let invalid = |offset| refuse(FatalStatus::InvalidHeaderField, offset);
        let Some(pdu_type) = PduType::from_code(common.pdu_type).filter(|&pdu_type| self.is_for_this_side(pdu_type))
        else {
            return invalid(0);
        };
        if pdu_type.has_digests() != self.initialized && !is_termination(pdu_type) {
            return refuse(FatalStatus::SequenceError, 0);
        }
        if common.header_length != pdu_type.header_length() {
            return invalid(HEADER_LENGTH);
        }
        let header_bytes = usize::from(common.header_length);
        let pdu_bytes = common.pdu_length.get() as usize;
        if is_termination(pdu_type) {
            let Some(data_bytes) =
                pdu_bytes.checked_sub(header_bytes).filter(|&bytes| bytes <= TERMINATION_DATA_BYTES_MAX)
            else {
                return invalid(PDU_LENGTH);
            };
            return Ok(Plan { pdu_type, flags: 0, head_bytes: header_bytes, data_bytes, tail_bytes: 0 });
        }
        let header_digest = pdu_type.has_digests() && self.digests.header;
        if pdu_type.has_digests() && (common.flags & flags::HEADER_DIGEST != 0) != header_digest {
            return invalid(FLAGS);
        }
        let before_data = header_bytes + if header_digest { DIGEST_BYTES } else { 0 };
        let (data_required, data_bytes_max) = match pdu_type {
            PduType::Command => (false, self.limits.capsule_data_bytes),
            PduType::HostData | PduType::ControllerData => (true, self.limits.data_bytes),
            _ => (false, 0),
        };
        if pdu_bytes == before_data && !data_required {
            return Ok(Plan { pdu_type, flags: common.flags, head_bytes: before_data, data_bytes: 0, tail_bytes: 0 });
        }
        if data_bytes_max == 0 || pdu_bytes <= before_data {
            return invalid(PDU_LENGTH);
        }
        if (common.flags & flags::DATA_DIGEST != 0) != self.digests.data {
            return invalid(FLAGS);
        }
        let head_bytes = usize::from(common.data_offset);
        if head_bytes < before_data || !head_bytes.is_multiple_of(4) {
            return invalid(DATA_OFFSET);
        }
        let tail_bytes = if self.digests.data { DIGEST_BYTES } else { 0 };
        let Some(data_bytes) = pdu_bytes.checked_sub(head_bytes + tail_bytes).filter(|&bytes| bytes > 0) else {
            return invalid(PDU_LENGTH);
        };
        if data_bytes > data_bytes_max as usize {
            return match pdu_type {
                PduType::Command => invalid(PDU_LENGTH),
                _ => refuse(FatalStatus::DataLimitExceeded, 0),
            };
        }
        Ok(Plan { pdu_type, flags: common.flags, head_bytes, data_bytes, tail_bytes })
    }

    /// Checks that need the whole head: the header digest, and the length of a data PDU.
    fn check_head(&self, plan: &Plan, head: &[u8]) -> Result<(), PduError> {
        const DATA_LENGTH: u32 = 16;
        let header_bytes = usize::from(plan.pdu_type.header_length());
        let header = &head[..header_bytes];
        if plan.flags & flags::HEADER_DIGEST != 0 && self.digests.header && plan.pdu_type.has_digests() {
            let received = digest_at(&head[header_bytes..header_bytes + DIGEST_BYTES]);
            if received != crc32c(header) {
                return Err(PduError::new(FatalStatus::HeaderDigestError, received, header));
            }
        }
        if matches!(plan.pdu_type, PduType::HostData | PduType::ControllerData) {
            let data = DataHeader::read_from_bytes(header).expect("the slice has the header's size");
            if data.length.get() as usize != plan.data_bytes {
                return Err(PduError::new(FatalStatus::InvalidHeaderField, DATA_LENGTH, header));
            }
        }
        Ok(())
    }

    fn is_for_this_side(&self, pdu_type: PduType) -> bool {
        let for_controller = matches!(
            pdu_type,
            PduType::InitializeRequest | PduType::Command | PduType::HostData | PduType::HostTermination
        );
        for_controller == (self.side == Side::Controller)
    }
}

fn is_termination(pdu_type: PduType) -> bool {
    matches!(pdu_type, PduType::HostTermination | PduType::ControllerTermination)
}

fn digest_at(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("a digest has four bytes"))
}

/// Makes the PDU from a checked head, and its data with the data digest.
fn assemble(plan: &Plan, head: &[u8], mut data: Bytes) -> Pdu {
    const SIZED: &str = "a header's length was checked against its type";
    let header = &head[..usize::from(plan.pdu_type.header_length())];
    let data_digest = if plan.tail_bytes == 0 {
        DigestCheck::Absent
    } else {
        let received = digest_at(&data[plan.data_bytes..]);
        data.truncate(plan.data_bytes);
        if received == crc32c(&data) { DigestCheck::Good } else { DigestCheck::Bad }
    };
    match plan.pdu_type {
        PduType::InitializeRequest => {
            Pdu::InitializeRequest(Box::new(InitializeRequest::read_from_bytes(header).expect(SIZED)))
        }
        PduType::InitializeResponse => {
            Pdu::InitializeResponse(Box::new(InitializeResponse::read_from_bytes(header).expect(SIZED)))
        }
        PduType::Command => {
            let entry = CommandHeader::read_from_bytes(header).expect(SIZED).entry;
            Pdu::Command { entry, data, data_digest }
        }
        PduType::Response => Pdu::Response(ResponseHeader::read_from_bytes(header).expect(SIZED).entry),
        PduType::HostData => {
            Pdu::HostData { header: DataHeader::read_from_bytes(header).expect(SIZED), data, data_digest }
        }
        PduType::ControllerData => {
            Pdu::ControllerData { header: DataHeader::read_from_bytes(header).expect(SIZED), data, data_digest }
        }
        PduType::ReadyToTransfer => Pdu::ReadyToTransfer(R2t::read_from_bytes(header).expect(SIZED)),
        PduType::HostTermination | PduType::ControllerTermination => {
            let header = TerminationHeader::read_from_bytes(header).expect(SIZED);
            let termination = Termination {
                status: header.status.get(),
                information: header.information.get(),
                header: Bytes::copy_from_slice(data.as_bytes()),
            };
            match plan.pdu_type {
                PduType::HostTermination => Pdu::HostTermination(termination),
                _ => Pdu::ControllerTermination(termination),
            }
        }
    }
}

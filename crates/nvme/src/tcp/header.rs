//! Headers of the PDUs (NVMe/TCP 1.0, section 3.6).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Digests;
use crate::{CompletionEntry, SubmissionEntry};

/// Bits of the common header's flags.
pub mod flags {
    /// HDGSTF: a header digest follows the header.
    pub const HEADER_DIGEST: u8 = 0x01;
    /// DDGSTF: a data digest follows the data.
    pub const DATA_DIGEST: u8 = 0x02;
    /// LAST_PDU: the last data PDU of an R2T (from the host) or of a command (to the host).
    pub const LAST: u8 = 0x04;
    /// SUCCESS: no response capsule follows this C2HData; the command succeeded.
    pub const SUCCESS: u8 = 0x08;
}

/// PDU types (NVMe/TCP 1.0, Figure 22).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PduType {
    /// ICReq.
    InitializeRequest = 0x00,
    /// ICResp.
    InitializeResponse = 0x01,
    /// H2CTermReq.
    HostTermination = 0x02,
    /// C2HTermReq.
    ControllerTermination = 0x03,
    /// CapsuleCmd.
    Command = 0x04,
    /// CapsuleResp.
    Response = 0x05,
    /// H2CData.
    HostData = 0x06,
    /// C2HData.
    ControllerData = 0x07,
    /// R2T.
    ReadyToTransfer = 0x09,
}

/// The first eight bytes of every PDU (NVMe/TCP 1.0, Figure 21).
///
/// ```text
/// 0 type   1 flags   2 header length   3 data offset   4..8 length of the whole PDU
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommonHeader {
    /// PDU-Type.
    pub pdu_type: u8,
    /// FLAGS: see [`flags`].
    pub flags: u8,
    /// HLEN: without digest.
    pub header_length: u8,
    /// PDO: from the PDU's start to its data; zero without data.
    pub data_offset: u8,
    /// PLEN: header, digests, padding and data.
    pub pdu_length: U32,
}

const _: () = assert!(size_of::<CommonHeader>() == 8);

/// ICReq (NVMe/TCP 1.0, Figure 26).
///
/// ```text
/// 0..8 common header   8..10 format version   10 HPDA   11 digests   12..16 most R2Ts, zero-based   16..128 reserved
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct InitializeRequest {
    /// Type 00h, 128 bytes.
    pub common: CommonHeader,
    /// PFV.
    pub format_version: U16,
    /// HPDA: alignment of the data the host receives, in dwords, minus one.
    pub data_alignment: u8,
    /// DGST: digests that the host requests.
    pub digests: u8,
    /// MAXR2T: outstanding R2Ts of a command, minus one.
    pub r2t_max: U32,
    /// Zeros.
    pub reserved: [u8; 112],
}

const _: () = assert!(size_of::<InitializeRequest>() == 128);

/// ICResp (NVMe/TCP 1.0, Figure 27).
///
/// ```text
/// 0..8 common header   8..10 format version   10 CPDA   11 digests   12..16 most data in an H2CData   16..128 reserved
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct InitializeResponse {
    /// Type 01h, 128 bytes.
    pub common: CommonHeader,
    /// PFV.
    pub format_version: U16,
    /// CPDA: alignment of the data the controller receives, in dwords, minus one.
    pub data_alignment: u8,
    /// DGST: digests that are in use from now on.
    pub digests: u8,
    /// MAXH2CDATA: bytes, a multiple of 4, at least 4096.
    pub host_data_bytes_max: U32,
    /// Zeros.
    pub reserved: [u8; 112],
}

const _: () = assert!(size_of::<InitializeResponse>() == 128);

/// H2CTermReq and C2HTermReq (NVMe/TCP 1.0, Figures 29 and 31). The faulty PDU's header follows as
/// data.
///
/// ```text
/// 0..8 common header   8..10 fatal error status   10..14 fatal error information   14..24 reserved
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TerminationHeader {
    /// Type 02h or 03h; the header has 24 bytes, the PDU at most 152.
    pub common: CommonHeader,
    /// FES.
    pub status: U16,
    /// FEI.
    pub information: U32,
    /// Zeros.
    pub reserved: [u8; 10],
}

const _: () = assert!(size_of::<TerminationHeader>() == 24);

/// CapsuleCmd (NVMe/TCP 1.0, Figure 33).
///
/// ```text
/// 0..8 common header   8..72 submission queue entry   [header digest]   [padding, data]   [data digest]
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommandHeader {
    /// Type 04h.
    pub common: CommonHeader,
    /// The command.
    pub entry: SubmissionEntry,
}

const _: () = assert!(size_of::<CommandHeader>() == 72);

/// CapsuleResp (NVMe/TCP 1.0, Figure 34).
///
/// ```text
/// 0..8 common header   8..24 completion queue entry   [header digest]
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ResponseHeader {
    /// Type 05h.
    pub common: CommonHeader,
    /// How the command ended.
    pub entry: CompletionEntry,
}

const _: () = assert!(size_of::<ResponseHeader>() == 24);

/// H2CData and C2HData (NVMe/TCP 1.0, Figures 35 and 36).
///
/// ```text
///  0..8 common header   8..10 command identifier   10..12 transfer tag (host to controller)
/// 12..16 offset of the data in the command's data   16..20 length   20..24 reserved
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DataHeader {
    /// Type 06h or 07h.
    pub common: CommonHeader,
    /// CCCID.
    pub command_id: U16,
    /// TTAG of the R2T that is answered; reserved in C2HData.
    pub tag: U16,
    /// DATAO.
    pub offset: U32,
    /// DATAL.
    pub length: U32,
    /// Zeros.
    pub reserved: U32,
}

const _: () = assert!(size_of::<DataHeader>() == 24);

/// R2T (NVMe/TCP 1.0, Figure 37).
///
/// ```text
///  0..8 common header   8..10 command identifier   10..12 transfer tag
/// 12..16 offset of the solicited data in the command's data   16..20 length   20..24 reserved
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct R2t {
    /// Type 09h.
    pub common: CommonHeader,
    /// CCCID.
    pub command_id: U16,
    /// TTAG: returned in the H2CData PDUs.
    pub tag: U16,
    /// R2TO.
    pub offset: U32,
    /// R2TL.
    pub length: U32,
    /// Zeros.
    pub reserved: U32,
}

const _: () = assert!(size_of::<R2t>() == 24);

impl PduType {
    /// Every type, in the order of the codes.
    pub const ALL: [PduType; 9] = [
        PduType::InitializeRequest,
        PduType::InitializeResponse,
        PduType::HostTermination,
        PduType::ControllerTermination,
        PduType::Command,
        PduType::Response,
        PduType::HostData,
        PduType::ControllerData,
        PduType::ReadyToTransfer,
    ];

    /// The type with a code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<PduType> {
        Some(match code {
            0x00 => PduType::InitializeRequest,
            0x01 => PduType::InitializeResponse,
            0x02 => PduType::HostTermination,
            0x03 => PduType::ControllerTermination,
            0x04 => PduType::Command,
            0x05 => PduType::Response,
            0x06 => PduType::HostData,
            0x07 => PduType::ControllerData,
            0x09 => PduType::ReadyToTransfer,
            _ => return None,
        })
    }

    /// HLEN that this type must have.
    #[must_use]
    pub fn header_length(self) -> u8 {
        match self {
            PduType::InitializeRequest | PduType::InitializeResponse => 128,
            PduType::Command => 72,
            _ => 24,
        }
    }

    /// Whether digests apply to it (NVMe/TCP 1.0, section 3.3.1.1: not to the exchange at the
    /// start, nor the end).
    #[must_use]
    pub fn has_digests(self) -> bool {
        matches!(
            self,
            PduType::Command
                | PduType::Response
                | PduType::HostData
                | PduType::ControllerData
                | PduType::ReadyToTransfer
        )
    }
}

impl InitializeRequest {
    /// The header as it travels.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    /// The opening of a host.
    #[must_use]
    pub fn new(data_alignment: u8, digests: Digests, r2t_max: u32) -> InitializeRequest {
        InitializeRequest {
            common: initialize_header(PduType::InitializeRequest),
            format_version: super::PDU_FORMAT_VERSION.into(),
            data_alignment,
            digests: digests.code(),
            r2t_max: r2t_max.saturating_sub(1).into(),
            reserved: [0; 112],
        }
    }
}

impl InitializeResponse {
    /// The answer of a controller.
    #[must_use]
    pub fn new(data_alignment: u8, digests: Digests, host_data_bytes_max: u32) -> InitializeResponse {
        InitializeResponse {
            common: initialize_header(PduType::InitializeResponse),
            format_version: super::PDU_FORMAT_VERSION.into(),
            data_alignment,
            digests: digests.code(),
            host_data_bytes_max: host_data_bytes_max.into(),
            reserved: [0; 112],
        }
    }
}

impl DataHeader {
    /// The header as it travels.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    /// Whether LAST_PDU is set.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.common.flags & flags::LAST != 0
    }

    /// Whether SUCCESS is set.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.common.flags & flags::SUCCESS != 0
    }
}

fn initialize_header(pdu_type: PduType) -> CommonHeader {
    CommonHeader {
        pdu_type: pdu_type as u8,
        flags: 0,
        header_length: pdu_type.header_length(),
        data_offset: 0,
        pdu_length: u32::from(pdu_type.header_length()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{FatalStatus, PduError, PduWriter};

    /// The PDU without digests that is written here.
    fn bytes_of(write: impl FnOnce(&mut PduWriter)) -> Vec<u8> {
        let mut writer = PduWriter::new();
        write(&mut writer);
        writer.take().concat()
    }

    #[test]
    fn types_have_the_codes_and_lengths_of_the_specification() {
        let expected = [
            (PduType::InitializeRequest, 0x00, 128),
            (PduType::InitializeResponse, 0x01, 128),
            (PduType::HostTermination, 0x02, 24),
            (PduType::ControllerTermination, 0x03, 24),
            (PduType::Command, 0x04, 72),
            (PduType::Response, 0x05, 24),
            (PduType::HostData, 0x06, 24),
            (PduType::ControllerData, 0x07, 24),
            (PduType::ReadyToTransfer, 0x09, 24),
        ];
        assert_eq!(PduType::ALL, expected.map(|(pdu_type, ..)| pdu_type));
        for (pdu_type, code, header_length) in expected {
            assert_eq!((pdu_type as u8, pdu_type.header_length()), (code, header_length));
            assert_eq!(PduType::from_code(code), Some(pdu_type));
            assert_eq!(pdu_type.has_digests(), code >= 4, "{pdu_type:?}");
        }
        assert_eq!((0..=u8::MAX).filter(|&code| PduType::from_code(code).is_some()).count(), 9);
    }

    #[test]
    fn icreq_and_icresp_have_the_layout_of_the_specification() {
        let header = Digests { header: true, data: false };
        let request = bytes_of(|writer| writer.initialize_request(&InitializeRequest::new(5, header, 0x0102_0304)));
        assert_eq!(request[..16], [0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 5, 1, 3, 3, 2, 1]);
        assert!(request.len() == 128 && request[16..].iter().all(|&byte| byte == 0));
        let data = Digests { header: false, data: true };
        let response = bytes_of(|writer| writer.initialize_response(&InitializeResponse::new(6, data, 0x0102_0304)));
        assert_eq!(response[..16], [1, 0, 128, 0, 128, 0, 0, 0, 0, 0, 6, 2, 4, 3, 2, 1]);
        assert!(response.len() == 128 && response[16..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn data_and_ready_to_transfer_have_the_layout_of_the_specification() {
        let data = [bytes::Bytes::from_static(&[0xaa; 3])];
        let fields = [2, 1, 4, 3, 8, 7, 6, 5];
        let host = bytes_of(|writer| writer.host_data(0x0102, 0x0304, 0x0506_0708, &data, true));
        assert_eq!(host[..8], [6, 4, 24, 24, 27, 0, 0, 0], "LAST_PDU is bit 2");
        assert_eq!((&host[8..16], &host[16..24]), (&fields[..], &[3, 0, 0, 0, 0, 0, 0, 0][..]));
        assert_eq!(host[24..], [0xaa; 3]);
        let controller = bytes_of(|writer| writer.controller_data(0x0102, 0x0506_0708, &data, true, true));
        assert_eq!(controller[..8], [7, 0xc, 24, 24, 27, 0, 0, 0], "SUCCESS is bit 3");
        assert_eq!(controller[8..20], [2, 1, 0, 0, 8, 7, 6, 5, 3, 0, 0, 0]);
        let r2t = bytes_of(|writer| writer.ready_to_transfer(0x0102, 0x0304, 0x0506_0708, 0x090a_0b0c));
        assert_eq!(r2t[..8], [9, 0, 24, 0, 24, 0, 0, 0]);
        assert_eq!((&r2t[8..16], &r2t[16..]), (&fields[..], &[0xc, 0xb, 0xa, 9, 0, 0, 0, 0][..]));
    }

    #[test]
    fn capsules_and_digests_have_the_layout_of_the_specification() {
        let mut writer = PduWriter::new();
        writer.set_options(Digests::BOTH, 31);
        let mut entry = SubmissionEntry::new(0x7d, 1);
        entry.command_id = 0x0102.into();
        writer.command(&entry, &bytes::Bytes::from_static(&[0xaa; 5]));
        let command = writer.take().concat();
        // CPDA 31: the data begin at a multiple of 128 bytes.
        assert_eq!(command[..12], [4, 3, 72, 128, 137, 0, 0, 0, 0x7d, 0x40, 2, 1]);
        assert_eq!(command[72..76], crate::tcp::crc32c(&command[..72]).to_le_bytes());
        assert!(command[76..128].iter().all(|&byte| byte == 0));
        assert_eq!(command[128..133], [0xaa; 5]);
        assert_eq!(command[133..], crate::tcp::crc32c(&[0xaa; 5]).to_le_bytes());
        let response = bytes_of(|writer| {
            writer.response(&CompletionEntry::new(0x0102, 0x0304, crate::StatusCode::SUCCESS, 0x0506));
        });
        assert_eq!(response[..8], [5, 0, 24, 0, 24, 0, 0, 0]);
        assert_eq!(response[8..], [6, 5, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 2, 1, 0, 0]);
    }

    #[test]
    fn terminations_have_the_layout_of_the_specification() {
        let error = PduError::new(FatalStatus::DataLimitExceeded, 0x0102_0304, &[0xbb; 2]);
        let expected = |pdu_type| {
            let header = [pdu_type, 0, 24, 0, 26, 0, 0, 0, 5, 0, 4, 3, 2, 1];
            [&header[..], &[0; 10], &[0xbb; 2]].concat()
        };
        assert_eq!(bytes_of(|writer| writer.host_termination(&error)), expected(2));
        assert_eq!(bytes_of(|writer| writer.controller_termination(&error)), expected(3));
    }
}

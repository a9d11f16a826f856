//! The contents of command and response capsules: submission and completion queue entries, and the
//! data pointer.

use std::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::StatusCode;

/// Submission queue entry (NVMe Base 2.0, Figure 86).
///
/// ```text
///  0  opcode      1  flags (FUSE 1:0, PSDT 7:6)      2..4   command identifier
///  4..8   namespace        8..12  CDW2               12..16 CDW3
/// 16..24  metadata pointer                           24..40 data pointer (an SGL descriptor over Fabrics)
/// 40..64  CDW10 to CDW15
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SubmissionEntry {
    /// OPC.
    pub opcode: u8,
    /// FUSE and PSDT; [`SubmissionEntry::PSDT_SGL`] in every command over Fabrics.
    pub flags: u8,
    /// CID: unique among the queue's outstanding commands.
    pub command_id: U16,
    /// NSID. Its first byte is the Fabrics command type where the opcode is 7Fh.
    pub namespace: U32,
    /// Command dword 2.
    pub cdw2: U32,
    /// Command dword 3.
    pub cdw3: U32,
    /// MPTR; not used over Fabrics without separate metadata.
    pub metadata_pointer: U64,
    /// DPTR.
    pub data_pointer: SglDescriptor,
    /// Command dword 10.
    pub cdw10: U32,
    /// Command dword 11.
    pub cdw11: U32,
    /// Command dword 12.
    pub cdw12: U32,
    /// Command dword 13.
    pub cdw13: U32,
    /// Command dword 14.
    pub cdw14: U32,
    /// Command dword 15.
    pub cdw15: U32,
}

const _: () = assert!(size_of::<SubmissionEntry>() == 64);

/// Completion queue entry (NVMe Base 2.0, Figure 89; NVMe over Fabrics, Figure 6).
///
/// ```text
///  0..8  result (DW0, DW1)    8..10 SQ head    10..12 SQ identifier (reserved over Fabrics)
/// 12..14 command identifier  14..16 status (bit 0 reserved over Fabrics)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CompletionEntry {
    /// Command specific; an append's LBA, a property's value, a feature's value.
    pub result: U64,
    /// SQHD: the controller's head pointer of the submission queue.
    pub sq_head: U16,
    /// SQID; zero over Fabrics.
    pub sq_id: U16,
    /// CID of the command that ended.
    pub command_id: U16,
    /// Status field, as [`StatusCode::status_field`] makes it.
    pub status: U16,
}

const _: () = assert!(size_of::<CompletionEntry>() == 16);

/// SGL descriptor (NVMe Base 2.0, section 4.1.2, Figures 93 to 101; NVMe/TCP 1.0, section 3.3.2.2).
///
/// ```text
///  0..8  address, or offset into the capsule's data    8..12 length    12..15 reserved    15 type 7:4, subtype 3:0
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SglDescriptor {
    /// Address; with [`SglDescriptor::IN_CAPSULE`] the offset of the data from the start of the
    /// capsule's data.
    pub address: U64,
    /// Bytes.
    pub length: U32,
    /// Zero.
    pub reserved: [u8; 3],
    /// SGL descriptor type and subtype.
    pub kind: u8,
}

const _: () = assert!(size_of::<SglDescriptor>() == 16);

/// The location of a command's data, from its data pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPlace {
    /// In the command capsule.
    InCapsule {
        /// From the start of the capsule's data.
        offset: u64,
        /// Bytes.
        length: u32,
    },
    /// With the host: it travels in data PDUs. A length of zero is a command without data.
    Transport {
        /// Bytes.
        length: u32,
    },
}

impl SubmissionEntry {
    /// PSDT 01b: the data pointer is an SGL, and so would be a metadata pointer.
    pub const PSDT_SGL: u8 = 0x40;

    /// An entry with an opcode, for a namespace, without data and with all other fields zero.
    #[must_use]
    pub fn new(opcode: u8, namespace: u32) -> SubmissionEntry {
        SubmissionEntry {
            opcode,
            flags: SubmissionEntry::PSDT_SGL,
            namespace: namespace.into(),
            data_pointer: SglDescriptor::transport(0),
            ..SubmissionEntry::default()
        }
    }

    /// The LBA in CDW10 and CDW11.
    #[must_use]
    pub fn starting_lba(&self) -> u64 {
        u64::from(self.cdw10) | u64::from(self.cdw11) << 32
    }

    /// Puts an LBA into CDW10 and CDW11.
    pub fn set_starting_lba(&mut self, lba: u64) {
        self.cdw10 = (lba as u32).into();
        self.cdw11 = ((lba >> 32) as u32).into();
    }

    /// Where the data is.
    ///
    /// # Errors
    /// [`StatusCode::INVALID_FIELD`] for a fused command or a PRP, and
    /// [`StatusCode::SGL_DESCRIPTOR_TYPE_INVALID`] for any descriptor but the two that NVMe/TCP
    /// has.
    pub fn data_place(&self) -> Result<DataPlace, StatusCode> {
        if self.flags & 0x03 != 0 || !matches!(self.flags >> 6, 1 | 2) {
            return Err(StatusCode::INVALID_FIELD);
        }
        let length = self.data_pointer.length.get();
        match self.data_pointer.kind {
            SglDescriptor::IN_CAPSULE => Ok(DataPlace::InCapsule { offset: self.data_pointer.address.get(), length }),
            SglDescriptor::TRANSPORT => Ok(DataPlace::Transport { length }),
            _ => Err(StatusCode::SGL_DESCRIPTOR_TYPE_INVALID),
        }
    }
}

impl CompletionEntry {
    /// The entry that ends a command.
    #[must_use]
    pub fn new(command_id: u16, sq_head: u16, status: StatusCode, result: u64) -> CompletionEntry {
        CompletionEntry {
            result: result.into(),
            sq_head: sq_head.into(),
            sq_id: 0.into(),
            command_id: command_id.into(),
            status: status.status_field().into(),
        }
    }

    /// The status, without Do Not Retry and More.
    #[must_use]
    pub fn status_code(&self) -> StatusCode {
        StatusCode::from_status_field(self.status.get())
    }

    /// Whether the Do Not Retry bit is set.
    #[must_use]
    pub fn do_not_retry(&self) -> bool {
        self.status.get() & 0x8000 != 0
    }
}

impl SglDescriptor {
    /// Type 0h (data block), subtype 1h (offset): the data is in the capsule.
    pub const IN_CAPSULE: u8 = 0x01;
    /// Type 5h (transport data block), subtype Ah (NVMe transport specific): the data travels in
    /// PDUs of its own.
    pub const TRANSPORT: u8 = 0x5a;

    /// A descriptor of data in the capsule.
    #[must_use]
    pub fn in_capsule(offset: u64, length: u32) -> SglDescriptor {
        SglDescriptor {
            address: offset.into(),
            length: length.into(),
            reserved: [0; 3],
            kind: SglDescriptor::IN_CAPSULE,
        }
    }

    /// A descriptor of data that the transport moves.
    #[must_use]
    pub fn transport(length: u32) -> SglDescriptor {
        SglDescriptor { address: 0.into(), length: length.into(), reserved: [0; 3], kind: SglDescriptor::TRANSPORT }
    }
}

impl fmt::Display for SubmissionEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "opcode {:02x}h, command {}, namespace {}", self.opcode, self.command_id, self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_offsets_of_the_specification() {
        let mut entry = SubmissionEntry::new(0x7d, 0x0403_0201);
        entry.command_id = 0x0605.into();
        entry.set_starting_lba(0x1122_3344_5566_7788);
        entry.cdw15 = 0xaabb_ccdd.into();
        entry.data_pointer = SglDescriptor::transport(0x1000);
        let bytes = entry.as_bytes();
        assert_eq!(bytes[..8], [0x7d, 0x40, 5, 6, 1, 2, 3, 4]);
        assert_eq!(bytes[32..40], [0, 0x10, 0, 0, 0, 0, 0, 0x5a]);
        assert_eq!(bytes[40..48], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        assert_eq!(bytes[60..], [0xdd, 0xcc, 0xbb, 0xaa]);
        assert_eq!(entry.starting_lba(), 0x1122_3344_5566_7788);
    }

    #[test]
    fn a_completion_has_its_status_above_the_reserved_bit() {
        let entry = CompletionEntry::new(7, 3, StatusCode::ZONE_IS_FULL, 9);
        assert_eq!(entry.as_bytes(), [9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 7, 0, 0x72, 0x83]);
        assert_eq!(entry.status_code(), StatusCode::ZONE_IS_FULL);
        assert!(entry.do_not_retry());
    }

    #[test]
    fn prps_fused_commands_and_keyed_descriptors_are_refused() {
        let mut entry = SubmissionEntry::new(1, 1);
        assert_eq!(entry.data_place(), Ok(DataPlace::Transport { length: 0 }));
        entry.data_pointer.kind = 0x40;
        assert_eq!(entry.data_place(), Err(StatusCode::SGL_DESCRIPTOR_TYPE_INVALID));
        entry.flags = 0;
        assert_eq!(entry.data_place(), Err(StatusCode::INVALID_FIELD));
        entry.flags = SubmissionEntry::PSDT_SGL | 1;
        assert_eq!(entry.data_place(), Err(StatusCode::INVALID_FIELD));
    }
}

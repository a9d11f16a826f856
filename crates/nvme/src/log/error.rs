//! Error Information, 01h (NVMe Base 2.0, section 5.16.1.2).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::{Lba, NamespaceId};

use crate::page::Page;

/// One error. The page is a row of them, the newest first; entries that were never used are zero.
///
/// ```text
///  0 error count | 8 submission queue | 10 command | 12 status | 14 parameter location | 16 LBA | 24 namespace
/// 28 vendor page | 29 transport type (TRTYPE) | 32 command specific | 40 transport specific | 42 reserved
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ErrorEntry {
    /// Error Count: the number of this error, from 1; zero marks an entry that was never used.
    pub count: U64,
    /// Submission Queue ID (SQID); FFFFh where the error belongs to no command.
    pub queue: U16,
    /// Command ID (CID); FFFFh where the error belongs to no command.
    pub command_id: U16,
    /// Status Field, bits 15:1 as in the completion; bit 0 is the phase tag.
    pub status: U16,
    /// Parameter Error Location: bits 7:0 the byte of the command, 10:8 the bit; FFFFh for none.
    pub parameter: U16,
    /// First block concerned.
    pub lba: U64,
    /// Namespace concerned.
    pub namespace: U32,
    /// Vendor Specific Information Available: a log page; zero is none.
    pub vendor_page: u8,
    /// Transport Type (TRTYPE); 3 is TCP.
    pub transport: u8,
    _reserved_30: [u8; 2],
    /// Command Specific Information.
    pub command_specific: U64,
    /// Transport Type Specific Information.
    pub transport_specific: U16,
    _reserved_42: [u8; 22],
}

const _: () = assert!(size_of::<ErrorEntry>() == 64);

impl Page for ErrorEntry {
    const NAME: &'static str = "Error Information Log Entry";
}

impl ErrorEntry {
    /// An error of one command over TCP, with the status field of its completion.
    #[must_use]
    pub fn of_command(
        count: u64,
        queue: u16,
        command_id: u16,
        status: u16,
        namespace: NamespaceId,
        lba: Lba,
    ) -> ErrorEntry {
        let mut entry = ErrorEntry::empty();
        entry.count = count.into();
        entry.queue = queue.into();
        entry.command_id = command_id.into();
        entry.status = status.into();
        entry.parameter = NO_PARAMETER.into();
        entry.lba = lba.0.into();
        entry.namespace = namespace.0.into();
        entry.transport = TCP;
        entry
    }

    /// Whether the entry was ever used.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.count.get() != 0
    }
}

/// The error is not in a parameter of the command.
const NO_PARAMETER: u16 = 0xffff;
/// TRTYPE of TCP.
const TCP: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::assert_layout;

    #[test]
    fn every_field_has_the_offset_of_the_specification() {
        assert_layout!(ErrorEntry {
            count: 0..=7,
            queue: 8..=9,
            command_id: 10..=11,
            status: 12..=13,
            parameter: 14..=15,
            lba: 16..=23,
            namespace: 24..=27,
            vendor_page: 28..=28,
            transport: 29..=29,
            command_specific: 32..=39,
            transport_specific: 40..=41,
        });
    }

    #[test]
    fn an_entry_of_zeros_is_unused() {
        assert!(!ErrorEntry::empty().is_used());
        let entry = ErrorEntry::of_command(1, 2, 3, 0x0504, NamespaceId(4), Lba(5));
        assert!(entry.is_used());
        assert_eq!(ErrorEntry::parse(entry.bytes()), Ok(entry));
        assert!(ErrorEntry::parse(&entry.bytes()[..63]).is_err());
    }
    #[test]
    fn the_error_of_a_command_names_queue_command_status_namespace_and_block() {
        let entry = ErrorEntry::of_command(0x11, 0x22, 0x33, 0x44, NamespaceId(0x55), Lba(0x66));
        let expected: [(usize, &[u8]); 7] =
            [(0, &[0x11]), (8, &[0x22]), (10, &[0x33]), (12, &[0x44]), (14, &[0xff; 2]), (16, &[0x66]), (24, &[0x55])];
        let mut bytes = [0; 64];
        for (place, value) in expected {
            bytes[place..place + value.len()].copy_from_slice(value);
        }
        bytes[29] = 3;
        assert_eq!(entry.bytes(), bytes);
    }
}

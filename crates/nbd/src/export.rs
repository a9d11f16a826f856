//! Exports.

use crate::limits::{
    EXPORT_BYTES_MAX, MINIMUM_BLOCK_BYTES_MAX, PREFERRED_BLOCK_BYTES_MIN, REQUEST_BYTES_MAX, STRING_BYTES_MAX,
};
use crate::wire::transmission::flags;

/// An export by its index in the server's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExportIndex(pub u16);

/// A range of bytes that clients read and write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The name that clients request: 1 to 4096 bytes, no NUL.
    pub name: String,
    /// A human-readable description: at most 4096 bytes, no NUL; may be empty.
    pub description: String,
    /// A multiple of `minimum_block_bytes`.
    pub size_bytes: u64,
    /// The minimum block size: a power of two up to 64 KiB. Requests whose offset or length is not
    /// a multiple of it are refused, unless `takes_unaligned`.
    pub minimum_block_bytes: u32,
    /// Whether unaligned requests are accepted nevertheless, for clients that do not request block
    /// sizes.
    pub takes_unaligned: bool,
    /// The preferred block size: a power of two, at least 512 and `minimum_block_bytes`.
    pub preferred_block_bytes: u32,
    /// The longest READ and WRITE: a multiple of `minimum_block_bytes`, at least
    /// `preferred_block_bytes`, at most 32 MiB.
    pub maximum_block_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether a flush on one connection makes writes completed on other connections durable
    /// (NBD_FLAG_CAN_MULTI_CONN).
    pub multi_conn: bool,
    /// Whether clients may request fast zeroing, which fails where it would not be faster than
    /// writing zeros.
    pub fast_zero: bool,
}

impl Export {
    /// An export with block sizes of 1 byte (minimum), 4 KiB (preferred) and 32 MiB (maximum), for
    /// one connection.
    #[must_use]
    pub fn new(name: &str, size_bytes: u64) -> Export {
        Export {
            name: name.to_owned(),
            description: String::new(),
            size_bytes,
            minimum_block_bytes: 1,
            takes_unaligned: false,
            preferred_block_bytes: 4096,
            maximum_block_bytes: REQUEST_BYTES_MAX,
            read_only: false,
            multi_conn: false,
            fast_zero: false,
        }
    }

    /// Transmission flags (section "Transmission flags").
    #[must_use]
    pub fn transmission_flags(&self, structured_replies: bool) -> u16 {
        let set = |is_set: bool, flags: u16| if is_set { flags } else { 0 };
        flags::HAS_FLAGS
            | flags::SEND_FLUSH
            | flags::SEND_FUA
            | set(self.read_only, flags::READ_ONLY)
            | set(!self.read_only, flags::SEND_TRIM | flags::SEND_WRITE_ZEROES)
            | set(!self.read_only && self.fast_zero, flags::SEND_FAST_ZERO)
            | set(structured_replies, flags::SEND_DF)
            | set(self.multi_conn, flags::CAN_MULTI_CONN)
    }

    /// The granularity of offsets, lengths and extents.
    pub(crate) fn granularity_bytes(&self) -> u32 {
        if self.takes_unaligned { 1 } else { self.minimum_block_bytes }
    }

    /// The first invalid field, by name, and its permitted values.
    pub(crate) fn fault(&self) -> Option<(&'static str, &'static str)> {
        let (minimum, preferred, maximum) =
            (self.minimum_block_bytes, self.preferred_block_bytes, self.maximum_block_bytes);
        let is_string = |text: &str| text.len() <= STRING_BYTES_MAX && !text.contains('\0');
        let rules = [
            (!self.name.is_empty() && is_string(&self.name), "name", "must have 1 to 4096 bytes and no NUL"),
            (is_string(&self.description), "description", "must have at most 4096 bytes and no NUL"),
            (
                minimum.is_power_of_two() && minimum <= MINIMUM_BLOCK_BYTES_MAX,
                "minimum_block_bytes",
                "must be a power of two from 1 to 65536",
            ),
            (
                preferred.is_power_of_two() && preferred >= minimum.max(PREFERRED_BLOCK_BYTES_MIN),
                "preferred_block_bytes",
                "must be a power of two, at least 512 and at least minimum_block_bytes",
            ),
            (
                maximum >= preferred && maximum <= REQUEST_BYTES_MAX && maximum.is_multiple_of(minimum.max(1)),
                "maximum_block_bytes",
                "must be a multiple of minimum_block_bytes, at least preferred_block_bytes, at most 33554432",
            ),
            (
                self.size_bytes <= EXPORT_BYTES_MAX && self.size_bytes.is_multiple_of(u64::from(minimum.max(1))),
                "size_bytes",
                "must be a multiple of minimum_block_bytes, less than 2^63",
            ),
        ];
        rules.into_iter().find(|(holds, ..)| !holds).map(|(_, field, remedy)| (field, remedy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_of_an_export_names_its_field() {
        assert_eq!(Export::new("a", 4096).fault(), None);
        type Spoil = fn(&mut Export);
        let spoil: [(&str, Spoil); 12] = [
            ("name", |export| export.name.clear()),
            ("name", |export| export.name = "a\0".to_owned()),
            ("name", |export| export.name = "a".repeat(4097)),
            ("description", |export| export.description = "b".repeat(4097)),
            ("minimum_block_bytes", |export| export.minimum_block_bytes = 0),
            ("minimum_block_bytes", |export| export.minimum_block_bytes = 1 << 17),
            ("preferred_block_bytes", |export| export.preferred_block_bytes = 256),
            ("preferred_block_bytes", |export| export.minimum_block_bytes = 8192),
            ("maximum_block_bytes", |export| export.maximum_block_bytes = 1024),
            ("maximum_block_bytes", |export| export.maximum_block_bytes = REQUEST_BYTES_MAX + 1),
            ("size_bytes", |export| export.size_bytes = 1 << 63),
            ("size_bytes", |export| (export.minimum_block_bytes, export.size_bytes) = (512, 700)),
        ];
        for (field, spoil) in spoil {
            let mut export = Export::new("a", 4096);
            spoil(&mut export);
            assert_eq!(export.fault().map(|(field, _)| field), Some(field));
        }
    }

    #[test]
    fn transmission_flags_report_the_features_of_an_export() {
        let mut export = Export::new("a", 4096);
        assert_eq!(export.transmission_flags(false), 0b0_0110_1101);
        (export.fast_zero, export.multi_conn) = (true, true);
        assert_eq!(export.transmission_flags(true), 0b1001_1110_1101);
        export.read_only = true;
        assert_eq!(export.transmission_flags(false), 0b1_0000_1111, "no command that writes");
    }
}

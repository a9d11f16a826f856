//! Distinct integer types for addresses, counts and identifiers.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Defines a number type with its own name in `Display`; arithmetic is added where it is
/// meaningful.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// A logical block address within a namespace.
    Lba(u64)
}
number! {
    /// A count of logical blocks.
    Blocks(u64)
}
number! {
    /// The index of a zone in its namespace, counted from zero.
    ZoneIndex(u32)
}
number! {
    /// A namespace of a device. NVMe counts them from 1.
    NamespaceId(u32)
}
number! {
    /// Command Identifier: unique among the submitter's outstanding commands.
    CommandId(u64)
}

impl NamespaceId {
    /// The only namespace of a device with one.
    pub const FIRST: NamespaceId = NamespaceId(1);
}

impl Blocks {
    /// No blocks.
    pub const ZERO: Blocks = Blocks(0);

    /// The size of these blocks in bytes.
    #[must_use]
    pub fn bytes(self, block_size_bytes: u32) -> u64 {
        self.0 * u64::from(block_size_bytes)
    }
}

impl ZoneIndex {
    /// The index for use in tables.
    #[must_use]
    pub fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl Add<Blocks> for Lba {
    type Output = Lba;
    fn add(self, blocks: Blocks) -> Lba {
        Lba(self.0 + blocks.0)
    }
}

impl Sub<Lba> for Lba {
    type Output = Blocks;
    fn sub(self, start: Lba) -> Blocks {
        Blocks(self.0 - start.0)
    }
}

impl Add for Blocks {
    type Output = Blocks;
    fn add(self, other: Blocks) -> Blocks {
        Blocks(self.0 + other.0)
    }
}

impl AddAssign for Blocks {
    fn add_assign(&mut self, other: Blocks) {
        self.0 += other.0;
    }
}

impl Sub for Blocks {
    type Output = Blocks;
    fn sub(self, other: Blocks) -> Blocks {
        Blocks(self.0 - other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_counts_add_and_subtract_block_by_block() {
        assert_eq!((Lba(100) + Blocks(7), Lba(100) - Lba(93)), (Lba(107), Blocks(7)));
        let mut sum = Blocks(5) + Blocks(3);
        assert_eq!((sum, sum - Blocks(6)), (Blocks(8), Blocks(2)));
        sum += Blocks(4);
        assert_eq!((sum, Blocks::ZERO + sum, sum.bytes(512)), (Blocks(12), Blocks(12), 6144));
    }
}

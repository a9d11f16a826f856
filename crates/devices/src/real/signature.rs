//! What the first bytes of a drive say about its contents, for warnings before they are destroyed.

/// Bytes from the start of a drive that hold all signatures.
pub const SIGNATURE_BYTES: usize = 68 << 10;

/// Magic numbers: where, which bytes, and of what.
const SIGNATURES: [(usize, &[u8], &str); 11] = [
    (0x10040, b"_BHRfS_M", "a btrfs file system"),
    (0x400, &[0x10, 0x20, 0xf5, 0xf2], "an f2fs file system"),
    (0x438, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0, b"SFOZ", "a zonefs file system"),
    (0, b"LUKS\xba\xbe", "a LUKS container"),
    (0x200, b"EFI PART", "a GPT partition table"),
    (0x1000, b"EFI PART", "a GPT partition table"),
    (0x218, b"LVM2 001", "an LVM physical volume"),
    (0, b"DZBD", "a dm-zoned target"),
    (0xff6, b"SWAPSPACE2", "swap space"),
];

/// What a drive that begins with these bytes holds, as far as its signature is known.
#[must_use]
pub fn signature_of(bytes: &[u8]) -> Option<&'static str> {
    let has = |at: usize, magic: &[u8]| bytes.get(at..at + magic.len()) == Some(magic);
    SIGNATURES.iter().find(|(at, magic, _)| has(*at, magic)).map(|(_, _, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_named_by_its_magic_number() {
        for (at, magic, what) in SIGNATURES {
            let mut bytes = vec![0; SIGNATURE_BYTES];
            bytes[at..at + magic.len()].copy_from_slice(magic);
            assert_eq!(signature_of(&bytes), Some(what));
            assert_eq!(signature_of(&bytes[..at + 1]), None, "a part of {what}");
        }
        assert_eq!(signature_of(&[0; SIGNATURE_BYTES]), None);
        assert_eq!(signature_of(&[]), None);
    }
}

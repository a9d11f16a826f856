//! Compare: data of the device against data of the host.

use bytes::Bytes;

/// Whether the concatenated pieces equal `host`.
pub(crate) fn same(pieces: &[Bytes], host: &[u8]) -> bool {
    let mut rest = host;
    for piece in pieces {
        match rest.split_at_checked(piece.len()) {
            Some((part, behind)) if part == piece => rest = behind,
            _ => return false,
        }
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_same_only_as_a_whole() {
        let pieces = [Bytes::from_static(b"ab"), Bytes::from_static(b"c")];
        assert!(same(&pieces, b"abc"));
        for other in [&b"ab"[..], b"abcd", b"abd", b"xbc", b""] {
            assert!(!same(&pieces, other), "{other:?}");
        }
    }
}

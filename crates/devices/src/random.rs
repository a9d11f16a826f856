//! Random bytes from the system.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::{DriveError, mock};

/// Cryptographically secure random bytes.
///
/// # Errors
/// When getrandom fails.
pub fn bytes<const N: usize>() -> Result<[u8; N], DriveError> {
    let mut bytes = [0; N];
    // Up to 256 bytes are returned in full, or not at all.
    const { assert!(N <= 256) };
    if getrandom(&mut bytes, GetRandomFlags::empty()) != Ok(N) {
        return Err(DriveError::new("cannot get random bytes from the system", "check whether getrandom is permitted"));
    }
    Ok(bytes)
}

/// A random UUID (RFC 9562, version 4).
///
/// # Errors
/// When getrandom fails.
pub fn uuid() -> Result<[u8; 16], DriveError> {
    if let Some(uuid) = mock::uuid() {
        return Ok(uuid);
    }
    let mut uuid = bytes::<16>()?;
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}

/// A UUID as it is written (RFC 9562, section 4).
#[must_use]
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_version_4_and_its_variant() {
        let text = uuid_text(&uuid().unwrap());
        assert_eq!((text.len(), text.as_bytes()[14]), (36, b'4'));
        assert!(b"89ab".contains(&text.as_bytes()[19]), "{text}");
        assert_ne!(uuid().unwrap(), uuid().unwrap());
    }
}

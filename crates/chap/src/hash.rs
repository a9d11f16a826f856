//! The hash functions of the protocol, and HMAC over them.

use std::fmt;
use std::hint::black_box;
use std::ops::Deref;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256, Sha384, Sha512};

/// Bytes of the longest hash, SHA-512.
pub(crate) const HASH_BYTES_MAX: usize = 64;

/// A hash function (NVMe Base Specification 2.0, section 8.13, AUTH_Negotiate, HashIDList).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Hash {
    /// SHA-256: 32 bytes.
    Sha256 = 1,
    /// SHA-384: 48 bytes.
    Sha384 = 2,
    /// SHA-512: 64 bytes.
    Sha512 = 3,
}

/// The bytes of a hash or an HMAC. Overwritten on drop, and hidden from `Debug`: many of them are
/// keys.
pub(crate) struct Digest {
    bytes: [u8; HASH_BYTES_MAX],
    length: usize,
}

impl Hash {
    /// All hashes, strongest first.
    pub const ALL: [Hash; 3] = [Hash::Sha512, Hash::Sha384, Hash::Sha256];

    /// The identifier on the wire.
    #[must_use]
    pub fn id(self) -> u8 {
        self as u8
    }

    /// The hash of an identifier; `None` for an unassigned one.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Hash> {
        Hash::ALL.into_iter().find(|hash| hash.id() == id)
    }

    /// Bytes of a hash, and so of a challenge and a response.
    #[must_use]
    pub fn length_bytes(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }

    /// The hash of `data`.
    pub(crate) fn digest(self, data: &[u8]) -> Digest {
        match self {
            Hash::Sha256 => Digest::new(&Sha256::digest(data)),
            Hash::Sha384 => Digest::new(&Sha384::digest(data)),
            Hash::Sha512 => Digest::new(&Sha512::digest(data)),
        }
    }

    /// The HMAC (RFC 2104) of the concatenation of `parts` under `key`, which may have any length.
    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Digest {
        match self {
            Hash::Sha256 => hmac_of::<Hmac<Sha256>>(key, parts),
            Hash::Sha384 => hmac_of::<Hmac<Sha384>>(key, parts),
            Hash::Sha512 => hmac_of::<Hmac<Sha512>>(key, parts),
        }
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hash::Sha256 => "SHA-256",
            Hash::Sha384 => "SHA-384",
            Hash::Sha512 => "SHA-512",
        })
    }
}

impl Digest {
    /// A copy of `bytes`, of which there are at most [`HASH_BYTES_MAX`].
    pub(crate) fn new(bytes: &[u8]) -> Digest {
        let mut digest = Digest { bytes: [0; HASH_BYTES_MAX], length: bytes.len() };
        digest.bytes[..bytes.len()].copy_from_slice(bytes);
        digest
    }
}

impl Deref for Digest {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({} bytes)", self.length)
    }
}

impl Drop for Digest {
    fn drop(&mut self) {
        wipe(&mut self.bytes);
    }
}

/// Overwrites `bytes`. Best effort: copies that the compiler or a library made elsewhere stay.
pub(crate) fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    black_box(bytes);
}

fn hmac_of<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Digest {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC supports keys of every length");
    for part in parts {
        mac.update(part);
    }
    Digest::new(&mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn every_hash_has_exactly_its_identifier() {
        for hash in Hash::ALL {
            assert_eq!(Hash::from_id(hash.id()), Some(hash));
        }
        for id in [0, 4, 255] {
            assert_eq!(Hash::from_id(id), None);
        }
    }

    /// RFC 4231, test case 2.
    #[test]
    fn hmac_matches_the_test_cases_of_rfc_4231() {
        let parts: [&[u8]; 2] = [b"what do ya want ", b"for nothing?"];
        assert_eq!(
            hex(&Hash::Sha256.hmac(b"Jefe", &parts)),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert!(hex(&Hash::Sha384.hmac(b"Jefe", &parts)).starts_with("af45d2e376484031617f78d2b58a6b1b"));
        assert!(hex(&Hash::Sha512.hmac(b"Jefe", &parts)).starts_with("164b7a7bfcf819e2e395fbe73b56e0a3"));
    }

    #[test]
    fn a_digest_has_the_length_of_its_hash_and_hides_its_bytes() {
        for hash in Hash::ALL {
            let digest = hash.digest(b"x");
            assert_eq!(digest.len(), hash.length_bytes());
            assert_eq!(format!("{digest:?}"), format!("Digest({} bytes)", hash.length_bytes()));
        }
    }
}

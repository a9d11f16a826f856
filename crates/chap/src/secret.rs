//! Secrets and their representation as text.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64, Encoding};
use crc_fast::CrcAlgorithm::Crc32IsoHdlc;
use subtle::ConstantTimeEq;

use crate::hash::{Digest, HASH_BYTES_MAX, Hash, wipe};

const PREFIX: &str = "DHHC-1:";
const CRC_BYTES: usize = 4;
/// Follows the NQN in the transform of a secret.
const TRANSFORM_LABEL: &[u8] = b"NVMe-over-Fabrics";

/// The secret of a host or a controller (NVMe Base Specification 2.0, section 8.13, secret
/// representation).
///
/// Its text is `DHHC-1:hh:base64:`. `hh` names the transform: `00` none, `01` SHA-256, `02`
/// SHA-384, `03` SHA-512. The Base64 part holds the secret of 32, 48 or 64 bytes, then the CRC-32
/// of the secret, little endian. Any length may have any transform, as in Linux since 6.7;
/// [`Secret::generate`] makes secrets as long as the hash, as `nvme gen-dhchap-key` does, because
/// older programs require that.
///
/// `Display` writes the text, that is, reveals the secret. `Debug` does not. Overwritten on drop;
/// comparison takes the same time wherever two secrets of one length differ.
///
/// ```
/// use zonda_chap::{Hash, Secret};
///
/// let secret = Secret::generate(Some(Hash::Sha256), [7; 64]);
/// let text = secret.to_string();
/// assert!(text.starts_with("DHHC-1:01:") && text.ends_with(':'));
/// assert_eq!(Secret::parse(&text)?, secret);
/// # Ok::<(), zonda_chap::SecretError>(())
/// ```
#[derive(Clone)]
pub struct Secret {
    transform: Option<Hash>,
    bytes: [u8; HASH_BYTES_MAX],
    length: usize,
}

/// Why a text is not a valid secret. Contains nothing of the text itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretError {
    /// Does not start with `DHHC-1:`.
    Prefix,
    /// Does not have the form `DHHC-1:hh:base64:`; the last colon is part of it.
    Form,
    /// `hh` is not 00, 01, 02 or 03.
    Transform,
    /// The third part is not valid Base64 (RFC 4648 section 4, padded).
    Base64,
    /// The secret has this many bytes instead of 32, 48 or 64.
    Length(usize),
    /// The CRC-32 is wrong: a character was lost or changed.
    Checksum,
}

impl Secret {
    /// Parses `DHHC-1:hh:base64:`. Surrounding white space is an error.
    ///
    /// # Errors
    /// [`SecretError`]: the invalid part.
    pub fn parse(text: &str) -> Result<Secret, SecretError> {
        let rest = text.strip_prefix(PREFIX).ok_or(SecretError::Prefix)?;
        let (transform, rest) = rest.split_once(':').ok_or(SecretError::Form)?;
        let encoded = rest.strip_suffix(':').ok_or(SecretError::Form)?;
        let transform = match transform {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(SecretError::Transform),
        };
        if encoded.contains(':') {
            return Err(SecretError::Form);
        }
        let mut decoded = Base64::decode_vec(encoded).map_err(|_| SecretError::Base64)?;
        let secret = from_decoded(transform, &decoded);
        wipe(&mut decoded);
        secret
    }

    /// A secret from its bytes.
    ///
    /// # Errors
    /// [`SecretError::Length`] unless there are 32, 48 or 64.
    pub fn new(transform: Option<Hash>, secret: &[u8]) -> Result<Secret, SecretError> {
        if !matches!(secret.len(), 32 | 48 | 64) {
            return Err(SecretError::Length(secret.len()));
        }
        let mut bytes = [0; HASH_BYTES_MAX];
        bytes[..secret.len()].copy_from_slice(secret);
        Ok(Secret { transform, bytes, length: secret.len() })
    }

    /// A new secret with the length of the hash of `transform`, or 32 bytes without one, from the
    /// first bytes of `random`, which must come from the operating system's generator.
    #[must_use]
    pub fn generate(transform: Option<Hash>, mut random: [u8; 64]) -> Secret {
        let length = transform.map_or(32, Hash::length_bytes);
        random[length..].fill(0);
        let secret = Secret { transform, bytes: random, length };
        wipe(&mut random);
        secret
    }

    /// The transform that is applied before use; `None` when the secret is the key.
    #[must_use]
    pub fn transform(&self) -> Option<Hash> {
        self.transform
    }

    /// Bytes of the secret: 32, 48 or 64.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.length
    }

    /// The key for HMAC: the secret, or HMAC(secret, NQN || "NVMe-over-Fabrics") under the hash of
    /// the transform, with the NQN of the entity whose secret it is.
    pub(crate) fn key(&self, nqn: &str) -> Digest {
        match self.transform {
            None => Digest::new(self.bytes()),
            Some(hash) => hash.hmac(self.bytes(), &[nqn.as_bytes(), TRANSFORM_LABEL]),
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Secret, SecretError> {
        Secret::parse(text)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut plain = [0; HASH_BYTES_MAX + CRC_BYTES];
        let end = self.length + CRC_BYTES;
        plain[..self.length].copy_from_slice(self.bytes());
        plain[self.length..end].copy_from_slice(&checksum(self.bytes()));
        let encoded = Base64::encode_string(&plain[..end]);
        wipe(&mut plain);
        write!(f, "{PREFIX}{:02}:{encoded}:", self.transform.map_or(0, Hash::id))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("transform", &self.transform).finish_non_exhaustive()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.transform == other.transform && bool::from(self.bytes().ct_eq(other.bytes()))
    }
}

impl Eq for Secret {}

impl Drop for Secret {
    fn drop(&mut self) {
        wipe(&mut self.bytes);
    }
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretError::Prefix => f.write_str("the secret does not start with DHHC-1:"),
            SecretError::Form => {
                f.write_str("the secret does not have the form DHHC-1:hh:base64: (with a colon at the end)")
            }
            SecretError::Transform => f.write_str("the transform of the secret must be 00, 01, 02 or 03"),
            SecretError::Base64 => f.write_str("the third part of the secret is not valid Base64"),
            SecretError::Length(bytes) => write!(f, "the secret has {bytes} bytes, but must have 32, 48 or 64"),
            SecretError::Checksum => {
                f.write_str("the checksum of the secret is wrong: a character was lost or changed")
            }
        }
    }
}

impl std::error::Error for SecretError {}

fn from_decoded(transform: Option<Hash>, decoded: &[u8]) -> Result<Secret, SecretError> {
    let (secret, crc) =
        decoded.split_last_chunk::<CRC_BYTES>().ok_or(SecretError::Length(decoded.len().saturating_sub(CRC_BYTES)))?;
    let parsed = Secret::new(transform, secret)?;
    if checksum(secret) != *crc {
        return Err(SecretError::Checksum);
    }
    Ok(parsed)
}

/// CRC-32 (ISO 3309, as in zlib), little endian.
fn checksum(secret: &[u8]) -> [u8; CRC_BYTES] {
    let crc = crc_fast::checksum(Crc32IsoHdlc, secret);
    u32::try_from(crc).expect("a CRC-32 has 32 bits").to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Secret of the specification's example.
    const EXAMPLE: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";
    const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:befdec4c-2234-11b2-a85c-ca77c773af36";

    fn counting(length: usize) -> Vec<u8> {
        (0..length as u8).collect()
    }

    #[test]
    fn the_example_of_the_specification_is_parsed_and_formatted() {
        let secret = Secret::parse(EXAMPLE).unwrap();
        assert_eq!((secret.transform(), secret.length_bytes()), (None, 32));
        assert_eq!(secret.to_string(), EXAMPLE);
    }

    /// `nvme gen-dhchap-key --hmac=0 --secret=000102..1f` of nvme-cli 2.3.
    #[test]
    fn a_secret_is_formatted_as_by_nvme_cli() {
        let secret = Secret::new(None, &counting(32)).unwrap();
        assert_eq!(secret.to_string(), "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:");
    }

    /// `nvme gen-dhchap-key --hmac=1|2|3 --nqn=NQN --secret=000102..` of nvme-cli 2.3 prints the
    /// transformed key.
    #[test]
    fn the_transform_matches_that_of_nvme_cli() {
        let answers = [
            (Hash::Sha256, "DHHC-1:00:b0t0FSdQCrUNJGSrDb7VrsqjdFSb4fEBMRTorxAHgGo3XEQL:"),
            (Hash::Sha384, "DHHC-1:00:4Ht9x/Jly33imV4FzSd1AfVw0K95/CdNjHJdlgOCHmxTPXzkrqOBAXbppc8TwQCMDi4bTw==:"),
            (
                Hash::Sha512,
                "DHHC-1:00:OjW/PKfycWYuNQHOB7C6eEPb6cB9dG4Rk9opBZO/1rP5kNcXnJVYr1O4NRxOKlYX+5KxivlXk72f5M/71kk3cZJqmNc=:",
            ),
        ];
        for (hash, transformed) in answers {
            let secret = Secret::new(Some(hash), &counting(hash.length_bytes())).unwrap();
            assert_eq!(Secret::new(None, &secret.key(NQN)).unwrap().to_string(), transformed, "{hash}");
        }
    }

    #[test]
    fn without_a_transform_the_secret_is_the_key() {
        assert_eq!(&*Secret::new(None, &counting(48)).unwrap().key(NQN), counting(48));
    }

    #[test]
    fn every_length_may_have_every_transform() {
        for transform in [None, Some(Hash::Sha256), Some(Hash::Sha384), Some(Hash::Sha512)] {
            for length in [32, 48, 64] {
                let secret = Secret::new(transform, &counting(length)).unwrap();
                assert_eq!(Secret::parse(&secret.to_string()), Ok(secret));
            }
        }
    }

    #[test]
    fn a_generated_secret_is_as_long_as_its_hash() {
        assert_eq!(Secret::generate(None, [9; 64]), Secret::new(None, &[9; 32]).unwrap());
        for hash in Hash::ALL {
            let secret = Secret::generate(Some(hash), [9; 64]);
            assert_eq!(secret, Secret::new(Some(hash), &vec![9; hash.length_bytes()]).unwrap());
        }
    }

    #[test]
    fn each_invalid_part_is_named() {
        let body = "ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n";
        let cases = [
            (String::new(), SecretError::Prefix),
            (format!("DHHC-2:00:{body}:"), SecretError::Prefix),
            (format!(" {EXAMPLE}"), SecretError::Prefix),
            (format!("DHHC-1:00:{body}"), SecretError::Form),
            ("DHHC-1:00".to_owned(), SecretError::Form),
            (format!("{EXAMPLE}\n"), SecretError::Form),
            (format!("DHHC-1:00:{body}::"), SecretError::Form),
            (format!("DHHC-1:04:{body}:"), SecretError::Transform),
            (format!("DHHC-1:1:{body}:"), SecretError::Transform),
            (format!("DHHC-1:00:{}*:", &body[1..]), SecretError::Base64),
            (format!("DHHC-1:00:{}:", &body[1..]), SecretError::Base64),
            (format!("DHHC-1:00:{}:", &body[4..]), SecretError::Length(29)),
            ("DHHC-1:00::".to_owned(), SecretError::Length(0)),
            (format!("DHHC-1:00:j{}:", &body[1..]), SecretError::Checksum),
        ];
        for (text, error) in cases {
            assert_eq!(Secret::parse(&text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn debug_output_does_not_contain_a_secret() {
        assert_eq!(format!("{:?}", Secret::parse(EXAMPLE).unwrap()), "Secret { transform: None, .. }");
    }
}

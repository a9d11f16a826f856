//! The file with the saved reservations of hosts (Persist Through Power Loss) on a namespace, in the
//! directory of its volume or pool.
//!
//! ```text
//! byte 0..8   magic "zondvres", of a pool "zondpres"
//!      8..12  version, 1                  32..36  number of saved bytes
//!     12..16  CRC-32C of all from 16 on   36..    these bytes (zonda_nvme::reservation::SavedReservations), to the end of the file
//!     16..32  UUID of the volume (array), or of the namespace of a pool
//! ```
//!
//! Numbers are little endian. The file is replaced atomically and is durable before the command of
//! a host completes. The file that describes the volume or pool records whether reservations are saved,
//! so that a lost file is detected, and a zonda that does not support the file refuses the volume or
//! pool.

use std::io::{self, ErrorKind};
use std::path::Path;

use zonda_nvme::reservation::SAVED_RESERVATIONS_BYTES_MAX;
use zonda_nvme::tcp::crc32c;
use zonda_ring::{Bytes, File, FileOptions};

const VERSION: u32 = 1;
const HEADER_BYTES: usize = 36;

/// Whose reservations a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holding {
    /// Those on the volume with this UUID.
    Volume([u8; 16]),
    /// Those on the namespace of a pool with this UUID.
    Namespace([u8; 16]),
}

impl Holding {
    fn magic(&self) -> &'static [u8; 8] {
        match self {
            Holding::Volume(_) => b"zondvres",
            Holding::Namespace(_) => b"zondpres",
        }
    }

    fn uuid(&self) -> &[u8; 16] {
        let (Holding::Volume(uuid) | Holding::Namespace(uuid)) = self;
        uuid
    }

    fn kind(&self) -> &'static str {
        match self {
            Holding::Volume(_) => "volume",
            Holding::Namespace(_) => "namespace",
        }
    }

    /// The contents of a file with these bytes.
    pub(crate) fn encode(&self, bytes: &[u8]) -> Vec<u8> {
        let mut file = Vec::with_capacity(HEADER_BYTES + bytes.len());
        file.extend(self.magic());
        file.extend(VERSION.to_le_bytes());
        file.extend([0; 4]);
        file.extend(self.uuid());
        file.extend((bytes.len() as u32).to_le_bytes());
        file.extend(bytes);
        let sum = crc32c(&file[16..]).to_le_bytes();
        file[12..16].copy_from_slice(&sum);
        file
    }

    /// The saved bytes of a file, or its error.
    fn decode(&self, file: &[u8]) -> Result<Bytes, String> {
        let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("the slice has four bytes"));
        if file.len() < HEADER_BYTES || file[..8] != *self.magic() {
            return Err("are damaged: the magic is wrong".to_owned());
        }
        if number(8) != VERSION {
            return Err(format!("have format version {}, this program supports {VERSION}", number(8)));
        }
        if number(12) != crc32c(&file[16..]) || number(32) as usize != file.len() - HEADER_BYTES {
            return Err("are damaged: the checksum or the length is wrong".to_owned());
        }
        if file[16..32] != *self.uuid() {
            return Err(format!("are those of another {}", self.kind()));
        }
        Ok(Bytes::copy_from_slice(&file[HEADER_BYTES..]))
    }

    /// The saved bytes in the file at `place`, which must exist if `is_kept`; none otherwise.
    ///
    /// # Errors
    /// What is wrong with the file, as in "the saved reservations ...".
    pub(crate) fn load(&self, place: &Path, is_kept: bool) -> Result<Bytes, String> {
        let found = read(place).map_err(|error| format!("cannot be read: {error}"))?;
        match found {
            Some(found) => self.decode(&found),
            None if is_kept => Err("are lost: no such file".to_owned()),
            None => Ok(Bytes::new()),
        }
    }
}

fn read(place: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(place, FileOptions::read_only()) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // One byte more than the maximum detects a file that is too long.
    let mut bytes = vec![0; HEADER_BYTES + SAVED_RESERVATIONS_BYTES_MAX + 1];
    let length = file.length()?.min(bytes.len() as u64) as usize;
    let read = file.read_at(&mut bytes[..length], 0)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_VOLUME: Holding = Holding::Volume([1; 16]);

    #[test]
    fn the_file_has_its_fields_at_the_specified_offsets() {
        for (holding, head) in [
            (Holding::Volume([0xab; 16]), b"zondvres\x01\0\0\0"),
            (Holding::Namespace([0xab; 16]), b"zondpres\x01\0\0\0"),
        ] {
            let file = holding.encode(b"kept");
            assert_eq!(file[..12], *head);
            assert_eq!(file[16..], [&[0xab; 16][..], &[4, 0, 0, 0], b"kept"].concat());
            assert_eq!(file[12..16], crc32c(&file[16..]).to_le_bytes());
            assert_eq!(holding.decode(&file), Ok(Bytes::from_static(b"kept")));
        }
        assert_eq!(OF_VOLUME.decode(&OF_VOLUME.encode(b"")), Ok(Bytes::new()));
    }

    #[test]
    fn every_changed_byte_and_every_truncation_is_detected() {
        let file = OF_VOLUME.encode(b"kept");
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 0x10;
            assert!(OF_VOLUME.decode(&changed).is_err(), "byte {at}");
            assert!(OF_VOLUME.decode(&file[..at]).is_err(), "{at} bytes");
        }
        assert!(OF_VOLUME.decode(&[&file[..], &[0]].concat()).is_err());
        let other = Holding::Volume([2; 16]).decode(&file).expect_err("it belongs to another volume");
        assert!(other.contains("another volume"), "{other}");
        assert!(Holding::Namespace([1; 16]).decode(&file).is_err(), "a volume is no namespace of a pool");
    }
}

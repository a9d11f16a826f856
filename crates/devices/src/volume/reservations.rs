//! The saved reservations of hosts (Persist Through Power Loss): a file in the directory of the
//! volume.
//!
//! ```text
//! byte 0..8   magic "zondvres"            16..32  UUID of the volume (array)
//!      8..12  version, 1                  32..36  number of saved bytes
//!     12..16  CRC-32C of all from 16 on   36..    these bytes (zonda_nvme::reservation::SavedReservations), to the end of the file
//! ```
//!
//! Numbers are little endian. The file is replaced atomically and is durable before the command of
//! a host completes. `volume.toml` records whether reservations are saved, so that a lost file is
//! detected, and a zonda that does not support the file refuses the volume.

use std::io::{self, ErrorKind};
use std::path::Path;

use zonda_nvme::reservation::SAVED_RESERVATIONS_BYTES_MAX;
use zonda_nvme::tcp::crc32c;
use zonda_ring::{Bytes, File, FileOptions};

use super::VolumeDrive;
use super::directory::VolumeDirectory;
use crate::DriveError;

/// The name of the file.
const FILE: &str = "reservations";
/// The name of the new file until it is durable.
const NEW_FILE: &str = "reservations.new";
const MAGIC: [u8; 8] = *b"zondvres";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 36;

/// The saved reservations of a volume.
#[derive(Debug, Default)]
pub(super) struct ReservationStore {
    bytes: Bytes,
    /// The result of the last save, until it is taken.
    ended: Option<bool>,
}

impl ReservationStore {
    /// Loads the saved reservations of the volume in a directory.
    ///
    /// # Errors
    /// When reservations were saved and cannot be read; with the remedy. The volume must not be
    /// mounted without them: hosts that they lock out could write.
    pub(super) fn of(directory: &VolumeDirectory) -> Result<ReservationStore, DriveError> {
        let place = directory.path().join(FILE);
        let wrong = |what: String| {
            DriveError::new(
                format!("the saved reservations of the volume, in {}, {what}", place.display()),
                format!(
                    "restore the file from a copy; or, if no host relies on its reservation any more, remove the file \
                     and the line keeps_reservations of {}",
                    super::VOLUME_FILE
                ),
            )
        };
        let found = read(&place).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        let Some(found) = found else {
            return if directory.file.keeps_reservations {
                Err(wrong("are lost: no such file".to_owned()))
            } else {
                Ok(ReservationStore::default())
            };
        };
        let bytes = decode(&found, directory.array()?).map_err(wrong)?;
        Ok(ReservationStore { bytes, ended: None })
    }

    pub(super) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    pub(super) fn take_ended(&mut self) -> Option<bool> {
        self.ended.take()
    }
}

impl VolumeDrive {
    /// Saves these bytes in place of those saved before; empty: removes them. When this returns,
    /// they are durable or saving has failed.
    pub(super) fn store_reservations(&mut self, bytes: Bytes) {
        assert!(bytes.len() <= SAVED_RESERVATIONS_BYTES_MAX, "{} bytes of reservations", bytes.len());
        let saved = if self.is_taken_over() {
            Err(io::Error::other("another server has taken over the volume"))
        } else {
            write(&mut self.directory, &bytes)
        };
        self.reservations.ended = Some(saved.is_ok());
        match saved {
            Ok(()) => self.reservations.bytes = bytes,
            Err(error) => self.notify(true, format!("cannot save a change of reservations: {error}")),
        }
    }
}

/// Writes the file before the flag in `volume.toml`: a crash in between leaves at most a file that
/// is not needed.
fn write(directory: &mut VolumeDirectory, bytes: &[u8]) -> io::Result<()> {
    let array = directory.array().map_err(|error| io::Error::other(error.message))?;
    directory.replace(FILE, NEW_FILE, &encode(bytes, array))?;
    let before = std::mem::replace(&mut directory.file.keeps_reservations, !bytes.is_empty());
    if before != directory.file.keeps_reservations
        && let Err(error) = directory.save()
    {
        directory.file.keeps_reservations = before;
        return Err(error);
    }
    Ok(())
}

fn encode(bytes: &[u8], array: [u8; 16]) -> Vec<u8> {
    let mut file = Vec::with_capacity(HEADER_BYTES + bytes.len());
    file.extend(MAGIC);
    file.extend(VERSION.to_le_bytes());
    file.extend([0; 4]);
    file.extend(array);
    file.extend((bytes.len() as u32).to_le_bytes());
    file.extend(bytes);
    let sum = crc32c(&file[16..]).to_le_bytes();
    file[12..16].copy_from_slice(&sum);
    file
}

/// The saved bytes of a file, or its error.
fn decode(file: &[u8], array: [u8; 16]) -> Result<Bytes, String> {
    let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("the slice has four bytes"));
    if file.len() < HEADER_BYTES || file[..8] != MAGIC {
        return Err("are damaged: the magic is wrong".to_owned());
    }
    if number(8) != VERSION {
        return Err(format!("have format version {}, this program supports {VERSION}", number(8)));
    }
    if number(12) != crc32c(&file[16..]) || number(32) as usize != file.len() - HEADER_BYTES {
        return Err("are damaged: the checksum or the length is wrong".to_owned());
    }
    if file[16..32] != array {
        return Err("are those of another volume".to_owned());
    }
    Ok(Bytes::copy_from_slice(&file[HEADER_BYTES..]))
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

    #[test]
    fn the_file_has_its_fields_at_the_specified_offsets() {
        let file = encode(b"kept", [0xab; 16]);
        assert_eq!(file[..12], *b"zondvres\x01\0\0\0");
        assert_eq!(file[16..], [&[0xab; 16][..], &[4, 0, 0, 0], b"kept"].concat());
        assert_eq!(file[12..16], crc32c(&file[16..]).to_le_bytes());
        assert_eq!(decode(&file, [0xab; 16]), Ok(Bytes::from_static(b"kept")));
        assert_eq!(decode(&encode(b"", [1; 16]), [1; 16]), Ok(Bytes::new()));
    }

    #[test]
    fn every_changed_byte_and_every_truncation_is_detected() {
        let file = encode(b"kept", [1; 16]);
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 0x10;
            assert!(decode(&changed, [1; 16]).is_err(), "byte {at}");
            assert!(decode(&file[..at], [1; 16]).is_err(), "{at} bytes");
        }
        assert!(decode(&[&file[..], &[0]].concat(), [1; 16]).is_err());
        let other = decode(&file, [2; 16]).expect_err("it belongs to another volume");
        assert!(other.contains("another volume"), "{other}");
    }
}

//! What hosts have reserved of a volume, and want to outlive its server: a file in the volume's directory, which goes with it.
//!
//! ```text
//! byte 0..8   magic "zondvres"            16..32  the volume's UUID (array)
//!      8..12  version, 1                  32..36  bytes that are kept
//!     12..16  CRC-32C of all from 16 on   36..    these bytes (zonda_nvme::reservation::SavedReservations), nothing behind them
//! ```
//!
//! Numbers are little endian. The file is replaced as a whole and is durable before a host is answered. `volume.toml` says whether
//! something is kept, so that a file that is lost is noticed, and a zonda that knows no such file refuses the volume.

use std::io::{self, ErrorKind};
use std::path::Path;

use zonda_nvme::reservation::SAVED_RESERVATIONS_BYTES_MAX;
use zonda_nvme::tcp::crc32c;
use zonda_ring::{Bytes, File, FileOptions};

use super::VolumeDrive;
use super::directory::VolumeDirectory;
use crate::DriveError;

/// What is kept.
const FILE: &str = "reservations";
/// The next version of it, until it is durable.
const NEW_FILE: &str = "reservations.new";
const MAGIC: [u8; 8] = *b"zondvres";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 36;

/// What a volume has kept of reservations.
#[derive(Debug, Default)]
pub(super) struct Kept {
    bytes: Bytes,
    /// How keeping the last bytes ended, until that is asked for.
    ended: Option<bool>,
}

impl Kept {
    /// What the volume in a directory has kept.
    ///
    /// # Errors
    /// When something was kept and cannot be read; and what to do. It must not be taken for no reservation: hosts that were shut
    /// out would write.
    pub(super) fn of(directory: &VolumeDirectory) -> Result<Kept, DriveError> {
        let place = directory.path().join(FILE);
        let wrong = |what: String| {
            DriveError::new(
                format!("the reservations of the volume, in {}, {what}", place.display()),
                format!(
                    "bring the file back from a copy; or, where no host relies on its reservation any more, remove the file and the line \
                     keeps_reservations of {}",
                    super::VOLUME_FILE
                ),
            )
        };
        let found = read(&place).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        let Some(found) = found else {
            return if directory.file.keeps_reservations {
                Err(wrong("are lost: there is no such file".to_owned()))
            } else {
                Ok(Kept::default())
            };
        };
        let bytes = decode(&found, directory.array()?).map_err(wrong)?;
        Ok(Kept { bytes, ended: None })
    }

    pub(super) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    pub(super) fn take_ended(&mut self) -> Option<bool> {
        self.ended.take()
    }
}

impl VolumeDrive {
    /// Keeps these bytes in place of those kept before; none: keeps nothing. They are durable, or not, when this returns.
    pub(super) fn keep_for_hosts(&mut self, bytes: Bytes) {
        assert!(bytes.len() <= SAVED_RESERVATIONS_BYTES_MAX, "{} bytes of reservations", bytes.len());
        let kept = if self.is_taken_over() {
            Err(io::Error::other("another server has taken over the volume"))
        } else {
            write(&mut self.directory, &bytes)
        };
        self.reservations.ended = Some(kept.is_ok());
        match kept {
            Ok(()) => self.reservations.bytes = bytes,
            Err(error) => self.tell(true, format!("a change of reservations could not be kept: {error}")),
        }
    }
}

/// First the file, then what says whether there must be one: after a crash between there may be one that need not be.
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

/// The bytes that are kept in a file; or what is wrong with it.
fn decode(file: &[u8], array: [u8; 16]) -> Result<Bytes, String> {
    let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("the slice has four bytes"));
    if file.len() < HEADER_BYTES || file[..8] != MAGIC {
        return Err("are damaged: the file does not begin as one".to_owned());
    }
    if number(8) != VERSION {
        return Err(format!("have format version {}, this program reads {VERSION}", number(8)));
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
    // One byte more than there can be shows that there is too much.
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
    fn the_file_has_its_fields_where_the_format_says() {
        let file = encode(b"kept", [0xab; 16]);
        assert_eq!(file[..12], *b"zondvres\x01\0\0\0");
        assert_eq!(file[16..], [&[0xab; 16][..], &[4, 0, 0, 0], b"kept"].concat());
        assert_eq!(file[12..16], crc32c(&file[16..]).to_le_bytes());
        assert_eq!(decode(&file, [0xab; 16]), Ok(Bytes::from_static(b"kept")));
        assert_eq!(decode(&encode(b"", [1; 16]), [1; 16]), Ok(Bytes::new()));
    }

    #[test]
    fn every_byte_that_changes_and_every_end_that_is_missing_is_noticed() {
        let file = encode(b"kept", [1; 16]);
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 0x10;
            assert!(decode(&changed, [1; 16]).is_err(), "byte {at}");
            assert!(decode(&file[..at], [1; 16]).is_err(), "{at} bytes");
        }
        assert!(decode(&[&file[..], &[0]].concat(), [1; 16]).is_err());
        let other = decode(&file, [2; 16]).expect_err("it is not its own");
        assert!(other.contains("another volume"), "{other}");
    }
}

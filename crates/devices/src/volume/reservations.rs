//! The saved reservations of hosts (Persist Through Power Loss): a file in the directory of the
//! volume, in the format of [`crate::saved_reservations`]. `volume.toml` records whether reservations are
//! saved, so that a lost file is detected, and a zonda that does not support the file refuses the volume.

use std::io;

use zonda_nvme::reservation::SAVED_RESERVATIONS_BYTES_MAX;
use zonda_ring::Bytes;

use super::VolumeDrive;
use super::directory::VolumeDirectory;
use crate::DriveError;
use crate::saved_reservations::Holding;

/// The name of the file.
const FILE: &str = "reservations";
/// The name of the new file until it is durable.
const NEW_FILE: &str = "reservations.new";

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
        let holding = Holding::Volume(directory.array()?);
        let bytes = holding.load(&place, directory.file.keeps_reservations).map_err(wrong)?;
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
    directory.replace(FILE, NEW_FILE, &Holding::Volume(array).encode(bytes))?;
    let before = std::mem::replace(&mut directory.file.keeps_reservations, !bytes.is_empty());
    if before != directory.file.keeps_reservations
        && let Err(error) = directory.save()
    {
        directory.file.keeps_reservations = before;
        return Err(error);
    }
    Ok(())
}

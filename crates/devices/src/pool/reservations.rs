//! The saved reservations of hosts on the namespaces of a pool (Persist Through Power Loss): a file for
//! each namespace in the directory of the pool, in the format of [`crate::saved_reservations`].
//!
//! A file belongs to the UUID of its namespace, so that one that is deleted and created again under the
//! same name has none. `pool.toml` lists the namespaces that have saved reservations: if their file is
//! lost, the namespace is not served, because hosts that they lock out could write.

use std::io;

use zonda_nvme::reservation::SAVED_RESERVATIONS_BYTES_MAX;
use zonda_ring::Bytes;
use zonda_zoned::Instant;

use super::POOL_FILE;
use super::directory::PoolDirectory;
use super::shared::OpenPool;
use crate::saved_reservations::Holding;
use crate::{DriveError, random};

/// The name of a new file until it is durable.
const NEW_FILE: &str = "reservations.new";

fn file_of(uuid: &[u8; 16]) -> String {
    format!("reservations-{}", random::uuid_text(uuid))
}

impl OpenPool {
    /// Loads the saved reservations of a namespace.
    ///
    /// # Errors
    /// When reservations were saved and cannot be read; with the remedy.
    pub(super) fn load_reservations(&self, name: &str, uuid: &[u8; 16]) -> Result<Bytes, DriveError> {
        let (path, own) = (self.directory.path(), random::uuid_text(uuid));
        let place = path.join(file_of(uuid));
        Holding::Namespace(*uuid).load(&place, self.directory.keeps_reservations(&own)).map_err(|what| {
            DriveError::new(
                format!("the saved reservations of namespace \"{name}\" of the pool, in {}, {what}", place.display()),
                format!(
                    "restore the file from a copy; or, if no host relies on its reservation any more, remove the file and \
                     \"{own}\" from keeps_reservations of {}",
                    path.join(POOL_FILE).display()
                ),
            )
        })
    }

    /// Saves these bytes in place of those saved before; empty: removes them. When this returns, they
    /// are durable or saving has failed. Returns whether they are.
    pub(super) fn store_reservations(&mut self, now: Instant, uuid: &[u8; 16], bytes: &[u8]) -> bool {
        assert!(bytes.len() <= SAVED_RESERVATIONS_BYTES_MAX, "{} bytes of reservations", bytes.len());
        let saved = if self.ownership.is_taken() {
            Err(io::Error::other("another server has taken over the pool"))
        } else if !self.ownership.is_confirmed(self.device.drive().member(), now) {
            // After a pause or without a connection another server may have the pool.
            Err(io::Error::other("the drive has not confirmed yet that it is reserved for this server"))
        } else {
            write(&mut self.directory, uuid, bytes)
        };
        if let Err(error) = &saved {
            self.warnings.push_back(format!("cannot save a change of reservations: {error}"));
        }
        saved.is_ok()
    }

    /// A namespace was deleted: the file of its reservations is removed. If that fails or the program is
    /// killed before, a file remains that no namespace has any more.
    pub(super) fn forget_reservations(&mut self, uuid: &[u8; 16]) {
        if self.directory.keeps_reservations(&random::uuid_text(uuid)) {
            let now = self.advance(Instant::ZERO);
            self.store_reservations(now, uuid, b"");
        }
    }
}

/// Writes the file before the list in `pool.toml`: a crash in between leaves at most a file that is not
/// needed.
fn write(directory: &mut PoolDirectory, uuid: &[u8; 16], bytes: &[u8]) -> io::Result<()> {
    let (name, own) = (file_of(uuid), random::uuid_text(uuid));
    directory.replace(&name, NEW_FILE, &Holding::Namespace(*uuid).encode(bytes))?;
    directory.keep_reservations(&own, !bytes.is_empty()).map_err(|error| io::Error::other(error.message))?;
    if bytes.is_empty() {
        directory.remove_file(&name);
    }
    Ok(())
}

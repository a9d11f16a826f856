//! An import takes over members that a lost server left reserved, if the directory of their volume
//! is lost, too.
//!
//! The superblock of a reserved drive cannot be read. The key of its holder has the first bytes of
//! the UUID of the volume, so no reservation is preempted unless all holders have keys of one
//! volume; the superblock that is then read must match. From then on the drives are reserved
//! without interruption: first for the import, then for the directory that it has written.

use std::path::Path;

use zonda_initiator::{Claim, Holder, Preempts};
use zonda_nvme::HostId;
use zonda_nvme::reservation::ReservationKey;
use zonda_raid::Identity;
use zonda_ring::Ring;

use super::directory::{FileState, VolumeDirectory, VolumeFile, is_volume, read, uuid_of};
use super::identities::identity;
use super::import::{ImportOptions, absolute};
use super::member_device::{MemberDevice, is_behind_server, release_acquired};
use super::owner::{describe_holder, upper_half};
use super::takeover::{TakenDrive, TakeoverOptions};
use crate::probe::{Probe, describe};
use crate::{Access, DriveError, Location, NamespaceOptions, VolumeDrive, random};

/// Drives that an import takes over.
pub(super) struct ImportTakeover {
    host: HostId,
    /// Reserved drives, and their holders.
    held: Vec<(Location, Holder)>,
    taken: Vec<Taken>,
}

struct Taken {
    location: Location,
    device: MemberDevice,
    from: String,
}

impl ImportTakeover {
    /// Determines the holders of the named drives. No reservation is preempted yet.
    ///
    /// # Errors
    /// When they are reserved for several volumes, or for another one than the given UUID.
    pub(super) fn new(options: &ImportOptions, ring: &Ring) -> Result<ImportTakeover, DriveError> {
        let host = HostId(random::bytes::<16>()?);
        let mut takeover = ImportTakeover { host, held: Vec::new(), taken: Vec::new() };
        let mut keys = options.uuid.as_deref().and_then(uuid_of).as_ref().map(upper_half);
        let reach = options.credentials.options()?;
        for location in options.members.iter().map(absolute).filter(is_behind_server) {
            let access = Access { location: location.clone(), options: reach.clone() };
            // An attempt to reserve it without preempting reports the holder.
            match takeover.claim(&access, 1, Preempts::NoHost, ring) {
                Ok(device) => release_acquired([device], ring),
                Err(DriveError { holder: Some(holder), .. }) => {
                    if *keys.get_or_insert(upper_of(&holder)) != upper_of(&holder) {
                        return Err(DriveError::reserved(
                            format!("{location} is reserved by {holder}, not for the same volume as the other drives"),
                            "name the drives of one volume; a host that is not a server of a volume has to release \
                             the drive itself",
                            holder,
                        ));
                    }
                    takeover.held.push((location, holder));
                }
                // Reading its superblock reports the error.
                Err(_) => {}
            }
        }
        Ok(takeover)
    }

    /// Reads the superblock of a drive. If it is reserved, the import preempts its holder first.
    ///
    /// # Errors
    /// When it cannot be opened, or was reserved by a host that is not a server of the volume of
    /// which it is a member.
    pub(super) fn look(&mut self, access: &Access, ring: &Ring) -> Result<Option<Identity>, DriveError> {
        let location = &access.location;
        let Some((_, holder)) = self.held.iter().find(|(held, _)| held == location) else {
            return identity(access, ring);
        };
        let holder = *holder;
        let keys = upper_of(&holder);
        let mut own = [0; 8];
        own.copy_from_slice(&self.host.0[..8]);
        let mut device = self.claim(access, u64::from(keys) << 32 | 1, Preempts::KeysLike(keys, own), ring)?;
        let identity = Probe::of_superblock(device.own_geometry()).run_on_member(&mut device, ring)?.identity;
        match &identity {
            Some(Identity::Member(own)) if upper_half(&own.array) == keys => {
                let from = describe_holder("volume", &own.array, &holder);
                self.taken.push(Taken { location: location.clone(), device, from });
                Ok(identity)
            }
            other => {
                release_acquired([device], ring);
                let what = other.as_ref().map_or_else(|| "not a member of a volume".to_owned(), describe);
                let message =
                    format!("{location} was reserved by {holder}, which is not a server of its volume: it is {what}");
                Err(DriveError::new(message, "omit it"))
            }
        }
    }

    /// Reserves the `members` of servers for the volume in `path`, and releases the other drives.
    /// Returns the previous holders.
    ///
    /// # Errors
    /// When that is not possible; the drives stay reserved for the import.
    pub(super) fn finish(self, path: &Path, members: &[Location], ring: &Ring) -> Result<Vec<TakenDrive>, DriveError> {
        let (taken, others): (Vec<Taken>, Vec<Taken>) =
            self.taken.into_iter().partition(|taken| members.contains(&taken.location));
        release_acquired(others.into_iter().map(|taken| taken.device), ring);
        // The reservations of the others stay until those of the directory replace them.
        let drive =
            |Taken { location, from, .. }| TakenDrive { at: location.to_string(), taken_from: Some(from), error: None };
        let mut taken: Vec<TakenDrive> = taken.into_iter().map(drive).collect();
        if members.iter().any(is_behind_server) {
            let reserved = VolumeDrive::take_over(path, TakeoverOptions::default(), ring)?;
            if reserved.is_enough {
                end_import(path);
            }
            for drive in reserved.drives.into_iter().filter(|drive| drive.error.is_some()) {
                taken.retain(|taken| taken.at != drive.at);
                taken.push(drive);
            }
        }
        Ok(taken)
    }

    fn claim(&self, access: &Access, key: u64, preempts: Preempts, ring: &Ring) -> Result<MemberDevice, DriveError> {
        let claim = Some(Claim { key: ReservationKey(key), preempts });
        let options = NamespaceOptions { host_id: Some(self.host), claim, ..access.options.clone() };
        MemberDevice::open(&Access { location: access.location.clone(), options }, ring)
    }
}

impl VolumeDirectory {
    /// Sets the file that an import has made; `takes_over`: the import is not complete before its
    /// members are reserved. A continued import keeps the owner: its reservations may exist.
    pub(super) fn import(&mut self, file: VolumeFile, takes_over: bool) {
        let before = std::mem::replace(&mut self.file, file);
        if before.state == Some(FileState::Importing) {
            (self.file.owner, self.file.stays_reserved) = (before.owner, before.stays_reserved);
        }
        self.file.state = takes_over.then_some(FileState::Importing);
    }

    /// Refuses another volume than the one whose import was begun.
    pub(super) fn for_array(self, array: &[u8; 16]) -> Result<VolumeDirectory, DriveError> {
        if self.array()? == *array {
            return Ok(self);
        }
        Err(DriveError::new(
            format!("the import of another volume into {} was interrupted", self.path().display()),
            "choose another directory, or remove this one",
        ))
    }
}

/// Whether an import with takeover into this directory has written `volume.toml`, and was
/// interrupted before it had reserved the members: the same import continues.
#[must_use]
pub fn is_import_interrupted(path: &Path) -> bool {
    is_volume(path) && read(path).is_ok_and(|file| file.state == Some(FileState::Importing))
}

/// The directory of an import that was interrupted.
pub(super) fn continued(path: &Path) -> Result<Option<VolumeDirectory>, DriveError> {
    if !is_import_interrupted(path) {
        return Ok(None);
    }
    // Under the lock it may be a complete one.
    let directory = VolumeDirectory::open(path)?;
    Ok(Some(directory).filter(|directory| directory.file.state == Some(FileState::Importing)))
}

/// The members are reserved for the directory.
fn end_import(path: &Path) {
    // If this fails, the same import may be repeated, with the same result; the next assembly ends it.
    if let Ok(mut directory) = VolumeDirectory::open(path) {
        directory.file.state = None;
        let _ = directory.save();
    }
}

fn upper_of(holder: &Holder) -> u32 {
    (holder.key.0 >> 32) as u32
}

/// Adds the option --take-over to the remedy for a drive that a server has reserved.
pub(super) fn suggest_takeover(location: &Location, error: DriveError) -> DriveError {
    let help = "stop the server that has reserved it; if that server and its directory are lost for good: --take-over";
    let is_reserved = error.is_in_use && is_behind_server(location);
    if is_reserved { DriveError { help: help.to_owned(), ..error } } else { error }
}

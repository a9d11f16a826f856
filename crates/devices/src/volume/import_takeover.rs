//! Members that a server which is gone has left reserved, and whose volume's directory is lost: an import takes them over.
//!
//! Superblocks of a reserved drive cannot be read. The key of its holder has the first bytes of the volume's UUID, so that nothing is
//! taken before all holders have keys of one volume; afterwards the superblock has to say the same. From then on the drives are reserved
//! without a gap: first for the import, then for the directory that it has written.

use std::path::Path;

use zonda_initiator::{Claim, Holder, Preempts};
use zonda_nvme::HostId;
use zonda_nvme::reservation::ReservationKey;
use zonda_raid::Identity;
use zonda_ring::Ring;

use super::directory::uuid_of;
use super::identities::identity;
use super::import::{ImportOptions, absolute};
use super::owner::{holder_in_words, upper_half};
use super::seat::{Seat, give_back, is_behind_server};
use super::takeover::{TakenDrive, TakeoverOptions};
use crate::probe::{Probe, in_words};
use crate::{Access, DriveError, Location, NamespaceOptions, VolumeDrive, random};

/// Drives that an import takes over.
pub(super) struct ImportTakeover {
    host: HostId,
    /// Drives that are reserved, and by whom.
    held: Vec<(Location, Holder)>,
    taken: Vec<Taken>,
}

struct Taken {
    location: Location,
    seat: Seat,
    from: String,
}

impl ImportTakeover {
    /// Finds out who has the drives that are named. Nothing is taken yet.
    ///
    /// # Errors
    /// When they are reserved for several volumes, or for another one than is named.
    pub(super) fn new(options: &ImportOptions, ring: &Ring) -> Result<ImportTakeover, DriveError> {
        let host = HostId(random::bytes::<16>()?);
        let mut takeover = ImportTakeover { host, held: Vec::new(), taken: Vec::new() };
        let mut keys = options.uuid.as_deref().and_then(uuid_of).as_ref().map(upper_half);
        let reach = options.credentials.options()?;
        for location in options.members.iter().map(absolute).filter(is_behind_server) {
            let access = Access { location: location.clone(), options: reach.clone() };
            // Who has it is told to a host that asks for it without insisting.
            match takeover.claim(&access, 1, Preempts::Nobody, ring) {
                Ok(seat) => give_back([seat], ring),
                Err(DriveError { holder: Some(holder), .. }) => {
                    if *keys.get_or_insert(upper_of(&holder)) != upper_of(&holder) {
                        return Err(DriveError::reserved(
                            format!(
                                "{location} is reserved by {holder}, and not for the same volume as the other drives"
                            ),
                            "name the drives of one volume; a host that is no server of a volume has to release them itself",
                            holder,
                        ));
                    }
                    takeover.held.push((location, holder));
                }
                // Whoever looks at it says what is wrong.
                Err(_) => {}
            }
        }
        Ok(takeover)
    }

    /// What a drive holds. One that is reserved is reserved for this import before.
    ///
    /// # Errors
    /// When it cannot be opened, or was reserved by a host that is no server of the volume of which it is a member.
    pub(super) fn look(&mut self, access: &Access, ring: &Ring) -> Result<Option<Identity>, DriveError> {
        let location = &access.location;
        let Some((_, holder)) = self.held.iter().find(|(held, _)| held == location) else {
            return identity(access, ring);
        };
        let holder = *holder;
        let keys = upper_of(&holder);
        let mut own = [0; 8];
        own.copy_from_slice(&self.host.0[..8]);
        let mut seat = self.claim(access, u64::from(keys) << 32 | 1, Preempts::KeysLike(keys, own), ring)?;
        let identity = Probe::of_superblock(seat.own_geometry()).run(&mut seat, ring)?.identity;
        match &identity {
            Some(Identity::Member(own)) if upper_half(&own.array) == keys => {
                let from = holder_in_words(&own.array, &holder);
                self.taken.push(Taken { location: location.clone(), seat, from });
                Ok(identity)
            }
            other => {
                give_back([seat], ring);
                let what = other.as_ref().map_or_else(|| "no member of a volume".to_owned(), in_words);
                let message =
                    format!("{location} was reserved by {holder}, which is no server of its volume: it is {what}");
                Err(DriveError::new(message, "leave it out"))
            }
        }
    }

    /// Reserves the `members` that servers have for the volume in `path`, and gives back what was taken besides. Returns who had them.
    ///
    /// # Errors
    /// When that is not possible; what was taken stays reserved.
    pub(super) fn finish(self, path: &Path, members: &[Location], ring: &Ring) -> Result<Vec<TakenDrive>, DriveError> {
        let (taken, others): (Vec<Taken>, Vec<Taken>) =
            self.taken.into_iter().partition(|taken| members.contains(&taken.location));
        give_back(others.into_iter().map(|taken| taken.seat), ring);
        // The reservations of the others stay until those of the directory have taken their place.
        let drive =
            |Taken { location, from, .. }| TakenDrive { at: location.to_string(), taken_from: Some(from), error: None };
        let mut taken: Vec<TakenDrive> = taken.into_iter().map(drive).collect();
        if members.iter().any(is_behind_server) {
            let reserved = VolumeDrive::take_over(path, TakeoverOptions::default(), ring)?;
            for drive in reserved.drives.into_iter().filter(|drive| drive.error.is_some()) {
                taken.retain(|taken| taken.at != drive.at);
                taken.push(drive);
            }
        }
        Ok(taken)
    }

    fn claim(&self, access: &Access, key: u64, preempts: Preempts, ring: &Ring) -> Result<Seat, DriveError> {
        let claim = Some(Claim { key: ReservationKey(key), preempts });
        let options = NamespaceOptions { host_id: Some(self.host), claim, ..access.options.clone() };
        Seat::open(&Access { location: access.location.clone(), options }, ring)
    }
}

fn upper_of(holder: &Holder) -> u32 {
    (holder.key.0 >> 32) as u32
}

/// What else an import can do about a drive that a server has.
pub(super) fn or_take_over(location: &Location, error: DriveError) -> DriveError {
    let help =
        "stop the server that has reserved it; if that has failed for good, and its directory is lost: --take-over";
    let is_reserved = error.is_in_use && is_behind_server(location);
    if is_reserved { DriveError { help: help.to_owned(), ..error } } else { error }
}

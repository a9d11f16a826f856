//! [`Targets`]: the drives of a takeover. Their holders are determined, then they are reserved one after another,
//! and each is read before the next one is reserved.
//!
//! A drive that another host has reserved cannot be read, so the present state of the volume is
//! known only once one of its members is reserved. Its superblock shows whether this directory,
//! which may be older than a change of members, can stop the owner at all. If it cannot, the
//! takeover is refused: the reservations are restored for the owner, with its host identifier and
//! key, before this host releases them.

use std::cmp::Reverse;

use zonda_initiator::{Claim, Claimed, Holder, Preempts};
use zonda_nvme::HostId;
use zonda_raid::{Identity, MemberState, Membership};
use zonda_ring::Ring;
use zonda_zoned::{CompletionQueue, Duration, Instant, ZonedDevice};

use super::assembly::are_enough;
use super::assembly::member_of;
use super::contest::CONTEST_MAX;
use super::directory::{LastState, Place, VolumeDirectory};
use super::gathering::gather;
use super::lease::LEASE;
use super::member_device::{MemberDevice, is_behind_server, release};
use super::owner::upper_half;
use super::quorum::usable_elsewhere;
use crate::probe::Probe;
use crate::{Access, DriveError};

/// Timeout of reading a superblock: an owner waits a little longer for its member to be restored.
const READ_MAX: Duration = LEASE;
/// If an iteration of the event loop ends this much later than requested, the program was paused:
/// that does not count for the timeout.
const PAUSE_MIN: Duration = Duration(READ_MAX.0 / 4);

const _: () = assert!(READ_MAX.0 < CONTEST_MAX.0);

/// A member or spare that a takeover is to reserve.
pub(super) struct Target {
    pub(super) place: Place,
    pub(super) is_member: bool,
    pub(super) step: Step,
    /// Its superblock was read, or it has none, like a spare or a member whose rebuild has just
    /// begun.
    pub(super) is_read: bool,
    /// The probe that reads it, over the present connection.
    pub(super) probe: Option<Probe>,
    /// Its superblock, if it could be read.
    pub(super) identity: Option<Identity>,
    /// The reservation as first acquired.
    pub(super) claimed: Option<Claimed>,
    /// When it was last known to have the holder that it had at the beginning, or to be reserved
    /// for this takeover.
    pub(super) known_at: Instant,
}

pub(super) enum Step {
    /// It is reserved for this directory: it was not reserved, was reserved for it before, or its
    /// holder was preempted.
    Reserved(MemberDevice),
    /// Another host has reserved it.
    ReservedByOther(DriveError),
    Missing(DriveError),
}

/// The members in their order, then the spares.
pub(super) struct Targets {
    pub(super) targets: Vec<Target>,
    pub(super) array: [u8; 16],
    /// Whether to preempt hosts that are not servers of this volume.
    pub(super) force: bool,
    /// An owner with a greater epoch than this began after this takeover.
    pub(super) newest_epoch: u32,
    /// The hosts that held drives at the beginning.
    pub(super) hosts: Vec<HostId>,
}

impl Target {
    fn membership(&self, array: [u8; 16]) -> Option<&Membership> {
        match &self.identity {
            Some(Identity::Member(own)) if own.array == array && !matches!(self.step, Step::Missing(_)) => Some(own),
            _ => None,
        }
    }

    /// Whether it is open, and not read yet.
    fn is_unread(&self) -> bool {
        matches!(self.step, Step::Reserved(_)) && !self.is_read
    }

    /// Continues the probe, which may complete late.
    pub(super) fn poll(&mut self, now: Instant) {
        let Step::Reserved(device) = &mut self.step else { return };
        let Some(probe) = self.probe.as_mut().filter(|_| !device.is_refused()) else {
            // Another takeover may have reserved it by now.
            self.probe = None;
            return device.poll(now, &mut CompletionQueue::new());
        };
        if let Some(probed) = probe.poll(device, now) {
            // Reads that were aborted by a lost connection look like reads of damaged blocks.
            self.is_read = probed.is_ok() && !device.drive.is_disconnected();
            self.identity = probed.ok().and_then(|probed| probed.identity);
            self.probe = None;
        }
    }

    /// The other host that has reserved it.
    pub(super) fn holder(&self) -> Option<Holder> {
        match &self.step {
            Step::ReservedByOther(error) => error.holder,
            _ => None,
        }
    }

    /// Records the reservation of an open drive. The first one is kept, since it has the previous
    /// holder.
    pub(super) fn granted(&mut self, directory: &mut VolumeDirectory) {
        let Step::Reserved(device) = &self.step else { return };
        let claimed = device.drive.claimed();
        self.claimed = self.claimed.or(claimed);
        if let (Some(claimed), Some(owner)) = (claimed, directory.owner_mut()) {
            owner.granted(&claimed);
        }
    }
}

impl Targets {
    /// Whether the volume can be assembled from the reserved drives, as far as their superblocks are
    /// known: where members are pairs, their number alone does not decide.
    pub(super) fn can_be_assembled(&self) -> bool {
        let reserved = || self.targets.iter().filter(|target| matches!(target.step, Step::Reserved(_)));
        let own: Vec<&Membership> = reserved().filter_map(|target| target.membership(self.array)).collect();
        let newest = own.iter().max_by_key(|own| (own.epoch, own.sequence));
        let Some(newest) = newest.filter(|newest| newest.scheme.is_some()) else { return true };
        reserved().any(Target::is_unread) || are_enough(own.iter().copied(), newest)
    }

    /// Determines the holders of all drives. Reserves and reads those that are not reserved;
    /// preempts no other host.
    pub(super) fn ask(directory: &VolumeDirectory, force: bool, ring: &Ring) -> Result<Targets, DriveError> {
        let (array, known_at) = (directory.array()?, ring.now());
        let places = directory.file.member.iter().map(|place| (place, true));
        let places: Vec<_> = places.chain(directory.file.spare.iter().map(|place| (place, false))).collect();
        let gathered = gather(places.iter().map(|(place, _)| directory.access(place)).collect(), false, ring);
        let targets = places.into_iter().zip(gathered).map(|((place, is_member), gathered)| {
            let is_remote = directory.access(place).is_ok_and(|access| is_behind_server(&access.location));
            let step = match gathered {
                Ok((device, _)) => Step::Reserved(device),
                Err(error) if error.is_in_use && is_remote => Step::ReservedByOther(error),
                Err(error) => Step::Missing(error),
            };
            // The previous holder counts from now on, even if the takeover is refused in the end.
            let claimed = match &step {
                Step::Reserved(device) => device.drive.claimed(),
                _ => None,
            };
            let place = place.clone();
            Target { place, is_member, step, is_read: false, probe: None, identity: None, claimed, known_at }
        });
        let targets: Vec<Target> = targets.collect();
        let epochs = targets.iter().filter_map(|target| target.holder().and_then(|holder| epoch_of(&holder, &array)));
        let newest_epoch = epochs.max().unwrap_or(0);
        let hosts = targets.iter().filter_map(|target| Some(target.holder()?.host)).collect();
        let mut targets = Targets { targets, array, force, newest_epoch, hosts };
        targets.read(false, ring);
        Ok(targets)
    }

    /// Refuses a takeover after which another server could continue with the members that are not
    /// reached, or no server could use the volume.
    pub(super) fn must_reach_enough(&self, directory: &VolumeDirectory) -> Result<(), DriveError> {
        let missing = self.targets.iter().enumerate().filter(|(_, target)| target.is_member);
        let missing = missing.filter_map(|(at, target)| match &target.step {
            Step::Missing(error) => Some(format!("member {at} ({}): {}", target.place.shown(), error.message)),
            _ => None,
        });
        let missing: Vec<String> = missing.collect();
        // If the file does not have the number of members that are enough, one may be.
        let enough = directory.file.enough.unwrap_or(1);
        // A spare may have become a member since the file was written.
        let reached = self.targets.iter().filter(|target| !matches!(target.step, Step::Missing(_))).count();
        let what = if missing.len() >= enough {
            "another server may continue with members that cannot be reserved"
        } else if reached < enough {
            "the volume could not be used from here, since too many members cannot be reserved"
        } else {
            return Ok(());
        };
        Err(DriveError::missing(
            format!("{what}: {}", missing.join("; ")),
            format!(
                "make them reachable from here; if no other server uses the volume: zonda volume takeover \
                 --accept-missing {}",
                directory.path().display()
            ),
        ))
    }

    /// A release must not preempt other hosts: refuses it if one has reserved a member.
    pub(super) fn must_be_from_here(&self, directory: &VolumeDirectory) -> Result<(), DriveError> {
        for (at, target) in self.targets.iter().enumerate().filter(|(_, target)| target.is_member) {
            if let Step::ReservedByOther(error) = &target.step {
                let what = format!("cannot release the members: member {at} ({})", target.place.at);
                let by = match (error.holder, directory.owner()) {
                    (Some(holder), Some(owner)) => format!("is reserved by {}", owner.shown(&holder)),
                    _ => format!("is in use: {}", error.message),
                };
                let help = format!(
                    "release it from the directory of that server; if that is lost for good, take the volume over \
                     first: zonda volume takeover {}",
                    directory.path().display()
                );
                return Err(DriveError::new(format!("{what} {by}"), help));
            }
        }
        Ok(())
    }

    /// Refuses a takeover after which the volume could not be used from here, or another server
    /// could continue, according to the newest superblock that was read: it has members that are
    /// not in this directory, or cannot be reached.
    pub(super) fn must_suffice(&self, directory: &VolumeDirectory) -> Result<(), DriveError> {
        let own = || self.targets.iter().filter_map(|target| target.membership(self.array));
        let Some(newest) = own().reduce(|best, next| if next.is_newer_than(best) { next } else { best }) else {
            return Ok(());
        };
        let found: Vec<usize> = own().filter_map(|own| member_of(own, newest)).collect();
        let unread = self.targets.iter().filter(|target| self.may_be_member(target)).count();
        let missing: Vec<String> = (0..newest.members.len())
            .filter(|at| newest.members[*at].state != MemberState::Failed && !found.contains(at))
            .map(|at| at.to_string())
            .collect();
        let missing = missing.join(", ");
        let what = if usable_elsewhere(newest, |at| found.contains(&at), unread).is_some() {
            "another server may continue with it"
        } else if !is_usable(newest, &found, unread) {
            "it could not be used from here"
        } else {
            return Ok(());
        };
        let known = directory.file.epoch.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string());
        Err(DriveError::new(
            format!(
                "the volume is not taken over, since {what}: too few of its members {missing} can be reserved. Some \
                 cannot be reached, or have other locations than in this directory, which has epoch {known} of the \
                 volume; the volume has reached {}",
                newest.epoch
            ),
            format!(
                "take the volume over from a newer copy of its directory, or correct the locations of these members \
                 in volume.toml; if no other server uses the volume: zonda volume takeover --accept-missing {}",
                directory.path().display()
            ),
        ))
    }

    /// Whether a drive that is not read yet may be an active member: it cannot be read before it is
    /// reserved. A drive that cannot be read then does not count as one: members may have been
    /// replaced since this directory was written. Nor does one without a superblock, as for a
    /// mount.
    fn may_be_member(&self, target: &Target) -> bool {
        match &target.step {
            Step::ReservedByOther(error) => {
                self.force || error.holder.is_none_or(|holder| epoch_of(&holder, &self.array).is_some())
            }
            Step::Reserved(_) | Step::Missing(_) => false,
        }
    }

    /// The drives that other hosts have reserved, in the order in which they are preempted.
    pub(super) fn order(&self) -> Vec<usize> {
        let is_others = |at: &usize| matches!(self.targets[*at].step, Step::ReservedByOther(_));
        let mut order: Vec<usize> = (0..self.targets.len()).filter(is_others).collect();
        order.sort_by_key(|at| {
            let target = &self.targets[*at];
            let epoch = target.holder().and_then(|holder| epoch_of(&holder, &self.array));
            (Reverse(epoch), !target.is_member, target.place.state == Some(LastState::Failed))
        });
        order
    }

    /// Preempts the holders of the drives one after another: first those with the newest owner,
    /// which are most likely the present members. With `checks` it stops when a superblock shows
    /// that the owner could continue. Before each drive, the reservations so far are confirmed.
    pub(super) fn take_all(
        &mut self,
        directory: &mut VolumeDirectory,
        checks: bool,
        ring: &Ring,
    ) -> Result<(), DriveError> {
        for target in &mut self.targets {
            target.granted(directory);
        }
        self.read_again(directory, checks, ring)?;
        let order = self.order();
        for at in order {
            self.must_be_own(directory, ring)?;
            self.read_again(directory, checks, ring)?;
            self.take(at, directory, ring)?;
            self.read_again(directory, checks, ring)?;
        }
        let is_known = self.targets.iter().any(|target| target.membership(self.array).is_some());
        if checks && !is_known {
            return Err(DriveError::new(
                "the volume is not taken over, since the superblocks of its members cannot be read",
                format!(
                    "check that its members respond, and repeat: zonda volume takeover {}",
                    directory.path().display()
                ),
            ));
        }
        Ok(())
    }

    /// Reads open drives that were not read yet, and checks again whether the takeover may
    /// continue.
    fn read_again(&mut self, directory: &mut VolumeDirectory, checks: bool, ring: &Ring) -> Result<(), DriveError> {
        self.read(false, ring);
        if !checks {
            return Ok(());
        }
        let suffices = self.must_suffice(directory);
        if suffices.is_ok() || !self.targets.iter().any(Target::is_unread) {
            return suffices;
        }
        // Drives that did not respond are reconnected and tried again.
        self.must_be_own(directory, ring)?;
        self.read(true, ring);
        self.must_suffice(directory)
    }

    /// Reads the superblocks of those that were not read yet, in parallel, while the connections to
    /// all others are kept alive. Waits for the probes that are begun now, or also for those that
    /// did not complete before.
    fn read(&mut self, waits_for_all: bool, ring: &Ring) {
        let mut awaited = Vec::new();
        for (at, target) in self.targets.iter_mut().enumerate().filter(|(_, target)| target.is_unread()) {
            let Step::Reserved(device) = &target.step else { continue };
            if waits_for_all || target.probe.is_none() {
                awaited.push(at);
            }
            target.probe.get_or_insert_with(|| Probe::of_superblock(device.own_geometry()));
        }
        let (mut until, mut due) = (ring.now() + READ_MAX, ring.now());
        loop {
            let now = ring.now();
            if now >= due + PAUSE_MIN {
                until += now.since(due);
            }
            self.targets.iter_mut().for_each(|target| target.poll(now));
            if now >= until || awaited.iter().all(|at| self.targets[*at].probe.is_none()) {
                return;
            }
            let wakeup = |target: &Target| match &target.step {
                Step::Reserved(device) => device.next_timeout(),
                _ => None,
            };
            let next = self.targets.iter().filter_map(wakeup).min().map_or(until, |next| next.min(until));
            if ring.run_once(Some(next)).is_err() {
                return;
            }
            due = next.max(now);
        }
    }

    /// Releases all reservations.
    pub(super) fn release(self, ring: &Ring) {
        let devices = self.targets.into_iter().filter_map(|target| match target.step {
            Step::Reserved(device) if device.is_claimed() && !device.is_refused() => Some(device),
            _ => None,
        });
        release(devices.collect(), ring);
    }

    /// The takeover is refused: restores the previous reservations, including those of preempted
    /// hosts. Drives that another takeover has reserved by now are left to it. Returns the drives
    /// for which that failed, and which stay reserved for this directory.
    pub(super) fn undo(self, directory: &VolumeDirectory, ring: &Ring) -> Vec<String> {
        let (mut unrestored, mut free, mut restored) = (Vec::new(), Vec::new(), Vec::new());
        for target in self.targets {
            let Target { claimed, place, .. } = target;
            let Step::Reserved(mut device) = target.step else { continue };
            match (claimed, directory.owner()) {
                // Reservations that this directory had before stay: they may be what locks out
                // another owner.
                (Some(claimed), Some(owner)) if owner.had(&claimed) => drop(device),
                (Some(Claimed { preempted: Some(holder), .. }), Some(owner)) => {
                    let preempts = Preempts::HostsLike(owner.place());
                    match restore_reservation(directory.access(&place), holder, preempts, ring) {
                        Ok(other) => {
                            device.stay_reserved();
                            restored.extend([device, other]);
                        }
                        Err(error) if error.holder.is_some() => free.push(device),
                        Err(_) => unrestored.push(place.at),
                    }
                }
                _ => free.push(device),
            }
        }
        release(free.into_iter().chain(restored).collect(), ring);
        unrestored
    }
}

/// Reserves a drive for its previous holder, with the host identifier and key of that host. The
/// drive is reserved at all times: otherwise a third host could access it, and so could a paused
/// one that the previous reservation locked out.
pub(crate) fn restore_reservation(
    access: Result<Access, DriveError>,
    holder: Holder,
    preempts: Preempts,
    ring: &Ring,
) -> Result<MemberDevice, DriveError> {
    let Access { location, mut options } = access?;
    options.host_id = Some(holder.host);
    options.claim = Some(Claim { key: holder.key, preempts });
    let mut device = MemberDevice::open(&Access { location, options }, ring)?;
    device.stay_reserved();
    Ok(device)
}

/// Whether the volume can be used with these members, and with the `unread` ones that may be
/// members.
fn is_usable(newest: &Membership, found: &[usize], unread: usize) -> bool {
    let is_active = |at: &&usize| newest.members[**at].state == MemberState::Active;
    let active = found.iter().filter(is_active).fold(0, |bits: u32, at| bits | 1 << at);
    newest.scheme.is_none_or(|scheme| match unread {
        0 => scheme.are_enough(active),
        unread => active.count_ones() as usize + unread >= usize::from(scheme.data),
    })
}

/// The owner epoch of a holder, if it is a server of the volume.
pub(crate) fn epoch_of(holder: &Holder, array: &[u8; 16]) -> Option<u32> {
    ((holder.key.0 >> 32) as u32 == upper_half(array)).then_some(holder.key.0 as u32)
}

//! [`Targets`]: the drives of a takeover. They are asked whose they are, then taken one after another, and each is read before the next one
//! is taken.
//!
//! A drive that another host has reserved cannot be read, so what the volume is by now is known only once one of its members is taken. Its
//! superblock says whether this directory, which may be older than a change of members, can stop the owner at all. If it cannot, the takeover
//! ends there: what was taken is reserved for its owner again, in the owner's name, before this host lets go of it.

use std::cmp::Reverse;

use zonda_initiator::{Claim, Claimed, Holder, Preempts};
use zonda_raid::{Identity, MemberState, Membership};
use zonda_ring::Ring;
use zonda_zoned::{CompletionQueue, Duration, Instant, ZonedDevice};

use super::contest::CONTEST_MAX;
use super::directory::{LastState, Place, VolumeDirectory};
use super::found::member_of;
use super::gathering::gather;
use super::lease::LEASE;
use super::owner::upper_half;
use super::quorum::usable_elsewhere;
use super::seat::{Seat, is_behind_server, release};
use crate::probe::Probe;
use crate::{Access, DriveError};

/// So long is waited for what a superblock says: an owner that is to have its member again waits a little longer.
const READ_MAX: Duration = LEASE;
/// A turn that ends so much later than it was to: the program was paused. Drives were not silent meanwhile.
const PAUSE_MIN: Duration = Duration(READ_MAX.0 / 4);

const _: () = assert!(READ_MAX.0 < CONTEST_MAX.0);

/// A member or spare that a takeover is to take.
pub(super) struct Target {
    pub(super) place: Place,
    pub(super) is_member: bool,
    pub(super) step: Step,
    /// It was read: what it holds is known, also if it has no superblock, like a spare or one of which a rebuild has just begun.
    pub(super) is_read: bool,
    /// What is reading it, over the present connection.
    pub(super) probe: Option<Probe>,
    /// What it holds, where that could be read.
    pub(super) identity: Option<Identity>,
    /// What was granted when it was first reserved.
    pub(super) claimed: Option<Claimed>,
}

pub(super) enum Step {
    /// It is reserved for this directory: it was free, was so before, or is taken by now.
    Reserved(Seat),
    /// Another host has it.
    InOtherHands(DriveError),
    Missing(DriveError),
}

/// The members in their order, then the spares.
pub(super) struct Targets {
    pub(super) targets: Vec<Target>,
    pub(super) array: [u8; 16],
    /// Hosts that are no servers of this volume lose its members, too.
    pub(super) force: bool,
    /// Who has a greater owner epoch than this came after this takeover.
    pub(super) newest_epoch: u32,
}

impl Target {
    fn membership(&self, array: [u8; 16]) -> Option<&Membership> {
        match &self.identity {
            Some(Identity::Member(own)) if own.array == array && !matches!(self.step, Step::Missing(_)) => Some(own),
            _ => None,
        }
    }

    /// Whether it is open, and has not said yet what it holds.
    fn is_unread(&self) -> bool {
        matches!(self.step, Step::Reserved(_)) && !self.is_read
    }

    /// Goes on with what is under way. What it holds may come to be known late.
    pub(super) fn poll(&mut self, now: Instant) {
        let Step::Reserved(seat) = &mut self.step else { return };
        let Some(probe) = self.probe.as_mut().filter(|_| !seat.is_refused()) else {
            // Another takeover may have it by now: it does not answer.
            self.probe = None;
            return seat.poll(now, &mut CompletionQueue::new());
        };
        if let Some(probed) = probe.poll(seat, now) {
            // Reads that a lost connection has cut off end as those of damaged blocks do.
            self.is_read = probed.is_ok() && !seat.drive.is_disconnected();
            self.identity = probed.ok().and_then(|probed| probed.identity);
            self.probe = None;
        }
    }

    /// Another host that has it.
    pub(super) fn holder(&self) -> Option<Holder> {
        match &self.step {
            Step::InOtherHands(error) => error.holder,
            _ => None,
        }
    }

    /// It is open: what was granted first counts, since that says who had it.
    pub(super) fn granted(&mut self, directory: &mut VolumeDirectory) {
        let Step::Reserved(seat) = &self.step else { return };
        let claimed = seat.drive.claimed();
        self.claimed = self.claimed.or(claimed);
        if let (Some(claimed), Some(owner)) = (claimed, directory.owner_mut()) {
            owner.granted(&claimed);
        }
    }
}

impl Targets {
    /// Asks all whose they are. Reserves and reads those that nobody has; nobody loses anything.
    pub(super) fn ask(directory: &VolumeDirectory, force: bool, ring: &Ring) -> Result<Targets, DriveError> {
        let array = directory.array()?;
        let places = directory.file.member.iter().map(|place| (place, true));
        let places: Vec<_> = places.chain(directory.file.spare.iter().map(|place| (place, false))).collect();
        let gathered = gather(places.iter().map(|(place, _)| directory.access(place)).collect(), false, ring);
        let targets = places.into_iter().zip(gathered).map(|((place, is_member), gathered)| {
            let is_remote = directory.access(place).is_ok_and(|access| is_behind_server(&access.location));
            let step = match gathered {
                Ok((seat, _)) => Step::Reserved(seat),
                Err(error) if error.is_in_use && is_remote => Step::InOtherHands(error),
                Err(error) => Step::Missing(error),
            };
            // Who had it before counts from now on, also if nothing is taken in the end.
            let claimed = match &step {
                Step::Reserved(seat) => seat.drive.claimed(),
                _ => None,
            };
            Target { place: place.clone(), is_member, step, is_read: false, probe: None, identity: None, claimed }
        });
        let targets: Vec<Target> = targets.collect();
        let epochs = targets.iter().filter_map(|target| target.holder().and_then(|holder| epoch_of(&holder, &array)));
        let newest_epoch = epochs.max().unwrap_or(0);
        let mut targets = Targets { targets, array, force, newest_epoch };
        targets.read(false, ring);
        Ok(targets)
    }

    /// Refuses a takeover after which another server might go on with the members that it does not reach, or nobody could use the volume.
    pub(super) fn must_reach_enough(&self, directory: &VolumeDirectory) -> Result<(), DriveError> {
        let missing = self.targets.iter().enumerate().filter(|(_, target)| target.is_member);
        let missing = missing.filter_map(|(at, target)| match &target.step {
            Step::Missing(error) => Some(format!("member {at} ({}): {}", target.place.at, error.message)),
            _ => None,
        });
        let missing: Vec<String> = missing.collect();
        // Where the file does not say how many are enough, one may be.
        let enough = directory.file.enough.unwrap_or(1);
        // A spare may have become a member since the file was written.
        let reached = self.targets.iter().filter(|target| !matches!(target.step, Step::Missing(_))).count();
        let what = if missing.len() >= enough {
            "another server may go on with members that cannot be taken"
        } else if reached < enough {
            "the volume could not be used from here, since too many members cannot be taken"
        } else {
            return Ok(());
        };
        Err(DriveError::new(
            format!("{what}: {}", missing.join("; ")),
            format!(
                "see that they can be reached from here; where no other server uses the volume: zonda volume takeover --accept-missing {}",
                directory.path().display()
            ),
        ))
    }

    /// Nobody loses anything by a release: what others have is taken over by a takeover, and not by the way.
    pub(super) fn must_be_from_here(&self, directory: &VolumeDirectory) -> Result<(), DriveError> {
        for (at, target) in self.targets.iter().enumerate().filter(|(_, target)| target.is_member) {
            if let Step::InOtherHands(error) = &target.step {
                let what = format!("nothing is released: member {at} ({})", target.place.at);
                let by = match (error.holder, directory.owner()) {
                    (Some(holder), Some(owner)) => format!("is reserved by {}", owner.shown(&holder)),
                    _ => format!("is in use: {}", error.message),
                };
                let help = format!(
                    "release it from the directory of that server; if it has failed for good, take the volume over first: zonda volume takeover {}",
                    directory.path().display()
                );
                return Err(DriveError::new(format!("{what} {by}"), help));
            }
        }
        Ok(())
    }

    /// Refuses a takeover after which the volume could not be used from here, or another server might go on, as far as the newest superblock that
    /// was read says: it has members that are none of the drives that this directory names, or cannot be reached.
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
            "another server may go on with it"
        } else if !is_usable(newest, &found, unread) {
            "it could not be used from here"
        } else {
            return Ok(());
        };
        let known = directory.file.epoch.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string());
        Err(DriveError::new(
            format!(
                "the volume is not taken over, since {what}: of its members {missing} too few can be taken. Some cannot be reached, or are not \
                 where this directory has them; it knows epoch {known} of the volume, which has reached {}",
                newest.epoch
            ),
            format!(
                "take the volume over from a newer copy of its directory, or name the drives of these members in volume.toml; where no other \
                 server uses the volume: zonda volume takeover --accept-missing {}",
                directory.path().display()
            ),
        ))
    }

    /// Whether a drive may be a member that takes part, for all that is known: it cannot be read before it is taken. One that then says nothing
    /// makes up for none: members may have been replaced since this directory was written. One without a superblock is none, to a mount too.
    fn may_be_member(&self, target: &Target) -> bool {
        match &target.step {
            Step::InOtherHands(error) => {
                self.force || error.holder.is_none_or(|holder| epoch_of(&holder, &self.array).is_some())
            }
            Step::Reserved(_) | Step::Missing(_) => false,
        }
    }

    /// Takes what others have, one drive after another: those first whose owner is the newest, since they are members by now, most likely.
    /// With `checks` it ends when a superblock shows that the owner would go on all the same. Before each it is known that what was taken so
    /// far is still this directory's.
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
        let is_others = |at: &usize| matches!(self.targets[*at].step, Step::InOtherHands(_));
        let mut order: Vec<usize> = (0..self.targets.len()).filter(is_others).collect();
        order.sort_by_key(|at| {
            let target = &self.targets[*at];
            let epoch = target.holder().and_then(|holder| epoch_of(&holder, &self.array));
            (Reverse(epoch), !target.is_member, target.place.state == Some(LastState::Failed))
        });
        for at in order {
            self.must_be_own(directory, ring)?;
            self.read_again(directory, checks, ring)?;
            self.take(at, directory, ring)?;
            self.read_again(directory, checks, ring)?;
        }
        let is_known = self.targets.iter().any(|target| target.membership(self.array).is_some());
        if checks && !is_known {
            return Err(DriveError::new(
                "the volume is not taken over, since none of its members says what the volume is by now",
                format!("see that they answer, and repeat: zonda volume takeover {}", directory.path().display()),
            ));
        }
        Ok(())
    }

    /// Reads what is open and was not read yet. Whether the takeover may go on is asked anew then.
    fn read_again(&mut self, directory: &mut VolumeDirectory, checks: bool, ring: &Ring) -> Result<(), DriveError> {
        self.read(false, ring);
        if !checks {
            return Ok(());
        }
        let suffices = self.must_suffice(directory);
        if suffices.is_ok() || !self.targets.iter().any(Target::is_unread) {
            return suffices;
        }
        // What has not answered is connected to again, and has a second chance.
        self.must_be_own(directory, ring)?;
        self.read(true, ring);
        self.must_suffice(directory)
    }

    /// Reads the superblocks of those that were not read yet, side by side. The connections to all others are kept alive. Waits for what is
    /// begun now, or also for what did not answer before.
    fn read(&mut self, waits_for_all: bool, ring: &Ring) {
        let mut awaited = Vec::new();
        for (at, target) in self.targets.iter_mut().enumerate().filter(|(_, target)| target.is_unread()) {
            let Step::Reserved(seat) = &target.step else { continue };
            if waits_for_all || target.probe.is_none() {
                awaited.push(at);
            }
            target.probe.get_or_insert_with(|| Probe::of_superblock(seat.own_geometry()));
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
                Step::Reserved(seat) => seat.next_wakeup(),
                _ => None,
            };
            let next = self.targets.iter().filter_map(wakeup).min().map_or(until, |next| next.min(until));
            if ring.turn(Some(next)).is_err() {
                return;
            }
            due = next.max(now);
        }
    }

    /// In the end nobody has them.
    pub(super) fn release(self, ring: &Ring) {
        let seats = self.targets.into_iter().filter_map(|target| match target.step {
            Step::Reserved(seat) if seat.is_claimed() && !seat.is_refused() => Some(seat),
            _ => None,
        });
        release(seats.collect(), ring);
    }

    /// The takeover is refused: all is reserved as it was before, also what was taken from others. What another takeover has by now stays
    /// with it. Says where that did not succeed, and the drive stays reserved for this directory.
    pub(super) fn undo(self, directory: &VolumeDirectory, ring: &Ring) -> Vec<String> {
        let (mut kept, mut free, mut handed_back) = (Vec::new(), Vec::new(), Vec::new());
        for target in self.targets {
            let Target { claimed, place, .. } = target;
            let Step::Reserved(mut seat) = target.step else { continue };
            match (claimed, directory.owner()) {
                // What was reserved from here before stays so: it may be what keeps another owner out.
                (Some(claimed), Some(owner)) if owner.had(&claimed) => drop(seat),
                (Some(Claimed { preempted: Some(holder), .. }), Some(owner)) => {
                    let preempts = Preempts::HostsLike(owner.place());
                    match hand_back(directory.access(&place), holder, preempts, ring) {
                        Ok(other) => {
                            seat.stay_reserved();
                            handed_back.extend([seat, other]);
                        }
                        Err(error) if error.holder.is_some() => free.push(seat),
                        Err(_) => kept.push(place.at),
                    }
                }
                _ => free.push(seat),
            }
        }
        release(free.into_iter().chain(handed_back).collect(), ring);
        kept
    }
}

/// A drive is reserved for the host that had it before, in the name of that host. There is no moment in which nobody has it: a third host would
/// be let in then, and so would one that was paused, and whose own reservation this one was to keep out.
fn hand_back(
    access: Result<Access, DriveError>,
    holder: Holder,
    preempts: Preempts,
    ring: &Ring,
) -> Result<Seat, DriveError> {
    let Access { location, mut options } = access?;
    options.host_id = Some(holder.host);
    options.claim = Some(Claim { key: holder.key, preempts });
    let mut seat = Seat::open(&Access { location, options }, ring)?;
    seat.stay_reserved();
    Ok(seat)
}

/// Whether the volume can be used with these members, or with as many more as are not read yet.
fn is_usable(newest: &Membership, found: &[usize], unread: usize) -> bool {
    let is_active = |at: &&usize| newest.members[**at].state == MemberState::Active;
    let active = found.iter().filter(is_active).fold(0, |bits: u32, at| bits | 1 << at);
    newest.scheme.is_none_or(|scheme| match unread {
        0 => scheme.are_enough(active),
        unread => active.count_ones() as usize + unread >= usize::from(scheme.data),
    })
}

/// The owner epoch of a host that is a server of the volume.
pub(super) fn epoch_of(holder: &Holder, array: &[u8; 16]) -> Option<u32> {
    ((holder.key.0 >> 32) as u32 == upper_half(array)).then_some(holder.key.0 as u32)
}

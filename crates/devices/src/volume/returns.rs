//! Re-adds failed members: automatically when they respond again, or by command.
//!
//! A member that was failed by command, or because it flapped, is re-added by command only:
//! `volume.toml` records that ([`WhyFailed`]). The volume periodically tries to open all others,
//! until a spare replaces them; if a mount can open such a device, it is re-added at once.

use zonda_raid::{FailReason, MemberIndex, MemberState, Membership, VolumeError};
use zonda_ring::Ring;
use zonda_zoned::{Duration, Instant};

use super::VolumeDrive;
use super::adopt::{Adoption, RequestId, Role};
use super::contest::{CONTEST_MAX, RETRY_INTERVAL};
use super::directory::WhyFailed;
use super::drive::Phase;
use super::member_device::MemberDevice;
use crate::DriveError;
use crate::identifier::may_be_same;
use crate::opening::OnRing;
use crate::probe::{Probed, describe};

/// Delay before the first attempt to open a failed member; it doubles with each unsuccessful
/// attempt.
pub(super) const LOOK_AFTER: Duration = Duration(1_000_000_000);
/// The maximum delay between two attempts.
pub(super) const LOOK_AFTER_MAX: Duration = Duration(10_000_000_000);

const _: () = assert!(LOOK_AFTER.0 <= LOOK_AFTER_MAX.0);

/// A failed member that the volume tries to open again.
pub(super) struct Absence {
    member: MemberIndex,
    look_at: Instant,
    wait: Duration,
}

/// A member whose device is back, and is being verified by the volume.
pub(super) struct Returning {
    member: MemberIndex,
    /// The request to answer.
    request: Option<RequestId>,
}

impl VolumeDrive {
    /// Panics if the members that are sought or verified contradict the rest of the state.
    pub(super) fn check_returns(&self) {
        for (at, absence) in self.absent.iter().enumerate() {
            let is_double = self.absent[..at].iter().any(|other| other.member == absence.member);
            assert!(!is_double, "member {} is sought twice, at different times", absence.member.0);
        }
        for (at, returning) in self.returning.iter().enumerate() {
            let is_double = self.returning[..at].iter().any(|other| other.member == returning.member);
            // The second request would never be answered.
            assert!(!is_double, "member {} is verified for two requests", returning.member.0);
        }
    }

    /// Whether the volume tries to re-add a failed member.
    fn comes_back_alone(&self, member: MemberIndex) -> bool {
        !self.keeps_members
            && self.may_come_back(member)
            && self.state(member) == MemberState::Failed
            && self.on.member(member).is_none()
    }

    /// Whether a failed member is re-added without a request.
    pub(super) fn may_come_back(&self, member: MemberIndex) -> bool {
        self.directory.file.member[usize::from(member.0)].failed.is_none() && !self.on.volume().is_rejected(member)
    }

    /// Whether the volume tries to open the device of a member.
    fn is_sought(&self, member: MemberIndex) -> bool {
        self.comes_back_alone(member) || self.awaits_connection(member) || self.must_ask_about(member)
    }

    /// Stops the attempts to open a member.
    pub(super) fn forget_absent(&mut self, member: MemberIndex) {
        self.absent.retain(|absence| absence.member != member);
    }

    /// Schedules the next attempt to open a member.
    pub(super) fn look_soon(&mut self, member: MemberIndex, look_at: Instant) {
        self.forget_absent(member);
        self.absent.push(Absence { member, look_at, wait: LOOK_AFTER });
    }

    /// Schedules attempts to open failed members without a device, and those whose connection is
    /// lost.
    pub(super) fn look_for_absent(&mut self, now: Instant) {
        for member in self.members() {
            if self.is_sought(member) && !self.absent.iter().any(|absence| absence.member == member) {
                self.absent.push(Absence { member, look_at: now + LOOK_AFTER, wait: LOOK_AFTER });
            }
        }
    }

    /// When the next attempt is due.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let is_idle = |absence: &&Absence| !self.is_looked_for(absence.member);
        let looks = self.absent.iter().filter(is_idle).map(|absence| absence.look_at);
        looks.min().filter(|_| self.phase == Phase::Open)
    }

    fn is_looked_for(&self, member: MemberIndex) -> bool {
        let is_meant = |role| [Role::Return(member), Role::Reconnect(member), Role::Ask(member)].contains(&role);
        self.adoptions.iter().any(|adoption| is_meant(adoption.role))
    }

    /// Begins the attempts that are due.
    pub(super) fn look_again(&mut self, now: Instant) {
        if self.phase != Phase::Open || self.absent.is_empty() {
            return;
        }
        let mut absent = std::mem::take(&mut self.absent);
        absent.retain(|absence| self.is_sought(absence.member));
        for absence in &mut absent {
            if absence.look_at > now || self.is_looked_for(absence.member) {
                continue;
            }
            absence.wait = Duration((absence.wait.0 * 2).min(LOOK_AFTER_MAX.0));
            absence.look_at = now + absence.wait;
            let place = self.directory.file.member[usize::from(absence.member.0)].clone();
            let Some(on_ring) = self.on_ring.as_ref().map(OnRing::another) else { continue };
            // If its location is not known, an operator has to add it.
            let Ok(location) = self.directory.location(&place) else { continue };
            let named = (&*place.shown(), location, place.clone());
            let role = if self.awaits_connection(absence.member) {
                Role::Reconnect(absence.member)
            } else if self.must_ask_about(absence.member) {
                Role::Ask(absence.member)
            } else {
                Role::Return(absence.member)
            };
            self.adoptions.push(Adoption::new(None, role, named, false, now, on_ring));
        }
        self.absent = absent;
    }

    /// Prevents a failed member from being re-added automatically. Returns whether it would have
    /// been.
    pub(super) fn keep_away(&mut self, now: Instant, member: MemberIndex) -> Result<bool, DriveError> {
        let before = self.directory.file.clone();
        let place = &mut self.directory.file.member[usize::from(member.0)];
        let is_news = place.failed.is_none() && self.on.member(member).is_none();
        if is_news {
            place.failed = Some(WhyFailed::Command);
            self.save_or_revert(before)?;
            self.stop_looking(now, |adoption| adoption.role == Role::Return(member));
        }
        Ok(is_news)
    }

    /// Cancels the attempts of the volume itself that match, since the device is used otherwise, or
    /// by a request.
    pub(super) fn stop_looking(&mut self, now: Instant, is_meant: impl Fn(&Adoption) -> bool) {
        let is_meant = |adoption: &Adoption| adoption.request.is_none() && is_meant(adoption);
        for adoption in std::mem::take(&mut self.adoptions) {
            if !is_meant(&adoption) {
                self.adoptions.push(adoption);
            } else if let Some(device) = adoption.into_device() {
                self.detach(device, now);
            }
        }
    }

    /// Re-adds a failed member by request.
    pub(super) fn readd(&mut self, id: RequestId, name: &str, ring: &Ring) -> Result<(), DriveError> {
        let member = self.member_named(name)?;
        self.on_events(ring.now());
        match self.state(member) {
            MemberState::Failed => {}
            // It was re-added automatically just before.
            MemberState::Rebuilding => {
                self.answers.push_back((id, Ok(self.report())));
                return Ok(());
            }
            MemberState::Active => {
                let what = format!("{} has not failed", self.shown(member));
                return Err(DriveError::new(what, "it need not be re-added"));
            }
        }
        let returning = self.returning.iter_mut().find(|other| other.member == member);
        if let Some(returning) = returning.filter(|returning| returning.request.is_none()) {
            returning.request = Some(id);
            return Ok(());
        }
        if self.on.member(member).is_some() || self.adoptions.iter().any(|other| other.role == Role::Member(member)) {
            let what = format!("{} is being re-added or replaced already", self.shown(member));
            return Err(DriveError::new(what, "wait until that has succeeded or failed"));
        }
        self.stop_looking(ring.now(), |adoption| adoption.role == Role::Return(member));
        let place = self.directory.file.member[usize::from(member.0)].clone();
        let location = self.directory.location(&place)?;
        let named = (&*place.shown(), location, place.clone());
        let on_ring = OnRing::of(ring);
        self.adoptions.push(Adoption::new(Some(id), Role::Return(member), named, false, ring.now(), on_ring));
        self.adopt(ring.now());
        Ok(())
    }

    /// Verifies by its superblock that a device is the failed member. The volume verifies more.
    pub(super) fn must_be_itself(&self, member: MemberIndex, probed: &Probed) -> Result<(), DriveError> {
        let shown = self.shown(member);
        let wipe = "zonda member replace --force uses it anyway: it is then wiped and rebuilt in full";
        let own: Option<&Membership> = probed.membership();
        match (&probed.identity, own) {
            (None, _) => {
                let what = format!("{shown} has no superblock of this volume: it was wiped, or is another drive");
                Err(DriveError::new(what, wipe))
            }
            (Some(identity), own) if own.is_none_or(|own| own.array != self.array()) => {
                let what = format!("{shown} does not belong to this volume: it is {}", describe(identity));
                Err(DriveError::new(
                    what,
                    "correct the location of the member in volume.toml, or replace it with zonda member replace",
                ))
            }
            (_, Some(own)) if own.member != member.0 => {
                let what = format!("{shown} is member {} of this volume", own.member);
                Err(DriveError::new(what, "check volume.toml: it lists the members in order"))
            }
            (_, Some(own)) if self.ids[usize::from(member.0)].is_some_and(|id| id != own.id()) => {
                let what = format!("{shown} is not the drive that failed: it has been replaced since");
                Err(DriveError::new(what, wipe))
            }
            _ => Ok(()),
        }
    }

    /// Refuses another drive of this machine at the location of a member: one that has other identifiers
    /// than the drive had that the volume has used there, such as a copy of it.
    pub(super) fn must_have_identity(&self, member: MemberIndex, device: &MemberDevice) -> Result<(), DriveError> {
        let before = self.identities[usize::from(member.0)].as_ref();
        // A copy of an image is as good as the image.
        let is_plugged = device.can_vanish() && !device.is_remote();
        if !is_plugged || may_be_same(before, device.drive.identity()) {
            return Ok(());
        }
        Err(DriveError::new(
            format!(
                "{} is another drive than before: its identifiers (NGUID, EUI-64, UUID) differ",
                self.shown(member)
            ),
            "plug in the original drive, or replace the member with zonda member replace",
        ))
    }

    /// Re-adds the device of a failed member. [`on_returned`](VolumeDrive::on_returned) handles the
    /// result.
    pub(super) fn take_back(
        &mut self,
        now: Instant,
        member: MemberIndex,
        device: MemberDevice,
        request: Option<RequestId>,
    ) -> Result<(), DriveError> {
        let geometry = device.own_geometry().clone();
        self.detach_member(now, member);
        self.attach_member(member, device);
        if request.is_some() {
            self.on.volume_mut().forgive_flapping(member);
        }
        if let Err(error) = self.on.volume_mut().readd_member(now, member, geometry) {
            self.detach_member(now, member);
            let what = format!("{} is not re-added: {error}", self.shown(member));
            return Err(DriveError::new(what, "replace it with zonda member replace"));
        }
        self.returning.push(Returning { member, request });
        Ok(())
    }

    /// A member is re-added, or refused.
    pub(super) fn on_returned(&mut self, now: Instant, member: MemberIndex, refusal: Option<&VolumeError>) {
        let at = self.returning.iter().position(|other| other.member == member);
        let request = at.and_then(|at| self.returning.swap_remove(at).request);
        let shown = self.shown(member);
        let answer = match refusal {
            None => {
                self.forget_absent(member);
                self.resynchronizing |= 1 << member.0;
                let by = if request.is_some() { "is re-added" } else { "is back" };
                self.notify(false, format!("{shown} {by}: resynchronizing what it missed"));
                self.note_states(now);
                Ok(())
            }
            Some(refusal) => {
                let error = not_readded(&shown, refusal);
                self.notify(true, error.to_string());
                self.detach_member(now, member);
                // Its contents do not change by themselves, so it is not tried again.
                self.refused |= 1 << member.0;
                self.use_spare(now, member);
                Err(error)
            }
        };
        if let Some(request) = request {
            let answer = answer.map(|()| self.report());
            self.answers.push_back((request, answer));
        }
    }

    /// An attempt to open a failed member has failed, or the device was refused.
    pub(super) fn look_ended(&mut self, member: MemberIndex, is_open: bool, error: &DriveError) {
        // If it cannot be opened, it is tried again; a refused device is logged once.
        if is_open && self.refused >> member.0 & 1 == 0 {
            self.refused |= 1 << member.0;
            self.notify(true, format!("{} is back, but is not re-added: {error}", self.shown(member)));
        }
    }

    /// An attempt to reconnect a member that I/O waits for has failed, or the device was refused.
    pub(super) fn look_for_needed_ended(
        &mut self,
        now: Instant,
        member: MemberIndex,
        is_open: bool,
        error: &DriveError,
    ) {
        if self.on.volume().suspended(member).is_none() {
            if self.on.member(member).is_some_and(|device| now < device.refused_at() + CONTEST_MAX) {
                // It may have been reserved again while it was verified, and be restored soon.
                return self.look_soon(member, now + RETRY_INTERVAL);
            }
            // I/O is not suspended for it: it fails.
            self.on.member_mut(member).into_iter().for_each(MemberDevice::stop_awaiting);
            return;
        }
        if is_open && self.refused >> member.0 & 1 == 0 {
            self.refused |= 1 << member.0;
            self.notify(true, format!("{} can be reached again, but I/O stays suspended: {error}", self.shown(member)));
        }
    }

    /// Whether the device of a member is being verified before it is re-added.
    pub(super) fn is_returning(&self, member: MemberIndex) -> bool {
        self.returning.iter().any(|other| other.member == member)
    }

    /// Cancels all attempts, since the volume is being closed.
    pub(super) fn abandon_returns(&mut self) {
        self.absent.clear();
        for Returning { request, .. } in std::mem::take(&mut self.returning) {
            if let Some(request) = request {
                let error = DriveError::new("the volume is being closed", "try again when it is served again");
                self.answers.push_back((request, Err(error)));
            }
        }
    }

    /// Records why a member has failed, as far as that determines whether it is re-added
    /// automatically.
    pub(super) fn note_failure(&mut self, member: MemberIndex, reason: FailReason) {
        self.refused &= !(1 << member.0);
        let place = &mut self.directory.file.member[usize::from(member.0)];
        place.failed = match reason {
            FailReason::Command => Some(WhyFailed::Command),
            FailReason::Flapping => Some(WhyFailed::Flapping),
            FailReason::Errors | FailReason::Timeout | FailReason::Missing => place.failed,
        };
    }
}

fn not_readded(shown: &str, refusal: &VolumeError) -> DriveError {
    let wipe = "zonda member replace --force uses it anyway: it is then wiped and rebuilt in full";
    match refusal {
        VolumeError::SplitBrain { .. } => DriveError::new(
            format!("{shown} is not re-added: it was written independently after it had failed (split brain)"),
            format!("if the writes to it alone are not needed, {wipe}"),
        ),
        VolumeError::Member { what, .. } => DriveError::new(format!("{shown} is not re-added: {what}"), wipe),
        other => DriveError::new(format!("{shown} is not re-added: {other}"), wipe),
    }
}

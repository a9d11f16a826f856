//! Members that have failed and come back: by themselves when they answer again, or by command.
//!
//! A member that was failed by command, or because it flapped, comes back by command only: `volume.toml` says so
//! ([`WhyFailed`]). All others are looked for again and again, as long as nothing takes their place; where a mount finds the device
//! of one, that comes back at once.

use zonda_raid::{FailReason, MemberIndex, MemberState, Membership, VolumeError};
use zonda_ring::Ring;
use zonda_zoned::{Duration, Instant};

use super::VolumeDrive;
use super::adopt::{Adoption, RequestId, Role};
use super::directory::WhyFailed;
use super::drive::Phase;
use super::seat::Seat;
use crate::DriveError;
use crate::opening::OnRing;
use crate::probe::{Probed, in_words};

/// A member is looked for so long after it has failed; each time that is in vain the time doubles.
pub(super) const LOOK_AFTER: Duration = Duration(1_000_000_000);
/// The longest time between two looks.
pub(super) const LOOK_AFTER_MAX: Duration = Duration(10_000_000_000);

const _: () = assert!(LOOK_AFTER.0 <= LOOK_AFTER_MAX.0);

/// A member that has failed, and is looked for.
pub(super) struct Absence {
    member: MemberIndex,
    look_at: Instant,
    wait: Duration,
}

/// A member whose device is in its place again, and is looked at by the volume.
pub(super) struct Returning {
    member: MemberIndex,
    /// Who waits for the answer.
    request: Option<RequestId>,
}

impl VolumeDrive {
    /// Whether a member is looked for when it has failed.
    fn comes_back_alone(&self, member: MemberIndex) -> bool {
        !self.keeps_members
            && self.may_come_back(member)
            && self.state(member) == MemberState::Failed
            && self.on.member(member).is_none()
    }

    /// Whether a member that has failed is taken back without being asked for.
    pub(super) fn may_come_back(&self, member: MemberIndex) -> bool {
        self.directory.file.member[usize::from(member.0)].failed.is_none() && !self.on.volume().is_rejected(member)
    }

    /// Whether a device is looked for in a member's place.
    fn is_sought(&self, member: MemberIndex) -> bool {
        self.comes_back_alone(member) || self.awaits_connection(member)
    }

    /// A member is not looked for any more.
    pub(super) fn absent_no_more(&mut self, member: MemberIndex) {
        self.absent.retain(|absence| absence.member != member);
    }

    /// A member is looked for at this time, whether it was looked for before or not.
    pub(super) fn look_soon(&mut self, member: MemberIndex, look_at: Instant) {
        self.absent_no_more(member);
        self.absent.push(Absence { member, look_at, wait: LOOK_AFTER });
    }

    /// Looks for members that have failed, and in whose place there is nothing, and for those whose connection is lost.
    pub(super) fn look_for_absent(&mut self, now: Instant) {
        for member in self.members() {
            if self.is_sought(member) && !self.absent.iter().any(|absence| absence.member == member) {
                self.absent.push(Absence { member, look_at: now + LOOK_AFTER, wait: LOOK_AFTER });
            }
        }
    }

    /// When a member is looked for next.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let is_idle = |absence: &&Absence| !self.is_looked_for(absence.member);
        let looks = self.absent.iter().filter(is_idle).map(|absence| absence.look_at);
        looks.min().filter(|_| self.phase == Phase::Open)
    }

    fn is_looked_for(&self, member: MemberIndex) -> bool {
        let is_meant = |role| role == Role::Return(member) || role == Role::Reconnect(member);
        self.adoptions.iter().any(|adoption| is_meant(adoption.role))
    }

    /// Opens members whose time has come.
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
            // It may be nowhere: then somebody has to say where.
            let Ok(location) = self.directory.location(&place) else { continue };
            let named = (place.at.as_str(), location, place.clone());
            let is_awaited = self.awaits_connection(absence.member);
            let role = if is_awaited { Role::Reconnect(absence.member) } else { Role::Return(absence.member) };
            self.adoptions.push(Adoption::new(None, role, named, false, now, on_ring));
        }
        self.absent = absent;
    }

    /// A member that has failed does not come back by itself any more. Says whether it would have.
    pub(super) fn keep_away(&mut self, now: Instant, member: MemberIndex) -> Result<bool, DriveError> {
        let before = self.directory.file.clone();
        let place = &mut self.directory.file.member[usize::from(member.0)];
        let is_news = place.failed.is_none() && self.on.member(member).is_none();
        if is_news {
            place.failed = Some(WhyFailed::Command);
            self.save_or_go_back(before)?;
            self.stop_looking(now, |adoption| adoption.role == Role::Return(member));
        }
        Ok(is_news)
    }

    /// Nobody looks for a member any more, or for one that is at this place: somebody else has the device, or says what is to be done.
    pub(super) fn stop_looking(&mut self, now: Instant, is_meant: impl Fn(&Adoption) -> bool) {
        let is_meant = |adoption: &Adoption| adoption.request.is_none() && is_meant(adoption);
        for adoption in std::mem::take(&mut self.adoptions) {
            if !is_meant(&adoption) {
                self.adoptions.push(adoption);
            } else if let Some(seat) = adoption.into_seat() {
                self.let_go(seat, now);
            }
        }
    }

    /// An operator asks for a member that has failed to be taken back.
    pub(super) fn readd(&mut self, id: RequestId, name: &str, ring: &Ring) -> Result<(), DriveError> {
        let member = self.member_named(name)?;
        self.on_events(ring.now());
        match self.state(member) {
            MemberState::Failed => {}
            // It came back by itself a moment ago.
            MemberState::Rebuilding => {
                self.answers.push_back((id, Ok(self.report())));
                return Ok(());
            }
            MemberState::Active => {
                let what = format!("{} has not failed", self.shown(member));
                return Err(DriveError::new(what, "it need not be taken back"));
            }
        }
        let returning = self.returning.iter_mut().find(|other| other.member == member);
        if let Some(returning) = returning.filter(|returning| returning.request.is_none()) {
            returning.request = Some(id);
            return Ok(());
        }
        if self.on.member(member).is_some() || self.adoptions.iter().any(|other| other.role == Role::Member(member)) {
            let what = format!("{} is being taken back or replaced already", self.shown(member));
            return Err(DriveError::new(what, "wait until that has succeeded or failed"));
        }
        self.stop_looking(ring.now(), |adoption| adoption.role == Role::Return(member));
        let place = self.directory.file.member[usize::from(member.0)].clone();
        let location = self.directory.location(&place)?;
        let named = (place.at.as_str(), location, place.clone());
        let on_ring = OnRing::of(ring);
        self.adoptions.push(Adoption::new(Some(id), Role::Return(member), named, false, ring.now(), on_ring));
        self.adopt(ring.now());
        Ok(())
    }

    /// Whether a device is the member that has failed, as far as its superblock says. The volume looks closer.
    pub(super) fn must_be_itself(&self, member: MemberIndex, probed: &Probed) -> Result<(), DriveError> {
        let shown = self.shown(member);
        let wipe = "zonda member replace takes it all the same, with --force: it is then wiped and rebuilt in full";
        let own: Option<&Membership> = probed.membership();
        match (&probed.identity, own) {
            (None, _) => {
                let what =
                    format!("{shown} holds no superblock of this volume: it was wiped, or another drive is there");
                Err(DriveError::new(what, wipe))
            }
            (Some(identity), own) if own.is_none_or(|own| own.array != self.array()) => {
                let what = format!("{shown} is not this volume's: it is {}", in_words(identity));
                Err(DriveError::new(what, "see volume.toml: where the member is; or put another drive in its place"))
            }
            (_, Some(own)) if own.member != member.0 => {
                let what = format!("{shown} is member {} of this volume", own.member);
                Err(DriveError::new(what, "see volume.toml: which drive is which member"))
            }
            (_, Some(own)) if self.ids[usize::from(member.0)].is_some_and(|id| id != own.id()) => {
                let what = format!("{shown} is not the drive that failed: another one has taken its place since");
                Err(DriveError::new(what, wipe))
            }
            _ => Ok(()),
        }
    }

    /// The device of a member that has failed is in its place again. [`on_returned`](VolumeDrive::on_returned) says what becomes of it.
    pub(super) fn take_back(
        &mut self,
        now: Instant,
        member: MemberIndex,
        seat: Seat,
        request: Option<RequestId>,
    ) -> Result<(), DriveError> {
        let geometry = seat.own_geometry().clone();
        self.take_out(now, member);
        self.take_in(member, seat);
        if request.is_some() {
            self.on.volume_mut().forgive_flapping(member);
        }
        if let Err(error) = self.on.volume_mut().readd_member(now, member, geometry) {
            self.take_out(now, member);
            let what = format!("{} is not taken back: {error}", self.shown(member));
            return Err(DriveError::new(what, "zonda member replace puts another drive in its place"));
        }
        self.returning.push(Returning { member, request });
        Ok(())
    }

    /// A member is taken back, or is not.
    pub(super) fn on_returned(&mut self, now: Instant, member: MemberIndex, refusal: Option<&VolumeError>) {
        let at = self.returning.iter().position(|other| other.member == member);
        let request = at.and_then(|at| self.returning.swap_remove(at).request);
        let shown = self.shown(member);
        let answer = match refusal {
            None => {
                self.absent_no_more(member);
                let by = if request.is_some() { "is taken back" } else { "is there again" };
                self.tell(false, format!("{shown} {by}: it is caught up with what it missed"));
                self.note_states(now);
                Ok(())
            }
            Some(refusal) => {
                let error = not_taken_back(&shown, refusal);
                self.tell(true, error.to_string());
                self.take_out(now, member);
                // What it holds does not change by itself.
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

    /// A member was looked for, and is not taken back.
    pub(super) fn look_ended(&mut self, member: MemberIndex, is_open: bool, error: &DriveError) {
        // One that cannot be opened is looked for again; what another one holds does not change by itself.
        if is_open && self.refused >> member.0 & 1 == 0 {
            self.refused |= 1 << member.0;
            self.tell(true, format!("{} is there again, and not taken back: {error}", self.shown(member)));
        }
    }

    /// A member that I/O waits for was looked for, and is not used.
    pub(super) fn look_for_needed_ended(&mut self, member: MemberIndex, is_open: bool, error: &DriveError) {
        if self.on.volume().suspended(member).is_none() {
            // It was given back after it was taken, and is lost all the same.
            self.on.member_mut(member).into_iter().for_each(Seat::await_no_more);
            return;
        }
        if is_open && self.refused >> member.0 & 1 == 0 {
            self.refused |= 1 << member.0;
            self.tell(
                true,
                format!("{} can be reached again, and I/O waits all the same: {error}", self.shown(member)),
            );
        }
    }

    /// Whether the device of a member is looked at before it is taken back.
    pub(super) fn is_returning(&self, member: MemberIndex) -> bool {
        self.returning.iter().any(|other| other.member == member)
    }

    /// The volume is being closed.
    pub(super) fn abandon_returns(&mut self) {
        self.absent.clear();
        for Returning { request, .. } in std::mem::take(&mut self.returning) {
            if let Some(request) = request {
                let error = DriveError::new("the volume is being closed", "try again when it is served again");
                self.answers.push_back((request, Err(error)));
            }
        }
    }

    /// Writes down why a member has failed, as far as it matters to what becomes of it.
    pub(super) fn note_failure(&mut self, member: MemberIndex, reason: FailReason) {
        self.refused &= !(1 << member.0);
        let place = &mut self.directory.file.member[usize::from(member.0)];
        place.failed = match reason {
            FailReason::Command => Some(WhyFailed::Command),
            FailReason::Flapping => Some(WhyFailed::Flapping),
            FailReason::Errors | FailReason::Silence | FailReason::Absent => place.failed,
        };
    }
}

fn not_taken_back(shown: &str, refusal: &VolumeError) -> DriveError {
    let wipe = "zonda member replace takes it all the same, with --force: it is then wiped and rebuilt in full";
    match refusal {
        VolumeError::SplitBrain { .. } => DriveError::new(
            format!(
                "{shown} is not taken back: it was written to without the others after it had failed (split brain)"
            ),
            format!("if nobody needs what was written to it alone, {wipe}"),
        ),
        VolumeError::Member { what, .. } => DriveError::new(format!("{shown} is not taken back: {what}"), wipe),
        other => DriveError::new(format!("{shown} is not taken back: {other}"), wipe),
    }
}

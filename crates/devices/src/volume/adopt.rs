//! Devices that are to become a member or a spare. They are opened and looked at while the volume goes on: a server that does not
//! answer stops nobody.

use std::collections::VecDeque;

use zonda_raid::limits::METADATA_ZONES;
use zonda_raid::{MemberIndex, MemberState};
use zonda_zoned::{
    Command, CommandId, CompletionQueue, Duration, Geometry, Instant, NamespaceId, Operation, QueueFull, ZoneAction,
    ZoneIndex, ZoneTarget, ZonedDevice,
};

use super::VolumeDrive;
use super::bugs::{OwnerBug, is_planted};
use super::contest::RETRY_INTERVAL;
use super::directory::Place;
use super::open::{cannot_save, must_be_free};
use super::seat::Seat;
use super::spares::{Refused, Spare};
use crate::opening::{OnRing, Opening};
use crate::probe::{Probe, Probed};
use crate::{Access, DriveError, Location};

/// So long may it take to open a device and to look at it.
const ADOPTION_MAX: Duration = Duration(20_000_000_000);
/// Devices that one volume looks at at a time.
pub(super) const ADOPTIONS_MAX: usize = 16;

/// A request that is answered later than it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(super) u64);

/// What a device is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Member(MemberIndex),
    /// The member that it was.
    Return(MemberIndex),
    /// The member that it still is: its connection is lost.
    Reconnect(MemberIndex),
    Spare,
    /// The spare that it was: it could not be reached.
    SpareAgain,
}

/// A device on its way into a volume.
pub(super) struct Adoption {
    /// Who waits for the answer; nobody, where a member is looked for.
    pub(super) request: Option<RequestId>,
    pub(super) role: Role,
    pub(super) location: Location,
    /// As the operator has written it.
    text: String,
    pub(super) place: Place,
    may_wipe: bool,
    until: Instant,
    step: Step,
}

enum Step {
    /// For devices that are being closed: it may be one of them.
    Waiting(Option<OnRing>),
    Opening(Opening),
    Probing(Seat, Probe),
    /// A spare that may be wiped loses the superblock that it has: a start would take it for a member of the other volume.
    Wiping(Seat, Wipe),
    /// It was handed over.
    Ended,
}

/// Resets the zones in which a device has superblocks.
pub(super) struct Wipe {
    resets: VecDeque<Operation>,
    is_in_flight: bool,
    completions: CompletionQueue,
}

impl Wipe {
    pub(super) fn new(geometry: &Geometry) -> Wipe {
        let reset = |zone| Operation::ManageZones {
            action: ZoneAction::Reset,
            target: ZoneTarget::Zone(geometry.zone_start(ZoneIndex(zone))),
        };
        let resets = (0..METADATA_ZONES.min(geometry.zone_count)).map(reset).collect();
        Wipe { resets, is_in_flight: false, completions: CompletionQueue::new() }
    }

    pub(super) fn poll(&mut self, seat: &mut Seat, now: Instant) -> Option<Result<(), DriveError>> {
        loop {
            seat.poll(now, &mut self.completions);
            if let Some(completion) = self.completions.pop() {
                self.is_in_flight = false;
                if !completion.status.is_success() {
                    let what = format!("its superblock cannot be reset: {}", completion.status);
                    return Some(Err(DriveError::new(what, "name another drive")));
                }
            }
            if self.is_in_flight {
                return None;
            }
            let Some(operation) = self.resets.pop_front() else { return Some(Ok(())) };
            let command = Command { id: CommandId(0), namespace: NamespaceId::FIRST, operation };
            if let Err(QueueFull(_)) = seat.submit(now, command) {
                return Some(Err(DriveError::new("it takes no command", "see whether the drive is well")));
            }
            self.is_in_flight = true;
        }
    }
}

impl Adoption {
    pub(super) fn new(
        request: Option<RequestId>,
        role: Role,
        (text, location, place): (&str, Location, Place),
        may_wipe: bool,
        now: Instant,
        on_ring: OnRing,
    ) -> Adoption {
        Adoption {
            request,
            role,
            location,
            text: text.to_owned(),
            place,
            may_wipe,
            until: now + ADOPTION_MAX,
            step: Step::Waiting(Some(on_ring)),
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let step = match &self.step {
            Step::Opening(opening) => opening.next_wakeup(),
            Step::Probing(seat, _) | Step::Wiping(seat, _) => seat.next_wakeup(),
            Step::Waiting(_) | Step::Ended => None,
        };
        Some(step.map_or(self.until, |at| at.min(self.until)))
    }

    /// The device, if it is open.
    pub(super) fn into_seat(self) -> Option<Seat> {
        match self.step {
            Step::Probing(seat, _) | Step::Wiping(seat, _) => Some(seat),
            Step::Waiting(_) | Step::Opening(_) | Step::Ended => None,
        }
    }
}

impl VolumeDrive {
    /// Goes on with devices that are on their way into the volume.
    pub(super) fn adopt(&mut self, now: Instant) {
        for mut adoption in std::mem::take(&mut self.adoptions) {
            let (request, role) = (adoption.request, adoption.role);
            let answer = match self.adopt_on(&mut adoption, now) {
                None if now < adoption.until => {
                    self.adoptions.push(adoption);
                    continue;
                }
                None => Err(DriveError::new(
                    format!("{} does not answer: it was not ready within {ADOPTION_MAX}", adoption.text),
                    "see whether its server runs and can be reached, and try again",
                )),
                // The drive is looked for in its place.
                Some(answer) if matches!(role, Role::Return(_)) => answer.map_err(DriveError::of_member),
                Some(answer) => answer,
            };
            let at = adoption.place.at.clone();
            let is_handed_over = matches!(adoption.step, Step::Ended);
            let seat = adoption.into_seat();
            let is_open = seat.is_some() || is_handed_over;
            seat.into_iter().for_each(|seat| self.let_go(seat, now));
            match (role, request, answer) {
                // The volume looks at it, and answers.
                (Role::Return(_) | Role::Reconnect(_), _, Ok(())) => {}
                (Role::Return(member), None, Err(error)) => self.look_ended(member, is_open, &error),
                (Role::Reconnect(member), _, Err(DriveError { holder: Some(holder), .. })) => {
                    self.on.member_mut(member).into_iter().for_each(|seat| seat.set_refused(holder));
                    self.look_soon(member, now + RETRY_INTERVAL);
                }
                (Role::Reconnect(member), _, Err(error)) => self.look_for_needed_ended(member, is_open, &error),
                (Role::SpareAgain, _, Err(error)) => self.look_for_spare_ended(&at, is_open, &error),
                (_, Some(request), answer) => {
                    let answer = answer.map(|()| self.report());
                    self.answers.push_back((request, answer));
                }
                (_, None, _) => {}
            }
        }
    }

    /// The volume is being closed: nothing becomes part of it any more.
    pub(super) fn abandon_adoptions(&mut self, now: Instant) {
        for adoption in std::mem::take(&mut self.adoptions) {
            let error = DriveError::new("the volume is being closed", "try again when it is served again");
            self.answers.extend(adoption.request.map(|request| (request, Err(error))));
            if let Some(seat) = adoption.into_seat() {
                self.let_go(seat, now);
            }
        }
    }

    /// The next steps of one device, until it has to be waited for.
    fn adopt_on(&mut self, adoption: &mut Adoption, now: Instant) -> Option<Result<(), DriveError>> {
        loop {
            let next = match &mut adoption.step {
                // The device of one that is connected to again is none of them.
                Step::Waiting(_) if !self.leaving.is_empty() && !matches!(adoption.role, Role::Reconnect(_)) => {
                    return None;
                }
                Step::Waiting(on_ring) => {
                    let on_ring = on_ring.take()?;
                    let mut access = self.directory.access(&adoption.place);
                    if is_planted(OwnerBug::ReconnectPreempts) {
                        access.iter_mut().for_each(Access::preempt_everybody);
                    }
                    access.and_then(|access| Opening::begin(access, on_ring)).map(Step::Opening)
                }
                Step::Opening(opening) => opening.poll(now)?.map(|drive| {
                    let seat = Seat::of(drive);
                    let probe = Probe::of_all(seat.own_geometry());
                    Step::Probing(seat, probe)
                }),
                Step::Probing(seat, probe) => match probe.poll(seat, now)? {
                    Ok(probed) => return self.on_probed(adoption, &probed, now),
                    Err(error) => Err(error),
                },
                Step::Wiping(seat, wipe) => match wipe.poll(seat, now)? {
                    Ok(()) => return Some(self.take(adoption, now)),
                    Err(error) => Err(error),
                },
                Step::Ended => return None,
            };
            match next {
                Ok(step) => adoption.step = step,
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn on_probed(&mut self, adoption: &mut Adoption, probed: &Probed, now: Instant) -> Option<Result<(), DriveError>> {
        let checked = match adoption.role {
            Role::Return(member) => self.must_be_itself(member, probed),
            Role::Reconnect(member) => match &adoption.step {
                Step::Probing(seat, _) => self.must_be_as_left(member, seat, probed),
                _ => Ok(()),
            },
            Role::Member(_) | Role::Spare | Role::SpareAgain => {
                let checked = match &adoption.step {
                    Step::Probing(seat, _) => self.must_be_another_drive(&adoption.text, seat),
                    _ => Ok(()),
                };
                if adoption.role == Role::SpareAgain {
                    checked.and_then(|()| self.must_be_spare_still(&adoption.text, probed))
                } else {
                    let checked = checked.and_then(|()| self.must_not_be_member(&adoption.text, probed));
                    checked.and_then(|()| if adoption.may_wipe { Ok(()) } else { must_be_free(&adoption.text, probed) })
                }
            }
        };
        if let Err(error) = checked {
            return Some(Err(error));
        }
        if adoption.role == Role::Spare && probed.identity.is_some() {
            let Step::Probing(seat, _) = std::mem::replace(&mut adoption.step, Step::Ended) else { return None };
            let wipe = Wipe::new(seat.own_geometry());
            adoption.step = Step::Wiping(seat, wipe);
            return self.adopt_on(adoption, now);
        }
        Some(self.take(adoption, now))
    }

    /// A member of this volume that takes part is not taken for another place, whatever the operator agrees to: the volume needs what
    /// is on it. It may be reached in a way that `volume.toml` does not show.
    pub(super) fn must_not_be_member(&self, text: &str, probed: &Probed) -> Result<(), DriveError> {
        let Some(own) = probed.membership().filter(|own| own.array == self.array()) else { return Ok(()) };
        let member = MemberIndex(own.member);
        let is_known = self.ids.get(usize::from(own.member)).is_some_and(|known| *known == Some(own.id()));
        if !is_known || self.state(member) == MemberState::Failed {
            return Ok(());
        }
        Err(DriveError::new(
            format!("{text} is {} of this volume, which needs what it holds", self.shown(member)),
            "name another drive; zonda member fail gives a member up first",
        ))
    }

    /// A drive that the volume has is not taken again under another name.
    pub(super) fn must_be_another_drive(&self, text: &str, seat: &Seat) -> Result<(), DriveError> {
        let member = self.members().find(|member| self.on.member(*member).is_some_and(|own| own.is_same_drive(seat)));
        let what = if let Some(member) = member {
            format!("is {} of this volume", self.shown(member))
        } else if let Some(spare) = self.spares.iter().find(|spare| spare.seat.is_same_drive(seat)) {
            format!("is the spare {} of this volume", spare.place.at)
        } else {
            return Ok(());
        };
        Err(DriveError::new(format!("{text} {what}, under another name"), "name another drive"))
    }

    /// The same device in two places would be lost in both.
    pub(super) fn must_not_be_in_use(&self, text: &str, location: &Location) -> Result<(), DriveError> {
        let wanted = self.directory.place(location);
        let is_at = |place: &Place| {
            self.directory.location(place).is_ok_and(|other| self.directory.place(&other).at == wanted.at)
        };
        let member = self.members().find(|member| {
            self.on.member(*member).is_some() && is_at(&self.directory.file.member[usize::from(member.0)])
        });
        let what = if let Some(member) = member {
            format!("is {} of this volume", self.shown(member))
        } else if self.spares.iter().any(|spare| is_at(&spare.place)) {
            "is a spare of this volume".to_owned()
        } else if self.adoptions.iter().any(|adoption| is_at(&adoption.place)) {
            "is being added to this volume".to_owned()
        } else {
            return Ok(());
        };
        Err(DriveError::new(format!("{text} {what}"), "name another drive"))
    }

    /// The device becomes what it was asked to become.
    fn take(&mut self, adoption: &mut Adoption, now: Instant) -> Result<(), DriveError> {
        let (Step::Probing(seat, _) | Step::Wiping(seat, _)) = std::mem::replace(&mut adoption.step, Step::Ended)
        else {
            unreachable!("a device that is taken is open")
        };
        let place = adoption.place.clone();
        match adoption.role {
            Role::Member(member) => {
                if let Err(error) = self.must_have_failed(member) {
                    self.let_go(seat, now);
                    return Err(error);
                }
                match self.put_in(now, member, place, seat) {
                    Ok(()) => Ok(()),
                    Err(Refused::NotSuited(error)) => Err(error),
                    Err(Refused::NotSaved(error, seat)) => {
                        self.let_go(*seat, now);
                        Err(error)
                    }
                }
            }
            Role::Return(member) => {
                if let Err(error) = self.must_have_failed(member) {
                    self.let_go(seat, now);
                    return Err(error);
                }
                self.take_back(now, member, seat, adoption.request)
            }
            Role::Reconnect(member) => {
                self.reconnect(now, member, seat);
                Ok(())
            }
            Role::SpareAgain => {
                self.take_spare_again(now, place, seat);
                Ok(())
            }
            Role::Spare => {
                let before = self.directory.file.clone();
                self.directory.file.spare.retain(|spare| spare.at != place.at);
                self.directory.file.vacate(&place.at);
                self.directory.file.spare.push(place.clone());
                if let Err(error) = self.directory.save() {
                    self.directory.file = before;
                    self.let_go(seat, now);
                    return Err(cannot_save(&self.directory, &error));
                }
                self.spare_watch.forget(&place.at);
                self.spares.push(Spare { place, seat });
                self.use_spares(now);
                Ok(())
            }
        }
    }
}

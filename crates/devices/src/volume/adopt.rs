//! Devices that are to become a member or a spare. They are opened and probed asynchronously, so
//! that a server that does not respond does not block the volume.

use std::collections::VecDeque;

use zonda_raid::limits::METADATA_ZONES;
use zonda_raid::{MemberIndex, MemberState};
use zonda_zoned::{
    Command, CommandId, CompletionQueue, Duration, Geometry, Instant, NamespaceId, Operation, QueueFull, ZoneAction,
    ZoneIndex, ZoneTarget, ZonedDevice,
};

use super::VolumeDrive;
use super::bugs::{OwnerBug, is_seeded};
use super::contest::RETRY_INTERVAL;
use super::directory::Place;
use super::lost_members::ASK_MAX;
use super::manage::is_spare;
use super::member_device::MemberDevice;
use super::names::cannot_save;
use super::spares::{Refused, Spare};
use super::vacant::must_be_free_for;
use crate::opening::{OnRing, Opening};
use crate::probe::{Probe, Probed};
use crate::{Access, DriveError, Location};

/// Timeout of opening and probing a device.
const ADOPTION_MAX: Duration = Duration(20_000_000_000);
/// Devices that one volume adds at a time.
pub(super) const ADOPTIONS_MAX: usize = 16;

/// Identifies a request that is answered asynchronously.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(super) u64);

/// The role that a device is added for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Member(MemberIndex),
    /// A failed member that is re-added.
    Return(MemberIndex),
    /// A member whose connection is lost.
    Reconnect(MemberIndex),
    /// A lost member: only its holder is determined.
    Ask(MemberIndex),
    Spare,
    /// A spare that could not be reached.
    SpareAgain,
}

/// A device that is being added to a volume.
pub(super) struct Adoption {
    /// The request to answer; `None` where the volume looks for a member by itself.
    pub(super) request: Option<RequestId>,
    pub(super) role: Role,
    pub(super) location: Location,
    /// The location as the operator gave it.
    text: String,
    pub(super) place: Place,
    may_wipe: bool,
    until: Instant,
    step: Step,
}

enum Step {
    /// Waits for devices that are being closed: it may be one of them.
    Waiting(Option<OnRing>),
    Opening(Opening),
    Probing(MemberDevice, Probe),
    /// Resets the superblock of a spare that may be wiped: the next mount would take it for a
    /// member of the other volume.
    Wiping(MemberDevice, Wipe),
    /// The device was added.
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

    pub(super) fn poll(&mut self, device: &mut MemberDevice, now: Instant) -> Option<Result<(), DriveError>> {
        loop {
            device.poll(now, &mut self.completions);
            if let Some(completion) = self.completions.pop() {
                self.is_in_flight = false;
                if !completion.status.is_success() {
                    let what = format!("cannot reset its superblock: {}", completion.status);
                    return Some(Err(DriveError::new(what, "name another drive")));
                }
            }
            if self.is_in_flight {
                return None;
            }
            let Some(operation) = self.resets.pop_front() else { return Some(Ok(())) };
            let command = Command::new(CommandId(0), NamespaceId::FIRST, operation);
            if let Err(QueueFull(_)) = device.submit(now, command) {
                return Some(Err(DriveError::new("its queue is full", "check whether the drive works")));
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
            until: now + if matches!(role, Role::Ask(_)) { ASK_MAX } else { ADOPTION_MAX },
            step: Step::Waiting(Some(on_ring)),
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let step = match &self.step {
            Step::Opening(opening) => opening.next_timeout(),
            Step::Probing(device, _) | Step::Wiping(device, _) => device.next_timeout(),
            Step::Waiting(_) | Step::Ended => None,
        };
        Some(step.map_or(self.until, |at| at.min(self.until)))
    }

    /// The device, if it is open.
    pub(super) fn into_device(self) -> Option<MemberDevice> {
        match self.step {
            Step::Probing(device, _) | Step::Wiping(device, _) => Some(device),
            Step::Waiting(_) | Step::Opening(_) | Step::Ended => None,
        }
    }
}

/// Continues to probe a device, which sees no completion of a command that another host has refused.
fn probe_unless_refused(
    device: &mut MemberDevice,
    probe: &mut Probe,
    now: Instant,
) -> Option<Result<Probed, DriveError>> {
    let probed = probe.poll(device, now);
    if probed.is_none() && device.is_refused() {
        let what = "another host has reserved it while it was read";
        return Some(Err(DriveError::new(what, "stop the program that takes it over, and try again")));
    }
    probed
}

impl VolumeDrive {
    /// Continues to add devices.
    pub(super) fn adopt(&mut self, now: Instant) {
        for mut adoption in std::mem::take(&mut self.adoptions) {
            let (request, role) = (adoption.request, adoption.role);
            let answer = match self.adopt_on(&mut adoption, now) {
                None if now < adoption.until => {
                    self.adoptions.push(adoption);
                    continue;
                }
                None => Err(DriveError::new(
                    format!("{} does not respond: it was not ready within {ADOPTION_MAX}", adoption.text),
                    "check that its server runs and can be reached, and try again",
                )),
                // It is the drive of a member, not a new one.
                Some(answer) if matches!(role, Role::Return(_)) => answer.map_err(DriveError::of_member),
                Some(answer) => answer,
            };
            let at = adoption.place.at.clone();
            let is_added = matches!(adoption.step, Step::Ended);
            let device = adoption.into_device();
            let is_open = device.is_some() || is_added;
            if let Some(mut device) = device {
                match role {
                    Role::Member(_) | Role::Spare => self.detach_unused(device, now),
                    Role::Ask(member) => {
                        // It shares the reservation of the device of the member.
                        if self.on.member(member).is_some() {
                            device.stay_reserved();
                        }
                        self.detach(device, now);
                    }
                    _ => self.detach(device, now),
                }
            }
            if let (Role::Return(member), Err(DriveError { holder: Some(holder), .. })) = (role, &answer) {
                self.is_held_by(now, member, *holder);
            }
            match (role, request, answer) {
                (Role::Ask(member), _, answer) => self.asked(now, member, &answer),
                // The volume verifies the device, and answers.
                (Role::Return(_) | Role::Reconnect(_), _, Ok(())) => {}
                (Role::Return(member), None, Err(error)) => self.look_ended(member, is_open, &error),
                (Role::Reconnect(member), _, Err(DriveError { holder: Some(holder), .. })) => {
                    self.on.member_mut(member).into_iter().for_each(|device| device.set_refused(holder));
                    self.look_soon(member, now + RETRY_INTERVAL);
                }
                (Role::Reconnect(member), _, Err(error)) => {
                    self.look_for_needed_ended(now, member, is_open, &error);
                }
                (Role::SpareAgain, _, Err(error)) => self.look_for_spare_ended(&at, is_open, &error),
                (_, Some(request), answer) => {
                    let answer = answer.map(|()| self.report());
                    self.answers.push_back((request, answer));
                }
                (_, None, _) => {}
            }
        }
    }

    /// Cancels all additions, since the volume is being closed.
    pub(super) fn abandon_adoptions(&mut self, now: Instant) {
        for adoption in std::mem::take(&mut self.adoptions) {
            let error = DriveError::new("the volume is being closed", "try again when it is served again");
            self.answers.extend(adoption.request.map(|request| (request, Err(error))));
            if let Some(device) = adoption.into_device() {
                self.detach(device, now);
            }
        }
    }

    /// Takes the next steps for one device, until it has to wait.
    fn adopt_on(&mut self, adoption: &mut Adoption, now: Instant) -> Option<Result<(), DriveError>> {
        loop {
            let next = match &mut adoption.step {
                // The device of a member that reconnects is not one of those that are being closed.
                Step::Waiting(_)
                    if !self.closing.is_empty() && !matches!(adoption.role, Role::Reconnect(_) | Role::Ask(_)) =>
                {
                    return None;
                }
                Step::Waiting(on_ring) => {
                    let on_ring = on_ring.take()?;
                    let mut access = self.directory.access(&adoption.place);
                    if is_seeded(OwnerBug::ReconnectPreempts) {
                        access.iter_mut().for_each(Access::preempt_everybody);
                    }
                    access.and_then(|access| Opening::begin(access, on_ring)).map(Step::Opening)
                }
                Step::Opening(opening) => opening.poll(now)?.map(|drive| {
                    let device = MemberDevice::of(drive);
                    let probe = Probe::of_all(device.own_geometry());
                    Step::Probing(device, probe)
                }),
                Step::Probing(device, probe) => match probe_unless_refused(device, probe, now)? {
                    Ok(probed) => return self.on_probed(adoption, &probed, now),
                    Err(error) => Err(error),
                },
                Step::Wiping(device, wipe) => match wipe.poll(device, now)? {
                    Ok(()) => return Some(self.take(adoption, now)),
                    Err(error) => Err(error),
                },
                Step::Ended => return None,
            };
            match next {
                Ok(step) => adoption.step = step,
                Err(error) => return Some(Err(error)),
            }
            // It is reserved for this program now.
            if let (Role::Ask(_), Step::Probing(..)) = (adoption.role, &adoption.step) {
                return Some(Ok(()));
            }
        }
    }

    fn on_probed(&mut self, adoption: &mut Adoption, probed: &Probed, now: Instant) -> Option<Result<(), DriveError>> {
        let checked = match adoption.role {
            Role::Return(member) => self.must_be_itself(member, probed).and_then(|()| match &adoption.step {
                Step::Probing(device, _) => self.must_have_identity(member, device),
                _ => Ok(()),
            }),
            // It is not probed.
            Role::Ask(_) => Ok(()),
            Role::Reconnect(member) => match &adoption.step {
                Step::Probing(device, _) => self.must_be_as_left(member, device, probed),
                _ => Ok(()),
            },
            Role::Member(_) | Role::Spare | Role::SpareAgain => {
                let checked = match &adoption.step {
                    Step::Probing(device, _) => self.must_be_another_drive(&adoption.text, device),
                    _ => Ok(()),
                };
                if adoption.role == Role::SpareAgain {
                    checked.and_then(|()| self.must_be_spare_still(&adoption.text, probed))
                } else {
                    let checked = checked.and_then(|()| self.must_not_be_member(&adoption.text, probed));
                    let checked = checked.and_then(|()| match &adoption.step {
                        Step::Probing(device, _) => self.must_suit(device),
                        _ => Ok(()),
                    });
                    checked.and_then(
                        |()| if adoption.may_wipe { Ok(()) } else { self.must_be_free(&adoption.text, probed) },
                    )
                }
            }
        };
        if let Err(error) = checked {
            return Some(Err(error));
        }
        if adoption.role == Role::Spare && probed.identity.is_some() {
            let Step::Probing(device, _) = std::mem::replace(&mut adoption.step, Step::Ended) else { return None };
            let wipe = Wipe::new(device.own_geometry());
            adoption.step = Step::Wiping(device, wipe);
            return self.adopt_on(adoption, now);
        }
        Some(self.take(adoption, now))
    }

    /// Refuses an active member of this volume, even with force: the volume needs its contents. It
    /// may be reachable at an address that is not in `volume.toml`.
    pub(super) fn must_not_be_member(&self, text: &str, probed: &Probed) -> Result<(), DriveError> {
        let Some(own) = probed.membership().filter(|own| own.array == self.array()) else { return Ok(()) };
        let member = MemberIndex(own.member);
        let is_known = self.ids.get(usize::from(own.member)).is_some_and(|known| *known == Some(own.id()));
        if !is_known || self.state(member) == MemberState::Failed {
            return Ok(());
        }
        Err(DriveError::new(
            format!("{text} is {} of this volume, which needs its contents", self.shown(member)),
            "name another drive, or fail the member first: zonda member fail",
        ))
    }

    /// Refuses a device that is not empty.
    fn must_be_free(&self, text: &str, probed: &Probed) -> Result<(), DriveError> {
        must_be_free_for(self.array(), text, probed)
    }

    /// Refuses a drive that the volume uses already at another address.
    pub(super) fn must_be_another_drive(&self, text: &str, device: &MemberDevice) -> Result<(), DriveError> {
        let member = self.members().find(|member| self.on.member(*member).is_some_and(|own| own.is_same_drive(device)));
        let what = if let Some(member) = member {
            format!("is {} of this volume", self.shown(member))
        } else if let Some(spare) = self.spares.iter().find(|spare| spare.device.is_same_drive(device)) {
            format!("is the spare {} of this volume", spare.place.shown())
        } else {
            return Ok(());
        };
        Err(DriveError::new(format!("{text} {what}, at another address, or a copy of its image"), "name another drive"))
    }

    /// Refuses a device that cannot replace a member, before it is written.
    fn must_suit(&self, device: &MemberDevice) -> Result<(), DriveError> {
        let suits = self.on.volume().must_suit(device.own_geometry());
        suits.map_err(|error| DriveError::new(error.to_string(), "name another drive"))
    }

    /// Refuses a device that the volume uses already: it would count twice as redundancy.
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
            return Err(is_spare(text));
        } else if self.adoptions.iter().any(|adoption| is_at(&adoption.place)) {
            "is being added to this volume".to_owned()
        } else {
            return Ok(());
        };
        Err(DriveError::new(format!("{text} {what}"), "name another drive"))
    }

    /// The device assumes its role.
    fn take(&mut self, adoption: &mut Adoption, now: Instant) -> Result<(), DriveError> {
        let (Step::Probing(device, _) | Step::Wiping(device, _)) = std::mem::replace(&mut adoption.step, Step::Ended)
        else {
            unreachable!("a device that is added is open")
        };
        let place = adoption.place.clone();
        match adoption.role {
            Role::Member(member) => {
                if let Err(error) = self.must_have_failed(member) {
                    self.detach_unused(device, now);
                    return Err(error);
                }
                match self.put_in(now, member, place, device) {
                    Ok(()) => Ok(()),
                    Err(Refused::NotSuited(error)) => Err(error),
                    Err(Refused::NotSaved(error, device)) => {
                        self.detach_unused(*device, now);
                        Err(error)
                    }
                }
            }
            Role::Return(member) => {
                if let Err(error) = self.must_have_failed(member) {
                    self.detach(device, now);
                    return Err(error);
                }
                self.take_back(now, member, device, adoption.request)
            }
            Role::Reconnect(member) => {
                self.reconnect(now, member, device);
                Ok(())
            }
            Role::Ask(_) => unreachable!("its device is not used"),
            Role::SpareAgain => {
                self.take_spare_again(now, place, device);
                Ok(())
            }
            Role::Spare => {
                let before = self.directory.file.clone();
                self.directory.file.spare.retain(|spare| spare.at != place.at);
                self.directory.file.vacate(&place.at);
                self.directory.file.spare.push(place.clone());
                if let Err(error) = self.directory.save() {
                    self.directory.file = before;
                    self.detach_unused(device, now);
                    return Err(cannot_save(&self.directory, &error));
                }
                self.spare_watch.forget(&place.at);
                self.spares.push(Spare { place, device });
                self.use_spares(now);
                Ok(())
            }
        }
    }
}

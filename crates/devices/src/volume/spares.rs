//! Replaces failed members: by spares, or by new devices that a mount finds at their locations.

use zonda_raid::{MemberIndex, MemberState};
use zonda_zoned::Instant;

use super::VolumeDrive;
use super::directory::{LastState, Place, VolumeFile};
use super::drive::{Phase, SAVE_INTERVAL};
use super::member_device::MemberDevice;
use super::names::cannot_save;
use crate::{DriveError, random};

/// A device that replaces a member that fails. It is open, and so locked or reserved.
pub(super) struct Spare {
    pub(super) place: Place,
    pub(super) device: MemberDevice,
}

/// Why a device does not replace a member.
pub(super) enum Refused {
    /// `volume.toml` cannot be saved. The device is unchanged.
    NotSaved(DriveError, Box<MemberDevice>),
    /// The volume refuses the device, which is being closed.
    NotSuited(DriveError),
}

/// A device at the location of a member that is not that member.
pub(super) enum Other {
    /// It is empty.
    Empty,
    /// It was accepted before, and may be wiped.
    Joining(MemberDevice),
}

impl Other {
    /// The device, if it is not that of the member itself.
    pub(super) fn into_device(self) -> Option<MemberDevice> {
        match self {
            Other::Empty => None,
            Other::Joining(device) => Some(device),
        }
    }
}

impl VolumeDrive {
    /// Replaces a failed member by the first suitable spare.
    pub(super) fn use_spare(&mut self, now: Instant, member: MemberIndex) {
        while !self.keeps_members && !self.spares.is_empty() && matches!(self.phase, Phase::New | Phase::Open) {
            self.look_after_spares(now);
            if self.spares.is_empty() {
                return;
            }
            let Spare { place, device } = self.spares.remove(0);
            let at = place.shown();
            // It may have become a member at another address since it became a spare.
            if let Err(error) = self.must_be_another_drive(&format!("the spare {at}"), &device) {
                self.notify(true, format!("no spare for member {}: {error}", member.0));
                self.detach(device, now);
                continue;
            }
            match self.put_in(now, member, place.clone(), device) {
                Ok(()) => return self.notify(false, format!("the spare {at} replaces member {}", member.0)),
                Err(Refused::NotSaved(error, device)) => {
                    // It is not written before the file has it as a member: the next mount would
                    // use it as a spare.
                    self.spares.insert(0, Spare { place, device: *device });
                    self.notify(true, format!("the spare {at} cannot replace member {} yet: {error}", member.0));
                    self.save_again_at = Some(now + SAVE_INTERVAL);
                    return;
                }
                Err(Refused::NotSuited(error)) => {
                    self.notify(true, format!("the spare {at} cannot replace member {}: {error}", member.0));
                }
            }
        }
    }

    /// Replaces failed members without a device by spares.
    pub(super) fn use_spares(&mut self, now: Instant) {
        for member in self.members() {
            if self.state(member) == MemberState::Failed && self.on.member(member).is_none() {
                self.use_spare(now, member);
            }
        }
    }

    /// Replaces a failed member by a device; **all its zones are reset** after `volume.toml` is
    /// saved with it. An unsuitable device is closed.
    pub(super) fn put_in(
        &mut self,
        now: Instant,
        member: MemberIndex,
        place: Place,
        device: MemberDevice,
    ) -> Result<(), Refused> {
        let id = match random::uuid() {
            Ok(id) => id,
            Err(error) => return Err(Refused::NotSaved(error, Box::new(device))),
        };
        let before = self.directory.file.clone();
        self.directory.file.spare.retain(|spare| spare.at != place.at);
        let joining = Place { state: Some(LastState::Joining), ..place };
        self.directory.file.vacate(&joining.at);
        self.directory.file.member[usize::from(member.0)] = joining;
        if let Err(error) = self.directory.save() {
            self.directory.file = before;
            return Err(Refused::NotSaved(cannot_save(&self.directory, &error), Box::new(device)));
        }
        let geometry = device.own_geometry().clone();
        self.detach_member(now, member);
        self.attach_member(member, device);
        if let Err(error) = self.on.volume_mut().replace_member(now, member, geometry, id) {
            let device = self.on.replace(member, None);
            device.into_iter().for_each(|device| self.detach_unused(device, now));
            let spare = std::mem::take(&mut self.directory.file.spare);
            self.directory.file = VolumeFile { spare, ..before };
            self.save(now);
            return Err(Refused::NotSuited(DriveError::new(error.to_string(), "name another drive")));
        }
        self.ids[usize::from(member.0)] = Some(id);
        Ok(())
    }

    /// After the mount: replaces failed members by new devices at their locations, or by spares.
    pub(super) fn fill_places(&mut self, now: Instant, others: Vec<Option<Other>>) {
        // Later, devices at these locations are members in use, and must not be wiped.
        assert_eq!(self.phase, Phase::New, "the places of a volume are filled once, after its mount");
        self.on_events(now);
        for (member, other) in self.members().zip(others.into_iter().chain(std::iter::repeat_with(|| None))) {
            if self.state(member) != MemberState::Failed {
                continue;
            }
            let device = self.on.replace(member, None);
            if self.keeps_members {
                let joining = other.and_then(Other::into_device);
                device.into_iter().chain(joining).for_each(|device| self.detach(device, now));
                continue;
            }
            let (device, what) = match other {
                Some(Other::Joining(device)) => (Some(device), "is a replacement that was added before"),
                Some(Other::Empty) => (device, "is empty"),
                None => match device {
                    Some(device) if self.may_come_back(member) => {
                        // The volume verifies its identity, and whether it is up to date.
                        if let Err(error) = self.take_back(now, member, device, None) {
                            self.notify(true, error.to_string());
                            self.use_spare(now, member);
                        }
                        continue;
                    }
                    device => {
                        device.into_iter().for_each(|device| self.detach(device, now));
                        (None, "")
                    }
                },
            };
            let Some(device) = device else {
                self.use_spare(now, member);
                continue;
            };
            let place = self.directory.file.member[usize::from(member.0)].clone();
            let shown = self.shown(member);
            match self.put_in(now, member, place, device) {
                Ok(()) => self.notify(false, format!("{shown} {what}: it is being rebuilt")),
                Err(Refused::NotSuited(error)) => {
                    self.notify(true, format!("{shown} {what}, but is unsuitable: {error}"));
                    self.use_spare(now, member);
                }
                Err(Refused::NotSaved(error, device)) => {
                    self.notify(true, format!("{shown} {what}, but is not rebuilt: {error}"));
                    self.detach(*device, now);
                }
            }
        }
        self.note_states(now);
        self.phase = Phase::Open;
        self.look_for_absent(now);
    }
}

//! Devices that take the place of members that have failed: spares, and what a mount finds in their place.

use zonda_raid::{MemberIndex, MemberState};
use zonda_zoned::Instant;

use super::VolumeDrive;
use super::directory::{LastState, Place, VolumeFile};
use super::drive::{Phase, SAVE_INTERVAL};
use super::open::cannot_save;
use super::seat::Seat;
use crate::{DriveError, random};

/// A device that waits to take the place of a member that fails. It is open, and so nobody else's.
pub(super) struct Spare {
    pub(super) place: Place,
    pub(super) seat: Seat,
}

/// Why a device does not take a member's place.
pub(super) enum Refused {
    /// That cannot be written down. The device is as before.
    NotSaved(DriveError, Box<Seat>),
    /// The volume refuses it. It is being closed.
    NotSuited(DriveError),
}

/// A device in a member's place in which the mount has found no member.
pub(super) enum Other {
    /// It holds nothing.
    Empty,
    /// It was accepted before, and what it holds may go.
    Joining(Seat),
}

impl Other {
    /// The device, where the place has none of its own.
    pub(super) fn into_seat(self) -> Option<Seat> {
        match self {
            Other::Empty => None,
            Other::Joining(seat) => Some(seat),
        }
    }
}

impl VolumeDrive {
    /// The first spare that suits takes the place of a member that has failed.
    pub(super) fn use_spare(&mut self, now: Instant, member: MemberIndex) {
        while !self.keeps_members && !self.spares.is_empty() && matches!(self.phase, Phase::New | Phase::Open) {
            self.look_after_spares(now);
            if self.spares.is_empty() {
                return;
            }
            let Spare { place, seat } = self.spares.remove(0);
            let at = place.at.clone();
            // It may have become a member under another name since it became a spare.
            if let Err(error) = self.must_be_another_drive(&format!("the spare {at}"), &seat) {
                self.tell(true, format!("no spare for member {}: {error}", member.0));
                self.let_go(seat, now);
                continue;
            }
            match self.put_in(now, member, place.clone(), seat) {
                Ok(()) => return self.tell(false, format!("the spare {at} takes the place of member {}", member.0)),
                Err(Refused::NotSaved(error, seat)) => {
                    // It is not touched before the file has it in its new place: a start would take it for a spare again.
                    self.spares.insert(0, Spare { place, seat: *seat });
                    self.tell(true, format!("the spare {at} waits to take the place of member {}: {error}", member.0));
                    self.save_again_at = Some(now + SAVE_INTERVAL);
                    return;
                }
                Err(Refused::NotSuited(error)) => {
                    self.tell(true, format!("the spare {at} cannot take the place of member {}: {error}", member.0));
                }
            }
        }
    }

    /// Members that have failed, and have no device, are replaced by spares.
    pub(super) fn use_spares(&mut self, now: Instant) {
        for member in self.members() {
            if self.state(member) == MemberState::Failed && self.on.member(member).is_none() {
                self.use_spare(now, member);
            }
        }
    }

    /// A device takes the place of a member that has failed; **all its zones are reset**, but not before `volume.toml` has it in that
    /// place. Where it does not suit it is closed.
    pub(super) fn put_in(
        &mut self,
        now: Instant,
        member: MemberIndex,
        place: Place,
        seat: Seat,
    ) -> Result<(), Refused> {
        let id = match random::uuid() {
            Ok(id) => id,
            Err(error) => return Err(Refused::NotSaved(error, Box::new(seat))),
        };
        let before = self.directory.file.clone();
        self.directory.file.spare.retain(|spare| spare.at != place.at);
        let joining = Place { state: Some(LastState::Joining), ..place };
        self.directory.file.vacate(&joining.at);
        self.directory.file.member[usize::from(member.0)] = joining;
        if let Err(error) = self.directory.save() {
            self.directory.file = before;
            return Err(Refused::NotSaved(cannot_save(&self.directory, &error), Box::new(seat)));
        }
        let geometry = seat.own_geometry().clone();
        self.take_out(now, member);
        self.take_in(member, seat);
        if let Err(error) = self.on.volume_mut().replace_member(now, member, geometry, id) {
            self.take_out(now, member);
            let spare = std::mem::take(&mut self.directory.file.spare);
            self.directory.file = VolumeFile { spare, ..before };
            self.save(now);
            return Err(Refused::NotSuited(DriveError::new(error.to_string(), "give another drive")));
        }
        self.ids[usize::from(member.0)] = Some(id);
        Ok(())
    }

    /// After the mount: members that have failed are replaced where a spare is at hand, or where another device was put in their place.
    pub(super) fn fill_places(&mut self, now: Instant, others: Vec<Option<Other>>) {
        self.on_events(now);
        for (member, other) in self.members().zip(others.into_iter().chain(std::iter::repeat_with(|| None))) {
            if self.state(member) != MemberState::Failed {
                continue;
            }
            let seat = self.on.replace(member, None);
            if self.keeps_members {
                let joining = other.and_then(Other::into_seat);
                seat.into_iter().chain(joining).for_each(|seat| self.let_go(seat, now));
                continue;
            }
            let (seat, what) = match other {
                Some(Other::Joining(seat)) => (Some(seat), "was to take its place"),
                Some(Other::Empty) => (seat, "is empty"),
                None => match seat {
                    Some(seat) if self.may_come_back(member) => {
                        // What it is, and whether it is up to date, the volume finds out.
                        if let Err(error) = self.take_back(now, member, seat, None) {
                            self.tell(true, error.to_string());
                            self.use_spare(now, member);
                        }
                        continue;
                    }
                    seat => {
                        seat.into_iter().for_each(|seat| self.let_go(seat, now));
                        (None, "")
                    }
                },
            };
            let Some(seat) = seat else {
                self.use_spare(now, member);
                continue;
            };
            let place = self.directory.file.member[usize::from(member.0)].clone();
            let shown = self.shown(member);
            match self.put_in(now, member, place, seat) {
                Ok(()) => self.tell(false, format!("{shown} {what}: it is rebuilt")),
                Err(Refused::NotSuited(error)) => {
                    self.tell(true, format!("{shown} {what}, and does not suit: {error}"));
                    self.use_spare(now, member);
                }
                Err(Refused::NotSaved(error, seat)) => {
                    self.tell(true, format!("{shown} {what}, and is not rebuilt: {error}"));
                    self.let_go(*seat, now);
                }
            }
        }
        self.note_states(now);
        self.phase = Phase::Open;
        self.look_for_absent(now);
    }
}

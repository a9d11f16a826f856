//! Takeovers of one volume at the same time: at most one of them goes on.
//!
//! Each takes drives one after another, and what it has taken another one may take from it at any time, also while it is paused. The owner epoch
//! decides: a takeover takes nothing from an owner that is newer than all that it has seen at its beginning, or than itself once it has taken
//! its first drive, which made its epoch greater than that of who had it before. And it takes nothing more if it has lost a drive. Whoever finds
//! that out gives back what it has taken. So of two that begin at once the one that is first at the first drive goes on, and one that begins
//! later overtakes it.

use zonda_initiator::Holder;
use zonda_ring::Ring;
use zonda_zoned::{Duration, Instant, ZonedDevice};

use super::directory::VolumeDirectory;
use super::seat::Seat;
use super::targets::{Step, Target, Targets, epoch_of};
use crate::DriveError;

/// So long is waited for drives to say whose they are.
const ANSWER_MAX: Duration = Duration(1_000_000_000);
const ANSWER_INTERVAL: Duration = Duration(10_000_000);
/// So many owners may follow each other on a drive while it is taken.
const HOLDERS_MAX: u32 = 4;

impl Targets {
    /// Waits, and keeps connections alive.
    pub(super) fn keep_alive(&mut self, until: Instant, ring: &Ring) -> Result<(), DriveError> {
        while ring.now() < until {
            self.targets.iter_mut().for_each(|target| target.poll(ring.now()));
            let next = self.seats().filter_map(|(_, seat)| seat.next_wakeup()).min();
            ring.turn(Some(next.map_or(until, |next| next.min(until))))
                .map_err(|error| DriveError::new(format!("the event loop failed: {error}"), "try again"))?;
        }
        Ok(())
    }

    /// Ends a takeover that has lost a drive of the volume to another one.
    pub(super) fn must_be_own(&mut self, directory: &mut VolumeDirectory, ring: &Ring) -> Result<(), DriveError> {
        let lost = self.look_for_lost(directory, ring)?;
        // A spare that holds nothing of the volume may be taken for another one.
        let is_of_volume = |at: &usize| self.targets[*at].is_member || self.targets[*at].identity.is_some();
        lost.into_iter().find(is_of_volume).map_or(Ok(()), |at| Err(self.targets[at].overtaken(directory)))
    }

    /// Asks all that are reserved for this directory whose they are, and lets go of those that another owner has by now, which are returned. A
    /// drive that does not answer, as after a pause, is connected to again.
    pub(super) fn look_for_lost(
        &mut self,
        directory: &mut VolumeDirectory,
        ring: &Ring,
    ) -> Result<Vec<usize>, DriveError> {
        let asked_at = ring.now();
        self.seats().for_each(|(_, seat)| seat.confirm(asked_at));
        let is_own = |seat: &Seat| seat.confirmed_at() >= Some(asked_at);
        let is_answered = |seat: &Seat| is_own(seat) || seat.is_refused() || seat.drive.is_disconnected();
        loop {
            self.targets.iter_mut().for_each(|target| target.poll(ring.now()));
            if ring.now() >= asked_at + ANSWER_MAX || self.seats().all(|(_, seat)| is_answered(seat)) {
                break;
            }
            self.keep_alive(ring.now() + ANSWER_INTERVAL, ring)?;
        }
        let unconfirmed: Vec<(usize, bool)> = self
            .seats()
            .filter(|(_, seat)| seat.is_refused() || !is_own(seat))
            .map(|(at, seat)| (at, seat.is_refused()))
            .collect();
        let mut lost = Vec::new();
        for (at, is_refused) in unconfirmed {
            let target = &mut self.targets[at];
            let opened = open(target, None, directory, ring);
            target.probe = None;
            target.step = match opened {
                // It has been given back meanwhile.
                Ok(seat) => Step::Reserved(seat),
                Err(error) if error.is_in_use || is_refused => {
                    lost.push(at);
                    Step::InOtherHands(error)
                }
                Err(error) => Step::Missing(error),
            };
            target.granted(directory);
        }
        Ok(lost)
    }

    /// Takes a drive, whoever of the owners that are no newer than this takeover has it by now.
    pub(super) fn take(&mut self, at: usize, directory: &mut VolumeDirectory, ring: &Ring) -> Result<(), DriveError> {
        let target = &mut self.targets[at];
        // Hosts that are no servers of this volume may have a spare for good reasons.
        let force = self.force && target.is_member;
        // Who has it now is told to a host that asks for it without insisting.
        let mut opened = open(target, None, directory, ring);
        for _ in 0..HOLDERS_MAX {
            let Err(error) = &opened else { break };
            let Some(holder) = error.holder else { break };
            let epoch = epoch_of(&holder, &self.array);
            if epoch > Some(self.newest_epoch) {
                target.step = Step::InOtherHands(error.clone());
                return Err(target.overtaken(directory));
            }
            if epoch.is_none() && !force {
                break;
            }
            opened = open(target, Some(holder), directory, ring);
        }
        target.step = opened.map_or_else(Step::Missing, Step::Reserved);
        target.granted(directory);
        // Who takes it from here has a greater one.
        if let Some(claimed) = target.claimed {
            self.newest_epoch = self.newest_epoch.max(claimed.key.0 as u32);
        }
        Ok(())
    }

    fn seats(&mut self) -> impl Iterator<Item = (usize, &mut Seat)> {
        self.targets.iter_mut().enumerate().filter_map(|(at, target)| match &mut target.step {
            Step::Reserved(seat) if seat.is_claimed() => Some((at, seat)),
            _ => None,
        })
    }
}

impl Target {
    /// Another takeover has this drive.
    pub(super) fn overtaken(&self, directory: &VolumeDirectory) -> DriveError {
        let by = match (self.holder(), directory.owner()) {
            (Some(holder), Some(owner)) => owner.shown(&holder),
            _ => "another host".to_owned(),
        };
        DriveError::new(
            format!("another takeover has overtaken this one: {} has been taken meanwhile by {by}", self.place.at),
            format!(
                "serve the volume from the directory that it was taken over for; to have it here all the same, stop that server and repeat: \
                 zonda volume takeover {}",
                directory.path().display()
            ),
        )
    }
}

/// Opens a drive, and takes it from this holder alone, or from nobody but earlier programs of this directory.
fn open(
    target: &Target,
    from: Option<Holder>,
    directory: &mut VolumeDirectory,
    ring: &Ring,
) -> Result<Seat, DriveError> {
    directory.owner_mut().into_iter().for_each(|owner| owner.take_from(from.as_ref()));
    Seat::open(&directory.access(&target.place)?, ring)
}

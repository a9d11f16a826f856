//! Concurrent takeovers of one volume: at most one of them succeeds.
//!
//! Each preempts the reservations of the drives one after another, and another takeover may preempt
//! its reservations at any time, also while it is paused. The owner epoch decides: a takeover does
//! not preempt an owner that is newer than all that it saw at its beginning, or than itself once it
//! has reserved its first drive, which made its epoch greater than that of the previous holder. It
//! also stops when it has lost a drive. A takeover that stops restores the reservations that it has
//! preempted. So of two takeovers that begin at the same time, the one that reserves the first
//! drive first succeeds, and one that begins later preempts it.

use zonda_initiator::Holder;
use zonda_ring::Ring;
use zonda_zoned::{Duration, Instant, ZonedDevice};

use super::directory::VolumeDirectory;
use super::member_device::MemberDevice;
use super::targets::{Step, Target, Targets, epoch_of};
use crate::DriveError;

/// Timeout for drives to confirm their reservation.
const ANSWER_MAX: Duration = Duration(1_000_000_000);
const ANSWER_INTERVAL: Duration = Duration(10_000_000);
/// How often the holder of a drive may change while it is preempted.
const HOLDERS_MAX: u32 = 4;

impl Targets {
    /// Waits, while keeping connections alive.
    pub(super) fn keep_alive(&mut self, until: Instant, ring: &Ring) -> Result<(), DriveError> {
        while ring.now() < until {
            self.targets.iter_mut().for_each(|target| target.poll(ring.now()));
            let next = self.devices().filter_map(|(_, device)| device.next_wakeup()).min();
            ring.run_once(Some(next.map_or(until, |next| next.min(until))))
                .map_err(|error| DriveError::new(format!("the event loop failed: {error}"), "try again"))?;
        }
        Ok(())
    }

    /// Fails if this takeover has lost a drive of the volume to another one.
    pub(super) fn must_be_own(&mut self, directory: &mut VolumeDirectory, ring: &Ring) -> Result<(), DriveError> {
        let lost = self.look_for_lost(directory, ring)?;
        // A spare without contents of the volume may be used by another volume.
        let is_of_volume = |at: &usize| self.targets[*at].is_member || self.targets[*at].identity.is_some();
        lost.into_iter().find(is_of_volume).map_or(Ok(()), |at| Err(self.targets[at].preempted(directory)))
    }

    /// Asks all drives that are reserved for this directory to confirm that, and drops those that
    /// another owner has reserved since, which are returned. Reconnects drives that do not respond,
    /// as after a pause.
    pub(super) fn look_for_lost(
        &mut self,
        directory: &mut VolumeDirectory,
        ring: &Ring,
    ) -> Result<Vec<usize>, DriveError> {
        let asked_at = ring.now();
        self.devices().for_each(|(_, device)| device.confirm(asked_at));
        let is_own = |device: &MemberDevice| device.confirmed_at() >= Some(asked_at);
        let is_answered =
            |device: &MemberDevice| is_own(device) || device.is_refused() || device.drive.is_disconnected();
        loop {
            self.targets.iter_mut().for_each(|target| target.poll(ring.now()));
            if ring.now() >= asked_at + ANSWER_MAX || self.devices().all(|(_, device)| is_answered(device)) {
                break;
            }
            self.keep_alive(ring.now() + ANSWER_INTERVAL, ring)?;
        }
        let unconfirmed: Vec<(usize, bool)> = self
            .devices()
            .filter(|(_, device)| device.is_refused() || !is_own(device))
            .map(|(at, device)| (at, device.is_refused()))
            .collect();
        let mut lost = Vec::new();
        for (at, is_refused) in unconfirmed {
            let target = &mut self.targets[at];
            let opened = open(target, None, directory, ring);
            target.probe = None;
            target.step = match opened {
                // The other owner has released it meanwhile.
                Ok(device) => Step::Reserved(device),
                Err(error) if error.is_in_use || is_refused => {
                    lost.push(at);
                    Step::ReservedByOther(error)
                }
                Err(error) => Step::Missing(error),
            };
            target.granted(directory);
        }
        Ok(lost)
    }

    /// Preempts the holder of a drive, which may be any owner that is not newer than this takeover.
    pub(super) fn take(&mut self, at: usize, directory: &mut VolumeDirectory, ring: &Ring) -> Result<(), DriveError> {
        let target = &mut self.targets[at];
        // Hosts other than servers of this volume may rightfully use a spare.
        let force = self.force && target.is_member;
        // An attempt to reserve it without preempting reports the present holder.
        let mut opened = open(target, None, directory, ring);
        for _ in 0..HOLDERS_MAX {
            let Err(error) = &opened else { break };
            let Some(holder) = error.holder else { break };
            let epoch = epoch_of(&holder, &self.array);
            if epoch > Some(self.newest_epoch) {
                target.step = Step::ReservedByOther(error.clone());
                return Err(target.preempted(directory));
            }
            if epoch.is_none() && !force {
                break;
            }
            opened = open(target, Some(holder), directory, ring);
        }
        target.step = opened.map_or_else(Step::Missing, Step::Reserved);
        target.granted(directory);
        // An owner that preempts this takeover has a greater epoch.
        if let Some(claimed) = target.claimed {
            self.newest_epoch = self.newest_epoch.max(claimed.key.0 as u32);
        }
        Ok(())
    }

    fn devices(&mut self) -> impl Iterator<Item = (usize, &mut MemberDevice)> {
        self.targets.iter_mut().enumerate().filter_map(|(at, target)| match &mut target.step {
            Step::Reserved(device) if device.is_claimed() => Some((at, device)),
            _ => None,
        })
    }
}

impl Target {
    /// The error if another takeover has reserved this drive.
    pub(super) fn preempted(&self, directory: &VolumeDirectory) -> DriveError {
        let by = match (self.holder(), directory.owner()) {
            (Some(holder), Some(owner)) => owner.shown(&holder),
            _ => "another host".to_owned(),
        };
        DriveError::new(
            format!("preempted by another takeover: {} is now reserved by {by}", self.place.at),
            format!(
                "serve the volume from the directory of the other takeover; to use it here instead, stop that server \
                 and repeat: zonda volume takeover {}",
                directory.path().display()
            ),
        )
    }
}

/// Opens a drive, preempting only this holder, or only earlier programs of this directory.
fn open(
    target: &Target,
    from: Option<Holder>,
    directory: &mut VolumeDirectory,
    ring: &Ring,
) -> Result<MemberDevice, DriveError> {
    directory.owner_mut().into_iter().for_each(|owner| owner.take_from(from.as_ref()));
    MemberDevice::open(&directory.access(&target.place)?, ring)
}

//! Concurrent takeovers of one volume: exactly one of them succeeds.
//!
//! Each preempts the reservations of the drives one after another, and another takeover may preempt
//! its reservations at any time, also while it is paused. The owner epoch decides: a takeover does
//! not preempt an owner that is newer than all that it saw at its beginning, or than itself once it
//! has reserved its first drive, which made its epoch greater than that of the previous holder. It
//! also stops when it has lost a drive. A takeover that stops restores the reservations that it has
//! preempted.
//!
//! Epochs of drives differ, so both takeovers could stop. Therefore the one with the greater host
//! identifier continues as long as the other one cannot have succeeded yet, since each waits for
//! [`LEASE`] before it does: it preempts the other one, which then stops. Hosts that held drives at
//! the beginning are preempted in any case: a takeover that has stopped has restored their
//! reservations with greater keys.

use zonda_initiator::Holder;
use zonda_ring::Ring;
use zonda_zoned::{Duration, Instant, ZonedDevice};

use super::directory::VolumeDirectory;
use super::lease::LEASE;
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
            let next = self.devices().filter_map(|(_, device)| device.next_timeout()).min();
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
        let lost: Vec<usize> = lost.into_iter().filter(is_of_volume).collect();
        lost.into_iter().try_for_each(|at| self.take_again(at, directory, ring))
    }

    /// Preempts another takeover that has reserved a drive of this one, if this one is to continue.
    /// The other one may have reserved the drive again meanwhile.
    fn take_again(&mut self, at: usize, directory: &mut VolumeDirectory, ring: &Ring) -> Result<(), DriveError> {
        for _ in 0..HOLDERS_MAX {
            let holder = self.targets[at].holder().filter(|holder| epoch_of(holder, &self.array).is_some());
            let Some(holder) = holder.filter(|holder| self.is_ahead(at, holder, directory, ring.now())) else {
                break;
            };
            let now = ring.now();
            let target = &mut self.targets[at];
            target.step = match open(target, Some(holder), directory, ring) {
                Ok(device) => Step::Reserved(device),
                Err(error) if error.is_in_use => {
                    target.step = Step::ReservedByOther(error);
                    continue;
                }
                Err(error) => Step::Missing(error),
            };
            target.known_at = now;
            self.note_epoch(at, directory);
            return Ok(());
        }
        Err(self.targets[at].preempted(directory))
    }

    /// Whether this takeover continues against another one that holds a drive, which cannot have
    /// succeeded yet.
    fn is_ahead(&self, at: usize, other: &Holder, directory: &VolumeDirectory, now: Instant) -> bool {
        let is_greater = directory.owner().is_some_and(|own| own.host().0 > other.host.0);
        is_greater && now < self.targets[at].known_at + LEASE
    }

    /// A drive may be reserved now. An owner that preempts this takeover has a greater epoch.
    fn note_epoch(&mut self, at: usize, directory: &mut VolumeDirectory) {
        let target = &mut self.targets[at];
        target.granted(directory);
        if let Step::Reserved(device) = &target.step
            && let Some(claimed) = device.drive.claimed()
        {
            self.newest_epoch = self.newest_epoch.max(claimed.key.0 as u32);
        }
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
        for (at, target) in self.targets.iter_mut().enumerate() {
            if !unconfirmed.iter().any(|(other, _)| *other == at) && matches!(target.step, Step::Reserved(_)) {
                target.known_at = asked_at;
            }
        }
        for (at, is_refused) in unconfirmed {
            let (target, now) = (&mut self.targets[at], ring.now());
            let opened = open(target, None, directory, ring);
            target.probe = None;
            target.step = match opened {
                // The other owner has released it meanwhile.
                Ok(device) => {
                    target.known_at = now;
                    Step::Reserved(device)
                }
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

    /// Preempts the holder of a drive.
    pub(super) fn take(&mut self, at: usize, directory: &mut VolumeDirectory, ring: &Ring) -> Result<(), DriveError> {
        // Hosts other than servers of this volume may rightfully use a spare.
        let force = self.force && self.targets[at].is_member;
        let mut now = ring.now();
        // An attempt to reserve it without preempting reports the present holder.
        let mut opened = open(&self.targets[at], None, directory, ring);
        for _ in 0..HOLDERS_MAX {
            let Err(error) = &opened else { break };
            let Some(holder) = error.holder else { break };
            let epoch = epoch_of(&holder, &self.array);
            if epoch.is_none() && !force {
                break;
            }
            let is_newer = epoch > Some(self.newest_epoch) && !self.hosts.contains(&holder.host);
            if is_newer && !self.is_ahead(at, &holder, directory, ring.now()) {
                let target = &mut self.targets[at];
                target.step = Step::ReservedByOther(error.clone());
                return Err(target.preempted(directory));
            }
            now = ring.now();
            opened = open(&self.targets[at], Some(holder), directory, ring);
        }
        let target = &mut self.targets[at];
        target.step = opened.map_or_else(Step::Missing, Step::Reserved);
        target.known_at = now;
        self.note_epoch(at, directory);
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
            format!("preempted by another takeover: {} is now reserved by {by}", self.place.shown()),
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

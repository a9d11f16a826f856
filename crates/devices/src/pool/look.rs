//! Reports the state of a pool that is not in use; nothing is written.

use std::path::Path;

use zonda_elastic::{Goal, Start, StartError};
use zonda_ring::{Ring, RingOptions};
use zonda_zoned::{CompletionQueue, Geometry, Instant, NamespaceId, PayloadKind, ZonedDevice};

use super::directory::{PoolDirectory, in_use};
use super::drive::{NotStarted, loop_failed, not_mounted, of_pool, reserved_by};
use super::report::PoolReport;
use crate::look::Snapshot;
use crate::volume::identities::holder;
use crate::volume::member_device::{MemberDevice, release};
use crate::{DriveError, Location};

impl PoolReport {
    /// Reports the state of the pool in `path`, which must not be in use, from its drive. Nothing is
    /// written.
    ///
    /// # Errors
    /// When there is no pool, it is in use, or its drive cannot be read; with the remedy.
    pub fn inspect(path: &Path) -> Result<PoolReport, DriveError> {
        let directory = PoolDirectory::open_read_only(path)?;
        let access = directory.access()?;
        match &access.location {
            Location::Image(image) => {
                let mut snapshot = Snapshot::open(image)
                    .map_err(|error| if error.is_in_use { in_use(path) } else { of_pool(error, &directory) })?;
                read_image(&directory, &mut snapshot)
            }
            Location::Device(_) => {
                let ring = Ring::new(RingOptions::default()).map_err(|error| loop_failed(&error))?;
                let mut device = MemberDevice::open(&access, &ring)
                    .map_err(|error| if error.is_in_use { in_use(path) } else { error })?;
                let report = read_on(&directory, &mut device, &ring);
                release(vec![device], &ring);
                report
            }
            Location::NvmeTcp(_) => {
                let ring = Ring::new(RingOptions::default()).map_err(|error| loop_failed(&error))?;
                // The directory is locked, so that the host that has reserved the drive is another one.
                let mut device = MemberDevice::open(&access, &ring).map_err(|error| {
                    let holder = if error.is_in_use { holder(&access, &ring) } else { None };
                    holder.map_or(error, |holder| reserved_by(&directory, holder))
                })?;
                let report = read_on(&directory, &mut device, &ring);
                let is_refused = device.is_refused();
                release(vec![device], &ring);
                // It was taken over while it was read.
                let holder = if is_refused { holder(&access, &ring) } else { None };
                report.map_err(|error| holder.map_or(error, |holder| reserved_by(&directory, holder)))
            }
        }
    }
}

/// Reads what a mount reads from an image, whose commands complete at once.
pub(super) fn read_image(directory: &PoolDirectory, image: &mut Snapshot) -> Result<PoolReport, DriveError> {
    read(directory, image, |_| None, || (Instant::ZERO, Ok(())))
}

/// Reads what a mount reads from a drive on this ring. Fails if another host reserves the drive
/// meanwhile.
pub(super) fn read_on(
    directory: &PoolDirectory,
    drive: &mut MemberDevice,
    ring: &Ring,
) -> Result<PoolReport, DriveError> {
    read(directory, drive, MemberDevice::why_unreadable, || {
        let ran = ring.run_once(Some(ring.now() + zonda_zoned::Duration(1_000_000)));
        (ring.now(), ran.map_err(|error| loop_failed(&error)))
    })
}

/// Reads what a mount reads. `wait` waits for the drive for a moment, and returns the time. If the drive is
/// `unreadable`, commands may not complete.
fn read<D: ZonedDevice>(
    directory: &PoolDirectory,
    drive: &mut D,
    unreadable: impl Fn(&D) -> Option<DriveError>,
    mut wait: impl FnMut() -> (Instant, Result<(), DriveError>),
) -> Result<PoolReport, DriveError> {
    let geometry: Geometry = drive.geometry(NamespaceId::FIRST).clone();
    let goal = Goal::Mount { id: Some(directory.id()), epoch_min: directory.epoch() };
    let mut start = Start::new(goal, geometry.clone(), NamespaceId::FIRST, PayloadKind::Bytes);
    let (mut completions, mut now) = (CompletionQueue::new(), Instant::ZERO);
    loop {
        while let Some(command) = start.poll_command(now) {
            if let Err(refused) = drive.submit(now, command) {
                start.on_queue_full(refused.0);
                break;
            }
        }
        drive.poll(now, &mut completions);
        while let Some(completion) = completions.pop() {
            start.on_completion(now, completion);
        }
        if let Some(error) = unreadable(drive) {
            let message = format!("cannot read the drive {}: {}", directory.shown_drive(), error.message);
            return Err(DriveError { message, ..error });
        }
        match start.take_outcome() {
            // Its first commands would write: they are not sent.
            Some(Ok(pool)) => {
                let mut report = PoolReport::of(&pool, pool.activity(), &geometry, directory.drive());
                // A mount has the next one.
                report.epoch -= 1;
                return Ok(report);
            }
            Some(Err(error)) => return Err(not_readable(error, directory)),
            None => {}
        }
        let (at, result) = wait();
        now = at;
        result?;
    }
}

fn not_readable(error: StartError, directory: &PoolDirectory) -> DriveError {
    not_mounted(&NotStarted::Refused(error), directory)
}

//! Takes a volume over from an owner that cannot be reached.

use std::path::Path;

use serde::{Deserialize, Serialize};
use zonda_ring::Ring;
use zonda_zoned::Duration;

use super::VolumeDrive;
use super::bugs::{OwnerBug, is_seeded};
use super::directory::{MISSING, Place, VolumeDirectory};
use super::lease::LEASE;
use super::member_device::is_behind_server;
use super::names::cannot_save;
use super::targets::{Step, Targets};
use crate::{DriveError, Location};

/// The result of a takeover of a volume or a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeoverReport {
    /// The owner epoch that members are reserved with from now on.
    pub owner_epoch: u32,
    /// Members and spares of servers; the drive of a pool.
    pub drives: Vec<TakenDrive>,
    /// Whether enough members are reserved: the volume can be served from here. Of a release with
    /// [`accepts_missing`](TakeoverOptions::accepts_missing): whether any was released.
    #[serde(default)]
    pub is_enough: bool,
}

/// A member or spare after a takeover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenDrive {
    /// Its path or URL.
    pub at: String,
    /// The previous holder; absent if it was not reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_from: Option<String>,
    /// Why it is not reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The previous holder of a member that was reserved for the same directory before.
pub(crate) const FROM_HERE: &str = "this directory";

/// Options of a takeover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakeoverOptions {
    /// Also preempts hosts that are not servers of this volume or pool.
    pub force: bool,
    /// The operator confirms that no other server uses the volume with the members that cannot be
    /// reached. A pool has only one drive: nothing to confirm.
    pub accepts_missing: bool,
    /// Releases the members at the end: the operator confirms that no other server is left that
    /// could continue.
    pub releases: bool,
}

impl VolumeDrive {
    /// Reserves the remote members and spares of the volume in `path`, and preempts other owners of
    /// this volume. Their outstanding commands are aborted. The reservations persist from now on,
    /// for programs that open the volume from this directory. Waits until no other owner can
    /// complete a command any more; with [`releases`](TakeoverOptions::releases) the members are
    /// released after that.
    ///
    /// # Errors
    /// When there is no such volume, it is in use by a program on this machine, it has no remote
    /// members, another server may continue with members that cannot be reached or are not in this
    /// directory, or another takeover has preempted this one; with the remedy. The previous
    /// reservations are restored then: an owner that lost a member while it was read has it again.
    /// This is also done if the report has too few members.
    pub fn take_over(path: &Path, options: TakeoverOptions, ring: &Ring) -> Result<TakeoverReport, DriveError> {
        let mut directory = VolumeDirectory::open(path)?;
        if !directory.note_owner() {
            return Err(DriveError::new(
                format!("no member of the volume in {} can be taken over: all are images", path.display()),
                "images are unlocked when the program that has them open exits",
            ));
        }
        let mut targets = Targets::ask(&directory, options.force, ring)?;
        // A release preempts no other host.
        let checks = !options.accepts_missing && !options.releases;
        let reached = if options.accepts_missing { Ok(()) } else { targets.must_reach_enough(&directory) };
        let checked =
            reached.and_then(|()| if options.releases { targets.must_be_from_here(&directory) } else { Ok(()) });
        let stayed_reserved = directory.file.stays_reserved;
        let taken = checked.and_then(|()| {
            // Saved before any host is preempted: from then on the members must stay reserved.
            directory.file.stays_reserved = true;
            directory.save().map_err(|error| cannot_save(&directory, &error))?;
            targets.take_all(&mut directory, checks, ring)
        });
        if let Err(error) = taken {
            return Err(refuse(directory, targets, stayed_reserved, error, ring));
        }
        directory.note_owner();
        let accepted_missing = std::mem::replace(&mut directory.file.accepts_missing, options.accepts_missing);
        // If this fails, the next owner is still identified by its lock; the operator has to
        // confirm again.
        let _ = directory.save();
        let wait = if is_seeded(OwnerBug::HastyTakeover) { Duration(0) } else { LEASE };
        targets.keep_alive(ring.now() + wait, ring)?;
        let is_own = if options.releases {
            targets.look_for_lost(&mut directory, ring).map(|_| ())
        } else {
            targets.must_be_own(&mut directory, ring)
        };
        if let Err(error) = is_own {
            directory.file.accepts_missing = accepted_missing;
            return Err(refuse(directory, targets, stayed_reserved, error, ring));
        }
        let (mut report, members_taken) = report_of(&directory, &targets);
        let not_taken = members_taken.iter().filter(|at| report.drives[**at].error.is_some()).count();
        let needed = directory.file.enough.unwrap_or(1);
        // With the confirmation, only the members themselves must be enough.
        report.is_enough = if options.accepts_missing {
            let is_remote = |place: &Place| directory.location(place).is_ok_and(|at| is_behind_server(&at));
            let are_known = directory.file.member.iter().filter(|place| place.at != MISSING).all(is_remote);
            let can_be_assembled = !are_known || targets.can_be_assembled();
            let is_any_acquired = report.drives.iter().any(|drive| drive.error.is_none());
            if options.releases {
                is_any_acquired
            } else {
                can_be_assembled && usable_drives(&directory, &report) >= needed
            }
        } else {
            not_taken < needed
        };
        if options.releases && (report.is_enough || !options.accepts_missing) {
            targets.release(ring);
            directory.file.stays_reserved = false;
            directory.save().map_err(|error| cannot_save(&directory, &error))?;
        } else if !report.is_enough {
            directory.file.accepts_missing = accepted_missing;
            let unrestored = roll_back(&mut directory, targets, stayed_reserved, ring);
            for drive in
                report.drives.iter_mut().filter(|drive| drive.error.is_none() && !unrestored.contains(&drive.at))
            {
                drive.error =
                    Some("its previous reservation was restored, since too few members could be reserved".to_owned());
            }
        }
        Ok(report)
    }
}

/// The report of a takeover, and the indices of the drives in it that are members.
fn report_of(directory: &VolumeDirectory, targets: &Targets) -> (TakeoverReport, Vec<usize>) {
    let owner_epoch = directory.file.owner.as_ref().map_or(0, |owner| owner.epoch);
    let (mut report, mut members) = (TakeoverReport { owner_epoch, ..TakeoverReport::default() }, Vec::new());
    for target in &targets.targets {
        let is_image = || directory.access(&target.place).is_ok_and(|access| !is_behind_server(&access.location));
        if target.place.at == MISSING || is_image() {
            continue;
        }
        let mut drive = TakenDrive { at: target.place.at.clone(), ..TakenDrive::default() };
        match (&target.step, target.claimed, directory.owner()) {
            (Step::ReservedByOther(error) | Step::Missing(error), ..) => drive.error = Some(error.message.clone()),
            (Step::Reserved(_), None, _) => drive.error = Some("its server does not support reservations".to_owned()),
            (Step::Reserved(_), Some(claimed), Some(owner)) => {
                let shown = |holder| if owner.had(&claimed) { FROM_HERE.to_owned() } else { owner.shown(&holder) };
                drive.taken_from = claimed.preempted.map(shown);
            }
            _ => {}
        }
        members.extend(target.is_member.then_some(report.drives.len()));
        report.drives.push(drive);
    }
    (report, members)
}

/// The maximum number of members that a mount after this takeover finds: drives that were acquired,
/// and images. A spare may have replaced a member since this `volume.toml` was copied.
fn usable_drives(directory: &VolumeDirectory, report: &TakeoverReport) -> usize {
    let is_acquired = |at: &str| report.drives.iter().any(|drive| drive.at == at && drive.error.is_none());
    let is_usable = |place: &&Place| match directory.location(place) {
        Ok(location) if is_behind_server(&location) => is_acquired(&place.at),
        Ok(Location::Image(path)) => path.is_dir(),
        Ok(Location::Device(path)) => path.exists(),
        _ => false,
    };
    directory.file.member.iter().chain(&directory.file.spare).filter(is_usable).count()
}

/// Rolls a takeover back. If that does not succeed, the error says for which drives.
fn refuse(
    mut directory: VolumeDirectory,
    targets: Targets,
    stayed_reserved: bool,
    error: DriveError,
    ring: &Ring,
) -> DriveError {
    let unrestored = roll_back(&mut directory, targets, stayed_reserved, ring);
    if unrestored.is_empty() {
        return error;
    }
    let message = format!(
        "{}; cannot restore the reservations of {}, which stay reserved for this directory",
        error.message,
        unrestored.join(", ")
    );
    DriveError { message, ..error }
}

/// Restores the previous reservations. Returns the drives for which that failed.
fn roll_back(directory: &mut VolumeDirectory, targets: Targets, stayed_reserved: bool, ring: &Ring) -> Vec<String> {
    let unrestored = targets.undo(directory, ring);
    if unrestored.is_empty() {
        directory.file.stays_reserved = stayed_reserved;
        // If this fails, the next program of this directory keeps the members reserved.
        let _ = directory.save();
    }
    unrestored
}

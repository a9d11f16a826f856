//! A volume taken from an owner that cannot be reached.

use std::path::Path;

use serde::{Deserialize, Serialize};
use zonda_ring::Ring;
use zonda_zoned::Duration;

use super::VolumeDrive;
use super::bugs::{OwnerBug, is_planted};
use super::directory::{MISSING, VolumeDirectory};
use super::lease::LEASE;
use super::open::cannot_save;
use super::seat::is_behind_server;
use super::targets::{Step, Targets};
use crate::DriveError;

/// What a takeover has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeoverReport {
    /// The owner epoch that members are reserved with from now on.
    pub owner_epoch: u32,
    /// Members and spares that servers have.
    pub drives: Vec<TakenDrive>,
    /// Whether all that is needed was taken: the volume can be served from here.
    #[serde(default)]
    pub is_enough: bool,
}

/// A member or spare after a takeover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenDrive {
    /// Where it is.
    pub at: String,
    /// Who had it; absent where nobody had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_from: Option<String>,
    /// Why it was not taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Who had a member that was reserved from the same directory before.
const FROM_HERE: &str = "this directory";

/// What an operator says of a takeover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakeoverOptions {
    /// Hosts are preempted that are no servers of this volume, too.
    pub force: bool,
    /// No other server uses the volume with the members that cannot be reached.
    pub accepts_missing: bool,
    /// In the end nobody has the members: no server is left that might go on where it was.
    pub releases: bool,
}

impl VolumeDrive {
    /// Reserves the members and spares of the volume in `path` that servers have, also those that another owner of this volume has reserved.
    /// What they had in flight is aborted. The reservations stay, from now on: programs that open the volume from this directory, and no
    /// others, have them. Waits until no other owner answers anything any more; only then are the members released, if that is asked for.
    ///
    /// # Errors
    /// When there is no such volume, a program on this machine has it, no server has any of its members, or another server may go on with
    /// those that cannot be reached or that this directory does not know, or another takeover has overtaken this one; and what to do. All is
    /// reserved as before then: an owner that lost a member for the moment that it took to read it has it again. So it is where the report
    /// says that too few were taken.
    pub fn take_over(path: &Path, options: TakeoverOptions, ring: &Ring) -> Result<TakeoverReport, DriveError> {
        let mut directory = VolumeDirectory::open(path)?;
        if !directory.note_owner() {
            return Err(DriveError::new(
                format!("there is nothing to take over: all members of the volume in {} are images", path.display()),
                "images are free when the program ends that has them open",
            ));
        }
        let mut targets = Targets::ask(&directory, options.force, ring)?;
        // Who only releases takes nothing from anybody.
        let checks = !options.accepts_missing && !options.releases;
        let reached = if options.accepts_missing { Ok(()) } else { targets.must_reach_enough(&directory) };
        let checked =
            reached.and_then(|()| if options.releases { targets.must_be_from_here(&directory) } else { Ok(()) });
        let stayed_reserved = directory.file.stays_reserved;
        let taken = checked.and_then(|()| {
            // Before anybody loses a reservation: from then on there must be one.
            directory.file.stays_reserved = true;
            directory.save().map_err(|error| cannot_save(&directory, &error))?;
            targets.take_all(&mut directory, checks, ring)
        });
        if let Err(error) = taken {
            return Err(refuse(directory, targets, stayed_reserved, error, ring));
        }
        directory.note_owner();
        let accepted_missing = std::mem::replace(&mut directory.file.accepts_missing, options.accepts_missing);
        // Without that the next owner is known by its lock all the same; what the operator has said is to be said again.
        let _ = directory.save();
        let wait = if is_planted(OwnerBug::HastyTakeover) { Duration(0) } else { LEASE };
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
        report.is_enough = options.accepts_missing || not_taken < directory.file.enough.unwrap_or(1);
        if options.releases {
            targets.release(ring);
            directory.file.stays_reserved = false;
            directory.save().map_err(|error| cannot_save(&directory, &error))?;
        } else if !report.is_enough {
            let kept = give_back(&mut directory, targets, stayed_reserved, ring);
            for drive in report.drives.iter_mut().filter(|drive| drive.error.is_none() && !kept.contains(&drive.at)) {
                drive.error = Some("it was given back, since too few members could be taken".to_owned());
            }
        }
        Ok(report)
    }
}

/// What was taken and what was not, and which of the drives are members.
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
            (Step::InOtherHands(error) | Step::Missing(error), ..) => drive.error = Some(error.message.clone()),
            (Step::Reserved(_), None, _) => drive.error = Some("its server knows no reservations".to_owned()),
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

/// All is as it was before, or the error says what is not.
fn refuse(
    mut directory: VolumeDirectory,
    targets: Targets,
    stayed_reserved: bool,
    error: DriveError,
    ring: &Ring,
) -> DriveError {
    let kept = give_back(&mut directory, targets, stayed_reserved, ring);
    if kept.is_empty() {
        return error;
    }
    let message =
        format!("{}; {} could not be given back, and stay reserved for this directory", error.message, kept.join(", "));
    DriveError { message, ..error }
}

/// All is reserved as it was before, but for what is returned.
fn give_back(directory: &mut VolumeDirectory, targets: Targets, stayed_reserved: bool, ring: &Ring) -> Vec<String> {
    let kept = targets.undo(directory, ring);
    if kept.is_empty() {
        directory.file.stays_reserved = stayed_reserved;
        // If the file says still that members stay reserved, whoever uses it next keeps them so.
        let _ = directory.save();
    }
    kept
}

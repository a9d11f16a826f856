//! A volume taken from an owner that cannot be reached.

use std::path::Path;

use serde::{Deserialize, Serialize};
use zonda_ring::Ring;
use zonda_zoned::{CompletionQueue, Duration, Instant, ZonedDevice};

use super::VolumeDrive;
use super::bugs::{OwnerBug, is_planted};
use super::directory::{MISSING, VolumeDirectory};
use super::lease::LEASE;
use super::open::cannot_save;
use super::seat::{Seat, is_behind_server, release};
use super::targets::{Step, Target, Targets};
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

/// So long is waited for members to say whose they are.
const ANSWER_MAX: Duration = Duration(1_000_000_000);
const ANSWER_INTERVAL: Duration = Duration(10_000_000);

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
    /// those that cannot be reached or that this directory does not know; and what to do. All is reserved as before then: an owner that
    /// lost a member for the moment that it took to read it has it again.
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
        let (mut report, mut held, mut members_taken) = (TakeoverReport::default(), Vec::new(), Vec::new());
        for Target { place, is_member, step, .. } in targets.targets {
            let is_image = || directory.access(&place).is_ok_and(|access| !is_behind_server(&access.location));
            if place.at == MISSING || is_image() {
                continue;
            }
            let mut drive = TakenDrive { at: place.at.clone(), ..TakenDrive::default() };
            match step {
                Step::Reserved(seat) => match seat.drive.claimed() {
                    Some(claimed) => {
                        if let Some(owner) = directory.owner() {
                            let shown =
                                |holder| if owner.had(&claimed) { FROM_HERE.to_owned() } else { owner.shown(&holder) };
                            drive.taken_from = claimed.preempted.map(shown);
                        }
                        held.push((report.drives.len(), seat));
                    }
                    None => drive.error = Some("its server knows no reservations".to_owned()),
                },
                Step::InOtherHands(error) | Step::Missing(error) => drive.error = Some(error.message),
            }
            members_taken.extend(is_member.then_some(report.drives.len()));
            report.drives.push(drive);
        }
        directory.note_owner();
        directory.file.accepts_missing = options.accepts_missing;
        report.owner_epoch = directory.file.owner.as_ref().map_or(0, |owner| owner.epoch);
        // Without that the next owner is known by its lock all the same; what the operator has said is to be said again.
        let _ = directory.save();
        let wait = if is_planted(OwnerBug::HastyTakeover) { Duration(0) } else { LEASE };
        keep_alive(&mut held, ring.now() + wait, ring)?;
        for (at, error) in unconfirmed(&mut held, ring)? {
            report.drives[at].error = Some(error.to_owned());
        }
        let not_taken = members_taken.iter().filter(|at| report.drives[**at].error.is_some()).count();
        report.is_enough = options.accepts_missing || not_taken < directory.file.enough.unwrap_or(1);
        if options.releases {
            release(held.into_iter().map(|(_, seat)| seat).collect(), ring);
            directory.file.stays_reserved = false;
            directory.save().map_err(|error| cannot_save(&directory, &error))?;
        }
        Ok(report)
    }
}

/// All is as it was before, or the error says what is not.
fn refuse(
    mut directory: VolumeDirectory,
    targets: Targets,
    stayed_reserved: bool,
    error: DriveError,
    ring: &Ring,
) -> DriveError {
    let kept = targets.undo(&directory, ring);
    if kept.is_empty() {
        if std::mem::replace(&mut directory.file.stays_reserved, stayed_reserved) != stayed_reserved {
            // If the file says still that members stay reserved, whoever uses it next keeps them so.
            let _ = directory.save();
        }
        return error;
    }
    let message =
        format!("{}; {} could not be given back, and stay reserved for this directory", error.message, kept.join(", "));
    DriveError { message, ..error }
}

/// Waits, and keeps connections alive.
fn keep_alive(held: &mut [(usize, Seat)], until: Instant, ring: &Ring) -> Result<(), DriveError> {
    while ring.now() < until {
        held.iter_mut().for_each(|(_, seat)| seat.poll(ring.now(), &mut CompletionQueue::new()));
        let next = held.iter().filter_map(|(_, seat)| seat.next_wakeup()).min();
        ring.turn(Some(next.map_or(until, |next| next.min(until))))
            .map_err(|error| DriveError::new(format!("the event loop failed: {error}"), "try again"))?;
    }
    Ok(())
}

/// Asks drives whose they are. Says what is wrong with those that are not known to be this directory's still, and lets go of those that another
/// owner has by now.
fn unconfirmed(held: &mut Vec<(usize, Seat)>, ring: &Ring) -> Result<Vec<(usize, &'static str)>, DriveError> {
    let asked_at = ring.now();
    held.iter_mut().for_each(|(_, seat)| seat.confirm(asked_at));
    let is_confirmed = |seat: &Seat| seat.confirmed_at() >= Some(asked_at);
    let is_answered = |seat: &Seat| seat.is_refused() || seat.drive.is_disconnected() || is_confirmed(seat);
    while !held.iter().all(|(_, seat)| is_answered(seat)) && ring.now() < asked_at + ANSWER_MAX {
        keep_alive(held, ring.now() + ANSWER_INTERVAL, ring)?;
    }
    let what = |(at, seat): &(usize, Seat)| match seat {
        seat if seat.is_refused() => Some((*at, "another takeover has taken it meanwhile")),
        seat if !is_confirmed(seat) => Some((*at, "it does not answer any more")),
        _ => None,
    };
    let unconfirmed = held.iter().filter_map(what).collect();
    held.retain(|(_, seat)| !seat.is_refused());
    Ok(unconfirmed)
}

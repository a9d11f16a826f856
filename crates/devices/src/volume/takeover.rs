//! A volume taken from an owner that cannot be reached.

use std::path::Path;

use serde::{Deserialize, Serialize};
use zonda_ring::Ring;
use zonda_zoned::{CompletionQueue, Duration, Instant, ZonedDevice};

use super::VolumeDrive;
use super::bugs::{OwnerBug, is_planted};
use super::directory::{MISSING, VolumeDirectory};
use super::gathering::gather;
use super::lease::LEASE;
use super::open::cannot_save;
use super::seat::{Seat, give_back, is_behind_server, release};
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
    /// those that cannot be reached; and what to do. Nothing has changed then.
    pub fn take_over(path: &Path, options: TakeoverOptions, ring: &Ring) -> Result<TakeoverReport, DriveError> {
        let mut directory = VolumeDirectory::open(path)?;
        if !directory.note_owner() {
            return Err(DriveError::new(
                format!("there is nothing to take over: all members of the volume in {} are images", path.display()),
                "images are free when the program ends that has them open",
            ));
        }
        let asked = AskedMembers::of(&directory, ring);
        let reached = if options.accepts_missing { Ok(()) } else { asked.must_reach_enough(&directory) };
        let checked =
            reached.and_then(|()| if options.releases { asked.must_be_from_here(&directory) } else { Ok(()) });
        if let Err(error) = checked {
            asked.give_back(ring);
            return Err(error);
        }
        // Before anybody loses a reservation: from then on there must be one.
        directory.file.stays_reserved = true;
        if let Err(error) = directory.save() {
            asked.give_back(ring);
            return Err(cannot_save(&directory, &error));
        }
        let (mut report, mut held) = (TakeoverReport::default(), Vec::new());
        let members = asked.0.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        let places = directory.file.member.iter().chain(&directory.file.spare).cloned().collect::<Vec<_>>();
        let mut members_taken = Vec::new();
        for (at, (place, asked)) in places.iter().zip(members).enumerate().filter(|(_, (place, _))| place.at != MISSING)
        {
            // Hosts that are no servers of this volume may have a spare for good reasons.
            let is_member = at < directory.file.member.len();
            directory.owner_mut().into_iter().for_each(|owner| owner.take_over(options.force && is_member));
            let access = directory.access(place);
            if access.as_ref().is_ok_and(|access| !is_behind_server(&access.location)) {
                continue;
            }
            let taken = match asked {
                Some(Asked::Reserved(seat)) => Ok(seat),
                Some(Asked::Missing(error)) => Err(error),
                Some(Asked::InOtherHands(_)) | None => access.and_then(|access| Seat::open(&access, ring)),
            };
            let mut drive = TakenDrive { at: place.at.clone(), ..TakenDrive::default() };
            match taken.map(|seat| (seat.drive.claimed(), seat)) {
                Ok((Some(claimed), seat)) => {
                    if let Some(owner) = directory.owner_mut() {
                        owner.granted(&claimed);
                        let shown =
                            |holder| if owner.had(&claimed) { FROM_HERE.to_owned() } else { owner.shown(&holder) };
                        drive.taken_from = claimed.preempted.map(shown);
                    }
                    held.push((report.drives.len(), seat));
                }
                Ok((None, _)) => drive.error = Some("its server knows no reservations".to_owned()),
                Err(error) => drive.error = Some(error.message),
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
        for (at, _) in refused(&mut held, ring)? {
            report.drives[at].error = Some("another takeover has taken it meanwhile".to_owned());
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

/// Asks members whose they are. Takes out those that another owner has by now.
fn refused(held: &mut Vec<(usize, Seat)>, ring: &Ring) -> Result<Vec<(usize, Seat)>, DriveError> {
    let asked_at = ring.now();
    held.iter_mut().for_each(|(_, seat)| seat.confirm(asked_at));
    let is_answered = |seat: &Seat| seat.is_refused() || seat.is_idle();
    while !held.iter().all(|(_, seat)| is_answered(seat)) && ring.now() < asked_at + ANSWER_MAX {
        keep_alive(held, ring.now() + ANSWER_INTERVAL, ring)?;
    }
    let (refused, kept) = std::mem::take(held).into_iter().partition(|(_, seat)| seat.is_refused());
    *held = kept;
    Ok(refused)
}

/// A member, before anything is taken from another owner.
enum Asked {
    /// It is free, or was this volume's from here.
    Reserved(Seat),
    /// Another host has it.
    InOtherHands(DriveError),
    Missing(DriveError),
}

/// The members in their order.
struct AskedMembers(Vec<Asked>);

impl AskedMembers {
    fn of(directory: &VolumeDirectory, ring: &Ring) -> AskedMembers {
        let access = |place| directory.access(place);
        let is_remote = |place| access(place).is_ok_and(|access| is_behind_server(&access.location));
        let gathered = gather(directory.file.member.iter().map(access).collect(), false, ring);
        let asked = directory.file.member.iter().zip(gathered).map(|(place, gathered)| match gathered {
            Ok((seat, _)) => Asked::Reserved(seat),
            Err(error) if error.is_in_use && is_remote(place) => Asked::InOtherHands(error),
            Err(error) => Asked::Missing(error),
        });
        AskedMembers(asked.collect())
    }

    /// Refuses a takeover after which another server might go on with the members that it does not reach.
    fn must_reach_enough(&self, directory: &VolumeDirectory) -> Result<(), DriveError> {
        let missing = self.0.iter().enumerate().filter_map(|(at, asked)| match asked {
            Asked::Missing(error) => Some(format!("member {at} ({}): {}", directory.file.member[at].at, error.message)),
            _ => None,
        });
        let missing: Vec<String> = missing.collect();
        // Where the file does not say how many are enough, one may be.
        if missing.len() < directory.file.enough.unwrap_or(1) {
            return Ok(());
        }
        Err(DriveError::new(
            format!("another server may go on with members that cannot be taken: {}", missing.join("; ")),
            format!(
                "see that they can be reached from here; where no other server uses the volume: zonda volume takeover --accept-missing {}",
                directory.path().display()
            ),
        ))
    }

    /// Nobody loses anything by a release: what others have is taken over by a takeover, and not by the way.
    fn must_be_from_here(&self, directory: &VolumeDirectory) -> Result<(), DriveError> {
        for (at, asked) in self.0.iter().enumerate() {
            if let Asked::InOtherHands(error) = asked {
                let what = format!("nothing is released: member {at} ({})", directory.file.member[at].at);
                let by = match (error.holder, directory.owner()) {
                    (Some(holder), Some(owner)) => format!("is reserved by {}", owner.shown(&holder)),
                    _ => format!("is in use: {}", error.message),
                };
                let help = format!(
                    "release it from the directory of that server; if it has failed for good, take the volume over first: zonda volume takeover {}",
                    directory.path().display()
                );
                return Err(DriveError::new(format!("{what} {by}"), help));
            }
        }
        Ok(())
    }

    /// What was free is free again; what was reserved from here stays so.
    fn give_back(self, ring: &Ring) {
        let reserved = self.0.into_iter().filter_map(|asked| match asked {
            Asked::Reserved(seat) => Some(seat),
            _ => None,
        });
        give_back(reserved, ring);
    }
}

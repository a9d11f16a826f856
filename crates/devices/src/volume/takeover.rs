//! A volume taken from an owner that cannot be reached.

use std::path::Path;

use serde::{Deserialize, Serialize};
use zonda_ring::Ring;

use super::VolumeDrive;
use super::directory::{MISSING, VolumeDirectory};
use super::lease::LEASE;
use super::seat::{Seat, is_behind_server};
use crate::DriveError;

/// What a takeover has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeoverReport {
    /// The owner epoch that members are reserved with from now on.
    pub owner_epoch: u32,
    /// Members and spares that servers have.
    pub drives: Vec<TakenDrive>,
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

impl VolumeDrive {
    /// Reserves the members and spares of the volume in `path` that servers have, also those that another owner of this volume has reserved;
    /// with `force` those of any host. What they had in flight is aborted. The reservations stay: the next program that opens the
    /// volume from this directory, and no other, has them. Waits until no other owner answers anything any more.
    ///
    /// # Errors
    /// When there is no such volume, a program on this machine has it, or no server has any of its members; and what to do.
    pub fn take_over(path: &Path, force: bool, ring: &Ring) -> Result<TakeoverReport, DriveError> {
        let mut directory = VolumeDirectory::open(path)?;
        directory.owner_mut().into_iter().for_each(|owner| owner.take_over(force));
        if !directory.note_owner() {
            return Err(DriveError::new(
                format!("there is nothing to take over: all members of the volume in {} are images", path.display()),
                "images are free when the program ends that has them open",
            ));
        }
        let mut report = TakeoverReport::default();
        let places = directory.file.member.iter().chain(&directory.file.spare).cloned().collect::<Vec<_>>();
        for place in places.iter().filter(|place| place.at != MISSING) {
            let access = directory.access(place);
            if access.as_ref().is_ok_and(|access| !is_behind_server(&access.location)) {
                continue;
            }
            let taken = access.and_then(|access| Seat::open(&access, ring));
            let mut drive = TakenDrive { at: place.at.clone(), ..TakenDrive::default() };
            match taken.map(|seat| seat.drive.claimed()) {
                Ok(Some(claimed)) => {
                    if let Some(owner) = directory.owner_mut() {
                        owner.granted(&claimed);
                        drive.taken_from = claimed.preempted.map(|holder| owner.shown(&holder));
                    }
                }
                Ok(None) => drive.error = Some("its server knows no reservations".to_owned()),
                Err(error) => drive.error = Some(error.message),
            }
            report.drives.push(drive);
        }
        directory.note_owner();
        report.owner_epoch = directory.file.owner.as_ref().map_or(0, |owner| owner.epoch);
        // The next owner from this directory is known by its lock, and not by what is written there.
        let _ = directory.save();
        let until = ring.now() + LEASE;
        while ring.now() < until {
            ring.turn(Some(until))
                .map_err(|error| DriveError::new(format!("the event loop failed: {error}"), "try again"))?;
        }
        Ok(report)
    }
}

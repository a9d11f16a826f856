//! Whether the members that are present are as new as the volume, by what `volume.toml` knows.

use zonda_raid::Membership;

use super::directory::{LastState, VolumeFile};
use crate::DriveError;

/// Refuses members that are older than the volume, or of which only such have its epoch as `volume.toml` has as failed: what was written
/// since is on others. `own` has the superblock of the device in each place, `newest` is the one that counts, and `seen_epoch` the newest
/// epoch of any. `is_new` says whether a device that is in no place of the file has become a member.
pub(super) fn must_be_newest(
    file: &VolumeFile,
    own: &[Option<&Membership>],
    newest: &Membership,
    seen_epoch: u64,
    is_new: bool,
) -> Result<(), DriveError> {
    let Some(reached) = file.epoch else { return Ok(()) };
    let has_reached = |at: usize| own.get(at).copied().flatten().is_some_and(|own| own.epoch >= reached);
    let has_failed = |at: usize| file.member[at].is_free();
    let is_proof = |at: usize| has_reached(at) && !has_failed(at);
    let members = 0..file.member.len();
    if seen_epoch > reached || seen_epoch == reached && (is_new || members.clone().any(is_proof)) {
        return Ok(());
    }
    let shown = |at: usize| format!("{at} ({})", file.member[at].at);
    let lacking: Vec<String> = members
        .clone()
        .filter(|&at| file.member[at].state != Some(LastState::Failed) && !has_reached(at))
        .map(shown)
        .collect();
    let bring_back = format!("bring back the member that was active last, one of {}", lacking.join(", "));
    let accept = format!("if it is lost for good, zonda serve DIR --accept-older goes on with epoch {}", newest.epoch);
    if seen_epoch == reached {
        let failed: Vec<String> = members.filter(|&at| has_reached(at)).map(shown).collect();
        return Err(DriveError::new(
            format!(
                "the members that are present are out of date: volume.toml has {} as failed in epoch {reached}, so others went on without \
                 them",
                failed.join(", ")
            ),
            format!("{bring_back}; {accept}, without what was written to the others since"),
        ));
    }
    Err(DriveError::new(
        format!(
            "the members that are present are out of date: the newest has epoch {}, the volume has reached {reached}",
            newest.epoch
        ),
        format!("{bring_back}; {accept}, without what was written in the {} epochs since", reached - newest.epoch),
    ))
}

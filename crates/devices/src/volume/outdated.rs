//! Whether the members that are present are as new as the volume, according to `volume.toml`.

use zonda_raid::Membership;

use super::directory::{LastState, VolumeFile};
use crate::DriveError;

/// Refuses members if all are older than the volume, or only those that are failed in `volume.toml`
/// have its epoch: later writes are on others. `own` has the superblock of each member, `newest` is
/// the valid one, and `seen_epoch` the newest epoch of any. `is_new` is set if a device that is not
/// a member in the file has become one.
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
    let shown = |at: usize| format!("{at} ({})", file.member[at].shown());
    let lacking: Vec<String> = members
        .clone()
        .filter(|&at| file.member[at].state != Some(LastState::Failed) && !has_reached(at))
        .map(shown)
        .collect();
    let restore = match &lacking[..] {
        [only] => format!("restore member {only}, which was active last"),
        several => format!("restore the member that was active last: one of {}", several.join(", ")),
    };
    let accept =
        format!("if it is lost for good, zonda serve DIR --accept-older continues with epoch {}", newest.epoch);
    if seen_epoch == reached {
        let failed: Vec<String> = members.filter(|&at| has_reached(at)).map(shown).collect();
        return Err(DriveError::new(
            format!(
                "the members that are present are out of date: volume.toml has {} as failed in epoch {reached}, so \
                 others continued without them",
                failed.join(", ")
            ),
            format!("{restore}; {accept}, without later writes to the others"),
        ));
    }
    Err(DriveError::new(
        format!(
            "the members that are present are out of date: the newest has epoch {}, the volume has reached {reached}",
            newest.epoch
        ),
        format!("{restore}; {accept}, and later writes are lost"),
    ))
}

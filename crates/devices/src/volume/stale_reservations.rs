//! Members that a takeover did not reach, and that are still reserved by the owner that has lost
//! the volume.
//!
//! They may be back before the volume is served, or later. A mount preempts their holder if it is
//! certain, without an operator, that no host uses the volume with them: this directory took the
//! volume over, it has reserved so many members since that no other owner can have enough, and the
//! holder has an older owner epoch.

use zonda_initiator::Holder;
use zonda_ring::Ring;

use super::assembly::member_of;
use super::directory::VolumeDirectory;
use super::gathering::{Gathered, gather};
use super::place::Place;
use super::quorum::usable_elsewhere;
use super::targets::epoch_of;

/// Reserves such `members`. `opened` has the results of opening them, and then those of the spares.
/// Returns messages for the log.
pub(super) fn take_stale_reservations(
    directory: &mut VolumeDirectory,
    array: [u8; 16],
    members: &[(usize, Place)],
    opened: &mut [Gathered],
    ring: &Ring,
) -> Vec<String> {
    let mut notices = Vec::new();
    let Some(own_epoch) = epoch_of_quorum(directory, array, opened) else { return notices };
    for ((at, place), opened) in members.iter().zip(opened) {
        let Err(error) = opened else { continue };
        let Some(holder) = error.holder.filter(|holder| epoch_of(holder, &array).is_some_and(|at| at < own_epoch))
        else {
            continue;
        };
        let shown = shown(directory, &holder);
        directory.owner_mut().into_iter().for_each(|owner| owner.take_from(Some(&holder)));
        let again = gather(vec![directory.access(place)], true, ring).pop();
        directory.owner_mut().into_iter().for_each(|owner| owner.take_from(None));
        *opened = again.expect("each device has a result");
        if opened.is_ok() {
            notices.push(format!(
                "member {at} ({}) was still reserved by {shown}, from which the volume has been taken over: its \
                 reservation is preempted",
                place.shown()
            ));
        }
    }
    notices
}

/// The oldest owner epoch with which this directory has reserved members before, if these are so
/// many that no host can use the volume with the others.
fn epoch_of_quorum(directory: &VolumeDirectory, array: [u8; 16], opened: &[Gathered]) -> Option<u32> {
    let owner = directory.owner().filter(|_| directory.file.stays_reserved)?;
    let open = || opened.iter().flatten();
    let own = open().filter_map(|(_, probed)| probed.as_ref()?.membership()).filter(|own| own.array == array);
    let newest = own.reduce(|best, next| if next.is_newer_than(best) { next } else { best })?;
    let from_here = open().filter_map(|(device, probed)| {
        let claimed = device.drive.claimed().filter(|claimed| owner.had(claimed))?;
        let member = member_of(probed.as_ref()?.membership()?, newest)?;
        Some((member, epoch_of(&claimed.preempted?, &array)?))
    });
    let from_here: Vec<(usize, u32)> = from_here.collect();
    let is_here = |at: usize| from_here.iter().any(|(member, _)| *member == at);
    let is_quorum = newest.scheme.is_some() && usable_elsewhere(newest, is_here, 0).is_none();
    from_here.iter().map(|(_, epoch)| *epoch).min().filter(|_| is_quorum)
}

fn shown(directory: &VolumeDirectory, holder: &Holder) -> String {
    directory.owner().map_or_else(|| holder.to_string(), |owner| owner.shown(holder))
}

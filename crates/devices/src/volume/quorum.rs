//! Which members have to be there, and which have to answer, so that no two servers use one volume, whatever each of them can reach.
//!
//! A volume of `n` members, `d` of them for data, is used with `d` or more that are active. Where `2d > n` two such sets have a member in common, which is reserved for one of two servers; halves of a mirror have none. So a program that may not know of all who used
//! the volume since ([`is_last_owner`]) mounts it only if the active members that it does not reach are fewer than `d`: nobody can use the
//! volume with them alone. With the `a` members that are active, such an owner has reserved at least `a - d + 1` of them, and `d`
//! to mount at all: any [`confirmations_needed`] of the active members have one of these among them.

use zonda_raid::{MemberState, Membership};

use super::VolumeDrive;
use super::bugs::{OwnerBug, is_planted};
use super::directory::VolumeFile;
use super::owner::Owner;

/// How many of the `active` members have to say that they are this owner's before it is known that the volume is: of those that another owner
/// may have taken there is one among them. So many active members are `enough` to use the volume with.
pub(super) fn confirmations_needed(active: usize, enough: usize) -> usize {
    (active.saturating_sub(enough) + 1).min(enough)
}

/// Whether the volume was last mounted by a program with this lock, as far as the file and the members know: each mount begins an epoch.
pub(super) fn is_last_owner(file: &VolumeFile, owner: &Owner, seen_epoch: u64) -> bool {
    let is_newest = file.epoch >= Some(seen_epoch) || is_planted(OwnerBug::EpochIgnored);
    file.place.as_ref() == Some(&owner.place_text()) && is_newest
}

/// The members that are not reached, if another server may use the volume with them alone, by the newest superblock of those that are. Of
/// the members not reached so far `unread` may be reached still.
pub(super) fn usable_elsewhere(
    newest: &Membership,
    is_reached: impl Fn(usize) -> bool,
    unread: usize,
) -> Option<Vec<usize>> {
    let data = usize::from(newest.scheme?.data);
    let missing = newest.members.iter().enumerate().filter(|(at, member)| {
        // One that is being rebuilt may have become active.
        member.state != MemberState::Failed && !is_reached(*at)
    });
    let missing: Vec<usize> = missing.map(|(at, _)| at).collect();
    (missing.len().saturating_sub(unread) >= data && !is_planted(OwnerBug::CopyIsTrusted)).then_some(missing)
}

impl VolumeDrive {
    /// Once members know of this mount, so does the file: from here the volume can be mounted without those that are away. What an
    /// operator has accepted holds for one mount.
    pub(super) fn note_mount(&mut self) {
        let volume = self.on.volume();
        if self.directory.file.owner.is_some() && self.known_epoch() > Some(self.opened_epoch) {
            self.directory.file.enough = Some(usize::from(volume.scheme().data));
            self.directory.file.place = self.directory.owner().map(Owner::place_text);
            self.directory.file.accepts_missing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets of members as bits.
    fn subsets(of: u32) -> impl Iterator<Item = u32> {
        (0..=of).filter(move |set| set & !of == 0)
    }

    #[test]
    fn members_that_confirm_have_one_among_them_that_any_other_owner_has_reserved() {
        let of = |set: u32| set.count_ones() as usize;
        for n in 1..=6_usize {
            for d in 1..=n {
                // Whatever members are active, and whatever of them another owner has reserved.
                for active in subsets((1 << n) - 1).filter(|active| of(*active) >= d) {
                    let needed = confirmations_needed(of(active), d);
                    assert!((1..=of(active)).contains(&needed), "they can be had");
                    for taken in subsets(active).filter(|taken| of(*taken) >= d && of(active & !taken) < d) {
                        assert!(of(active & !taken) < needed, "{n} {d} {active:b} {taken:b}");
                    }
                }
            }
        }
    }

    #[test]
    fn no_two_owners_mount_with_members_of_which_none_is_the_same() {
        let of = |set: u32| set.count_ones() as usize;
        for n in 1..=6_usize {
            for d in 1..=n {
                let all = (1 << n) - 1;
                let suits = |set: u32| of(set) >= d && of(all & !set) < d;
                for first in subsets(all).filter(|set| suits(*set)) {
                    assert!(!subsets(all & !first).any(suits), "{n} {d} {first:b}");
                }
            }
        }
    }
}

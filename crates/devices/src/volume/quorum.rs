//! How many members an owner needs, and how many have to confirm, so that no two servers use one
//! volume, whichever members each of them can reach.
//!
//! A volume of `n` members, `d` of them for data, is used with `d` or more that are active. If `2d
//! > n`, any two such sets have a member in common, which is reserved for only one of two servers;
//! the halves of a mirror have none. So a program that may have missed a later owner
//! ([`is_last_owner`]) mounts the volume only if the active members that it does not reach are
//! fewer than `d`: no server can use the volume with them alone. With `a` active members, such an
//! owner has reserved at least `a - d + 1` of them, and `d` to mount at all: any
//! [`confirmations_needed`] of the active members include one of these.

use zonda_raid::{MemberState, Membership};

use super::VolumeDrive;
use super::bugs::{OwnerBug, is_seeded};
use super::directory::VolumeFile;
use super::owner::Owner;

/// How many of the `active` members have to confirm that they are reserved for this owner before it
/// is known that the volume is: any such set includes one of those that another owner would have
/// reserved. A volume can be used with `enough` active members.
pub(super) fn confirmations_needed(active: usize, enough: usize) -> usize {
    (active.saturating_sub(enough) + 1).min(enough)
}

/// Whether the volume was last mounted by a program with this lock, according to the file and the
/// members: each mount begins an epoch.
pub(super) fn is_last_owner(file: &VolumeFile, owner: &Owner, seen_epoch: u64) -> bool {
    let is_newest = file.epoch >= Some(seen_epoch) || is_seeded(OwnerBug::EpochIgnored);
    file.place.as_ref() == Some(&owner.place_text()) && is_newest
}

/// The members that are not reached, if another server may use the volume with them alone, by the
/// newest superblock of those that are. Up to `unread` of the members not reached so far may still
/// be.
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
    (missing.len().saturating_sub(unread) >= data && !is_seeded(OwnerBug::CopyIsTrusted)).then_some(missing)
}

impl VolumeDrive {
    /// Once members have recorded this mount, so does the file: this directory can then mount the
    /// volume without those that are missing. What an operator has accepted is valid for one mount.
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
    fn confirming_members_include_one_that_any_other_owner_has_reserved() {
        let of = |set: u32| set.count_ones() as usize;
        for n in 1..=6_usize {
            for d in 1..=n {
                // Whatever members are active, and whatever of them another owner has reserved.
                for active in subsets((1 << n) - 1).filter(|active| of(*active) >= d) {
                    let needed = confirmations_needed(of(active), d);
                    assert!((1..=of(active)).contains(&needed), "as many can confirm");
                    for taken in subsets(active).filter(|taken| of(*taken) >= d && of(active & !taken) < d) {
                        assert!(of(active & !taken) < needed, "{n} {d} {active:b} {taken:b}");
                    }
                }
            }
        }
    }

    #[test]
    fn no_two_owners_can_mount_with_disjoint_members() {
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

//! Members that went on without each other.
//!
//! An epoch counts once every member that it names as present has its superblock. So one that a member has alone, while another
//! one that it names as present has gone on otherwise, never counted: nothing was acknowledged in it.

use crate::format::{MemberEntry, MemberState, Superblock};
use crate::{MemberIndex, VolumeError};

/// The newest superblock that may count.
pub(super) fn newest_side<'a>(own: &[Option<&'a Superblock>]) -> Option<&'a Superblock> {
    counting(own).max_by_key(|superblock| (superblock.epoch, superblock.sequence))
}

/// Whether two members each went on after they had counted the other one as failed.
pub(in crate::machine) fn split_brain(own: &[Option<&Superblock>]) -> Option<VolumeError> {
    let conflicts = |one: &Superblock, other: &Superblock| {
        has_left(one, other) && other.epoch >= since(one, other) && !was_taken_back(one, other)
    };
    // Members that went on apart from each other, and that those which count now have both left, are out of date and nothing more: none
    // of them went on without these.
    let best = newest_side(own)?;
    let takes_part = |one: &Superblock| {
        one.member == best.member || state_of(best, one).is_some_and(|state| state != MemberState::Failed)
    };
    let conflicting =
        |one: &&Superblock| counting(own).any(|other| conflicts(one, other) && (takes_part(one) || takes_part(other)));
    let newest = counting(own).filter(conflicting).max_by_key(|one| (one.epoch, one.sequence))?;
    let (other, newest) = own
        .iter()
        .flatten()
        .partition::<Vec<&Superblock>, _>(|other| state_of(newest, other) == Some(MemberState::Failed));
    let members = |side: Vec<&Superblock>| side.into_iter().map(|one| MemberIndex(one.member)).collect();
    Some(VolumeError::SplitBrain { newest: members(newest), other: members(other) })
}

/// Superblocks of epochs that may have counted.
fn counting<'a>(own: &[Option<&'a Superblock>]) -> impl Iterator<Item = &'a Superblock> {
    own.iter().flatten().copied().filter(|superblock| !never_counted(superblock, own))
}

/// Whether a member that a superblock names as present has reached an epoch in which one is active that this superblock counts as failed
/// since an epoch as old; or counts the owner of this superblock as failed since an epoch that the owner has reached, without that having
/// been taken back since.
fn never_counted(superblock: &Superblock, own: &[Option<&Superblock>]) -> bool {
    let is_otherwise = |other: &&Superblock| {
        // One that was taken back since its own superblock says nothing of it.
        let is_peer = entry_of(superblock, other)
            .is_some_and(|entry| entry.state != MemberState::Failed && entry.since_epoch <= other.epoch);
        let failed = |entry: &&MemberEntry| entry.state == MemberState::Failed && entry.since_epoch <= other.epoch;
        let of_other = |at: usize| other.members.get(at).filter(|entry| entry.state != MemberState::Failed);
        let has_another = || {
            let mut entries = superblock.members.iter().enumerate();
            entries.any(|(at, entry)| failed(&entry) && of_other(at).is_some_and(|other| other.id == entry.id))
        };
        let has_failed_owner = || {
            state_of(other, superblock) == Some(MemberState::Failed)
                && since(other, superblock) <= superblock.epoch
                && !was_taken_back(other, superblock)
        };
        is_peer && (has_another() || has_failed_owner())
    };
    own.iter().flatten().any(is_otherwise)
}

/// Whether the owner of a superblock counts that of another one as failed, and that one itself as present.
fn has_left(one: &Superblock, other: &Superblock) -> bool {
    state_of(one, other) == Some(MemberState::Failed)
        && state_of(other, other).is_some_and(|state| state != MemberState::Failed)
}

/// Whether the owner of the other superblock was taken back after that of the one had counted it as failed: it became what it is in a
/// later epoch, of which it says that the owner of the one is present. A member that comes back is given the epoch in which it does when
/// all others have it, so that the one is an older superblock of the same members, of which the newer ones are damaged.
fn was_taken_back(one: &Superblock, other: &Superblock) -> bool {
    let is_peer = state_of(other, one).is_some_and(|state| state != MemberState::Failed);
    let own = other.members.get(usize::from(other.member));
    is_peer && own.is_some_and(|own| own.since_epoch > since(one, other))
}

/// The state that a superblock gives the owner of another one; `None` if it is another device.
fn state_of(one: &Superblock, other: &Superblock) -> Option<MemberState> {
    entry_of(one, other).map(|entry| entry.state)
}

fn since(one: &Superblock, other: &Superblock) -> u64 {
    entry_of(one, other).map_or(u64::MAX, |entry| entry.since_epoch)
}

fn entry_of<'a>(one: &'a Superblock, other: &Superblock) -> Option<&'a MemberEntry> {
    let at = usize::from(other.member);
    let own = other.members.get(at)?;
    one.members.get(at).filter(|entry| entry.id == own.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StreamShape;

    /// The superblock of a member; of each member how it is, and since when.
    fn superblock(member: u8, epoch: u64, members: &[(MemberState, u64)]) -> Superblock {
        let shape = StreamShape { unit_blocks: 1, group_stripes: 1 };
        let entry = |(at, &(state, since_epoch)): (usize, &(MemberState, u64))| MemberEntry {
            id: [at as u8 + 1; 16],
            state,
            since_epoch,
        };
        Superblock {
            version: crate::format::VERSION,
            copies_behind: 0,
            accepted_segment: 0,
            offline_zones: Some(0),
            has_single_headers: false,
            array: [7; 16],
            name: "vol".to_owned(),
            epoch,
            sequence: epoch,
            block_size_bytes: 512,
            volume_blocks: 1000,
            level: 6,
            data: 1,
            parity: members.len() as u8 - 1,
            is_in_band: false,
            small: shape,
            large: shape,
            member,
            members: members.iter().enumerate().map(entry).collect(),
        }
    }

    const ACTIVE: (MemberState, u64) = (MemberState::Active, 1);

    fn active(since: u64) -> (MemberState, u64) {
        (MemberState::Active, since)
    }

    fn failed(since: u64) -> (MemberState, u64) {
        (MemberState::Failed, since)
    }

    fn is_split(own: &[&Superblock]) -> bool {
        split_brain(&own.iter().map(|&one| Some(one)).collect::<Vec<_>>()).is_some()
    }

    #[test]
    fn an_older_superblock_that_counts_a_member_as_failed_which_came_back_is_no_side() {
        let older = superblock(0, 5, &[ACTIVE, failed(5)]);
        assert!(!is_split(&[&older, &superblock(1, 9, &[ACTIVE, active(8)])]), "it came back in epoch 8");
        let alone = superblock(1, 9, &[ACTIVE, ACTIVE]);
        assert_eq!(newest_side(&[Some(&older), Some(&alone)]).map(|side| side.member), Some(0), "it never came back");
        assert!(is_split(&[&older, &superblock(1, 9, &[failed(9), active(8)])]), "it may have gone on alone");
    }

    #[test]
    fn members_that_are_both_out_of_date_are_no_sides() {
        let now = [ACTIVE, failed(10), failed(13)];
        let newest = superblock(0, 13, &now);
        let first = superblock(1, 9, &[ACTIVE, ACTIVE, failed(9)]);
        let second = superblock(2, 12, &[ACTIVE, failed(10), active(12)]);
        assert!(!is_split(&[&newest, &first, &second]));
        let alone = superblock(2, 14, &[failed(14), failed(10), active(12)]);
        assert!(is_split(&[&newest, &first, &alone]), "this one went on without the others");
    }

    #[test]
    fn an_epoch_that_a_member_has_alone_while_others_went_on_without_it_never_counted() {
        let newest = superblock(0, 13, &[ACTIVE, ACTIVE, failed(13)]);
        let alone = superblock(2, 14, &[ACTIVE, ACTIVE, active(12)]);
        assert!(!is_split(&[&newest, &superblock(1, 13, &[ACTIVE, ACTIVE, failed(13)]), &alone]));
        let own = [Some(&newest), Some(&alone)];
        assert_eq!(newest_side(&own).map(|side| side.member), Some(0));
    }

    #[test]
    fn what_a_member_had_before_it_came_back_does_not_speak_against_those_that_went_on() {
        // It had an epoch alone in which member 1 was present, and was taken back by member 2 later.
        let before = superblock(0, 7, &[ACTIVE, (MemberState::Rebuilding, 7), ACTIVE]);
        let newest = superblock(2, 8, &[(MemberState::Rebuilding, 8), failed(7), ACTIVE]);
        let own = [Some(&before), Some(&newest)];
        assert_eq!(newest_side(&own).map(|side| side.member), Some(2));
        assert!(!is_split(&[&before, &newest]));
    }
}

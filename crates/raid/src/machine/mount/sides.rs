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
pub(super) fn split_brain(own: &[Option<&Superblock>]) -> Option<VolumeError> {
    let conflicts = |one: &Superblock, other: &Superblock| {
        has_left(one, other) && other.epoch >= since(one, other) && !is_peer(other, one)
    };
    let conflicting = |one: &&Superblock| counting(own).any(|other| conflicts(one, other));
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

/// Whether a member that a superblock names as present has gone on without its owner since an epoch as old, or has reached an epoch in
/// which one is active that this superblock counts as failed since an epoch as old.
fn never_counted(superblock: &Superblock, own: &[Option<&Superblock>]) -> bool {
    let is_otherwise = |other: &&Superblock| {
        let is_peer = is_peer(superblock, other);
        let failed = |entry: &&MemberEntry| entry.state == MemberState::Failed && entry.since_epoch <= other.epoch;
        let of_other = |at: usize| other.members.get(at).filter(|entry| entry.state != MemberState::Failed);
        // Had it counted, the other one would have left its owner in a later epoch.
        let is_left = has_left(other, superblock) && superblock.epoch >= since(other, superblock);
        let mut entries = superblock.members.iter().enumerate();
        is_peer
            && (is_left
                || entries.any(|(at, entry)| failed(&entry) && of_other(at).is_some_and(|other| other.id == entry.id)))
    };
    own.iter().flatten().any(is_otherwise)
}

/// Whether a superblock counts the owner of another one as present: its epoch counted only once that one had it.
fn is_peer(one: &Superblock, other: &Superblock) -> bool {
    state_of(one, other).is_some_and(|state| state != MemberState::Failed)
}

/// Whether the owner of a superblock counts that of another one as failed, and that one itself as present.
fn has_left(one: &Superblock, other: &Superblock) -> bool {
    state_of(one, other) == Some(MemberState::Failed) && is_peer(other, other)
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

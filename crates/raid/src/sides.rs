//! Split brain: members that were used independently of each other, and the side that an operator
//! has chosen.
//!
//! An epoch counts once every member that it names as present has its superblock. So an epoch that
//! only one member has, while another member that it names as present has continued without it,
//! never counted: nothing was acknowledged in it.
//!
//! When an operator chooses a side, its superblocks record the members of the other side as
//! rejected, since an epoch that is newer than any that these have reached. The superblock of a
//! rejected member does not count until that member reaches such an epoch itself: it was used on
//! its own again, and a side must be chosen again.

use crate::{KnownMember, MemberIndex, MemberState, Membership, VolumeError};

/// The agreement of the superblocks of a volume's members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement<'a> {
    /// The newest superblock that counts.
    pub newest: &'a Membership,
    /// Members of the side that was not chosen: their contents are no part of the volume.
    pub rejected: Vec<MemberIndex>,
}

impl<'a> Agreement<'a> {
    /// Determines the agreement of these superblocks, one of each device of a volume. In a split
    /// brain, the side of the `chosen` member counts. `reached` is the newest epoch that the caller
    /// knows to have counted. `None` if no superblock counts.
    ///
    /// # Errors
    /// [`VolumeError::SplitBrain`] if no side was chosen; otherwise why the chosen member has none.
    pub fn of(
        own: &[&'a Membership],
        chosen: Option<MemberIndex>,
        reached: Option<u64>,
    ) -> Result<Option<Agreement<'a>>, VolumeError> {
        let Some(newest) = newest(&counting(own)) else { return Ok(None) };
        match (split_brain(own, reached), chosen) {
            (None, _) => Ok(Some(Agreement { newest, rejected: Vec::new() })),
            (Some(error), None) => Err(error),
            (Some(_), Some(chosen)) => Agreement::chosen(own, chosen, reached).map(Some),
        }
    }

    /// Whether a member whose superblock has this epoch and sequence is an older copy, which lacks
    /// later writes: every active member had each epoch before the agreed one, and the caller knows
    /// that the epochs up to `reached` counted.
    #[must_use]
    pub fn is_older_copy(&self, member: MemberIndex, (epoch, sequence): (u64, u64), reached: Option<u64>) -> bool {
        let counted = reached.map_or(0, |reached| reached.min(self.newest.epoch));
        let was_active = |known: &KnownMember| known.state == MemberState::Active && known.since_epoch <= counted;
        self.newest.members.get(member.as_usize()).is_some_and(was_active)
            && epoch < counted
            && sequence < self.newest.sequence
    }

    /// What a seeded bug assumes: that there is one side.
    pub(crate) fn unseen(own: &[&'a Membership]) -> Option<Agreement<'a>> {
        Some(Agreement { newest: newest(&counting(own))?, rejected: Vec::new() })
    }

    fn chosen(own: &[&'a Membership], chosen: MemberIndex, reached: Option<u64>) -> Result<Agreement<'a>, VolumeError> {
        let is_apart =
            |one: &Membership, other: &Membership| conflicts(one, other, reached) || conflicts(other, one, reached);
        let has_no_side = |why: &str| {
            let text =
                format!("cannot keep the side of member {}, {why}; choose a member of the side to keep", chosen.0);
            VolumeError::Config(text)
        };
        let named = own.iter().find(|one| one.member == chosen.0 && !is_void(one, own));
        let Some(named) = named else { return Err(has_no_side("which is missing or was rejected before")) };
        let together: Vec<&Membership> = counting(own).into_iter().filter(|one| !is_apart(one, named)).collect();
        let best = newest(&together).filter(|best| is_present(best, named));
        let Some(best) = best else { return Err(has_no_side("which the others had recorded as failed before")) };
        let is_of_side = |one: &Membership| is_present(best, one) && !is_apart(best, one);
        let side: Vec<&Membership> = own.iter().copied().filter(|one| is_of_side(one)).collect();
        let (left, kept): (Vec<&Membership>, Vec<&Membership>) =
            own.iter().partition(|one| !is_void(one, own) && side.iter().any(|of_side| is_apart(of_side, one)));
        // Members of the other side that are missing return in their old state.
        let is_found = |at: usize| own.iter().any(|one| usize::from(one.member) == at && is_same(best, one));
        let is_of_left = |at: usize, entry: &KnownMember| {
            let of_left = |one: &&Membership| {
                // A member that both sides name as present belongs to the side with the newer
                // epoch.
                let has_continued = entry.state == MemberState::Failed || one.epoch > best.epoch;
                let is_named = |of: &KnownMember| of.id == entry.id && of.state != MemberState::Failed;
                has_continued && one.members.get(at).is_some_and(is_named)
            };
            !is_found(at) && left.iter().any(of_left)
        };
        let missing = best.members.iter().enumerate().filter(|(at, entry)| is_of_left(*at, entry));
        let missing: Vec<u8> = missing.map(|(at, _)| at as u8).collect();
        if let Some(error) = split_brain(&kept, reached) {
            return Err(error);
        }
        let mut rejected: Vec<MemberIndex> =
            left.iter().map(|one| one.member).chain(missing).map(MemberIndex).collect();
        rejected.sort();
        rejected.dedup();
        Ok(Agreement { newest: best, rejected })
    }
}

fn newest<'a>(own: &[&'a Membership]) -> Option<&'a Membership> {
    own.iter().copied().max_by_key(|one| (one.epoch, one.sequence))
}

/// Whether two members each continued after they had recorded the other one as failed, as far as
/// can be determined from the epoch that the volume is known to have `reached`.
pub(crate) fn split_brain(own: &[&Membership], reached: Option<u64>) -> Option<VolumeError> {
    let counting = counting(own);
    // Members that diverged, and that the current ones have both left behind, are just out of date:
    // neither of them continued without the current ones.
    let best = newest(&counting)?;
    let takes_part = |one: &Membership| one.member == best.member || is_present(best, one);
    let is_current = |one: &Membership, other: &Membership| takes_part(one) || takes_part(other);
    let is_split = |one: &Membership, other: &Membership| conflicts(one, other, reached) && is_current(one, other);
    let conflicting = |one: &&&Membership| counting.iter().any(|other| is_split(one, other));
    let newest = counting.iter().filter(conflicting).max_by_key(|one| (one.epoch, one.sequence))?;
    let is_apart = |other: &Membership| conflicts(newest, other, reached) || conflicts(other, newest, reached);
    let apart: Vec<&Membership> = counting.iter().copied().filter(|other| is_apart(other)).collect();
    let known = |is_of_side: &dyn Fn(&Membership) -> bool| {
        own.iter().copied().filter(|one| !is_void(one, own) && is_of_side(one)).collect::<Vec<&Membership>>()
    };
    let other = known(&|one| !is_present(newest, one) && apart.iter().any(|other| is_present(other, one)));
    let newest = known(&|one| is_present(newest, one));
    let epoch = |side: &[&Membership]| side.iter().map(|one| one.epoch).max().unwrap_or(0);
    let (newest_epoch, other_epoch) = (epoch(&newest), epoch(&other));
    let members = |side: Vec<&Membership>| side.into_iter().map(|one| MemberIndex(one.member)).collect();
    Some(VolumeError::SplitBrain { newest: members(newest), other: members(other), newest_epoch, other_epoch })
}

/// Superblocks of epochs that may have counted, and that no side has rejected.
fn counting<'a>(own: &[&'a Membership]) -> Vec<&'a Membership> {
    own.iter().copied().filter(|one| !never_counted(one, own) && !is_void(one, own)).collect()
}

/// Whether a member that a superblock names as present has reached its epoch without it: in that
/// epoch, a member is active that this superblock has recorded as failed since an epoch as old, or
/// the owner of this superblock has failed and was not re-added since.
fn never_counted(superblock: &Membership, own: &[&Membership]) -> bool {
    let is_otherwise = |other: &&Membership| {
        // The superblock does not know of a member that was re-added later.
        let is_peer = entry_of(superblock, other)
            .is_some_and(|entry| entry.state != MemberState::Failed && entry.since_epoch <= other.epoch);
        let failed = |entry: &&KnownMember| entry.state == MemberState::Failed && entry.since_epoch <= other.epoch;
        let of_other = |at: usize| other.members.get(at).filter(|entry| entry.state != MemberState::Failed);
        let has_failed = entry_of(other, superblock)
            .is_some_and(|entry| entry.state == MemberState::Failed && entry.since_epoch <= superblock.epoch);
        let mut failed = superblock.members.iter().enumerate().filter(|(_, entry)| failed(entry));
        is_peer
            && (has_failed && !was_taken_back(other, superblock)
                || failed.any(|(at, entry)| of_other(at).is_some_and(|other| other.id == entry.id)))
    };
    own.iter().any(is_otherwise)
}

/// Whether the owner of the other superblock was re-added after the first one had recorded it as
/// failed: it got its state in a later epoch, in which the owner of the first one is present. A
/// re-added member gets that epoch after all others have it, so the first one is an older
/// superblock of the same members, whose newer ones are damaged.
fn was_taken_back(one: &Membership, other: &Membership) -> bool {
    let own = other.members.get(usize::from(other.member));
    let since = entry_of(one, other).map_or(u64::MAX, |entry| entry.since_epoch);
    is_present(other, one) && own.is_some_and(|own| own.since_epoch > since)
}

/// Whether a side was chosen against the owner of a superblock, which has not been used since.
fn is_void(superblock: &Membership, own: &[&Membership]) -> bool {
    let rejects = |one: &&&Membership| {
        entry_of(one, superblock).is_some_and(|entry| entry.is_rejected && entry.since_epoch > superblock.epoch)
    };
    // A superblock that rejects it has a newer epoch: the recursion ends.
    own.iter().filter(rejects).any(|one| one.epoch > superblock.epoch && !is_void(one, own))
}

/// Whether the owner of the second superblock continued although the owner of the first one had
/// recorded it as failed. Not so if the second one names the first one as present: its epoch never
/// counted, or it was re-added; or if it was re-added before the owner of the first one failed.
fn conflicts(one: &Membership, other: &Membership, reached: Option<u64>) -> bool {
    let has_left = state_of(one, other) == Some(MemberState::Failed) && is_present(other, other);
    has_left
        && !is_present(other, one)
        && !is_left_behind(one, other, reached)
        && entry_of(one, other).is_some_and(|entry| other.epoch >= entry.since_epoch)
}

/// Whether the owner of the first superblock was present when that of the second, which it records
/// as failed, was re-added: the superblock is older than that, since its owner is an older copy, or
/// its newer superblocks are damaged. To a caller that knows no newer epoch than that of the second
/// one, the owner has not continued alone since.
fn is_left_behind(one: &Membership, other: &Membership, reached: Option<u64>) -> bool {
    let (failed, left) = (entry_of(one, other), entry_of(other, one));
    let own = other.members.get(usize::from(other.member));
    let (Some(failed), Some(own), Some(left)) = (failed, own, left) else { return false };
    failed.since_epoch < own.since_epoch
        && own.since_epoch < left.since_epoch
        && reached.is_some_and(|reached| reached <= other.epoch)
}

/// Whether a superblock names the owner of another one as present.
fn is_present(one: &Membership, other: &Membership) -> bool {
    state_of(one, other).is_some_and(|state| state != MemberState::Failed)
}

/// Whether the owner of a superblock is the device that another one has at its index.
fn is_same(one: &Membership, other: &Membership) -> bool {
    entry_of(one, other).is_some()
}

/// The state that a superblock records for the owner of another one; `None` if it is another
/// device.
fn state_of(one: &Membership, other: &Membership) -> Option<MemberState> {
    entry_of(one, other).map(|entry| entry.state)
}

fn entry_of<'a>(one: &'a Membership, other: &Membership) -> Option<&'a KnownMember> {
    let at = usize::from(other.member);
    let own = other.members.get(at)?;
    one.members.get(at).filter(|entry| entry.id == own.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use MemberState::{Active, Failed, Rebuilding};

    /// The superblock of a member, with the state of each member and the epoch since which it has
    /// it.
    fn membership(member: u8, epoch: u64, states: &[(MemberState, u64)]) -> Membership {
        let known = |(at, &(state, since_epoch)): (usize, &(MemberState, u64))| KnownMember {
            id: [at as u8; 16],
            state,
            since_epoch,
            is_rejected: false,
        };
        Membership {
            name: "vol".to_owned(),
            array: [7; 16],
            member,
            epoch,
            sequence: epoch,
            scheme: None,
            volume_blocks: 0,
            block_size_bytes: 512,
            is_in_band: false,
            members: states.iter().enumerate().map(known).collect(),
        }
    }

    fn newest_epoch(own: &[Membership]) -> Result<u64, VolumeError> {
        let own: Vec<&Membership> = own.iter().collect();
        Agreement::of(&own, None, None).map(|agreement| agreement.expect("one counts").newest.epoch)
    }

    #[test]
    fn an_epoch_that_one_member_wrote_alone_is_no_side_whatever_it_was_for() {
        let before = [(Active, 5), (Active, 2), (Active, 2)];
        // Member 0 fails for the others, in an epoch as new.
        let without = [(Failed, 7), (Active, 2), (Active, 2)];
        let joining = [(Active, 5), (Active, 2), (Rebuilding, 7)];
        let failing = [(Active, 5), (Active, 2), (Failed, 7)];
        for alone in [before, joining, failing] {
            for others in [7, 9] {
                let own = [membership(0, 7, &alone), membership(1, others, &without), membership(2, others, &without)];
                assert_eq!(newest_epoch(&own), Ok(others), "{alone:?}");
            }
        }
    }

    #[test]
    fn members_that_counted_each_other_as_failed_are_two_sides_however_old_one_of_them_is() {
        for (first, second) in [(3, 3), (3, 4), (4, 3), (3, 9)] {
            let own = [
                membership(0, first, &[(Active, 2), (Failed, first)]),
                membership(1, second, &[(Failed, second), (Active, 2)]),
            ];
            let error = newest_epoch(&own).expect_err("both continued");
            assert!(matches!(error, VolumeError::SplitBrain { .. }), "{error}");
        }
        // A member that is just out of date is on no side of its own.
        assert_eq!(
            newest_epoch(&[membership(0, 3, &[(Active, 2), (Failed, 3)]), membership(1, 2, &[(Active, 2); 2])]),
            Ok(3)
        );
    }

    #[test]
    fn a_member_that_is_missing_when_a_side_is_chosen_is_of_the_side_with_the_newer_epoch_that_names_it() {
        let kept = membership(1, 4, &[ACTIVE, ACTIVE, failed(4)]);
        for (epoch, rejected) in [(7, &[0, 2][..]), (4, &[2])] {
            let other = membership(2, epoch, &[ACTIVE, failed(4), ACTIVE]);
            let own = [&kept, &other];
            assert!(is_split(&own));
            let agreement =
                Agreement::of(&own, Some(MemberIndex(1)), None).expect("a side is chosen").expect("one counts");
            let members: Vec<u8> = agreement.rejected.iter().map(|member| member.0).collect();
            assert_eq!((agreement.newest.member, &members[..]), (1, rejected), "epoch {epoch}");
        }
    }

    const ACTIVE: (MemberState, u64) = (Active, 1);

    fn active(since: u64) -> (MemberState, u64) {
        (Active, since)
    }

    fn failed(since: u64) -> (MemberState, u64) {
        (Failed, since)
    }

    fn newest_of(own: &[&Membership]) -> Option<u8> {
        newest(&counting(own)).map(|side| side.member)
    }

    fn is_split(own: &[&Membership]) -> bool {
        split_brain(own, None).is_some()
    }

    #[test]
    fn an_older_superblock_that_counts_a_member_as_failed_which_came_back_is_no_side() {
        let older = membership(0, 5, &[ACTIVE, failed(5)]);
        assert!(!is_split(&[&older, &membership(1, 9, &[ACTIVE, active(8)])]), "it was re-added in epoch 8");
        let alone = membership(1, 9, &[ACTIVE, ACTIVE]);
        assert_eq!(newest_of(&[&older, &alone]), Some(0), "it was never re-added");
        assert!(is_split(&[&older, &membership(1, 9, &[failed(9), active(8)])]), "it may have continued alone");
    }

    #[test]
    fn an_older_superblock_of_a_member_that_failed_after_the_other_one_had_come_back_is_no_side_for_who_knows_the_newest_epoch()
     {
        let older = membership(0, 5, &[ACTIVE, failed(5)]);
        let newest = membership(1, 10, &[failed(10), active(8)]);
        for (reached, is_side) in [(None, true), (Some(9), false), (Some(10), false), (Some(11), true)] {
            assert_eq!(split_brain(&[&older, &newest], reached).is_some(), is_side, "known: {reached:?}");
        }
        let before = membership(1, 10, &[failed(6), active(8)]);
        assert!(split_brain(&[&older, &before], Some(10)).is_some(), "member 0 was absent when member 1 was re-added");
        let alone = membership(0, 10, &[ACTIVE, failed(5)]);
        assert!(split_brain(&[&alone, &newest], Some(10)).is_some(), "member 0 has continued since");
    }

    #[test]
    fn members_that_are_both_out_of_date_are_no_sides() {
        let now = [ACTIVE, failed(10), failed(13)];
        let newest = membership(0, 13, &now);
        let first = membership(1, 9, &[ACTIVE, ACTIVE, failed(9)]);
        let second = membership(2, 12, &[ACTIVE, failed(10), active(12)]);
        assert!(!is_split(&[&newest, &first, &second]));
        let alone = membership(2, 14, &[failed(14), failed(10), active(12)]);
        assert!(is_split(&[&newest, &first, &alone]), "this one continued without the others");
    }

    #[test]
    fn an_epoch_that_a_member_has_alone_while_others_continued_without_it_never_counted() {
        let newest = membership(0, 13, &[ACTIVE, ACTIVE, failed(13)]);
        let alone = membership(2, 14, &[ACTIVE, ACTIVE, active(12)]);
        assert!(!is_split(&[&newest, &membership(1, 13, &[ACTIVE, ACTIVE, failed(13)]), &alone]));
        assert_eq!(newest_of(&[&newest, &alone]), Some(0));
    }

    #[test]
    fn the_state_of_a_member_before_its_re_add_does_not_contradict_those_that_continued() {
        // It had an epoch alone in which member 1 was present, and was re-added by member 2 later.
        let before = membership(0, 7, &[ACTIVE, (Rebuilding, 7), ACTIVE]);
        let newest = membership(2, 8, &[(Rebuilding, 8), failed(7), ACTIVE]);
        assert_eq!(newest_of(&[&before, &newest]), Some(2));
        assert!(!is_split(&[&before, &newest]));
    }

    #[test]
    fn a_rejected_member_counts_again_once_it_has_reached_the_epoch_in_which_it_was_rejected() {
        let mut chosen = membership(1, 10, &[failed(9), ACTIVE]);
        chosen.members[0].is_rejected = true;
        for (epoch, is_rejected) in [(7, true), (8, true), (9, false)] {
            let own = membership(0, epoch, &[ACTIVE, failed(epoch)]);
            assert_eq!(is_void(&own, &[&own, &chosen]), is_rejected, "epoch {epoch}");
        }
    }

    #[test]
    fn with_a_side_only_members_of_the_other_one_are_rejected() {
        // Member 2 had failed before on both sides, and is missing.
        let own =
            [membership(0, 4, &[ACTIVE, failed(4), failed(2)]), membership(1, 5, &[failed(5), ACTIVE, failed(2)])];
        let own: Vec<&Membership> = own.iter().collect();
        for (chosen, other) in [(0, 1), (1, 0)] {
            let agreement = Agreement::of(&own, Some(MemberIndex(chosen)), None).unwrap().unwrap();
            assert_eq!((agreement.newest.member, agreement.rejected), (chosen, vec![MemberIndex(other)]));
        }
    }
}

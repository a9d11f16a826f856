//! Invariants of rebuilds between events.

use std::collections::BTreeSet;

use super::super::members::{Members, Work};
use super::super::pieces::{Owner, Pieces};
use super::super::segments::Segments;
use super::job::{Part, Stage};
use super::{AsideStep, Rebuild, RebuildStep};
use crate::MemberIndex;
use crate::format::MemberState;
use crate::limits::{REBUILD_PIECES_MAX, RETURNED_ZONES_IN_FLIGHT_MAX};

impl Rebuild {
    /// Each member is rebuilt in one way at a time, and zones in progress are not yet its own.
    ///
    /// # Panics
    /// If that does not hold.
    pub(in super::super) fn check_invariants(&self, members: &Members, segments: &Segments, pieces: &Pieces) {
        let devices = self.replacements.iter().map(|one| one.member).chain(self.returning.iter().map(|one| one.member));
        let mut coming = BTreeSet::new();
        for member in devices {
            assert!(coming.insert(member), "one device replaces member {}", member.0);
            assert_eq!(members[member].state(), MemberState::Failed, "member {} is not one again", member.0);
        }
        assert_eq!(
            self.member,
            self.member.filter(|&member| is_rebuilding(members, member)),
            "the member that is rebuilt"
        );
        assert!(self.job.is_none() || self.member.is_some(), "a segment is rebuilt for a member");
        self.check_aside(members);
        self.check_job(members, segments, pieces);
    }

    /// A zone that is set aside belongs to a member that is being rebuilt, and to no segment: it
    /// waits, or a command for it is in flight.
    fn check_aside(&self, members: &Members) {
        let mut zones = BTreeSet::new();
        let mut in_flight = 0;
        for aside in &self.aside {
            assert!(zones.insert((aside.member, aside.zone)), "zone {} is aside once", aside.zone);
            assert!(is_rebuilding(members, aside.member), "member {} is being rebuilt", aside.member.0);
            let is_waiting = matches!(aside.step, AsideStep::Waiting);
            in_flight += usize::from(!is_waiting);
            let is_for_it = |work: &&Work| match **work {
                Work::Rebuild(RebuildStep::Verify { zone } | RebuildStep::ResetAside { zone }) => zone == aside.zone,
                _ => false,
            };
            let commands = members[aside.member].in_flight().filter(is_for_it).count();
            assert_eq!(commands, usize::from(!is_waiting), "commands for zone {} aside", aside.zone);
        }
        assert!(in_flight <= RETURNED_ZONES_IN_FLIGHT_MAX, "{in_flight} zones aside are looked at or reset");
    }

    /// The member lacks the segment that is being rebuilt until its zone is complete.
    fn check_job(&self, members: &Members, segments: &Segments, pieces: &Pieces) {
        let (Some(member), Some(job)) = (self.member, &self.job) else { return };
        let segment = &segments[job.segment];
        assert!(!segment.has(member), "segment {} lacks member {} still", segment.sequence, member.0);
        assert!(segment.is_pinned, "segment {} stays while it is given to member {}", segment.sequence, member.0);
        assert!(job.next_slot <= segment.layout.stripes, "slots of segment {}", segment.sequence);
        let zone_blocks = segment.layout.footer_offset() + segment.layout.footer_blocks;
        assert!(job.written <= zone_blocks, "no more is written to zone {} than it holds", job.zone);
        let mut running = 0;
        for part in &job.parts {
            let Part::Piece(key) = part else { continue };
            running += 1;
            let piece = &pieces[*key];
            assert_eq!((piece.segment, piece.owner), (job.segment, Owner::Rebuild(member)), "whose piece {key:?} is");
        }
        assert!(running <= REBUILD_PIECES_MAX, "{running} pieces are read for one segment");
        let is_for_it = |work: &&Work| {
            matches!(work, Work::Rebuild(RebuildStep::Write { .. } | RebuildStep::Finish | RebuildStep::Reset))
        };
        let commands = members[member].in_flight().filter(is_for_it).count();
        let wanted = usize::from(job.is_writing || job.stage != Stage::Filling);
        assert_eq!(commands, wanted, "commands for zone {}, one after the other", job.zone);
    }
}

fn is_rebuilding(members: &Members, member: MemberIndex) -> bool {
    members[member].state() == MemberState::Rebuilding
}

#[cfg(test)]
mod tests {
    use super::super::super::fixtures;
    use super::super::Aside;
    use super::*;

    fn aside(member: u8, zone: u32, step: AsideStep) -> Aside {
        Aside { member: MemberIndex(member), zone, is_active: false, header: None, step }
    }

    fn check(rebuild: &Rebuild, members: &Members) {
        rebuild.check_invariants(members, &Segments::new(), &Pieces::new());
    }

    #[test]
    fn without_members_that_are_rebuilt_nothing_is_aside() {
        check(&Rebuild::default(), &fixtures::members(&fixtures::spec(1, false)));
    }

    #[test]
    #[should_panic(expected = "member 1 is being rebuilt")]
    fn a_zone_aside_of_a_member_that_is_active_is_a_bug() {
        let members = fixtures::members(&fixtures::spec(1, false));
        check(&Rebuild { aside: vec![aside(1, 5, AsideStep::Waiting)], ..Rebuild::default() }, &members);
    }

    #[test]
    #[should_panic(expected = "commands for zone 5 aside")]
    fn a_zone_that_is_said_to_be_reset_without_a_command_is_a_bug() {
        let mut members = fixtures::members(&fixtures::spec(1, false));
        members[MemberIndex(1)].begin_rebuild();
        check(&Rebuild { aside: vec![aside(1, 5, AsideStep::Resetting)], ..Rebuild::default() }, &members);
    }

    #[test]
    #[should_panic(expected = "the member that is rebuilt")]
    fn a_rebuild_of_a_member_that_is_active_is_a_bug() {
        let members = fixtures::members(&fixtures::spec(1, false));
        check(&Rebuild { member: Some(MemberIndex(0)), ..Rebuild::default() }, &members);
    }
}

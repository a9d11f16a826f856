//! Unit tests of segments, on members without drives.

use zonda_zoned::{Blocks, Instant, Outcome, Status};

use super::super::fixtures::{ZONES, end_all, end_next, members, spec, spec_of_units};
use super::super::members::{Members, Verdict, Waiter, Work};
use super::super::spec::Spec;
use super::Segments;
use crate::MemberIndex;
use crate::limits::{MEMBER_FAILURES_MAX, METADATA_ZONES, WRITE_ATTEMPTS_MAX};
use crate::shape::Stream;
use crate::tables::{Physical, SegmentIndex, SegmentState};

fn open_one(spec: &Spec, members: &mut Members, segments: &mut Segments) -> SegmentIndex {
    segments.open_wanted(spec, members, true, Stream::Small, 1);
    let _ = end_all(spec, members, segments, None);
    segments.open(Stream::Small)[0]
}

/// Writes the next stripe of a segment, each chunk to the slot of its own number.
fn fill_one(spec: &Spec, members: &mut Members, segments: &mut Segments, index: SegmentIndex) {
    let number = segments.begin_stripe(index, Instant::ZERO);
    for member in spec.member_indices() {
        assert_eq!(segments.place_absent(member, index, number), number);
    }
    segments.stripe_complete(spec, members, index, number);
}

#[test]
fn a_segment_opens_fills_closes_and_frees_its_zones() {
    let spec = spec(1, false);
    let (mut members, mut segments) = (members(&spec), Segments::new());
    let index = open_one(&spec, &mut members, &mut segments);
    assert_eq!(segments[index].state, SegmentState::Open);
    assert_eq!(members[MemberIndex(0)].active_zones(), 2, "the log's and the segment's");
    for _ in 0..segments[index].layout.stripes {
        assert_eq!(segments.next_for(&spec, Stream::Small), Some(index));
        fill_one(&spec, &mut members, &mut segments, index);
    }
    assert_eq!(segments.next_for(&spec, Stream::Small), None, "it takes no more");
    let _ = end_all(&spec, &mut members, &mut segments, None);
    assert_eq!(segments[index].state, SegmentState::Sealed);
    assert_eq!(members[MemberIndex(0)].active_zones(), 1);
    segments.reset_empty(&spec, &mut members);
    let _ = end_all(&spec, &mut members, &mut segments, None);
    assert_eq!((segments.len(), segments.reset_count()), (0, 1));
    assert_eq!(members[MemberIndex(2)].free_zones(), ZONES - METADATA_ZONES);
}

#[test]
fn what_is_live_read_or_pinned_is_not_reset() {
    let spec = spec(1, false);
    let (mut members, mut segments) = (members(&spec), Segments::new());
    let index = open_one(&spec, &mut members, &mut segments);
    let offset = segments[index].layout.slot_offset(0);
    let place = Physical { segment: index, member: MemberIndex(1), offset };
    segments.set_live(place);
    segments.break_off(&spec, &mut members, index);
    let _ = end_all(&spec, &mut members, &mut segments, None);
    segments.add_reader(index);
    let is_sealed = |segments: &mut Segments, members: &mut Members| {
        segments.reset_empty(&spec, members);
        segments[index].state == SegmentState::Sealed
    };
    assert!(is_sealed(&mut segments, &mut members), "a block is live");
    segments.set_dead(place);
    assert!(is_sealed(&mut segments, &mut members), "it is being read");
    let was_pinned = segments.pin(index);
    segments.reader_left(index);
    assert!(is_sealed(&mut segments, &mut members), "it is pinned");
    assert!(segments.has_progress(), "operations that wait for the reader continue");
    segments.unpin(index, was_pinned);
    assert!(!is_sealed(&mut segments, &mut members));
}

#[test]
fn the_next_group_waits_until_the_one_before_it_is_durable() {
    let spec = spec(2, true);
    let (mut members, mut segments) = (members(&spec), Segments::new());
    let index = open_one(&spec, &mut members, &mut segments);
    let flushed = |members: &mut Members, segments: &mut Segments| {
        members.begin_flushes();
        for member in spec.member_indices() {
            let (_, completion) = end_next(members, member, Status::Success).expect("a flush");
            assert_eq!(members.on_flush(&spec, member, completion.status), Verdict::Usable);
        }
        for waiter in members.end_flushes() {
            let Waiter::Barrier(index, sequence) = waiter else { panic!("{waiter:?}") };
            segments.on_barrier(&spec, members, index, sequence);
        }
    };
    assert_eq!(segments.next_for(&spec, Stream::Small), None, "its headers are not durable");
    flushed(&mut members, &mut segments);
    fill_one(&spec, &mut members, &mut segments, index);
    assert_eq!(segments.next_for(&spec, Stream::Small), Some(index), "inside a group nothing waits");
    fill_one(&spec, &mut members, &mut segments, index);
    assert_eq!(segments.next_for(&spec, Stream::Small), None);
    flushed(&mut members, &mut segments);
    assert_eq!(segments.next_for(&spec, Stream::Small), Some(index));
}

#[test]
fn a_member_that_never_finishes_a_zone_has_failed() {
    let spec = spec(1, false);
    let (mut members, mut segments) = (members(&spec), Segments::new());
    let index = open_one(&spec, &mut members, &mut segments);
    segments.break_off(&spec, &mut members, index);
    assert_eq!(end_all(&spec, &mut members, &mut segments, Some(MemberIndex(1))), Verdict::Failed);
    assert_eq!(members[MemberIndex(1)].errors(), u64::from(WRITE_ATTEMPTS_MAX));
}

#[test]
fn segments_continue_without_a_failed_member() {
    let spec = spec(1, false);
    let (mut members, mut segments) = (members(&spec), Segments::new());
    let index = open_one(&spec, &mut members, &mut segments);
    let failed = MemberIndex(2);
    assert!(members.fail(failed));
    segments.forget_member(&spec, &mut members, failed);
    assert!(!segments[index].has(failed) && segments[index].zones[2].is_none());
    assert_eq!(segments.next_for(&spec, Stream::Small), Some(index));
    segments.check_invariants(&spec, &members);
}

#[test]
fn a_chunk_is_in_the_slot_that_its_member_reports_or_in_none() {
    let spec = spec_of_units(2, 4);
    let (mut members, mut segments) = (members(&spec), Segments::new());
    let index = open_one(&spec, &mut members, &mut segments);
    let (member, layout) = (MemberIndex(1), segments[index].layout);
    let start = members[member].lba(segments[index].zones[1].expect("it takes part"), 0);
    let mut place = |number: u32, offset: u32| {
        let appended = Outcome::Appended(start + Blocks(u64::from(offset)));
        segments.place_chunk(&members, member, index, number, &appended)
    };
    assert_eq!(place(0, layout.slot_offset(1)), Some(1));
    assert_eq!(place(1, layout.slot_offset(1)), None, "the slot holds another chunk");
    assert_eq!(place(1, layout.slot_offset(2) + 1), None, "no slot begins there");
    assert_eq!(place(1, layout.header_blocks - 1), None, "this is the header");
    assert_eq!(place(1, layout.slot_offset(4)), None, "the next group is not open");
    assert_eq!(place(1, layout.slot_offset(2)), Some(2));
}

#[test]
fn ranges_of_tombstones_become_fewer_and_never_more() {
    let spec = spec(1, false);
    let (mut members, mut segments) = (members(&spec), Segments::new());
    let index = open_one(&spec, &mut members, &mut segments);
    let place = Physical { segment: index, member: MemberIndex(0), offset: segments[index].layout.slot_offset(0) };
    segments.add_tombstones(place, 5);
    for (needed, are_fewer, left) in [(6, false, 5), (5, false, 5), (2, true, 2), (3, false, 2), (0, true, 0)] {
        assert_eq!(segments.lower_tombstone_ranges(index, needed), are_fewer, "{needed} are needed");
        assert_eq!(segments[index].tombstone_ranges, left);
    }
}

/// Closes an empty segment and resets its zones, which are read only on `bad`. Returns the verdict
/// on that.
fn reset_one(spec: &Spec, members: &mut Members, segments: &mut Segments, bad: MemberIndex) -> Verdict {
    let index = open_one(spec, members, segments);
    segments.break_off(spec, members, index);
    let _ = end_all(spec, members, segments, None);
    segments.reset_empty(spec, members);
    let mut verdict = Verdict::Usable;
    for member in spec.member_indices() {
        let status = if member == bad { Status::ZoneIsReadOnly } else { Status::Success };
        let Some((Work::ResetZone { segment }, _)) = end_next(members, member, status) else { continue };
        let found = segments.on_reset(spec, members, member, segment, status);
        assert!(member == bad || found == Verdict::Usable);
        verdict = if member == bad { found } else { verdict };
    }
    segments.check_invariants(spec, members);
    verdict
}

#[test]
fn zones_that_cannot_be_reset_count_against_a_member_only_where_the_volume_can_do_without_it() {
    for other_has_failed in [false, true] {
        let spec = spec(1, false);
        let (mut members, mut segments) = (members(&spec), Segments::new());
        let bad = MemberIndex(1);
        if other_has_failed {
            assert!(members.fail(MemberIndex(0)));
            segments.forget_member(&spec, &mut members, MemberIndex(0));
        }
        assert_eq!(reset_one(&spec, &mut members, &mut segments, bad), Verdict::Usable, "one zone is no member");
        assert_eq!((members[bad].retired_zones(), members[bad].errors()), (1, 1));
        assert_eq!(members[bad].failures(), u32::from(!other_has_failed));
        // Whatever happened before, its next failure is one too many.
        (2..MEMBER_FAILURES_MAX).for_each(|_| assert_eq!(members[bad].count_failure(), Verdict::Usable));
        let expected = if other_has_failed { Verdict::Usable } else { Verdict::Failed };
        assert_eq!(reset_one(&spec, &mut members, &mut segments, bad), expected);
    }
}

#[test]
fn a_segment_takes_no_stripe_behind_its_last_one() {
    for group_stripes in [1, 4] {
        let spec = spec(group_stripes, false);
        let (mut members, mut segments) = (members(&spec), Segments::new());
        let index = open_one(&spec, &mut members, &mut segments);
        let stripes = segments[index].layout.stripes;
        for _ in 1..stripes {
            fill_one(&spec, &mut members, &mut segments, index);
        }
        assert!(segments[index].takes_more(), "the last one of {stripes}");
        assert_eq!(segments.begin_stripe(index, Instant::ZERO), stripes - 1);
        assert!(!segments[index].takes_more() && !segments[index].can_issue());
    }
}

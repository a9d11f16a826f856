//! Unit tests of garbage collection, without hosts and drives.

use zonda_zoned::Outcome;

use super::super::fixtures::{end_all, members, spec};
use super::*;

#[test]
fn a_segment_is_read_slot_by_slot_and_reset_when_its_blocks_have_arrived() {
    let spec = spec(1, false);
    let (mut members, mut segments, mut stripes) = (members(&spec), Segments::new(), Stripes::new());
    segments.open_wanted(&spec, &mut members, true, Stream::Small, 1);
    let index = segments.open(Stream::Small)[0];
    let place = |member: u8, slot: u32| Physical { segment: index, member: MemberIndex(member), offset: 2 + slot };
    let live = [place(0, 0), place(1, 0), place(1, 2)];
    live.iter().for_each(|&place| segments.set_live(place));
    segments.break_off(&spec, &mut members, index);
    let _ = end_all(&spec, &mut members, &mut segments, None);
    let mut collector = Collector::default();
    collector.begin(&spec, &mut segments, index, Urgency::Immediate);
    let mut read = Vec::new();
    let next = |collector: &mut Collector, segments: &Segments| {
        collector.next_read(Space::new(&spec, &members, true), segments, 0, Instant::ZERO)
    };
    assert!(!collector.is_fetching());
    while let Some((place, blocks, purpose)) = next(&mut collector, &segments) {
        assert_eq!((blocks, purpose), (1, Purpose::Move));
        read.push(place);
    }
    assert_eq!(read, live, "by slots, then by members");
    for &place in &read {
        assert!(collector.is_fetching(), "blocks are being read");
        assert!(collector.read_ended(1));
        collector.moving();
        collector.check_invariants(&segments);
        segments.set_dead(place);
        collector.arrived();
    }
    assert!(!collector.is_fetching(), "all are read");
    assert!(collector.end_if_moved(&spec, &mut members, &mut segments, &mut stripes));
    assert!(collector.is_idle() && segments[index].is_resetting());
    assert_eq!(collector.relocated_blocks(), 3);
}

#[test]
fn a_segment_that_is_abandoned_keeps_its_tombstones_though_none_of_its_blocks_is_needed_any_more() {
    let spec = spec(1, false);
    let (mut members, mut segments, mut stripes) = (members(&spec), Segments::new(), Stripes::new());
    segments.open_wanted(&spec, &mut members, true, Stream::Small, 1);
    let index = segments.open(Stream::Small)[0];
    let place = |slot: u32| Physical { segment: index, member: MemberIndex(0), offset: 2 + slot };
    segments.set_live(place(0));
    segments.add_tombstones(place(1), 1);
    segments.break_off(&spec, &mut members, index);
    let _ = end_all(&spec, &mut members, &mut segments, None);
    let mut collector = Collector::default();
    collector.begin(&spec, &mut segments, index, Urgency::Immediate);
    assert_eq!(collector.abandon(), None, "all can be read, as far as is known");
    collector.block_lost();
    assert_eq!(collector.abandon(), Some(index));
    // Its marker has become durable.
    collector.on_loss_recorded(index);
    segments.set_dead(place(0));
    assert!(collector.end_if_moved(&spec, &mut members, &mut segments, &mut stripes));
    assert!(collector.is_idle() && !segments[index].is_resetting());
    assert_eq!(segments[index].tombstones, [place(1)]);
    assert!(!segments[index].has_lost && !segments[index].is_pinned, "it can be collected once more");
}

#[test]
fn places_of_unreadable_tombstones_are_named_once_and_only_when_all_that_was_moved_is_durable() {
    let spec = spec(1, false);
    let (mut members, mut segments) = (members(&spec), Segments::new());
    segments.open_wanted(&spec, &mut members, true, Stream::Small, 1);
    let index = segments.open(Stream::Small)[0];
    segments.break_off(&spec, &mut members, index);
    let mut collector = Collector::default();
    collector.begin(&spec, &mut segments, index, Urgency::Immediate);
    let place = LostPlace { segment: 1, stripe: 2, member: 0, block: 3 };
    collector.name_later(place);
    assert_eq!(collector.take_unnamed(), None, "more of the segment may be unreadable");
    let space = Space::new(&spec, &members, true);
    assert_eq!(collector.next_read(space, &segments, 0, Instant::ZERO), None);
    collector.moving_tombstones();
    assert_eq!(collector.take_unnamed(), None, "a crash would leave the places named and the tombstones lost");
    collector.arrived();
    assert_eq!(collector.take_unnamed(), Some((index, vec![place])));
    assert_eq!(collector.take_unnamed(), None);
}

#[test]
fn of_a_segment_that_was_not_filled_no_slot_is_read_that_has_no_chunk() {
    let spec = spec(1, false);
    let (mut members, mut segments) = (members(&spec), Segments::new());
    segments.open_wanted(&spec, &mut members, true, Stream::Small, 1);
    let index = segments.open(Stream::Small)[0];
    let _ = end_all(&spec, &mut members, &mut segments, None);
    for _ in 0..2 {
        let number = segments.begin_stripe(index, Instant::ZERO);
        for member in spec.member_indices() {
            assert_eq!(segments.place_chunk(&members, member, index, number, &Outcome::None), Some(number));
        }
        segments.stripe_complete(&spec, &mut members, index, number);
    }
    let mut collector = Collector::default();
    collector.begin(&spec, &mut segments, index, Urgency::Immediate);
    collector.read_unneeded();
    let space = Space::new(&spec, &members, true);
    let mut read = Vec::new();
    while let Some((place, blocks, _)) = collector.next_read(space, &segments, 0, Instant::ZERO) {
        assert_eq!(blocks, 1);
        read.push((place.member.0, place.offset));
    }
    assert_eq!(read, [(0, 2), (1, 2), (2, 2), (0, 3), (1, 3), (2, 3)], "two headers, then two chunks");
}

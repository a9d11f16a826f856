//! The choice of the segment that garbage collection empties next: it starts before space runs out.

use zonda_zoned::Instant;

use super::super::segments::Segments;
use super::super::space::Space;
use super::super::spec::Spec;
use super::super::stripes::Stripes;
use super::Urgency;
use crate::config::Victim;
use crate::format::tombstones_per_block;
use crate::limits::RELOCATION_SEGMENTS;
use crate::shape::Stream;
use crate::tables::{Segment, SegmentIndex, SegmentState};

/// Whether segments are to be collected.
pub(in crate::machine) fn is_needed(space: Space<'_>, segments: &Segments) -> bool {
    space.is_low() || segments.doubtful().next().is_some()
}

/// The segment to be emptied next, and its urgency; none with more than `most` blocks to move.
pub(in crate::machine) fn choose(
    space: Space<'_>,
    segments: &Segments,
    stripes: &Stripes,
    is_idle: bool,
    most: Option<u64>,
    now: Instant,
) -> Option<(SegmentIndex, Urgency)> {
    let (spec, members) = (space.spec(), space.members());
    let present = members.present_bits();
    let may = |segment: &Segment| {
        let is_free = !segment.is_pinned && !segment.has_lost && segment.readers == 0;
        let fits = most.is_none_or(|most| moved_blocks(spec, segment) <= most);
        segment.state == SegmentState::Sealed && is_free && fits
    };
    // Zones that are lost on present members, damaged blocks: the rest of these segments is moved
    // while it can be read.
    let is_urgent = |segment: &Segment| {
        let is_degraded = segment.lost & present != 0 && !members.will_rebuild(segment);
        is_degraded || segment.is_suspect
    };
    let may_be_emptied =
        |segment: &Segment| may(segment) && (segment.live_blocks > 0 || !segment.tombstones.is_empty());
    let doubtful = || segments.doubtful().filter(|(_, segment)| may_be_emptied(segment));
    if let Some((index, _)) = doubtful().find(|(_, segment)| is_urgent(segment)) {
        return Some((index, Urgency::Immediate));
    }
    if let Some((index, _)) = doubtful().find(|(_, segment)| segment.is_exposed) {
        return Some((index, Urgency::Background));
    }
    if !space.is_low() {
        return None;
    }
    let worth = |segment: &Segment| worth(spec, segment);
    let mut candidates: Vec<_> = segments.iter().filter(|(_, segment)| may(segment) && worth(segment) > 0).collect();
    // Less than a segment in total: moving blocks back and forth would reclaim nothing. But where
    // hosts wait, the current segment is finished, and the free space in the segments for moved
    // blocks counts as well.
    let blocks = spec.shape.data_blocks(spec.shape.layout(Stream::Relocation));
    let reclaimed = candidates.iter().map(|(_, segment)| worth(segment)).sum::<u64>();
    if reclaimed < blocks {
        let do_wait = space.free_segments() <= RELOCATION_SEGMENTS;
        let must = do_wait && (!is_idle || reclaimed + space_for_moves(spec, segments, stripes) >= blocks);
        if !must {
            return None;
        }
        // Padding may cost as much as a stripe.
        candidates.retain(|(_, segment)| worth(segment) >= spec.shape.stripe_blocks(Stream::Relocation) as u64);
    }
    // Collection uses the reserve of the next mount, for example when successive writes fail and
    // each closes its segment: then the segment that reclaims most is emptied, whatever its age.
    let is_pressed = space.all_free_segments() < space.mount_segments();
    match if is_pressed { Victim::Greedy } else { spec.config.tuning.victim } {
        Victim::Greedy => {
            candidates.into_iter().max_by_key(|(index, segment)| (worth(segment), std::cmp::Reverse(*index)))
        }
        Victim::CostBenefit => candidates.into_iter().max_by_key(|(index, segment)| {
            let all = u128::from(spec.shape.data_blocks(&segment.layout));
            let live = all - u128::from(worth(segment));
            let age = u128::from(age(now, segment.filled_at));
            (all.saturating_sub(live) * age * 1024 / (all + live), std::cmp::Reverse(*index))
        }),
    }
    .map(|(index, _)| (index, Urgency::ForSpace))
}

/// Blocks that collecting a segment would reclaim.
pub(in crate::machine) fn worth(spec: &Spec, segment: &Segment) -> u64 {
    let all = spec.shape.data_blocks(&segment.layout);
    let moved = moved_blocks(spec, segment);
    if segment.tombstones.is_empty() {
        return all.saturating_sub(moved);
    }
    // The last stripe of what is moved is padded.
    all.saturating_sub(moved.next_multiple_of(spec.shape.stripe_blocks(Stream::Relocation) as u64))
}

/// Blocks that are written when a segment is emptied. Tombstones are packed.
pub(in crate::machine) fn moved_blocks(spec: &Spec, segment: &Segment) -> u64 {
    let per_block = tombstones_per_block(spec.shape.block_bytes as u32) as u32;
    let tombstones = segment.tombstone_ranges.div_ceil(per_block).min(segment.tombstones.len() as u32);
    u64::from(segment.live_blocks) + u64::from(tombstones)
}

/// Free blocks in the open segments for moved blocks.
pub(in crate::machine) fn space_for_moves(spec: &Spec, segments: &Segments, stripes: &Stripes) -> u64 {
    let left = |segment: &Segment| if segment.is_broken { 0 } else { segment.layout.stripes - segment.next_stripe };
    let free: u32 = segments.open(Stream::Relocation).iter().map(|&index| left(&segments[index])).sum();
    let is_filling = stripes.is_filling(Stream::Relocation).is_some();
    let waiting = stripes.ready(Stream::Relocation).len() + usize::from(is_filling);
    u64::from(free).saturating_sub(waiting as u64) * spec.shape.stripe_blocks(Stream::Relocation) as u64
}

fn age(now: Instant, since: Instant) -> u64 {
    now.since(since).as_nanos() / 1000 + 1
}

#[cfg(test)]
mod tests {
    use super::super::super::fixtures::{end_all, members, spec, with_tuning};
    use super::super::super::members::Members;
    use super::*;
    use crate::MemberIndex;
    use crate::tables::Physical;

    /// A closed segment in which damage was found.
    fn damaged(spec: &Spec, members: &mut Members, segments: &mut Segments) -> SegmentIndex {
        segments.open_wanted(spec, members, true, Stream::Small, 1);
        let index = segments.open(Stream::Small)[0];
        segments.break_off(spec, members, index);
        let _ = end_all(spec, members, segments, None);
        segments.set_damaged(index);
        assert_eq!(segments[index].state, SegmentState::Sealed);
        index
    }

    #[test]
    fn age_counts_until_zones_reserved_for_mounts_are_used_up() {
        let spec = with_tuning(|tuning| tuning.victim = Victim::CostBenefit);
        let (mut members, mut segments, stripes) = (members(&spec), Segments::new(), Stripes::new());
        let [old, young] = [(5, Instant::ZERO), (1, Instant(900_000))].map(|(live, filled_at)| {
            segments.open_wanted(&spec, &mut members, true, Stream::Small, 1);
            let index = segments.open(Stream::Small)[0];
            let _ = end_all(&spec, &mut members, &mut segments, None);
            segments.begin_stripe(index, filled_at);
            segments.stripe_failed(&spec, &mut members, index);
            let _ = end_all(&spec, &mut members, &mut segments, None);
            for slot in 0..live {
                let offset = segments[index].layout.slot_offset(slot);
                segments.set_live(Physical { segment: index, member: MemberIndex(0), offset });
            }
            index
        });
        let left_to_mounts = Space::new(&spec, &members, true).mount_segments();
        let mut last = None;
        while Space::new(&spec, &members, true).all_free_segments() > 0 {
            for member in spec.member_indices() {
                members[member].take_zone();
            }
            let space = Space::new(&spec, &members, true);
            let chosen = choose(space, &segments, &stripes, true, None, Instant(1_000_000));
            let expected = if space.all_free_segments() < left_to_mounts { young } else { old };
            assert!(chosen.is_none() && !space.is_low() || chosen == Some((expected, Urgency::ForSpace)));
            last = chosen;
        }
        assert_eq!(last, Some((young, Urgency::ForSpace)));
    }

    #[test]
    fn a_damaged_segment_is_emptied_at_once_if_there_is_something_in_it_to_be_moved() {
        let spec = spec(1, false);
        let (mut members, mut segments, stripes) = (members(&spec), Segments::new(), Stripes::new());
        let index = damaged(&spec, &mut members, &mut segments);
        let chosen = |segments: &Segments| {
            choose(Space::new(&spec, &members, true), segments, &stripes, true, None, Instant::ZERO)
        };
        let place = Physical { segment: index, member: MemberIndex(0), offset: segments[index].layout.slot_offset(0) };
        assert_eq!(chosen(&segments), None, "it is empty");
        segments.set_live(place);
        assert_eq!(chosen(&segments), Some((index, Urgency::Immediate)), "a block is live");
        segments.set_dead(place);
        segments.add_tombstones(place, 1);
        assert_eq!(chosen(&segments), Some((index, Urgency::Immediate)), "a tombstone is needed");
        segments.drop_tombstones(place);
        assert_eq!(chosen(&segments), None, "it is empty again");
    }
}

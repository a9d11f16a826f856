//! Rewrites the blocks of incomplete stripes, one segment after another: the versions that they
//! replace stay until then, and can be collected afterwards.

use bytes::Bytes;
use zonda_zoned::Status;

use super::{FlushAtMount, Volume};
use crate::MemberIndex;
use crate::format::{Record, TOMBSTONE_LBA, Tombstone, read_tombstones};
use crate::machine::Phase;
use crate::machine::members::Waiter;
use crate::machine::reads::Purpose;
use crate::machine::start::Step;
use crate::machine::stripes::Mover;
use crate::shape::Stream;
use crate::tables::{Physical, SegmentIndex};

impl Volume {
    /// Torn blocks of a segment.
    pub(super) fn torn_in(&mut self, segment: SegmentIndex) -> impl Iterator<Item = Physical> {
        self.found().torn_in(segment)
    }

    /// All versions are known: torn blocks that are not the newest are dropped, and the versions
    /// kept for their sake released.
    pub(super) fn forget_superseded(&mut self) {
        let mut torn = std::mem::take(&mut self.found().torn);
        torn.retain(|place| {
            let segment = &self.segments[place.segment];
            segment.is_live(place.member, place.offset) || segment.tombstones.contains(place)
        });
        if torn.is_empty() {
            self.found().stamps = Vec::new();
        }
        self.found().torn = torn;
        self.found().unsound.clear();
        self.found().lost.clear();
        let without: Vec<SegmentIndex> = self.found().shadowed.keys().copied().collect();
        for segment in without {
            if self.torn_in(segment).next().is_none() {
                self.release_shadowed(segment);
            }
        }
    }

    /// The versions that the torn blocks of a segment replace are not needed any more.
    fn release_shadowed(&mut self, torn: SegmentIndex) {
        let shadowed = self.found().shadowed.remove(&torn);
        for index in shadowed.into_iter().flatten() {
            if !self.found().shadowed.values().any(|others| others.contains(&index)) {
                self.segments.unpin(index, false);
            }
        }
    }

    /// Rewrites the torn blocks of one segment.
    pub(super) fn move_torn(&mut self) {
        self.pump_superblocks();
        if self.is_lost() {
            return;
        }
        let segment = self.found().torn.first().expect("there are torn blocks").segment;
        if !std::mem::replace(&mut self.found().is_reading_torn, true) {
            self.found().flush = FlushAtMount::Wanted;
            let torn: Vec<Physical> = self.torn_in(segment).collect();
            for place in torn {
                self.start_mut().pending += 1;
                self.fetch(place, 1, Purpose::Mount);
            }
            if self.start_mut().pending > 0 {
                return;
            }
        }
        self.stripes.pad(&self.spec, Stream::Relocation);
        self.pump_stream(Stream::Relocation);
        if self.found().moving > 0 {
            return self.fail_if_stuck();
        }
        if !self.members.is_epoch_durable() {
            return;
        }
        if self.found().has_failed {
            if self.is_quiescent() {
                self.mount_again("the last stripes cannot be read; assemble the volume again");
            }
            return;
        }
        if !self.is_flushed_at_mount() {
            return;
        }
        self.found().torn.retain(|place| place.segment != segment);
        if self.found().torn.is_empty() {
            self.found().stamps = Vec::new();
        }
        for place in std::mem::take(&mut self.found().moved_tombstones) {
            self.segments.drop_tombstones(place);
        }
        self.found().is_reading_torn = false;
        self.release_shadowed(segment);
        self.segments.add_candidate(segment);
        self.enter(Step::Reclaim);
    }

    /// Whether everything that the mount has written is durable; starts a flush if not.
    pub(super) fn is_flushed_at_mount(&mut self) -> bool {
        if self.found().flush == FlushAtMount::Wanted {
            self.found().flush = FlushAtMount::InFlight;
            self.when_durable(Waiter::Mount);
        }
        self.found().flush == FlushAtMount::Done
    }

    /// Everything that the mount has written is durable.
    pub(in crate::machine) fn flushed_at_mount(&mut self) {
        self.found().flush = FlushAtMount::Done;
    }

    pub(in crate::machine) fn moved_at_start(&mut self) {
        if matches!(self.phase, Phase::Starting(_)) {
            self.found().moving -= 1;
        }
    }

    /// A tombstone block, or a torn block, has been read.
    pub(in crate::machine) fn on_start_read(
        &mut self,
        place: Physical,
        mut found: Vec<Result<(Bytes, Record), Status>>,
    ) {
        if !matches!(self.phase, Phase::Starting(_)) {
            return;
        }
        self.start_mut().pending -= 1;
        let is_moving = self.start_mut().step == Step::MoveTorn;
        if !is_moving && self.doubted_read(place, found.last().and_then(|block| block.as_ref().ok())) {
            return;
        }
        let Some(Ok((data, record))) = found.pop() else {
            if is_moving {
                self.found().has_failed = true;
                return;
            }
            // As with headers, the error may be permanent: the loss refuses the mount.
            if self.tries_tombstones_again(place) {
                self.start_mut().pending += 1;
                return self.fetch(place, 1, Purpose::Mount);
            }
            return self.lose_tombstones(place);
        };
        if !is_moving {
            self.apply_tombstones(place, &data);
            return;
        }
        if record.lba == TOMBSTONE_LBA {
            if let Some(mut tombstones) = read_tombstones(&data) {
                // Another tombstone of a block in the same segment may be later: the map refers to
                // that one.
                tombstones.ranges = ranges_in_force(&self.found().stamps, &tombstones.ranges);
                let moved = self.move_tombstones(place.segment, &tombstones, Mover::Mount);
                self.found().moving += moved;
                // Places that it names may still exist.
                if tombstones.places.is_empty() {
                    self.found().moved_tombstones.push(place);
                }
            }
        } else if self.move_block(place, record, data, Mover::Mount) {
            self.found().moving += 1;
        }
    }
}

/// The parts of these ranges of whose blocks nothing newer was found: `stamps` has the newest
/// timestamp of each block.
fn ranges_in_force(stamps: &[u64], ranges: &[Tombstone]) -> Vec<Tombstone> {
    let mut newest: Vec<Tombstone> = Vec::new();
    for range in ranges {
        let is_newest = |lba: &u64| stamps.get(*lba as usize) == Some(&range.timestamp);
        range.lbas().filter(is_newest).for_each(|lba| range.add_block(lba, &mut newest));
    }
    newest
}

impl super::Mount {
    /// Torn blocks of a segment.
    pub(super) fn torn_in(&self, segment: SegmentIndex) -> impl Iterator<Item = Physical> + '_ {
        let first = Physical { segment, member: MemberIndex(0), offset: 0 };
        self.torn.range(first..).copied().take_while(move |place| place.segment == segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_torn_range_only_blocks_are_moved_of_which_nothing_newer_was_found() {
        let range = |lba, blocks, timestamp| Tombstone { lba, blocks, timestamp, is_lost: false };
        let stamps = [2, 2, 6, 2, 0, 3, 3];
        let ranges = [range(0, 5, 2), range(5, 4, 3), range(2, 1, 6)];
        assert_eq!(ranges_in_force(&stamps, &ranges), [range(0, 2, 2), range(3, 1, 2), range(5, 2, 3), range(2, 1, 6)]);
    }
}

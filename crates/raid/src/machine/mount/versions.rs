//! The newest version of each block, and which of its copies counts.
//!
//! A moved block keeps its timestamp, so that a crash may leave two copies. The later copy counts,
//! since the original may be about to be reset; except in three cases:
//!
//! - The earlier one is complete, and the later one is not.
//! - The later one is in a segment of moved blocks that was never filled, and the earlier one is
//!   complete: then the move is undone. So an interrupted move leaves nothing, and its segment is
//!   free again, unless all of another segment was moved there.
//! - The write of the later one was interrupted. It never counted, so the original still exists.
//!
//! A marker records that the newest version of a block was lost, and has that version's timestamp
//! or a later one, but none of a newer version. It supersedes every copy with an earlier timestamp,
//! which may be an older version. A copy with its own timestamp is the version that was considered
//! lost: that one is read, and counts if it is intact after all; otherwise the marker does. A mount
//! that finds the copy damaged must not keep the copy for the block: its segment may be emptied, or
//! its stripe cut shorter, and then an older version would be next.

use bytes::Bytes;

use super::Volume;
use super::assemble::FoundStripe;
use crate::bug::SeededBug;
use crate::format::{LostPlace, MemberState, PADDING_LBA, Record, TOMBSTONE_LBA, read_tombstones};
use crate::limits::CONFIRMED_BLOCKS_MAX;
use crate::machine::address::{Address, Location};
use crate::machine::reads::Purpose;
use crate::shape::{Stream, bits};
use crate::tables::{Physical, SegmentIndex, SegmentState};

/// The state of a copy; in the order in which tombstones are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CopyState {
    /// Complete.
    Whole,
    /// Complete; but its segment receives moved blocks, and was not filled.
    Unfinished,
    /// Incomplete, or was.
    Frail,
    /// The write of a moved block was interrupted.
    Cut,
}

impl Volume {
    /// The state of the copies in a stripe.
    pub(super) fn copy_state(&self, index: SegmentIndex, stripe: &FoundStripe, is_filled: bool) -> CopyState {
        let is_relocation = self.segments[index].stream == Stream::Relocation;
        if is_relocation && stripe.is_cut {
            CopyState::Cut
        } else if !stripe.is_whole || self.lacks_zones(index) {
            CopyState::Frail
        } else if is_relocation && !is_filled {
            CopyState::Unfinished
        } else {
            CopyState::Whole
        }
    }

    /// Whether a segment lacks a zone on a member that has all others. It may have been about to be
    /// reset.
    fn lacks_zones(&self, index: SegmentIndex) -> bool {
        let active = self.spec.member_indices().filter(|&at| self.members[at].state() == MemberState::Active);
        self.segments[index].lost & bits(active.map(crate::MemberIndex::as_usize)) != 0
    }

    /// A version of a block, at one of its places; `is_lost` if it cannot be read there.
    pub(super) fn take_block(
        &mut self,
        place: Physical,
        record: Record,
        stripe: &FoundStripe,
        copy_state: CopyState,
        is_lost: bool,
    ) {
        if record.lba == PADDING_LBA {
            return;
        }
        self.map.saw_timestamp(&self.spec, record.timestamp);
        if is_lost {
            self.found().lost.insert(place);
        } else if stripe.is_torn {
            self.found().torn.insert(place);
        }
        if !stripe.is_whole {
            self.found().unsound.insert(place);
        }
        if record.lba == TOMBSTONE_LBA {
            if self.spec.has(SeededBug::LostTombstones) && self.segments[place.segment].state == SegmentState::Sealed {
                return;
            }
            self.segments.add_tombstones(place, 0);
            if stripe.is_cut {
                self.found().losses.cut.insert(place);
            }
            self.found().tombstones.entry(copy_state).or_default().push(place);
            return;
        }
        let Some(&stamp) = self.found().stamps.get(record.lba as usize) else { return };
        let known = self.map.location(record.lba);
        if stamp < record.timestamp || stamp == record.timestamp && self.is_better(known, place, copy_state) {
            self.found().stamps[record.lba as usize] = record.timestamp;
            if stripe.is_torn {
                self.shadow(place.segment, known);
            }
            self.map.point(&mut self.segments, record.lba, Address::media(place));
        } else if stamp > record.timestamp {
            self.shadow_behind(known, Location::Media(place));
        }
    }

    /// Whether a copy replaces one that was found before.
    fn is_better(&mut self, known: Location, place: Physical, copy_state: CopyState) -> bool {
        let Location::Media(known) = known else { return true };
        // Of two copies a readable one counts.
        let lost = &self.found().lost;
        let (is_known_lost, is_lost) = (lost.contains(&known), lost.contains(&place));
        if is_known_lost != is_lost {
            return is_known_lost;
        }
        let is_sound = !self.lacks_zones(known.segment) && !self.found().unsound.contains(&known);
        match copy_state {
            CopyState::Cut => false,
            CopyState::Unfinished if is_sound => false,
            // Chunks that all segments lack, since their member is missing, make no difference
            // between the two.
            _ if is_sound && self.lacks_zones(place.segment) => false,
            _ => self.is_frail(known) || !self.is_frail(place),
        }
    }

    /// Whether a block's stripe lacks a chunk.
    fn is_frail(&mut self, place: Physical) -> bool {
        self.segments[place.segment].lost != 0 || self.found().torn.contains(&place)
    }

    /// Until a version that was incomplete, in the segment `torn`, is rewritten, the previous one
    /// must stay: if the first is lost, that one counts.
    fn shadow(&mut self, torn: SegmentIndex, older: Location) {
        let segment = match older {
            Location::Media(place) => place.segment,
            Location::Trimmed { segment } | Location::Lost { segment } => segment,
            Location::Nowhere | Location::Buffered { .. } => return,
        };
        self.segments.pin(segment);
        let is_torn = self.is_torn(older);
        let found = self.found();
        // It may be lost as well.
        let before = if is_torn { found.shadowed.get(&segment).cloned() } else { None };
        let shadowed = found.shadowed.entry(torn).or_default();
        shadowed.insert(segment);
        shadowed.extend(before.into_iter().flatten());
    }

    /// An older version was found than the one that counts.
    fn shadow_behind(&mut self, newest: Location, older: Location) {
        match newest {
            Location::Media(Physical { segment, .. }) | Location::Trimmed { segment } | Location::Lost { segment }
                if self.is_torn(newest) =>
            {
                self.shadow(segment, older);
            }
            _ => {}
        }
    }

    /// Whether a version may never have been complete. For a tombstone only its segment is known.
    fn is_torn(&mut self, version: Location) -> bool {
        match version {
            Location::Media(place) => self.found().torn.contains(&place),
            Location::Trimmed { segment } | Location::Lost { segment } => self.torn_in(segment).next().is_some(),
            Location::Nowhere | Location::Buffered { .. } => false,
        }
    }

    /// A tombstone block was read. Those of one copy state are read before those of the next.
    pub(super) fn apply_tombstones(&mut self, place: Physical, data: &[u8]) {
        let segment = place.segment;
        let is_torn = self.found().torn.contains(&place);
        let copy_state = self.found().copy_state.expect("tombstones are read by what they lack");
        let Some(tombstones) = read_tombstones(data) else {
            return self.lose_tombstones(place);
        };
        let mut is_needed = matches!(copy_state, CopyState::Whole | CopyState::Frail);
        if !tombstones.places.is_empty() {
            is_needed |= self.take_lost_places(segment, &tombstones.places);
        }
        for range in &tombstones.ranges {
            self.map.saw_timestamp(&self.spec, range.timestamp);
            let end = range.lbas().end.min(self.map.blocks());
            for lba in range.lba..end {
                let (stamp, known) = (self.found().stamps[lba as usize], self.map.location(lba));
                if let (true, Location::Media(copy)) = (range.is_lost && stamp == range.timestamp, known) {
                    // Of two markers the later one counts.
                    if copy_state == CopyState::Whole || !self.found().doubted.contains_key(&copy) {
                        self.found().doubted.insert(copy, (lba, segment));
                    }
                    is_needed = true;
                    continue;
                }
                // Of two complete tombstones of one trim the later one counts: the first may have
                // been about to be reset.
                if stamp < range.timestamp || stamp == range.timestamp && copy_state == CopyState::Whole {
                    self.found().stamps[lba as usize] = range.timestamp;
                    if is_torn {
                        self.shadow(segment, known);
                    }
                    let address = if range.is_lost { Address::lost(segment) } else { Address::trimmed(segment) };
                    self.map.point(&mut self.segments, lba, address);
                    is_needed = true;
                } else if stamp > range.timestamp {
                    // Only the segment of the older version matters.
                    self.shadow_behind(known, Location::Trimmed { segment });
                    is_needed |= self.is_torn(known);
                }
            }
        }
        if is_needed {
            self.segments.add_tombstone_ranges(segment, tombstones.entries() as u32);
        } else {
            // Other tombstones have all of it.
            self.segments.drop_tombstones(place);
            self.found().torn.remove(&place);
        }
    }

    /// A block of tombstones names places. Returns whether any of them is named by no other block
    /// in an equal or better state.
    fn take_lost_places(&mut self, holder: SegmentIndex, places: &[LostPlace]) -> bool {
        let copy_state = self.found().copy_state;
        let sequences = self.segments.sequences();
        let mut is_needed = false;
        for &place in places.iter().filter(|place| sequences.contains(&place.segment)) {
            // As with tombstones: of two complete ones the later one counts.
            if copy_state == Some(CopyState::Whole) || !self.lost_places.is_named(place) {
                self.lost_places.name(place, holder);
                is_needed = true;
            }
        }
        is_needed
    }

    /// Reads some of the copies that are lost according to a marker. Returns whether there were
    /// any.
    pub(super) fn read_doubted(&mut self) -> bool {
        for _ in 0..CONFIRMED_BLOCKS_MAX {
            let Some((copy, (lba, segment))) = self.found().doubted.pop_first() else { break };
            // A trim may be newer.
            if self.map.location(lba) == Location::Media(copy) {
                self.found().doubting.insert(copy, (lba, segment));
                self.start_mut().pending += 1;
                self.fetch(copy, 1, Purpose::Mount);
            }
        }
        self.start_mut().pending > 0 || !self.found().doubted.is_empty()
    }

    /// A copy was read that is lost according to a marker. Returns whether it was such a copy.
    pub(super) fn doubted_read(&mut self, copy: Physical, block: Option<&(Bytes, Record)>) -> bool {
        let Some((lba, segment)) = self.found().doubting.remove(&copy) else { return false };
        if block.is_none_or(|(_, record)| record.lba != lba) {
            let torn = self.torn_in(segment).next();
            if torn.is_some() {
                self.shadow(segment, Location::Media(copy));
            }
            self.map.point(&mut self.segments, lba, Address::lost(segment));
        }
        true
    }
}

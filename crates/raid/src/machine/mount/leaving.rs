//! Segments that were about to be reset, and members that are older copies.
//!
//! A segment that is being opened or reset at a crash has zones on some members and none on others,
//! so a member that shows that it has none allows a mount to reset the rest. A member that was
//! restored from an older copy shows the same of every segment that was opened since, and its
//! superblock is as new as those of others where no member's state has changed. So nothing is reset
//! before these segments are read, too:
//!
//! - A segment is reset only once a newer version of each of its blocks is durable elsewhere. One
//!   that holds a version, in a complete group, that is newer than all others was not being reset:
//!   the members that show no zone of it are older copies. The same holds for its tombstones.
//! - A group is durable on all members before the next one is written. A member whose zone ends
//!   before a group that is followed by another one, or by a footer, is an older copy.
//!
//! The newest segments are examined first: the contents that only older copies still have of
//! segments that were reset since contradict no member.
//!
//! Within the tolerance of the level, such members are treated as damaged: what they lack is
//! computed. Beyond that the mount is refused, and lists them as missing.

use zonda_zoned::BlockBuffer;

use super::zones::{Reading, ZoneReading};
use super::{Volume, block_of};
use crate::bug::SeededBug;
use crate::config::Level;
use crate::format::{MemberState, PADDING_LBA, Record, TOMBSTONE_LBA, Tombstone, read_tombstones};
use crate::machine::start::StartStep;
use crate::shape::bits;
use crate::{MemberIndex, VolumeError};

/// What the record of a block shows whose segment may be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeavingRecord {
    /// Nothing beyond other blocks.
    Nothing,
    /// It holds tombstones, which must be read.
    Tombstones,
    /// It is newer than all other versions of its logical block.
    Newer,
}

impl Volume {
    /// Begins with the next segment that was about to be reset. Returns whether there is one.
    pub(super) fn read_next_leaving(&mut self) -> bool {
        // Accepted losses are not needed; and with a seeded bug nothing is.
        let accepted = self.members.accepted_segment();
        let is_careless = self.spec.has(SeededBug::DroppedSegment) || self.found().options.accepts_losses;
        let found = self.found();
        while let Some((sequence, segment)) = found.leaving.pop_last() {
            let is_held =
                bits((0..segment.zones.len()).filter(|&at| segment.zones[at].is_some())) & !found.older_copies != 0;
            if sequence > accepted && is_held && !is_careless {
                self.read_segment(sequence, segment);
                return true;
            }
        }
        false
    }

    /// A segment that was about to be reset is read: checks whether anything in it is needed.
    pub(super) fn verify_leaving(&mut self) {
        let reading = self.found().current.take().expect("a segment was read");
        let end = reading.complete_slots();
        let mut is_needed = false;
        let mut tombstones = Vec::new();
        for (member, zone) in (0..).map(MemberIndex).zip(&reading.zones) {
            let Some(zone) = zone.as_ref().filter(|_| reading.found.rebuilt >> member.0 & 1 == 0) else { continue };
            for (slot, read) in (0..end).zip(&zone.slots) {
                let Some(read) = read else { continue };
                for (row, meta) in (0..).zip(&*read.blocks).filter_map(|(row, block)| Some((row, block.meta?))) {
                    match self.classify_record(member, read.stripe, &Record::from_bytes(&meta.record)) {
                        LeavingRecord::Nothing => {}
                        LeavingRecord::Newer => is_needed = true,
                        LeavingRecord::Tombstones => {
                            tombstones.push((member, zone.zone, reading.layout.offset_of(slot, row)));
                        }
                    }
                }
            }
        }
        let shown_without = reading.found.shown_without;
        if is_needed {
            self.found().older_copies |= shown_without;
        }
        for (member, zone, offset) in tombstones {
            let step = StartStep::Leaving { shown_without };
            self.read_at_start(member, step, zone, offset, 1);
        }
    }

    /// Compares the record of a block of a member's chunk with everything else that was found.
    pub(super) fn classify_record(&mut self, member: MemberIndex, stripe: u32, record: &Record) -> LeavingRecord {
        // The records of parity belong to no block; copies have those of their originals.
        let has_copies = matches!(self.spec.shape.scheme.level, Level::Raid1 | Level::Raid01);
        let is_parity = self.spec.shape.chunk_of(member, stripe) >= self.spec.shape.data();
        match record.lba {
            _ if is_parity && !has_copies => LeavingRecord::Nothing,
            PADDING_LBA => LeavingRecord::Nothing,
            TOMBSTONE_LBA => LeavingRecord::Tombstones,
            lba => match self.found().stamps.get(lba as usize) {
                Some(&stamp) if stamp < record.timestamp => LeavingRecord::Newer,
                _ => LeavingRecord::Nothing,
            },
        }
    }

    /// A read of a block of tombstones of such a segment has ended. If it failed, its segment may
    /// have been in reset.
    pub(super) fn on_leaving_read(&mut self, shown_without: u32, buffer: Option<&BlockBuffer>) {
        let block = buffer.and_then(|buffer| block_of(buffer, 0, self.spec.shape.block_bytes));
        let Some(tombstones) = block.and_then(read_tombstones) else { return };
        let stamps = &self.found().stamps;
        let is_newest = |range: &Tombstone| {
            let lbas = range.lbas();
            let stamps = stamps.get(lbas.start as usize..(lbas.end as usize).min(stamps.len()));
            stamps.is_some_and(|stamps| stamps.iter().any(|&stamp| stamp < range.timestamp))
        };
        if tombstones.ranges.iter().any(is_newest) {
            self.found().older_copies |= shown_without;
        }
    }

    /// Finds members whose zones end before complete groups: each member had its part of these
    /// durable before more was written.
    pub(super) fn find_older_copies(&mut self, reading: &Reading) {
        let (layout, header) = (&reading.layout, &reading.found.header);
        let complete_slots = reading.complete_slots();
        if complete_slots == 0 {
            return;
        }
        let complete = layout.slot_offset(complete_slots);
        let is_older = |&at: &usize| {
            let member = &self.members[MemberIndex(at as u8)];
            let is_own = header.zones[at].is_some()
                && reading.found.copied >> at & 1 == 0
                && member.state() == MemberState::Active
                && member.since_epoch() <= header.epoch;
            // The write pointer of a zone that was finished early is unknown.
            let ends_early = |zone: &ZoneReading| zone.state.is_active() && zone.written < complete;
            is_own && reading.zones[at].as_ref().is_some_and(ends_early)
        };
        let older = bits((0..header.zones.len()).filter(is_older));
        self.found().older_copies |= older;
    }

    /// Why the volume cannot be mounted, if members that are older copies are needed.
    pub(super) fn too_many_older(&mut self) -> Option<VolumeError> {
        let older = self.found().older_copies;
        let is_older = |member: MemberIndex| older >> member.0 & 1 == 1;
        let is_active = |member: &MemberIndex| self.members[*member].state() == MemberState::Active;
        let others = self.members.present().filter(is_active).filter(|&member| !is_older(member));
        if older == 0 || self.spec.are_enough(bits(others.map(MemberIndex::as_usize))) {
            return None;
        }
        let options = self.found().options;
        if options.accepts_losses || options.accepts_older {
            return None;
        }
        let missing =
            self.spec.member_indices().filter(|&member| is_older(member) || !self.members[member].is_present());
        Some(VolumeError::TooManyMissing {
            tolerates: self.spec.code.tolerates(),
            missing: missing.collect(),
            rebuilding: self.members.rebuilding(),
        })
    }
}

impl Reading {
    /// Slots of complete groups: another group follows them, or a footer.
    fn complete_slots(&self) -> u32 {
        let layout = &self.layout;
        let zones = || self.zones.iter().flatten();
        if zones().any(|zone| zone.has_footer(layout)) {
            return layout.stripes;
        }
        let last = zones().map(ZoneReading::end).max().unwrap_or(0);
        last.checked_sub(1).map_or(0, |slot| layout.group_range(slot).start)
    }
}

//! Segments that are about to go, and members that are older copies of themselves.
//!
//! A segment that is being opened or reset at a crash has zones on some members and none on others, so a member that shows that it has
//! none lets a mount reset the rest. A member whose files were restored from an older copy shows the same of every segment that was
//! opened since, and its superblock is as new as those of others where no member's state has changed. So nothing is reset before
//! these segments are read, too:
//!
//! - A segment is reset only once a newer version of each of its blocks is durable elsewhere. One that holds a version, in a complete
//!   group, that is newer than all others was not being reset: the members that show no zone of it are older copies. The same holds
//!   for its tombstones.
//! - A group is durable on all members before the next one is written. A member whose zone ends before a group that another one
//!   follows, or a footer, is an older copy.
//!
//! The newest segments are looked at first: what only older copies still hold of those that were reset since contradicts no member.
//!
//! Within what the level tolerates such members are as damaged ones: what they lack is computed. Beyond that the mount is refused, and
//! names them as missing.

use zonda_zoned::BlockBuffer;

use super::zones::{Reading, ZoneReading};
use super::{Volume, block_of};
use crate::bug::SeededBug;
use crate::config::Level;
use crate::format::{MemberState, PADDING_LBA, Record, TOMBSTONE_LBA, Tombstone, read_tombstones};
use crate::machine::start::StartStep;
use crate::shape::bits;
use crate::{MemberIndex, VolumeError};

/// What a block says that may be about to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// No more than others do.
    Nothing,
    /// It holds tombstones, which have to be read.
    Tombstones,
    /// It is newer than all other versions of its logical block.
    Newer,
}

impl Volume {
    /// Begins with the next segment that is about to go. Says whether there is one.
    pub(super) fn read_next_leaving(&mut self) -> bool {
        // What was accepted before is not needed, and with a seeded bug nothing is.
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

    /// A segment that is about to go was read: is anything in it needed?
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
                    match self.said(member, read.stripe, &Record::from_bytes(&meta.record)) {
                        Said::Nothing => {}
                        Said::Newer => is_needed = true,
                        Said::Tombstones => tombstones.push((member, zone.zone, reading.layout.offset_of(slot, row))),
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

    /// What the record of a block of a member's chunk says of what else was found.
    pub(super) fn said(&mut self, member: MemberIndex, stripe: u32, record: &Record) -> Said {
        // The records of parity are those of no block; copies have those of what they are copies of.
        let has_copies = matches!(self.spec.shape.scheme.level, Level::Raid1 | Level::Raid01);
        let is_parity = self.spec.shape.chunk_of(member, stripe) >= self.spec.shape.data();
        match record.lba {
            _ if is_parity && !has_copies => Said::Nothing,
            PADDING_LBA => Said::Nothing,
            TOMBSTONE_LBA => Said::Tombstones,
            lba => match self.found().stamps.get(lba as usize) {
                Some(&stamp) if stamp < record.timestamp => Said::Newer,
                _ => Said::Nothing,
            },
        }
    }

    /// A block of tombstones of such a segment was read. One that cannot be is one whose segment may be going.
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

    /// Finds members whose zones end before groups that were complete: each member had its part of these durable before more was written.
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
            // Of a zone that was finished early the write pointer is not known.
            let ends_early = |zone: &ZoneReading| zone.state.is_active() && zone.written < complete;
            is_own && reading.zones[at].as_ref().is_some_and(ends_early)
        };
        let older = bits((0..header.zones.len()).filter(is_older));
        self.found().older_copies |= older;
    }

    /// Why the volume cannot be mounted, if members that are older copies of themselves are needed.
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
    /// Slots of groups that were complete: another group follows them, or a footer.
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

//! What is kept of a zone: the entry in a checkpoint, brought up to date by the records of the journal.
//!
//! ```text
//! byte 0..4    generation: how many times the zone was reset
//!      4..8    wear: how many times that erased something
//!      8       state: 0 writable, 1 finished, 2 read only, 3 offline
//!      9       bit 0: has a ZRWA; bit 1: had one since it was last empty; bit 2: has a descriptor extension;
//!              bit 3: was finished, whatever it is now
//!      10..16  settled: in a ZRWA, blocks below it were flushed, and only what an intent names may have been overwritten since
//!      16..24  durable: blocks below this offset were synced when the entry was written
//!      24..32  pointer: where the write pointer stood when the zone was finished, committed or became read only
//!      32..40  written: high-water mark of the writes then
//! ```
//! For a writable zone without ZRWA the write pointer is not kept: it is found by its tags, from `durable` on.

use std::collections::BTreeMap;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::Geometry;

use super::record::{FlushedPointer, Kind, Record};

/// Bytes of one entry.
pub(crate) const ENTRY_BYTES: usize = size_of::<RawEntry>();

const HAS_ZRWA: u8 = 1;
const HAD_ZRWA: u8 = 2;
const HAS_EXTENSION: u8 = 4;
const FINISHED: u8 = 8;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawEntry {
    generation: U32,
    wear: U32,
    state: u8,
    flags: u8,
    settled: [u8; 6],
    durable: U64,
    pointer: U64,
    written: U64,
}

const _: () = assert!(ENTRY_BYTES == 40);

/// What can be known of a zone's state from management alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Empty, active, or full by being written: the tags tell.
    #[default]
    Writable,
    /// Full by Finish.
    Finished,
    ReadOnly,
    Offline,
}

/// One zone, as checkpoint and journal know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) generation: u32,
    pub(crate) wear: u32,
    pub(crate) kept: Kept,
    pub(crate) has_zrwa: bool,
    pub(crate) had_zrwa: bool,
    pub(crate) has_extension: bool,
    /// By the host; it may have become read only since.
    pub(crate) finished: bool,
    pub(crate) durable: u64,
    pub(crate) pointer: u64,
    pub(crate) written: u64,
    /// Of a zone that had a ZRWA.
    pub(crate) settled: u64,
}

/// Counters of a drive since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks that hosts wrote, zeros among them, counted when acknowledged.
    pub host_written_blocks: u64,
    /// Blocks by which Finish padded zones: the rest of each partly written zone.
    pub padding_blocks: u64,
    /// Blocks that hosts read.
    pub host_read_blocks: u64,
    /// Resets that erased something.
    pub erases: u64,
}

impl Counters {
    /// Device-level write amplification in thousandths: (host writes + device writes) / host writes, where the device
    /// writes the padding. 1000 before the first write.
    #[must_use]
    pub fn dlwa_thousandths(&self) -> u64 {
        let host = u128::from(self.host_written_blocks);
        let all = host + u128::from(self.padding_blocks);
        (all * 1000).checked_div(host).map_or(1000, |thousandths| thousandths as u64)
    }
}

/// All that checkpoint and journal keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    pub(crate) entries: Vec<Entry>,
    pub(crate) extensions: BTreeMap<u32, Box<[u8]>>,
    pub(crate) counters: Counters,
    /// What is kept of reservations; empty: nothing.
    pub(crate) reservations: Box<[u8]>,
}

impl Entry {
    /// Blocks written up to `pointer` that no counter of the ledger holds yet. Those of a ZRWA come with the flush records.
    pub(crate) fn uncounted(&self, pointer: u64) -> u64 {
        if self.had_zrwa { 0 } else { pointer.saturating_sub(self.durable) }
    }

    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let flags = u8::from(self.has_zrwa) * HAS_ZRWA
            + u8::from(self.had_zrwa) * HAD_ZRWA
            + u8::from(self.has_extension) * HAS_EXTENSION
            + u8::from(self.finished) * FINISHED;
        let settled = self.settled.to_le_bytes();
        assert_eq!(settled[6..], [0, 0], "a zone has fewer than 2^48 blocks");
        let raw = RawEntry {
            generation: self.generation.into(),
            wear: self.wear.into(),
            state: self.kept as u8,
            flags,
            settled: settled[..6].try_into().expect("six bytes"),
            durable: self.durable.into(),
            pointer: self.pointer.into(),
            written: self.written.into(),
        };
        zerocopy::transmute!(raw)
    }

    /// Whether a zone of this geometry can come to be so.
    pub(crate) fn is_possible(&self, zone: u32, geometry: &Geometry) -> bool {
        let has_zrwa = self.has_zrwa || self.had_zrwa;
        let is_special = has_zrwa || self.has_extension || self.finished || self.kept != Kept::Writable;
        if zone < geometry.conventional_zone_count {
            return !is_special;
        }
        if self.settled > 0 && !self.had_zrwa {
            return false;
        }
        if self.has_zrwa && !(self.had_zrwa && self.kept == Kept::Writable) {
            return false;
        }
        // What was finished is full until it is reset, or worse; a write would go to where it was not written up to.
        let (can_be_finished, must_be_finished) = (self.kept != Kept::Writable, self.kept == Kept::Finished);
        if self.finished && !can_be_finished || must_be_finished && !self.finished {
            return false;
        }
        if self.has_extension && geometry.descriptor_extension_bytes == 0 {
            return false;
        }
        match geometry.zrwa {
            None => !self.had_zrwa,
            Some(zrwa) if self.had_zrwa => {
                let granularity = zrwa.flush_granularity_blocks.0;
                // Of a zone that went offline all is durable that was written, and nothing is built on it.
                self.pointer.is_multiple_of(granularity)
                    && (self.durable.is_multiple_of(granularity) || self.kept == Kept::Offline)
                    && self.written <= self.pointer.saturating_add(zrwa.size_blocks.0)
            }
            Some(_) => true,
        }
    }

    /// Reads an entry; `None` where no program writes such.
    pub(crate) fn decode(bytes: &[u8], capacity: u64) -> Option<Entry> {
        let raw = RawEntry::read_from_bytes(bytes).ok()?;
        let entry = Entry {
            generation: raw.generation.get(),
            wear: raw.wear.get(),
            kept: match raw.state {
                0 => Kept::Writable,
                1 => Kept::Finished,
                2 => Kept::ReadOnly,
                3 => Kept::Offline,
                _ => return None,
            },
            has_zrwa: raw.flags & HAS_ZRWA != 0,
            had_zrwa: raw.flags & HAD_ZRWA != 0,
            has_extension: raw.flags & HAS_EXTENSION != 0,
            finished: raw.flags & FINISHED != 0,
            durable: raw.durable.get(),
            pointer: raw.pointer.get(),
            written: raw.written.get(),
            settled: {
                let [a, b, c, d, e, f] = raw.settled;
                u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
            },
        };
        (entry.durable.max(entry.pointer).max(entry.written).max(entry.settled) <= capacity).then_some(entry)
    }
}

/// Counters come from files: the largest number stays what it is.
pub(crate) fn add(counter: &mut u64, more: u64) {
    *counter = counter.saturating_add(more);
}

impl Ledger {
    pub(crate) fn new(zones: u32) -> Ledger {
        Ledger { entries: vec![Entry::default(); zones as usize], ..Ledger::default() }
    }

    /// Brings the ledger up to date by a record. The machine does this when it writes the record, and recovery when it
    /// reads it: one piece of code for both.
    pub(crate) fn apply(&mut self, record: &Record<'_>) {
        match record.kind {
            Kind::Flush => self.apply_flush(record),
            Kind::RegionIntent | Kind::Overwrite | Kind::Contents | Kind::Zeros => {}
            Kind::Settled => {
                let entry = &mut self.entries[record.zone as usize];
                if entry.generation == record.generation && entry.had_zrwa {
                    entry.settled = entry.settled.max(record.a);
                }
            }
            Kind::Reservations => self.reservations = record.payload.concat().into(),
            _ => self.apply_management(record),
        }
    }

    fn apply_flush(&mut self, record: &Record<'_>) {
        add(&mut self.counters.host_written_blocks, record.a);
        add(&mut self.counters.host_read_blocks, record.b);
        for FlushedPointer { zone, generation, pointer } in record.pointers() {
            let entry = &mut self.entries[zone as usize];
            if entry.generation == generation && pointer > entry.durable {
                add(&mut self.counters.host_written_blocks, entry.uncounted(pointer));
                entry.durable = pointer;
            }
        }
    }

    fn apply_management(&mut self, record: &Record<'_>) {
        let zone = record.zone;
        let entry = &mut self.entries[zone as usize];
        match record.kind {
            Kind::Reset => {
                let erased = u32::from(record.a > 0);
                add(&mut self.counters.host_written_blocks, entry.uncounted(record.a));
                add(&mut self.counters.erases, u64::from(erased));
                let generation = entry.generation.wrapping_add(1);
                *entry = Entry { generation, wear: entry.wear.saturating_add(erased), ..Entry::default() };
                self.extensions.remove(&zone);
            }
            Kind::Finish => {
                add(&mut self.counters.host_written_blocks, entry.uncounted(record.a));
                add(&mut self.counters.padding_blocks, record.c);
                entry.kept = Kept::Finished;
                entry.finished = true;
                entry.has_zrwa = false;
                (entry.pointer, entry.written) = (record.a, record.b);
                // Finish syncs data and tags before its record.
                entry.durable = entry.durable.max(record.a);
            }
            Kind::ReadOnly => {
                // A finished zone keeps the write pointer that it had.
                if !entry.finished {
                    (entry.pointer, entry.written) = (record.a, record.b);
                }
                entry.kept = Kept::ReadOnly;
                entry.has_zrwa = false;
            }
            Kind::Offline => {
                add(&mut self.counters.host_written_blocks, entry.uncounted(record.a));
                entry.durable = entry.durable.max(record.a);
                entry.kept = Kept::Offline;
                (entry.has_zrwa, entry.has_extension) = (false, false);
                self.extensions.remove(&zone);
            }
            Kind::Extension => {
                entry.has_extension = true;
                self.extensions.insert(zone, record.payload[0].into());
                if record.a != 0 {
                    (entry.has_zrwa, entry.had_zrwa) = (true, true);
                }
            }
            Kind::Zrwa => (entry.has_zrwa, entry.had_zrwa) = (true, true),
            Kind::Commit => (entry.pointer, entry.written) = (record.a, record.b),
            Kind::Flush
            | Kind::RegionIntent
            | Kind::Overwrite
            | Kind::Settled
            | Kind::Contents
            | Kind::Zeros
            | Kind::Reservations => unreachable!("no record of management"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_zoned::{Blocks, ZrwaGeometry};

    #[test]
    fn what_a_zone_with_zrwa_has_committed_and_synced_is_whole_granules() {
        let zrwa = ZrwaGeometry {
            size_blocks: Blocks(4),
            flush_granularity_blocks: Blocks(2),
            resources: 1,
            explicit_flush: false,
        };
        let geometry = Geometry { zrwa: Some(zrwa), ..Geometry::tiny() };
        let zone = geometry.conventional_zone_count;
        let entry = Entry { has_zrwa: true, had_zrwa: true, durable: 2, pointer: 4, written: 7, ..Entry::default() };
        assert!(entry.is_possible(zone, &geometry));
        assert!(!Entry { durable: 3, ..entry }.is_possible(zone, &geometry));
        assert!(!Entry { pointer: 5, ..entry }.is_possible(zone, &geometry));
        let offline = Entry { kept: Kept::Offline, has_zrwa: false, durable: 7, ..entry };
        assert!(offline.is_possible(zone, &geometry));
        assert!(Entry { has_zrwa: false, had_zrwa: false, durable: 3, ..entry }.is_possible(zone, &geometry));
    }
}

//! The saved state of a zone: its entry in a checkpoint, updated by the records of the journal.
//!
//! ```text
//! byte 0..4    generation: how many times the zone was reset
//!      4..8    wear: how many times that erased something
//!      8       state: 0 writable, 1 finished, 2 read only, 3 offline
//!      9       bit 0: has a ZRWA; bit 1: had one since it was last empty; bit 2: has a descriptor extension;
//!              bit 3: was finished, whatever its state is now
//!      10..16  persisted: in a ZRWA, blocks below it were flushed, and since then only overwritten under an intent
//!      16..24  durable: blocks below this offset were synced when the entry was written
//!      24..32  pointer: the write pointer when the zone was finished, committed or became read only
//!      32..40  written: high-water mark of the writes then
//! ```
//! For a writable zone without ZRWA the write pointer is not saved: it is found by its tags, from
//! `durable` on.

use std::collections::BTreeMap;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::{Geometry, ZoneIndex};

use super::Generation;
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
    persisted: [u8; 6],
    durable: U64,
    pointer: U64,
    written: U64,
}

const _: () = assert!(ENTRY_BYTES == 40);

/// The part of a zone's state that management determines, and that is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RecordedState {
    /// Empty, active, or full by writes: determined by the tags.
    #[default]
    Writable,
    /// Full by Finish.
    Finished,
    ReadOnly,
    Offline,
}

/// One zone, as recorded in checkpoint and journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) generation: Generation,
    pub(crate) wear: u32,
    pub(crate) state: RecordedState,
    pub(crate) has_zrwa: bool,
    pub(crate) had_zrwa: bool,
    pub(crate) has_extension: bool,
    /// By the host; it may have become read only since.
    pub(crate) finished: bool,
    pub(crate) durable: u64,
    pub(crate) pointer: u64,
    pub(crate) written: u64,
    /// Of a zone that had a ZRWA.
    pub(crate) persisted: u64,
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
    /// Device-level write amplification in thousandths: (host writes + device writes) / host
    /// writes, where the device writes the padding. 1000 before the first write.
    #[must_use]
    pub fn dlwa_thousandths(&self) -> u64 {
        let host = u128::from(self.host_written_blocks);
        let all = host + u128::from(self.padding_blocks);
        (all * 1000).checked_div(host).map_or(1000, |thousandths| thousandths as u64)
    }
}

/// The complete contents of checkpoint and journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    pub(crate) entries: Vec<Entry>,
    pub(crate) extensions: BTreeMap<ZoneIndex, Box<[u8]>>,
    pub(crate) counters: Counters,
    /// Saved reservations; empty for none.
    pub(crate) reservations: Box<[u8]>,
}

impl Entry {
    /// Blocks written up to `pointer` that no counter of the ledger includes yet. Flush records
    /// count those of a ZRWA.
    pub(crate) fn uncounted(&self, pointer: u64) -> u64 {
        if self.had_zrwa { 0 } else { pointer.saturating_sub(self.durable) }
    }

    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let flags = u8::from(self.has_zrwa) * HAS_ZRWA
            + u8::from(self.had_zrwa) * HAD_ZRWA
            + u8::from(self.has_extension) * HAS_EXTENSION
            + u8::from(self.finished) * FINISHED;
        let persisted = self.persisted.to_le_bytes();
        assert_eq!(persisted[6..], [0, 0], "a zone has fewer than 2^48 blocks");
        let raw = RawEntry {
            generation: self.generation.0.into(),
            wear: self.wear.into(),
            state: self.state as u8,
            flags,
            persisted: persisted[..6].try_into().expect("six bytes"),
            durable: self.durable.into(),
            pointer: self.pointer.into(),
            written: self.written.into(),
        };
        zerocopy::transmute!(raw)
    }

    /// Whether a zone of this geometry can reach this state.
    pub(crate) fn is_possible(&self, zone: ZoneIndex, geometry: &Geometry) -> bool {
        let has_zrwa = self.has_zrwa || self.had_zrwa;
        let is_special = has_zrwa || self.has_extension || self.finished || self.state != RecordedState::Writable;
        if zone.0 < geometry.conventional_zone_count {
            return !is_special;
        }
        if self.persisted > 0 && !self.had_zrwa {
            return false;
        }
        if self.has_zrwa && !(self.had_zrwa && self.state == RecordedState::Writable) {
            return false;
        }
        // A finished zone is full until it is reset, becomes read only or goes offline: else a
        // write would go behind its end.
        let (can_be_finished, must_be_finished) =
            (self.state != RecordedState::Writable, self.state == RecordedState::Finished);
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
                // In an offline zone everything written counts as durable, and nothing depends on
                // it.
                self.pointer.is_multiple_of(granularity)
                    && (self.durable.is_multiple_of(granularity) || self.state == RecordedState::Offline)
                    && self.written <= self.pointer.saturating_add(zrwa.size_blocks.0)
            }
            Some(_) => true,
        }
    }

    /// Reads an entry; `None` if it is not one that this format has.
    pub(crate) fn decode(bytes: &[u8], capacity: u64) -> Option<Entry> {
        let raw = RawEntry::read_from_bytes(bytes).ok()?;
        let entry = Entry {
            generation: Generation(raw.generation.get()),
            wear: raw.wear.get(),
            state: match raw.state {
                0 => RecordedState::Writable,
                1 => RecordedState::Finished,
                2 => RecordedState::ReadOnly,
                3 => RecordedState::Offline,
                _ => return None,
            },
            has_zrwa: raw.flags & HAS_ZRWA != 0,
            had_zrwa: raw.flags & HAD_ZRWA != 0,
            has_extension: raw.flags & HAS_EXTENSION != 0,
            finished: raw.flags & FINISHED != 0,
            durable: raw.durable.get(),
            pointer: raw.pointer.get(),
            written: raw.written.get(),
            persisted: {
                let [a, b, c, d, e, f] = raw.persisted;
                u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
            },
        };
        (entry.durable.max(entry.pointer).max(entry.written).max(entry.persisted) <= capacity).then_some(entry)
    }
}

/// Adds to a counter, which comes from a file and saturates.
pub(crate) fn add(counter: &mut u64, more: u64) {
    *counter = counter.saturating_add(more);
}

impl Ledger {
    pub(crate) fn new(zones: u32) -> Ledger {
        Ledger { entries: vec![Entry::default(); zones as usize], ..Ledger::default() }
    }

    /// The entries of all zones.
    pub(crate) fn zones(&self) -> impl Iterator<Item = (ZoneIndex, &Entry)> {
        (0..).map(ZoneIndex).zip(&self.entries)
    }

    /// Applies a record to the ledger. The machine calls this when it writes the record, and
    /// recovery when it reads it.
    pub(crate) fn apply(&mut self, record: &Record<'_>) {
        match record.kind {
            Kind::Flush => self.apply_flush(record),
            Kind::RegionIntent | Kind::Overwrite | Kind::Contents | Kind::Zeros => {}
            Kind::Persisted => {
                let entry = &mut self.entries[record.zone.as_usize()];
                if entry.generation == record.generation && entry.had_zrwa {
                    entry.persisted = entry.persisted.max(record.a);
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
            let entry = &mut self.entries[zone.as_usize()];
            if entry.generation == generation && pointer > entry.durable {
                add(&mut self.counters.host_written_blocks, entry.uncounted(pointer));
                entry.durable = pointer;
            }
        }
    }

    fn apply_management(&mut self, record: &Record<'_>) {
        let zone = record.zone;
        let entry = &mut self.entries[zone.as_usize()];
        match record.kind {
            Kind::Reset => {
                let erased = u32::from(record.a > 0);
                add(&mut self.counters.host_written_blocks, entry.uncounted(record.a));
                add(&mut self.counters.erases, u64::from(erased));
                let generation = entry.generation.next();
                *entry = Entry { generation, wear: entry.wear.saturating_add(erased), ..Entry::default() };
                self.extensions.remove(&zone);
            }
            Kind::Finish => {
                add(&mut self.counters.host_written_blocks, entry.uncounted(record.a));
                add(&mut self.counters.padding_blocks, record.c);
                entry.state = RecordedState::Finished;
                entry.finished = true;
                entry.has_zrwa = false;
                (entry.pointer, entry.written) = (record.a, record.b);
                // Finish has synced data and tags before its record.
                entry.durable = entry.durable.max(record.a);
            }
            Kind::ReadOnly => {
                // A finished zone keeps the write pointer that it had.
                if !entry.finished {
                    (entry.pointer, entry.written) = (record.a, record.b);
                }
                entry.state = RecordedState::ReadOnly;
                entry.has_zrwa = false;
            }
            Kind::Offline => {
                add(&mut self.counters.host_written_blocks, entry.uncounted(record.a));
                entry.durable = entry.durable.max(record.a);
                entry.state = RecordedState::Offline;
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
            | Kind::Persisted
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
        let zone = ZoneIndex(geometry.conventional_zone_count);
        let entry = Entry { has_zrwa: true, had_zrwa: true, durable: 2, pointer: 4, written: 7, ..Entry::default() };
        assert!(entry.is_possible(zone, &geometry));
        assert!(!Entry { durable: 3, ..entry }.is_possible(zone, &geometry));
        assert!(!Entry { pointer: 5, ..entry }.is_possible(zone, &geometry));
        let offline = Entry { state: RecordedState::Offline, has_zrwa: false, durable: 7, ..entry };
        assert!(offline.is_possible(zone, &geometry));
        assert!(Entry { has_zrwa: false, had_zrwa: false, durable: 3, ..entry }.is_possible(zone, &geometry));
    }
}

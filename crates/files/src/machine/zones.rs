//! The store's view of the data zones.

use std::collections::VecDeque;

use zonda_zoned::ZoneIndex;

use crate::catalog::DataZones;
use crate::extents::Run;
use crate::{FileId, Lifetime};

/// The state of a data zone in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Empty,
    /// Partly written, or about to be, or with writes in flight.
    Active,
    /// Written to its end without writes in flight, or finished.
    Full,
    /// A finish is in flight.
    Finishing,
    /// A reset is in flight.
    Resetting {
        was_active: bool,
    },
    /// Never written or reset again.
    Retired {
        is_active: bool,
    },
}

/// The holder of a zone, which writes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    File(FileId),
    Migration,
}

/// One data zone.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    pub(super) state: State,
    /// The lifetime of the first file that used it.
    pub(super) lifetime: Lifetime,
    /// Blocks written, including writes in flight; for a finished zone, before the finish.
    pub(super) written: u32,
    /// Blocks of existing files, on the media or in flight.
    pub(super) live_blocks: u32,
    /// The bytes in them.
    pub(super) live_bytes: u64,
    pub(super) holder: Option<Holder>,
    /// Writes in flight.
    pub(super) writes: u32,
    /// Reads in flight, and migrations from it: it is not reset meanwhile.
    pub(super) pins: u32,
    pub(super) is_finished_early: bool,
    /// A write to it failed: its state is unknown, and it accepts no more data.
    pub(super) is_doubtful: bool,
    /// Migration could not empty it, and would fail again.
    pub(super) is_stuck: bool,
}

/// All data zones.
#[derive(Clone, Debug)]
pub(super) struct Zones {
    first: u32,
    pub(super) capacity_blocks: u32,
    block_bytes: u32,
    table: Vec<Zone>,
    /// The empty zones, the one that has been empty for longest first.
    empty: VecDeque<ZoneIndex>,
    /// Zones that may have no live data left, or that may be inspected after a failure.
    touched: Vec<ZoneIndex>,
    active: u32,
    /// Zones have changed since they were last assigned.
    pub(super) is_changed: bool,
    /// Zones have changed since the last search for a migration victim.
    pub(super) is_changed_for_migration: bool,
}

impl Zones {
    /// All of them empty.
    pub(super) fn new(data: DataZones) -> Zones {
        Zones {
            first: data.first,
            capacity_blocks: data.capacity_blocks,
            block_bytes: data.block_bytes,
            table: vec![Zone::new(); data.count as usize],
            empty: (data.first..data.first + data.count).map(ZoneIndex).collect(),
            touched: Vec::new(),
            active: 0,
            is_changed: true,
            is_changed_for_migration: true,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.table.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ZoneIndex, &Zone)> {
        (self.first..).map(ZoneIndex).zip(&self.table)
    }

    pub(super) fn empty_count(&self) -> usize {
        self.empty.len()
    }

    pub(super) fn first_empty(&self) -> Option<ZoneIndex> {
        self.empty.front().copied()
    }

    /// Zones that hold an active resource.
    pub(super) fn active_count(&self) -> u32 {
        self.active
    }

    /// Changes the state of a zone, and updates the counts.
    pub(super) fn set_state(&mut self, zone: ZoneIndex, to: State) {
        self.note_change();
        let from = std::mem::replace(&mut self[zone].state, to);
        self.active = self.active + u32::from(to.is_active()) - u32::from(from.is_active());
        match (from == State::Empty, to == State::Empty) {
            (true, false) => self.empty.retain(|&other| other != zone),
            (false, true) => {
                let entry = &mut self[zone];
                assert!(entry.holder.is_none() && entry.live_blocks == 0 && entry.writes == 0, "an empty zone is idle");
                *entry = Zone::new();
                self.empty.push_back(zone);
            }
            _ => {}
        }
    }

    /// Blocks that can still be written.
    pub(super) fn free_blocks(&self, zone: ZoneIndex) -> u32 {
        let entry = &self[zone];
        if entry.state == State::Active && !entry.is_doubtful { self.capacity_blocks - entry.written } else { 0 }
    }

    /// Counts the run as live: it belongs to a file, or will.
    pub(super) fn claim(&mut self, run: &Run) {
        let bytes = run.bytes(self.block_bytes);
        let entry = &mut self[run.zone];
        entry.live_blocks += run.blocks;
        entry.live_bytes += bytes;
    }

    /// Counts the run as dead.
    pub(super) fn release(&mut self, run: &Run) {
        let bytes = run.bytes(self.block_bytes);
        let entry = &mut self[run.zone];
        entry.live_blocks = entry.live_blocks.checked_sub(run.blocks).expect("only what was claimed is released");
        entry.live_bytes = entry.live_bytes.checked_sub(bytes).expect("only what was claimed is released");
        entry.is_stuck = false;
        self.touch(run.zone);
    }

    /// Called when a read or migration that pinned the zone has ended.
    pub(super) fn unpin(&mut self, zone: ZoneIndex) {
        let entry = &mut self[zone];
        entry.pins = entry.pins.checked_sub(1).expect("only what was pinned is unpinned");
        self.touch(zone);
    }

    /// Called when a write to the zone begins.
    pub(super) fn begin_write(&mut self, run: &Run) {
        let entry = &mut self[run.zone];
        assert!(run.start == entry.written && entry.state == State::Active, "a write begins where the last one ends");
        entry.written += run.blocks;
        entry.writes += 1;
        self.claim(run);
        if self[run.zone].written == self.capacity_blocks {
            self.clear_holder(run.zone);
        }
    }

    /// Called when a write has ended. A full zone is certain to free its active resource only with
    /// the last write.
    pub(super) fn end_write(&mut self, run: &Run, is_written: bool) {
        let capacity_blocks = self.capacity_blocks;
        let entry = &mut self[run.zone];
        entry.writes = entry.writes.checked_sub(1).expect("only a write that has begun ends");
        entry.is_doubtful |= !is_written;
        if entry.state == State::Active && !entry.is_doubtful && entry.writes == 0 && entry.written == capacity_blocks {
            self.set_state(run.zone, State::Full);
        }
        if !is_written {
            self.release(run);
        }
        self.touch(run.zone);
    }

    /// Whether the zone is about to free its active resource.
    pub(super) fn is_freeing_resource(&self, entry: &Zone) -> bool {
        match entry.state {
            State::Active => entry.written == self.capacity_blocks && !entry.is_doubtful,
            State::Finishing | State::Resetting { was_active: true } => true,
            State::Empty | State::Full | State::Resetting { .. } | State::Retired { .. } => false,
        }
    }

    /// Removes the holder of a zone.
    pub(super) fn clear_holder(&mut self, zone: ZoneIndex) {
        self[zone].holder = None;
        self.touch(zone);
    }

    /// Marks the zone for a check.
    pub(super) fn touch(&mut self, zone: ZoneIndex) {
        self.note_change();
        if self.touched.last() != Some(&zone) {
            self.touched.push(zone);
        }
    }

    /// Notes a change that may end a wait.
    pub(super) fn note_change(&mut self) {
        self.is_changed = true;
        self.is_changed_for_migration = true;
    }

    pub(super) fn has_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    pub(super) fn next_touched(&mut self) -> Option<ZoneIndex> {
        self.touched.pop()
    }
}

impl std::ops::Index<ZoneIndex> for Zones {
    type Output = Zone;
    fn index(&self, zone: ZoneIndex) -> &Zone {
        &self.table[(zone.0 - self.first) as usize]
    }
}

impl std::ops::IndexMut<ZoneIndex> for Zones {
    fn index_mut(&mut self, zone: ZoneIndex) -> &mut Zone {
        &mut self.table[(zone.0 - self.first) as usize]
    }
}

impl State {
    /// Whether the zone holds an active resource of the drive.
    pub(super) fn is_active(self) -> bool {
        match self {
            State::Active | State::Finishing => true,
            State::Resetting { was_active } => was_active,
            State::Retired { is_active } => is_active,
            State::Empty | State::Full => false,
        }
    }
}

impl Zone {
    fn new() -> Zone {
        Zone {
            state: State::Empty,
            lifetime: Lifetime::NotSet,
            written: 0,
            live_blocks: 0,
            live_bytes: 0,
            holder: None,
            writes: 0,
            pins: 0,
            is_finished_early: false,
            is_doubtful: false,
            is_stuck: false,
        }
    }

    /// Whether it has no live data and no holder, so that it can be reset.
    pub(super) fn is_dead(&self) -> bool {
        self.live_blocks == 0 && self.holder.is_none() && matches!(self.state, State::Active | State::Full)
    }

    /// Whether it has no writes in flight and no pins.
    pub(super) fn is_idle(&self) -> bool {
        self.writes == 0 && self.pins == 0
    }
}

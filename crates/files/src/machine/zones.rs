//! The store's view of the data zones.

use std::collections::VecDeque;

use zonda_zoned::{ZoneIndex, ZoneState};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    File(FileId),
    Migration,
}

/// One data zone. Only [`Zones`] changes it.
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

/// What has to be done with a zone after a report on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inspected {
    Nothing,
    Finish,
    Reset,
}

/// Owns the data zones: their states, holders and live data.
#[derive(Clone, Debug)]
pub(super) struct Zones {
    first: u32,
    capacity_blocks: u32,
    block_bytes: u32,
    table: Vec<Zone>,
    /// The empty zones, the one that has been empty for longest first.
    empty: VecDeque<ZoneIndex>,
    /// Zones that may have no live data left, or that may be inspected after a failure.
    touched: Vec<ZoneIndex>,
    active: u32,
    /// Zones have changed since they were last assigned.
    is_changed: bool,
    /// Zones have changed since the last search for a migration victim.
    is_changed_for_migration: bool,
    /// Zones finished and reset since the mount.
    finishes: u64,
    resets: u64,
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
            finishes: 0,
            resets: 0,
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

    /// Zones finished since the mount.
    pub(super) fn finishes(&self) -> u64 {
        self.finishes
    }

    /// Zones reset since the mount.
    pub(super) fn resets(&self) -> u64 {
        self.resets
    }

    /// A mount has found a zone that is not empty, with so many blocks written. `finished` is the
    /// number before a recorded finish.
    pub(super) fn adopt(
        &mut self,
        zone: ZoneIndex,
        lifetime: Lifetime,
        (found, written): (ZoneState, Option<u32>),
        finished: Option<u32>,
    ) {
        let (state, written) = match found {
            ZoneState::Full => (State::Full, finished.unwrap_or(self.capacity_blocks)),
            found if found.is_active() => (State::Active, written.unwrap_or(0)),
            _ => (State::Retired { is_active: false }, 0),
        };
        self.set_state(zone, state);
        let capacity_blocks = self.capacity_blocks;
        let entry = self.entry(zone);
        entry.lifetime = lifetime;
        entry.written = written.min(capacity_blocks);
        entry.is_finished_early = state == State::Full && entry.written < capacity_blocks;
    }

    /// A mount has found data up to block `end` of a zone.
    pub(super) fn note_written(&mut self, zone: ZoneIndex, end: u32) {
        let entry = self.entry(zone);
        entry.written = entry.written.max(end);
    }

    /// Makes an empty zone active.
    pub(super) fn open(&mut self, zone: ZoneIndex, lifetime: Lifetime) {
        assert_eq!(self[zone].state, State::Empty, "only an empty zone is opened");
        self.set_state(zone, State::Active);
        self.entry(zone).lifetime = lifetime;
    }

    /// A finish of an active zone begins.
    pub(super) fn begin_finish(&mut self, zone: ZoneIndex) {
        let entry = &self[zone];
        assert_eq!(entry.state, State::Active, "only an active zone is finished");
        assert!(entry.writes == 0 && entry.holder.is_none(), "no write is sent to a zone that is being finished");
        self.set_state(zone, State::Finishing);
    }

    /// A finish has succeeded. Returns the blocks written before, if there were fewer than the zone
    /// can hold.
    pub(super) fn end_finish(&mut self, zone: ZoneIndex) -> Option<u32> {
        self.set_state(zone, State::Full);
        self.finishes += 1;
        let capacity_blocks = self.capacity_blocks;
        let entry = self.entry(zone);
        entry.is_doubtful = false;
        let early = (entry.written < capacity_blocks).then_some(entry.written);
        entry.is_finished_early |= early.is_some();
        self.touch(zone);
        early
    }

    /// A reset of a zone begins.
    pub(super) fn begin_reset(&mut self, zone: ZoneIndex) {
        let entry = &self[zone];
        assert!(entry.live_blocks == 0 && entry.holder.is_none(), "a zone with live data is not reset");
        assert!(entry.writes == 0, "a zone is not reset during a write");
        let was_active = entry.state.is_active();
        self.set_state(zone, State::Resetting { was_active });
    }

    /// A reset has succeeded.
    pub(super) fn end_reset(&mut self, zone: ZoneIndex) {
        self.resets += 1;
        self.set_state(zone, State::Empty);
    }

    /// A zone was opened, but never written: it is empty on the drive.
    pub(super) fn close_unwritten(&mut self, zone: ZoneIndex) {
        assert_eq!(self[zone].written, 0, "a written zone is reset");
        self.set_state(zone, State::Empty);
    }

    /// The zone is never written or reset again.
    pub(super) fn retire(&mut self, zone: ZoneIndex, is_active: bool) {
        self.set_state(zone, State::Retired { is_active });
    }

    /// A report on a zone is requested, after a failure. Until then the zone is not used.
    pub(super) fn begin_inspection(&mut self, zone: ZoneIndex) {
        let state = self[zone].state;
        if !matches!(state, State::Finishing | State::Resetting { .. }) {
            let to = if state.is_active() { State::Finishing } else { State::Resetting { was_active: false } };
            self.set_state(zone, to);
        }
    }

    /// A zone was reported, as the drive has it and with the blocks before its write pointer, or it
    /// could not be. After a failed finish or reset the inspection `is_last`.
    pub(super) fn end_inspection(
        &mut self,
        zone: ZoneIndex,
        is_last: bool,
        found: Option<(ZoneState, Option<u64>)>,
    ) -> Inspected {
        let capacity_blocks = self.capacity_blocks;
        let entry = self.entry(zone);
        let was_active = entry.state.is_active();
        let was_reset = matches!(entry.state, State::Resetting { .. });
        entry.is_doubtful = false;
        let is_live = entry.live_blocks > 0;
        let Some((state, pointer)) = found else {
            self.retire(zone, was_active);
            return Inspected::Nothing;
        };
        match state {
            ZoneState::Empty if !is_live => self.set_state(zone, State::Empty),
            ZoneState::Full if !(is_last && was_reset) => {
                self.set_state(zone, State::Full);
                self.touch(zone);
            }
            state if state.is_active() && !is_last => {
                let written = pointer.map(|blocks| blocks.min(capacity_blocks.into()) as u32);
                entry.written = written.unwrap_or(entry.written);
                let is_written = entry.written > 0;
                self.set_state(zone, State::Active);
                if is_live {
                    return Inspected::Finish;
                }
                if !is_written {
                    return Inspected::Reset;
                }
                self.touch(zone);
            }
            state => self.retire(zone, state.is_active()),
        }
        Inspected::Nothing
    }

    /// Changes the state of a zone, and updates the counts.
    fn set_state(&mut self, zone: ZoneIndex, to: State) {
        self.note_change();
        let from = std::mem::replace(&mut self.entry(zone).state, to);
        self.active = self.active + u32::from(to.is_active()) - u32::from(from.is_active());
        match (from == State::Empty, to == State::Empty) {
            (true, false) => self.empty.retain(|&other| other != zone),
            (false, true) => {
                let entry = self.entry(zone);
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
        let entry = self.entry(run.zone);
        entry.live_blocks += run.blocks;
        entry.live_bytes += bytes;
    }

    /// Counts the run as dead.
    pub(super) fn release(&mut self, run: &Run) {
        let bytes = run.bytes(self.block_bytes);
        let entry = self.entry(run.zone);
        entry.live_blocks = entry.live_blocks.checked_sub(run.blocks).expect("only what was claimed is released");
        entry.live_bytes = entry.live_bytes.checked_sub(bytes).expect("only what was claimed is released");
        entry.is_stuck = false;
        self.touch(run.zone);
    }

    /// A read from the zone, or a migration, begins: it is not reset before
    /// [`unpin`](Zones::unpin).
    pub(super) fn pin(&mut self, zone: ZoneIndex) {
        self.entry(zone).pins += 1;
    }

    /// Called when a read or migration that pinned the zone has ended.
    pub(super) fn unpin(&mut self, zone: ZoneIndex) {
        let entry = self.entry(zone);
        entry.pins = entry.pins.checked_sub(1).expect("only what was pinned is unpinned");
        self.touch(zone);
    }

    /// Called when a write to the zone begins.
    pub(super) fn begin_write(&mut self, run: &Run) {
        let entry = self.entry(run.zone);
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
        let entry = self.entry(run.zone);
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

    /// Gives a writable zone a holder.
    pub(super) fn hold(&mut self, zone: ZoneIndex, holder: Holder) {
        assert!(self.free_blocks(zone) > 0, "a zone is held to be written");
        let before = self.entry(zone).holder.replace(holder);
        assert_eq!(before, None, "a zone has one holder");
    }

    /// Takes a zone from its holder, for another one.
    pub(super) fn take_from_holder(&mut self, zone: ZoneIndex) {
        let before = self.entry(zone).holder.take();
        assert!(before.is_some(), "the zone had a holder");
    }

    /// Removes the holder of a zone.
    pub(super) fn clear_holder(&mut self, zone: ZoneIndex) {
        self.entry(zone).holder = None;
        self.touch(zone);
    }

    /// Migration cannot empty the zone.
    pub(super) fn mark_stuck(&mut self, zone: ZoneIndex) {
        self.entry(zone).is_stuck = true;
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

    /// Zones are to be assigned again, although none has changed.
    pub(super) fn request_assignment(&mut self) {
        self.is_changed = true;
    }

    /// Whether zones have changed since the last call, or the last request of an assignment.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// The same for migrations.
    pub(super) fn take_change_for_migration(&mut self) -> bool {
        std::mem::take(&mut self.is_changed_for_migration)
    }

    pub(super) fn has_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    pub(super) fn next_touched(&mut self) -> Option<ZoneIndex> {
        self.touched.pop()
    }

    fn entry(&mut self, zone: ZoneIndex) -> &mut Zone {
        &mut self.table[(zone.0 - self.first) as usize]
    }

    pub(super) fn check_invariants(&self, active_max: Option<u32>) {
        let mut active = 0;
        for (zone, entry) in self.iter() {
            active += u32::from(entry.state.is_active());
            assert!(entry.written <= self.capacity_blocks, "zone {zone} is written within its capacity");
            assert!(entry.holder.is_none() || self.free_blocks(zone) > 0, "held zone {zone} is writable");
            if matches!(entry.state, State::Finishing | State::Resetting { .. } | State::Empty) {
                assert!(entry.writes == 0 && entry.holder.is_none(), "no write is in flight to zone {zone}");
            }
            if matches!(entry.state, State::Resetting { .. } | State::Empty) && !entry.is_doubtful {
                assert!(entry.live_blocks == 0 && entry.pins == 0, "zone {zone} has no live data");
            }
        }
        assert_eq!(self.active, active, "active zones are counted");
        if let Some(limit) = active_max {
            let healthy = self.iter().all(|(_, entry)| !entry.is_doubtful);
            assert!(active <= limit || !healthy, "{active} zones are active, the limit is {limit}");
        }
        let empty = self.iter().filter(|(_, entry)| entry.state == State::Empty).count();
        assert_eq!(self.empty.len(), empty, "empty zones are listed once");
        assert!(self.empty.iter().all(|&zone| self[zone].state == State::Empty), "listed zones are empty");
    }
}

impl std::ops::Index<ZoneIndex> for Zones {
    type Output = Zone;
    fn index(&self, zone: ZoneIndex) -> &Zone {
        &self.table[(zone.0 - self.first) as usize]
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

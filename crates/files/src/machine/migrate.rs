//! Migration: when empty zones run low, the live data of a zone of mostly garbage are moved to
//! another zone, so that the zone can be reset. One zone at a time, with one read or write in
//! flight.

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_zoned::{Blocks, Operation, Outcome, Payload, Status, ZoneIndex};

use crate::extents::Run;
use crate::limits::WRITE_ATTEMPTS_MAX;
use crate::{FileId, FileStore, Lifetime};

use super::commands::InFlight;
use super::files::Switched;
use super::log::Waiter;
use super::zones::{Holder, State};

/// Owns the migration in progress, if any. Its handlers use all other owners.
#[derive(Debug, Default)]
pub(super) struct Migrator {
    stage: Stage,
    /// The zone that is being emptied.
    victim: Option<ZoneIndex>,
    /// The parts of it that are not copied yet.
    work: VecDeque<Item>,
    /// The target zone, and the lifetime for which it was chosen.
    target: Option<ZoneIndex>,
    lifetime: Lifetime,
    /// The part being read or written, as it is in the victim.
    part: Option<Run>,
    /// The copy that files do not refer to yet.
    copied: Option<Copied>,
    /// Failed writes since the last successful one.
    attempts: u8,
    /// The last replacement in a file.
    last_moved: Option<Run>,
    /// There was no space: no further attempt before a zone is emptied.
    is_stuck: bool,
    /// Bytes copied since the mount.
    migrated_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    WaitingForZone,
    Reading,
    Writing,
    /// Everything is copied; the switch becomes durable, and the zone is reset.
    Emptying,
}

/// Contiguous bytes of a file in the victim.
#[derive(Clone, Copy, Debug)]
struct Item {
    file: FileId,
    offset: u64,
    end: u64,
}

/// A copy of bytes of a file.
#[derive(Clone, Copy, Debug)]
struct Copied {
    file: FileId,
    offset: u64,
    run: Run,
}

impl Migrator {
    /// Whether a step is in progress that will end by itself.
    pub(super) fn is_busy(&self) -> bool {
        !matches!(self.stage, Stage::Idle | Stage::WaitingForZone)
    }

    /// The lifetime of the file whose data are next.
    pub(super) fn lifetime(&self) -> Lifetime {
        self.lifetime
    }

    /// The zone to which data are copied.
    pub(super) fn target(&self) -> Option<ZoneIndex> {
        self.target
    }

    /// Data are copied to another zone from now on.
    pub(super) fn leave_target(&mut self) {
        self.target = None;
    }

    /// Whether the migration waits for a target zone.
    pub(super) fn is_waiting_for_zone(&self) -> bool {
        self.stage == Stage::WaitingForZone
    }

    /// The last replacement in a file.
    pub(super) fn last_moved(&self) -> Option<Run> {
        self.last_moved
    }

    /// Bytes copied since the mount.
    pub(super) fn migrated_bytes(&self) -> u64 {
        self.migrated_bytes
    }

    /// The written copy that files do not refer to yet.
    pub(super) fn copy(&self) -> Option<&Run> {
        self.copied.as_ref().map(|copied| &copied.run)
    }

    /// The zone that must not be reset before the migration has ended.
    pub(super) fn pinned(&self) -> Option<ZoneIndex> {
        self.victim.filter(|_| self.stage != Stage::Emptying)
    }

    pub(super) fn on_zone_emptied(&mut self) {
        self.is_stuck = false;
    }

    pub(super) fn check_invariants(&self) {
        let is_copying = !matches!(self.stage, Stage::Idle | Stage::Emptying);
        assert_eq!(self.victim.is_some(), self.stage != Stage::Idle, "a migration empties a zone");
        assert!(is_copying || self.work.is_empty(), "the zone is reset when everything is copied");
        assert!(is_copying || self.copied.is_none(), "files refer to every copy before the zone is reset");
        assert!(is_copying || self.target.is_none(), "a target zone is held only while data are copied");
        assert!(self.stage != Stage::WaitingForZone || self.target.is_none(), "a migration waits for one zone");
        assert!(self.stage != Stage::Reading || self.part.is_some(), "a read is of a part");
    }
}

impl FileStore {
    /// Begins to empty a zone if necessary.
    pub(super) fn pump_migration(&mut self) {
        if self.config.migration.is_none() || !self.zones.take_change_for_migration() {
            return;
        }
        if self.migrator.stage == Stage::WaitingForZone
            && self.migrator.victim.is_some_and(|victim| self.zones[victim].live_blocks == 0)
        {
            // The data to move were deleted meanwhile: end the migration of the zone.
            self.placement.stop_waiting(Holder::Migration);
            self.end_migration();
        }
        if self.migrator.stage == Stage::Emptying {
            let victim = self.migrator.victim.expect("a migration has a zone");
            let entry = &self.zones[victim];
            if matches!(entry.state, State::Resetting { .. }) || entry.is_dead() || self.log.has_releases() {
                return;
            }
            self.zones.mark_stuck(victim);
            self.migrator.victim = None;
            self.migrator.stage = Stage::Idle;
            // Files that wait for the space of this migration must be checked again.
            self.zones.request_assignment();
        }
        if self.migrator.stage != Stage::Idle || !self.is_low() {
            return;
        }
        if let Some(victim) = self.find_victim() {
            self.begin_migration(victim);
        }
    }

    /// Whether a migration is in progress, or about to begin. It produces empty zones; if there are
    /// enough of them, and active resources are missing, none begins.
    pub(super) fn may_migrate(&self) -> bool {
        self.migrator.stage != Stage::Idle || (self.is_low() && self.find_victim().is_some())
    }

    /// Whether empty zones have run low.
    fn is_low(&self) -> bool {
        let Some(migration) = self.config.migration else { return false };
        let empty = self.zones.empty_count();
        empty <= 1 || empty * 100 < usize::from(migration.start_empty_zones_percent) * self.zones.count()
    }

    /// The full zone with the most garbage, if it has enough.
    fn find_victim(&self) -> Option<ZoneIndex> {
        let migration = self.config.migration.filter(|_| !self.migrator.is_stuck && self.log.failed().is_none())?;
        let capacity = u64::from(self.shape.capacity_blocks);
        let full = self.zones.iter().filter(|(_, entry)| {
            let garbage = capacity - u64::from(entry.live_blocks);
            let is_quiescent = entry.state == State::Full && entry.writes == 0 && !entry.is_stuck && !entry.is_doubtful;
            is_quiescent && entry.live_blocks > 0 && garbage * 100 >= u64::from(migration.garbage_percent) * capacity
        });
        let victim = full.min_by_key(|(_, entry)| entry.live_blocks);
        victim.filter(|(_, entry)| u64::from(entry.live_blocks) < capacity).map(|(zone, _)| zone)
    }

    fn begin_migration(&mut self, victim: ZoneIndex) {
        let block_bytes = self.shape.block_bytes;
        let mut work = VecDeque::new();
        for (file, entry) in self.files.iter() {
            let there = entry.meta().extents.iter().filter(|extent| extent.run.zone == victim);
            work.extend(there.map(|extent| {
                let end = extent.offset + extent.run.bytes(block_bytes);
                Item { file, offset: extent.offset, end }
            }));
        }
        self.zones.pin(victim);
        self.migrator.victim = Some(victim);
        self.migrator.work = work;
        self.migrator.attempts = 0;
        self.copy_next();
    }

    /// Reads the next part, if there is a target zone.
    fn copy_next(&mut self) {
        let item = loop {
            let Some(item) = self.migrator.work.front().copied() else { return self.end_migration() };
            if item.offset < item.end && self.files.contains(item.file) {
                break item;
            }
            self.migrator.work.pop_front();
        };
        let meta = self.files[item.file].meta();
        let lifetime = meta.lifetime;
        let mut part = meta
            .extents
            .runs_from(item.offset, self.shape.block_bytes)
            .next()
            .expect("only migrations move the bytes of a file");
        if !self.files.has_space_for_switches() {
            return self.abort_migration();
        }
        if let Some(target) = self.migrator.target.filter(|_| self.migrator.lifetime != lifetime) {
            self.migrator.target = None;
            self.zones.clear_holder(target);
        }
        let Some(target) = self.migrator.target else {
            self.switch();
            self.migrator.lifetime = lifetime;
            self.migrator.stage = Stage::WaitingForZone;
            self.placement.wait_first(Holder::Migration);
            self.zones.request_assignment();
            return;
        };
        let blocks = self.zones.free_blocks(target).min(self.shape.write_blocks).min(self.shape.read_blocks);
        if blocks < part.blocks {
            part = Run { blocks, padding: 0, ..part };
        }
        self.migrator.part = Some(part);
        self.migrator.stage = Stage::Reading;
        let start = self.shape.lba(part.zone, part.start);
        self.commands.send(InFlight::MigrationRead, Operation::Read { start, blocks: Blocks(part.blocks.into()) });
    }

    /// Called when a target zone is assigned.
    pub(super) fn on_migration_zone(&mut self, zone: ZoneIndex) {
        self.migrator.target = Some(zone);
        self.copy_next();
    }

    pub(super) fn on_migration_read(&mut self, status: Status, outcome: Outcome) {
        let part = self.migrator.part.expect("a part is being read");
        let data = match outcome {
            Outcome::Data(Payload::Bytes(buffer)) => buffer.data,
            _ => Bytes::new(),
        };
        let is_whole = !self.shape.keeps_bytes() || data.len() as u64 == self.shape.bytes(part.blocks);
        if !status.is_success() || !is_whole {
            self.zones.mark_stuck(part.zone);
            return self.end_migration();
        }
        let file = self.migrator.work.front().expect("a part belongs to an item").file;
        let Some(zone) = self.migrator.target.filter(|_| self.files.contains(file)) else {
            return self.copy_next();
        };
        let run = Run { zone, start: self.zones[zone].written, ..part };
        self.zones.begin_write(&run);
        if self.zones.free_blocks(zone) == 0 {
            self.migrator.target = None;
        }
        self.migrator.stage = Stage::Writing;
        let payload = self.shape.payload(data);
        let start = self.shape.lba(zone, run.start);
        let operation = Operation::Write { start, blocks: Blocks(run.blocks.into()), payload };
        self.commands.send(InFlight::MigrationWrite { run }, operation);
    }

    pub(super) fn on_migration_write(&mut self, run: Run, status: Status) {
        self.zones.end_write(&run, status.is_success());
        if !status.is_success() {
            self.withdraw_zone(run.zone);
            self.migrator.attempts += 1;
            if self.migrator.attempts >= WRITE_ATTEMPTS_MAX {
                return self.abort_migration();
            }
            return self.copy_next();
        }
        self.migrator.attempts = 0;
        self.migrator.migrated_bytes += self.shape.bytes(run.blocks);
        let item = self.migrator.work.front_mut().expect("a part belongs to an item");
        let (file, offset) = (item.file, item.offset);
        item.offset += run.bytes(self.shape.block_bytes);
        match &mut self.migrator.copied {
            Some(copied)
                if copied.file == file
                    && copied.offset + copied.run.bytes(self.shape.block_bytes) == offset
                    && copied.run.is_continued_by(&run) =>
            {
                copied.run.blocks += run.blocks;
                copied.run.padding = run.padding;
            }
            _ => {
                self.switch();
                self.migrator.copied = Some(Copied { file, offset, run });
            }
        }
        self.copy_next();
    }

    /// Switches the file to the copy. The replaced extents are freed when that is durable.
    fn switch(&mut self) {
        let Some(Copied { file: id, offset, run }) = self.migrator.copied.take() else { return };
        if !self.files.contains(id) {
            return self.zones.release(&run);
        }
        self.migrator.last_moved = Some(run);
        let Switched { replaced, lsn } = self.files.switch(&mut self.log, id, offset, run);
        match lsn {
            Some(lsn) => self.when_durable(lsn, Waiter::Release(replaced)),
            None => self.release(&replaced),
        }
    }

    /// Aborts the migration: there is no space for the data, or they cannot be moved.
    pub(super) fn abort_migration(&mut self) {
        self.migrator.is_stuck = true;
        self.end_migration();
    }

    /// Ends the copying.
    fn end_migration(&mut self) {
        self.switch();
        self.migrator.work.clear();
        self.migrator.part = None;
        if let Some(target) = self.migrator.target.take() {
            self.zones.clear_holder(target);
        }
        self.migrator.stage = Stage::Emptying;
        let victim = self.migrator.victim.expect("a migration has a zone");
        self.zones.unpin(victim);
    }
}

//! A member that obeys the rules of zones, and promises nothing else.
//!
//! Commands under way take effect in any order, whatever zone they are for, and are answered in any order after that: NVMe
//! promises no more. What a crash does, and what the medium does by itself, is in `media.rs`.

use std::collections::BTreeSet;
use std::ops::Range;

use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{
    Command, Completion, Geometry, Lba, Operation, PayloadKind, Prng, QueueFull, Status, ZoneAction, ZoneTarget,
};

use super::cache::Cache;
use crate::limits::METADATA_ZONES;

/// A member of a world.
#[derive(Clone, Debug)]
pub struct Drive {
    pub(super) device: ReferenceDevice,
    pub(super) geometry: Geometry,
    pub(super) prng: Prng,
    /// What it does wrong.
    pub faults: Faults,
    presence: Presence,
    /// Commands without effect yet.
    pub(super) waiting: Vec<Command>,
    /// Commands that have taken effect, and were not answered yet.
    pub(super) ended: Vec<Completion>,
    /// Blocks that cannot be read until their zone is reset.
    pub(super) unreadable: BTreeSet<Lba>,
    /// Blocks that were damaged, until their zone is reset.
    pub(super) damaged: BTreeSet<Lba>,
    /// What a loss of power may take along, if there is such a thing.
    pub(super) cache: Option<Cache>,
    failed: u64,
    /// Resets of zones, and commands to the zones of superblocks, that have failed, but for want of room.
    pub(super) failed_resets: u32,
    pub(super) failed_superblocks: u32,
    /// It has not kept what it said that it did, and nobody knows where: a flush has done nothing, or it is as it was a while ago.
    pub(crate) is_unreliable: bool,
    /// The zone of the last write that took effect, until somebody has looked.
    pub(super) written_zone: Option<u32>,
    flushes: u64,
    writes: u64,
    traps: Vec<Trap>,
}

/// Says of a command whether it is meant.
pub type IsMeant = fn(&Geometry, &Operation) -> bool;

/// Commands that are to fail.
#[derive(Clone, Debug)]
struct Trap {
    is_meant: IsMeant,
    times: u32,
}

/// What a drive does wrong, of 1000 commands each. A command that fails has its effect or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Commands refused for want of room.
    pub refusals: u64,
    /// Writes and appends that fail, but for those of superblocks.
    pub writes: u64,
    /// Writes and resets in the zones of superblocks that fail.
    pub superblocks: u64,
    /// Finishes of zones that fail.
    pub finishes: u64,
    /// Resets of zones that fail.
    pub resets: u64,
    /// Reads that fail, once.
    pub reads: u64,
    /// Flushes that fail.
    pub flushes: u64,
    /// Reports on zones that fail.
    pub reports: u64,
    /// Flushes that end well, and do nothing.
    pub ignored_flushes: u64,
    /// Writes that end well, and are not where they should be, or not as a whole.
    pub misdirected: u64,
}

/// Whether a drive is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It answers.
    There,
    /// Pulled: it takes commands and never answers.
    Silent,
    /// It fails every command.
    Failing,
    /// It takes commands, and goes on with them when it is there again.
    Paused,
    /// It has no room: writes end with Capacity Exceeded, and so does what needs room inside of it.
    Full,
}

impl Drive {
    /// An empty drive.
    #[must_use]
    pub fn new(geometry: Geometry, prng: Prng) -> Drive {
        Drive {
            device: ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes),
            geometry,
            prng,
            faults: Faults::default(),
            presence: Presence::There,
            waiting: Vec::new(),
            ended: Vec::new(),
            unreadable: BTreeSet::new(),
            damaged: BTreeSet::new(),
            cache: None,
            failed: 0,
            failed_resets: 0,
            failed_superblocks: 0,
            is_unreliable: false,
            written_zone: None,
            flushes: 0,
            writes: 0,
            traps: Vec::new(),
        }
    }

    /// Its shape.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Whether it is there.
    #[must_use]
    pub fn presence(&self) -> Presence {
        self.presence
    }

    /// Makes it come or go. What is under way on a drive that is pulled takes effect or not.
    pub fn set_presence(&mut self, presence: Presence) {
        if presence == Presence::Silent {
            self.drop_all();
        }
        self.presence = presence;
    }

    /// The next commands that are meant fail, so many of them.
    pub fn fail_next(&mut self, times: u32, is_meant: IsMeant) {
        self.traps.push(Trap { is_meant, times });
    }

    /// Commands that were to fail, and have not come yet.
    #[must_use]
    pub fn traps_left(&self) -> u32 {
        self.traps.iter().map(|trap| trap.times).sum()
    }

    /// Commands that have failed since the beginning.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Flushes that it was given since the beginning.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.flushes
    }

    /// Writes and appends that it was given since the beginning.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Whether anything will come of what it has.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.presence != Presence::Paused && (!self.waiting.is_empty() || !self.ended.is_empty())
    }

    /// Takes a command.
    ///
    /// # Errors
    /// Now and then it has no room.
    pub fn submit(&mut self, command: Command) -> Result<(), QueueFull> {
        if self.presence == Presence::Silent {
            return Ok(());
        }
        if self.prng.chance(self.faults.refusals, 1000) {
            return Err(QueueFull(command));
        }
        self.flushes += u64::from(command.operation == Operation::Flush);
        self.writes += u64::from(matches!(command.operation, Operation::Write { .. } | Operation::Append { .. }));
        self.waiting.push(command);
        Ok(())
    }

    /// Moves one command a step; says how one has ended if that was its last.
    pub fn step(&mut self) -> Option<Completion> {
        let (waiting, ended) = (self.waiting.len() as u64, self.ended.len() as u64);
        if waiting + ended == 0 || self.presence == Presence::Paused {
            return None;
        }
        let at = self.prng.below(waiting + ended);
        if at < waiting {
            let command = self.waiting.swap_remove(at as usize);
            let completion = self.execute(&command);
            self.failed += u64::from(!completion.status.is_success());
            self.note_failure(&command.operation, completion.status);
            self.ended.push(completion);
            return None;
        }
        Some(self.ended.swap_remove((at - waiting) as usize))
    }

    fn note_failure(&mut self, operation: &Operation, status: Status) {
        if status.is_success() || status == Status::CapacityExceeded {
            return;
        }
        let is_reset = matches!(operation, Operation::ManageZones { action: ZoneAction::Reset, .. });
        let is_superblock = self.zone_of(operation).is_some_and(|zone| zone < METADATA_ZONES);
        self.failed_resets += u32::from(is_reset);
        self.failed_superblocks += u32::from(is_superblock && !matches!(operation, Operation::Read { .. }));
    }

    /// Does what a command says, or fails.
    pub(super) fn execute(&mut self, command: &Command) -> Completion {
        if self.presence == Presence::Failing {
            return Completion::of(command.id, Status::InternalError);
        }
        let needs_room = !matches!(command.operation, Operation::Read { .. } | Operation::ReportZones { .. });
        if self.presence == Presence::Full && needs_room {
            return Completion::of(command.id, Status::CapacityExceeded);
        }
        let is_superblock = self.zone_of(&command.operation).is_some_and(|zone| zone < METADATA_ZONES);
        let (faults, status) = match &command.operation {
            Operation::Write { .. } | Operation::Append { .. } => (self.faults.writes, Status::WriteFault),
            Operation::ManageZones { action: ZoneAction::Finish, .. } => (self.faults.finishes, Status::InternalError),
            Operation::ManageZones { action: ZoneAction::Reset, .. } => (self.faults.resets, Status::InternalError),
            Operation::Read { .. } => (self.faults.reads, Status::UnrecoveredReadError),
            Operation::Flush => (self.faults.flushes, Status::InternalError),
            Operation::ReportZones { .. } => (self.faults.reports, Status::InternalError),
            _ => (0, Status::InternalError),
        };
        let is_read = matches!(command.operation, Operation::Read { .. });
        let faults = if is_superblock && !is_read { self.faults.superblocks } else { faults };
        let trap =
            self.traps.iter_mut().find(|trap| trap.times > 0 && (trap.is_meant)(&self.geometry, &command.operation));
        let is_trapped = trap.map(|trap| trap.times -= 1).is_some();
        let fails = is_trapped || self.prng.chance(faults, 1000);
        if fails && self.prng.chance(1, 2) {
            return Completion::of(command.id, status);
        }
        if let Operation::Read { start, blocks } = &command.operation
            && self.unreadable.range(*start..*start + *blocks).next().is_some()
        {
            return Completion::of(command.id, Status::UnrecoveredReadError);
        }
        let before = self.before(&command.operation);
        let completion = self.device.execute(command);
        if completion.status.is_success() {
            self.after(&command.operation, before);
            if matches!(command.operation, Operation::Write { .. } | Operation::Append { .. }) {
                self.written_zone = self.zone_of(&command.operation);
            }
            self.misdirect_some(&command.operation, &completion.outcome);
        }
        if let (Operation::ManageZones { action: ZoneAction::Reset, target }, true) =
            (&command.operation, completion.status.is_success())
        {
            self.forget_unreadable(*target);
        }
        if fails { Completion::of(command.id, status) } else { completion }
    }

    /// Blocks that hold nothing any more are neither damaged nor unreadable.
    pub(super) fn forget_damage(&mut self, blocks: Range<Lba>) {
        self.unreadable.retain(|lba| !blocks.contains(lba));
        self.damaged.retain(|lba| !blocks.contains(lba));
    }

    fn forget_unreadable(&mut self, target: ZoneTarget) {
        match target {
            ZoneTarget::All => {
                self.unreadable.clear();
                self.damaged.clear();
            }
            ZoneTarget::Zone(start) => {
                let end = start + self.geometry.zone_size_blocks;
                self.unreadable.retain(|lba| !(start..end).contains(lba));
                // A loss of power may bring back what was there.
                self.damaged.retain(|lba| self.cache.is_some() || !(start..end).contains(lba));
            }
        }
    }

    /// The zone that a command is for, if it is for one.
    pub(super) fn zone_of(&self, operation: &Operation) -> Option<u32> {
        let lba = match operation {
            Operation::Read { start, .. } | Operation::Write { start, .. } => *start,
            Operation::Append { zone_start, .. } => *zone_start,
            Operation::ManageZones { target: ZoneTarget::Zone(start), .. } => *start,
            _ => return None,
        };
        self.geometry.zone_of(lba).map(|zone| zone.0)
    }
}

//! A simulated member: it obeys the rules of zones, and guarantees nothing else.
//!
//! Commands in flight take effect in any order, whatever their zones, and complete in any order
//! after that: NVMe guarantees no more. Crashes and media faults are in `media.rs`.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{
    Command, Completion, Geometry, Lba, Operation, PayloadKind, Prng, QueueFull, Status, ZoneAction, ZoneTarget,
};

use super::cache::Cache;
use crate::limits::METADATA_ZONES;

/// A member of a simulation.
#[derive(Clone, Debug)]
pub struct Drive {
    pub(super) device: ReferenceDevice,
    pub(super) geometry: Geometry,
    pub(super) prng: Prng,
    /// Its faults.
    pub faults: Faults,
    presence: Presence,
    /// Commands that have not taken effect yet.
    pub(super) waiting: Vec<Command>,
    /// Commands that have taken effect and have not completed.
    pub(super) ended: Vec<Completion>,
    /// Blocks that cannot be read until their zone is reset.
    pub(super) unreadable: BTreeSet<Lba>,
    /// Blocks that were damaged, until their zone is reset.
    pub(super) damaged: BTreeSet<Lba>,
    /// The volatile cache, if there is one.
    pub(super) cache: Option<Cache>,
    failed: u64,
    /// Failed resets of zones, and failed commands to the zones of superblocks, except for lack of
    /// space.
    pub(super) failed_resets: u32,
    pub(super) failed_superblocks: u32,
    /// It has violated its durability guarantees, at unknown places: a flush has done nothing, or
    /// the drive reverted to an earlier state.
    pub(crate) is_unreliable: bool,
    /// The zone of the last write that took effect, until it is checked.
    pub(super) written_zone: Option<u32>,
    flushes: u64,
    writes: u64,
    planned_failures: Vec<PlannedFailure>,
}

/// Selects commands.
pub type CommandFilter = fn(&Geometry, &Operation) -> bool;

/// Commands that are to fail.
#[derive(Clone, Debug)]
struct PlannedFailure {
    is_meant: CommandFilter,
    times: u32,
}

/// Fault rates of a drive, per 1000 commands. A command that fails has taken effect or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Commands refused because the queue is full.
    pub refusals: u64,
    /// Failed writes and appends, except those of superblocks.
    pub writes: u64,
    /// Failed writes and resets in the zones of superblocks.
    pub superblocks: u64,
    /// Failed finishes of zones.
    pub finishes: u64,
    /// Failed resets of zones.
    pub resets: u64,
    /// Transient read errors.
    pub reads: u64,
    /// Failed flushes.
    pub flushes: u64,
    /// Failed zone reports.
    pub reports: u64,
    /// Flushes that succeed without effect.
    pub ignored_flushes: u64,
    /// Writes that succeed, but go to another place, or are incomplete.
    pub misdirected: u64,
}

/// How a drive responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It works.
    Present,
    /// Removed: it accepts commands and never completes them.
    Unresponsive,
    /// It fails every command.
    Failing,
    /// It accepts commands, and continues with them when it is present again.
    Paused,
    /// It is out of space: writes end with Capacity Exceeded, and so do commands that need space on
    /// the drive.
    Full,
}

impl fmt::Display for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Presence::Present => "present",
            Presence::Unresponsive => "unresponsive",
            Presence::Failing => "failing",
            Presence::Paused => "paused",
            Presence::Full => "out of space",
        })
    }
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
            presence: Presence::Present,
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
            planned_failures: Vec::new(),
        }
    }

    /// Its geometry.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// How it responds.
    #[must_use]
    pub fn presence(&self) -> Presence {
        self.presence
    }

    /// Changes how it responds. Commands in flight on a removed drive may or may not take effect.
    pub fn set_presence(&mut self, presence: Presence) {
        if presence == Presence::Unresponsive {
            self.drop_all();
        }
        self.presence = presence;
    }

    /// Makes the next `times` selected commands fail.
    pub fn fail_next(&mut self, times: u32, is_meant: CommandFilter) {
        self.planned_failures.push(PlannedFailure { is_meant, times });
    }

    /// Planned failures that have not occurred yet.
    #[must_use]
    pub fn planned_failures_left(&self) -> u32 {
        self.planned_failures.iter().map(|planned| planned.times).sum()
    }

    /// Commands that have failed so far.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Flushes received so far.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.flushes
    }

    /// Writes and appends received so far.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Whether it has commands to process.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.presence != Presence::Paused && (!self.waiting.is_empty() || !self.ended.is_empty())
    }

    /// Accepts a command.
    ///
    /// # Errors
    /// At random, its queue is full.
    pub fn submit(&mut self, command: Command) -> Result<(), QueueFull> {
        if self.presence == Presence::Unresponsive {
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

    /// Advances one command by a step; returns its completion if that was the last one.
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

    /// Executes a command, or fails it.
    pub(super) fn execute(&mut self, command: &Command) -> Completion {
        if self.presence == Presence::Failing {
            return Completion::of(command.id, Status::InternalError);
        }
        let needs_space = !matches!(command.operation, Operation::Read { .. } | Operation::ReportZones { .. });
        if self.presence == Presence::Full && needs_space {
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
        let planned = self
            .planned_failures
            .iter_mut()
            .find(|planned| planned.times > 0 && (planned.is_meant)(&self.geometry, &command.operation));
        let is_trapped = planned.map(|planned| planned.times -= 1).is_some();
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

    /// Erased blocks are neither damaged nor unreadable any more.
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
                // A power loss may restore the old contents.
                self.damaged.retain(|lba| self.cache.is_some() || !(start..end).contains(lba));
            }
        }
    }

    /// The zone that a command addresses, if any.
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

//! The running store: requests and completions in, commands and events out.
//!
//! State has owners, each with private fields, operations and invariants:
//!
//! ```text
//! shape.rs     values derived from the geometry and the configuration: changed by none
//! commands.rs  commands in flight, and their purposes
//! requests.rs  outstanding requests, and events
//! files/       names, extents, data in memory, and the size of their metadata
//! zones.rs     states, holders and live data of zones
//! log/         metadata zones, records, and what waits for these
//! place.rs     holders that wait for a zone; which zone a file writes to
//! read.rs      reads from zones and buffers
//! migrate.rs   moving live data out of zones that are mostly garbage
//! ```
//!
//! An owner that needs another one receives it as `&Shape` or `&mut Commands`. Where an event
//! concerns several owners, the store routes it:
//!
//! ```text
//! start.rs     formatting; what formatting and mounting have in common
//! mount.rs     reading the metadata, and checking them against the zones
//! names.rs     create, delete, rename
//! write.rs     append, sync, close: from a file's buffer to a zone
//! reclaim.rs   finish, reset, and failed zones
//! durable.rs   actions when records are durable; snapshots
//! invariants.rs  what owners have to agree on
//! ```

mod commands;
mod durable;
mod files;
mod invariants;
mod log;
mod migrate;
mod mount;
mod names;
mod place;
mod read;
mod reclaim;
mod requests;
mod shape;
mod start;
mod write;
mod zones;

use zonda_zoned::{Command, Completion, Instant};

use crate::bug::{Seeded, SeededBug};
use crate::{Event, FileError, FilesConfig, Outcome, RequestId, Usage};

use commands::{Commands, InFlight};
use files::Files;
use log::Log;
use migrate::Migrator;
use place::Placement;
use read::Reads;
use requests::Requests;
use shape::Shape;
use start::Start;
use zones::{State, Zones};

/// A file store on one zoned namespace. It never blocks: it accepts requests and completions, and
/// returns commands and events.
///
/// Commands must be submitted in the order in which [`poll_command`](FileStore::poll_command)
/// returns them. Dropping the store is a crash: a mount finds the durable state.
#[derive(Debug)]
pub struct FileStore {
    shape: Shape,
    config: FilesConfig,
    uuid: [u8; 16],
    phase: Phase,
    /// The current step while the store is starting.
    start: Option<Box<Start>>,
    files: Files,
    zones: Zones,
    placement: Placement,
    log: Log,
    migrator: Migrator,
    reads: Reads,
    commands: Commands,
    requests: Requests,
    seeded: Seeded,
}

/// The phase of a store.
#[derive(Debug)]
enum Phase {
    Starting,
    Ready,
    Failed(FileError),
}

impl FileStore {
    /// The next command for the drive; must be submitted before the next call.
    pub fn poll_command(&mut self, _now: Instant) -> Option<Command> {
        self.commands.poll()
    }

    /// Returns a command that the drive refused because its queue is full:
    /// [`poll_command`](FileStore::poll_command) returns it again after the next completion.
    pub fn on_queue_full(&mut self, command: Command) {
        self.commands.on_queue_full(command);
    }

    /// Processes the completion of a command.
    ///
    /// # Panics
    /// If the command is not in flight.
    pub fn on_completion(&mut self, _now: Instant, completion: Completion) {
        let (in_flight, status, outcome) = self.commands.on_completion(completion);
        match in_flight {
            InFlight::Write { file, chunk, run } => self.on_write(file, chunk, run, status),
            InFlight::Read { read, zone, piece } => self.on_read(read, zone, piece, status, outcome),
            InFlight::Finish { zone } => self.on_finish(zone, status),
            InFlight::Reset { zone } => self.on_reset(zone, status),
            InFlight::Inspect { zone, is_last } => self.on_inspect(zone, is_last, status, outcome),
            InFlight::Log => {
                let progress = self.log.on_completion(&self.shape, &mut self.commands, status);
                self.on_log_progress(progress);
            }
            InFlight::Start => self.on_start(status, outcome),
            InFlight::FormatReset { zone } => self.on_format_reset(zone, status),
            InFlight::MigrationRead => self.on_migration_read(status, outcome),
            InFlight::MigrationWrite { run } => self.on_migration_write(run, status),
        }
        self.make_progress();
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.requests.poll()
    }

    /// Space and counters. Takes time in proportion to the number of zones.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut usage = Usage {
            zones_active: self.zones.active_count(),
            zone_finishes: self.zones.finishes(),
            zone_resets: self.zones.resets(),
            migrated_bytes: self.migrator.migrated_bytes(),
            relaxed_matches: self.placement.relaxed_matches(),
            metadata_bytes: self.log.written_bytes(),
            ..Usage::default()
        };
        for (_, zone) in self.zones.iter() {
            usage.live_bytes += zone.live_bytes;
            usage.dead_bytes += self.shape.bytes(zone.written.saturating_sub(zone.live_blocks));
            usage.written_bytes += self.shape.bytes(zone.written);
            usage.zones_empty += u32::from(zone.state == State::Empty);
            usage.zones_finished_early += u32::from(zone.is_finished_early);
        }
        // Extents kept for pending records are not part of a file any more, and a copy is not yet.
        for run in self.log.releases().chain(self.migrator.copy()) {
            usage.live_bytes = usage.live_bytes.saturating_sub(run.bytes(self.shape.block_bytes));
            usage.dead_bytes += self.shape.bytes(run.blocks);
        }
        usage
    }

    /// Whether the store is formatted or mounted, and accepts requests.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    /// Seeds a bug in a new store, so that a tester can show that it would be detected.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    pub fn seed_bug(&mut self, bug: SeededBug) {
        self.seeded = Some(bug).into();
    }

    fn has(&self, bug: SeededBug) -> bool {
        self.seeded.has(bug)
    }

    /// Whether a request may begin. If not, it has already failed.
    fn admit(&mut self, request: RequestId) -> bool {
        let refusal = match &self.phase {
            Phase::Ready => return self.requests.begin(request),
            Phase::Starting => FileError::NotReady,
            Phase::Failed(error) => error.clone(),
        };
        self.requests.refuse(request, refusal);
        false
    }

    /// As [`admit`](FileStore::admit), for requests that make changes.
    fn admit_change(&mut self, request: RequestId) -> bool {
        if !self.admit(request) {
            return false;
        }
        let Some(error) = self.log.failed().cloned() else { return true };
        self.end(request, Err(error));
        false
    }

    fn end(&mut self, request: RequestId, result: Result<Outcome, FileError>) {
        self.requests.end(request, result);
    }

    /// Advances all waiting work that has become possible.
    fn make_progress(&mut self) {
        if !matches!(self.phase, Phase::Ready) {
            self.pump_log();
            return;
        }
        loop {
            self.process_touched_zones();
            self.pump_migration();
            if self.place_waiting() || self.zones.has_touched() {
                continue;
            }
            self.pump_log();
            if !self.zones.has_touched() {
                return;
            }
        }
    }
}

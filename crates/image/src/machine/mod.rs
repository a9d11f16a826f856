//! The running drive: commands in, file operations out.
//!
//! State has owners, each with private fields, operations and invariants:
//!
//! ```text
//! commands.rs      outstanding commands, data of reads, completions
//! parts/           the work of a command in one zone, and which parts wait for which
//! operations.rs    file operations in flight
//! journal.rs       records in batches, one write and one sync for each
//! intents/         journal records for blocks that are being written in place
//! flush.rs         rounds of flushes, and what each of them records
//! ```
//!
//! Where an event concerns several owners, the drive routes it:
//!
//! ```text
//! submit.rs        a command takes effect on the zone table and is split into parts, one per zone
//! dispatch.rs      parts that are ready start, and continue when their file operations end
//! sequential.rs    writes at a write pointer: acknowledged in order; rollback of failed ones
//! overwrite.rs     writes in conventional zones and ZRWAs: journaled contents, repair of failed ones
//! in_place.rs      overwrites in place, with their intents; damage found by reads
//! read.rs          every block is verified against its tag
//! manage.rs        resets and the like: a record, synced, before the acknowledgement
//! recording.rs     records of parts, and what continues when they are written
//! flushing.rs      sync data and tags, then note the write pointers
//! reservations.rs  saved reservations of hosts
//! checkpoint.rs    the complete ledger is written, so that the journal can restart
//! ```
//!
//! The zone table, the ledger and the state of zones ([`ZoneRun`]) belong to the drive itself: a
//! command of management, a rollback and a flush each change or compare all three.

mod checkpoint;
mod commands;
mod dispatch;
mod flush;
mod flushing;
mod in_place;
mod intents;
mod invariants;
mod journal;
mod manage;
mod operations;
mod overwrite;
mod parts;
mod read;
mod recording;
mod reservations;
mod sequential;
mod submit;

use bytes::Bytes;
use zonda_zoned::zones::{ZoneEffect, ZoneTable};
use zonda_zoned::{Command, CompletionQueue, Geometry, Instant, QueueFull, ZoneIndex, ZoneState};

use crate::bugs::Seeded;
use crate::format::Generation;
use crate::format::entry::Ledger;
use crate::format::layout::Layout;
use crate::format::tag::TagCodec;
use crate::limits::COMMANDS_MAX;
use crate::rebuild::Builder;
use crate::{Counters, FileCommand, FileCommandId, FileError, ImageSpec};

use checkpoint::Checkpointing;
use commands::Commands;
use flush::FlushRound;
use intents::Intents;
use journal::Journal;
use operations::{Operations, Purpose};
use parts::Parts;
use reservations::ReservationsChange;

/// An open drive. It never blocks: it accepts commands and the results of file operations, and
/// returns file operations and completions. The caller carries out every [`FileCommand`] from
/// [`poll_effect`](Image::poll_effect), in any order.
///
/// Dropping it is a crash: acknowledged writes are on file, and the next [`open`](crate::open)
/// recovers the rest.
#[derive(Debug)]
pub struct Image {
    spec: ImageSpec,
    layout: Layout,
    codec: TagCodec,
    builder: Builder,
    /// The zones after the commands accepted so far.
    table: ZoneTable,
    zones: Vec<ZoneRun>,
    /// The contents of checkpoint and journal.
    ledger: Ledger,
    /// Blocks written by hosts, and blocks by which zones were padded, since the drive was created.
    written_blocks: u64,
    padding_blocks: u64,
    commands: Commands,
    parts: Parts,
    operations: Operations,
    journal: Journal,
    flush: FlushRound,
    checkpointing: Checkpointing,
    intents: Intents,
    reservations_change: ReservationsChange,
    /// Seeded by a tester.
    bug: Seeded,
    /// A buffer for the effects of management, for reuse.
    zone_effects: Vec<ZoneEffect>,
}

/// The run-time state of a zone.
#[derive(Debug, Default)]
struct ZoneRun {
    /// Every block below it was acknowledged; in a zone without ZRWA.
    on_file: u64,
    /// Resets accepted.
    generation: Generation,
    /// It has, or has had since it was last reset, a ZRWA; after the commands accepted so far.
    had_zrwa: bool,
    /// The first failed write, until it is rolled back.
    failed: Option<sequential::Failed>,
    /// Tags of a failed write could not be cleared; a later reset makes them tags of an earlier
    /// generation.
    uncleared: bool,
}

/// The initial state of a machine.
pub(crate) struct Start {
    pub(crate) spec: ImageSpec,
    pub(crate) layout: Layout,
    pub(crate) codec: TagCodec,
    pub(crate) ledger: Ledger,
    pub(crate) table: ZoneTable,
    pub(crate) sequence: u64,
    pub(crate) bug: Seeded,
}

/// What a file operation of a part reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Data,
    Tags,
}

impl Image {
    pub(crate) fn start(start: Start) -> Image {
        let Start { spec, layout, codec, ledger, table, sequence, bug } = start;
        let counters = ledger.counters;
        let zones = ledger
            .entries
            .iter()
            .map(|entry| ZoneRun {
                on_file: entry.durable,
                generation: entry.generation,
                had_zrwa: entry.had_zrwa,
                ..ZoneRun::default()
            })
            .collect();
        Image {
            builder: Builder::new(&spec.geometry),
            written_blocks: counters.host_written_blocks,
            padding_blocks: counters.padding_blocks,
            journal: Journal::new(sequence, spec.uuid, layout.journal_bytes, bug),
            spec,
            layout,
            codec,
            table,
            zones,
            ledger,
            commands: Commands::new(layout.block_bytes as usize, codec.metadata_bytes(), counters.host_read_blocks),
            parts: Parts::new(layout.zones as usize),
            operations: Operations::default(),
            flush: FlushRound::new(layout.zones as usize, counters.host_read_blocks, bug),
            checkpointing: Checkpointing::new(sequence),
            intents: Intents::new(bug),
            reservations_change: ReservationsChange::default(),
            bug,
            zone_effects: Vec::new(),
        }
    }

    /// The namespace's shape and limits.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.spec.geometry
    }

    /// What the image was made from.
    #[must_use]
    pub fn spec(&self) -> &ImageSpec {
        &self.spec
    }

    /// All zones, after the commands accepted so far.
    #[must_use]
    pub fn zones(&self) -> &ZoneTable {
        &self.table
    }

    /// Counters since the drive was created. After a crash, writes to zones without ZRWA are
    /// counted exactly; other writes and reads since the last flush are not counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            host_written_blocks: self.written_blocks,
            padding_blocks: self.padding_blocks,
            host_read_blocks: self.commands.read_blocks(),
            erases: self.ledger.counters.erases,
        }
    }

    /// Does not count these blocks, which were read to identify the drive and not by a host. No
    /// command is in flight.
    pub fn forget_reads(&mut self, blocks: u64) {
        self.commands.forget_reads(blocks);
        self.flush.forget_reads_from(self.commands.read_blocks());
    }

    /// How many times a zone was erased.
    ///
    /// # Panics
    /// If the zone does not exist.
    #[must_use]
    pub fn wear(&self, zone: ZoneIndex) -> u32 {
        self.ledger.entries[zone.as_usize()].wear
    }

    /// Submits a command. It takes effect on zones and contents now, in the order of submission; it
    /// completes when its writes are on file.
    ///
    /// # Errors
    /// [`QueueFull`] when [`COMMANDS_MAX`](crate::limits::COMMANDS_MAX) commands are outstanding.
    ///
    /// # Panics
    /// After [`shutdown`](Image::shutdown).
    pub fn submit(&mut self, _now: Instant, command: Command) -> Result<(), QueueFull> {
        assert!(!self.checkpointing.is_closing(), "a drive that is being closed accepts no commands");
        if self.commands.outstanding() >= COMMANDS_MAX {
            return Err(QueueFull(command));
        }
        self.take(command);
        self.run_ready();
        Ok(())
    }

    /// Adds the completions of commands that have ended to `completions`.
    pub fn poll(&mut self, completions: &mut CompletionQueue) {
        while let Some(completion) = self.commands.poll() {
            completions.push(completion);
        }
    }

    /// The next file operation to begin. All returned operations may be in flight at the same time.
    pub fn poll_effect(&mut self) -> Option<FileCommand> {
        self.operations.poll()
    }

    /// Reports the result of a file operation: the bytes of a read, empty bytes of another, or an
    /// error.
    ///
    /// # Panics
    /// For an id that is not outstanding.
    pub fn on_completion(&mut self, id: FileCommandId, result: Result<Bytes, FileError>) {
        match self.operations.end(id) {
            Purpose::Data(part) => self.on_part_file(part, FileKind::Data, result),
            Purpose::Tags(part) => self.on_part_file(part, FileKind::Tags, result),
            Purpose::Journal => self.on_journal_file(result.is_ok()),
            Purpose::Flush => self.on_flush_file(result.is_ok()),
            Purpose::Checkpoint => self.on_checkpoint_file(result.map(|_| ())),
            Purpose::Unheeded => {}
        }
        self.run_ready();
    }

    /// Makes a zone read only or offline, permanently, because its medium has failed or an operator
    /// requests it. The journal record is synced when the drive next has no outstanding operations.
    ///
    /// # Panics
    /// For a conventional zone, a zone that does not exist, and another state.
    pub fn degrade(&mut self, zone: ZoneIndex, state: ZoneState) {
        self.degrade_zone(zone, state);
        self.run_ready();
    }

    /// Requests a checkpoint, which makes the next recovery short.
    pub fn checkpoint(&mut self) {
        self.checkpointing.want();
        self.pump_checkpoint();
        self.run_ready();
    }

    /// Shuts the drive down cleanly once every command and every change of reservations has ended:
    /// a flush, a checkpoint, and the mark that no recovery is needed. [`shutdown_result`](Image::shutdown_result)
    /// reports the end.
    pub fn shutdown(&mut self) {
        self.checkpointing.begin_closing();
        self.pump_checkpoint();
        self.run_ready();
    }

    /// The result of [`shutdown`](Image::shutdown), once it has ended. After an error the next opening
    /// recovers the image as after a crash.
    #[must_use]
    pub fn shutdown_result(&self) -> Option<&Result<(), FileError>> {
        self.checkpointing.closed()
    }

    /// Whether nothing is outstanding: no command, no file operation, no change of reservations, no
    /// completion that waits to be polled.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.commands.outstanding() == 0
            && self.parts.is_empty()
            && self.operations.is_idle()
            && !self.commands.has_completions()
            && self.reservations_change.is_idle()
            && !self.reservations_change.has_unreported_result()
            && (!self.checkpointing.is_closing() || self.checkpointing.closed().is_some())
    }

    /// Starts every part that is ready.
    fn run_ready(&mut self) {
        loop {
            while let Some(key) = self.parts.next_ready() {
                self.start_part(key);
            }
            self.pump_journal();
            self.pump_checkpoint();
            if !self.parts.has_ready() {
                break;
            }
        }
    }

    fn lba(&self, zone: ZoneIndex, block: u64) -> u64 {
        u64::from(zone.0) * self.spec.geometry.zone_size_blocks.0 + block
    }

    /// Whether a block before the high-water mark may have no tag.
    fn may_be_unwritten(&self, zone: ZoneIndex) -> bool {
        self.layout.is_conventional(zone) || self.ledger.entries[zone.as_usize()].had_zrwa
    }
}

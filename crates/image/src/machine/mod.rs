//! The running drive: commands in, file operations out.
//!
//! ```text
//! submit.rs     a command takes effect on the zone table and becomes parts, one for each zone it touches
//! order.rs      parts that touch the same blocks are done in the order of submission
//! sequential.rs writes at a write pointer: acknowledged in order; what a failed one takes back
//! overwrite.rs  writes in conventional zones and ZRWAs: contents in the journal, and what becomes of failed ones
//! intents.rs    what the journal says of blocks that are being written in place
//! read.rs       every block is held against its tag
//! manage.rs     resets and the like: a record, synced, before the acknowledgement
//! journal.rs    records in batches, one write and one sync for each
//! flush.rs      sync data and tags, then note the write pointers
//! reservations.rs  what hosts have reserved: kept for whoever serves the drive
//! checkpoint.rs the ledger written out whole, so that the journal can begin anew
//! ```

mod checkpoint;
mod flush;
mod intents;
mod invariants;
mod journal;
mod manage;
mod order;
mod overwrite;
mod part;
mod read;
mod reservations;
mod sequential;
mod submit;

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_zoned::zones::{ZoneEffect, ZoneTable};
use zonda_zoned::{Command, Completion, CompletionQueue, Geometry, Instant, QueueFull, Slab, ZoneIndex, ZoneState};

use crate::bugs::SeededBug;
use crate::format::entry::Ledger;
use crate::format::layout::Layout;
use crate::format::tag::TagCodec;
use crate::limits::COMMANDS_MAX;
use crate::rebuild::Builder;
use crate::{Counters, FileCommand, FileError, FileOperation, ImageSpec, Ticket};

use checkpoint::Checkpointing;
use flush::FlushRound;
use intents::Intents;
use journal::Journal;
use part::{CommandRun, Part};
use reservations::Keeping;

/// An open drive. It never blocks: commands and the results of file operations go in, file operations and completions
/// come out. Whoever drives it carries out every [`FileCommand`] from [`poll_effect`](Image::poll_effect), in any order.
///
/// Dropping it is a crash: what was acknowledged is on file, and the next [`open`](crate::open) mends the rest.
#[derive(Debug)]
pub struct Image {
    spec: ImageSpec,
    layout: Layout,
    codec: TagCodec,
    builder: Builder,
    /// As the commands taken so far have it.
    table: ZoneTable,
    zones: Vec<ZoneRun>,
    /// As checkpoint and journal have it.
    ledger: Ledger,
    counters: Counters,
    commands: Slab<CommandRun>,
    parts: Slab<Part>,
    /// Parts that wait for nothing any more.
    ready: VecDeque<u32>,
    /// Parts at whose end an active resource is free on file.
    releasing: Vec<u32>,
    completions: VecDeque<Completion>,
    effects: VecDeque<FileCommand>,
    operations_out: u32,
    journal: Journal,
    flush: FlushRound,
    checkpointing: Checkpointing,
    intents: Intents,
    keeping: Keeping,
    /// Planted by a tester.
    bug: Option<SeededBug>,
    /// A place for the effects of management, to be used again.
    zone_effects: Vec<ZoneEffect>,
}

/// A zone at run time.
#[derive(Debug, Default)]
struct ZoneRun {
    /// Parts that touch the zone's files, or wait to, in the order of submission.
    parts: Vec<u32>,
    /// Sequential writes that are not acknowledged yet, in order.
    order: VecDeque<u32>,
    /// Every block below it was acknowledged; in a zone without ZRWA.
    on_file: u64,
    /// Resets taken.
    generation: u32,
    /// It has, or has had since it was last reset, a ZRWA; as the commands taken so far have it.
    had_zrwa: bool,
    /// How many of `parts` are management.
    exclusive: u32,
    /// How many of `parts` write over what is there.
    overwrites: u32,
    /// In a ZRWA: blocks below it will be settled if the flush under way succeeds ([`Entry::settled`](crate::format::entry::Entry)).
    settling: u64,
    /// Where the first failed write began, until it is dealt with.
    failed: Option<sequential::Failed>,
    /// Tags of a failed write could not be cleared, and a reset behind it is to leave them to an earlier generation.
    uncleared: bool,
    /// It is in the list of zones that the next flush looks at.
    dirty: bool,
}

/// What a machine starts from.
pub(crate) struct Start {
    pub(crate) spec: ImageSpec,
    pub(crate) layout: Layout,
    pub(crate) codec: TagCodec,
    pub(crate) ledger: Ledger,
    pub(crate) table: ZoneTable,
    pub(crate) sequence: u64,
    pub(crate) bug: Option<SeededBug>,
}

/// Whose file operation it is; in the upper half of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// A part's, on data.
    Data = 0,
    /// A part's, on tags.
    Tags = 1,
    Journal = 2,
    FlushData = 3,
    FlushTags = 4,
    Checkpoint = 5,
    /// Nobody waits for it.
    Unheeded = 6,
}

impl Image {
    pub(crate) fn start(start: Start) -> Image {
        let Start { spec, layout, codec, ledger, table, sequence, bug } = start;
        let mut flush = FlushRound::default();
        flush.note_reads_up_to(ledger.counters.host_read_blocks);
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
            counters: ledger.counters,
            journal: Journal::new(sequence),
            spec,
            layout,
            codec,
            table,
            zones,
            ledger,
            commands: Slab::new(),
            parts: Slab::new(),
            ready: VecDeque::new(),
            releasing: Vec::new(),
            completions: VecDeque::new(),
            effects: VecDeque::new(),
            operations_out: 0,
            flush,
            checkpointing: Checkpointing::new(sequence),
            intents: Intents::default(),
            keeping: Keeping::default(),
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

    /// All zones, as the commands taken so far have them.
    #[must_use]
    pub fn zones(&self) -> &ZoneTable {
        &self.table
    }

    /// Counters since the drive was created. After a crash those of writes to zones without ZRWA are exact; of other writes
    /// and of reads, those since the last flush are missing.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { erases: self.ledger.counters.erases, ..self.counters }
    }

    /// These blocks were read by no host, but to find out whose the drive is: they are not counted. Nothing is in flight.
    pub fn forget_reads(&mut self, blocks: u64) {
        assert!(blocks <= self.counters.host_read_blocks, "what is forgotten was read");
        self.counters.host_read_blocks -= blocks;
        self.flush.forget_reads_from(self.counters.host_read_blocks);
    }

    /// How many times a zone was erased.
    ///
    /// # Panics
    /// When there is no such zone.
    #[must_use]
    pub fn wear(&self, zone: ZoneIndex) -> u32 {
        self.ledger.entries[zone.as_usize()].wear
    }

    /// Takes a command. It takes effect on zones and contents now, in the order of submission; its completion comes when
    /// what it wrote is on file.
    ///
    /// # Errors
    /// [`QueueFull`] when [`COMMANDS_MAX`](crate::limits::COMMANDS_MAX) commands are under way.
    ///
    /// # Panics
    /// After [`close`](Image::close).
    pub fn submit(&mut self, _now: Instant, command: Command) -> Result<(), QueueFull> {
        assert!(!self.checkpointing.is_closing(), "a drive that is being closed takes no commands");
        if self.commands.len() >= COMMANDS_MAX {
            return Err(QueueFull(command));
        }
        self.take(command);
        self.run_ready();
        Ok(())
    }

    /// Adds the commands that have ended to `completions`.
    pub fn poll(&mut self, completions: &mut CompletionQueue) {
        while let Some(completion) = self.completions.pop_front() {
            completions.push(completion);
        }
    }

    /// The next file operation to begin. All that come out may be under way at the same time.
    pub fn poll_effect(&mut self) -> Option<FileCommand> {
        self.effects.pop_front()
    }

    /// A file operation has ended: with the bytes of a read, with nothing of another, or with an error.
    ///
    /// # Panics
    /// For a ticket that is not out.
    pub fn on_file_done(&mut self, ticket: Ticket, result: Result<Bytes, FileError>) {
        assert!(self.operations_out > 0, "{ticket:?} is not out");
        self.operations_out -= 1;
        let index = ticket.0 as u32;
        match ticket.0 >> 32 {
            0 => self.on_part_file(index, Role::Data, result),
            1 => self.on_part_file(index, Role::Tags, result),
            2 => self.on_journal_file(result.is_ok()),
            3 | 4 => self.on_flush_file(result.is_ok()),
            5 => self.on_checkpoint_file(result.map(|_| ())),
            6 => {}
            _ => panic!("{ticket:?} was never out"),
        }
        self.run_ready();
    }

    /// The medium of a zone gives up, or an operator says so: it becomes read only or offline, and stays so. The journal
    /// record is synced when the drive next has no operations out.
    ///
    /// # Panics
    /// For a conventional zone, a zone that does not exist, and another state.
    pub fn degrade(&mut self, zone: ZoneIndex, state: ZoneState) {
        self.degrade_zone(zone.0, state);
        self.run_ready();
    }

    /// Asks for a checkpoint, which makes the next recovery short.
    pub fn checkpoint(&mut self) {
        self.checkpointing.want();
        self.pump_checkpoint();
        self.run_ready();
    }

    /// Shuts the drive down in order once every command and every change of reservations has ended: a flush, a checkpoint, and the mark that there is nothing
    /// to recover. [`closed`](Image::closed) says when.
    pub fn close(&mut self) {
        self.checkpointing.begin_closing();
        self.pump_checkpoint();
        self.run_ready();
    }

    /// After [`close`](Image::close): how it ended, once it has. After an error the next opening recovers the image as
    /// after a crash.
    #[must_use]
    pub fn closed(&self) -> Option<&Result<(), FileError>> {
        self.checkpointing.closed()
    }

    /// Whether nothing is outstanding: no command, no file operation, no change of reservations, no completion that waits to be polled.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.commands.is_empty()
            && self.parts.is_empty()
            && self.operations_out == 0
            && self.effects.is_empty()
            && self.completions.is_empty()
            && self.keeping.is_idle()
            && !self.keeping.has_news()
            && (!self.checkpointing.is_closing() || self.checkpointing.closed().is_some())
    }

    fn has(&self, bug: SeededBug) -> bool {
        self.bug == Some(bug)
    }

    /// Hands a file operation out.
    #[inline]
    fn emit(&mut self, role: Role, index: u32, operation: FileOperation) {
        self.operations_out += 1;
        let ticket = Ticket((role as u64) << 32 | u64::from(index));
        self.effects.push_back(FileCommand { ticket, operation });
    }

    /// Starts every part that waits for nothing any more.
    fn run_ready(&mut self) {
        loop {
            while let Some(index) = self.ready.pop_front() {
                self.start_part(index);
            }
            self.pump_journal();
            self.pump_checkpoint();
            if self.ready.is_empty() {
                break;
            }
        }
    }

    fn lba(&self, zone: u32, block: u64) -> u64 {
        u64::from(zone) * self.spec.geometry.zone_size_blocks.0 + block
    }

    /// Whether a block may be without a tag though it lies before the high-water mark.
    fn may_be_unwritten(&self, zone: u32) -> bool {
        zone < self.layout.conventional || self.ledger.entries[zone as usize].had_zrwa
    }
}

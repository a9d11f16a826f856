//! The state machine of a volume: commands of hosts and completions of members in, commands to
//! members and completions for hosts out.
//!
//! State has owners, each with private fields, operations and invariants:
//!
//! ```text
//! spec.rs      configuration and layout: read by all owners, changed by none
//! members/     member devices: their zones, commands, superblocks and caches
//! segments/    segments: open, filled, closed, reset
//! stripes/     buffered blocks, and the stripes that they form
//! map/         where each logical block is; trims
//! requests.rs  outstanding host requests
//! reads/       blocks read from members, verified or computed
//! collector/   garbage collection: victims, moves and pace
//! space.rs     a view of the members: free segments
//! ```
//!
//! An owner that needs another one receives it as `&mut Segments` or `&Map`. Where an event
//! concerns several owners, the volume routes it; results for others are returned:
//!
//! ```text
//! host.rs          host requests
//! reading.rs       host reads, and dispatch of blocks that were read
//! issue.rs         stripes are issued to segments, and count or are rewritten
//! collecting.rs    reads and writes of garbage collection
//! commit.rs        a stripe counts: the map, requests
//! failures.rs      failing members; durability
//! reconnect.rs     lost and restored connections of members
//! damage.rs        damaged blocks, each counted once
//! losses.rs        unreadable blocks, and markers of lost ones
//! lost_places.rs   places that these markers name
//! out_of_space.rs  no space left, and none to be reclaimed
//! last_segments.rs reserve of free segments where blocks may be unreadable
//! status.rs, invariants.rs, inspect.rs
//! ```
//!
//! What is in flight has keys of its type ([`requests::RequestKey`], [`stripes::StripeKey`],
//! [`reads::FetchKey`], [`reads::RepairKey`], [`pieces::PieceKey`]); the map stores a location as an
//! [`address::Address`].
//!
//! Long-running jobs: each has private state and invariants, and its handlers use all owners.
//!
//! ```text
//! start.rs, mount/   creating and mounting
//! rebuild/           rebuild and re-add of members
//! scrub/             scrub
//! pieces/            runs of stripes that these two read
//! ```

mod address;
mod collecting;
mod collector;
mod commit;
mod damage;
mod failures;
#[cfg(test)]
mod fixtures;
mod host;
#[cfg(any(test, feature = "testing"))]
mod inspect;
mod invariants;
mod issue;
mod last_segments;
mod losses;
mod lost_places;
mod map;
mod members;
mod mount;
mod out_of_space;
mod pieces;
mod reading;
mod reads;
mod rebuild;
mod reconnect;
mod requests;
mod scrub;
mod segments;
mod space;
mod spec;
mod start;
mod status;
mod stripes;

use std::collections::VecDeque;

use zonda_erasure::Engine;
use zonda_zoned::{Blocks, Completion, Geometry, Instant, Lba, Status};

use crate::event::Event;
use crate::limits::EXTENT_BLOCKS_MAX;
use crate::shape::Stream;
use crate::{MemberIndex, VolumeError};

use collector::Collector;
use damage::Damage;
pub use damage::DamageCounts;
#[cfg(any(test, feature = "testing"))]
pub(crate) use inspect::{Inconsistency, MediaRead};
use losses::Losses;
use lost_places::LostPlaces;
pub use map::Extent;
use map::Map;
use members::{Members, Work};
use pieces::Pieces;
use reads::Reads;
use rebuild::Rebuild;
use requests::Requests;
use scrub::Scrub;
use segments::Segments;
use space::Space;
use spec::Spec;
use start::Start;
pub use status::{MemberReport, VolumeStatus};
use stripes::Stripes;

/// A volume over its members. It never blocks: commands and completions go in and out.
///
/// Dropping it is equivalent to a crash: a mount finds all acknowledged writes.
#[derive(Debug)]
pub struct Volume {
    spec: Spec,
    phase: Phase,
    members: Members,
    map: Map,
    segments: Segments,
    stripes: Stripes,
    requests: Requests,
    reads: Reads,
    collector: Collector,
    pieces: Pieces,
    rebuild: Rebuild,
    scrub: Option<Scrub>,
    losses: Losses,
    lost_places: LostPlaces,
    damage: Damage,
    events: VecDeque<Event>,
    counters: Counters,
    now: Instant,
    /// Something has happened that others may wait for, in addition to the owners' own flags.
    has_progress: bool,
}

/// The phase of a volume.
#[derive(Debug)]
enum Phase {
    Starting(Box<Start>),
    Ready,
    Failed(VolumeError),
}

/// Counters since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks written by hosts.
    pub host_blocks: u64,
    /// Blocks written to members: data, parity, padding, metadata, relocated ones.
    pub member_blocks: u64,
    /// Blocks of padding in stripes that were not full in time.
    pub padding_blocks: u64,
    /// Blocks moved by garbage collection.
    pub relocated_blocks: u64,
    /// Segments that were emptied and reset.
    pub collected_segments: u64,
    /// Blocks that were reconstructed from the rest of their stripe.
    pub reconstructed_blocks: u64,
    /// Damaged blocks of members that are repaired: their contents are intact elsewhere, or not
    /// needed any more.
    pub repaired_blocks: u64,
    /// Lost blocks: too much of their stripes is damaged. Unchanged by a mount; decreases when they
    /// are written or trimmed.
    pub lost_blocks: u64,
    /// Blocks of reads that ended with an error, counted each time: they are lost, or on missing
    /// members.
    pub unreadable_blocks: u64,
}

impl Volume {
    /// The geometry that hosts see: conventional zones only.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.spec.geometry
    }

    /// Whether the volume is created or mounted, and accepts commands.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    /// Replaces the portable engine for parity.
    pub fn set_engine(&mut self, engine: Box<dyn Engine>) {
        self.spec.engine = engine;
    }

    /// Seeds a bug, for tests.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    pub fn seed_bug(&mut self, bug: crate::SeededBug) {
        self.spec.seeded = Some(bug).into();
    }

    /// The extent that begins at `start`, at most `most` blocks. At most [`EXTENT_BLOCKS_MAX`]
    /// blocks are examined, so the next extent may be in the same state. As for a read, requests
    /// count that were accepted before. A volume that is not ready reports no holes.
    ///
    /// # Panics
    /// If `start` is behind the end of the volume, or `most` is 0.
    #[must_use]
    pub fn extent(&self, start: Lba, most: Blocks) -> Extent {
        if self.is_ready() {
            return self.map.extent(&self.stripes, start, most);
        }
        let blocks = most.0.min(self.map.blocks() - start.0).min(EXTENT_BLOCKS_MAX);
        Extent { blocks: Blocks(blocks), is_hole: false }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next completion of a host's command.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.requests.poll()
    }

    /// Whether host commands have completed that were not polled.
    #[must_use]
    pub fn has_completions(&self) -> bool {
        self.requests.has_completions()
    }

    /// Counters since the mount.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            host_blocks: self.requests.host_blocks(),
            padding_blocks: self.stripes.padding_blocks(),
            member_blocks: self.members.written_blocks(),
            collected_segments: self.segments.reset_count(),
            relocated_blocks: self.collector.relocated_blocks(),
            reconstructed_blocks: self.reads.reconstructed_blocks(),
            repaired_blocks: self.damage.counts().repaired,
            lost_blocks: self.counters.lost_blocks + self.lost_blocks(),
            unreadable_blocks: self.reads.unreadable_blocks(),
        }
    }

    /// A command of a member has completed. Completions of a failed member, and of an aborted
    /// command, are ignored.
    pub fn on_completion(&mut self, now: Instant, member: MemberIndex, completion: Completion) {
        self.advance_to(now);
        if self.is_lost() {
            return;
        }
        let Some(work) = self.members.ended(member, &completion) else { return };
        let is_write = !matches!(
            work,
            Work::Fetch { .. }
                | Work::FetchBlock { .. }
                | Work::Source { .. }
                | Work::SourceBlock { .. }
                | Work::Slots { .. }
                | Work::SlotBlock { .. }
                | Work::Described { .. }
                | Work::Inspect { .. }
                | Work::ScrubReport(_)
        );
        if completion.status == Status::CapacityExceeded && self.members[member].is_present() {
            self.members.ran_out_of_space(now, member);
            self.suspend_for_space(member);
        }
        if self.members.answered(now, member, is_write && completion.status.is_success()) {
            self.resumed(member);
            self.wake();
        }
        // Of chunks and reads only some change anything for others: their handlers report that.
        self.has_progress |= !matches!(work, Work::Chunk { .. } | Work::Fetch { .. } | Work::Source { .. });
        self.dispatch(member, work, completion);
        self.make_progress_if_woken();
    }

    /// The time of [`next_timeout`](Volume::next_timeout) has come.
    pub fn on_timeout(&mut self, now: Instant) {
        let due = self.next_timeout();
        self.now = now;
        if self.is_lost() {
            return;
        }
        self.stripes.pad_late(&self.spec, self.now);
        self.check_timeouts(due);
        self.retry_pieces();
        self.make_progress();
    }

    /// When [`on_timeout`](Volume::on_timeout) is to be called.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.is_lost() {
            return None;
        }
        let stripes = Stream::ALL.iter().filter_map(|&stream| self.stripes.padding_due(&self.spec, stream));
        stripes
            .chain(self.timeout_check_due())
            .chain(self.rebuild_due())
            .chain(self.scrub_due())
            .chain(self.pieces_due())
            .chain(self.collection_due())
            .chain(self.map.trims_due(&self.spec))
            .chain(self.members.retry_due(self.now))
            .min()
    }

    fn dispatch(&mut self, member: MemberIndex, work: Work, completion: Completion) {
        let Completion { status, outcome, .. } = completion;
        match work {
            Work::Chunk { stripe } => self.on_chunk(member, stripe, status, &outcome),
            Work::Header { segment } => {
                let has_failed = self.segments.header_failed(&self.members, member, segment, status);
                if has_failed {
                    self.write_failed(member, segment);
                }
                self.segments.on_header(&self.spec, &mut self.members, segment);
            }
            Work::Footer { segment, blocks } => {
                self.segments.on_footer(&self.spec, &mut self.members, member, segment, blocks, status);
            }
            Work::FinishZone { segment } => {
                let verdict = self.segments.on_finish(&self.spec, &mut self.members, member, segment, status);
                self.apply_verdict(member, verdict);
            }
            Work::ResetZone { segment } => {
                let verdict = self.segments.on_reset(&self.spec, &mut self.members, member, segment, status);
                self.apply_verdict(member, verdict);
            }
            Work::Inspect { segment } => {
                let verdict = self.segments.on_inspect(&self.spec, &mut self.members, member, segment, status, outcome);
                self.apply_verdict(member, verdict);
            }
            Work::Fetch { fetch } => self.on_fetch(fetch, status, outcome),
            Work::FetchBlock { fetch, at } => self.on_fetch_block(fetch, at, status, outcome),
            Work::Source { repair, source } => self.on_source(repair, source, status, &outcome),
            Work::SourceBlock { repair, source, at } => self.on_source_block((repair, source, at), status, outcome),
            Work::Flush => {
                let verdict = self.members.on_flush(&self.spec, member, status);
                self.apply_verdict(member, verdict);
            }
            Work::Superblock => {
                let verdict = self.members.on_superblock(&self.spec, member, status);
                self.apply_verdict(member, verdict);
            }
            Work::SuperblockFlush => {
                let verdict = self.members.on_superblock_flush(&self.spec, member, status);
                self.apply_verdict(member, verdict);
            }
            Work::MetadataReset => {
                let verdict = self.members.on_metadata_reset(&self.spec, member, status);
                self.apply_verdict(member, verdict);
            }
            Work::Start(step) => self.on_start(member, step, status, outcome),
            Work::Slots { piece, slot, count } => self.on_slots(member, piece, slot, count, status, outcome),
            Work::SlotBlock { piece, slot, at } => self.on_slot_block(member, (piece, slot, at), status, outcome),
            Work::Described { sequence, offset, blocks } => {
                self.on_described(member, sequence, (offset, blocks), status, &outcome);
            }
            Work::Rebuild(step) => self.on_rebuild(member, step, status, outcome),
            Work::ScrubReport(next) => self.on_scrub_report(member, next, status, outcome),
        }
    }

    /// All waiting operations are checked again before the event is finished.
    fn wake(&mut self) {
        self.has_progress = true;
    }

    fn make_progress_if_woken(&mut self) {
        // While anything is in flight a rebuild counts as in progress: the last completion may be a
        // read that changes nothing else.
        let may_have_stopped = self.is_rebuilding() && self.members.are_idle();
        let is_woken = self.has_progress
            || self.segments.has_progress()
            || self.stripes.has_progress()
            || self.reads.has_progress();
        if is_woken || may_have_stopped {
            self.make_progress();
        }
    }

    /// Does everything that has become possible.
    fn make_progress(&mut self) {
        self.has_progress = false;
        self.segments.clear_progress();
        self.stripes.clear_progress();
        self.reads.clear_progress();
        loop {
            self.end_aborted();
            self.count_repaired_by_resets();
            self.end_flushes();
            self.check_suspended();
            let mut has_changed = false;
            match self.phase {
                Phase::Starting(_) => {
                    self.continue_start();
                    if self.is_ready() {
                        // There may be zones to be reset at once.
                        continue;
                    }
                }
                Phase::Ready => {
                    self.pump_superblocks();
                    self.keep_last_segments();
                    self.pump_collector();
                    self.pump_rebuild();
                    self.pump_scrub();
                    self.pump_losses();
                    self.pump_trims();
                    for stream in Stream::ALL {
                        self.pump_stream(stream);
                    }
                    // Segments that are empty after that are reset now: the next event may be one
                    // that nothing triggers.
                    if self.members.may_write(self.now) {
                        self.segments.reset_empty(&self.spec, &mut self.members);
                    }
                    has_changed = self.end_if_out_of_space();
                }
                Phase::Failed(_) => {
                    self.members.forget_aborted();
                    return self.end_all_requests();
                }
            }
            if self.members.may_write(self.now) {
                self.members.begin_flushes();
            }
            // These operations may have failed a member.
            if !has_changed && !self.members.has_aborted() && !self.is_lost() {
                return;
            }
        }
    }

    /// The members' zones as segments.
    fn space(&self) -> Space<'_> {
        Space::new(&self.spec, &self.members, self.is_ready())
    }

    /// Whether no operation will complete any more.
    fn is_lost(&self) -> bool {
        matches!(self.phase, Phase::Failed(_))
    }
}

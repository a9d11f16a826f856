//! The running volume: commands of hosts and completions of members in, commands to members and completions for hosts out.
//!
//! State has owners, each with private fields, verbs and checks of its own:
//!
//! ```text
//! spec.rs      what the volume is: everybody reads it, nobody changes it
//! members/     member devices: their zones, commands, superblocks and caches
//! segments/    segments: open, filled, closed, reset
//! stripes/     blocks in memory, and the stripes that they gather in
//! map/         where each logical block is; trims
//! requests.rs  what hosts wait for
//! reads/       blocks by their places, verified or computed
//! collector/   garbage collection: what is moved, which segment is next, how fast it goes
//! space.rs     a view of the members: how many segments are free
//! ```
//!
//! An owner that needs another one is handed that one, as `&mut Segments` or `&Map`. Where one event concerns several owners,
//! the volume routes it; what an owner finds out for others it returns:
//!
//! ```text
//! host.rs          what hosts ask for
//! reading.rs       reads of hosts, and who is told what was read
//! issue.rs         stripes go to segments, and count, or are written again
//! collecting.rs    what garbage collection reads, and where that is written
//! commit.rs        a stripe counts: the map, requests
//! failures.rs      members that fail; what becomes durable
//! reconnect.rs     members whose connection is lost, and made again
//! damage.rs        blocks that were found damaged, each counted once
//! losses.rs        blocks that cannot be read: are they lost? markers that say so
//! lost_places.rs   places that these markers name
//! out_of_space.rs  no space left, and none to be reclaimed
//! last_segments.rs what the last free segments are for where blocks may be unreadable
//! status.rs, invariants.rs, inspect.rs
//! ```
//!
//! Jobs from one end of the volume to the other: what a job remembers is its own, behind private fields and with checks of its own, and
//! its handlers ask all owners for what they do.
//!
//! ```text
//! start.rs, mount/   creating and mounting
//! rebuild/           a member is given its part again
//! scrub/             everything is read and compared
//! pieces/            runs of stripes on their way in, for these two
//! ```

mod collecting;
mod collector;
mod commit;
mod damage;
mod failures;
#[cfg(test)]
mod fixtures;
mod host;
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

use crate::bug::SeededBug;
use crate::event::Event;
use crate::limits::EXTENT_BLOCKS_MAX;
use crate::shape::Stream;
use crate::{MemberIndex, VolumeError};

use collector::Collector;
use damage::Damage;
pub use damage::DamageCounts;
pub(crate) use inspect::{Look, Wrong};
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

/// A volume over its members. It never blocks: commands and completions go in, commands and completions come out.
///
/// Dropping it is a crash: a mount finds all that was acknowledged.
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
    /// Something has happened that others may wait for, beside what owners know.
    has_progress: bool,
}

/// How far the volume is.
#[derive(Debug)]
enum Phase {
    Starting(Box<Start>),
    Ready,
    Failed(VolumeError),
}

/// What is counted since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks that hosts have written.
    pub host_blocks: u64,
    /// Blocks written to members: data, parity, padding, metadata, relocated ones.
    pub member_blocks: u64,
    /// Blocks of padding in stripes that were not full in time.
    pub padding_blocks: u64,
    /// Blocks that garbage collection has moved.
    pub relocated_blocks: u64,
    /// Segments that were emptied and reset.
    pub collected_segments: u64,
    /// Blocks that were read out of the rest of their stripe.
    pub reconstructed_blocks: u64,
    /// Blocks of members that were found damaged, and are repaired: what they held is right where it is now, or not needed any more.
    pub mended_blocks: u64,
    /// Blocks that are lost: too much of their stripes is damaged. The same after a mount; fewer when they are written or trimmed.
    pub lost_blocks: u64,
    /// Blocks of reads that ended with an error, counted each time: they are lost, or members that hold them are away.
    pub unreadable_blocks: u64,
}

impl Volume {
    /// The shape that hosts see: conventional zones only.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.spec.geometry
    }

    /// Whether the volume is created or mounted, and takes commands.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    /// Computes parity with another engine than the portable one.
    pub fn set_engine(&mut self, engine: Box<dyn Engine>) {
        self.spec.engine = engine;
    }

    /// Plants a bug, for tests.
    #[doc(hidden)]
    pub fn plant(&mut self, bug: SeededBug) {
        self.spec.bug = Some(bug);
    }

    /// What is to be had from `start` on: the blocks that are as the first one is, at most `most` of them. No more than
    /// [`EXTENT_BLOCKS_MAX`] are looked at, so what is behind them may be in the same state. As
    /// with a read, what counts is what was taken before. A volume that is not ready says that everything holds something.
    ///
    /// # Panics
    /// When `start` is behind the end of the volume, or `most` is nothing.
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

    /// Whether a host's command has ended that nobody has asked for.
    #[must_use]
    pub fn has_completions(&self) -> bool {
        self.requests.has_completions()
    }

    /// What was counted since the mount.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            host_blocks: self.requests.host_blocks(),
            padding_blocks: self.stripes.padding_blocks(),
            member_blocks: self.members.written_blocks(),
            collected_segments: self.segments.reset_count(),
            relocated_blocks: self.collector.relocated_blocks(),
            reconstructed_blocks: self.reads.reconstructed_blocks(),
            mended_blocks: self.damage.counts().repaired,
            lost_blocks: self.counters.lost_blocks + self.lost_blocks(),
            unreadable_blocks: self.reads.unreadable_blocks(),
        }
    }

    /// A command of a member has ended. Of a member that has failed, and of a command that it was failed for, nothing is
    /// believed any more.
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
            self.suspend_for_room(member);
        }
        if self.members.answered(now, member, is_write && completion.status.is_success()) {
            self.resumed(member);
            self.wake();
        }
        // Of chunks and reads only some change anything for others: their handlers say so.
        self.has_progress |= !matches!(work, Work::Chunk { .. } | Work::Fetch { .. } | Work::Source { .. });
        self.dispatch(member, work, completion);
        self.make_progress_if_woken();
    }

    /// The time that [`next_timeout`](Volume::next_timeout) named has come.
    pub fn on_timeout(&mut self, now: Instant) {
        let due = self.next_timeout();
        self.now = now;
        if self.is_lost() {
            return;
        }
        self.stripes.pad_late(&self.spec, self.now);
        self.look_for_silence(due);
        self.retry_pieces();
        self.make_progress();
    }

    /// When [`on_timeout`](Volume::on_timeout) is wanted.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.is_lost() {
            return None;
        }
        let stripes = Stream::ALL.iter().filter_map(|&stream| self.stripes.padding_due(&self.spec, stream));
        stripes
            .chain(self.silence_due())
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
                if has_failed && status != Status::CapacityExceeded {
                    self.suspect(member, segment);
                }
                self.segments.on_header(&self.spec, &mut self.members, segment);
            }
            Work::Footer { segment, blocks } => {
                self.segments.on_footer(&self.spec, &mut self.members, member, segment, blocks, status);
            }
            Work::FinishZone { segment } => {
                let verdict = self.segments.on_finish(&self.spec, &mut self.members, member, segment, status);
                self.judge(member, verdict);
            }
            Work::ResetZone { segment } => {
                let verdict = self.segments.on_reset(&self.spec, &mut self.members, member, segment, status);
                self.judge(member, verdict);
            }
            Work::Inspect { segment } => {
                let verdict = self.segments.on_inspect(&self.spec, &mut self.members, member, segment, status, outcome);
                self.judge(member, verdict);
            }
            Work::Fetch { fetch } => self.on_fetch(fetch, status, outcome),
            Work::FetchBlock { fetch, at } => self.on_fetch_block(fetch, at, status, outcome),
            Work::Source { repair, source } => self.on_source(repair, source, status, &outcome),
            Work::SourceBlock { repair, source, at } => self.on_source_block((repair, source, at), status, outcome),
            Work::Flush => {
                let verdict = self.members.on_flush(&self.spec, member, status);
                self.judge(member, verdict);
            }
            Work::Superblock => {
                let verdict = self.members.on_superblock(&self.spec, member, status);
                self.judge(member, verdict);
            }
            Work::SuperblockFlush => {
                let verdict = self.members.on_superblock_flush(&self.spec, member, status);
                self.judge(member, verdict);
            }
            Work::MetadataReset => {
                let verdict = self.members.on_metadata_reset(&self.spec, member, status);
                self.judge(member, verdict);
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

    /// Whoever waits for something looks again before the event is over.
    fn wake(&mut self) {
        self.has_progress = true;
    }

    fn make_progress_if_woken(&mut self) {
        // While anything is in flight a rebuild counts as going on: what ended last may be a read that changes nothing else.
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
            self.look_at_suspended();
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
                    // Whatever that left without contents goes now: the next event may be one that nobody waits for.
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
            // What was just done may have cost a member.
            if !has_changed && !self.members.has_aborted() && !self.is_lost() {
                return;
            }
        }
    }

    /// The members' zones as segments.
    fn space(&self) -> Space<'_> {
        Space::new(&self.spec, &self.members, self.is_ready())
    }

    /// Whether nothing will come of anything any more.
    fn is_lost(&self) -> bool {
        matches!(self.phase, Phase::Failed(_))
    }
}

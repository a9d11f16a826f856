//! Rounds of flushes: commands that arrive during a round wait for the next one.
//!
//! Operations, in their order: [`join`](FlushRound::join) for each command; the pointers of
//! [`take_dirty_zones`](FlushRound::take_dirty_zones) are noted, and [`begin`](FlushRound::begin)
//! starts the round; [`on_sync`](FlushRound::on_sync) for data and for tags; then
//! [`fail`](FlushRound::fail), or the records of [`take_persisted`](FlushRound::take_persisted),
//! [`take_pointers`](FlushRound::take_pointers) and [`take_counts`](FlushRound::take_counts).

use zonda_zoned::{Key, ZoneIndex};

use crate::bugs::{Seeded, SeededBug};
use crate::format::record::FlushedPointer;

use super::commands::CommandRun;

/// Owns the flushes, and what they have to record.
#[derive(Debug)]
pub(super) struct FlushRound {
    bug: Seeded,
    /// Commands for the next round, and those of the current one.
    waiting: Vec<Key<CommandRun>>,
    current: Vec<Key<CommandRun>>,
    /// Syncs of the current round that have not ended; 0: no round.
    syncs_out: u8,
    failed: bool,
    /// A command was acknowledged since the last round began.
    dirty: bool,
    zones: Vec<ZoneFlush>,
    /// Zones whose pointers the next round notes.
    dirty_zones: Vec<ZoneIndex>,
    pointers: Vec<FlushedPointer>,
    /// Zones with a ZRWA in which this round persists blocks.
    persisting_zones: Vec<ZoneIndex>,
    /// Blocks written in conventional zones and ZRWAs that no record has counted; of these, the
    /// ones that this round counts.
    overwritten_blocks: u64,
    overwritten_counted: u64,
    /// Blocks read that a record has counted; the count at the start of this round.
    read_noted: u64,
    read_counted: u64,
    /// A sync has failed: earlier writes may be lost, and no later sync can guarantee them.
    broken: bool,
}

/// The state of a zone between rounds.
#[derive(Clone, Copy, Debug, Default)]
struct ZoneFlush {
    /// It is in the list of zones that the next round checks.
    is_dirty: bool,
    /// In a ZRWA: blocks below it will be persisted if the current round succeeds
    /// ([`Entry::persisted`](crate::format::entry::Entry)).
    persisting: u64,
}

/// What a flush waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// A round.
    Round,
    /// At most the note of the last round: everything is on the media.
    Note,
}

/// Blocks that a round counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) overwritten: u64,
    pub(super) read: u64,
}

impl FlushRound {
    /// Hosts have read so many blocks since the drive was created.
    pub(super) fn new(zones: usize, read_blocks: u64, bug: Seeded) -> FlushRound {
        FlushRound {
            bug,
            waiting: Vec::new(),
            current: Vec::new(),
            syncs_out: 0,
            failed: false,
            dirty: false,
            zones: vec![ZoneFlush::default(); zones],
            dirty_zones: Vec::new(),
            pointers: Vec::new(),
            persisting_zones: Vec::new(),
            overwritten_blocks: 0,
            overwritten_counted: 0,
            read_noted: read_blocks,
            read_counted: read_blocks,
            broken: false,
        }
    }

    /// Whether a command was acknowledged that the last round does not cover.
    pub(super) fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub(super) fn media_is_dirty(&mut self) {
        self.dirty = true;
    }

    /// Writes of a zone were acknowledged, or not noted: the next round checks its pointers.
    pub(super) fn note_dirty(&mut self, zone: ZoneIndex) {
        self.dirty = true;
        self.check_again(zone);
    }

    /// The next round checks the pointers of a zone, if there is one.
    pub(super) fn check_again(&mut self, zone: ZoneIndex) {
        if !std::mem::replace(&mut self.zones[zone.as_usize()].is_dirty, true) {
            self.dirty_zones.push(zone);
        }
    }

    pub(super) fn sync_failed(&mut self) {
        self.broken = true;
    }

    /// Whether a sync has failed, so that later ones guarantee nothing.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(super) fn is_running(&self) -> bool {
        self.syncs_out > 0
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Blocks of conventional zones and ZRWAs were written.
    pub(super) fn count_overwritten(&mut self, blocks: u64) {
        self.overwritten_blocks += blocks;
    }

    /// Sets the number of counted reads to at most `blocks`.
    pub(super) fn forget_reads_from(&mut self, blocks: u64) {
        (self.read_noted, self.read_counted) = (self.read_noted.min(blocks), self.read_counted.min(blocks));
    }

    /// Adds a flush to the round that will cover everything acknowledged before it.
    pub(super) fn join(&mut self, command: Key<CommandRun>) -> Joined {
        match (self.dirty, self.is_running()) {
            (false, false) => return Joined::Note,
            // The current round covers everything that was acknowledged.
            (false, true) => self.current.push(command),
            (true, _) => self.waiting.push(command),
        }
        Joined::Round
    }

    /// The zones whose pointers are to be noted before the next round begins.
    pub(super) fn take_dirty_zones(&mut self) -> Vec<ZoneIndex> {
        assert!(!self.is_running() && self.pointers.is_empty(), "one round at a time");
        let zones = std::mem::take(&mut self.dirty_zones);
        for zone in &zones {
            self.zones[zone.as_usize()].is_dirty = false;
        }
        zones
    }

    /// The next round records this pointer if it succeeds.
    pub(super) fn note_pointer(&mut self, pointer: FlushedPointer) {
        self.pointers.push(pointer);
    }

    /// The next round persists the blocks of a ZRWA below `end` if it succeeds.
    pub(super) fn persist(&mut self, zone: ZoneIndex, end: u64) {
        self.zones[zone.as_usize()].persisting = end;
        self.persisting_zones.push(zone);
    }

    /// Below it the current round persists the blocks of a zone; 0 for none.
    #[inline]
    pub(super) fn persisting(&self, zone: ZoneIndex) -> u64 {
        self.zones[zone.as_usize()].persisting
    }

    /// Begins a round of two syncs. Hosts have read so many blocks.
    pub(super) fn begin(&mut self, read_blocks: u64) {
        assert!(!self.is_running(), "one round at a time");
        self.current.append(&mut self.waiting);
        (self.syncs_out, self.failed, self.dirty) = (2, false, false);
        self.overwritten_counted = self.overwritten_blocks;
        self.read_counted = read_blocks;
    }

    /// A sync of the round has ended. Returns whether the round has succeeded, if it was the last
    /// one.
    pub(super) fn on_sync(&mut self, done: bool) -> Option<bool> {
        self.failed |= !done;
        self.broken |= !done && !self.bug.has(SeededBug::ForgottenFailure);
        self.syncs_out = self.syncs_out.checked_sub(1).expect("a round has two syncs");
        (self.syncs_out == 0).then_some(!self.broken && !self.failed)
    }

    /// The round has failed: the next one notes the same zones.
    pub(super) fn fail(&mut self) {
        for zone in std::mem::take(&mut self.persisting_zones) {
            self.zones[zone.as_usize()].persisting = 0;
            self.note_dirty(zone);
        }
        for pointer in std::mem::take(&mut self.pointers) {
            self.note_dirty(pointer.zone);
        }
    }

    /// The zones in which the round has persisted blocks, and up to where.
    pub(super) fn take_persisted(&mut self) -> Vec<(ZoneIndex, u64)> {
        let zones = std::mem::take(&mut self.persisting_zones).into_iter();
        zones.map(|zone| (zone, std::mem::take(&mut self.zones[zone.as_usize()].persisting))).collect()
    }

    /// The pointers that the round has made durable.
    pub(super) fn take_pointers(&mut self) -> Vec<FlushedPointer> {
        std::mem::take(&mut self.pointers)
    }

    /// The blocks that the record of the round counts.
    pub(super) fn take_counts(&mut self) -> Counts {
        let counts = Counts {
            overwritten: std::mem::take(&mut self.overwritten_counted),
            read: self.read_counted - self.read_noted,
        };
        self.overwritten_blocks -= counts.overwritten;
        self.read_noted = self.read_counted;
        counts
    }

    /// The commands of the round, which end with it.
    pub(super) fn take_commands(&mut self) -> Vec<Key<CommandRun>> {
        std::mem::take(&mut self.current)
    }

    pub(super) fn check_invariants(&self) {
        // A command of no round would never end.
        assert!(self.current.is_empty() || self.is_running(), "the commands of a round end with it");
        let is_recorded = self.pointers.is_empty() && self.persisting_zones.is_empty();
        assert!(is_recorded || self.is_running(), "what a round has synced is recorded when it ends");
        let persisting = self.zones.iter().filter(|zone| zone.persisting > 0).count();
        assert_eq!(persisting, self.persisting_zones.len(), "zones in which blocks are being persisted");
        let dirty = self.zones.iter().filter(|zone| zone.is_dirty).count();
        assert_eq!(dirty, self.dirty_zones.len(), "zones that the next round checks");
        assert!(self.overwritten_counted <= self.overwritten_blocks, "a round counts blocks that were written");
        assert!(self.read_noted <= self.read_counted, "reads are counted once");
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::{CommandId, Outcome};

    use super::*;
    use crate::format::Generation;
    use crate::machine::commands::Commands;

    const ZONE: ZoneIndex = ZoneIndex(1);

    fn flushes() -> (FlushRound, [Key<CommandRun>; 3]) {
        let mut commands = Commands::new(512, 0, 0);
        let keys = [1, 2, 3].map(|id| commands.begin(CommandId(id), Outcome::None));
        (FlushRound::new(3, 10, Seeded::NONE), keys)
    }

    #[test]
    fn a_flush_joins_the_round_that_covers_all_acknowledged_writes() {
        let (mut round, [first, second, third]) = flushes();
        assert_eq!(round.join(first), Joined::Note, "there is nothing to flush");
        round.note_dirty(ZONE);
        assert_eq!(round.join(first), Joined::Round);
        assert_eq!(round.take_dirty_zones(), [ZONE]);
        round.begin(10);
        assert_eq!(round.join(second), Joined::Round);
        round.note_dirty(ZONE);
        assert_eq!(round.join(third), Joined::Round);
        assert_eq!((round.on_sync(true), round.on_sync(true)), (None, Some(true)));
        assert_eq!(round.take_commands(), [first, second], "the third covers a later write");
        assert!(round.has_waiting());
        round.check_invariants();
    }

    #[test]
    fn a_failed_round_leaves_its_zones_and_counts_to_the_next_one_which_fails_too() {
        let (mut round, [first, ..]) = flushes();
        round.note_dirty(ZONE);
        round.count_overwritten(3);
        round.join(first);
        for _ in 0..2 {
            assert_eq!(round.take_dirty_zones(), [ZONE]);
            round.note_pointer(FlushedPointer { zone: ZONE, generation: Generation(0), pointer: 4 });
            round.persist(ZONE, 4);
            round.begin(15);
            assert_eq!(round.persisting(ZONE), 4);
            assert_eq!((round.on_sync(false), round.on_sync(true)), (None, Some(false)));
            round.fail();
            round.take_commands();
            round.check_invariants();
            assert_eq!(round.persisting(ZONE), 0);
        }
        assert!(round.is_dirty() && round.is_broken());
        assert_eq!(round.take_counts(), Counts { overwritten: 3, read: 5 });
    }
}

//! [`VZone`]: one zone of a namespace: its stripe groups, and what waits for them.

use std::collections::VecDeque;
use std::ops::Range;

use zonda_zoned::{CommandId, Key, Lba, Payload, Status};

use crate::balloon::Grant;
use crate::format::{GroupRecord, VZoneRecord};
use crate::group::Group;
use crate::limits::PHYSICAL_ZONES_MAX;
use crate::machine::Host;

/// A write to a v-zone, in the order in which it took effect.
#[derive(Debug)]
pub(crate) struct Write {
    /// The command of the host.
    pub(crate) id: CommandId,
    /// Where its blocks are, if that is what the host is told.
    pub(crate) appended: Option<Lba>,
    /// Counts the writes of the namespace.
    pub(crate) number: u64,
    /// Its blocks, within the v-zone.
    pub(crate) blocks: Range<u64>,
    /// Blocks before this one were submitted to the drive.
    pub(crate) issued: u64,
    pub(crate) outstanding: u32,
    pub(crate) status: Status,
    /// Blocks from `issued` on have found no place: it ends with this status, and the v-zone can be
    /// written behind what stands.
    pub(crate) refusal: Option<Status>,
    pub(crate) payload: Payload,
    pub(crate) is_zeroes: bool,
}

/// What waits for its turn in a v-zone.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Write(Key<Write>),
    /// Blocks of the v-zone, and the place of the first in the read.
    Read {
        host: Key<Host>,
        blocks: Range<u64>,
        at: u64,
    },
    Deallocate {
        host: Key<Host>,
        blocks: Range<u64>,
    },
    /// With its number among the writes of the namespace, as the next two.
    Finish(Key<Host>, u64),
    Reset(Key<Host>, u64),
    /// A change that is in the table, and has to be recorded.
    /// With the descriptor extension that was set.
    Record(Key<Host>, u64, Option<Box<[u8]>>),
}

/// What the v-zone is doing; items wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// A Finish waits for its record,
    Finish(Key<Host>, u64),
    /// and for the zones of its groups.
    Ending(Key<Host>),
    Reset {
        host: Option<(Key<Host>, u64)>,
        zones_left: u32,
        status: Status,
        /// Blocks that stood, for as long as the reset may have no effect.
        written_before: u64,
    },
    Record(Key<Host>),
    /// A power loss tore rows of the last group, which are repaired before it is written.
    Repair,
    /// A write has failed, and that is being recorded.
    Fail,
    /// A copy takes the place of the last group.
    Reclaim,
}

/// The active zones of a group that can be written, or that is not finished yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// The place of the group in `groups`.
    pub(crate) group: usize,
    pub(crate) grant: Grant,
    /// All blocks of the group were submitted: nothing but its end is left, so the next groups count
    /// on its zones.
    pub(crate) is_draining: bool,
}

#[derive(Debug, Default)]
pub(crate) struct VZone {
    /// Counts resets.
    pub(crate) generation: u64,
    pub(crate) groups: Vec<Group>,
    /// The resources of groups that have not ended, in the order of the groups.
    pub(crate) grants: VecDeque<Held>,
    /// The last group is recorded, so it can be written.
    pub(crate) is_ready: bool,
    /// It waits for a group.
    pub(crate) wants_group: bool,
    pub(crate) items: VecDeque<Item>,
    pub(crate) busy: Option<Busy>,
    /// Writes whose completion is not delivered, in order.
    pub(crate) writes: VecDeque<Key<Write>>,
    /// Reads and deallocations at the drive.
    pub(crate) reads: u32,
    /// Groups whose zones are being finished.
    pub(crate) endings: u32,
    /// Second blocks of zones of its groups at the drive.
    pub(crate) headers_in_flight: u32,
    /// Blocks before this one were submitted to the drive.
    pub(crate) issued: u64,
    /// Blocks before this one stand on the drive.
    pub(crate) written: u64,
    pub(crate) is_finished: bool,
    /// The pool has finished it, since its last group could not be repaired.
    pub(crate) is_finished_by_pool: bool,
    /// A Finish could not be recorded: the next mount may find the v-zone without it.
    pub(crate) is_unrecorded: bool,
    /// A write has failed: nothing is written until a reset.
    pub(crate) has_failed: bool,
    /// The drive had no space for a write: what stands is found when the pool is opened again, and the
    /// failure is not recorded.
    pub(crate) lacks_space: bool,
    /// A failure that is not recorded: a mount would find the v-zone active. Others that become active wait
    /// for this number.
    pub(crate) failure: Option<u64>,
    pub(crate) is_offline: bool,
    /// A mount could not find its data; nothing of it is written or reset.
    pub(crate) is_damaged: bool,
    /// Write pointers of the zones of the last group, if a mount has found them torn.
    pub(crate) torn: Option<Box<[u64]>>,
    pub(crate) extension: Option<Box<[u8]>>,
    /// Its last group could not be copied since it was last written.
    pub(crate) is_unmovable: bool,
}

const _: () = assert!(
    size_of::<VZone>() + 4 * size_of::<Group>() + PHYSICAL_ZONES_MAX as usize * size_of::<u32>() <= 1024,
    "a quiescent v-zone of the most zones, in four groups, takes at most 1 KiB"
);

impl VZone {
    /// The first block behind its groups.
    #[inline]
    pub(crate) fn groups_end(&self) -> u64 {
        self.groups.last().map_or(0, |group| group.blocks().end)
    }

    /// Whether a mount has found all that this one has acknowledged: as many blocks, unless it was reset
    /// since. A reset that was not acknowledged may have happened or not.
    pub(crate) fn is_held_by(&self, found: &VZone) -> bool {
        let before = match self.busy {
            Some(Busy::Reset { written_before, .. }) => Some((self.generation - 1, written_before)),
            _ => None,
        };
        let holds = |(generation, written): (u64, u64)| found.generation == generation && found.written >= written;
        found.generation > self.generation || holds((self.generation, self.written)) || before.is_some_and(holds)
    }

    /// Memory of the v-zone: its own, and what it has allocated, payloads of writes excepted.
    pub(crate) fn memory_bytes(&self) -> usize {
        let groups = self.groups.capacity() * size_of::<Group>();
        let of_groups: usize = self.groups.iter().map(Group::heap_bytes).sum();
        let grants = self.grants.capacity() * size_of::<Held>();
        let items = self.items.capacity() * size_of::<Item>();
        let writes = self.writes.capacity() * size_of::<Key<Write>>();
        let torn = self.torn.as_deref().map_or(0, size_of_val);
        let extension = self.extension.as_deref().map_or(0, size_of_val);
        size_of::<VZone>() + groups + of_groups + grants + items + writes + torn + extension
    }

    /// Physical zones in its groups.
    pub(crate) fn zone_count(&self) -> u32 {
        self.groups.iter().map(Group::width).sum()
    }

    /// Whether it has a group whose blocks were not all submitted, or waits for one: then it counts
    /// as active for the width of other groups.
    pub(crate) fn is_being_written(&self) -> bool {
        self.wants_group || self.grants.iter().any(|held| !held.is_draining)
    }

    /// Whether a mount would find anything else than an empty v-zone.
    pub(crate) fn is_recorded(&self) -> bool {
        self.generation > 0
            || !self.groups.is_empty()
            || self.extension.is_some()
            || self.is_finished
            || self.is_offline
    }

    /// Whether nothing waits and nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        let has_commands = !self.writes.is_empty() || self.reads > 0 || self.endings > 0 || self.headers_in_flight > 0;
        self.items.is_empty() && self.busy.is_none() && !has_commands
    }

    /// Whether an item that it gets is its next one, and without one it waits for nothing.
    #[inline]
    pub(crate) fn has_nothing_to_do(&self) -> bool {
        self.items.is_empty() && self.busy.is_none() && self.failure.is_none()
    }

    /// Whether a crash could undo what its state says.
    pub(crate) fn has_pending_changes(&self) -> bool {
        !self.items.is_empty() || self.busy.is_some() || !self.writes.is_empty() || self.is_unrecorded
    }

    /// Whether a Finish has taken effect and waits for the writes before it.
    pub(crate) fn finish_waits(&self) -> bool {
        self.is_finished || self.items.iter().any(|item| matches!(item, Item::Finish(..)))
    }

    pub(crate) fn record(&self, namespace: u32, vzone: u32) -> VZoneRecord {
        VZoneRecord {
            namespace,
            vzone,
            generation: self.generation,
            is_finished: self.is_finished,
            is_finished_by_pool: self.is_finished_by_pool,
            is_read_only: self.has_failed && !self.lacks_space && !self.is_finished_by_pool,
            is_offline: self.is_offline,
            written_blocks: self.written,
            extension: self.extension.clone(),
            groups: self.groups.iter().map(Group::record).collect::<Vec<GroupRecord>>(),
        }
    }

    /// # Panics
    /// If its numbers contradict each other.
    pub(crate) fn check_invariants(&self) {
        assert!(self.written <= self.issued, "what stands was submitted");
        assert!(self.issued <= self.groups_end(), "what was submitted has a place");
        assert!(self.grants.len() <= self.groups.len(), "a group has resources once");
        assert!(self.grants.iter().is_sorted_by_key(|held| held.group), "groups end in their order");
        let mut end = 0;
        for group in &self.groups {
            assert_eq!(group.blocks().start, end, "groups follow each other");
            end = group.blocks().end;
        }
    }
}

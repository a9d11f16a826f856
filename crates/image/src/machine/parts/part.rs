//! Parts. A part is the work of a command in one zone.

use bytes::Bytes;
use zonda_zoned::zones::ZoneSnapshot;
use zonda_zoned::{Key, Status, ZoneIndex};

use crate::Counters;
use crate::format::Generation;
use crate::format::entry::Entry;
use crate::format::record::Kind;
use crate::ranges::RangeSet;

use crate::machine::commands::CommandRun;
use crate::machine::intents::Intent;

/// The work of a command in one zone.
#[derive(Debug)]
pub(in crate::machine) struct Part {
    /// `None`: no command requested it, and none waits for it.
    pub(in crate::machine) command: Option<Key<CommandRun>>,
    pub(in crate::machine) zone: ZoneIndex,
    /// The zone's generation when the command was accepted.
    pub(in crate::machine) generation: Generation,
    /// Blocks of the zone, from `first` up to `end`.
    pub(in crate::machine) first: u64,
    pub(in crate::machine) end: u64,
    pub(in crate::machine) work: Work,
    pub(in crate::machine) stage: Stage,
    /// Earlier parts that it waits for.
    pub(super) blockers: u32,
    /// Later parts that wait for it.
    pub(super) waiters: Vec<Key<Part>>,
    /// Outstanding file operations.
    pub(in crate::machine) out: u32,
    /// One of them failed.
    pub(in crate::machine) failed: bool,
    /// One of them failed because the file system is full.
    pub(in crate::machine) lacks_space: bool,
    /// Space in the journal that is reserved for it.
    pub(in crate::machine) reserved_bytes: u64,
    /// It blocks no other part any more.
    pub(super) released: bool,
    /// An earlier part that it depends on has failed: it fails without being started.
    pub(in crate::machine) doomed: bool,
}

#[derive(Debug)]
pub(in crate::machine) enum Work {
    Read {
        /// Its first block, counted from the first one of the command.
        place: u64,
        data: Option<Bytes>,
        tags: Option<Bytes>,
        /// It has found damage while there are intents in the journal, and records the damaged
        /// blocks, by LBA.
        damage: Option<Box<RangeSet>>,
    },
    /// A write at the write pointer of a zone without ZRWA. No data: zeros.
    Sequential { data: Option<Bytes>, tags: Bytes },
    /// Tags of blocks of zeros over those of a zone without ZRWA.
    Zero { tags: Bytes },
    /// A write in a conventional zone or a ZRWA. No data: zeros.
    Overwrite {
        data: Option<Bytes>,
        tags: Bytes,
        /// It is a write of the host, rather than a deallocation.
        counts: bool,
        /// Data and tags on file: before the write, and while a failed write is repaired.
        found: Option<Box<(Option<Bytes>, Option<Bytes>)>>,
        /// Its intent in the journal; `None` if it needs none.
        intent: Option<Box<Intent>>,
    },
    /// Excludes everything else in its zone.
    Manage(Box<Manage>),
}

/// A management command to one zone.
#[derive(Debug)]
pub(in crate::machine) struct Manage {
    /// Without a kind it only waits for earlier commands.
    pub(in crate::machine) kind: Option<Kind>,
    pub(in crate::machine) steps: &'static [Step],
    pub(in crate::machine) at: usize,
    /// Fields of the record: see format/record.rs.
    pub(in crate::machine) pointer: u64,
    pub(in crate::machine) written: u64,
    pub(in crate::machine) zrwa: bool,
    pub(in crate::machine) extension: Box<[u8]>,
    /// No command requested it: the zone failed.
    pub(in crate::machine) degrades: bool,
    pub(in crate::machine) undo: Option<Box<Undo>>,
}

/// The state before a management command, until its record is synced.
#[derive(Debug)]
pub(in crate::machine) struct Undo {
    pub(in crate::machine) snapshot: ZoneSnapshot,
    /// The zone's generation before the command was accepted.
    pub(in crate::machine) generation: Generation,
    /// The ledger before the record was added; absent until then.
    pub(in crate::machine) ledger: Option<LedgerUndo>,
}

#[derive(Debug)]
pub(in crate::machine) struct LedgerUndo {
    pub(in crate::machine) entry: Entry,
    pub(in crate::machine) extension: Option<Box<[u8]>>,
    pub(in crate::machine) counters_added: Counters,
    pub(in crate::machine) on_file: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) enum Step {
    /// Punch holes in data and tags.
    Punch,
    /// Sync data and tags.
    Sync,
    /// Write the journal record and sync it.
    Record,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) enum Stage {
    /// Waits for earlier parts, or to be started.
    Waiting,
    /// Waits for the end of a checkpoint.
    Held,
    /// Waits for the tags before an overwrite, which its intent contains.
    Before,
    /// Waits for the data before it, where some of these tags stand for zeros.
    DataBefore,
    /// Waits for space in the files, before its contents are journaled.
    Space,
    /// Waits for its journal record.
    Journal,
    /// Waits for its data, before its tags are written.
    Data,
    /// Waits for its tags of zeros, before its holes are punched.
    ZeroTags,
    /// Waits for file operations.
    Files,
    /// A sequential write that waits for the acknowledgement of earlier ones.
    Done,
    /// A failed overwrite reads its blocks on file.
    RepairRead,
    /// A failed overwrite makes tags match data again; a failed sequential write clears tags.
    RepairWrite,
    /// A failed sequential write syncs the cleared tags.
    RepairSync,
}

impl Stage {
    /// Whether an overwrite waits for contents or tags on file.
    pub(in crate::machine) fn reads_blocks(self) -> bool {
        matches!(self, Stage::Before | Stage::DataBefore | Stage::RepairRead)
    }
}

impl Part {
    pub(in crate::machine) fn new(
        command: Option<Key<CommandRun>>,
        zone: ZoneIndex,
        generation: Generation,
        first: u64,
        end: u64,
        work: Work,
    ) -> Part {
        Part {
            command,
            zone,
            generation,
            first,
            end,
            work,
            stage: Stage::Waiting,
            blockers: 0,
            waiters: Vec::new(),
            out: 0,
            failed: false,
            lacks_space: false,
            reserved_bytes: 0,
            released: false,
            doomed: false,
        }
    }

    /// The status of a failed write.
    pub(in crate::machine) fn failure(&self) -> Status {
        if self.lacks_space { Status::CapacityExceeded } else { Status::WriteFault }
    }

    pub(in crate::machine) fn blocks(&self) -> u64 {
        self.end - self.first
    }

    pub(in crate::machine) fn is_exclusive(&self) -> bool {
        matches!(self.work, Work::Manage(_))
    }

    pub(super) fn is_overwrite(&self) -> bool {
        matches!(self.work, Work::Overwrite { .. } | Work::Zero { .. })
    }

    fn is_read(&self) -> bool {
        matches!(self.work, Work::Read { .. })
    }

    /// The rule of order within a zone: parts that touch the same blocks are processed in the order
    /// of submission, unless both read; management touches all blocks.
    pub(super) fn conflicts_with(&self, earlier: &Part) -> bool {
        if self.is_exclusive() || earlier.is_exclusive() {
            return true;
        }
        let overlap = self.first < earlier.end && earlier.first < self.end;
        overlap && !(self.is_read() && earlier.is_read())
    }

    /// Whether its outstanding file operations are syncs.
    pub(in crate::machine) fn is_syncing(&self) -> bool {
        match &self.work {
            Work::Manage(manage) => self.stage == Stage::Files && manage.steps.get(manage.at) == Some(&Step::Sync),
            _ => self.stage == Stage::RepairSync,
        }
    }

    /// Whether a checkpoint must wait for it because it may write to the journal.
    pub(in crate::machine) fn uses_journal(&self) -> bool {
        match &self.work {
            Work::Overwrite { .. } => true,
            Work::Read { damage, .. } => damage.is_some(),
            Work::Manage(manage) => manage.kind.is_some(),
            _ => false,
        }
    }
}

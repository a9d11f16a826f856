//! State of outstanding work: commands, read chains, work of dies, paddings.

use zonda_zoned::zones::ZoneSnapshot;
use zonda_zoned::{CommandId, Duration, Key, Outcome, Status, ZoneIndex};

use crate::layout::Layout;
use crate::store::{BlockContents, ZoneContents};

/// Names a command in flight.
pub(crate) type CommandKey = Key<PendingCommand>;

/// The hardware that a command uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Firmware only: rejected commands, open, close, reports.
    Short,
    Read,
    Write,
    Append,
    /// A write without transfer.
    WriteZeroes,
    Reset,
    Finish,
}

impl Kind {
    /// Whether the command writes data to zones.
    #[inline]
    pub(crate) fn is_write(self) -> bool {
        matches!(self, Kind::Write | Kind::Append | Kind::WriteZeroes)
    }
}

/// A command from submission to completion.
#[derive(Debug)]
pub(crate) struct PendingCommand {
    pub(crate) id: CommandId,
    pub(crate) kind: Kind,
    pub(crate) status: Status,
    pub(crate) outcome: Outcome,
    /// The first zone addressed, and the generation of its contents.
    pub(crate) zone: ZoneIndex,
    pub(crate) generation: u32,
    /// Offset in the zone, and length.
    pub(crate) offset_bytes: u64,
    pub(crate) bytes: u64,
    pub(crate) flags: CommandFlags,
    /// Pages, programs or zones that must complete before the command does.
    pub(crate) parts: u32,
    /// Of a write, the group of its space in the buffer. The zone may have been reset before the
    /// space is released.
    pub(crate) buffer_group: u32,
    /// Of a write, the bytes received over the link.
    pub(crate) arrived_bytes: u64,
    /// Of a ZRWA zone, the bytes that this command committed.
    pub(crate) committed_bytes: u64,
    /// Of a reset, the remaining firmware work.
    pub(crate) serial_left: Duration,
    /// The part of it that excludes programs of data.
    pub(crate) exclusive: Duration,
    /// Of a reset, the mapping that it programs.
    pub(crate) mapping_bytes: u64,
    /// Of a finish, the zones to pad.
    pub(crate) finishing: Vec<(ZoneIndex, u32)>,
    pub(crate) undo: Option<Box<Undo>>,
}

/// Flags of a command.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommandFlags {
    /// This write opened its zone, or is the first in it.
    pub(crate) opens_zone: bool,
    /// This write goes to a Zone Random Write Area.
    pub(crate) is_zrwa: bool,
    /// This write goes to conventional zones.
    pub(crate) is_conventional: bool,
    /// The link overhead of the whole command has been counted.
    pub(crate) link_paid: bool,
}

/// How to undo a command that was in flight at power loss.
#[derive(Debug, Default)]
pub(crate) struct Undo {
    /// Zones as they were before a management command.
    pub(crate) zones: Vec<ZoneUndo>,
    /// Blocks as they were before they were overwritten.
    pub(crate) blocks: Vec<BlockUndo>,
}

/// A zone as it was before a management command.
#[derive(Debug)]
pub(crate) struct ZoneUndo {
    pub(crate) zone: ZoneIndex,
    pub(crate) before: ZoneSnapshot,
    /// Contents that a reset discarded.
    pub(crate) contents: Option<ZoneContents>,
    /// The zone's change count when the command had taken effect: it cannot be undone after a later
    /// change.
    pub(crate) changes: u32,
    /// The contents' generation before.
    pub(crate) generation: u32,
}

/// A block as it was before it was overwritten.
#[derive(Debug)]
pub(crate) struct BlockUndo {
    pub(crate) zone: ZoneIndex,
    pub(crate) block: u64,
    pub(crate) before: BlockContents,
}

/// Common divisor of all block sizes.
const SMALLEST_BLOCK_BYTES: u32 = 512;

/// A page of a zone, in one generation of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PageId {
    pub(crate) zone: ZoneIndex,
    pub(crate) generation: u32,
    pub(crate) page: u64,
}

/// For whom pages are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A command, and the number of its present page on the die among those of the zone's slot; 0
    /// where all pages take the same times.
    Host { command: CommandKey, page_of_slot: u32 },
    /// A page that is read ahead.
    Ahead(PageId),
    /// The garbage collection of this erase unit of the chain's die.
    Collection { unit: u32 },
    /// A page of the map of conventional zones.
    Map { page: u32 },
}

/// Pages of one command on one die, sensed one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadChain {
    pub(crate) reader: Reader,
    /// The page, if there is one only, and it may serve others from the die's register.
    pub(crate) page: Option<PageId>,
    pub(crate) die: u16,
    pub(crate) pages_to_sense: u32,
    pub(crate) pages_to_send: u32,
    /// Bytes wanted of the present page, of the pages between it and the last together, and of the
    /// last.
    pub(crate) bytes: u32,
    pub(crate) between_bytes: u32,
    pub(crate) last_bytes: u32,
}

impl ReadChain {
    pub(crate) fn of_one_page(reader: Reader, die: u16, bytes: u32, page: Option<PageId>) -> ReadChain {
        ReadChain { reader, page, die, pages_to_sense: 1, pages_to_send: 1, bytes, between_bytes: 0, last_bytes: bytes }
    }

    /// The number of the present page among those of its slot, which determines its type.
    #[inline]
    pub(crate) fn page_of_slot(&self, layout: &Layout) -> u32 {
        match self.reader {
            Reader::Host { page_of_slot, .. } => page_of_slot,
            Reader::Ahead(id) => layout.page_of_slot(id.page),
            Reader::Collection { .. } | Reader::Map { .. } => 0,
        }
    }

    /// Bytes wanted of the present page.
    #[inline]
    pub(crate) fn page_bytes(&self) -> u32 {
        if self.pages_to_sense == 1 { self.last_bytes } else { self.bytes }
    }

    /// The present page was read. Of the pages between it and the last, the same amount is assumed:
    /// whole pages in a zone; for scattered blocks of a conventional zone, the sum is correct.
    #[inline]
    pub(crate) fn page_is_sensed(&mut self) {
        self.pages_to_sense -= 1;
        if let Reader::Host { page_of_slot, .. } = &mut self.reader {
            *page_of_slot += 1;
        }
        if self.pages_to_sense > 1 {
            let share = self.between_bytes / (self.pages_to_sense - 1);
            self.bytes = share - share % SMALLEST_BLOCK_BYTES;
            self.between_bytes -= self.bytes;
        }
    }

    /// Adds a page, before any is sensed.
    #[inline]
    pub(crate) fn add_page(&mut self, bytes: u32) {
        if self.pages_to_sense > 1 {
            self.between_bytes += self.last_bytes;
        }
        self.pages_to_sense += 1;
        self.pages_to_send += 1;
        self.last_bytes = bytes;
        self.page = None;
    }
}

/// Reason of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Host,
    Padding,
    /// Host data that leave the buffer before their unit is full.
    Spill,
    /// Valid data of an erase unit whose garbage is collected.
    Collection,
    /// The mapping of a zone that is reset.
    Mapping,
    Erase,
}

/// Target of a program or erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A row of a slot of a zone, in one generation of its contents.
    Zone { zone: ZoneIndex, generation: u32, slot: u16, row: u32 },
    /// A program unit of an erase unit that conventional zones use.
    Conventional { unit: u32, program: u32 },
    /// An erase unit of a zone, erased before its first program.
    ZoneErase { zone: ZoneIndex },
    /// A unit for the mapping of a zone.
    Mapping { zone: ZoneIndex },
}

/// A program or erase of a die.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) cause: Cause,
    pub(crate) die: u16,
    pub(crate) place: Place,
    /// Bytes of host data, whose space in the buffer is released.
    pub(crate) host_bytes: u64,
    /// Bytes of host data that were spilled before, and whose space was released then.
    pub(crate) spilled_bytes: u64,
    pub(crate) pad_bytes: u64,
    pub(crate) pages_to_load: u32,
    /// Group of the buffer's cap.
    pub(crate) group: u32,
    /// The command that waits for this.
    pub(crate) command: Option<CommandKey>,
    /// The padding this belongs to.
    pub(crate) padding: Option<Key<Padding>>,
}

/// The padding of one zone that is being finished: one program per die at a time, so that other
/// work is not delayed.
#[derive(Debug)]
pub(crate) struct Padding {
    pub(crate) command: CommandKey,
    pub(crate) zone: ZoneIndex,
    pub(crate) generation: u32,
    /// Where padding begins in the zone, and ends in each slot.
    pub(crate) from_bytes: u64,
    pub(crate) ends_bytes: Box<[u64]>,
    /// Next row of each slot, and the end row of each.
    pub(crate) next_row: Box<[u32]>,
    pub(crate) end_row: Box<[u32]>,
    pub(crate) in_flight: u32,
}

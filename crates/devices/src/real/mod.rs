//! Real zoned drives: what the kernel's block layer and NVMe passthrough have in common.
//!
//! [`Machine`] keeps the states and write pointers of all zones as they are after the commands
//! accepted so far, decides what a command may do, and passes [`Request`]s to the drive in an order in
//! which the drive decides the same. The drive's answers only confirm it. After an error the machine
//! reads the state of the zone again, and believes the drive.
//!
//! ```text
//! submit.rs    a command takes effect on the zone table, and is split into parts, one per zone
//! parts.rs     which parts wait for which
//! ended.rs     a part ends; what follows from an error
//! buffers.rs   aligned memory
//! adopt.rs     the state of a zone as the drive reports it
//! drive.rs     the machine on a queue of requests, as a [`Drive`](crate::Drive)
//! device.rs    opens a drive by its device file, with one of the drivers:
//! kernel_zoned/, nvme_passthrough/
//! overlay.rs   a drive that is only read, and changes in memory
//! signature.rs what is on a drive
//! ```
//!
//! # Order
//! At most one write of a sequential zone is outstanding, so that neither an I/O scheduler nor the
//! drive can change the order of writes. Commands that need an open or active resource wait for those
//! before them that free one. Appends of one zone are passed to the drive in the order of submission,
//! and are outstanding together, if the drive has them; if it has none, the machine chooses the block
//! itself and writes there.

mod adopt;
mod buffers;
mod device;
mod drive;
mod ended;
mod kernel_zoned;
mod nvme_passthrough;
mod overlay;
mod parts;
mod signature;
mod submit;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_zoned::zones::{ZoneEffect, ZoneTable};
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, CompletionQueue, Key, Lba, Outcome, QueueFull, Slab, Status,
    ZoneAction, ZoneDescriptor, ZoneIndex, ZoneState,
};

pub(crate) use adopt::table_of;
pub(crate) use buffers::{aligned, aligned_buffer, is_aligned};
pub(crate) use device::PreparedDevice;
#[cfg(feature = "testing")]
pub use device::device_without_zones;
pub use device::{DeviceMode, open_device};
pub(crate) use drive::{Opened, Queue, RealDrive};
pub(crate) use overlay::Overlay;
use parts::{Part, Parts};
pub use signature::{SIGNATURE_BYTES, signature_of};

/// Commands of hosts outstanding on one drive.
const COMMANDS_MAX: usize = 1024;

/// What the drive can do beyond reads, writes and zone management.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// Zone Append.
    pub(crate) append: bool,
    /// Deallocate, after which blocks read as zeros.
    pub(crate) deallocate: bool,
    /// Read only zones can be taken offline.
    pub(crate) offline: bool,
}

/// Identifies a request to the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RequestId(pub(crate) u64);

/// A request to the drive. The owner carries requests out in any order.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) operation: RawOperation,
}

/// An operation of the drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RawOperation {
    /// At most one transfer.
    Read {
        start: Lba,
        blocks: Blocks,
    },
    /// At most one transfer.
    Write {
        start: Lba,
        buffer: BlockBuffer,
    },
    Append {
        zone_start: Lba,
        buffer: BlockBuffer,
    },
    Deallocate {
        start: Lba,
        blocks: Blocks,
    },
    Flush,
    Manage {
        action: RawAction,
        zone: ZoneIndex,
    },
    /// Set Zone Descriptor Extension.
    SetExtension {
        zone: ZoneIndex,
        extension: Bytes,
    },
    Report {
        zone: ZoneIndex,
    },
}

/// An action on one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RawAction {
    Reset,
    Finish,
    Open,
    Close,
    Offline,
}

impl RawAction {
    /// The action of a zone management command.
    fn zone_action(self) -> ZoneAction {
        match self {
            RawAction::Reset => ZoneAction::Reset,
            RawAction::Finish => ZoneAction::Finish,
            RawAction::Open => ZoneAction::Open { zrwa: false },
            RawAction::Close => ZoneAction::Close,
            RawAction::Offline => ZoneAction::Offline,
        }
    }
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    /// The data and metadata of a read, all of it.
    Data(BlockBuffer),
    /// Where an append was placed.
    Placed(Lba),
    Zone(FoundZone),
}

/// A zone as the drive reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundZone {
    pub(crate) state: ZoneState,
    /// Offset of the write pointer; meaningless in states without one.
    pub(crate) write_pointer_blocks: Blocks,
    /// The descriptor extension, if the zone has one.
    pub(crate) extension: Option<Box<[u8]>>,
}

impl FoundZone {
    /// A zone without a descriptor extension.
    pub(crate) fn new(state: ZoneState, write_pointer_blocks: Blocks) -> FoundZone {
        FoundZone { state, write_pointer_blocks, extension: None }
    }

    /// A zone as Report Zones describes it.
    pub(crate) fn of(zone: &ZoneDescriptor) -> FoundZone {
        let written = zone.write_pointer.map_or(0, |pointer| pointer.0.saturating_sub(zone.start.0));
        FoundZone {
            extension: zone.extension.clone().filter(|_| zone.attributes.extension_valid),
            ..FoundZone::new(zone.state, Blocks(written))
        }
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawError {
    pub(crate) status: Status,
    pub(crate) why: String,
    /// The drive does not exist any more.
    pub(crate) is_removed: bool,
}

/// How far the table is known to be right about a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trust {
    #[default]
    Sure,
    /// A write failed. Until the zone has been reported, writes are refused.
    Suspect,
    /// A reset or another action failed. Reads are refused, too: the zone may still have its data.
    Unknown,
}

/// A command of a host.
#[derive(Debug)]
struct Run {
    id: CommandId,
    /// Parts that have not ended.
    parts_left: u32,
    /// The first error.
    status: Status,
    outcome: Outcome,
    /// Blocks of a read.
    blocks: Blocks,
    /// What was read, with the place in the command, in blocks.
    read: Vec<(u64, BlockBuffer)>,
}

/// Commands in, requests to the drive out.
pub(crate) struct Machine {
    table: ZoneTable,
    abilities: Abilities,
    runs: Slab<Run>,
    parts: Parts,
    trust: Vec<Trust>,
    requests: VecDeque<Request>,
    completions: VecDeque<Completion>,
    /// Flushes in progress, by request.
    flushes: Vec<(RequestId, Option<Key<Run>>)>,
    next_flush: u64,
    /// The result of the flush of [`shutdown`](Machine::shutdown).
    shutdown: Option<Result<(), String>>,
    is_removed: bool,
    media_errors: u64,
    warnings: VecDeque<String>,
    /// For reuse.
    effects: Vec<ZoneEffect>,
}

/// Flushes have identifiers of their own, above all of parts.
const FLUSHES_FROM: u64 = 1 << 40;
/// Warnings that wait to be taken; further ones are dropped.
const WARNINGS_MAX: usize = 16;

impl Machine {
    pub(crate) fn new(table: ZoneTable, abilities: Abilities) -> Machine {
        let zones = table.geometry().zone_count as usize;
        let conventional = table.geometry().conventional_zone_count;
        Machine {
            table,
            abilities,
            runs: Slab::new(),
            parts: Parts::new(zones, conventional),
            trust: vec![Trust::Sure; zones],
            requests: VecDeque::new(),
            completions: VecDeque::new(),
            flushes: Vec::new(),
            next_flush: FLUSHES_FROM,
            shutdown: None,
            is_removed: false,
            media_errors: 0,
            warnings: VecDeque::new(),
            effects: Vec::new(),
        }
    }

    pub(crate) fn table(&self) -> &ZoneTable {
        &self.table
    }

    pub(crate) fn media_errors(&self) -> u64 {
        self.media_errors
    }

    pub(crate) fn take_warning(&mut self) -> Option<String> {
        self.warnings.pop_front()
    }

    pub(crate) fn submit(&mut self, command: Command) -> Result<(), QueueFull> {
        if self.runs.len() >= COMMANDS_MAX {
            return Err(QueueFull(command));
        }
        self.take(command);
        self.start_ready();
        Ok(())
    }

    /// The next request to the drive.
    pub(crate) fn poll_effect(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// Whether requests or completions wait to be taken.
    pub(crate) fn has_news(&self) -> bool {
        !self.requests.is_empty() || !self.completions.is_empty()
    }

    pub(crate) fn poll(&mut self, completions: &mut CompletionQueue) {
        self.completions.drain(..).for_each(|completion| completions.push(completion));
    }

    /// Whether no command is in flight and no request outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        self.runs.is_empty() && self.parts.is_empty() && self.flushes.is_empty() && !self.has_news()
    }

    /// Whether the drive is missing: it takes no requests any more.
    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed
    }

    /// Whether requests to the drive are outstanding, or will be made.
    pub(crate) fn has_requests(&self) -> bool {
        !(self.parts.is_empty() && self.flushes.is_empty() && self.requests.is_empty())
    }

    /// Flushes the drive a last time.
    pub(crate) fn shutdown(&mut self) {
        match self.is_removed {
            true => self.shutdown = Some(Err("the drive is missing".to_owned())),
            false => self.flush(None),
        }
    }

    /// The result of that flush.
    pub(crate) fn shutdown_result(&self) -> Option<&Result<(), String>> {
        self.shutdown.as_ref()
    }

    fn flush(&mut self, run: Option<Key<Run>>) {
        let id = RequestId(self.next_flush);
        self.next_flush += 1;
        self.flushes.push((id, run));
        self.requests.push_back(Request { id, operation: RawOperation::Flush });
    }

    /// Passes parts that need not wait any more to the drive.
    fn start_ready(&mut self) {
        while let Some(key) = self.parts.next_ready() {
            let part = &self.parts[key];
            if part.is_doomed || self.is_removed {
                self.end_unstarted(key, if self.is_removed { Status::InternalError } else { Status::WriteFault });
                continue;
            }
            let start = self.table.geometry().zone_start(part.zone);
            match part.operation(start) {
                Some(operation) => {
                    self.parts.start(key);
                    self.requests.push_back(Request { id: RequestId(u64::from(key.index())), operation });
                }
                None => self.end_part(key, Ok(Answer::Done)),
            }
        }
    }

    fn key_of(id: RequestId) -> Key<Part> {
        Key::of_command(CommandId(id.0)).expect("requests of parts have the identifiers of parts")
    }

    fn warn(&mut self, warning: String) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push_back(warning);
        }
    }

    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        self.parts.check_invariants();
        let parts = self.parts.iter().filter(|part| part.run.is_some()).count();
        let flushes = self.flushes.iter().filter(|(_, run)| run.is_some()).count();
        let left: u32 = self.runs.iter().map(|(_, run)| run.parts_left).sum();
        assert_eq!(parts + flushes, left as usize, "every part belongs to a command that waits for it");
    }
}

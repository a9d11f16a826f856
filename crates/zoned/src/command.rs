//! Commands to a zoned namespace.

use crate::{Blocks, CommandId, Lba, NamespaceId, Payload, ReportFilter};

/// A command, as it is submitted. It is made by [`Command::new`], and a device that passes it on
/// changes only what it has to ([`Command::with_id`], ...), so that the origin arrives at the
/// bottom.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Command {
    /// Returned in the completion; unique among the submitter's outstanding commands.
    pub id: CommandId,
    /// The namespace addressed.
    pub namespace: NamespaceId,
    /// Who sent it, and how urgent it is. It changes the order in which a scheduler submits
    /// commands, and never their effect.
    pub origin: Origin,
    /// The operation.
    pub operation: Operation,
}

/// The submitter of a command, as a scheduler distinguishes submitters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Commands of one tenant share its part of a device.
    pub tenant: TenantId,
    /// The class of the command.
    pub class: Class,
    /// Zones that the stream is striped over; 0 if there is no stream.
    pub stream_width: u8,
    /// The stream within the tenant.
    pub stream: StreamId,
}

/// Commands of a tenant that share a place in a schedule: in an elastic namespace those of a stripe
/// group. The tenant assigns the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// A submitter with a share of its own. Whoever merges the commands of several submitters assigns
/// the numbers; others leave [`TenantId::DEFAULT`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u16);

impl TenantId {
    /// The tenant of commands that no one has assigned to another.
    pub const DEFAULT: TenantId = TenantId(0);
}

/// The class of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A user waits for it.
    #[default]
    Foreground,
    /// Maintenance that may wait: garbage collection, rebuild, scrub, migration.
    Background,
}

impl Command {
    /// A command of the default tenant, in the foreground.
    #[must_use]
    pub fn new(id: CommandId, namespace: NamespaceId, operation: Operation) -> Command {
        Command { id, namespace, origin: Origin::default(), operation }
    }

    /// The same command under another identifier.
    #[must_use]
    pub fn with_id(self, id: CommandId) -> Command {
        Command { id, ..self }
    }

    /// The same command to another namespace.
    #[must_use]
    pub fn with_namespace(self, namespace: NamespaceId) -> Command {
        Command { namespace, ..self }
    }

    /// The same command from another origin.
    #[must_use]
    pub fn with_origin(self, origin: Origin) -> Command {
        Command { origin, ..self }
    }

    /// The same command, in the background.
    #[must_use]
    pub fn in_background(mut self) -> Command {
        self.origin.class = Class::Background;
        self
    }

    /// The same command with another operation.
    #[must_use]
    pub fn with_operation(self, operation: Operation) -> Command {
        Command { operation, ..self }
    }
}

/// The operation of a command. Section numbers are those of the Zoned Namespace Command Set 1.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read (3.3.5). Unwritten blocks read as zeros.
    Read {
        /// First block.
        start: Lba,
        /// Number of blocks.
        blocks: Blocks,
    },
    /// Write (3.3.7), at the write pointer of a sequential zone or anywhere in its ZRWA.
    Write {
        /// First block.
        start: Lba,
        /// Number of blocks.
        blocks: Blocks,
        /// Contents.
        payload: Payload,
    },
    /// Zone Append (3.4.1): the device chooses the LBA and returns it.
    Append {
        /// The zone's first block.
        zone_start: Lba,
        /// Number of blocks.
        blocks: Blocks,
        /// Contents.
        payload: Payload,
    },
    /// Write Zeroes (3.3.9): as a write of zeros, without their transfer.
    WriteZeroes {
        /// First block.
        start: Lba,
        /// Number of blocks.
        blocks: Blocks,
    },
    /// Dataset Management with Deallocate (3.3.3): the ranges read as zeros from now on; write
    /// pointers stay.
    Deallocate {
        /// At most [`crate::limits::DEALLOCATE_RANGES_MAX`].
        ranges: Box<[LbaRange]>,
    },
    /// Flush (3.3.4).
    Flush,
    /// Zone Management Send (3.4.3).
    ManageZones {
        /// Zone Send Action.
        action: ZoneAction,
        /// One zone, or Select All.
        target: ZoneTarget,
    },
    /// Zone Management Receive (3.4.2): Report Zones and Extended Report Zones.
    ReportZones {
        /// Any block of the first zone reported.
        start: Lba,
        /// Which zones to report.
        filter: ReportFilter,
        /// Whether descriptor extensions come with the descriptors.
        extended: bool,
        /// Partial Report bit: count the zones returned rather than all that match.
        partial: bool,
        /// Maximum number of descriptors: the size of the submitter's buffer.
        descriptors_max: u32,
    },
    /// Get Log Page BFh: zones that changed on their own since the last reading, which empties the
    /// list.
    ReadChangedZones,
}

/// Consecutive blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaRange {
    /// First block.
    pub start: Lba,
    /// Number of blocks.
    pub blocks: Blocks,
}

/// Zone Send Action (3.4.3, Figure 47) with its specific fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneAction {
    /// 01h.
    Close,
    /// 02h.
    Finish,
    /// 03h.
    Open {
        /// Allocate a Zone Random Write Area with it (ZRWAA).
        zrwa: bool,
    },
    /// 04h.
    Reset,
    /// 05h.
    Offline,
    /// 10h.
    SetDescriptorExtension {
        /// Exactly [`crate::Geometry::descriptor_extension_bytes`] long.
        extension: Box<[u8]>,
        /// Allocate a Zone Random Write Area with it (ZRWAA).
        zrwa: bool,
    },
    /// 11h: commit the ZRWA up to and including the target block.
    FlushZrwa,
}

/// What a management action applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneTarget {
    /// The zone that starts here; for [`ZoneAction::FlushZrwa`], the last block to commit.
    Zone(Lba),
    /// Select All: every zone in a state that the action applies to.
    All,
}

impl Operation {
    /// A short name for traces and tables.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Read { .. } => "read",
            Operation::Write { .. } => "write",
            Operation::Append { .. } => "append",
            Operation::WriteZeroes { .. } => "write zeroes",
            Operation::Deallocate { .. } => "deallocate",
            Operation::Flush => "flush",
            Operation::ManageZones { action, .. } => match action {
                ZoneAction::Close => "close",
                ZoneAction::Finish => "finish",
                ZoneAction::Open { .. } => "open",
                ZoneAction::Reset => "reset",
                ZoneAction::Offline => "offline",
                ZoneAction::SetDescriptorExtension { .. } => "set descriptor extension",
                ZoneAction::FlushZrwa => "flush zrwa",
            },
            Operation::ReportZones { .. } => "report zones",
            Operation::ReadChangedZones => "read changed zones",
        }
    }

    /// The number of blocks of a read, write or append; zero for other commands.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        match self {
            Operation::Read { blocks, .. }
            | Operation::Write { blocks, .. }
            | Operation::Append { blocks, .. }
            | Operation::WriteZeroes { blocks, .. } => *blocks,
            _ => Blocks::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_stays_small_because_every_layer_moves_it() {
        assert!(size_of::<Origin>() <= 8, "{} bytes", size_of::<Origin>());
        assert!(size_of::<Command>() <= 72, "{} bytes", size_of::<Command>());
    }

    #[test]
    fn only_reads_writes_and_appends_have_a_number_of_blocks() {
        let (start, zone_start, blocks, payload) = (Lba(8), Lba(0), Blocks(3), Payload::None);
        for operation in [
            Operation::Read { start, blocks },
            Operation::Write { start, blocks, payload: payload.clone() },
            Operation::Append { zone_start, blocks, payload },
            Operation::WriteZeroes { start, blocks },
        ] {
            assert_eq!(operation.blocks(), blocks, "{}", operation.name());
        }
        for operation in [Operation::Flush, Operation::ReadChangedZones] {
            assert_eq!(operation.blocks(), Blocks::ZERO, "{}", operation.name());
        }
    }
}
